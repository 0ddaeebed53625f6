"""`where` on the bits of floats, without branches, so that the compiler vectorizes it."""

import numpy as np

from ...arrays.blocks import as_bits, chosen
from ..threads import split
from .common import kernel


@kernel
def _both(condition, x, y, out):
    for i in range(out.size):
        a, b = x[i], y[i]  # read both, so that only a select depends on the condition
        out[i] = a if condition[i] else b


@kernel
def _first(condition, x, out, y):
    # y is one number.
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
    """Accepts floats of the condition's shape, or one array and one number."""
    return chosen(condition, x, y) is not None


def forward(xp, condition, x, y):
    """Returns x where the condition is True, otherwise y."""
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
