"""Running sums and products of float32 along any axis, accumulated in float64, and positions of running maxima and minima.

Each addition waits for the addition before. So four rows are processed at a time, and their additions overlap. The running
maximum and minimum support all real dtypes. Of equal elements, the last one counts, and NaN wins over all numbers.
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import exact, in_order, kernel


@kernel
def _sums_of_rows(x, out):
    rows, width = x.shape
    for r in range(0, rows, 4):
        # Clamped row numbers: with fewer than four rows left, the last row is computed several times.
        r1, r2, r3 = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
        a = b = c = d = 0.0
        for i in range(width):
            a += x[r, i]
            b += x[r1, i]
            c += x[r2, i]
            d += x[r3, i]
            out[r, i], out[r1, i], out[r2, i], out[r3, i] = a, b, c, d


@kernel
def _products_of_rows(x, out):
    rows, width = x.shape
    for r in range(0, rows, 4):
        r1, r2, r3 = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
        a = b = c = d = 1.0
        for i in range(width):
            a *= x[r, i]
            b *= x[r1, i]
            c *= x[r2, i]
            d *= x[r3, i]
            out[r, i], out[r1, i], out[r2, i], out[r3, i] = a, b, c, d


@in_order
def _others_of_rows(x, out):
    """Computes the product of all other elements of a row: those before times those after."""
    rows, width = x.shape
    for r in range(0, rows, 4):
        r1, r2, r3 = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
        a = b = c = d = 1.0
        for i in range(width):
            out[r, i], out[r1, i], out[r2, i], out[r3, i] = a, b, c, d
            a *= x[r, i]
            b *= x[r1, i]
            c *= x[r2, i]
            d *= x[r3, i]
        a = b = c = d = 1.0
        for j in range(width):
            i = width - 1 - j
            # All rows are read before one is written, since the last row may be several of them.
            p, q, s, t = out[r, i] * a, out[r1, i] * b, out[r2, i] * c, out[r3, i] * d
            out[r, i], out[r1, i], out[r2, i], out[r3, i] = p, q, s, t
            a *= x[r, i]
            b *= x[r1, i]
            c *= x[r2, i]
            d *= x[r3, i]


@kernel
def _sums(x, out):
    outer, count, inner = x.shape
    total = np.empty(inner)
    for o in range(outer):
        total[:] = 0.0
        for j in range(count):
            for i in range(inner):
                total[i] += x[o, j, i]
                out[o, j, i] = total[i]


@kernel
def _products(x, out):
    outer, count, inner = x.shape
    total = np.empty(inner)
    for o in range(outer):
        total[:] = 1.0
        for j in range(count):
            for i in range(inner):
                total[i] *= x[o, j, i]
                out[o, j, i] = total[i]


@in_order
def _others(x, out):
    outer, count, inner = x.shape
    total = np.empty(inner)
    for o in range(outer):
        total[:] = 1.0
        for j in range(count):
            for i in range(inner):
                out[o, j, i] = total[i]
                total[i] *= x[o, j, i]
        total[:] = 1.0
        for j in range(count):
            for i in range(inner):
                out[o, count - 1 - j, i] *= total[i]
                total[i] *= x[o, count - 1 - j, i]


@exact
def _best(x, out, largest):
    outer, count, inner = x.shape
    best = np.empty(inner, x.dtype)
    for o in range(outer):
        best[:] = x[o, 0]
        for j in range(count):
            row, to, before = x[o, j], out[o, j], out[o, max(j - 1, 0)]
            for i in range(inner):
                # Branch-free selection, which the compiler vectorizes over the inner axis.
                better = (row[i] >= best[i] if largest else row[i] <= best[i]) | (row[i] != row[i])
                best[i] = row[i] if better else best[i]
                to[i] = j if better else before[i]


@exact
def _best_of_rows(x, out, largest):
    for r in range(len(x)):
        row, to = x[r], out[r]
        best, at = row[0], 0
        for j in range(row.size):
            v = row[j]
            if not (v < best if largest else v > best) and (
                best == best or v != v
            ):  # rarely true, so a branch is fastest
                best, at = v, j
            to[j] = at


def _running_best(xp, x, axis, largest):
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (outer, x.shape[axis]) if inner == 1 else (outer, x.shape[axis], inner)
    out = np.empty(x.shape, np.int64)
    arrays = np.ascontiguousarray(x).reshape(shape), out.reshape(shape)
    split(_best_of_rows if inner == 1 else _best, x.size, arrays, largest)
    return out


def _accepts(x, axis=None):
    return x.dtype == np.float32


def _scan(of_rows, along):
    def run(xp, x, axis=None):
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
        outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        x, out = np.ascontiguousarray(x), np.empty(x.shape, np.float32)
        if inner == 1:
            shape = outer, x.shape[axis]
            split(of_rows, x.size, (x.reshape(shape), out.reshape(shape)))
        else:
            shape = outer, x.shape[axis], inner
            split(along, x.size, (x.reshape(shape), out.reshape(shape)))
        return out

    return run


cumsum = Kernel(accepts=_accepts, forward=_scan(_sums_of_rows, _sums))
running_best = Kernel(
    accepts=lambda x, axis, largest: x.dtype in (np.float32, np.float64, np.int64), forward=_running_best
)
cumprod = Kernel(accepts=_accepts, forward=_scan(_products_of_rows, _products))
others = Kernel(accepts=_accepts, forward=_scan(_others_of_rows, _others))
