"""Sum, difference, product and quotient, with the same bits as NumPy's: float32 and float64, operands that broadcast, and numbers.

NumPy takes twice the time for a row or a column of numbers, and five times for an outer product. For operands of one shape it is as fast
as these loops, but its calls need the GIL to begin, so they are divided among threads at a higher cost.
"""

import functools
import math

import numpy as np

from .. import threads
from .common import exact, exact_inlined

LEAST = 0  # an outer product has small operands
_SHORT = 16  # numbers in a row from which a loop over rows pays
_BLOCK = 1 << 13  # numbers of a row that a thread computes at a time
_FLOATS = np.dtype(np.float32), np.dtype(np.float64)
_FUNCTIONS = np.add, np.subtract, np.multiply, np.true_divide


@exact_inlined
def _of_two(function, a, b):
    if function == 0:
        return a + b
    if function == 1:
        return a - b
    return a * b if function == 2 else a / b


def _loop(function, inplace):
    # The closure contains numbers: Numba does not find a compiled function again whose closure contains one.
    @exact
    def loop(begins, lengths, starts, others, out, x, y, along_x, along_y):
        x = (
            out if inplace else x
        )  # LLVM vectorizes a loop only for arrays that do not overlap, or are known to be the same
        for i in range(len(begins)):
            to, a, b, length = begins[i], starts[i], others[i], lengths[i]
            if (
                inplace and along_y
            ):  # LLVM vectorizes loops over arrays that do not overlap, or that it knows to be the same
                for j in range(length):
                    out[to + j] = _of_two(function, out[to + j], y[b + j])
            elif inplace:
                number = y[b]
                for j in range(length):
                    out[to + j] = _of_two(function, out[to + j], number)
            elif along_x and along_y:
                for j in range(length):
                    out[to + j] = _of_two(function, x[a + j], y[b + j])
            elif along_x:
                number = y[b]
                for j in range(length):
                    out[to + j] = _of_two(function, x[a + j], number)
            else:
                number = x[a]
                for j in range(length):
                    out[to + j] = _of_two(function, number, y[b + j])

    return loop


_LOOPS = {(ufunc, inplace): _loop(i, inplace) for i, ufunc in enumerate(_FUNCTIONS) for inplace in (False, True)}


@functools.lru_cache(256)
def _plan(shape, other):
    """Returns how to compute a result from operands of two shapes in blocks; None if the rows are short.

    A row is the longest range of last axes that an operand has as a whole or not at all. A block is a row or a part of a long one.

    Returns:
        The shape of the result; for each block, where it begins, its length, and where it begins in both operands; for both operands, True
        if they change along a row.
    """
    out = np.broadcast_shapes(shape, other)
    shapes = [(1,) * (len(out) - len(s)) + s for s in (shape, other)]
    rows, along = len(out), None
    for axis in reversed(range(len(out))):
        if out[axis] > 1:
            kinds = tuple(s[axis] > 1 for s in shapes)
            if along is not None and kinds != along:
                break
            along = kinds
        rows = axis
    columns = math.prod(out[rows:])
    if along is None or math.prod(out) == 0 or columns < _SHORT:
        return None
    steps = np.arange(0, columns, _BLOCK)
    begins = np.add.outer(np.arange(0, math.prod(out), columns), steps)
    lengths = np.minimum(columns - steps, _BLOCK) + np.zeros_like(begins)
    starts = []
    for s, changes in zip(shapes, along, strict=True):
        first, step = np.zeros(out[:rows], np.int64), math.prod(s[rows:])
        for axis in reversed(range(rows)):
            if s[axis] > 1:
                first += (np.arange(s[axis]) * step).reshape(-1, *(1,) * (rows - 1 - axis))
                step *= s[axis]
        starts.append(np.add.outer(first.reshape(-1), steps * changes))
    # Unsigned numbers: an index that can be negative prevents vectorization.
    return out, *(a.reshape(-1).astype(np.uint64) for a in (begins, lengths, *starts)), along


def _own(a):
    """Returns an array without the repetitions of an expanded one."""
    return a if a.flags.c_contiguous else a[tuple([slice(None if step else 1) for step in a.strides])]


def accepts(x, y, out=None, *, function):
    """Accepts floats of one dtype, contiguous before they are expanded, and rows that are not short.

    For operands of one shape, and for numbers, it accepts what several threads can divide.
    """
    if function not in _FUNCTIONS or x.dtype is not y.dtype or x.dtype not in _FLOATS:
        return False
    if threads.get_num_threads() == 1 and (x.shape == y.shape or y.size == 1) and 0 not in (*x.strides, *y.strides):
        return False
    x, y = _own(x), _own(y)
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return False
    plan = _plan(x.shape, y.shape)
    if out is not None and (not out.flags.c_contiguous or out.dtype is not x.dtype or (plan and plan[0] != out.shape)):
        return False
    return plan is not None


def forward(xp, x, y, out=None, *, function):
    """Returns function(x, y), in `out` if it is given."""
    x, y = _own(x), _own(y)
    shape, *blocks, along = _plan(x.shape, y.shape)
    out, inplace = (np.empty(shape, x.dtype), False) if out is None else (out, out is x)
    threads.split(_LOOPS[function, inplace], out.size, blocks, *(a.reshape(-1) for a in (out, x, y)), *along)
    return out
