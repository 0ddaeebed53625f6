"""Matrix products in bfloat16 with the processor's instructions for them, which sum products of pairs in float32.

The matrix b is packed once into blocks of columns. In a block, the two numbers of a pair of rows are adjacent, as the
instructions require. A tile of the result stays in registers over the whole inner axis, and is then rounded to bfloat16:

* AVX512-BF16: 8 rows by 48 columns in 24 registers. An instruction computes 16 sums of two products each.
* AMX, about eight times as fast: 32 rows by 32 columns in four of the eight tile registers, which hold 16 rows of 64 bytes. An
  instruction computes 256 sums of 32 products each. Linux gives a process these registers on request.
"""

import ctypes
import math
import platform

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...arrays.dtypes import bfloat16
from ..threads import split
from .common import bits_of_float, inlined, kernel
from .tiles import _features, _int, _pointers

# The tile: 8 rows by 3 vectors of 16 columns. 24 accumulators, 3 columns and 1 row fit into the 32 registers of AVX-512.
_ROWS, _VECTORS, _WIDTH = 8, 3, 48
# A 32-bit word holds a pair of bfloat16 numbers: two neighbors along the inner axis.
_PAIRS, _SUMS = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.FloatType(), 16)
_words, _floats = types.Array(types.uint32, 1, "C"), types.Array(types.float32, 1, "C")

# The tile of AMX, and the pairs of one of its instructions.
_AMX_ROWS, _AMX_WIDTH, _AMX_PAIRS = 32, 32, 16

TAKES = "bfloat16 matrices on a processor with AVX512-BF16"
_HERE = bool(_features().get("avx512bf16"))


def _amx_permitted():
    """Requests the tile registers from Linux. Returns True if the process may use them."""
    if not _features().get("amx-bf16") or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


_AMX = _HERE and _amx_permitted()
# The shape of each tile register, as the instruction ldtilecfg reads it: palette 1, bytes of a row, rows.
_SHAPES = np.zeros(64, np.uint8)
_SHAPES[0], _SHAPES[16:32:2], _SHAPES[48:56] = 1, 64, 16
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


@intrinsic
def _configure(typing, shapes):
    """Sets the shapes of the tile registers."""

    def generate(context, b, signature, values):
        function = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
        b.asm(function, "ldtilecfg ($0)", "r,~{memory}", _pointers(context, b, signature, values), side_effect=True)
        return context.get_dummy_value()

    return types.void(types.Array(types.uint8, 1, "C")), generate


