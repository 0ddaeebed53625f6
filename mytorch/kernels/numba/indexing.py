"""Gather, scatter and index_add along one axis, each in one pass.

Arrays are viewed as (outer, along, inner). `gather` only moves elements, so it works on their bits in any dtype. If several threads add
rows, each thread owns a range of target rows and skips the indices of other rows. The order of additions is thus deterministic.
Each index is checked again when it is used, because the program may have changed the index array before backward (`within`).
"""

import math

import numpy as np

from ...arrays.blocks import as_bits
from ..kernel import Kernel
from ..threads import chunks_for, split
from .common import exact, exact_inlined, kernel, within

_ADDED = (np.float32, np.float64, np.int64)  # dtypes that are added as they are; half precision is added in float32


# A separate loop for inner size 1: a row of `index` is then contiguous for the compiler.
@kernel
def _gather_rows(x, index, out):
    outer, count = index.shape
    for o in range(outer):
        for j in range(count):
            out[o, j] = x[o, within(index[o, j], x.shape[1])]


@kernel
def _gather(x, index, out):
    # The innermost loop runs along contiguous memory of index and out; only x is read at random.
    outer, count, inner = index.shape
    for o in range(outer):
        for j in range(count):
            for i in range(inner):
                out[o, j, i] = x[o, within(index[o, j, i], x.shape[1]), i]


@kernel
def _take_in_rows(x, out, index):
    for r in range(len(x)):
        for j in range(len(index)):
            out[r, j] = x[r, within(index[j], x.shape[1])]


@kernel
def _reverse(x, out):
    rows, count = x.shape
    for r in range(rows):
        row, to = x[r], out[r]
        for j in range(count):
            # Unsigned, because an index that may be negative prevents vectorization.
            to[j] = row[np.uint64(count - 1) - np.uint64(j)]


@kernel
def _add_in_rows(out, index, src):
    outer, count = index.shape
    for o in range(outer):
        for j in range(count):
            out[o, within(index[o, j], out.shape[1])] += src[o, j]


@kernel
def _add_along(out, index, src):
    outer, count, inner = index.shape
    for o in range(outer):
        for j in range(count):
            for i in range(inner):
                out[o, within(index[o, j, i], out.shape[1]), i] += src[o, j, i]


@kernel
def _put_in_rows(out, index, src):
    outer, count = index.shape
    for o in range(outer):
        for j in range(count):
            out[o, within(index[o, j], out.shape[1])] = src[o, j]


@kernel
def _put_along(out, index, src):
    outer, count, inner = index.shape
    for o in range(outer):
        for j in range(count):
            for i in range(inner):
                out[o, within(index[o, j, i], out.shape[1]), i] = src[o, j, i]


@exact_inlined
def _reduced(a, b, how):
    """Returns the maximum (how=0), the minimum (1) or the product (2). A NaN wins over all numbers."""
    if how == 2:
        return a * b
    better = b > a if how == 0 else b < a
    return b if better or b != b else a


@exact
def _reduce_along(out, index, src, how):
    outer, count, inner = index.shape
    for o in range(outer):
        for j in range(count):
            for i in range(inner):
                at = within(index[o, j, i], out.shape[1])
                out[o, at, i] = _reduced(out[o, at, i], src[o, j, i], how)


@exact
def _reduce_rows(own, out, rows, values, how):
    # As in `_add_rows`, each thread owns a range of target rows.
    for j in range(len(rows)):
        r = rows[j]
        if own[0] <= r <= own[-1]:
            for i in range(out.shape[1]):
                out[r, i] = _reduced(out[r, i], values[j, i], how)


@kernel
def _put_rows(own, out, rows, values):
    for j in range(len(rows)):
        r = rows[j]
        if own[0] <= r <= own[-1]:
            for i in range(out.shape[1]):
                out[r, i] = values[j, i]


