"""Softmax along the last axis, forward and backward, a row at a time.

Forward makes three sweeps over a row that is in cache: its maximum, the exponentials and their sum, the
division. Backward: gx = out * (g - sum(g * out)). Infinities and NaN are the reference's: a loop that meets one says so.
"""

import numpy as np

from ..threads import split
from .common import INFINITE, exp, inlined, is_float32, kernel, larger, magnitude


@inlined
def peak_of(x, r):
    """The maximum of row r, and whether it has an infinity or NaN."""
    peak, largest = x[r, 0], np.int32(0)
    for j in range(x.shape[1]):
        peak = larger(peak, x[r, j])
        largest = max(largest, magnitude(x[r, j]))
    return peak, largest >= INFINITE


@kernel
def _fwd(x, out):
    rows, width = x.shape
    odd = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        odd = odd or infinite
        total = np.float32(0.0)
        for j in range(width):
            e = exp(x[r, j] - peak)
            out[r, j] = e
            total += e
        scale = np.float32(1.0) / total
        for j in range(width):
            out[r, j] *= scale
    return odd


@kernel
def _bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j] * out[r, j]
        for j in range(width):
            gx[r, j] = out[r, j] * (g[r, j] - total)


def accepts(input, *, dim, dtype=None):
    """float32, along the last axis, of which there is something."""
    return dtype is None and is_float32(input) and input.ndim > 0 and dim == input.ndim - 1 and input.size > 0


def forward(xp, input, *, dim, dtype=None):
    """exp(x - max) / sum, row by row."""
    return by_rows(_fwd, input)


def by_rows(loop, *arrays):
    """What `loop` makes of matrices of the arrays' last axis; None where it says that it can't."""
    rows = [np.ascontiguousarray(a).reshape(-1, a.shape[-1]) for a in arrays]
    out = np.empty_like(rows[0])
    return None if split(loop, out.size, (*rows, out)) else out.reshape(arrays[0].shape)


def vjp(g, out, dim):
    """The gradient of input."""
    return (by_rows(_bwd, g, out),)