@intrinsic
def _release(typing):
    """Clears the tile registers, so that the system need not save them for this thread."""

    def generate(context, b, signature, values):
        b.asm(ir.FunctionType(ir.VoidType(), []), "tilerelease", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _amx_tile(typing, a, a_start, row_step, packed, b_start, pairs, out):
    """Computes out (32 * 32): 32 rows of a times a block of packed columns, over `pairs` pairs, a multiple of 16."""

    def generate(context, b, signature, values):
        a, a_start, row_step, packed, b_start, pairs, out = _pointers(context, b, signature, values)
        pointer, void = ir.IntType(8).as_pointer(), ir.VoidType()
        a_bytes = b.mul(row_step, _int(4))
        b.asm(
            ir.FunctionType(void, []),
            "\n".join(f"tilezero %tmm{n}" for n in range(4)),
            "~{memory}",
            [],
            side_effect=True,
        )
        with cgutils.for_range(b, b.sdiv(pairs, _int(_AMX_PAIRS)), intp=ir.IntType(64)) as k:
            # Two tiles of a, of 16 rows each, and two tiles of b, of 16 columns each, give four tiles of sums.
            at = b.add(a_start, b.mul(k.index, _int(_AMX_PAIRS)))
            b_at = b.add(b_start, b.mul(k.index, _int(_AMX_PAIRS * _AMX_WIDTH)))
            tiles = [b.gep(a, [b.add(at, b.mul(row_step, _int(r)))]) for r in (0, 16)]
            tiles += [b.gep(packed, [b.add(b_at, _int(c))]) for c in (0, 16)]
            code = [f"tileloadd (${n},${4 if n < 2 else 5},1), %tmm{4 + n}" for n in range(4)]
            code += [f"tdpbf16ps %tmm{6 + n % 2}, %tmm{4 + n // 2}, %tmm{n}" for n in range(4)]
            b.asm(
                ir.FunctionType(void, [pointer] * 4 + [ir.IntType(64)] * 2), "\n".join(code), "r,r,r,r,r,r,~{memory}",
                [*(b.bitcast(tile, pointer) for tile in tiles), a_bytes, _int(4 * _AMX_WIDTH)], side_effect=True,
            )  # fmt: skip
        for n in range(4):
            tile = b.bitcast(b.gep(out, [_int(16 * _AMX_WIDTH * (n // 2) + 16 * (n % 2))]), pointer)
            b.asm(
                ir.FunctionType(void, [pointer, ir.IntType(64)]), f"tilestored %tmm{n}, ($0,$1,1)", "r,r,~{memory}",
                [tile, _int(4 * _AMX_WIDTH)], side_effect=True,
            )  # fmt: skip
        return context.get_dummy_value()

    return types.void(_words, types.int64, types.int64, _words, types.int64, types.int64, _floats), generate


@kernel
def _pack_rows(b, out):
    """out[m, j, p, i] = b[m, 2 p, width j + i] and b[m, 2 p + 1, width j + i]; b is (M, K, N)."""
    inner, n = b.shape[1:]
    width = out.shape[3]
    for m in range(len(b)):
        for j in range(out.shape[1]):
            columns = min(width, n - j * width)
            first, last = j * width, j * width + columns
            for p in range(inner // 2):
                low, high, to = b[m, 2 * p, first:last], b[m, 2 * p + 1, first:last], out[m, j, p]
                for i in range(columns):
                    # The row with the even index is the low half of the word.
                    to[i] = np.uint32(low[i]) | np.uint32(high[i]) << np.uint32(16)
            # An odd inner axis: the last pair has only a low half, and its high half stays 0.
            if inner % 2:
                for i in range(columns):
                    out[m, j, inner // 2, i] = b[m, inner - 1, j * width + i]


@kernel
def _pack_columns(pairs, out):
    """Packs the transpose of b, (M, N, K) with even K, viewed as (M, N, K / 2) pairs: each word is already a pair."""
    n, inner = pairs.shape[1:]
    width = out.shape[3]
    for m in range(len(pairs)):
        for j in range(out.shape[1]):
            for p in range(inner):
                for i in range(min(width, n - j * width)):
                    out[m, j, p, i] = pairs[m, j * width + i, p]


@inlined
def _round_tile(tile, bias, out, column):
    """Adds the bias to a tile of sums, rounds it to bfloat16 and stores it in `out` from a column on."""
    rows, n = out.shape
    step = tile.size // rows
    width = min(step, n - column)
    added = bias[column : column + width]
    for r in range(rows):
        to, sums = out[r, column : column + width], tile[r * step : r * step + width]
        for i in range(width):
            u = np.uint32(bits_of_float(sums[i] + added[i]))
            # Round to bfloat16, to nearest with ties to even: add 0x7FFF and the last kept bit, truncate.
            even = np.uint32((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
            # A NaN could round up to infinity, so NaN becomes the quiet NaN 0x7FC0.
            to[i] = np.uint16(0x7FC0) if (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else even


@kernel
def _multiply(own, a, out, packed, words, flat, bias):
    """Multiplies the panels `own` of a (M, panels, 8, pairs) with the packed columns, and adds the bias.

    `words` and `flat` are `a` and `packed` as one axis.
    """
    panels, rows, inner = a.shape[1:]
    blocks, _, width = packed.shape[1:]
    tile = np.empty(rows * width, np.float32)
    for m in range(own[0] // panels, own[-1] // panels + 1):
        first, last = max(own[0] - m * panels, 0), min(own[-1] - m * panels + 1, panels)
        for j in range(blocks):
            # All panels use one block of packed columns, which stays in the cache.
            for p in range(first, last):
                at, b_at = (m * panels + p) * rows * inner, (m * blocks + j) * inner * width
                _tile(words, at, inner, flat, b_at, inner, tile)
                _round_tile(tile, bias, out[m, p], j * width)


@kernel
def _multiply_amx(own, a, out, packed, words, flat, bias, shapes):
    """Does the same with AMX. `shapes` configures the tile registers."""
    panels, rows, inner = a.shape[1:]
    blocks, _, width = packed.shape[1:]
    tile = np.empty(rows * width, np.float32)
    _configure(shapes)
    for m in range(own[0] // panels, own[-1] // panels + 1):
        first, last = max(own[0] - m * panels, 0), min(own[-1] - m * panels + 1, panels)
        for j in range(blocks):
            for p in range(first, last):
                at, b_at = (m * panels + p) * rows * inner, (m * blocks + j) * inner * width
                _amx_tile(words, at, inner, flat, b_at, inner, tile)
                _round_tile(tile, bias, out[m, p], j * width)
    _release()


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
    shape = (*a.shape[:-1], b.shape[-1])
    count = math.prod(a.shape[:-2]) if b.ndim > 2 else 1
    a, b = a.view(np.uint16).reshape(count, -1, a.shape[-1]), b.view(np.uint16).reshape(count, *b.shape[-2:])
    (_, m, inner), n = a.shape, b.shape[2]
    tile_rows, width, step = (_AMX_ROWS, _AMX_WIDTH, _AMX_PAIRS) if _AMX else (_ROWS, _WIDTH, 1)
    pairs, panels, blocks = -(-inner // (2 * step)) * step, -(-m // tile_rows), -(-n // width)
    # Pad to whole pairs and whole panels with zeros.
    if inner < 2 * pairs or m % tile_rows:
        rows = np.zeros((count, panels * tile_rows, 2 * pairs), np.uint16)
        rows[:, :m, :inner] = a
    else:
        rows = np.ascontiguousarray(a)
    whole = n % width == 0 and inner == 2 * pairs
    packed = (np.empty if whole else np.zeros)((count, blocks, pairs, width), np.uint32)
    # A transposed weight, as in a linear layer, already has its pairs next to each other in memory.
    if b.swapaxes(1, 2).flags.c_contiguous and not inner % 2:
        _pack_columns(b.swapaxes(1, 2).view(np.uint32), packed)
    else:
        _pack_rows(np.ascontiguousarray(b), packed)
    rows = rows.view(np.uint32).reshape(count, panels, tile_rows, pairs)
    out = np.empty((count, panels, tile_rows, n), np.uint16)
    # x + -0.0 is x for all x, also for x = -0.0.
    added = np.full(n, -0.0, np.float32) if bias is None else bias.astype(np.float32)
    arguments = rows, out, packed, rows.reshape(-1), packed.reshape(-1), added
    loop, arguments = (_multiply_amx, (*arguments, _SHAPES)) if _AMX else (_multiply, arguments)
    split(loop, count * m * n * inner, (np.arange(count * panels),), *arguments)
    return out.reshape(count, -1, n)[:, :m].reshape(shape).view(bfloat16.numpy)
