"""Random numbers in one launch: the functions of `mytorch/numerics/philox.py`, number for number.

Each counter of Philox gives four words of 32 bits; a program makes BLOCK counters' numbers and writes them side by side: four
numbers for each counter, or two of 64 bits. Uniform numbers and integers equal the reference's bit for bit, normal ones to
the rounding of the logarithm and the sine.

Bounds and parameters travel as the 64 bits of a float64, since Triton takes floats in float32.
Grid: a program for each BLOCK counters. Arithmetic: float32, for float64 numbers float64.
Arguments: out_ptr (count,), state_ptr (2,) int64: seed and offset; call: the number of the draw.
"""

import math
import struct

import triton
import triton.language as tl

from ...numerics.philox import bits_of
from ..launch import cdiv, launch

BLOCK = 256
TWO_PI = tl.constexpr(2 * math.pi)
ULP_32, ULP_53 = tl.constexpr(2.0**-32), tl.constexpr(2.0**-53)  # steps between uniform numbers of 32 and of 53 bits


@triton.jit
def _words(state_ptr, call, BLOCK: tl.constexpr):
    """The four words of this program's counters, uint32 (BLOCK,) each."""
    counter = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    zero = counter * 0
    return tl.philox(
        tl.load(state_ptr), counter.to(tl.uint32), (zero + call).to(tl.uint32),
        (zero + tl.load(state_ptr + 1)).to(tl.uint32), (counter >> 32).to(tl.uint32), 10,
    )  # fmt: skip


@triton.jit
def _long(high, low):
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def _store(out_ptr, found, count, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Write the program's EACH * BLOCK numbers."""
    place = tl.program_id(0).to(tl.int64) * (EACH * BLOCK) + tl.arange(0, EACH * BLOCK)
    tl.store(out_ptr + place, found, mask=place < count)


@triton.jit
def _in_order(a, b, c, d):
    """a, b, c, d of the first counter, then those of the second, …"""
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit
def _float64(bits):
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def _ranged(unit, low, width, high, out_ptr, PLAIN: tl.constexpr):
    """unit * width + low in the dtype written; low where that was rounded up to high."""
    if PLAIN:
        return unit.to(out_ptr.dtype.element_ty)
    else:
        kind = unit.dtype
        dtype = out_ptr.dtype.element_ty
        start = (tl.zeros_like(unit) + _float64(low).to(kind)).to(dtype)
        end = (tl.zeros_like(unit) + _float64(high).to(kind)).to(dtype)
        out = (unit * _float64(width).to(kind) + _float64(low).to(kind)).to(dtype)
        return tl.where(out == end, start, out)


@triton.jit(do_not_specialize=["call", "low", "width", "high"])
def _uniform(out_ptr, state_ptr, call, low, width, high, count,
             BITS: tl.constexpr, PLAIN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Uniform numbers of BITS bits in [low, high), width = high - low; PLAIN: in [0, 1)."""
    a, b, c, d = _words(state_ptr, call, BLOCK)
    if BITS == 53:
        both = tl.interleave(_long(a, b), _long(c, d)) >> 11
        unit = both.to(tl.float64) * ULP_53
        _store(out_ptr, _ranged(unit, low, width, high, out_ptr, PLAIN), count, 2, BLOCK)
    else:
        four = _in_order(a, b, c, d) >> (32 - BITS)
        unit = four.to(tl.float32) * (1.0 / (1 << BITS))
        _store(out_ptr, _ranged(unit, low, width, high, out_ptr, PLAIN), count, 4, BLOCK)


@triton.jit
def _pair(a, b):
    """Two normal numbers of two words, in float32."""
    radius = tl.sqrt(-2.0 * tl.log(a.to(tl.float32) * ULP_32 + 0.5 * ULP_32))
    angle = (b.to(tl.float32) * ULP_32) * TWO_PI
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit(do_not_specialize=["call", "mean", "std"])
def _normal(out_ptr, state_ptr, call, mean, std, count, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Normal numbers by Box and Muller; WIDE: in float64, two a counter."""
    a, b, c, d = _words(state_ptr, call, BLOCK)
    dtype = out_ptr.dtype.element_ty
    if WIDE:
        first = ((_long(a, b) >> 11).to(tl.float64) + 0.5) * ULP_53
        angle = (((_long(c, d) >> 11).to(tl.float64) + 0.5) * ULP_53) * TWO_PI
        radius = tl.sqrt(-2.0 * tl.log(first))
        both = tl.interleave(radius * tl.cos(angle), radius * tl.sin(angle))
        _store(out_ptr, (both * _float64(std) + _float64(mean)).to(dtype), count, 2, BLOCK)
    else:
        a, b = _pair(a, b)
        c, d = _pair(c, d)
        four = _in_order(a, b, c, d)
        out = four * _float64(std).to(tl.float32) + _float64(mean).to(tl.float32)
        _store(out_ptr, out.to(dtype), count, 4, BLOCK)


@triton.jit(do_not_specialize=["call", "low", "span"])
def _integers(out_ptr, state_ptr, call, low, span, count, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Integers in [low, low + span); WHOLE: all of int64."""
    a, b, c, d = _words(state_ptr, call, BLOCK)
    both = tl.interleave(_long(a, b), _long(c, d))
    if not WHOLE:
        both = both % span.to(tl.int64).to(tl.uint64)
    _store(out_ptr, both.to(tl.int64) + low.to(tl.int64), count, 2, BLOCK)


def _bits(number):
    """The bits of a float64 as an int64."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


def _run(kernel, out, each, state, call, *parameters, **constants):
    launch(
        kernel, (cdiv(out.size, each * BLOCK),), out, state, call, *parameters, out.size, **constants, BLOCK=BLOCK,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def uniform(xp, state, call, shape, dtype, low=0.0, high=1.0):
    """Uniform numbers in [low, high), in float16, bfloat16, float32 or float64."""
    bits = bits_of(dtype)
    bounds = _bits(low), _bits(high - low), _bits(high)
    plain = low == 0.0 and high == 1.0
    return _run(_uniform, xp.empty(shape, dtype), 2 if bits == 53 else 4, state, call, *bounds, BITS=bits, PLAIN=plain)


def normal(xp, state, call, shape, dtype, mean=0.0, std=1.0):
    """Normal numbers, in float16, bfloat16, float32 or float64."""
    wide = dtype.name == "float64"
    return _run(_normal, xp.empty(shape, dtype), 2 if wide else 4, state, call, _bits(mean), _bits(std), WIDE=wide)


def integers(xp, state, call, shape, low, span):
    """Whole numbers in [low, low + span), int64; a span of 2^64 takes all of them."""
    whole = span == 1 << 64
    signed = span - (1 << 64) if span >= 1 << 63 else span
    return _run(_integers, xp.empty(shape, "int64"), 2, state, call, low, 1 if whole else signed, WHOLE=whole)
