"""Fusion of batch normalization into the preceding layer, for inference."""

import copy

from ...arrays.tensor import Tensor
from ...ops.creation import ones_like, zeros_like
from ..module import Module
from ..parameter import Parameter


def _check(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call eval() on both modules first.")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None. Use track_running_stats=True.")


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """Returns a copy of a convolution that also applies a batch normalization in evaluation mode.

    Args:
        conv: the convolution, in evaluation mode.
        bn: the batch normalization, in evaluation mode.
        transpose: True for a transposed convolution (default: False).

    Raises:
        AssertionError: a module is in training mode, or `bn` has no running statistics.

    Example:
        >>> conv, bn = nn.Conv2d(3, 4, 3).eval(), nn.BatchNorm2d(4).eval()
        >>> x = mytorch.randn(1, 3, 8, 8)
        >>> bool((nn.utils.fuse_conv_bn_eval(conv, bn)(x) - bn(conv(x))).abs().max() < 1e-5)
        True
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
    """Returns weight and bias of a convolution that also applies a batch normalization.

    Args:
        conv_w: weight of the convolution.
        conv_b: bias of the convolution, or `None`.
        bn_rm: running mean.
        bn_rv: running variance.
        bn_eps: number added to the variance.
        bn_w: weight of the batch normalization, or `None` for ones.
        bn_b: bias of the batch normalization, or `None` for zeros.
        transpose: True for a transposed convolution (default: False).

    Returns:
        A tuple of two Parameters.
    """
    weight_dtype = conv_w.dtype
    bias_dtype = weight_dtype if conv_b is None else conv_b.dtype
    conv_b = zeros_like(bn_rm) if conv_b is None else conv_b
    bn_w = ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = zeros_like(bn_rm) if bn_b is None else bn_b
    # bn(conv(x)) = (W x + b - mean) * scale + bn_b, which is a convolution with W * scale.
    scale = (bn_rv + bn_eps).rsqrt() * bn_w
    ones = (1,) * (conv_w.ndim - 2)
    weight = conv_w * scale.reshape(*((1, -1) if transpose else (-1, 1)), *ones)
    bias = (conv_b - bn_rm) * scale + bn_b
    new_w = Parameter(weight.detach().to(weight_dtype), conv_w.requires_grad)
    return new_w, Parameter(bias.detach().to(bias_dtype), conv_b.requires_grad)


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """Returns a copy of a linear layer that also applies a batch normalization in evaluation mode.

    Args:
        linear: the linear layer, in evaluation mode.
        bn: the batch normalization, in evaluation mode.

    Raises:
        AssertionError: a module is in training mode, `bn` has no running statistics, or the numbers of features differ.

    Example:
        >>> linear, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
        >>> x = mytorch.randn(2, 3)
        >>> bool((nn.utils.fuse_linear_bn_eval(linear, bn)(x) - bn(linear(x))).abs().max() < 1e-5)
        True
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
    """Returns weight and bias of a linear layer that also applies a batch normalization.

    Args:
        linear_w: weight of the linear layer.
        linear_b: bias of the linear layer, or `None`.
        bn_rm: running mean.
        bn_rv: running variance.
        bn_eps: number added to the variance.
        bn_w: weight of the batch normalization, or `None` for ones.
        bn_b: bias of the batch normalization, or `None` for zeros.

    Returns:
        A tuple of two Parameters.
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
