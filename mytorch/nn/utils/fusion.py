"""Batch normalisation folded into the layer before it, for inference."""

import copy

from ..._tensor import Tensor
from ...ops.creation import ones_like, zeros_like
from ..module import Module
from ..parameter import Parameter


def _check(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A copy of a convolution that does what the convolution and the batch normalisation do, in eval mode.

    Args:
        transpose: whether the convolution is a transposed one.

    Raises:
        AssertionError: one of them is in training mode, or there are no running statistics.
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, *statistics, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """(weight, bias) of a convolution with the normalisation folded in, as Parameters.

    Args:
        conv_w: the convolution's weight.
        conv_b: its bias, or None.
        bn_rm: running mean.
        bn_rv: running variance.
        bn_eps: added to the variance.
        bn_w: weight of the norm; ones if None.
        bn_b: bias of the norm; zeros if None.
        transpose: a transposed convolution.
    """
    weight_dtype = conv_w.dtype
    bias_dtype = weight_dtype if conv_b is None else conv_b.dtype
    conv_b = zeros_like(bn_rm) if conv_b is None else conv_b
    bn_w = ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = zeros_like(bn_rm) if bn_b is None else bn_b
    scale = (bn_rv + bn_eps).rsqrt() * bn_w
    ones = (1,) * (conv_w.ndim - 2)
    weight = conv_w * scale.reshape(*((1, -1) if transpose else (-1, 1)), *ones)
    bias = (conv_b - bn_rm) * scale + bn_b
    return (
        Parameter(weight.detach().to(weight_dtype), conv_w.requires_grad),
        Parameter(bias.detach().to(bias_dtype), conv_b.requires_grad),
    )


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A copy of a linear layer that does what the layer and the batch normalisation do, in eval mode.

    Raises:
        AssertionError: one of them is in training mode, no running statistics, or another number of features.
    """
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *statistics)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """(weight, bias) of a linear layer with the normalisation folded in, as Parameters.

    Args:
        linear_w: the layer's weight.
        linear_b: its bias, or None.
        bn_rm: running mean.
        bn_rv: running variance.
        bn_eps: added to the variance.
        bn_w: weight of the norm.
        bn_b: bias of the norm.
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
