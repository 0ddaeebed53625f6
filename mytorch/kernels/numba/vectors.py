"""Exponentials, logarithms and trigonometric functions by libmvec, the functions of vectors in glibc from 2.35 on.

NumPy computes most of these functions one number at a time on x86 processors without AVX-512, see `parts.SCALAR`. The errors of libmvec
are at most 4 units in the last place (glibc manual, "Known Maximum Errors in Math Functions").
"""

import ctypes
from functools import partial

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..kernel import Kernel
from ..parts import SCALAR
from ..threads import split
from .common import exact
from .tiles import _pointers

_LIBRARY, _BYTES = "libmvec.so.1", 32  # of a vector register of AVX2
_NAMES = [name.replace("arc", "a") for name in SCALAR]  # as in C
_FLOATS = np.dtype(np.float32), np.dtype(np.float64)


def _load():
    try:
        found = hasattr(ctypes.CDLL(_LIBRARY), "_ZGVdN8v_log1pf")
    except OSError:
        found = False
    if not found:
        raise ImportError(f"the C library has no {_LIBRARY} of glibc 2.35 or later")
    binding.load_library_permanently(_LIBRARY)


def _vector(context, builder, signature, values, arrays):
    """Calls the function of a vector of each array from an index on, and writes the result to `out` at the same index."""
    at, out, *given = _pointers(context, builder, signature, values)[1:]
    number = out.type.pointee
    kind = ir.VectorType(number, _BYTES // (4 if number == ir.FloatType() else 8))
    suffix = "f" if number == ir.FloatType() else ""
    name = f"_ZGVdN{kind.count}{'v' * arrays}_{_NAMES[signature.args[0].literal_value]}{suffix}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * arrays), name)
    places = [builder.bitcast(builder.gep(a, [at]), kind.as_pointer()) for a in (*given, out)]
    align = 4 if suffix else 8
    result = builder.call(function, [builder.load(place, align=align) for place in places[:-1]])
    builder.store(result, places[-1], align=align)
    return context.get_dummy_value()


@intrinsic(prefer_literal=True)
def _of_one(typing, which, at, out, x):
    if isinstance(which, types.IntegerLiteral):
        return types.void(which, types.int64, out, x), partial(_vector, arrays=1)
    return None


@intrinsic(prefer_literal=True)
def _of_two(typing, which, at, out, x, y):
    if isinstance(which, types.IntegerLiteral):
        return types.void(which, types.int64, out, x, y), partial(_vector, arrays=2)
    return None


def _loop_of_one(which):
    @exact
    def loop(x, out):
        lanes = _BYTES // x.itemsize
        whole = x.size // lanes * lanes
        for i in range(0, whole, lanes):
            _of_one(which, i, out, x)
        if whole < x.size:
            last = np.ones((2, lanes), x.dtype)
            for i in range(whole, x.size):
                last[0, i - whole] = x[i]
            _of_one(which, 0, last[1], last[0])
            for i in range(whole, x.size):
                out[i] = last[1, i - whole]

    return loop


def _loop_of_two(which):
    @exact
    def loop(x, y, out):
        lanes = _BYTES // x.itemsize
        whole = x.size // lanes * lanes
        for i in range(0, whole, lanes):
            _of_two(which, i, out, x, y)
        if whole < x.size:
            last = np.ones((3, lanes), x.dtype)
            for i in range(whole, x.size):
                last[0, i - whole], last[1, i - whole] = x[i], y[i]
            _of_two(which, 0, last[2], last[0], last[1])
            for i in range(whole, x.size):
                out[i] = last[2, i - whole]

    return loop


def _accepts(count, *operands, out=None):
    """Accepts contiguous floats of one shape and dtype."""
    x, arrays = operands[0], operands if out is None else (*operands, out)
    return (
        len(operands) == count
        and x.dtype in _FLOATS
        and all(
            type(a) is np.ndarray and a.dtype == x.dtype and a.shape == x.shape and a.flags.c_contiguous for a in arrays
        )
    )


def _forward(loop, xp, *operands, out=None):
    out = np.empty(operands[0].shape, operands[0].dtype) if out is None else out
    split(loop, out.size, [a.reshape(-1) for a in (*operands, out)])
    return out


if SCALAR:
    _load()
for _i, (_name, _count) in enumerate(SCALAR.items()):
    _run = partial(_forward, (_loop_of_one if _count == 1 else _loop_of_two)(_i))
    globals()[_name] = Kernel(accepts=partial(_accepts, _count), forward=_run)
