"""Sums, sums of squares and magnitudes, and products of float32: blocks of rows in float32, the sums of blocks in float64.

Sums of int64 along last axes use the same loop.
Squared deviations from the mean need one pass over memory, in float64. The second pass over each block reads the cache, and the
statistics of the blocks are merged (Chan, Golub and LeVeque, 1983).
"""

import functools
import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import kernel, with_nan

_BLOCK = 512  # elements that are summed in float32: a vectorized loop with a small rounding error
_STRIP, _ROWS = 512, 256  # columns of a strip, and rows of it that are summed in float32
_CACHED = 1 << 15  # elements of a block that is read twice, the second time from the cache


def _sums_of(what):
    """Returns the loop that sums the numbers of each row (what=0), their magnitudes (1) or their squares (2)."""

    @kernel
    def loop(x, out):
        rows, width = x.shape
        for r in range(rows):
            row, total = x[r], out.dtype.type(0)
            for start in range(0, width, _BLOCK):
                block = row[start : min(start + _BLOCK, width)]
                part = x.dtype.type(0)
                for i in range(len(block)):
                    v = block[i]
                    part += v if what == 0 else abs(v) if what == 1 else v * v
                total += part
            out[r] = total

    return loop


_sums, _sums_of_magnitudes, _sums_of_squares = map(_sums_of, range(3))


@kernel
def _column_sums(own, x, out):
    # A task is a strip of columns, whose sums stay in the first-level cache. Each pass over a strip adds eight rows.
    rows, width = x.shape[1:]
    strips, whole = (width + _STRIP - 1) // _STRIP, rows // 8 * 8
    part, total = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float64)
    for t in own:
        image, first = x[t // strips], t % strips * _STRIP
        last = min(first + _STRIP, width)
        total[:] = 0.0
        for start in range(0, whole, _ROWS):
            part[:] = 0.0
            for r in range(start, min(start + _ROWS, whole), 8):
                a, b, c, d = (
                    image[r, first:last],
                    image[r + 1, first:last],
                    image[r + 2, first:last],
                    image[r + 3, first:last],
                )
                e, f, g, h = (
                    image[r + 4, first:last],
                    image[r + 5, first:last],
                    image[r + 6, first:last],
                    image[r + 7, first:last],
                )
                for i in range(last - first):
                    part[i] += ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]))
            for i in range(last - first):
                total[i] += part[i]
        for r in range(whole, rows):
            for i in range(last - first):
                total[i] += image[r, first + i]
        for i in range(last - first):
            out[t // strips, first + i] = total[i]


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


@functools.lru_cache(1024)
def _plan(shape, axis):
    """Returns how to reduce the last axes that are adjacent; None if a loop is not faster than NumPy.

    These are the shape (outer, n, inner) in which n is reduced, the shape without these axes, the axes to reduce afterward, and the
    shapes of the result without and with `keepdims`.
    """
    ndim = len(shape)
    axes = set(range(ndim)) if axis is None else {a % ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    if not axes:
        return None
    last = first = max(axes)
    while first - 1 in axes:
        first -= 1
    outer, n, inner = (math.prod(part) for part in (shape[:first], shape[first : last + 1], shape[last + 1 :]))
    if n < 32 or 1 < inner < 16:
        return None
    later = tuple(sorted(a for a in axes if a < first))
    kept = tuple(size for a, size in enumerate(shape) if a not in axes)
    ones = tuple(1 if a in axes else size for a, size in enumerate(shape))
    return (outer, n, inner), shape[:first] + shape[last + 1 :], later, kept, ones


def _in_memory_order(x, axis):
    """Returns x with its axes in the order of memory, the axes to reduce there, and the order; None if x has gaps or repetitions.

    A transposed matrix or an image with channels last is thus reduced as it is in memory.
    """
    order = sorted(range(x.ndim), key=lambda a: -x.strides[a])
    y = x.transpose(order)
    if not y.flags.c_contiguous:
        return None
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return y, tuple(sorted(order.index(a % x.ndim) for a in axes)), order


def _accepts(x, axis=None, dtype=None, keepdims=False, of=np.float32):
    if x.dtype != of or dtype is not None:
        return False
    if x.flags.c_contiguous:
        return _plan(x.shape, axis) is not None
    ordered = _in_memory_order(x, axis)
    return ordered is not None and _plan(ordered[0].shape, ordered[1]) is not None


def _accepts_rows(x, axis=None, dtype=None, keepdims=False, of=np.float32):
    if not _accepts(x, axis, dtype, keepdims, of):
        return False
    if not x.flags.c_contiguous:
        x, axis, _ = _in_memory_order(x, axis)
    (_, _, inner), _, later, *_ = _plan(x.shape, axis)
    return inner == 1 and not later  # a loop over rows: the last axes, and no others


def _accepts_sum(*args, **options):
    return _accepts(*args, **options) or _accepts_rows(*args, **options, of=np.int64)


def _run(sums, columns=None, product=False):
    def run(xp, x, axis=None, dtype=None, keepdims=False):
        if not x.flags.c_contiguous:
            x, axes, order = _in_memory_order(x, axis)
            back = np.argsort(order if keepdims else [a for i, a in enumerate(order) if i not in axes])
            out = run(xp, x, axes, dtype, keepdims)
            return np.transpose(out, back) if len(back) > 1 else out
        (outer, n, inner), shape, later, kept, ones = _plan(x.shape, axis)
        # So that several threads can share a sum, it is divided into parts. A product is not, since its parts are not added.
        tasks = outer if inner == 1 else -(-inner // _STRIP) * outer
        parts, least = (64, 1 << 16) if inner == 1 else (16, 1 << 10)
        if product or tasks >= 16 or n < least or n % parts:
            parts = 1
        if inner == 1:
            out = np.empty(outer * parts, np.float64 if x.dtype.kind == "f" else np.int64)
            split(sums, x.size, (x.reshape(outer * parts, -1), out))
        else:
            out = np.empty((outer * parts, inner))
            split(columns, x.size, (np.arange(tasks * parts),), x.reshape(outer * parts, -1, inner), out)
        total = out if parts == 1 else out.reshape(outer, parts, inner).sum(1)
        if later:
            total = np.add.reduce(total.reshape(shape), later)
        total = total.astype(x.dtype).reshape(ones if keepdims else kept)
        return total if total.ndim else total[()]

    return run


sum = Kernel(accepts=_accepts_sum, forward=_run(_sums, _column_sums))
sum_of_squares = Kernel(accepts=_accepts_rows, forward=_run(_sums_of_squares))
sum_of_magnitudes = Kernel(accepts=_accepts_rows, forward=_run(_sums_of_magnitudes))
prod = Kernel(accepts=_accepts_rows, forward=_run(_products, product=True))
squared_deviations = Kernel(
    accepts=lambda x, axis=None, keepdims=False: x.dtype == np.float32 and axis != (), forward=_squared_deviations
)
