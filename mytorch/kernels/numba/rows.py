"""Arithmetic, rounding and copies of arrays whose rows are contiguous, in blocks that threads divide: the same bits as NumPy's.

The operands are slices, broadcast, or are numbers. NumPy takes twice the time for a row or a column of numbers, and five times for an outer
product. For contiguous operands of one shape it is as fast as these loops, but its calls need the GIL to begin, so they are divided among
threads at a higher cost.
"""

import functools
import math
from typing import Any

import numpy as np

from ...arrays.blocks import OF_ONE, OF_TWO, as_bits
from .. import threads
from .common import exact, exact_inlined

LEAST = 0  # an outer product has small operands
_SHORT = 16  # numbers in a row from which a loop over rows pays
_BLOCK = 1 << 13  # numbers of a row that a thread computes at a time
_FLOATS = np.dtype(np.float32), np.dtype(np.float64)
# More than _MANY blocks are not kept for the next call, and only for rows from _LONG on they take much less memory than the result.
_MANY, _LONG = 1 << 12, 128


@exact_inlined
def _two(function, a, b):
    if function == 0:
        return a + b
    if function == 1:
        return a - b
    return a * b if function == 2 else a / b


@exact_inlined
def _one(function, a):
    if function == 1:
        return -a
    if function == 2:
        return abs(a)
    if function == 3:
        return a * a
    if function == 4:
        return 1 / a
    if function == 5:
        return np.sqrt(a)
    if function == 6:
        return np.floor(a)
    if function == 7:
        return np.ceil(a)
    return np.trunc(a) if function == 8 else np.rint(a)


def _loop_of_two(function, inplace):
    @exact
    def loop(lengths, begins, starts, others, out, x, y, at_out, at_x, at_y, along_x, along_y):
        for i in range(len(begins)):
            to, a, b, length = begins[i] + at_out, starts[i] + at_x, others[i] + at_y, lengths[i]
            if inplace and along_y:  # LLVM vectorizes only loops over arrays that it knows to be apart, or the same
                for j in range(length):
                    out[to + j] = _two(function, out[to + j], y[b + j])
            elif inplace:
                number = y[b]
                for j in range(length):
                    out[to + j] = _two(function, out[to + j], number)
            elif along_x and along_y:
                for j in range(length):
                    out[to + j] = _two(function, x[a + j], y[b + j])
            elif along_x:
                number = y[b]
                for j in range(length):
                    out[to + j] = _two(function, x[a + j], number)
            else:
                number = x[a]
                for j in range(length):
                    out[to + j] = _two(function, number, y[b + j])

    return loop


def _loop_of_one(function):
    @exact
    def loop(lengths, begins, starts, out, x, at_out, at_x, along):
        for i in range(len(begins)):
            to, a, length = begins[i] + at_out, starts[i] + at_x, lengths[i]
            if along:
                for j in range(length):
                    out[to + j] = _one(function, x[a + j]) if function else x[a + j]
            else:
                number = _one(function, x[a]) if function else x[a]
                for j in range(length):
                    out[to + j] = number

    return loop


_LOOPS: dict[tuple[np.ufunc, bool], Any] = {
    (ufunc, inplace): _loop_of_two(i, inplace) for i, ufunc in enumerate(OF_TWO) for inplace in (False, True)
}
_LOOPS |= {(ufunc, False): _loop_of_one(i) for i, ufunc in enumerate(OF_ONE)}


@functools.lru_cache(512)
def _plan(shape, ordered, *strides):
    """Returns how to compute a result by rows; None if the rows are short or not contiguous.

    A row is the longest range of last axes along which each array is contiguous or does not change.

    Args:
        shape: shape of the result.
        ordered: True if the order of the axes in memory must be that of a row-major result, as a new result has in PyTorch.
        strides: distances of elements for the result and the operands, 0 where they are expanded.

    Returns:
        The number of axes before a row, the numbers in a row, and for each array, True if it changes along a row.
    """
    rows, columns, along = len(shape), 1, None
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            kinds = tuple(1 if s[axis] == columns else 0 if s[axis] == 0 else -1 for s in strides)
            if -1 in kinds or kinds != (along or kinds):
                break
            along, columns = kinds, columns * shape[axis]
        rows = axis
    if along is None or columns < _SHORT or not along[0] or 0 in shape:
        return None
    for s in strides if ordered else ():
        steps = [step for step, n in zip(s, shape, strict=True) if n > 1 and step]
        if steps != sorted(steps, reverse=True) or min(steps, default=1) < 0:
            return None
    return rows, columns, [kind == 1 for kind in along]