@kernel
def _add_rows(own, out, rows, values):
    # Each thread reads all indices and adds only the rows first … last, so no two threads write to one row.
    first, last = own[0], own[-1]
    for j in range(len(rows)):
        r = rows[j]
        if first <= r <= last:
            for i in range(
                out.shape[1]
            ):  # elements and not a slice, which would count references to `out` for each row
                out[r, i] += values[j, i]


def _fits(x, index, dim):
    """Returns True if the sizes differ only in `dim`, and the index is an array of int64 that is not empty."""
    if not isinstance(index, np.ndarray) or index.dtype != np.int64 or x.ndim != index.ndim or not index.size:
        return False
    return x.ndim > 0 and x.shape[:dim] == index.shape[:dim] and x.shape[dim + 1 :] == index.shape[dim + 1 :]


def _is_plain(x):
    """Returns True if the elements can be moved as integers of their size."""
    return x.itemsize in (1, 2, 4, 8) and x.dtype.kind != "c"


def _folded(x, dim, drop=True):
    """Returns x as a contiguous array (outer, along, inner), without `inner` if it is 1 and `drop` is set."""
    shape = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    return np.ascontiguousarray(x).reshape(shape[:2] if drop and shape[2] <= 1 else shape)


def _accepts_gather(x, index, dim):
    return _fits(x, index, dim) and _is_plain(x)


def _rows_of(index, dim):
    """Returns a vector of indices that `index` repeats along all other axes, or None. `index.expand_as(src)` is such an index."""
    others = [step for axis, step in enumerate(index.strides) if axis != dim and index.shape[axis] > 1]
    return (
        None if any(others) or not others else index[tuple(slice(None) if a == dim else 0 for a in range(index.ndim))]
    )


def _run_gather(xp, x, index, dim):
    """Returns out[i][j] = x[i][index[i][j]], for dim=1."""
    if (rows := _rows_of(index, dim)) is not None:
        return _take_last(xp, x, rows) if dim == x.ndim - 1 else np.take(x, rows, axis=dim)
    out = np.empty(index.shape, x.dtype)
    # Unsigned indices: a negative index becomes a huge one, so `within` needs one comparison.
    x, index, to = (_folded(a, dim) for a in (as_bits(x), index.view(np.uint64), as_bits(out)))
    split(_gather_rows if to.ndim == 2 else _gather, to.size, (x, index, to))
    return out


def _accepts_take(x, rows):
    return rows.dtype == np.int64 and rows.size and _is_plain(x) and rows.view(np.uint64).max() < x.shape[-1]


def _take_last(xp, x, rows):
    """Returns x[..., rows]. The indices are not negative."""
    out = np.empty((*x.shape[:-1], len(rows)), x.dtype)
    source, to = (np.ascontiguousarray(as_bits(a)).reshape(-1, a.shape[-1]) for a in (x, out))
    split(_take_in_rows, out.size, (source, to), np.ascontiguousarray(rows).view(np.uint64))
    return out


def _accepts_flip(x, axes):
    """Accepts the last axes. NumPy copies other axes row by row, which is as fast."""
    return (
        sorted(axes) == list(range(x.ndim - len(axes), x.ndim)) and len(axes) and x.flags.c_contiguous and _is_plain(x)
    )


def _flip(xp, x, axes):
    # Along all of the last axes at once, a flip reverses the order in memory.
    out = np.empty(x.shape, x.dtype)
    count = math.prod(x.shape[x.ndim - len(axes) :])
    rows, to = (as_bits(a).reshape(-1, count) for a in (x, out))
    split(_reverse, x.size, (rows, to))
    return out


def _accepts_add(out, index, dim, src):
    return _fits(out, index, dim) and _addable(out, src) and src.shape == index.shape


def _addable(out, values):
    """Returns True if values can be added into out: a dtype of _ADDED, or half precision, which is summed in float32."""
    half = out.itemsize == 2 and out.dtype.kind in "fV"
    return values.dtype == out.dtype and (half or out.dtype in _ADDED) and out.flags.c_contiguous


