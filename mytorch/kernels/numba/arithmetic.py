"""Arithmetic of several steps (lerp, addcmul, addcdiv, rsqrt, hypot), in one pass: float32, arrays of one shape.

Each step is rounded as NumPy rounds it, so the results have the same bits as the references.
"""

import numpy as np

from ..kernel import Kernel
from .common import each, exact, is_float32

_ONE = np.float32(1.0)


@exact
def _lerp(x, y, near, out, share):
    for i in range(x.size):
        out[i] = (y[i] - x[i]) * share + near[i]


@exact
def _lerp_by_tensor(x, y, weight, out):
    for i in range(x.size):
        # A select of both numbers, without a branch, is vectorized.
        w, a, b = weight[i], x[i], y[i]
        first = abs(w) < np.float32(0.5)
        share = w if first else w - _ONE
        near = a if first else b
        out[i] = near + (b - a) * share


@exact
def _addcmul(x, y, z, out, value):
    for i in range(x.size):
        out[i] = x[i] + y[i] * value * z[i]


@exact
def _addcdiv(x, y, z, out, value):
    for i in range(x.size):
        out[i] = x[i] + y[i] * value / z[i]


@exact
def _rsqrt(x, out):
    for i in range(x.size):
        out[i] = _ONE / np.sqrt(x[i])


@exact
def _hypot(x, y, out):
    for i in range(x.size):
        a, b = np.float64(x[i]), np.float64(y[i])
        length = np.float32(np.sqrt(a * a + b * b))  # the squares of float32 are exact in float64
        infinite = (abs(a) == np.inf) | (abs(b) == np.inf)  # also if the other number is NaN
        out[i] = np.float32(np.inf) if infinite else length


LEAST = 8192


def _accepts(input, *others, **options):
    """Accepts float32 arrays of one shape."""
    return is_float32(input, *others) and all(a.shape == input.shape for a in others)


def _accepts_number(input, *others, value=1.0):
    return type(value) in (int, float) and _accepts(input, *others)


def _forward_lerp(xp, input, end, *, weight):
    near, share = (input, weight) if abs(weight) < 0.5 else (end, weight - 1)
    return each(_lerp, input, end, near, constants=(share,))


lerp = Kernel(accepts=_accepts, LEAST=LEAST, forward=_forward_lerp)
lerp_by_tensor = Kernel(accepts=_accepts, LEAST=LEAST, forward=lambda xp, *inputs: each(_lerp_by_tensor, *inputs))
addcmul, addcdiv = (
    Kernel(
        accepts=_accepts_number,
        LEAST=LEAST,
        forward=lambda xp, *inputs, value=1.0, loop=loop: each(loop, *inputs, constants=(value,)),
    )
    for loop in (_addcmul, _addcdiv)
)
hypot = Kernel(accepts=_accepts, LEAST=LEAST, forward=lambda xp, *inputs: each(_hypot, *inputs))
rsqrt = Kernel(accepts=_accepts, LEAST=LEAST, forward=lambda xp, input: each(_rsqrt, input))
