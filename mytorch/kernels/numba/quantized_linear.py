"""Matrix products with an 8-bit or 4-bit weight. A single row is limited by memory bandwidth, and reads 1/4 or 1/8 of float32's bytes.

* A few rows of x: the loop over one row of the weight is LLVM IR, as in `tiles.py`. A vector of bytes is converted to integers and
  then to floats, which are multiplied with x and added in registers. The sum of a group is scaled lane by lane. Only the sum
  of a row is summed over the lanes. The weight is read in memory order, which the hardware prefetcher predicts (see `linear.py`).
* Many rows of x: blocks of weight rows are converted to float32 in the second-level cache, and BLAS multiplies each with all of x.

On a processor with AVX2 or VNNI instructions, `fixed_point.py` multiplies 4-bit weights; without VNNI, only with a few rows of x.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .. import blas
from ..threads import chunks_for, split
from . import fixed_point
from .cast import bits_of_halves, floats
from .common import is_float32, kernel
from .tiles import (
    _INT,
    _LONG,
    _VECTOR,
    LANES,
    _int,
    _load,
    _load_scales,
    _multiply_add,
    _pointers,
    _spread,
    _tile,
    _totals,
)

ROWS = 8  # above this number of rows, converting the weight and calling BLAS is faster
TILE = 1 << 20  # float32 elements of the weight that are converted at a time
_BYTES, _WIDE = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(_INT, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_floats, _codes, _count = types.Array(types.float32, 1, "C"), types.Array(types.int8, 1, "C"), types.int64


def _shift(by):
    return ir.Constant(_WIDE, [by] * LANES)


def _read(b, line, at):
    """Loads LANES bytes and sign-extends them to 32-bit integers."""
    return b.sext(b.load(b.bitcast(b.gep(line, [at]), _BYTES.as_pointer()), align=1), _WIDE)


def _looked_up(b, codes):
    """Converts the lowest four bits of each integer, in two's complement, to a float from -8 to 7."""
    if LANES < 16:
        # Sign-extend the four bits: shift them to the top, then arithmetically back.
        return b.sitofp(b.ashr(b.shl(codes, _shift(28)), _shift(28)), _VECTOR)
    # AVX-512: the 16 possible values are one register. A permutation looks them up in one instruction instead of three.
    table = ir.Constant(_VECTOR, [float(i - 16 * (i > 7)) for i in range(16)])
    look = ir.FunctionType(_VECTOR, [_VECTOR, _WIDE])
    return b.call(cgutils.get_or_insert_function(b.module, look, "llvm.x86.avx512.permvar.sf.512"), [table, codes])


def _sum(b, slots):
    """Returns the sum of all lanes of all accumulators."""
    total = b.load(slots[0])
    for slot in slots[1:]:
        total = b.fadd(total, b.load(slot))
    return b.extract_element(_totals(b, [total]), ir.Constant(_INT, 0))


@intrinsic
def _dot8(typing, weight, scale, row, size, x, out, to):
    """out[to] = scale[row] * (weight[row] · x), over the whole vectors of a row of `size` bytes."""

    def generate(context, b, signature, values):
        weight, scale, row, size, x, out, to = _pointers(context, b, signature, values)
        line, sums = b.gep(weight, [b.mul(row, size)]), _tile(b, [_ZERO] * 4)

        def add(at, slot):
            _multiply_add(b, slot, b.sitofp(_read(b, line, at), _VECTOR), _load(b, x, at, _VECTOR))

        # Four accumulators, since consecutive multiply-adds into one would wait for each other's latency.
        vectors = b.udiv(size, _int(LANES))
        fours = b.udiv(vectors, _int(4))
        with cgutils.for_range(b, fours, intp=_LONG) as four:
            for i, slot in enumerate(sums):
                add(b.add(b.mul(four.index, _int(4 * LANES)), _int(i * LANES)), slot)
        # The remaining vectors, fewer than four.
        with cgutils.for_range_slice(b, b.mul(fours, _int(4)), vectors, _int(1), intp=_LONG) as (vector, _):
            add(b.mul(vector, _int(LANES)), sums[0])
        b.store(b.fmul(_sum(b, sums), _load(b, scale, row)), b.gep(out, [to]))
        return context.get_dummy_value()

    return types.void(_codes, _floats, _count, _count, _floats, _floats, _count), generate


