"""A product of one row, or a few, with a weight of 8 or 4 bits: it reads a quarter or an eighth of float32's bytes, and that is what it costs.

The loop over a row of the weight is LLVM IR, as in tiles.py: a vector of bytes becomes whole numbers, then floats, which are
multiplied with x and added up in a register; a group's sum is scaled as it is, lane by lane, and only a row's is summed over the
lanes. Four rows of the weight share the loads of x.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import is_float32, kernel
from .tiles import _INT, _LONG, _VECTOR, LANES, _int, _load, _multiply_add, _pointers, _spread, _tile, _totals

ROWS = 4  # above, BLAS is quicker on the weight as floats
_BYTES, _WIDE = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(_INT, LANES)


def _shift(by):
    return ir.Constant(_WIDE, [by] * LANES)


def _looked_up(b, codes):
    """The lowest four bits of whole numbers as floats from -8 to 7."""
    if LANES < 16:
        return b.sitofp(b.ashr(b.shl(codes, _shift(28)), _shift(28)), _VECTOR)
    table = ir.Constant(_VECTOR, [float(i - 16 * (i > 7)) for i in range(16)])  # one instruction instead of three
    look = ir.FunctionType(_VECTOR, [_VECTOR, _WIDE])
    return b.call(cgutils.get_or_insert_function(b.module, look, "llvm.x86.avx512.permvar.sf.512"), [table, codes])


def _dots(bits, rows):
    """The intrinsic: out[to + r · step] = the sum over groups of scale · (codes · x), for some rows of the weight.

    Its arguments: weight and scale begin at row `first`, and have so many bytes and floats in a row; vectors: of bytes in a group.
    """

    def generate(context, b, signature, values):
        weight, scale, first, size, groups, vectors, x, out, to, step = _pointers(context, b, signature, values)
        zero, half = ir.Constant(_VECTOR, [0.0] * LANES), b.mul(vectors, _int(LANES))
        lines = [b.add(first, _int(r)) for r in range(rows)]
        codes_of, scales_of = [b.mul(line, size) for line in lines], [b.mul(line, groups) for line in lines]
        totals, sums = _tile(b, [zero] * rows), _tile(b, [zero] * rows)
        with cgutils.for_range(b, groups, intp=_LONG) as group:
            start = b.mul(group.index, half)
            with cgutils.for_range(b, vectors, intp=_LONG) as vector:
                byte = b.add(start, b.mul(vector.index, _int(LANES)))
                low = byte if bits == 8 else b.add(byte, start)  # groups of x are twice as long
                below = _load(b, x, low, _VECTOR)
                above = None if bits == 8 else _load(b, x, b.add(low, half), _VECTOR)
                for r in range(rows):
                    address = b.gep(weight, [b.add(codes_of[r], byte)])
                    codes = b.sext(b.load(b.bitcast(address, _BYTES.as_pointer()), align=1), _WIDE)
                    if bits == 4:
                        _multiply_add(b, sums[r], _looked_up(b, b.lshr(codes, _shift(4))), above)
                        _multiply_add(b, sums[r], _looked_up(b, codes), below)
                    else:
                        _multiply_add(b, sums[r], b.sitofp(codes, _VECTOR), below)
            for r in range(rows):
                factor = _load(b, scale, b.add(scales_of[r], group.index))
                _multiply_add(b, totals[r], b.load(sums[r]), _spread(b, factor))
                b.store(zero, sums[r])
        total = _totals(b, [b.load(slot) for slot in totals])
        for r in range(rows):
            place = b.add(to, b.mul(step, _int(r)))
            b.store(b.extract_element(total, ir.Constant(_INT, r)), b.gep(out, [place]))
        return context.get_dummy_value()

    @intrinsic
    def dots(typing, weight, scale, first, size, groups, vectors, x, out, to, step):
        floats, count = types.Array(types.float32, 1, "C"), types.int64
        codes = types.Array(types.int8, 1, "C")
        return types.void(codes, floats, count, count, count, count, floats, floats, count, count), generate

    return dots


_four8, _one8, _four4, _one4 = _dots(8, 4), _dots(8, 1), _dots(4, 4), _dots(4, 1)


@kernel
def _rows8(weight, scale, out, x):
    n, k = weight.shape
    vectors, codes, flat = k // LANES, weight.reshape(-1), out.reshape(-1)
    for r in range(len(x)):
        for q in range(n // 4):
            _four8(codes, scale, 4 * q, k, 1, vectors, x[r], flat, 4 * q * len(x) + r, len(x))
        for i in range(n - n % 4, n):
            _one8(codes, scale, i, k, 1, vectors, x[r], flat, i * len(x) + r, 1)
        if vectors * LANES < k:
            for i in range(n):
                rest = np.float32(0)
                for j in range(vectors * LANES, k):
                    rest += x[r, j] * np.float32(weight[i, j])
                out[i, r] += rest * scale[i]


@kernel
def _rows4(weight, scale, out, x):
    n, size = weight.shape
    groups = scale.shape[1]
    vectors, codes, scales, flat = size // groups // LANES, weight.reshape(-1), scale.reshape(-1), out.reshape(-1)
    for r in range(len(x)):
        for q in range(n // 4):
            _four4(codes, scales, 4 * q, size, groups, vectors, x[r], flat, 4 * q * len(x) + r, len(x))
        for i in range(n - n % 4, n):
            _one4(codes, scales, i, size, groups, vectors, x[r], flat, i * len(x) + r, 1)


def accepts(input, *, weight, scale, offset, group_size):
    """float32 in memory that is contiguous where the loop runs; something to sum; halves of groups that fill vectors."""
    whole = group_size is None or group_size % (2 * LANES) == 0
    return whole and is_float32(input, scale, offset) and input.size > 0 and weight.flags.c_contiguous


def pays(input, *, weight, scale, offset, group_size):
    """For a few rows, as in making text."""
    return input.size <= ROWS * input.shape[-1]


def forward(xp, input, *, weight, scale, offset, group_size):
    """input @ weightᵀ."""
    x = np.ascontiguousarray(input).reshape(-1, input.shape[-1])
    if group_size is not None and (missing := scale.shape[1] * group_size - x.shape[1]):
        x = np.pad(x, ((0, 0), (0, missing)))
    out = np.empty((len(weight), len(x)), np.float32)
    loop = _rows8 if group_size is None else _rows4
    split(loop, out.shape[0] * x.shape[1], (weight.view(np.int8), np.ascontiguousarray(scale), out), x)
    if offset is not None:
        out += offset @ x.reshape(len(x), -1, group_size).sum(2).T
    return np.ascontiguousarray(out.T).reshape(*input.shape[:-1], len(weight))