def _blocks(shape, rows, columns, *arrays):
    """Returns the lengths of the blocks of a result, and where they begin in each array. A block is a row or a part of a long one.

    Args:
        shape, rows, columns: shape of the result, number of axes before a row, numbers in a row.
        arrays: (strides, True if it changes along a row) of each array.
    """
    steps = np.arange(0, columns, _BLOCK)
    lengths = np.broadcast_to(np.minimum(columns - steps, _BLOCK), (math.prod(shape[:rows]), len(steps)))
    found = [lengths]
    for s, changes in arrays:
        first = np.zeros(shape[:rows], np.int64)
        for axis in range(rows):
            first += (np.arange(shape[axis]) * s[axis]).reshape(-1, *(1,) * (rows - 1 - axis))
        found.append(np.add.outer(first.reshape(-1), steps * changes))
    # Unsigned numbers: an index that can be negative prevents vectorization.
    return [a.reshape(-1).astype(np.uint64) for a in found]


_few_blocks = functools.lru_cache(256)(_blocks)


def _strides(a, shape):
    """Returns the distances of an array's elements after it is broadcast to a shape."""
    own = [0 if n == 1 else step // a.itemsize for n, step in zip(a.shape, a.strides, strict=True)]
    return (0,) * (len(shape) - len(own)) + tuple(own)


def _memory(a):
    """Returns the elements that an array is a view of, and the position of its first one; None if they are not one contiguous array."""
    if a.flags.c_contiguous:
        return a.reshape(-1), 0
    base = a.base
    if type(base) is not np.ndarray or not base.flags.c_contiguous or base.itemsize != a.itemsize:
        return None
    distance = a.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    if any(step % a.itemsize for step in (distance, *a.strides)):
        return None
    return base.reshape(-1).view(a.dtype), distance // a.itemsize


def accepts(*operands, out=None, function):
    """Accepts floats of one dtype; for copies, any dtype of 1, 2, 4 or 8 bytes."""
    dtype = operands[0].dtype
    known = (dtype.itemsize in (1, 2, 4, 8) and dtype.kind != "O") if function is np.positive else dtype in _FLOATS
    return known and all(a.dtype == dtype for a in (*operands, *(() if out is None else (out,))))


def forward(xp, *operands, out=None, function):
    """Returns function(*operands), in `out` if it is given; None for rows that are short or not contiguous, and where NumPy is as fast."""
    x, *others = operands
    alike = all(a.flags.c_contiguous and a.shape == x.shape for a in operands)
    if threads.get_num_threads() == 1 and all(
        a.flags.c_contiguous and (a.shape == x.shape or a.size == 1) for a in operands
    ):
        return None
    shape = (x.shape if alike else np.broadcast_shapes(*[a.shape for a in operands])) if out is None else out.shape
    result = np.empty(shape, x.dtype) if out is None else out
    arrays = result, *operands
    if alike and result.flags.c_contiguous and shape == x.shape:
        shape, strides, memory = (x.size,), [(1,)] * len(arrays), [(a.reshape(-1), 0) for a in arrays]
    else:
        strides, memory = [_strides(a, shape) for a in arrays], [_memory(a) for a in arrays]
    plan = _plan(shape, out is None, *strides)
    if plan is None or None in memory:
        return None
    rows, columns, along = plan
    many = math.prod(shape[:rows]) * -(-columns // _BLOCK) > _MANY
    if many and columns < _LONG:
        return None
    blocks = (_blocks if many else _few_blocks)(shape, rows, columns, *zip(strides, along, strict=True))
    flat, starts = [a for a, _ in memory], [np.uint64(start) for _, start in memory]
    if function is np.positive:
        flat = [as_bits(a) for a in flat]
    loop = _LOOPS[function, bool(others) and out is x]
    threads.split(loop, result.size, blocks, *flat, *starts, *along[1:])
    return result
