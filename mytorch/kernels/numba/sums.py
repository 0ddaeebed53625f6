"""Sums, sums of squares and products along rows of float32: blocks of 512 elements in float32, the sums of blocks in float64.

Squared deviations from the mean need one pass over memory, in float64. The second pass over each block reads the cache, and the
statistics of the blocks are merged (Chan, Golub and LeVeque, 1983).
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import kernel, with_nan

_BLOCK = 512  # elements that are summed in float32: a vectorized loop with a small rounding error
_CACHED = 1 << 15  # elements of a block that is read twice, the second time from the cache


@kernel
def _sums(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 0.0
        for start in range(0, width, _BLOCK):
            block = row[start : min(start + _BLOCK, width)]
            part = np.float32(0.0)
            for i in range(len(block)):
                part += block[i]
            total += part
        out[r] = total


@kernel
def _sums_of_squares(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 0.0
        for start in range(0, width, _BLOCK):
            block = row[start : min(start + _BLOCK, width)]
            part = np.float32(0.0)
            for i in range(len(block)):
                part += block[i] * block[i]
            total += part
        out[r] = total


@kernel
def _products(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 1.0
        for i in range(width):
            total *= row[i]
        out[r] = total


@with_nan
def _block_deviations(tasks, means, squares, x, block):
    """Computes mean and sum of squared deviations of each block of x (outer, n, inner) along its middle axis."""
    blocks = (x.shape[1] + block - 1) // block
    for t in range(len(tasks)):
        outer, start = tasks[t] // blocks, tasks[t] % blocks * block
        rows, mean, square = x[outer, start : start + block], means[t], squares[t]
        if x.shape[2] == 1:
            row, total, deviations = rows.reshape(-1), 0.0, 0.0
            for i in range(row.size):
                total += row[i]
            row_mean = total / row.size
            for i in range(row.size):
                deviations += (row[i] - row_mean) * (row[i] - row_mean)
            mean[0], square[0] = row_mean, deviations
            continue
        # Reduce the middle axis with contiguous inner loops: one accumulator per inner position.
        for r in range(len(rows)):
            for c in range(mean.size):
                mean[c] += rows[r, c]
        for c in range(mean.size):
            mean[c] /= len(rows)
        for r in range(len(rows)):
            for c in range(mean.size):
                square[c] += (rows[r, c] - mean[c]) * (rows[r, c] - mean[c])


def _squared_deviations(xp, x, axis=None, keepdims=False):
    """Returns the sum of squared deviations from the mean over axes, in float64. x is viewed as (outer, n, inner) if possible."""
    axes = set(range(x.ndim)) if axis is None else {a % x.ndim for a in np.atleast_1d(axis).tolist()}
    # Sort the axes by stride. If the reduced axes are adjacent in memory, the view below needs no copy.
    order = sorted(range(x.ndim), key=lambda a: -abs(x.strides[a]))
    first = min(map(order.index, axes))
    if set(order[first : first + len(axes)]) != axes:
        order = [a for a in order if a not in axes] + sorted(axes)
        first = x.ndim - len(axes)
    n, inner = (math.prod(x.shape[a] for a in part) for part in (axes, order[first + len(axes) :]))
    rows = np.ascontiguousarray(x.transpose(order)).reshape(-1, n, inner)
    block = max(_CACHED // inner, 32)
    counts = np.diff(np.append(np.arange(0, n, block), n)).astype(np.float64)
    means, squares = np.zeros((2, len(rows) * len(counts), inner))
    split(_block_deviations, x.size, (np.arange(len(means)), means, squares), rows, block)
    means, squares = (a.reshape(len(rows), len(counts), inner) for a in (means, squares))
    # Merge all blocks: M = sum M_b + sum n_b (mean_b - mean)².
    delta = means - (counts @ means / n)[:, None]
    total = squares.sum(1) + counts @ (delta * delta)
    kept = [a for a in order if a not in axes]
    total = total.reshape([x.shape[a] for a in kept]).transpose(np.argsort(kept))
    return np.expand_dims(total, tuple(axes)) if keepdims else total[()]


def _rows_of(x, axis):
    """Returns the number of last axes that are summed; None if other axes are summed."""
    if axis is None:
        return x.ndim
    axes = sorted({a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)})
    return len(axes) if axes == list(range(x.ndim - len(axes), x.ndim)) else None


def _accepts(x, axis=None, dtype=None, keepdims=False):
    return (
        x.dtype == np.float32
        and dtype is None
        and x.flags.c_contiguous
        and bool(_rows_of(x, axis))
        and _width(x, axis) >= 32
    )


def _width(x, axis):
    return math.prod(x.shape[x.ndim - _rows_of(x, axis) :])


def _run(sums, product=False):
    def run(xp, x, axis=None, dtype=None, keepdims=False):
        n, width = _rows_of(x, axis), _width(x, axis)
        rows = x.reshape(-1, width)
        kept = x.shape[: x.ndim - n] + ((1,) * n if keepdims else ())
        parts = len(rows)
        # A product is not split, since its parts would have to be multiplied, not added.
        if not product and parts < 16 and width >= 1 << 16:  # several threads can share a row
            parts = len(rows) * 64 if width % 64 == 0 else parts
        out = np.empty(parts, np.float64)
        split(sums, x.size, (rows.reshape(parts, -1), out))
        total = (out if product else out.reshape(len(rows), -1).sum(1)).astype(np.float32).reshape(kept)
        return total if kept else total[()]

    return run


sum = Kernel(accepts=_accepts, forward=_run(_sums))
sum_of_squares = Kernel(accepts=_accepts, forward=_run(_sums_of_squares))
prod = Kernel(accepts=_accepts, forward=_run(_products, product=True))
squared_deviations = Kernel(
    accepts=lambda x, axis=None, keepdims=False: x.dtype == np.float32 and axis != (), forward=_squared_deviations
)
