"""Log-softmax along the last axis: x - max - log(sum(exp(x - max))). Its gradient is g - exp(out) * sum(g)."""

import numpy as np

from .common import exp, kernel
from .softmax import accepts, by_rows, peak_of

__all__ = ["accepts", "forward", "vjp"]


@kernel
def _fwd(x, out):
    rows, width = x.shape
    has_nonfinite = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        has_nonfinite = has_nonfinite or infinite
        total = np.float32(0.0)
        for j in range(width):
            shifted = x[r, j] - peak
            # Store x - max first: max + log(total) as one number would lose digits for a large maximum.
            out[r, j] = shifted
            total += exp(shifted)
        log_total = np.log(total)
        for j in range(width):
            out[r, j] -= log_total
    return has_nonfinite


@kernel
def _bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        # The softmax is exp(out), so it is computed again instead of being saved.
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j]
        for j in range(width):
            gx[r, j] = g[r, j] - exp(out[r, j]) * total


def forward(xp, input, *, dim, dtype=None):
    """Returns the log-softmax, row by row."""
    return by_rows(_fwd, input)


def vjp(g, out, dim):
    """Returns the gradient of the input."""
    return (by_rows(_bwd, g, out),)
