"""Products of a 4-bit weight by the integer dot products of a processor with AVX2 or VNNI instructions.

Floats would have to be made of the codes first, which takes longer than the product with one row of x. Instead, each group of x becomes
integers of 23 bits and a power of two, about as exact as float32. An integer is three bytes, so a group needs three dot products of bytes:

    x = factor * (65536 * a + 256 * b + c),     codes · x = factor * (65536 * codes · a + 256 * codes · b + codes · c)

An instruction (without VNNI: three of them) multiplies unsigned with signed bytes and adds four neighbors, so code + 8, from 0 to 15, is
multiplied. The difference, 8 * the sum of x, does not depend on the weight and is subtracted as an integer. No sum is rounded before it
becomes a float.

* A few rows of x: the weight is read once, in memory order. A lane adds the products of four bytes of the weight.
* Many rows of x: the rows of the weight are interleaved first, so that a lane adds the products of one row with 32 inputs.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import chunks_for, in_chunks, split
from .cast import floats
from .common import bits_of_float, float_of_bits, kernel
from .tiles import (
    _FLOAT,
    _INT,
    _LONG,
    _VECTOR,
    LANES,
    _features,
    _int,
    _load,
    _load_scales,
    _multiply_add,
    _pointers,
    _tile,
    _totals,
)  # fmt: skip

_BYTES = 4 * LANES  # of a vector register; a byte has two codes
_SHORT = 16  # bytes of half a group of 32, the smallest one
AHEAD = 1 << 16  # bytes between a product and the memory that is loaded for a later one
TILE = 4  # rows of the weight that share each load of x
_host = _features()
VNNI = LANES > 4 and bool((_host.get("avx512vnni") and _host.get("avx512vl")) or _host.get("avxvnni"))
AVAILABLE = VNNI or bool(_host.get("avx2"))
FEW = 16 if VNNI else 8  # rows of x up to which a weight is multiplied as it is in memory
MOST = (
    math.inf if VNNI else FEW
)  # rows of x above which three instructions in place of one are slower than floats and BLAS

_floats, _codes, _count = types.Array(types.float32, 1, "C"), types.Array(types.int8, 1, "C"), types.int64
_integers = types.Array(types.int32, 1, "C")


def _vector(b, array, index, type):
    return b.load(b.bitcast(b.gep(array, [index]), type.as_pointer()), align=1)


def _parts_of(b, x, sums, size, at, count):
    """Loads the bytes of x for `count` bytes of a weight from byte `at`: for each piece, low and high codes; and the sums."""
    lanes = ir.VectorType(_INT, count // 4)
    pieces = [_vector(b, x, b.add(at, b.mul(size, _int(i))), lanes) for i in range(6)]
    return pieces, _vector(b, sums, b.lshr(at, _int(2)), lanes)


def _dots_of(b, total, *pairs):
    """Returns `total`, integers of 32 bits, plus the products of four neighbors of each pair, bytes from 0 to 15 and signed bytes."""
    lanes = total.type
    bits = 32 * lanes.count
    if VNNI:
        kind = ir.FunctionType(lanes, [lanes] * 3)  # LLVM 22 declares vectors of bytes, and accepts this older form
        dot = cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.avx512.vpdpbusd.{bits}")
        for codes, numbers in pairs:
            total = b.call(dot, [total, b.bitcast(codes, lanes), b.bitcast(numbers, lanes)])
        return total
    # Products of two neighbors in 16 bits, at most 2 * 15 * 128 for each pair, and then sums of two neighbors in 32 bits.
    bytes_of, words = ir.VectorType(ir.IntType(8), 4 * lanes.count), ir.VectorType(ir.IntType(16), 2 * lanes.count)
    names = ("ssse3.pmadd.ub.sw.128", "sse2.pmadd.wd") if bits == 128 else ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
    kinds = ir.FunctionType(words, [bytes_of] * 2), ir.FunctionType(lanes, [words] * 2)
    twos, fours = (
        cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.{name}")
        for kind, name in zip(kinds, names, strict=True)
    )
    sums = words(None)
    for codes, numbers in pairs:
        sums = b.add(sums, b.call(twos, [b.bitcast(codes, bytes_of), b.bitcast(numbers, bytes_of)]))
    return b.add(total, b.call(fours, [sums, words([1] * words.count)]))


def _terms(b, codes, pieces, sums):
    """Returns codes · x, a vector of floats of which each is the sum over four bytes of `codes`."""
    count, lanes = codes.type.count, sums.type
    # Two's complement with the highest bit inverted is the code plus 8.
    shifted = b.xor(codes, codes.type([0x88 - 256] * count))
    low, high, total = b.and_(shifted, codes.type([15] * count)), b.lshr(shifted, codes.type([4] * count)), lanes(None)
    for i in (0, 2, 4):
        if i:
            total = b.shl(total, lanes([8] * lanes.count))
        total = _dots_of(b, total, (low, pieces[i]), (high, pieces[i + 1]))
    return b.sitofp(b.add(total, sums), ir.VectorType(_FLOAT, lanes.count))


def _prefetch(b, pointer):
    """Loads memory into the cache. The hardware predicts one row of a weight, but not several at the same time."""
    pointer = b.bitcast(pointer, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INT, _INT, _INT])
    b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0"), [pointer, _INT(0), _INT(3), _INT(1)])


def _dots(together):
    """Returns the intrinsic: out[i * step + to] = weight[i] · x for TILE rows of a weight from `row` on, as far as they exist.

    A row has `groups` groups of `half` bytes. A vector has the bytes of `together` groups or, with 1, a part of one group. With 0,
    vectors are short, for groups of other sizes. `x`, `sums` and `factors` are one row of the results of `integers_of`.
    """

    def generate(context, b, signature, values):
        weight, scale, row, last, groups, half, x, sums, factors, out, step, to = _pointers(
            context, b, signature, values
        )
        size = b.mul(groups, half)
        # A surplus row computes the last row again, and stores the same result.
        tile = [b.add(row, _int(i)) for i in range(TILE)]
        tile = [b.select(b.icmp_signed("<", i, last), i, last) for i in tile]
        lines = [(b.gep(weight, [b.mul(i, size)]), b.gep(scale, [b.mul(i, groups)])) for i in tile]
        totals = _tile(b, [_VECTOR([0.0] * LANES)] * TILE)
        rows_ahead = b.udiv(_int(AHEAD), size)
        ahead, scales_ahead = b.mul(rows_ahead, size), b.mul(rows_ahead, groups)

        def add(at, group, count, several):
            """Adds the products of `count` bytes of each row from byte `at`, which belong to `several` groups."""
            few = ir.VectorType(_FLOAT, several)
            of_x, repeated = _parts_of(b, x, sums, size, at, count), [i * several // LANES for i in range(LANES)]
            factor = _load(b, factors, group, few)
            for (codes, scales), total in zip(lines, totals, strict=True):
                _prefetch(b, b.gep(codes, [b.add(at, ahead)]))
                _prefetch(b, b.gep(scales, [b.add(group, scales_ahead)]))
                terms = _terms(b, _vector(b, codes, at, ir.VectorType(ir.IntType(8), count)), *of_x)
                if count < _BYTES:  # the other lanes are zeros
                    terms = b.shuffle_vector(terms, terms.type([0.0] * (count // 4)), _lanes(range(LANES), count // 4))
                # One factor for each group in the vector, repeated for all of its lanes.
                factors_here = b.fmul(_load_scales(b, scales, group, few), factor)
                spread = b.shuffle_vector(factors_here, few(ir.Undefined), _lanes(repeated, several))
                _multiply_add(b, total, terms, spread)

        done = _int(0)
        if together > 1:
            vectors = b.udiv(groups, _int(together))
            with cgutils.for_range(b, vectors, intp=_LONG) as vector:
                first = b.mul(vector.index, _int(together))
                add(b.mul(first, half), first, _BYTES, together)
            done = b.mul(vectors, _int(together))
        # Groups that do not share a vector.
        width = _BYTES if together == 1 else _SHORT
        with cgutils.for_range_slice(b, done, groups, _int(1), intp=_LONG) as (group, _):
            with cgutils.for_range(b, b.udiv(half, _int(width)), intp=_LONG) as part:
                add(b.add(b.mul(group, half), b.mul(part.index, _int(width))), group, width, 1)
        for i, total in zip(tile, totals, strict=True):
            result = b.extract_element(_totals(b, [b.load(total)]), _INT(0))
            b.store(result, b.gep(out, [b.add(b.mul(i, step), to)]))
        return context.get_dummy_value()

    @intrinsic
    def dots(typing, weight, scale, row, last, groups, half, x, sums, factors, out, step, to):
        of_x = (_codes, _integers, _floats)
        return types.void(_codes, scale, *[_count] * 4, *of_x, _floats, _count, _count), generate

    return dots


def _lanes(numbers, stop):
    """Returns the indices of a shuffle; those from `stop` on select an element of the second vector."""
    numbers = [min(n, stop) for n in numbers]
    return ir.VectorType(_INT, len(numbers))(numbers)


_TOGETHER = _BYTES // _SHORT  # groups of 32 in a vector
_of_32, _of_64, _in_parts, _short = _dots(_TOGETHER), _dots(_TOGETHER // 2), _dots(1), _dots(0)


@kernel
def rows(weight, scale, out, x, sums, factors):
    """Computes out (n, rows of x) = weight @ xᵀ for the results of `integers_of`."""
    n, size = weight.shape
    groups, step = scale.shape[1], len(x)
    half, codes, scales, flat = size // groups, weight.reshape(-1), scale.reshape(-1), out.reshape(-1)
    for i in range(0, n, TILE):
        for r in range(step):
            if half == 16:
                _of_32(codes, scales, i, n - 1, groups, half, x[r], sums[r], factors[r], flat, step, r)
            elif half == 32:
                _of_64(codes, scales, i, n - 1, groups, half, x[r], sums[r], factors[r], flat, step, r)
            elif half % _BYTES == 0:
                _in_parts(codes, scales, i, n - 1, groups, half, x[r], sums[r], factors[r], flat, step, r)
            else:
                _short(codes, scales, i, n - 1, groups, half, x[r], sums[r], factors[r], flat, step, r)


COLUMNS, ROWS = 2 * LANES, 4  # of a block of a product with many rows of x: rows of the weight, and rows of x


@intrinsic
def _block(typing, codes, scales, blocks, per_group, x, sums, factors, row, last, out, column):
    """Computes a block of a product: out[column : column + COLUMNS, row : row + ROWS], as far as it exists. Columns of `out` are contiguous.

    A lane belongs to one row of the weight. `codes` is (blocks, low or high, 4, COLUMNS), an integer of four codes each, and
    `scales` (groups, COLUMNS). Integers of x are multiplied with all lanes at once. A block has 32 inputs, and a group `per_group` blocks.
    """

    def generate(context, b, signature, values):
        codes, scales, blocks, per_group, x, sums, factors, row, last, to, column = _pointers(
            context, b, signature, values
        )
        lanes = ir.VectorType(_INT, LANES)
        groups = b.udiv(blocks, per_group)

        def spread(number):
            vector = ir.VectorType(number.type, LANES)(ir.Undefined)
            return b.shuffle_vector(b.insert_element(vector, number, _INT(0)), vector, lanes([0] * LANES))

        # A surplus row of x computes the last one again, and stores the same result.
        tile = [b.add(row, _int(r)) for r in range(ROWS)]
        tile = [b.select(b.icmp_signed("<", r, last), r, last) for r in tile]
        lines = [b.gep(x, [b.mul(r, b.mul(blocks, _int(24)))]) for r in tile]
        totals = _tile(b, [_VECTOR([0.0] * LANES)] * (2 * ROWS))
        with cgutils.for_range(b, blocks, intp=_LONG) as block:
            at = b.mul(block.index, _int(4))
            start = [spread(b.load(b.gep(sums, [b.add(b.mul(r, blocks), block.index)]))) for r in tile]
            # For each row, each vector and each of the three bytes: an integer dot product.
            dots = [[[lanes(None), lanes(None), first] for _ in range(2)] for first in start]
            for half in range(2):
                for j in range(4):
                    place = b.mul(b.add(b.add(at, at), _int(4 * half + j)), _int(COLUMNS))
                    of_weight = [_vector(b, codes, b.add(place, _int(v * LANES)), lanes) for v in range(2)]
                    for r in range(ROWS):
                        for piece in range(3):
                            index = b.add(b.mul(at, _int(6)), _int(8 * piece + 4 * half + j))
                            number = spread(b.load(b.gep(lines[r], [index])))
                            for v in range(2):
                                dots[r][v][piece] = _dots_of(b, dots[r][v][piece], (of_weight[v], number))
            group = b.udiv(block.index, per_group)
            scale = [_load(b, scales, b.mul(group, _int(COLUMNS)), _VECTOR)]
            scale.append(_load(b, scales, b.add(b.mul(group, _int(COLUMNS)), _int(LANES)), _VECTOR))
            for r in range(ROWS):
                factor = spread(_load(b, factors, b.add(b.mul(tile[r], groups), group)))
                for v in range(2):
                    high, middle, low = dots[r][v]
                    middle = b.add(middle, b.shl(high, lanes([8] * LANES)))
                    low = b.add(low, b.shl(middle, lanes([8] * LANES)))
                    _multiply_add(b, totals[2 * r + v], b.sitofp(low, _VECTOR), b.fmul(scale[v], factor))
        result = context.make_array(signature.args[-2])(context, b, values[-2])
        columns, step = cgutils.unpack_tuple(b, result.shape, 2)[0], cgutils.unpack_tuple(b, result.strides, 2)[1]
        left, bytes_of = spread(b.trunc(b.sub(columns, column), _INT)), ir.IntType(8).as_pointer()
        place, masks = _VECTOR.as_pointer(), ir.VectorType(ir.IntType(1), LANES)
        store = ir.FunctionType(ir.VoidType(), [_VECTOR, place, _INT, masks])
        store = cgutils.get_or_insert_function(b.module, store, f"llvm.masked.store.v{LANES}f32.p0")
        for r, line in enumerate(tile):
            line = b.bitcast(b.gep(b.bitcast(to, bytes_of), [b.mul(line, step)]), to.type)
            for v in range(2):
                exists = b.icmp_signed("<", lanes(list(range(v * LANES, (v + 1) * LANES))), left)
                at = b.bitcast(b.gep(line, [b.add(column, _int(v * LANES))]), place)
                b.call(store, [b.load(totals[2 * r + v]), at, _INT(4), exists])
        return context.get_dummy_value()

    of_x = (_integers, _integers, _floats)
    return types.void(_integers, _floats, _count, _count, *of_x, _count, _count, out, _count), generate


@kernel
def many(weight, scale, out, x, sums, factors):
    """Computes out (n, rows of x) = weight @ xᵀ for the results of `integers_of`, with the 4-byte words of weight and x.

    A column of `out` is contiguous.
    """
    n, words = weight.shape
    groups, rows = scale.shape[1], len(x)
    blocks = words // 4
    codes, scales = np.empty((blocks, 2, 4, COLUMNS), np.int32), np.empty((groups, COLUMNS), np.float32)
    of_weight, of_x = (codes.reshape(-1), scales.reshape(-1)), (x.reshape(-1), sums.reshape(-1), factors.reshape(-1))
    for i in range(0, n, COLUMNS):
        for block in range(blocks):
            for c in range(COLUMNS):
                row = min(i + c, n - 1)  # surplus lanes repeat the last row
                for j in range(4):
                    # Two's complement with the highest bit inverted is the code plus 8.
                    four = weight[row, 4 * block + j] ^ np.int32(-0x77777778)
                    codes[block, 0, j, c] = four & np.int32(0x0F0F0F0F)
                    codes[block, 1, j, c] = (four >> np.int32(4)) & np.int32(0x0F0F0F0F)
        for q in range(groups):
            for c in range(COLUMNS):
                scales[q, c] = scale[min(i + c, n - 1), q]
        for r in range(0, rows, ROWS):
            _block(*of_weight, blocks, blocks // groups, *of_x, r, rows - 1, out, i)


@intrinsic
def _split_bytes(typing, x, at, inverse, numbers, pieces, to, distance):
    """Writes _SHORT integers x[at + i] * inverse to `numbers`, and their bytes to pieces[to + i], `distance` bytes apart, highest first."""

    def generate(context, b, signature, values):
        x, at, inverse, numbers, pieces, to, distance = _pointers(context, b, signature, values)
        floats, integers = ir.VectorType(_FLOAT, _SHORT), ir.VectorType(_INT, _SHORT)
        factor = b.shuffle_vector(
            b.insert_element(floats(ir.Undefined), inverse, _INT(0)), floats(ir.Undefined), integers([0] * _SHORT)
        )
        # Adding 1.5 * 2^23 rounds to the nearest integer, which the low bits of the sum contain.
        number = b.fadd(b.fmul(_load(b, x, at, floats), factor), floats([12582912.0] * _SHORT))
        number = b.sub(b.bitcast(number, integers), integers([0x4B400000] * _SHORT))
        b.store(number, b.bitcast(numbers, integers.as_pointer()), align=4)
        # Each byte is signed, so the next one is rounded up where the byte is negative.
        for i, half in enumerate((32896, 128, 0)):
            byte = b.ashr(b.add(number, integers([half] * _SHORT)), integers([16 - 8 * i] * _SHORT))
            byte = b.trunc(byte, ir.VectorType(ir.IntType(8), _SHORT))
            place = b.gep(pieces, [b.add(to, b.mul(distance, _int(i)))])
            b.store(byte, b.bitcast(place, byte.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(_floats, _count, types.float32, _integers, _codes, _count, _count), generate


@kernel
def integers_of(x, pieces, sums, factors, in_blocks):
    """Converts x (rows, groups, 2, half) to integers, and returns True if a group is infinite, NaN or too close to 0 for them.

    Args:
        x: the numbers.
        pieces: receives the bytes of the integers, (rows, 3, 2, groups * half), the highest ones first.
        sums: receives -8 times the sums of the integers of 4 or 16 bytes of the weight, (rows, groups, half / 4 or 16).
        factors: receives the power of two of each group, (rows, groups).
        in_blocks: True to write `pieces` as (rows, groups * half / 16, 3, 2, 16).
    """
    n, groups, _, half = x.shape
    # Distances between the bytes of an integer, between the halves of a group, and between 16 bytes of a half and the next ones.
    distance, side, block = (32, 16, 96) if in_blocks else (2 * groups * half, groups * half, 16)
    numbers, size, length = np.empty((2, _SHORT), np.int32), half // sums.shape[2], 6 * groups * half
    flat, to, bits = x.reshape(-1), pieces.reshape(-1), x.reshape(n, groups, 2 * half)
    for r in range(n):
        for q in range(groups):
            largest = np.int32(0)  # bits of a magnitude, which have the order of magnitudes
            for j in range(2 * half):
                largest = max(largest, bits_of_float(bits[r, q, j]) & np.int32(0x7FFFFFFF))
            exponent = largest >> np.int32(23)
            # The group has a magnitude of 2^(exponent - 127) or more, and less than twice as much.
            if largest != 0 and (exponent < 47 or exponent == 255):
                return True
            # Integers below 2^22. The inverse of the factor is a power of two, too, so the quotients are exact.
            exponent = max(exponent, np.int32(47))
            factors[r, q] = float_of_bits((exponent - np.int32(21)) << np.int32(23))
            inverse = float_of_bits((np.int32(275) - exponent) << np.int32(23))
            for part in range(half // _SHORT):
                at, place = (
                    (r * groups + q) * 2 * half + part * _SHORT,
                    r * length + (q * half // _SHORT + part) * block,
                )
                for h in range(2):
                    _split_bytes(flat, at + h * half, inverse, numbers[h], to, place + h * side, distance)
                for j in range(0, _SHORT, size):
                    total = np.int32(0)
                    for i in range(size):
                        total += numbers[0, j + i] + numbers[1, j + i]
                    sums[r, q, (part * _SHORT + j) // size] = np.int32(-8) * total
    return False


def products(weights, scales, outs, x, group_size):
    """Computes out (n, rows of x) = weight @ xᵀ for each weight. Returns False if `integers_of` cannot represent a number of x.

    Args:
        weights: bytes (n, groups * group_size / 2) of each, as `pack` of ops/quantized_linear.py writes them.
        scales: (n, groups) of each, float32 or the bits of float16.
        outs: arrays for the products.
        x: (rows, groups * group_size).
        group_size: a multiple of 32.
    """
    n, groups, half = len(x), x.shape[1] // group_size, group_size // 2
    few = n <= FEW
    # Few rows: a sum for each lane, over four bytes of the weight. Many rows: a sum for each block of 32 inputs.
    sums = np.empty((n, groups, half // (4 if few else 16)), np.int32)
    pieces, factors = np.empty((n, 3 * x.shape[1]), np.int8), np.empty((n, groups), np.float32)
    if split(integers_of, x.size, (x.reshape(n, groups, 2, half), pieces, sums, factors), not few):
        return False
    kernel, word, sums = rows if few else many, np.int8 if few else np.int32, sums.reshape(n, -1)
    for weight, scale, out in zip(weights, scales, outs, strict=True):
        arrays = weight.view(word), scale if few else floats(scale), out
        in_chunks(kernel, chunks_for(n * weight.size), arrays, pieces.view(word), sums, factors)
    return True
