"""Innermost loops of a convolution, written in LLVM IR: compilers do not keep a tile of sums in vector registers on their own.

Both loops are vectorized over one flat axis of positions. They read x many times, each time shifted by another offset:

    shifted_sums     out[r, i]  = first[r] + sum over k of  w[k, r] * x[offset[k] + i]
    shifted_dots     out[s, r] += sum over i of  g[r, i] * x[offset[s] + i]

The sums form a tile of registers. Three loads of x and eight of w feed 24 multiply-adds, so the loop is limited by arithmetic
and not by memory:

                     x[offset + 0 … 15]  x[offset + 16 … 31]  x[offset + 32 … 47]
        w[k, 0]  ->      sum 0, 0             sum 0, 1              sum 0, 2
        w[k, 1]  ->      sum 1, 0             sum 1, 1              sum 1, 2
          …                 …                    …                     …
        w[k, 7]  ->      sum 7, 0             sum 7, 1              sum 7, 2

Each array argument comes with the index of its first element.
"""

import platform

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _features():
    try:
        return binding.get_host_cpu_features()
    except RuntimeError:  # llvmlite cannot detect the features of this system
        return {}


# Float32 elements of a vector register.
LANES = 16 if _features().get("avx512f") else 8 if _features().get("avx2") else 4
# AVX-512 and NEON have 32 vector registers, AVX2 and SSE have 16.
REGISTERS = 32 if LANES == 16 or platform.machine().lower() in ("arm64", "aarch64") else 16

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _int(value):
    return ir.Constant(_LONG, value)


def _load(b, array, index, type=_FLOAT):
    """Loads a number or a vector from an array of floats. Offsets are arbitrary, so only 4-byte alignment is assumed."""
    return b.load(b.bitcast(b.gep(array, [index]), type.as_pointer()), align=4)


def _load_scales(b, array, index, type=_FLOAT):
    """Loads a number or a vector, like `_load`, from an array of float32 or of the bits of float16."""
    if array.type.pointee == _FLOAT:
        return _load(b, array, index, type)
    stored = ir.HalfType() if type == _FLOAT else ir.VectorType(ir.HalfType(), type.count)
    return b.fpext(b.load(b.bitcast(b.gep(array, [index]), stored.as_pointer()), align=2), type)


def _store(b, value, array, index):
    b.store(value, b.bitcast(b.gep(array, [index]), value.type.as_pointer()), align=4)


def _permuted(b, one, other, lanes):
    """Returns a vector of the given lanes of two vectors; the lanes of `other` count from LANES."""
    return b.shuffle_vector(one, other, ir.Constant(ir.VectorType(_INT, len(lanes)), lanes))


def _spread(b, number):
    """Broadcasts one number to all lanes of a vector."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    return _permuted(b, b.insert_element(undefined, number, ir.Constant(_INT, 0)), undefined, [0] * LANES)


def _tile(b, values):
    """Returns one accumulator per initial value. LLVM's mem2reg pass turns the stack slots into registers."""
    slots = [cgutils.alloca_once(b, _VECTOR) for _ in values]
    for slot, value in zip(slots, values, strict=True):
        b.store(value, slot)
    return slots


def _multiply_add(b, slot, one, other):
    """slot += one * other, as one fused multiply-add with a single rounding."""
    fma = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = cgutils.get_or_insert_function(b.module, fma, f"llvm.fma.v{LANES}f32")
    b.store(b.call(function, [one, other, b.load(slot)]), slot)