def _in_float32(run, out, values):
    """Calls run(out, values). Half precision is summed in float32 and rounded once."""
    if out.itemsize > 2:
        run(out, np.ascontiguousarray(values))
    else:
        wide = out.astype(np.float32)
        run(wide, values.astype(np.float32, order="C"))
        out[...] = wide


def _run_add(xp, out, index, dim, src):
    """out[i][index[i][j]] += src[i][j] in place, for dim=1. The threads divide the outer axis."""
    rows = _rows_of(index, dim)
    if dim == 0 and rows is not None:
        width = math.prod(out.shape[1:])
        _run_rows(xp, out.reshape(len(out), width), np.ascontiguousarray(rows), src.reshape(len(src), width))
        return

    def run(out, src):
        to, values = _folded(out, dim), _folded(src, dim)
        if rows is not None and to.ndim == 2:  # the same index in each row, by a stride of 0
            where = np.ndarray(values.shape, np.uint64, np.ascontiguousarray(rows), 0, (0, 8))
        else:
            where = _folded(index.view(np.uint64), dim)
        split(_add_in_rows if to.ndim == 2 else _add_along, values.size, (to, where, values))

    _in_float32(run, out, src)


def _accepts_put(out, index, dim, src):
    same = src.shape == index.shape and src.dtype == out.dtype
    return same and _fits(out, index, dim) and out.flags.c_contiguous and _is_plain(out)


def _accepts_reduction(out, index, dim, src):
    return _accepts_put(out, index, dim, src) and out.dtype in _ADDED


def _writing(loop, by_rows, view, *constants, in_rows=None):
    """Returns the forward function of a loop that writes along an axis. `view` is applied to the arrays first.

    `by_rows` is the loop for an index that is the same in all columns, and `in_rows` the loop for inner size 1, if there is one.
    """

    def run(xp, out, index, dim, src):
        rows = _rows_of(index, dim) if dim == 0 else None
        to, values = view(out), view(src)
        if rows is not None:
            width = math.prod(out.shape[1:])
            to, values = to.reshape(len(out), width), np.ascontiguousarray(values).reshape(len(src), width)
            _split_rows(by_rows, np.arange(len(out)), to, np.ascontiguousarray(rows), values, *constants)
            return
        drop = in_rows is not None
        to, where, values = (_folded(a, dim, drop) for a in (to, index.view(np.uint64), values))
        split(in_rows if to.ndim == 2 else loop, values.size, (to, where, values), *constants)

    return run


def _accepts_rows(out, rows, values):
    return rows.dtype == np.int64 and _addable(out, values)


def _run_rows(xp, out, rows, values):
    """out[rows[i]] += values[i], in place. The indices are not negative."""

    def run(out, values):
        # Rows of one element: one thread, as each thread would have to read all indices.
        if values.shape[1:] == (1,):
            _add_in_rows(*(a.reshape(1, -1) for a in (out, rows.view(np.uint64), values)))
            return
        _split_rows(_add_rows, np.arange(len(out)), out, rows, values)

    if len(out):
        _in_float32(run, out, values)


def _split_rows(loop, own, out, rows, values, *constants):
    """Calls a loop on several threads. `split` cuts `own`, the list of target rows, and passes out, rows and values whole."""
    if chunks_for(values.size) <= len(own):
        split(loop, values.size, (own,), out, rows, values, *constants)
    else:
        loop(own, out, rows, values, *constants)


take_last = Kernel(accepts=_accepts_take, forward=_take_last)
flipped = Kernel(accepts=_accepts_flip, forward=_flip)
gather = Kernel(accepts=_accepts_gather, forward=_run_gather)
add_along = Kernel(accepts=_accepts_add, forward=_run_add)
add_rows = Kernel(accepts=_accepts_rows, forward=_run_rows)
put_along = Kernel(accepts=_accepts_put, forward=_writing(_put_along, _put_rows, as_bits, in_rows=_put_in_rows))
max_along, min_along, prod_along = (
    Kernel(accepts=_accepts_reduction, forward=_writing(_reduce_along, _reduce_rows, np.asarray, how))
    for how in range(3)
)
