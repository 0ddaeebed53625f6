"""Products of few rows with a weight, as in text generation and in recurrent layers.

    out[r, o] = sum over i of  weight[o, i] * rows[r, i]

BLAS copies both matrices into blocks before it multiplies, which takes longer than a product of few rows. Here the sums of OUTS rows of
the weight with up to ROWS rows of x form a tile of registers, vectorized over i, and each matrix is read in its own order. A sum is
added up in the same order for any number of rows and threads, so the result of a row does not depend on the other rows.
"""

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from .common import is_float32, kernel
from .tiles import (
    _LONG,
    _VECTOR,
    LANES,
    REGISTERS,
    _int,
    _load,
    _multiply_add,
    _permuted,
    _pointers,
    _store,
    _tile,
    _totals,
)

OUTS = 4
ROWS = 3 if REGISTERS == 16 else 6  # the sums, ROWS vectors of x and one of the weight fit into the registers


def _tile_of(outs, rows):
    """Returns the intrinsic that computes a tile of `outs` x `rows` sums.

    The element of `out`, whose rows are `step` elements apart, at to + r * step + o becomes the sum over i < whole, a multiple of
    LANES, of weight[at + o * size + i] * x[row + r * size + i].
    """

    def generate(context, b, signature, values):
        weight, at, size, whole, x, row, out, to, step = _pointers(context, b, signature, values)
        sums = _tile(b, [ir.Constant(_VECTOR, [0.0] * LANES)] * (outs * rows))
        w_at = [b.add(at, b.mul(_int(o), size)) for o in range(outs)]
        x_at = [b.add(row, b.mul(_int(r), size)) for r in range(rows)]
        with cgutils.for_range_slice(b, _int(0), whole, _int(LANES), intp=_LONG) as (i, _):
            xs = [_load(b, x, b.add(start, i), _VECTOR) for start in x_at]
            for o in range(outs):
                w = _load(b, weight, b.add(w_at[o], i), _VECTOR)
                for r in range(rows):
                    _multiply_add(b, sums[o * rows + r], w, xs[r])
        for r in range(rows):
            total = _totals(b, [b.load(sums[o * rows + r]) for o in range(outs)])
            total = _permuted(b, total, total, list(range(outs)))
            _store(b, total, out, b.add(to, b.mul(_int(r), step)))
        return context.get_dummy_value()

    floats, count = types.Array(types.float32, 1, "C"), types.int64

    @intrinsic
    def tile(typing, weight, at, size, whole, x, row, out, to, step):
        return types.void(floats, count, count, count, floats, count, out, count, count), generate

    return tile


_many, _two, _one, _single = _tile_of(OUTS, ROWS), _tile_of(OUTS, 2), _tile_of(OUTS, 1), _tile_of(1, 1)


@kernel
def _products(weight, places, x, out):
    """Computes out[:, places] = x @ weightᵀ."""
    size, count, step = weight.shape[1], len(x), out.strides[0] // out.itemsize
    whole, many = size // LANES * LANES, count // ROWS * ROWS
    w, xs = weight.reshape(-1), x.reshape(-1)
    outs = len(weight) // OUTS * OUTS
    for o in range(0, outs, OUTS):
        at, to = o * size, places[o]
        for r in range(0, many, ROWS):
            _many(w, at, size, whole, xs, r * size, out, r * step + to, step)
        for r in range(many, count - 1, 2):
            _two(w, at, size, whole, xs, r * size, out, r * step + to, step)
        if (count - many) % 2:
            _one(w, at, size, whole, xs, (count - 1) * size, out, (count - 1) * step + to, step)
    for o in range(outs, len(weight)):
        for r in range(count):
            _single(w, o * size, size, whole, xs, r * size, out, r * step + places[o], step)


@kernel
def _remainders(weight, places, x, out, whole):
    """Adds the terms from `whole` on to out[:, places]."""
    for o in range(len(weight)):
        for r in range(len(x)):
            total = out[r, places[o]]
            for i in range(whole, weight.shape[1]):
                total += weight[o, i] * x[r, i]
            out[r, places[o]] = total


@functools.lru_cache(256)
def _places(count):
    return np.arange(count)


def accepts(weight, rows, out=None):
    """Accepts float32 matrices, of which the weight is contiguous, and a result with contiguous rows."""
    if not is_float32(weight, rows) or not weight.flags.c_contiguous or not weight.ndim == rows.ndim == 2:
        return False
    if out is not None and (not is_float32(out) or out.shape != (len(rows), len(weight)) or out.strides[1] != 4):
        return False
    return weight.shape[1] == rows.shape[1]


def forward(xp, weight, rows, out=None):
    """Returns rows @ weightᵀ, in `out` if it is given."""
    if out is None:
        out = np.empty((len(rows), len(weight)), np.float32)
    rows, places, size = np.ascontiguousarray(rows), _places(len(weight)), weight.shape[1]
    work = weight.size * (1 + len(rows) // OUTS)  # a tile takes about as long as reading its weights
    split(_products, work, (weight, places), rows, out)
    if size % LANES:
        split(_remainders, out.size, (weight, places), rows, out, size // LANES * LANES)
    return out
