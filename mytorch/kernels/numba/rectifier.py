"""Piecewise linear functions and sign, forward and backward, one pass each: float32, any shape. NaN stays NaN."""

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
def _hardsigmoid_fwd(x, out):
    for i in range(x.size):
        v = x[i] * np.float32(1 / 6) + np.float32(0.5)
        v = np.float32(0.0) if v < np.float32(0.0) else v
        out[i] = np.float32(1.0) if v > np.float32(1.0) else v


@exact
def _hardsigmoid_bwd(g, x, out):
    for i in range(x.size):
        inside = (x[i] > np.float32(-3.0)) & (x[i] < np.float32(3.0))
        out[i] = g[i] * np.float32(1 / 6) if inside else np.float32(0.0)


@exact
def _limited(x, out, low, high):
    for i in range(x.size):
        v = x[i]
        v = low if v < low else v
        out[i] = high if v > high else v


@exact
def _limited_bwd(g, x, out, low, high):
    for i in range(x.size):
        out[i] = np.float32(0.0) if (x[i] <= low) | (x[i] >= high) else g[i]


@exact
def _softshrink_fwd(x, out, lambd):
    for i in range(x.size):
        v = x[i]
        near = -lambd if v < -lambd else v
        out[i] = v - (lambd if near > lambd else near)


@exact
def _replaced(y, x, out, low, high, value):
    # y, except where low <= x <= high. The comparisons are false for NaN, which is therefore passed through.
    for i in range(x.size):
        out[i] = value if (x[i] >= low) & (x[i] <= high) else y[i]


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
hardsigmoid = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input: each(_hardsigmoid_fwd, input),
    vjp=lambda g, input: (each(_hardsigmoid_bwd, g, input),),
)
hardtanh = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input, *, low, high: each(_limited, input, constants=(low, high)),
    vjp=lambda g, input, low, high: (each(_limited_bwd, g, input, constants=(low, high)),),
)
hardshrink = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input, *, lambd: each(_replaced, input, input, constants=(-lambd, lambd, 0.0)),
    vjp=lambda g, input, lambd: (each(_replaced, g, input, constants=(-lambd, lambd, 0.0)),),
)
softshrink = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input, *, lambd: each(_softshrink_fwd, input, constants=(lambd,)),
    vjp=lambda g, input, lambd: (each(_replaced, g, input, constants=(-lambd, lambd, 0.0)),),
)
threshold = Kernel(
    accepts=_accepts,
    LEAST=LEAST,
    forward=lambda xp, input, *, level, value: each(_replaced, input, input, constants=(-np.inf, level, value)),
    vjp=lambda g, input, level: (each(_replaced, g, input, constants=(-np.inf, level, 0.0)),),
)


def _accepts_bounds(x, low, high):
    """Accepts numbers as bounds: with NaN, NumPy's `clip` returns NaN."""
    return is_float32(x) and x.flags.c_contiguous and np.ndim(low) == np.ndim(high) == 0 and low == low and high == high


clip = Kernel(accepts=_accepts_bounds, forward=lambda xp, x, low, high: each(_limited, x, constants=(low, high)))
sign = Kernel(accepts=_accepts, forward=lambda xp, input: each(_sign, input))