def _dot4(known):
    """Returns the intrinsic: out[to] = sum over groups of scale * (codes · x), for one row of the weight.

    Its argument `vectors` is the number of byte vectors of a group. `known` is the same number as a constant, or None.
    """

    def generate(context, b, signature, values):
        weight, scale, row, groups, vectors, x, out, to = _pointers(context, b, signature, values)
        # A byte has two codes: its low bits are element j of the group, its high bits element j + half.
        half = b.mul(vectors, _int(LANES)) if known is None else _int(known * LANES)
        line, factors = b.gep(weight, [b.mul(row, b.mul(groups, half))]), b.gep(scale, [b.mul(row, groups)])
        total, low, high = _tile(b, [_ZERO] * 3)
        with cgutils.for_range(b, groups, intp=_LONG) as group:
            start = b.mul(group.index, half)
            b.store(_ZERO, low)
            b.store(_ZERO, high)

            def add(at):
                byte = b.add(start, at)
                # A group of x has two elements per byte, so group g begins at twice the byte offset.
                codes, x_low = _read(b, line, byte), b.add(byte, start)
                _multiply_add(b, low, _looked_up(b, codes), _load(b, x, x_low, _VECTOR))
                x_high = _load(b, x, b.add(x_low, half), _VECTOR)
                _multiply_add(b, high, _looked_up(b, b.lshr(codes, _shift(4))), x_high)

            # A constant number of vectors lets LLVM unroll the loop.
            if known is None:
                with cgutils.for_range(b, vectors, intp=_LONG) as vector:
                    add(b.mul(vector.index, _int(LANES)))
            for vector in range(known or 0):
                add(_int(vector * LANES))
            # total += scale * (sum of the group), lane by lane.
            factor = _spread(b, _load_scales(b, factors, group.index))
            _multiply_add(b, total, b.fadd(b.load(low), b.load(high)), factor)
        b.store(_sum(b, [total]), b.gep(out, [to]))
        return context.get_dummy_value()

    @intrinsic
    def dot(typing, weight, scale, row, groups, vectors, x, out, to):
        return types.void(_codes, scale, *[_count] * 3, _floats, _floats, _count), generate

    return dot


_of_one, _of_two, _of_four, _of_any = [_dot4(known) for known in (1, 2, 4, None)]


@kernel
def _rows8(weight, scale, out, x):
    """Computes out (n, rows of x) = weight @ xᵀ for 8-bit codes with one scale per row."""
    n, k = weight.shape
    codes, flat = weight.reshape(-1), out.reshape(-1)
    for i in range(n):
        for r in range(len(x)):
            _dot8(codes, scale, i, k, x[r], flat, i * len(x) + r)
            # Elements after the last whole vector.
            for j in range(k - k % LANES, k):
                out[i, r] += x[r, j] * np.float32(weight[i, j]) * scale[i]


@kernel
def _rows4(weight, scale, out, x):
    """Computes out (n, rows of x) = weight @ xᵀ for 4-bit codes with one scale per group."""
    n, size = weight.shape
    groups = scale.shape[1]
    vectors, codes, scales, flat = size // groups // LANES, weight.reshape(-1), scale.reshape(-1), out.reshape(-1)
    for i in range(n):
        for r in range(len(x)):
            to = i * len(x) + r
            if vectors == 1:
                _of_one(codes, scales, i, groups, vectors, x[r], flat, to)
            elif vectors == 2:
                _of_two(codes, scales, i, groups, vectors, x[r], flat, to)
            elif vectors == 4:
                _of_four(codes, scales, i, groups, vectors, x[r], flat, to)
            else:
                _of_any(codes, scales, i, groups, vectors, x[r], flat, to)


@kernel
def _floats8(weight, scale, out):
    """Converts 8-bit codes to float32: code * scale of the row."""
    for i in range(len(weight)):
        for j in range(weight.shape[1]):
            out[i, j] = np.float32(weight[i, j]) * scale[i]


