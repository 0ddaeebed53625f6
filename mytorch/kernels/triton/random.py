"""Random numbers in one launch, equal to the numbers of `mytorch/arrays/philox.py`.

Each Philox counter gives four 32-bit words. A program generates the numbers of BLOCK counters and stores them contiguously:
four numbers per counter, or two of 64 bits. Uniform numbers and integers are bitwise equal to the reference. Normal numbers
differ by the rounding of the logarithm and the sine.

Bounds and parameters are passed as the 64 bits of a float64, since Triton passes float arguments as float32.
Grid: one program for each BLOCK counters. Arithmetic: float32, for float64 numbers float64.
Arguments: out_ptr (count,), state_ptr (2,) int64: seed and offset; call: the number of the draw.
"""

import math
import struct

import triton
import triton.language as tl

from ...arrays.philox import bits_of
from ..launch import cdiv, launch

BLOCK = 256  # counters of a program
TWO_PI = tl.constexpr(2 * math.pi)
ULP_32, ULP_53 = tl.constexpr(2.0**-32), tl.constexpr(2.0**-53)  # steps between uniform numbers of 32 and of 53 bits


@triton.jit
def _words(state_ptr, call, BLOCK: tl.constexpr):
    """Returns four uint32 (BLOCK,) blocks, the numbers of this program's counters."""
    counter = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    zero = counter * 0
    # Philox 4x32 with 10 rounds. The counter words: low index, call, offset, high index.
    return tl.philox(
        tl.load(state_ptr), counter.to(tl.uint32), (zero + call).to(tl.uint32),
        (zero + tl.load(state_ptr + 1)).to(tl.uint32), (counter >> 32).to(tl.uint32), 10,
    )  # fmt: skip


@triton.jit
def _long(high, low):
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def _store(out_ptr, numbers, count, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Stores the program's EACH * BLOCK numbers."""
    index = tl.program_id(0).to(tl.int64) * (EACH * BLOCK) + tl.arange(0, EACH * BLOCK)
    tl.store(out_ptr + index, numbers, mask=index < count)


@triton.jit
def _in_order(a, b, c, d):
    """Returns a, b, c, d of the first counter, then of the second counter, …"""
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit
def _float64(bits):
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def _ranged(unit, low, width, high, out_ptr, PLAIN: tl.constexpr):
    """Returns unit * width + low in the output dtype, with results that round up to `high` replaced by `low`."""
    if PLAIN:
        return unit.to(out_ptr.dtype.element_ty)
    else:
        unit_dtype = unit.dtype
        dtype = out_ptr.dtype.element_ty
        start = (tl.zeros_like(unit) + _float64(low).to(unit_dtype)).to(dtype)
        end = (tl.zeros_like(unit) + _float64(high).to(unit_dtype)).to(dtype)
        out = (unit * _float64(width).to(unit_dtype) + _float64(low).to(unit_dtype)).to(dtype)
        return tl.where(out == end, start, out)


@triton.jit(do_not_specialize=["call", "low", "width", "high"])
def _uniform(out_ptr, state_ptr, call, low, width, high, count,
             BITS: tl.constexpr, PLAIN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Stores uniform numbers of BITS bits in [low, high), width = high - low. PLAIN: in [0, 1)."""
    a, b, c, d = _words(state_ptr, call, BLOCK)
    if BITS == 53:
        # 53 bits, the precision of float64: exact multiples of 2^-53.
        both = tl.interleave(_long(a, b), _long(c, d)) >> 11
        unit = both.to(tl.float64) * ULP_53
        _store(out_ptr, _ranged(unit, low, width, high, out_ptr, PLAIN), count, 2, BLOCK)
    else:
        # As many bits as the dtype's significand, so that the result is exact and below 1.
        four = _in_order(a, b, c, d) >> (32 - BITS)
        unit = four.to(tl.float32) * (1.0 / (1 << BITS))
        _store(out_ptr, _ranged(unit, low, width, high, out_ptr, PLAIN), count, 4, BLOCK)


@triton.jit
def _pair(a, b):
    """Returns two normal numbers from two words, in float32 (Box and Muller)."""
    # The uniform number is shifted by half a step, so the logarithm never gets 0.
    radius = tl.sqrt(-2.0 * tl.log(a.to(tl.float32) * ULP_32 + 0.5 * ULP_32))
    angle = (b.to(tl.float32) * ULP_32) * TWO_PI
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit(do_not_specialize=["call", "mean", "std"])
def _normal(out_ptr, state_ptr, call, mean, std, count, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Stores normal numbers by Box and Muller. WIDE: in float64, two per counter."""
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
    """Stores integers in [low, low + span). WHOLE: the whole range of int64."""
    a, b, c, d = _words(state_ptr, call, BLOCK)
    both = tl.interleave(_long(a, b), _long(c, d))
    if not WHOLE:
        # 64 random bits modulo the span: the bias is below span / 2^64.
        both = both % span.to(tl.int64).to(tl.uint64)
    _store(out_ptr, both.to(tl.int64) + low.to(tl.int64), count, 2, BLOCK)


def _bits(number):
    """Returns the bits of a float64 as an int64."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


def _run(kernel, out, each, state, call, *parameters, **constants):
    launch(
        kernel, (cdiv(out.size, each * BLOCK),), out, state, call, *parameters, out.size, **constants, BLOCK=BLOCK,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def uniform(xp, state, call, shape, dtype, low=0.0, high=1.0):
    """Returns uniform numbers in [low, high), in float16, bfloat16, float32 or float64."""
    bits = bits_of(dtype)
    bounds = _bits(low), _bits(high - low), _bits(high)
    plain = low == 0.0 and high == 1.0
    return _run(_uniform, xp.empty(shape, dtype), 2 if bits == 53 else 4, state, call, *bounds, BITS=bits, PLAIN=plain)


def normal(xp, state, call, shape, dtype, mean=0.0, std=1.0):
    """Returns normal numbers, in float16, bfloat16, float32 or float64."""
    wide = dtype.name == "float64"
    return _run(_normal, xp.empty(shape, dtype), 2 if wide else 4, state, call, _bits(mean), _bits(std), WIDE=wide)


def integers(xp, state, call, shape, low, span):
    """Returns int64 integers in [low, low + span). A span of 2^64 is the whole range."""
    whole = span == 1 << 64
    # The kernel receives the span as int64 and reads its bits as uint64.
    signed = span - (1 << 64) if span >= 1 << 63 else span
    return _run(_integers, xp.empty(shape, "int64"), 2, state, call, low, 1 if whole else signed, WHOLE=whole)
