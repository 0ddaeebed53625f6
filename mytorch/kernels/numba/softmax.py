"""Softmax along an axis, forward and backward: one row at a time along the last axis, and one strip of columns along another axis.

Forward makes three passes over a row or a strip in the cache: the maximum, the exponentials and their sum, and the normalization.
Backward: gx = out * (g - sum(g * out)). The loops support -inf, the value of masked elements, but neither an infinite maximum nor
NaN. A loop that finds one returns True, and the NumPy reference runs instead.
"""

import math

import numpy as np

from ..threads import split
from .common import INFINITE, exp, inlined, is_float32, kernel, larger, magnitude

# Columns of a strip: long enough for vectors, and a strip of a thousand rows fits into the second-level cache.
_STRIP = 256
_ROWS = 256  # rows that are summed in float32


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


@inlined
def strip_of(task, x):
    """Returns (o, first, last) of a task: the columns first … last of x[o], for an array x (outer, n, inner)."""
    strips = (x.shape[2] + _STRIP - 1) // _STRIP
    first = task % strips * _STRIP
    return task // strips, first, min(first + _STRIP, x.shape[2])


@inlined
def peaks_of(x, first, last, peaks):
    """Stores the maxima of the columns first … last. Returns True if one is infinite or a column contains NaN, as `peak_of` does."""
    largest = np.int32(0)
    for c in range(last - first):
        peaks[c] = x[0, first + c]
    for j in range(len(x)):
        row = x[j, first:last]
        for c in range(row.size):
            peaks[c] = larger(peaks[c], row[c])
            largest = max(largest, magnitude(row[c]))
    if largest == INFINITE:
        for c in range(last - first):
            if magnitude(peaks[c]) == INFINITE:
                return True
    return largest > INFINITE


@kernel
def _fwd_columns(own, x, out):
    has_nonfinite = False
    peaks, part, totals = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float32), np.empty(_STRIP)
    for t in own:
        o, first, last = strip_of(t, x)
        has_nonfinite = peaks_of(x[o], first, last, peaks) or has_nonfinite
        totals[:] = 0.0
        for start in range(0, x.shape[1], _ROWS):
            part[:] = 0.0
            for j in range(start, min(start + _ROWS, x.shape[1])):
                row, to = x[o, j, first:last], out[o, j, first:last]
                for c in range(row.size):
                    e = exp(row[c] - peaks[c])
                    to[c] = e
                    part[c] += e
            for c in range(last - first):
                totals[c] += part[c]
        for c in range(last - first):
            peaks[c] = 1.0 / totals[c]
        for j in range(x.shape[1]):
            to = out[o, j, first:last]
            for c in range(to.size):
                to[c] *= peaks[c]
    return has_nonfinite


@kernel
def _bwd_columns(own, g, out, gx):
    sums, part, totals = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float32), np.empty(_STRIP)
    for t in own:
        o, first, last = strip_of(t, g)
        totals[:] = 0.0
        for start in range(0, g.shape[1], _ROWS):
            part[:] = 0.0
            for j in range(start, min(start + _ROWS, g.shape[1])):
                up, row = g[o, j, first:last], out[o, j, first:last]
                for c in range(row.size):
                    part[c] += up[c] * row[c]
            for c in range(last - first):
                totals[c] += part[c]
        for c in range(last - first):
            sums[c] = totals[c]
        for j in range(g.shape[1]):
            up, row, to = g[o, j, first:last], out[o, j, first:last], gx[o, j, first:last]
            for c in range(row.size):
                to[c] = row[c] * (up[c] - sums[c])


def accepts(input, *, dim, dtype=None):
    """Accepts a float32 input that is not empty, along its last axis, or along another axis with at least 16 columns."""
    if dtype is not None or not is_float32(input) or input.ndim == 0 or input.size == 0:
        return False
    dim %= input.ndim
    return dim == input.ndim - 1 or math.prod(input.shape[dim + 1 :]) >= 16


def forward(xp, input, *, dim, dtype=None):
    """Returns exp(x - max) / sum along an axis."""
    return along(dim, _fwd, _fwd_columns, input)


def along(dim, by_row, by_column, *arrays, out=None):
    """Runs one of two loops on arrays of one shape and on the result. Returns None if the loop returns True.

    Args:
        by_row: the loop over the rows of matrices, for the last axis.
        by_column: the loop over strips of columns, for other axes.
        out: the result without the axis, for a reduction (default: of the shape of the arrays).
    """
    shape = arrays[0].shape
    dim %= len(shape)
    if dim == len(shape) - 1:
        rows = [np.ascontiguousarray(a).reshape(-1, a.shape[-1]) for a in arrays]
        to = np.empty_like(rows[0]) if out is None else out.reshape(-1)
        failed = split(by_row, rows[0].size, (*rows, to))
    else:
        columns, tasks = in_columns(dim, *arrays)
        to = np.empty_like(columns[0]) if out is None else out.reshape(len(columns[0]), 1, -1)
        failed = split(by_column, columns[0].size, (tasks,), *columns, to)
    return None if failed else to.reshape(shape if out is None else out.shape)


def in_columns(dim, *arrays):
    """Returns arrays of one shape as contiguous arrays (outer, n, inner), with axis `dim` in the middle, and the tasks of `strip_of`."""
    shape = arrays[0].shape
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    columns = [np.ascontiguousarray(a).reshape(outer, shape[dim], inner) for a in arrays]
    return columns, np.arange(outer * -(-inner // _STRIP))


def vjp(g, out, dim):
    """Returns the gradient of the input."""
    return (along(dim, _bwd, _bwd_columns, g, out),)
