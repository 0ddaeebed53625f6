"""What the Numba kernels share: the compiler's settings, and exp and erf that it can vectorise.

A kernel is compiled for one thread and cut into chunks by `kernels/threads.py`. Its loops run from 0 over
whole arrays, because an index that the compiler can't prove non-negative keeps it from vectorising.

`math.exp` is a call into the C library, one number at a time, which no compiler turns into vector
instructions; a polynomial is. `exp` and `erf` here are good to about two units in the last place of float32.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from . import progress  # noqa: F401  (it shows what is being compiled)

_FAST = {"nnan", "nsz", "arcp", "contract", "afn", "reassoc"}  # infinities keep their meaning
_LEAN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
kernel = njit(fastmath=_FAST, cache=True, **_LEAN)
with_nan = njit(fastmath=_FAST - {"nnan"}, cache=True, **_LEAN)  # as `kernel`, and NaN may be asked for
exact = njit(cache=True, **_LEAN)  # where NaN keeps its meaning
# What only kernels call: without the code by which Python would, which takes the compiler as long as a short loop does.
_INNER: dict[str, Any] = {**_LEAN, "forceinline": True, "no_cpython_wrapper": True}
inlined = njit(fastmath=_FAST, **_INNER)
exact_inlined = njit(**_INNER)


@intrinsic
def float_of_bits(typing_context, bits):
    """The float32 with the given bits; a reinterpretation, no instruction."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic
def _memory_of(typing_context, array, offset):
    """Where an array of float32 begins, and so many bytes on."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        begin = builder.bitcast(data, ir.IntType(8).as_pointer())
        return builder.bitcast(builder.gep(begin, [arguments[1]]), data.type)

    return types.CPointer(types.float32)(array, types.int64), generate


@inlined
def rows_of(x, i, rows, columns):
    """x[i] of an array whose x[i] is contiguous (rows, columns), in a form that tells the compiler so."""
    return carray(_memory_of(x, i * x.strides[0]), (rows, columns))


@intrinsic
def _bits_of_float(typing_context, x):
    """The bits of a float32 as an int32; a reinterpretation, no instruction."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), generate


INFINITE = np.int32(0x7F800000)  # the bits of infinity; those of NaN are above it, those of all other magnitudes below


@inlined
def magnitude(x):
    """The bits of |x|, a whole number that grows with |x|: an infinity or NaN is found by it where `kernel` knows of none."""
    return _bits_of_float(x) & np.int32(0x7FFFFFFF)


@inlined
def within(place, size):
    """place, unless it is no index into `size` elements: read without a sign, what is negative is large."""
    if np.uint64(place) >= np.uint64(size):
        raise IndexError("an index is out of bounds: it was changed after the forward pass had looked at it")
    return place


@intrinsic
def larger(typing_context, a, b):
    """The larger of two float32, in a form of which the compiler makes vectors in a loop, as it does not of `max`."""

    def generate(context, builder, signature, arguments):
        number = ir.FloatType()
        function = ir.FunctionType(number, [number, number])
        maxnum = cgutils.get_or_insert_function(builder.module, function, "llvm.maxnum.f32")
        return builder.call(maxnum, arguments, fastmath=("nnan", "nsz"))

    return types.float32(types.float32, types.float32), generate


@inlined
def exp(x):
    """e**x for float32 x, by 2**n times a polynomial on [-ln2/2, ln2/2]; 0 below -87.3, inf above 88.3."""
    given = x
    x = min(max(x, np.float32(-87.33)), np.float32(88.37))
    n = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    value = p * float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))
    value = np.float32(0.0) if given < np.float32(-87.33) else value
    return np.float32(np.inf) if given > np.float32(88.37) else value


@inlined
def erf(x):
    """The error function for float32 x, by the rational approximation of mytorch/numerics/special.py."""
    x = min(max(x, np.float32(-4.0)), np.float32(4.0))
    s = x * x
    p = np.float32(-2.72614225801306e-10)
    p = p * s + np.float32(2.77068142495902e-08)
    p = p * s + np.float32(-2.10102402082508e-06)
    p = p * s + np.float32(-5.69250639462346e-05)
    p = p * s + np.float32(-7.34990630326855e-04)
    p = p * s + np.float32(-2.95459980854025e-03)
    p = p * s + np.float32(-1.60960333262415e-02)
    q = np.float32(-1.45660718464996e-05)
    q = q * s + np.float32(-2.13374055278905e-04)
    q = q * s + np.float32(-1.68282697438203e-03)
    q = q * s + np.float32(-7.37332916720468e-03)
    q = q * s + np.float32(-1.42647390514189e-02)
    return x * p / q


def flat(x):
    """x as one contiguous axis; a copy only where its strides demand it."""
    return np.ascontiguousarray(x).reshape(-1)


def each(loop, *arrays, constants=()):
    """What an elementwise loop, which is given the constants as float32, makes of arrays of one shape: a new one."""
    flats = [flat(a) for a in arrays]
    out = np.empty_like(flats[-1])
    split(loop, out.size, (*flats, out), *map(np.float32, constants))
    return out.reshape(arrays[-1].shape)


def is_float32(*arrays):
    """Whether every array that is given is float32."""
    for a in arrays:
        if a is not None and a.dtype != np.float32:
            return False
    return True
