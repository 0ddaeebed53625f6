"""Losses of each element, float32 and of one shape, in one pass each way: squared, clipped (Huber's) and logistic.

Where every element's upstream gradient is one number, as after a mean or a sum, it is never spread over an array.
"""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, exp, inlined, is_float32, with_nan


@exact
def _squared(x, target, out):
    for i in range(x.size):
        d = x[i] - target[i]
        out[i] = d * d


@exact
def _squared_bwd(x, target, out, factor):
    factor *= np.float32(2.0)
    for i in range(x.size):
        out[i] = factor * (x[i] - target[i])


@exact
def _clipped(x, target, out, delta, scale):
    for i in range(x.size):
        d = x[i] - target[i]
        near = delta if d > delta else d
        near = -delta if near < -delta else near
        out[i] = near * (d - np.float32(0.5) * near) * scale


@exact
def _clipped_bwd(x, target, out, factor, delta, scale):
    factor *= scale
    for i in range(x.size):
        d = x[i] - target[i]
        near = delta if d > delta else d
        out[i] = factor * (-delta if near < -delta else near)


@inlined
def _log1p(x):
    """log(1 + x) for x in [0, 1]: twice the inverse hyperbolic tangent of x / (2 + x), by its series."""
    s = x / (x + np.float32(2.0))
    q = s * s
    p = np.float32(1 / 15)
    for i in range(13, 0, -2):
        p = p * q + np.float32(1 / i)
    return np.float32(2.0) * s * p


@with_nan
def _logistic(x, target, out):
    zero, one = np.float32(0.0), np.float32(1.0)
    for i in range(x.size):
        v = x[i]
        y = (one - target[i]) * v - (v if v < zero else zero) + _log1p(exp(-abs(v)))
        out[i] = v if v != v else y  # exp's integers know no NaN


@with_nan
def _logistic_bwd(x, target, out, factor):
    for i in range(x.size):
        v = x[i]
        s = np.float32(1.0) / (np.float32(1.0) + exp(-v))
        out[i] = v if v != v else factor * (s - target[i])


def _accepts(input, target, **options):
    """float32 of one shape only."""
    return is_float32(input, target) and input.shape == target.shape


def _slopes(loop, g, input, target, *constants):
    """The gradient of input, from one number if g holds one only."""
    if not any(g.strides) and g.size:
        return each(loop, input, target, constants=(g.flat[0], *constants))
    slopes = each(loop, input, target, constants=(1.0, *constants))
    slopes *= g
    return slopes


def _both(slopes, needs):
    return slopes if needs[0] else None, -slopes if needs[1] else None


LEAST = 16384  # NumPy is as quick for fewer; not for the logistic loss
TAKES = "float32 of one shape"
squared_error = Kernel(
    accepts=_accepts, LEAST=LEAST, TAKES=TAKES,
    forward=lambda xp, input, target: each(_squared, input, target),
    vjp=lambda g, input, target, needs: _both(_slopes(_squared_bwd, g, input, target), needs),
)  # fmt: skip
clipped_error = Kernel(
    accepts=_accepts, LEAST=LEAST, TAKES=TAKES,
    forward=lambda xp, input, target, *, delta, scale: each(_clipped, input, target, constants=(delta, scale)),
    vjp=lambda g, input, target, delta, scale, needs: _both(
        _slopes(_clipped_bwd, g, input, target, delta, scale), needs
    ),
)  # fmt: skip
logistic_error = Kernel(
    accepts=_accepts, LEAST=2048, TAKES=TAKES,
    forward=lambda xp, input, target: each(_logistic, input, target),
    vjp=lambda g, input, target, needs: (
        _slopes(_logistic_bwd, g, input, target) if needs[0] else None, -g * input if needs[1] else None
    ),
)  # fmt: skip
