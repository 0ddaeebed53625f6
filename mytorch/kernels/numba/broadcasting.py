"""Sum, difference, product and quotient of arrays that broadcast: float32 and float64, with the same bits as NumPy's.

NumPy takes twice the time for a row or a column of numbers, and five times for an outer product.
"""

import functools
import math

import numpy as np

from ..threads import split
from .common import exact, exact_inlined

LEAST = 0  # an outer product has small operands
_SHORT = 16  # numbers in a row from which a loop over rows pays
_FLOATS = np.dtype(np.float32), np.dtype(np.float64)
_FUNCTIONS = np.add, np.subtract, np.multiply, np.true_divide


@exact_inlined
def _of_two(function, a, b):
    if function == 0:
        return a + b
    if function == 1:
        return a - b
    return a * b if function == 2 else a / b


def _loop(function):
    # The closure is a number: Numba does not find a compiled function again whose closure is one.
    @exact
    def loop(out, starts, others, x, y, along_x, along_y):
        columns = out.shape[1]
        for i in range(len(out)):
            to, a, b = out[i], x[starts[i] :], y[others[i] :]
            if along_x and along_y:
                for j in range(columns):
                    to[j] = _of_two(function, a[j], b[j])
            elif along_x:
                number = b[0]
                for j in range(columns):
                    to[j] = _of_two(function, a[j], number)
            else:
                number = a[0]
                for j in range(columns):
                    to[j] = _of_two(function, number, b[j])

    return loop


_LOOPS = {ufunc: _loop(function) for function, ufunc in enumerate(_FUNCTIONS)}


@functools.lru_cache(256)
def _plan(shape, other):
    """Returns the shape of a result, its number of rows, and for both operands (first position of each row, True if it changes along a row).

    A row is the longest range of last axes that an operand has as a whole or not at all. None if the rows are short.
    """
    out = np.broadcast_shapes(shape, other)
    shapes = [(1,) * (len(out) - len(s)) + s for s in (shape, other)]
    if math.prod(out) == 0:
        return None
    rows, along = len(out), None
    for axis in reversed(range(len(out))):
        if out[axis] > 1:
            kinds = tuple(s[axis] > 1 for s in shapes)
            if along is not None and kinds != along:
                break
            along = kinds
        rows = axis
    if along is None or math.prod(out[rows:]) < _SHORT:
        return None
    plans = []
    for s, changes in zip(shapes, along, strict=True):
        starts, step = np.zeros(out[:rows], np.int64), math.prod(s[rows:])
        for axis in reversed(range(rows)):
            if s[axis] > 1:
                starts += (np.arange(s[axis]) * step).reshape(-1, *(1,) * (rows - 1 - axis))
                step *= s[axis]
        plans.append((starts.reshape(-1), changes))
    return out, math.prod(out[:rows]), *plans


def _own(a):
    """Returns an array without the repetitions of an expanded one."""
    return a if a.flags.c_contiguous else a[tuple([slice(None if step else 1) for step in a.strides])]


def accepts(x, y, *, function):
    """Accepts floats of one dtype, contiguous before they are expanded, and rows that are not short."""
    if function not in _LOOPS or x.dtype is not y.dtype or x.dtype not in _FLOATS:
        return False
    x, y = _own(x), _own(y)
    return x.flags.c_contiguous and y.flags.c_contiguous and _plan(x.shape, y.shape) is not None


def forward(xp, x, y, *, function):
    """Returns function(x, y)."""
    x, y = _own(x), _own(y)
    shape, rows, (starts, along_x), (others, along_y) = _plan(x.shape, y.shape)
    out = np.empty((rows, math.prod(shape) // rows), x.dtype)
    split(_LOOPS[function], out.size, (out, starts, others), x.reshape(-1), y.reshape(-1), along_x, along_y)
    return out.reshape(shape)
