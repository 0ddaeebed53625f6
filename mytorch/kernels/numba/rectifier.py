"""relu, leaky_relu, hardswish and sign, forward and backward, one pass each: float32, any shape. NaN stays NaN."""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, is_float32


@exact
def _fwd(x, out, slope):
    for i in range(x.size):
        v = x[i]
        # The comparison is false for NaN, which is therefore passed through.
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
        # v * clip(v / 6 + 1 / 2, 0, 1).
        gate = v * np.float32(1 / 6) + np.float32(0.5)
        gate = np.float32(0.0) if gate < np.float32(0.0) else gate
        out[i] = v * (np.float32(1.0) if gate > np.float32(1.0) else gate)


@exact
def _hardswish_bwd(g, x, out):
    for i in range(x.size):
        v = x[i]
        # The derivative is v / 3 + 1 / 2 between -3 and 3, 0 below and 1 above.
        slope = v * np.float32(1 / 3) + np.float32(0.5)
        slope = np.float32(1.0) if v >= np.float32(3.0) else slope
        out[i] = g[i] * (np.float32(0.0) if v <= np.float32(-3.0) else slope)


@exact
def _sign(x, out):
    for i in range(x.size):
        positive = np.float32(1.0) if x[i] > np.float32(0.0) else np.float32(0.0)
        out[i] = np.float32(-1.0) if x[i] < np.float32(0.0) else positive


def _accepts(input, **options):
    """Accepts float32 only."""
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
