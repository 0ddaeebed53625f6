"""relu, leaky_relu, hardswish and the smooth absolute value, forward and backward, in one pass each: float32, any shape. NaN stays NaN."""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, is_float32


@exact
def _fwd(x, out, slope):
    for i in range(x.size):
        v = x[i]
        out[i] = v * slope if v <= np.float32(0.0) else v


@exact
def _relu_fwd(x, out):
    for i in range(x.size):
        v = x[i]
        out[i] = np.float32(0.0) if v <= np.float32(0.0) else v


@exact
def _bwd(g, x, out, slope):
    for i in range(x.size):
        out[i] = g[i] if x[i] > np.float32(0.0) else g[i] * slope


@exact
def _relu_bwd(g, x, out):
    for i in range(x.size):
        out[i] = np.float32(0.0) if x[i] <= np.float32(0.0) else g[i]


@exact
def _hardswish_fwd(x, out):
    for i in range(x.size):
        v = x[i]
        share = v * np.float32(1 / 6) + np.float32(0.5)
        share = np.float32(0.0) if share < np.float32(0.0) else share
        out[i] = v * (np.float32(1.0) if share > np.float32(1.0) else share)


@exact
def _hardswish_bwd(g, x, out):
    for i in range(x.size):
        v = x[i]
        slope = v * np.float32(1 / 3) + np.float32(0.5)
        slope = np.float32(1.0) if v >= np.float32(3.0) else slope
        out[i] = g[i] * (np.float32(0.0) if v <= np.float32(-3.0) else slope)


@exact
def _sign(x, out):
    for i in range(x.size):
        above = np.float32(1.0) if x[i] > np.float32(0.0) else np.float32(0.0)
        out[i] = np.float32(-1.0) if x[i] < np.float32(0.0) else above


def _accepts(input, **options):
    """float32 only."""
    return is_float32(input)


LEAST = 4096


def _relu(xp, input):
    return each(_relu_fwd, input)


def _relu_vjp(g, out):
    return (each(_relu_bwd, g, out),)


def _leaky_relu(xp, input, *, slope):
    return each(_fwd, input, constants=(slope,))


def _leaky_relu_vjp(g, input, slope):
    return (each(_bwd, g, input, constants=(slope,)),)


relu = Kernel(accepts=_accepts, LEAST=LEAST, forward=_relu, vjp=_relu_vjp)
leaky_relu = Kernel(accepts=_accepts, LEAST=LEAST, forward=_leaky_relu, vjp=_leaky_relu_vjp)
hardswish = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input: each(_hardswish_fwd, input),
    vjp=lambda g, input: (each(_hardswish_bwd, g, input),),
)
sign = Kernel(accepts=_accepts, forward=lambda xp, input: each(_sign, input))
