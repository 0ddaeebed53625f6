"""A linear layer of one row or a few, as in making text: the weight is read from its first number to its last.

That is the order which a processor foresees, so it takes no longer than reading does. Several rows of the weight at a time, as in
BLAS, spare loads of x, and take 1.6 times as long.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import is_float32, kernel
from .tiles import _INT, _LONG, _VECTOR, LANES, _int, _load, _multiply_add, _pointers, _tile, _totals


@intrinsic
def _dot(typing, weight, row, size, x, out, to):
    """out[to] = weight[row] · x, of `size` floats, by four sums that don't wait for each other."""

    def generate(context, b, signature, values):
        weight, row, size, x, out, to = _pointers(context, b, signature, values)
        line, sums = b.gep(weight, [b.mul(row, size)]), _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * 4)

        def add(at, slot):
            _multiply_add(b, slot, _load(b, line, at, _VECTOR), _load(b, x, at, _VECTOR))

        fours = b.udiv(size, _int(4 * LANES))
        with cgutils.for_range(b, fours, intp=_LONG) as four:
            for i, slot in enumerate(sums):
                add(b.add(b.mul(four.index, _int(4 * LANES)), _int(i * LANES)), slot)
        with cgutils.for_range_slice(b, b.mul(fours, _int(4 * LANES)), size, _int(LANES), intp=_LONG) as (at, _):
            add(at, sums[0])
        one, two, three, four = [b.load(slot) for slot in sums]
        total = _totals(b, [b.fadd(b.fadd(one, two), b.fadd(three, four))])
        b.store(b.extract_element(total, ir.Constant(_INT, 0)), b.gep(out, [to]))
        return context.get_dummy_value()

    floats = types.Array(types.float32, 1, "C")
    return types.void(floats, types.int64, types.int64, floats, floats, types.int64), generate


@kernel
def _dots(weight, out, x):
    weights, results = weight.reshape(-1), out.reshape(-1)
    for i in range(len(weight)):
        for r in range(len(x)):
            _dot(weights, i, weight.shape[1], x[r], results, i * len(x) + r)


def accepts(weight, rows):
    """A few rows of float32, in whole vectors, and a weight that lies row by row."""
    return rows.shape[1] % LANES == 0 and is_float32(weight, rows) and weight.flags.c_contiguous


def forward(xp, weight, rows):
    """rows @ weightᵀ."""
    out = np.empty((len(weight), len(rows)), np.float32)
    split(_dots, weight.size, (weight, out), np.ascontiguousarray(rows))
    return out.reshape(1, -1) if len(rows) == 1 else np.ascontiguousarray(out.T)
