"""The logarithm of softmax along the last axis: x - max - log(sum of exp(x - max)), and g - exp(out) * sum(g)."""

import numpy as np

from .common import exp, kernel
from .softmax import accepts, by_rows, peak_of

__all__ = ["accepts", "forward", "vjp"]


@kernel
def _fwd(x, out):
    rows, width = x.shape
    odd = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        odd = odd or infinite
        total = np.float32(0.0)
        for j in range(width):
            below = x[r, j] - peak
            out[r, j] = below  # stored in between: added to a large maximum, the logarithm would lose its digits
            total += exp(below)
        rest = np.log(total)
        for j in range(width):
            out[r, j] -= rest
    return odd


@kernel
def _bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j]
        for j in range(width):
            gx[r, j] = g[r, j] - exp(out[r, j]) * total


def forward(xp, input, *, dim, dtype=None):
    """Row by row."""
    return by_rows(_fwd, input)


def vjp(g, out, dim):
    """The gradient of input."""
    return (by_rows(_bwd, g, out),)
