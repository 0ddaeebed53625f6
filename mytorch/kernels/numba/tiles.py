"""The innermost loops of a convolution: sums that stay in vector registers, written as LLVM IR because no compiler finds them.

Both work on one flat axis that the vector lanes walk along, and see x many times, each time shifted by another offset:

    shifted_sums     out[r, i]  = first[r] + sum over k of  w[k, r] * x[offset[k] + i]
    shifted_dots     out[s, r] += sum over i of  g[r, i] * x[offset[s] + i]

Their sums form a tile of registers. Three loads of x and eight of w feed 24 multiply-adds, which is what keeps the
multipliers busy and not the memory:

                     x[offset + 0 … 15]  x[offset + 16 … 31]  x[offset + 32 … 47]
        w[k, 0]  ->      sum 0, 0             sum 0, 1              sum 0, 2
        w[k, 1]  ->      sum 1, 0             sum 1, 1              sum 1, 2
          …                 …                    …                     …
        w[k, 7]  ->      sum 7, 0             sum 7, 1              sum 7, 2

An array is handed over with the index at which it begins to count.
"""

import platform

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _features():
    try:
        return binding.get_host_cpu_features()
    except RuntimeError:  # not known on this system
        return {}


LANES = 16 if _features().get("avx512f") else 8 if _features().get("avx2") else 4  # floats of a vector
REGISTERS = 32 if LANES == 16 or platform.machine().lower() in ("arm64", "aarch64") else 16

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _int(value):
    return ir.Constant(_LONG, value)


def _load(b, array, index, type=_FLOAT):
    """A number, or a vector, of an array of floats."""
    return b.load(b.bitcast(b.gep(array, [index]), type.as_pointer()), align=4)


def _store(b, value, array, index):
    b.store(value, b.bitcast(b.gep(array, [index]), value.type.as_pointer()), align=4)


def _permuted(b, one, other, lanes):
    return b.shuffle_vector(one, other, ir.Constant(ir.VectorType(_INT, len(lanes)), lanes))


def _spread(b, number):
    """A vector of one number."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    return _permuted(b, b.insert_element(nothing, number, ir.Constant(_INT, 0)), nothing, [0] * LANES)


def _tile(b, values):
    """A register for each value, which it holds at first."""
    slots = [cgutils.alloca_once(b, _VECTOR) for _ in values]
    for slot, value in zip(slots, values, strict=True):
        b.store(value, slot)
    return slots


def _multiply_add(b, slot, one, other):
    fma = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = cgutils.get_or_insert_function(b.module, fma, f"llvm.fma.v{LANES}f32")
    b.store(b.call(function, [one, other, b.load(slot)]), slot)


def _fence(b):
    """Keep what is read from here on below: read earlier, it would want more registers than there are."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def _totals(b, vectors):
    """One vector of the sum of each of some vectors: two that are added up by halves share the next one.

    Args:
        vectors: a power of two of them, no more than lanes.
    """
    width = LANES
    while width > 1:
        half = width // 2
        low = [at for at in range(vectors[0].type.count) if at % width < half]
        if len(vectors) > 1:
            low += [LANES + at for at in low]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
        else:
            pairs = [(vectors[0], vectors[0])]
        high = [at + half for at in low]
        vectors = [b.fadd(_permuted(b, u, v, low), _permuted(b, u, v, high)) for u, v in pairs]
        width = half
    return vectors[0]


def _pointers(context, b, signature, values):
    """The arguments, with each array as the address of its elements."""
    return [
        context.make_array(type)(context, b, value).data if isinstance(type, types.Array) else value
        for type, value in zip(signature.args, values, strict=True)
    ]


_floats, _longs, _count = types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C"), types.int64


