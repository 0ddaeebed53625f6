"""Matrix products in bfloat16 with the AVX512-BF16 instruction vdpbf16ps: 16 float32 sums of two bfloat16 products each.

The matrix b is packed once into blocks of 48 columns. In a block, the two numbers of a pair of rows are adjacent, as the
instruction requires. A tile of 8 rows by 48 columns stays in 24 registers over the whole inner axis, and is then rounded to bfloat16.
"""

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import kernel
from .tiles import _features, _int, _pointers

# The tile: 8 rows by 3 vectors of 16 columns. 24 accumulators, 3 columns and 1 row fit into the 32 registers of AVX-512.
_ROWS, _VECTORS, _WIDTH = 8, 3, 48
# A 32-bit word holds a pair of bfloat16 numbers: two neighbors along the inner axis.
_PAIRS, _SUMS = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.FloatType(), 16)
_words, _floats = types.Array(types.uint32, 1, "C"), types.Array(types.float32, 1, "C")

TAKES = "bfloat16 matrices on a processor with AVX512-BF16"
_HERE = bool(_features().get("avx512bf16"))
if _HERE:
    # The instruction is written as inline assembly, which needs LLVM's assembly parser.
    binding.initialize_native_asmparser()


@intrinsic
def _tile(typing, a, a_start, row_step, packed, b_start, pairs, out):
    """Computes out (8 * 48): 8 rows of a times a block of packed columns, over `pairs` pairs of inner elements."""

    def generate(context, b, signature, values):
        a, a_start, row_step, packed, b_start, pairs, out = _pointers(context, b, signature, values)
        dot = ir.FunctionType(_SUMS, [_SUMS, _PAIRS, _PAIRS])
        # Accumulators in float32, which LLVM keeps in registers.
        sums = [cgutils.alloca_once(b, _SUMS) for _ in range(_ROWS * _VECTORS)]
        for slot in sums:
            b.store(ir.Constant(_SUMS, [0.0] * 16), slot)
        undefined, first = ir.Constant(_PAIRS, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)
        with cgutils.for_range(b, pairs, intp=ir.IntType(64)) as k:
            position = b.add(b_start, b.mul(k.index, _int(_WIDTH)))
            # Load 48 packed columns once, for all 8 rows.
            columns = []
            for v in range(_VECTORS):
                pointer = b.bitcast(b.gep(packed, [b.add(position, _int(16 * v))]), _PAIRS.as_pointer())
                columns.append(b.load(pointer, align=4))
            for r in range(_ROWS):
                # Broadcast one pair of row r to all lanes. Lane i adds a[r, 2k] * b[2k, i] + a[r, 2k + 1] * b[2k + 1, i].
                one = b.load(b.gep(a, [b.add(b.add(a_start, b.mul(row_step, _int(r))), k.index)]))
                row = b.shuffle_vector(
                    b.insert_element(undefined, one, ir.Constant(ir.IntType(32), 0)), undefined, first
                )
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
                # The row with the even index is the low half of the word.
                to[i] = np.uint32(low[j * _WIDTH + i]) | np.uint32(high[j * _WIDTH + i]) << np.uint32(16)
        # An odd inner axis: the last pair has only a low half, and its high half stays 0.
        if inner % 2:
            for i in range(min(_WIDTH, n - j * _WIDTH)):
                out[j, inner // 2, i] = b[inner - 1, j * _WIDTH + i]


@kernel
def _pack_columns(pairs, out):
    """Packs the transpose of b, (N, K) with even K, viewed as (N, K / 2) pairs: each word is already a pair."""
    n, inner = pairs.shape
    for j in range(out.shape[0]):
        for p in range(inner):
            for i in range(min(_WIDTH, n - j * _WIDTH)):
                out[j, p, i] = pairs[j * _WIDTH + i, p]


@kernel
def _multiply(a, out, packed, flat, bias):
    """Multiplies panels (panels, 8, pairs) of a with the packed columns, and adds the bias. `flat` is `packed` as one axis."""
    panels, rows, inner = a.shape
    n = out.shape[2]
    tile = np.empty(rows * _WIDTH, np.float32)
    bits = tile.view(np.uint32)
    words = a.reshape(-1)
    for j in range(packed.shape[0]):
        width = min(_WIDTH, n - j * _WIDTH)
        # All panels use one block of packed columns, which stays in the cache.
        for p in range(panels):
            _tile(words, p * rows * inner, inner, flat, j * inner * _WIDTH, inner, tile)
            for r in range(rows):
                for i in range(width):
                    tile[r * _WIDTH + i] += bias[j * _WIDTH + i]
                to, source = out[p, r, j * _WIDTH : j * _WIDTH + width], bits[r * _WIDTH : r * _WIDTH + width]
                for i in range(width):
                    u = source[i]
                    # Round to bfloat16, to nearest with ties to even: add 0x7FFF and the last kept bit, truncate.
                    even = np.uint32((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
                    # A NaN could round up to infinity, so NaN becomes the quiet NaN 0x7FC0.
                    to[i] = np.uint16(0x7FC0) if (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else even


def accepts(a, b, bias=None):
    """Accepts stacks of bfloat16 matrices with equal leading axes, or one matrix b for all of a. A bias needs one matrix b."""
    same = a.ndim == b.ndim and a.shape[:-2] == b.shape[:-2]
    if bias is not None and (b.ndim > 2 or bias.shape != b.shape[1:]):
        return False
    return _HERE and a.dtype.name == b.dtype.name == "bfloat16" and a.ndim >= 2 and (same or b.ndim == 2)


def is_faster(a, b, bias=None):
    """Returns True if the product is large enough, and a has enough rows, to outweigh the packing of b."""
    return a.shape[-2] >= 4 and a.shape[-2] * a.shape[-1] * b.shape[-1] >= 1 << 16


def forward(xp, a, b, bias=None):
    """Returns a @ b + bias, summed in float32 and rounded once."""
    if b.ndim > 2:
        out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
        for index in np.ndindex(*a.shape[:-2]):
            out[index] = _product(xp, a[index], b[index])
        return out
    return _product(xp, a.reshape(-1, a.shape[-1]), b, bias).reshape(*a.shape[:-1], b.shape[-1])


def _product(xp, a, b, bias=None):
    (m, inner), n = a.shape, b.shape[1]
    pairs, panels, blocks = -(-inner // 2), -(-m // _ROWS), -(-n // _WIDTH)
    # Pad to whole pairs and whole panels of 8 rows with zeros.
    if inner % 2 or m % _ROWS:
        rows = np.zeros((panels * _ROWS, 2 * pairs), np.uint16)
        rows[:m, :inner] = a.view(np.uint16)
    else:
        rows = xp.ascontiguousarray(a).view(np.uint16)
    b, packed = b.view(np.uint16), np.zeros((blocks, pairs, _WIDTH), np.uint32)
    # A transposed weight, as in a linear layer, already has its pairs next to each other in memory.
    if b.T.flags.c_contiguous and not inner % 2:
        _pack_columns(b.T.view(np.uint32), packed)
    else:
        _pack_rows(np.ascontiguousarray(b), packed)
    out = np.empty((panels, _ROWS, n), np.uint16)
    # x + -0.0 is x for all x, also for x = -0.0.
    added = np.full(n, -0.0, np.float32) if bias is None else bias.astype(np.float32)
    split(
        _multiply,
        m * n * inner,
        (rows.view(np.uint32).reshape(panels, _ROWS, pairs), out),
        packed,
        packed.reshape(-1),
        added,
    )
    return out.reshape(-1, n)[:m].view(a.dtype)