def _fence(b):
    """A compiler barrier: keeps LLVM from moving later loads up, which would need more registers than there are."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def _totals(b, vectors):
    """Returns one vector with the sum over the lanes of each given vector, by pairwise addition of halves.

    Each round adds the upper half of every `width` lanes to the lower half. Two vectors of half sums share the next vector.

    Args:
        vectors: a power of two of vectors, at most LANES.
    """
    width = LANES
    while width > 1:
        half = width // 2
        # Lanes of the lower halves. With two vectors, the second one contributes the same lanes.
        low = [lane for lane in range(vectors[0].type.count) if lane % width < half]
        if len(vectors) > 1:
            low += [LANES + lane for lane in low]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
        else:
            pairs = [(vectors[0], vectors[0])]
        high = [lane + half for lane in low]
        vectors = [b.fadd(_permuted(b, u, v, low), _permuted(b, u, v, high)) for u, v in pairs]
        width = half
    return vectors[0]


def _pointers(context, b, signature, values):
    """Returns the arguments, each array replaced by the address of its first element."""
    return [
        context.make_array(type)(context, b, value).data if isinstance(type, types.Array) else value
        for type, value in zip(signature.args, values, strict=True)
    ]


_floats, _longs, _count = types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C"), types.int64


def shifted_sums(rows, vectors):
    """Returns the intrinsic that computes a tile of `rows` rows of `out` by `vectors` vectors of positions.

    The weight of row r and term k is w[w_start + k * rows + r]. The sum has `terms` terms, whose offsets begin at k_start, and
    begins with first[r_start + r]. `step` is the distance between rows of `out`.
    """

    def generate(context, b, signature, values):
        x, start, w, w_start, offsets, k_start, terms, first, r_start, out, to, step = _pointers(
            context, b, signature, values
        )
        begin = [_spread(b, _load(b, first, b.add(r_start, _int(r)))) for r in range(rows)]
        # Accumulators, row by row. A sum begins with `first`, the bias of its channel.
        sums = _tile(b, [begin[r] for r in range(rows) for _ in range(vectors)])
        with cgutils.for_range(b, terms, intp=_LONG) as k:
            index = b.add(start, b.load(b.gep(offsets, [b.add(k_start, k.index)])))
            # The shifted input: `vectors` unaligned loads, which all rows of the tile share.
            xs = [_load(b, x, b.add(index, _int(v * LANES)), _VECTOR) for v in range(vectors)]
            w_index = b.add(w_start, b.mul(k.index, _int(rows)))
            for r in range(rows):
                # One weight per row, broadcast to all lanes. The fence keeps one weight register alive at a time.
                wr = _spread(b, _load(b, w, b.add(w_index, _int(r))))
                for v in range(vectors):
                    _multiply_add(b, sums[r * vectors + v], wr, xs[v])
                _fence(b)
        for r in range(rows):
            for v in range(vectors):
                index = b.add(to, b.add(b.mul(step, _int(r)), _int(v * LANES)))
                _store(b, b.load(sums[r * vectors + v]), out, index)
        return context.get_dummy_value()

    @intrinsic
    def block(typing, x, start, w, w_start, offsets, k_start, terms, first, r_start, out, to, step):
        numbers = (_floats, _count)
        return types.void(*numbers, *numbers, _longs, _count, _count, *numbers, *numbers, _count), generate

    return block


def shifted_dots(rows, shifts):
    """Returns the intrinsic that computes a tile of `rows` rows of g by `shifts` shifts of x, over `length` vectors.

    `step` is the distance between rows of g, and `out_step` the distance between rows of `out`.
    """

    def generate(context, b, signature, values):
        g, g_start, step, x, x_start, offsets, s_start, length, out, to, out_step = _pointers(
            context, b, signature, values
        )
        # One vector accumulator per pair (row of g, shift of x): LANES partial dot products.
        sums = _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * (rows * shifts))
        starts = [b.add(x_start, b.load(b.gep(offsets, [b.add(s_start, _int(s))]))) for s in range(shifts)]
        g_starts = [b.add(g_start, b.mul(step, _int(r))) for r in range(rows)]
        with cgutils.for_range(b, length, intp=_LONG) as i:
            position = b.mul(i.index, _int(LANES))
            # Each vector of g is multiplied with all shifts of x.
            xs = [_load(b, x, b.add(position, start), _VECTOR) for start in starts]
            for r in range(rows):
                gr = _load(b, g, b.add(position, g_starts[r]), _VECTOR)
                for s in range(shifts):
                    _multiply_add(b, sums[r * shifts + s], gr, xs[s])
                _fence(b)
        # Sum the lanes of four accumulators at a time, and add the dot products to `out`.
        for first in range(0, rows * shifts, 4):
            total = _totals(b, [b.load(slot) for slot in sums[first : first + 4]])
            for n in range(4):
                r, s = divmod(first + n, shifts)
                index = b.add(to, b.add(b.mul(out_step, _int(r)), _int(s)))
                _store(b, b.fadd(_load(b, out, index), b.extract_element(total, ir.Constant(_INT, n))), out, index)
        return context.get_dummy_value()

    @intrinsic
    def block(typing, g, g_start, step, x, x_start, offsets, s_start, length, out, to, out_step):
        lines, shifted = (_floats, _count, _count), (_floats, _count, _longs, _count)
        return types.void(*lines, *shifted, _count, _floats, _count, _count), generate

    return block


@intrinsic
def copy(typing, to, to_start, source, start, count):
    """to[to_start + i] = source[start + i] for i < count, as one memcpy."""

    def generate(context, b, signature, values):
        to, to_start, source, start, count = _pointers(context, b, signature, values)
        cgutils.raw_memcpy(b, b.gep(to, [to_start]), b.gep(source, [start]), count, 4, align=4)
        return context.get_dummy_value()

    return types.void(_floats, _count, _floats, _count, _count), generate
