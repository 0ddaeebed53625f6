"""Sums along rows of float32, also of squares, and products: blocks of a few hundred in float32, their sums in float64.

Squared deviations from the mean are found in one reading of memory, in float64: those of each block, which is in cache the second
time, are joined (Chan, Golub and LeVeque, 1983).
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import kernel, with_nan

_BLOCK = 512
_CACHED = 1 << 15  # elements of a block that is read twice


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
    """The mean and the squares about it of each block of x (outer, n, inner), along its middle axis."""
    blocks = (x.shape[1] + block - 1) // block
    for t in range(len(tasks)):
        outer, start = tasks[t] // blocks, tasks[t] % blocks * block
        rows, mean, square = x[outer, start : start + block], means[t], squares[t]
        if x.shape[2] == 1:
            row, total, around = rows.reshape(-1), 0.0, 0.0
            for i in range(row.size):
                total += row[i]
            middle = total / row.size
            for i in range(row.size):
                around += (row[i] - middle) * (row[i] - middle)
            mean[0], square[0] = middle, around
            continue
        for r in range(len(rows)):
            for c in range(mean.size):
                mean[c] += rows[r, c]
        for c in range(mean.size):
            mean[c] /= len(rows)
        for r in range(len(rows)):
            for c in range(mean.size):
                square[c] += (rows[r, c] - mean[c]) * (rows[r, c] - mean[c])


def _squared_deviations(xp, x, axis=None, keepdims=False):
    """The squared deviations from the mean over axes, summed, in float64; x is laid out as (outer, n, inner) without a copy where it can be."""
    axes = set(range(x.ndim)) if axis is None else {a % x.ndim for a in np.atleast_1d(axis).tolist()}
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
    apart = means - (counts @ means / n)[:, None]
    total = squares.sum(1) + counts @ (apart * apart)
    kept = [a for a in order if a not in axes]
    total = total.reshape([x.shape[a] for a in kept]).transpose(np.argsort(kept))
    return np.expand_dims(total, tuple(axes)) if keepdims else total[()]


def _rows_of(x, axis):
    """How many of x's last axes are summed; None if others are."""
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


def _run(sums, whole=False):
    def run(xp, x, axis=None, dtype=None, keepdims=False):
        n, width = _rows_of(x, axis), _width(x, axis)
        rows = x.reshape(-1, width)
        kept = x.shape[: x.ndim - n] + ((1,) * n if keepdims else ())
        parts = len(rows)
        if not whole and parts < 16 and width >= 1 << 16:  # several threads can share a row
            parts = len(rows) * 64 if width % 64 == 0 else parts
        out = np.empty(parts, np.float64)
        split(sums, x.size, (rows.reshape(parts, -1), out))
        total = (out if whole else out.reshape(len(rows), -1).sum(1)).astype(np.float32).reshape(kept)
        return total if kept else total[()]

    return run


sum = Kernel(accepts=_accepts, forward=_run(_sums))
sum_of_squares = Kernel(accepts=_accepts, forward=_run(_sums_of_squares))
prod = Kernel(accepts=_accepts, forward=_run(_products, whole=True))
squared_deviations = Kernel(
    accepts=lambda x, axis=None, keepdims=False: x.dtype == np.float32 and axis != (), forward=_squared_deviations
)
