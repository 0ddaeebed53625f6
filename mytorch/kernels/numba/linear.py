"""A linear layer applied to one row or a few rows, as in text generation: the weight is read once, in memory order.

The hardware prefetcher predicts this order, so the product takes no longer than reading the weight. BLAS works on several rows of the
weight at a time, which saves loads of x, but takes 1.6 times as long.
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
    """out[to] = weight[row] · x for rows of `size` floats, a multiple of LANES."""

    def generate(context, b, signature, values):
        weight, row, size, x, out, to = _pointers(context, b, signature, values)
        # Four accumulators hide the latency of the multiply-add: each waits only for itself.
        line, sums = b.gep(weight, [b.mul(row, size)]), _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * 4)

        def add(at, slot):
            _multiply_add(b, slot, _load(b, line, at, _VECTOR), _load(b, x, at, _VECTOR))

        fours = b.udiv(size, _int(4 * LANES))
        with cgutils.for_range(b, fours, intp=_LONG) as four:
            for i, slot in enumerate(sums):
                add(b.add(b.mul(four.index, _int(4 * LANES)), _int(i * LANES)), slot)
        # The remaining vectors, fewer than four.
        with cgutils.for_range_slice(b, b.mul(fours, _int(4 * LANES)), size, _int(LANES), intp=_LONG) as (at, _):
            add(at, sums[0])
        # Sum the four accumulators, then the lanes.
        one, two, three, four = [b.load(slot) for slot in sums]
        total = _totals(b, [b.fadd(b.fadd(one, two), b.fadd(three, four))])
        b.store(b.extract_element(total, ir.Constant(_INT, 0)), b.gep(out, [to]))
        return context.get_dummy_value()

    floats = types.Array(types.float32, 1, "C")
    return types.void(floats, types.int64, types.int64, floats, floats, types.int64), generate


@kernel
def _dots(weight, out, x):
    """Computes out (outputs, rows) = weight @ xᵀ. A row of the weight stays in the cache for all rows of x."""
    weights, results = weight.reshape(-1), out.reshape(-1)
    for i in range(len(weight)):
        for r in range(len(x)):
            _dot(weights, i, weight.shape[1], x[r], results, i * len(x) + r)


def accepts(weight, rows):
    """Accepts float32 rows whose width is a multiple of LANES, and a contiguous weight."""
    return rows.shape[1] % LANES == 0 and is_float32(weight, rows) and weight.flags.c_contiguous


def forward(xp, weight, rows):
    """Returns rows @ weightᵀ."""
    out = np.empty((len(weight), len(rows)), np.float32)
    split(_dots, weight.size, (weight, out), np.ascontiguousarray(rows))
    # The kernel writes (outputs, rows), so that the threads divide the outputs. One row needs no transposition.
    return out.reshape(1, -1) if len(rows) == 1 else np.ascontiguousarray(out.T)
