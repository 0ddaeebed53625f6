"""Helpers that the Numba kernels share: compiler settings, and exp and erf in a form that the compiler vectorizes.

A kernel is compiled for one thread, and `kernels/threads.py` divides its work into chunks. Its loops run from 0 over
whole arrays, because an index that may be negative prevents vectorization.

`math.exp` calls the C library for one number at a time, which cannot be vectorized. A polynomial can. The errors of `exp`
and `erf` here are about two units in the last place of float32.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..threads import split
from . import progress  # noqa: F401  (it shows what is being compiled)
from .cache import cached

# LLVM's fast-math flags. Without `ninf`, infinities have their usual meaning. `reassoc` lets sums be vectorized.
_FAST = {"nnan", "nsz", "arcp", "contract", "afn", "reassoc"}
_FLOAT32 = np.dtype(np.float32)
_LEAN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
kernel = cached(fastmath=_FAST, **_LEAN)
in_order = cached(fastmath=_FAST - {"reassoc"}, **_LEAN)  # like `kernel`, but keeps the order of products
with_nan = cached(fastmath=_FAST - {"nnan"}, **_LEAN)  # like `kernel`, but tests for NaN work
exact = cached(**_LEAN)  # without fast-math: NaN and the order of additions have their usual meaning
# Functions that only kernels call: no wrapper for Python, which would take as long to compile as a short loop.
_INNER: dict[str, Any] = {**_LEAN, "forceinline": True, "no_cpython_wrapper": True}
inlined = njit(fastmath=_FAST, **_INNER)
exact_inlined = njit(**_INNER)


@intrinsic
def float_of_bits(typing_context, bits):
    """Returns the float32 with the given bits. It is a reinterpretation, which needs no instruction."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic
def _memory_of(typing_context, array, offset):
    """Returns the address of an array of float32 plus `offset` bytes."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        begin = builder.bitcast(data, ir.IntType(8).as_pointer())
        return builder.bitcast(builder.gep(begin, [arguments[1]]), data.type)

    return types.CPointer(types.float32)(array, types.int64), generate


@inlined
def rows_of(x, i, rows, columns):
    """Returns x[i], a contiguous (rows, columns) array, with a type that declares it as contiguous for the compiler."""
    return carray(_memory_of(x, i * x.strides[0]), (rows, columns))


@intrinsic
def bits_of_float(typing_context, x):
    """Returns the bits of a float32 as an int32, without an instruction."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), generate


INFINITE = np.int32(0x7F800000)  # bits of infinity; as integers, NaNs are above and finite magnitudes below


@inlined
def magnitude(x):
    """Returns the bits of |x|, an integer that increases with |x|. It detects infinities and NaN, which `kernel` assumes away."""
    return bits_of_float(x) & np.int32(0x7FFFFFFF)


@inlined
def within(place, size):
    """Returns `place` after a bounds check. As unsigned numbers, negative indices are large, so one comparison is enough."""
    if np.uint64(place) >= np.uint64(size):
        raise IndexError("an index is out of bounds: it was changed after the forward pass had looked at it")
    return place


@intrinsic
def larger(typing_context, a, b):
    """Returns the larger of two float32, as an LLVM intrinsic that is vectorized in loops, unlike `max`."""

    def generate(context, builder, signature, arguments):
        number = ir.FloatType()
        function = ir.FunctionType(number, [number, number])
        maxnum = cgutils.get_or_insert_function(builder.module, function, "llvm.maxnum.f32")
        return builder.call(maxnum, arguments, fastmath=("nnan", "nsz"))

    return types.float32(types.float32, types.float32), generate


@inlined
def _split_exponent(x):
    """Returns (n, e^r - 1) for float32 x in [-87.3, 88.4], with x = n ln2 + r and r in [-ln2/2, ln2/2]."""
    # n is the nearest integer to x / ln2.
    n = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    # Cody-Waite reduction: ln2 in two parts, of which the first has few bits, so that n * ln2 is nearly exact.
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    # Minimax polynomial of Cephes' expf: e^r = 1 + r + r² p(r).
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return n, p * r * r + r


@inlined
def _power_of_two(n):
    """Returns 2^n, by putting n + 127 into the exponent bits."""
    return float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))


@inlined
def exp(x):
    """Returns e**x for float32 x: 2**n times a polynomial on [-ln2/2, ln2/2]; 0 below -87.3, inf above 88.3."""
    n, p = _split_exponent(min(max(x, np.float32(-87.33)), np.float32(88.37)))
    value = (p + np.float32(1.0)) * _power_of_two(n)
    value = np.float32(0.0) if x < np.float32(-87.33) else value
    return np.float32(np.inf) if x > np.float32(88.37) else value


@inlined
def expm1_of_negative(x):
    """Returns e**x - 1 for float32 x <= 0."""
    n, p = _split_exponent(max(x, np.float32(-87.33)))
    power = _power_of_two(n)
    return p if n == np.float32(0.0) else p * power + (power - np.float32(1.0))


@inlined
def log1p_of_exp(x):
    """Returns log(1 + e**x) for float32 x <= 0, as 2 atanh(y / (2 + y)) with y = e**x, by the series of atanh."""
    y = exp(x)
    s = y / (y + np.float32(2.0))
    q = s * s
    p = np.float32(1 / 15)
    for i in range(13, 0, -2):
        p = p * q + np.float32(1 / i)
    return np.float32(2.0) * s * p


@inlined
def erf(x):
    """Returns erf(x) for float32 x, by the rational approximation of mytorch/arrays/special.py."""
    # erf is ±1 in float32 beyond ±4.
    x = min(max(x, np.float32(-4.0)), np.float32(4.0))
    s = x * x
    # Odd numerator x p(x²) over even denominator q(x²).
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
    # The quotient rounds to 1 + 2^-22 for some x, and no distribution function may exceed 1.
    return min(max(x * p / q, np.float32(-1.0)), np.float32(1.0))


def flat(x):
    """Returns x as one contiguous axis, copied only if necessary."""
    return np.ascontiguousarray(x).reshape(-1)


def each(loop, *arrays, constants=()):
    """Returns a new array that an elementwise loop computes from arrays of one shape. Constants are passed as float32."""
    flats = [flat(a) for a in arrays]
    out = np.empty(arrays[-1].shape, arrays[-1].dtype)
    split(loop, out.size, (*flats, out.reshape(-1)), *map(np.float32, constants))
    return out


def is_float32(*arrays):
    """Returns True if every array that is not None is float32."""
    for a in arrays:  # by identity first: a comparison takes as long as the rest of a call
        if a is not None and a.dtype is not _FLOAT32 and a.dtype != _FLOAT32:
            return False
    return True
