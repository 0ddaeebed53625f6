"""Layer norm and RMS norm: ops that centre and scale the last axes."""

import math

import numpy as np

from ..dtypes import finfo
from .core import op


def _flat(xp, x, width):
    return xp.reshape(x, (-1, width))


def _wide(xp, x):
    return xp.astype(x, np.float32) if x.dtype.itemsize == 2 else x


@op(name="layer_norm", residuals=("mean", "rstd"), autocast="float32", promoted=("input",))
def _layer_norm(xp, input, weight=None, bias=None, *, width, eps=1e-5):
    x = _wide(xp, _flat(xp, input, width))  # (N, width)
    mean = xp.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    rstd = 1.0 / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + eps)
    out = centred * rstd
    if weight is not None:
        out = out * xp.reshape(weight, (-1,))
    if bias is not None:
        out = out + xp.reshape(bias, (-1,))
    return xp.astype(xp.reshape(out, input.shape), input.dtype), mean, rstd


def _layer_norm_vjp(g, input, weight, shapes, mean, rstd, width, needs, xp):
    x, g = _wide(xp, _flat(xp, input, width)), _wide(xp, _flat(xp, g, width))
    normed = (x - mean) * rstd
    gx = None
    if needs[0]:
        gw = g if weight is None else g * xp.reshape(weight, (-1,))
        along = xp.mean(gw * normed, axis=-1, keepdims=True)
        gx = xp.reshape((gw - xp.mean(gw, axis=-1, keepdims=True) - normed * along) * rstd, shapes[0])
    g_weight = xp.reshape(xp.sum(g * normed, axis=0), shapes[1]) if needs[1] else None
    g_bias = xp.reshape(xp.sum(g, axis=0), shapes[2]) if needs[2] else None
    return gx, g_weight, g_bias


_layer_norm.vjp(_layer_norm_vjp)
_layer_norm.fuse(cpu="mytorch.kernels.numba.layer_norm")



def _width(input, normalized_shape, weight, bias, name):
    """The number of elements that are normalised together, with the shapes checked."""
    shape = tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
    if not shape or tuple(input.shape)[-len(shape) :] != shape:
        raise RuntimeError(
            f"{name}: given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], "
            f"but got input of size {list(input.shape)}"
        )
    for label, p in (("weight", weight), ("bias", bias)):
        if p is not None and tuple(p.shape) != shape:
            raise RuntimeError(f"{name}: expected {label} to be of the same shape as normalized_shape, but got {tuple(p.shape)} and {shape}.")
    return math.prod(shape)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, *, fused=None):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, those of normalized_shape.

    Statistics are computed in float32 for 16-bit inputs.

    Raises:
        RuntimeError: the last axes of input, weight or bias don't have normalized_shape.
    Source: Ba, Kiros and Hinton, 2016.
    """
    width = _width(input, normalized_shape, weight, bias, "layer_norm")
    return _layer_norm(input, weight, bias, width=width, eps=eps, fused=fused)


@op(name="rms_norm", residuals=("rstd",), autocast="float32", promoted=("input",))
def _rms_norm(xp, input, weight=None, *, width, eps):
    x = _wide(xp, _flat(xp, input, width))  # (N, width)
    rstd = 1.0 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    out = x * rstd
    if weight is not None:
        out = out * xp.reshape(weight, (-1,))
    return xp.astype(xp.reshape(out, input.shape), input.dtype), rstd


def _rms_norm_vjp(g, input, weight, shapes, rstd, width, needs, xp):
    x, g = _wide(xp, _flat(xp, input, width)), _wide(xp, _flat(xp, g, width))
    normed = x * rstd
    gx = None
    if needs[0]:
        gw = g if weight is None else g * xp.reshape(weight, (-1,))
        gx = xp.reshape((gw - normed * xp.mean(gw * normed, axis=-1, keepdims=True)) * rstd, shapes[0])
    g_weight = xp.reshape(xp.sum(g * normed, axis=0), shapes[1]) if needs[1] else None
    return gx, g_weight


_rms_norm.vjp(_rms_norm_vjp)


def rms_norm(input, normalized_shape, weight=None, eps=None, *, fused=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes; eps is the dtype's own if not given.

    Raises:
        RuntimeError: the last axes of input or weight don't have normalized_shape.
    Source: Zhang and Sennrich, 2019.
    """


    width = _width(input, normalized_shape, weight, None, "rms_norm")
    return _rms_norm(input, weight, width=width, eps=finfo(input.dtype).eps if eps is None else eps, fused=fused)
