"""A linear layer of one row, as in making text: eight rows of the weight are read at a time, which keeps memory busier than BLAS does."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import is_float32, kernel
from .tiles import _INT, _LONG, _VECTOR, LANES, _int, _load, _multiply_add, _pointers, _tile, _totals

LEAST_WEIGHTS = 1 << 16  # below, a call costs more than reading them


@intrinsic
def _eight(typing, weight, first, size, x, out):
    """out[first + r] = weight[first + r] · x for eight rows of the weight, `size` floats each."""

    def generate(context, b, signature, values):
        weight, first, size, x, out = _pointers(context, b, signature, values)
        lines = [b.mul(b.add(first, _int(r)), size) for r in range(8)]
        sums = _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * 8)
        with cgutils.for_range(b, b.udiv(size, _int(LANES)), intp=_LONG) as vector:
            at = b.mul(vector.index, _int(LANES))
            some = _load(b, x, at, _VECTOR)
            for r in range(8):
                _multiply_add(b, sums[r], _load(b, weight, b.add(lines[r], at), _VECTOR), some)
        for r in range(8):
            if r % 4 == 0:
                total = _totals(b, [b.load(slot) for slot in sums[r : r + 4]])
            place = b.gep(out, [b.add(first, _int(r))])
            b.store(b.extract_element(total, ir.Constant(_INT, r % 4)), place)
        return context.get_dummy_value()

    floats = types.Array(types.float32, 1, "C")
    return types.void(floats, types.int64, types.int64, floats, floats), generate


@kernel
def _dots(weight, out, x):
    n, k = weight.shape
    flat = weight.reshape(-1)
    for q in range(n // 8):
        _eight(flat, 8 * q, k, x, out)
    for i in range(n - n % 8, n):
        a = np.float32(0)
        for j in range(k):
            a += weight[i, j] * x[j]
        out[i] = a


def accepts(input, weight, bias=None):
    """One row of float32, in whole vectors, and a weight that lies row by row."""
    k = weight.shape[1]
    return input.size == k > 0 == k % LANES and is_float32(input, weight, bias) and weight.flags.c_contiguous


def pays(input, weight, bias=None):
    """For weights that don't lie nearest to the processor."""
    return weight.size >= LEAST_WEIGHTS


def forward(xp, input, weight, bias=None):
    """input @ weightᵀ + bias."""
    out = np.empty(len(weight), np.float32)
    split(_dots, weight.size, (weight, out), np.ascontiguousarray(input).reshape(-1))
    if bias is not None:
        out += bias
    return out.reshape(*input.shape[:-1], len(weight))
