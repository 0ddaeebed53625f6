"""Elementwise losses of float32 arrays of one shape, one pass each for forward and backward: squared, Huber and logistic.

A backward loop gets the upstream gradient `g` as an array and 1 as `factor`. If all elements have the same upstream gradient, as after a mean
or a sum, it is `factor`, and `g` is empty. `dx` and `dt` receive the gradients; `dt` is empty if the target needs none.
"""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, exp, flat, is_float32, log1p_of_exp, split, with_nan


@exact
def _squared(x, target, out):
    for i in range(x.size):
        d = x[i] - target[i]
        out[i] = d * d


@exact
def _squared_bwd(x, target, g, dx, dt, factor):
    factor *= np.float32(2.0)
    whole, both = g.size > 0, dt.size > 0
    for i in range(x.size):
        slope = factor * (x[i] - target[i])
        if whole:
            slope *= g[i]
        dx[i] = slope
        if both:
            dt[i] = -slope


@exact
def _clipped(x, target, out, delta, scale):
    for i in range(x.size):
        d = x[i] - target[i]
        # With c = clip(d, ±delta), c (d - c / 2) is d² / 2 inside and delta (|d| - delta / 2) outside.
        c = delta if d > delta else d
        c = -delta if c < -delta else c
        out[i] = c * (d - np.float32(0.5) * c) * scale


@exact
def _clipped_bwd(x, target, g, dx, dt, factor, delta, scale):
    factor *= scale
    whole, both = g.size > 0, dt.size > 0
    for i in range(x.size):
        d = x[i] - target[i]
        c = delta if d > delta else d
        slope = factor * (-delta if c < -delta else c)
        if whole:
            slope *= g[i]
        dx[i] = slope
        if both:
            dt[i] = -slope


@with_nan
def _logistic(x, target, out):
    zero, one = np.float32(0.0), np.float32(1.0)
    for i in range(x.size):
        v = x[i]
        # max(v, 0) - v t + log(1 + exp(-|v|)): the exponent is never positive.
        y = (one - target[i]) * v - (v if v < zero else zero) + log1p_of_exp(-abs(v))
        out[i] = v if v != v else y  # `exp` does not propagate NaN


@with_nan
def _logistic_bwd(x, target, g, dx, dt, factor):
    whole = g.size > 0
    for i in range(x.size):
        v, u = x[i], factor
        if whole:
            u *= g[i]
        s = np.float32(1.0) / (np.float32(1.0) + exp(-v))
        dx[i] = v if v != v else u * (s - target[i])


def _accepts(input, target, **options):
    """Accepts float32 arrays of one shape."""
    return is_float32(input, target) and input.shape == target.shape


def _gradients(loop, g, input, target, needs, *constants):
    """Returns the gradients of input and target. A broadcast g (strides of 0) is passed as one number."""
    whole = any(g.strides) or not g.size
    dx, dt = np.empty(input.shape, input.dtype), np.empty(input.shape if needs[1] else 0, input.dtype)
    arrays = input, target, g if whole else np.empty(0, input.dtype), dx, dt
    factor = 1.0 if whole else g.flat[0]
    split(loop, input.size, [flat(a) for a in arrays], *map(np.float32, (factor, *constants)))
    return dx if needs[0] else None, dt if needs[1] else None


LEAST = 16384  # for fewer elements, NumPy is as fast, except for the logistic loss
TAKES = "float32 of one shape"
squared_error = Kernel(
    accepts=_accepts, LEAST=LEAST, TAKES=TAKES,
    forward=lambda xp, input, target: each(_squared, input, target),
    vjp=lambda g, input, target, needs: _gradients(_squared_bwd, g, input, target, needs),
)  # fmt: skip
clipped_error = Kernel(
    accepts=_accepts, LEAST=LEAST, TAKES=TAKES,
    forward=lambda xp, input, target, *, delta, scale: each(_clipped, input, target, constants=(delta, scale)),
    vjp=lambda g, input, target, delta, scale, needs: _gradients(_clipped_bwd, g, input, target, needs, delta, scale),
)  # fmt: skip
logistic_error = Kernel(
    accepts=_accepts, LEAST=2048, TAKES=TAKES,
    forward=lambda xp, input, target: each(_logistic, input, target),
    formulas={
        "input": lambda g, input, target: _gradients(_logistic_bwd, g, input, target, (True, False))[0],
        "target": lambda g, input: -g * input,  # which needs no target
    },
)  # fmt: skip
