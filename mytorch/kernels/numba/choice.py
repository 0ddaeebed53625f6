"""`where` over bits: a choice without branches, which the compiler makes of vector instructions."""

import numpy as np

from ...numerics.blocks import as_bits, chosen
from ..threads import split
from .common import kernel


@kernel
def _both(condition, x, y, out):
    for i in range(out.size):
        a, b = x[i], y[i]  # both are read, so nothing hangs on the condition but which is kept
        out[i] = a if condition[i] else b


@kernel
def _first(condition, x, out, y):
    other = y[0]
    for i in range(out.size):
        a = x[i]
        out[i] = a if condition[i] else other


@kernel
def _second(condition, y, out, x):
    other = x[0]
    for i in range(out.size):
        b = y[i]
        out[i] = other if condition[i] else b


def accepts(condition, x, y):
    """Floats of the condition's shape, or numbers, not both numbers."""
    return chosen(condition, x, y) is not None


def forward(xp, condition, x, y):
    """x where condition holds, else y."""
    x, y = chosen(condition, x, y)
    flat, out = condition.reshape(-1), np.empty(condition.size, max(x, y, key=np.size).dtype)
    a, b, to = as_bits(x), as_bits(y), as_bits(out)
    if b.size == 1:
        split(_first, to.size, (flat, a, to), b)
    elif a.size == 1:
        split(_second, to.size, (flat, b, to), a)
    else:
        split(_both, to.size, (flat, a, b, to))
    return out.reshape(condition.shape)
