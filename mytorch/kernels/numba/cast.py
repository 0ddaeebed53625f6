"""Conversion between float32 and the 16-bit floats, to nearest, ties to even.

bfloat16 is the upper half of a float32, so integer operations convert it. float16 is converted by the processor's instructions, which
the compiler vectorizes. NumPy converts float16 one number at a time, and most of its time is spent there.
"""

import platform

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ..threads import split
from .common import bits_of_float, float_of_bits, kernel


@intrinsic
def _half_of(typing_context, x):
    """Returns the bits of a float32 rounded to float16."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def _single_of(typing_context, bits):
    """Returns the float16 with the given bits as a float32."""

    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


def _converts_half():
    """Returns True if the processor has instructions for float16. Without them, the compiler would call a function for each number."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return "+f16c" in features.split(",") or platform.machine() in ("aarch64", "arm64")


_NAMES = frozenset({"float32", "bfloat16"} | ({"float16"} if _converts_half() else set()))


@kernel
def _narrowed(bits, out):
    for i in range(out.size):
        u = bits[i]
        # Numba computes with 64 bits. Each value is narrowed before the selection, so that it is vectorized for 32 bits.
        # Add 0x7FFF and the lowest kept bit, then truncate: a carry rounds up, and ties go to even.
        even = np.uint32(u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1)))
        # A NaN keeps its sign and becomes quiet. Rounding it could give infinity.
        nan = np.uint32(u & np.uint32(0x80000000) | np.uint32(0x7FC00000))
        is_nan = np.int32(u & np.uint32(0x7FFFFFFF)) > np.int32(0x7F800000)
        out[i] = np.uint32(nan if is_nan else even) >> np.uint32(16)


@kernel
def _widened(bits, out):
    for i in range(out.size):
        # Exact: bfloat16 is the upper half of float32.
        out[i] = np.uint32(bits[i]) << np.uint32(16)


@kernel
def _halved(bits, out):
    for i in range(out.size):
        out[i] = _half_of(float_of_bits(np.int32(bits[i])))


@kernel
def _from_halves(bits, out):
    for i in range(out.size):
        out[i] = bits_of_float(_single_of(bits[i]))


def accepts(x, dtype):
    """Accepts float32 to a 16-bit float and back, contiguous."""
    names = {x.dtype.name, np.dtype(dtype).name}
    return "float32" in names and len(names) == 2 and names <= _NAMES and x.flags.c_contiguous


def forward(xp, x, dtype):
    """Returns x converted to `dtype`."""
    out = np.empty(x.shape, dtype)
    bits, to = (a.reshape(-1).view(np.uint16 if a.itemsize == 2 else np.uint32) for a in (x, out))
    loops = (_narrowed, _widened) if "bfloat16" in (x.dtype.name, out.dtype.name) else (_halved, _from_halves)
    split(loops[out.itemsize == 4], out.size, (bits, to))
    return out


def floats(x):
    """Returns float32 numbers from float32, float16 or the bits of float16 (int16), contiguous."""
    if x.dtype == np.float32:
        return x
    x = x.view(np.float16)
    return forward(np, x, np.float32) if "float16" in _NAMES else x.astype(np.float32)


def bits_of_halves(x):
    """Returns contiguous float16 numbers as their bits, which Numba supports, or as float32 if the processor cannot convert them."""
    return x.view(np.int16) if x.dtype == np.float16 and "float16" in _NAMES else floats(x)
