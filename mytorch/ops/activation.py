"""Activation functions: rectifiers, sigmoids, the GELU family, softmax."""

import math

import numpy as np

from .. import dtypes
from .bind import public
from .core import op
from .elementwise import cast
from .reduction import normalize_dim


@op(name="relu")
def _relu(xp, input):
    return xp.maximum(input, input.dtype.type(0))


_relu.grad(input=lambda g, out, xp: xp.where(out > 0, g, 0.0))


@public()
def relu(input):
    """max(input, 0)."""
    return _relu.caller(input)


@op(dtype="float", name="sigmoid")
def _sigmoid(xp, input):
    half = input * 0.5
    return xp.tanh(half) * 0.5 + 0.5  # exact at both ends, without overflow


_sigmoid.grad(input=lambda g, out: g * (out * (1.0 - out)))


@public()
def sigmoid(input):
    """1 / (1 + exp(-input))."""
    return _sigmoid.caller(input)


@op(dtype="float", name="tanh")
def _tanh(xp, input):
    return xp.tanh(input)


_tanh.grad(input=lambda g, out: g * (1.0 - out * out))


@public()
def tanh(input):
    """The hyperbolic tangent."""
    return _tanh.caller(input)


_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


@op(name="gelu")
def _gelu(xp, input, *, approximate="none"):
    if approximate == "tanh":
        inner = (input * input * (_TANH_CUBE * _TANH_SCALE) + _TANH_SCALE) * input
        return input * (xp.tanh(inner) * 0.5 + 0.5)
    return input * (xp.erf(input * _SQRT_HALF) * 0.5 + 0.5)


def _gelu_grad(g, input, approximate, xp):
    if approximate == "tanh":
        square = input * input
        t = xp.tanh((square * (_TANH_CUBE * _TANH_SCALE) + _TANH_SCALE) * input)
        slope = square * (3 * _TANH_CUBE * _TANH_SCALE) + _TANH_SCALE
        return g * ((t + 1.0) * 0.5 + input * (1.0 - t * t) * slope * 0.5)
    density = xp.exp(input * input * -0.5) * _DENSITY
    return g * (xp.erf(input * _SQRT_HALF) * 0.5 + 0.5 + input * density)


_gelu.grad(input=_gelu_grad)
_gelu.fuse(cpu="mytorch.kernels.numba.gelu")



@public(method=False, function=False)
def gelu(input, approximate="none", *, fused=None):
    """input * P(Z <= input) for a standard normal Z; `approximate="tanh"` is GPT-2's formula.

    Raises:
        RuntimeError: another approximation.
    Source: Hendrycks and Gimpel, 2016.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    return _gelu(input, approximate=approximate, fused=fused)


@op(name="silu")
def _silu(xp, input):
    return input * (xp.tanh(input * 0.5) * 0.5 + 0.5)


def _silu_grad(g, input, xp):
    s = xp.tanh(input * 0.5) * 0.5 + 0.5
    return g * (s * (input * (1.0 - s) + 1.0))


_silu.grad(input=_silu_grad)


@public(method=False, function=False)
def silu(input, inplace=False, *, fused=None):
    """input * sigmoid(input), also called swish."""
    out = _silu(input, fused=fused)
    return input.copy_(out) if inplace else out


# -- softmax -------------------------------------------------------------------------------------------------------


@op(dtype="float", name="softmax", autocast="float32")
def _softmax(xp, input, *, dim):
    if input.ndim == 0:
        return xp.ones_like(input)
    x = input.astype(np.float32) if input.dtype.itemsize == 2 else input
    e = x - xp.max(x, axis=dim, keepdims=True, initial=-math.inf)
    xp.exp(e, out=e)
    e /= xp.sum(e, axis=dim, keepdims=True)
    return e.astype(input.dtype, copy=False)


def _softmax_grad(g, out, dim, xp):
    weighted = g * out
    if len(out.shape) == 0:
        return weighted * 0.0
    return weighted - out * xp.sum(weighted, axis=dim, keepdims=True)


_softmax.grad(input=_softmax_grad)
_softmax.fuse(cpu="mytorch.kernels.numba.softmax")



@public(inplace=False)
def softmax(input, dim=None, dtype=None, *, axis=None, fused=None):
    """exp(input) / sum(exp(input)) along `dim`, without overflow.

    Args:
        dim: the axis whose elements sum to 1; if not given, PyTorch's rule (0 for 0-, 1- and 3-d
            tensors, else 1).
        dtype: cast to this first.
    """
    dim = dim if axis is None else axis
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return _softmax(input, dim=normalize_dim(dim, input.ndim), fused=fused)


@op(dtype="float", name="log_softmax", autocast="float32")
def _log_softmax(xp, input, *, dim):
    if input.ndim == 0:
        return xp.zeros_like(input)
    x = input.astype(np.float32) if input.dtype.itemsize == 2 else input
    shifted = x - xp.max(x, axis=dim, keepdims=True, initial=-math.inf)
    shifted -= xp.log(xp.sum(xp.exp(shifted), axis=dim, keepdims=True))
    return shifted.astype(input.dtype, copy=False)


def _log_softmax_grad(g, out, dim, xp):
    if len(out.shape) == 0:
        return g * 0.0
    return g - xp.exp(out) * xp.sum(g, axis=dim, keepdims=True)


_log_softmax.grad(input=_log_softmax_grad)


@public(inplace=False)
def log_softmax(input, dim=None, dtype=None, *, axis=None, fused=None):
    """log(softmax(input)) along `dim`, in one stable step. Arguments as softmax."""
    dim = dim if axis is None else axis
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return _log_softmax(input, dim=normalize_dim(dim, input.ndim), fused=fused)
