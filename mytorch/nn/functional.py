"""The functional twins of the layers: names of ops as `F`, and the few composites that are no op."""

from .. import dtypes
from ..ops.activation import gelu, log_softmax, relu, sigmoid, silu, softmax, tanh
from ..ops.attention import scaled_dot_product_attention
from ..ops.core import op
from ..ops.creation import arange, zeros
from ..ops.embedding import embedding
from ..ops.linalg import _linear
from ..ops.loss import cross_entropy
from ..ops.normalization import layer_norm, rms_norm
from ..ops.random import bernoulli_mask
from ..tensor import Tensor


def linear(input, weight, bias=None, *, act_func=None, fused=None):
    """input @ weightᵀ + bias, and an activation on top if `act_func` names one.

    Args:
        input: (…, in). weight: (out, in), or (in,) for one output. bias: (out,) or ().
        act_func: None, "relu", "gelu", "silu", "tanh", "sigmoid" or "relu_squared".

    Raises:
        RuntimeError: the sizes of input and weight differ.
        ValueError: an activation that is not known.
    """
    if weight.ndim == 1:
        out = (input * weight).sum(-1)
        return out if bias is None else out + bias
    if input.shape[-1] != weight.shape[1]:
        rows = input.numel() // max(input.shape[-1], 1)
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {weight.shape[1]}x{weight.shape[0]})"
        )
    out = _linear(input, weight, bias, fused=fused) if bias is not None else _linear(input, weight, fused=fused)
    return out if act_func is None else activation_named(act_func)(out)


def activation_named(name):
    """The activation function of a name.

    Raises:
        ValueError: there is none.
    """
    known = {"relu": relu, "gelu": gelu, "silu": silu, "tanh": tanh, "sigmoid": sigmoid, "relu_squared": relu_squared}
    if name not in known:
        raise ValueError(f"act_func is {name!r}; expected one of {', '.join(known)}.")
    return known[name]


def bilinear(input1, input2, weight, bias=None):
    """y_k = input1ᵀ weight_k input2 + bias_k: (…, in1) and (…, in2) to (…, out), weight (out, in1, in2)."""
    left = (input1.unsqueeze(-2).unsqueeze(-2) @ weight).squeeze(-2)  # (…, out, in2)
    out = (left @ input2.unsqueeze(-1)).squeeze(-1)
    return out if bias is None else out + bias


def relu_squared(input, *, fused=None):
    """relu(input) squared. Source: So et al., Primer, 2021."""
    return relu(input).square()


@op(name="dropout", dtype="same")
def _dropout(xp, input, *, mask):
    return input * mask


_dropout.grad(input=lambda g, mask, xp: g * xp.asarray(mask))


def _drop(input, shape, p, training, inplace, name):
    """Multiply by a mask of `shape` that is 0 with probability p and 1 / (1 - p) otherwise."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if inplace:
        return input.mul_(Tensor._wrap(bernoulli_mask(input, shape, p)))
    return _dropout(input, mask=bernoulli_mask(input, shape, p))


def dropout(input, p=0.5, training=True, inplace=False):
    """Each element zeroed with probability p and the others scaled by 1 / (1 - p), while training.

    Raises:
        ValueError: p lies outside [0, 1].
    Source: Srivastava et al., 2014.
    """
    return _drop(input, tuple(input.shape), p, training, inplace, "dropout")


def one_hot(tensor, num_classes=-1):
    """Class indices (…) as an int64 tensor (…, num_classes) with a single 1 in each row.

    Args:
        num_classes: the largest index plus one if -1.

    Raises:
        RuntimeError: an index is negative or not below num_classes.
    """

    if tensor.dtype.category != dtypes.INT:
        raise RuntimeError(f"one_hot is only applicable to index tensors of integer dtype, got {tensor.dtype}.")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return zeros(*tensor.shape, num_classes, dtype=dtypes.int64, device=tensor.device)
    if int(tensor.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    largest = int(tensor.max())
    if num_classes == -1:
        num_classes = largest + 1
    elif largest >= num_classes:
        raise RuntimeError(f"Class values must be smaller than num_classes: {largest} with num_classes={num_classes}.")

    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)


__all__ = [
    "bilinear",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "one_hot",
    "relu",
    "relu_squared",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]