@kernel
def _floats4(weight, scale, offset, out):
    """Converts bytes (rows, groups, half) to float32 (rows, groups, 2, half): code * scale + offset."""
    n, groups, half = weight.shape
    for i in range(n):
        for q in range(groups):
            factor, bias = scale[i, q], offset[i, q]
            for j in range(half):
                # Low four bits: shift them to the top of the byte and back, which extends the sign.
                out[i, q, 0, j] = np.float32(np.int8(weight[i, q, j] << 4) >> 4) * factor + bias
            for j in range(half):
                # High four bits: an arithmetic shift of the signed byte.
                out[i, q, 1, j] = np.float32(weight[i, q, j] >> 4) * factor + bias


def _many(weight, scale, offset, out, x, group_size):
    """Computes out = weight @ xᵀ in blocks of weight rows, which are converted to float32 first."""
    width = x.shape[1] if group_size is None else scale.shape[1] * group_size
    step = max(16, TILE // width)
    tile = np.empty((min(step, len(weight)), width), np.float32)
    for i in range(0, len(weight), step):
        codes, floats = weight[i : i + step], tile[: len(weight) - i]
        if group_size is None:
            _floats8(codes, scale[i : i + step], floats)
        else:
            shape = *scale[i : i + step].shape, group_size // 2
            _floats4(codes.reshape(shape), scale[i : i + step], offset[i : i + step], floats.reshape(*shape[:2], 2, -1))
        a, b, to = floats[:, : x.shape[1]], x.T, out[i : i + step]
        # Write the product in the memory order of `out`: (A B)ᵀ = Bᵀ Aᵀ.
        np.matmul(*((b.T, a.T, to.T) if out.strides[0] < out.strides[1] else (a, b, to)))


def accepts(input, *, weights, scales, offsets, group_size):
    """Accepts a float32 input that is not empty, contiguous weights, and scales in float32 or float16."""
    contiguous = all(weight.flags.c_contiguous for weight in weights)
    wide = scales if group_size is None else [scale for scale in scales if scale.dtype != np.float16]
    return contiguous and input.size > 0 and is_float32(input, *wide, *offsets)


def forward(xp, input, *, weights, scales, offsets, group_size):
    """Returns input @ weightᵀ for each weight."""
    x = np.ascontiguousarray(input).reshape(-1, input.shape[-1])
    scales = [bits_of_halves(np.ascontiguousarray(scale)) for scale in scales]
    weights = [weight.view(np.int8) for weight in weights]
    integers = group_size is not None and group_size % 32 == 0 and fixed_point.AVAILABLE and len(x) <= fixed_point.MOST
    # A few rows: (outputs, rows), in the order in which the loops write. Many rows: the memory order of the result.
    if len(x) <= (fixed_point.FEW if integers else blas.FEW):
        outs = [np.empty((len(weight), len(x)), np.float32) for weight in weights]
    else:
        outs = [np.empty((len(x), len(weight)), np.float32).T for weight in weights]
    # The LLVM loops read half groups in whole vectors. The last group of the weight is padded to a whole group, so they need x
    # padded with zeros.
    padded = x
    if group_size is not None and (padding := scales[0].shape[1] * group_size - x.shape[1]):
        padded = np.pad(x, ((0, 0), (0, padding)))
    integers = integers and fixed_point.products(weights, scales, outs, padded, group_size)
    for weight, scale, offset, out in zip(weights, scales, offsets, outs, strict=True):
        multiplied = integers or _multiply_few(weight, scale, out, padded, group_size)
        if not multiplied:
            scale = floats(scale)
            every = np.zeros_like(scale) if offset is None else np.ascontiguousarray(offset)
            bounds = blas.bounds(len(weight), min(chunks_for(weight.size), len(weight)))
            calls = [tuple([a[i:j] for a in (weight, scale, every, out)]) for i, j in bounds]
            blas.run(_many, [(*arrays, x, group_size) for arrays in calls])
        elif offset is not None:
            # Each group's offset is multiplied with the sum of its x: sum (code * scale + offset) * x.
            out += offset @ padded.reshape(len(x), -1, group_size).sum(2).T
    return [np.ascontiguousarray(out.T).reshape(*input.shape[:-1], len(out)) for out in outs]


def _multiply_few(weight, scale, out, x, group_size):
    """Computes out = weight @ xᵀ for a few rows of x. Returns False for more rows or other sizes of groups."""
    fits = len(x) <= ROWS and (group_size is None or group_size % (2 * LANES) == 0)
    if fits:
        split(_rows8 if group_size is None else _rows4, out.shape[0] * x.shape[1], (weight, scale, out), x)
    return fits
