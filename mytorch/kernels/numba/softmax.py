"""Softmax along the last axis, forward and backward, one row at a time.

Forward makes three passes over a row in the cache: its maximum, the exponentials and their sum, and the normalization.
Backward: gx = out * (g - sum(g * out)). The loops support -inf, the value of masked elements, but neither rows whose maximum is
infinite nor NaN. A loop that finds one returns True, and the NumPy reference runs instead.
"""

import numpy as np

from ..threads import split
from .common import INFINITE, exp, inlined, is_float32, kernel, larger, magnitude


@inlined
def peak_of(x, r):
    """Returns the maximum of row r, and True if the maximum is infinite or the row contains NaN. Other elements may be -inf: masks."""
    peak, largest = x[r, 0], np.int32(0)
    for j in range(x.shape[1]):
        peak = larger(peak, x[r, j])
        # Compare bit patterns: `kernel` is compiled with `nnan`, so a test for NaN would be optimized away.
        largest = max(largest, magnitude(x[r, j]))
    return peak, largest > INFINITE or magnitude(peak) >= INFINITE


@kernel
def _fwd(x, out):
    """Computes out = softmax(x) row by row. Returns True if the maximum of a row is infinite, or x contains NaN."""
    rows, width = x.shape
    has_nonfinite = False
    for r in range(rows):
        # exp(x - max) cannot overflow, and the largest term is 1, so the sum is at least 1.
        peak, infinite = peak_of(x, r)
        has_nonfinite = has_nonfinite or infinite
        total = np.float32(0.0)
        for j in range(width):
            e = exp(x[r, j] - peak)
            out[r, j] = e
            total += e
        # One division per row, then multiplications.
        scale = np.float32(1.0) / total
        for j in range(width):
            out[r, j] *= scale
    return has_nonfinite


@kernel
def _bwd(g, out, gx):
    """Computes gx = out * (g - sum(g * out)) row by row."""
    rows, width = out.shape
    for r in range(rows):
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j] * out[r, j]
        for j in range(width):
            gx[r, j] = out[r, j] * (g[r, j] - total)


def accepts(input, *, dim, dtype=None):
    """Accepts a float32 input that is not empty, along its last axis."""
    return dtype is None and is_float32(input) and input.ndim > 0 and dim == input.ndim - 1 and input.size > 0


def forward(xp, input, *, dim, dtype=None):
    """Returns exp(x - max) / sum, row by row."""
    return by_rows(_fwd, input)


def by_rows(loop, *arrays):
    """Runs `loop` on the arrays as matrices of rows along the last axis. Returns None if the loop returns True."""
    rows = [np.ascontiguousarray(a).reshape(-1, a.shape[-1]) for a in arrays]
    out = np.empty_like(rows[0])
    return None if split(loop, out.size, (*rows, out)) else out.reshape(arrays[0].shape)


def vjp(g, out, dim):
    """Returns the gradient of the input."""
    return (by_rows(_bwd, g, out),)
