"""Products of bfloat16 matrices by the instruction for them, vdpbf16ps: 16 sums of two products each, in float32.

b is packed once: blocks of 48 columns, in which the two numbers of a pair of rows lie side by side, as the instruction wants
them. A tile of 8 rows by 48 columns stays in 24 registers over the whole inner axis; then it is rounded to bfloat16.
"""

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import kernel
from .tiles import _features, _int, _pointers

_ROWS, _VECTORS, _WIDTH = 8, 3, 48
_PAIRS, _SUMS = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.FloatType(), 16)
_words, _floats = types.Array(types.uint32, 1, "C"), types.Array(types.float32, 1, "C")

TAKES = "bfloat16 matrices on a processor with AVX512-BF16"
_HERE = bool(_features().get("avx512bf16"))
if _HERE:
    binding.initialize_native_asmparser()


@intrinsic
def _tile(typing, a, a_start, row_step, packed, b_start, pairs, out):
    """out (8 * 48) = rows of a times a block of packed columns, over `pairs` pairs of inner elements."""

    def generate(context, b, signature, values):
        a, a_start, row_step, packed, b_start, pairs, out = _pointers(context, b, signature, values)
        dot = ir.FunctionType(_SUMS, [_SUMS, _PAIRS, _PAIRS])
        sums = [cgutils.alloca_once(b, _SUMS) for _ in range(_ROWS * _VECTORS)]
        for slot in sums:
            b.store(ir.Constant(_SUMS, [0.0] * 16), slot)
        nothing, first = ir.Constant(_PAIRS, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)
        with cgutils.for_range(b, pairs, intp=ir.IntType(64)) as k:
            here = b.add(b_start, b.mul(k.index, _int(_WIDTH)))
            columns = []
            for v in range(_VECTORS):
                at = b.bitcast(b.gep(packed, [b.add(here, _int(16 * v))]), _PAIRS.as_pointer())
                columns.append(b.load(at, align=4))
            for r in range(_ROWS):
                one = b.load(b.gep(a, [b.add(b.add(a_start, b.mul(row_step, _int(r))), k.index)]))
                row = b.shuffle_vector(b.insert_element(nothing, one, ir.Constant(ir.IntType(32), 0)), nothing, first)
                for slot, column in zip(sums[r * _VECTORS : (r + 1) * _VECTORS], columns, strict=True):
                    b.store(b.asm(dot, "vdpbf16ps $3, $2, $0", "=v,0,v,v", [b.load(slot), row, column], False), slot)
        for n, slot in enumerate(sums):
            b.store(b.load(slot), b.bitcast(b.gep(out, [_int(16 * n)]), _SUMS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(_words, types.int64, types.int64, _words, types.int64, types.int64, _floats), generate


@kernel
def _pack_rows(b, out):
    """out[j, p, i] = b[2 p, 48 j + i] and b[2 p + 1, 48 j + i]; b is (K, N)."""
    inner, n = b.shape
    for j in range(out.shape[0]):
        for p in range(inner // 2):
            low, high, to = b[2 * p], b[2 * p + 1], out[j, p]
            for i in range(min(_WIDTH, n - j * _WIDTH)):
                to[i] = np.uint32(low[j * _WIDTH + i]) | np.uint32(high[j * _WIDTH + i]) << np.uint32(16)
        if inner % 2:
            for i in range(min(_WIDTH, n - j * _WIDTH)):
                out[j, inner // 2, i] = b[inner - 1, j * _WIDTH + i]


@kernel
def _pack_columns(pairs, out):
    """The same of b's transposed, (N, K) with even K, seen as pairs."""
    n, inner = pairs.shape
    for j in range(out.shape[0]):
        for p in range(inner):
            for i in range(min(_WIDTH, n - j * _WIDTH)):
                out[j, p, i] = pairs[j * _WIDTH + i, p]


@kernel
def _multiply(a, out, packed, flat):
    panels, rows, inner = a.shape
    n = out.shape[2]
    tile = np.empty(rows * _WIDTH, np.float32)
    bits = tile.view(np.uint32)
    words = a.reshape(-1)
    for j in range(packed.shape[0]):
        width = min(_WIDTH, n - j * _WIDTH)
        for p in range(panels):
            _tile(words, p * rows * inner, inner, flat, j * inner * _WIDTH, inner, tile)
            for r in range(rows):
                to, given = out[p, r, j * _WIDTH : j * _WIDTH + width], bits[r * _WIDTH : r * _WIDTH + width]
                for i in range(width):
                    u = given[i]
                    even = np.uint32((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
                    to[i] = np.uint16(0x7FC0) if (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else even


def accepts(a, b):
    """Stacks of bfloat16 matrices of one number of axes, or one matrix to all."""
    same = a.ndim == b.ndim and a.shape[:-2] == b.shape[:-2]
    return _HERE and a.dtype.name == b.dtype.name == "bfloat16" and a.ndim >= 2 and (same or b.ndim == 2)


def pays(a, b):
    """For products that are large, and high enough to be worth packing."""
    return a.shape[-2] >= 4 and a.shape[-2] * a.shape[-1] * b.shape[-1] >= 1 << 16


def forward(xp, a, b):
    """a @ b, summed in float32 and rounded once."""
    if b.ndim > 2:
        out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
        for place in np.ndindex(*a.shape[:-2]):
            out[place] = _product(xp, a[place], b[place])
        return out
    return _product(xp, a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])


def _product(xp, a, b):
    (m, inner), n = a.shape, b.shape[1]
    pairs, panels, blocks = -(-inner // 2), -(-m // _ROWS), -(-n // _WIDTH)
    if inner % 2 or m % _ROWS:
        rows = np.zeros((panels * _ROWS, 2 * pairs), np.uint16)
        rows[:m, :inner] = a.view(np.uint16)
    else:
        rows = xp.ascontiguousarray(a).view(np.uint16)
    b, packed = b.view(np.uint16), np.zeros((blocks, pairs, _WIDTH), np.uint32)
    if b.T.flags.c_contiguous and not inner % 2:
        _pack_columns(b.T.view(np.uint32), packed)
    else:
        _pack_rows(np.ascontiguousarray(b), packed)
    out = np.empty((panels, _ROWS, n), np.uint16)
    split(
        _multiply, m * n * inner, (rows.view(np.uint32).reshape(panels, _ROWS, pairs), out), packed, packed.reshape(-1)
    )
    return out.reshape(-1, n)[:m].view(a.dtype)
