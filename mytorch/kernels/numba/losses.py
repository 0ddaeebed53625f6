"""Elementwise losses of float32 arrays of one shape, one pass each for forward and backward: squared, Huber and logistic.

If all elements have the same upstream gradient, as after a mean or a sum, it is passed as one number instead of an array.
"""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, exp, is_float32, log1p_of_exp, with_nan


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
        # With c = clip(d, ±delta), c (d - c / 2) is d² / 2 inside and delta (|d| - delta / 2) outside.
        c = delta if d > delta else d
        c = -delta if c < -delta else c
        out[i] = c * (d - np.float32(0.5) * c) * scale


@exact
def _clipped_bwd(x, target, out, factor, delta, scale):
    factor *= scale
    for i in range(x.size):
        d = x[i] - target[i]
        c = delta if d > delta else d
        out[i] = factor * (-delta if c < -delta else c)


@with_nan
def _logistic(x, target, out):
    zero, one = np.float32(0.0), np.float32(1.0)
    for i in range(x.size):
        v = x[i]
        # max(v, 0) - v t + log(1 + exp(-|v|)): the exponent is never positive.
        y = (one - target[i]) * v - (v if v < zero else zero) + log1p_of_exp(-abs(v))
        out[i] = v if v != v else y  # `exp` does not propagate NaN


@with_nan
def _logistic_bwd(x, target, out, factor):
    for i in range(x.size):
        v = x[i]
        s = np.float32(1.0) / (np.float32(1.0) + exp(-v))
        out[i] = v if v != v else factor * (s - target[i])


def _accepts(input, target, **options):
    """Accepts float32 arrays of one shape."""
    return is_float32(input, target) and input.shape == target.shape


def _slopes(loop, g, input, target, *constants):
    """Returns the gradient of the input. A broadcast g (strides of 0) is passed as one number."""
    if not any(g.strides) and g.size:
        return each(loop, input, target, constants=(g.flat[0], *constants))
    slopes = each(loop, input, target, constants=(1.0, *constants))
    slopes *= g
    return slopes


def _both(slopes, needs):
    return slopes if needs[0] else None, -slopes if needs[1] else None


LEAST = 16384  # for fewer elements, NumPy is as fast, except for the logistic loss
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
    formulas={
        "input": lambda g, input, target: _slopes(_logistic_bwd, g, input, target),
        "target": lambda g, input: -g * input,
    },
)  # fmt: skip