def shifted_sums(rows, vectors):
    """The intrinsic that makes a tile of so many rows of `out` by so many vectors of positions.

    Its arguments after x: weights lie at w_start + r * row_step + places[k]; rows from `exist` on are those before again, and
    not to be used. terms: of the sum, whose offsets and places begin at k_start. step: from a row of `out` to the next.
    """

    def generate(context, b, signature, values):
        x, start, w, w_start, row_step, exist, offsets, places, k_start, terms, first, r_start, out, to, step = (
            _pointers(context, b, signature, values)
        )
        within = [b.icmp_signed("<", _int(r), exist) for r in range(rows)]
        row = [b.select(within[r], _int(r), b.sub(exist, _int(1))) for r in range(rows)]
        begin = [_spread(b, _load(b, first, b.add(r_start, r))) for r in row]
        starts = [b.gep(w, [b.add(w_start, b.mul(r, row_step))]) for r in row]
        sums = _tile(b, [begin[r] for r in range(rows) for _ in range(vectors)])
        with cgutils.for_range(b, terms, intp=_LONG) as k:
            term = b.add(k_start, k.index)
            at = b.add(start, b.load(b.gep(offsets, [term])))
            xs = [_load(b, x, b.add(at, _int(v * LANES)), _VECTOR) for v in range(vectors)]
            place = b.load(b.gep(places, [term]))
            for r in range(rows):
                wr = _spread(b, _load(b, starts[r], place))
                for v in range(vectors):
                    _multiply_add(b, sums[r * vectors + v], wr, xs[v])
                _fence(b)
        for r in range(rows):
            for v in range(vectors):
                at = b.add(to, b.add(b.mul(step, _int(r)), _int(v * LANES)))
                _store(b, b.load(sums[r * vectors + v]), out, at)
        return context.get_dummy_value()

    @intrinsic
    def block(
        typing, x, start, w, w_start, row_step, exist, offsets, places, k_start, terms, first, r_start, out, to, step
    ):
        weights = (_floats, _count, _count, _count)
        arguments = (
            _floats, _count, *weights, _longs, _longs, _count, _count, _floats, _count, _floats, _count, _count,
        )  # fmt: skip
        return types.void(*arguments), generate

    return block


def shifted_dots(rows, shifts):
    """The intrinsic that makes a tile of so many rows of g by so many shifts of x, over `length` vectors.

    Its arguments: `step` from a row of g to the next, `spread` from a row of `out` to the next.
    """

    def generate(context, b, signature, values):
        g, g_start, step, x, x_start, offsets, s_start, length, out, to, spread = _pointers(
            context, b, signature, values
        )
        sums = _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * (rows * shifts))
        starts = [b.add(x_start, b.load(b.gep(offsets, [b.add(s_start, _int(s))]))) for s in range(shifts)]
        lines = [b.add(g_start, b.mul(step, _int(r))) for r in range(rows)]
        with cgutils.for_range(b, length, intp=_LONG) as i:
            here = b.mul(i.index, _int(LANES))
            xs = [_load(b, x, b.add(here, start), _VECTOR) for start in starts]
            for r in range(rows):
                gr = _load(b, g, b.add(here, lines[r]), _VECTOR)
                for s in range(shifts):
                    _multiply_add(b, sums[r * shifts + s], gr, xs[s])
                _fence(b)
        for first in range(0, rows * shifts, 4):
            total = _totals(b, [b.load(slot) for slot in sums[first : first + 4]])
            for n in range(4):
                r, s = divmod(first + n, shifts)
                at = b.add(to, b.add(b.mul(spread, _int(r)), _int(s)))
                _store(b, b.fadd(_load(b, out, at), b.extract_element(total, ir.Constant(_INT, n))), out, at)
        return context.get_dummy_value()

    @intrinsic
    def block(typing, g, g_start, step, x, x_start, offsets, s_start, length, out, to, spread):
        lines, shifted = (_floats, _count, _count), (_floats, _count, _longs, _count)
        return types.void(*lines, *shifted, _count, _floats, _count, _count), generate

    return block


@intrinsic
def copy(typing, to, to_start, source, start, count):
    """to[to_start + i] = source[start + i] for i below count."""

    def generate(context, b, signature, values):
        to, to_start, source, start, count = _pointers(context, b, signature, values)
        cgutils.raw_memcpy(b, b.gep(to, [to_start]), b.gep(source, [start]), count, 4, align=4)
        return context.get_dummy_value()

    return types.void(_floats, _count, _floats, _count, _count), generate
