"""Counter-based random numbers in plain array functions: Philox4x32-10.

A number is a function of a seed, an offset, the number of the draw and the element's index. There is no other state, so any
element of any draw can be computed again, in any order and on any device. Four 32-bit words are computed from each

    counter = (index's low half, call, offset, index's high half),  key = the seed's two halves

and words 4i … 4i+3 of a draw belong to index i. NumPy and CuPy give the same numbers. `kernels/triton/random.py` has the same
three functions, with bitwise equal results, except for the logarithm and sine of normal numbers.

`state` is int64 (2,), seed and offset, in the memory of the device that draws, so a captured CUDA graph reads it at
each replay. `call` is an int in [0, 2^31).

Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011.
"""

import math

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)  # mask of the low 32 bits
_HALF = np.uint64(32)
# Constants of Philox4x32: multipliers of a round, and Weyl increments of the key.
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
TWO_PI = np.float32(2 * math.pi)


def philox(counter, key, rounds=10):
    """Returns four 32-bit words from four counter words and two key words, all as uint64 arrays."""
    a, b, c, d = counter
    k, m = key
    for _ in range(rounds):
        # 64-bit products of 32-bit words: the high half is mixed with a word and the key, the low half is a word.
        first, second = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (second >> _HALF) ^ b ^ k, second & _LOW, (first >> _HALF) ^ d ^ m, first & _LOW
        k, m = (k + _STEPS[0]) & _LOW, (m + _STEPS[1]) & _LOW
    return a, b, c, d


def words(xp, state, call, count):
    """Returns four 32-bit words for each index below `count`, uint64 (count, 4)."""
    seed, offset = state.view(np.uint64)[:1], state.view(np.uint64)[1:]
    index = xp.arange(count, dtype=np.uint64)
    counter = index & _LOW, xp.full(1, call, np.uint64), offset & _LOW, index >> _HALF
    return xp.stack(philox(counter, (seed & _LOW, seed >> _HALF)), axis=1)


def longs(xp, state, call, count):
    """Returns `count` 64-bit words. The first of two 32-bit words is the high half."""
    pairs = words(xp, state, call, -(-count // 2)).reshape(-1, 2)[:count]
    return (pairs[:, 0] << _HALF) | pairs[:, 1]


def bits_of(dtype):
    """Returns the number of random bits of a uniform number of a dtype: the size of its significand."""
    if dtype == np.float64:
        return 53
    return {2: 11 if dtype == np.float16 else 8}.get(dtype.itemsize, 24)


def uniform(xp, state, call, shape, dtype, low=0.0, high=1.0):
    """Returns uniform numbers in [low, high) in a float dtype, computed in float32, or in float64 for float64."""
    count, bits = math.prod(shape), bits_of(dtype)
    if dtype == np.float64:
        compute, bits_drawn = np.float64, longs(xp, state, call, count) >> np.uint64(11)
    else:
        compute, bits_drawn = (
            np.float32,
            words(xp, state, call, -(-count // 4)).reshape(-1)[:count] >> np.uint64(32 - bits),
        )
    unit = bits_drawn.astype(compute) * compute(2.0**-bits)
    if low == 0.0 and high == 1.0:
        return unit.astype(dtype, copy=False).reshape(shape)
    out = (unit * compute(high - low) + compute(low)).astype(dtype, copy=False)
    end, start = np.asarray(high).astype(dtype), np.asarray(low).astype(dtype)
    # Rounding may reach high.
    return xp.where(out == end.item(), start.item(), out).astype(dtype, copy=False).reshape(shape)


def normal(xp, state, call, shape, dtype, mean=0.0, std=1.0):
    """Returns normal numbers in a float dtype by Box and Muller's method, computed in float32, or in float64 for float64."""
    count = math.prod(shape)
    if dtype == np.float64:
        pairs = longs(xp, state, call, count + count % 2).reshape(-1, 2) >> np.uint64(11)
        unit = (pairs.astype(np.float64) + 0.5) * 2.0**-53
        radius, angle = xp.sqrt(-2.0 * xp.log(unit[:, 0])), 2 * math.pi * unit[:, 1]
    else:
        pairs = words(xp, state, call, -(-count // 4)).reshape(-1, 2).astype(np.float32) * np.float32(2.0**-32)
        radius = xp.sqrt(np.float32(-2.0) * xp.log(pairs[:, 0] + np.float32(2.0**-33)))  # never log(0)
        angle = TWO_PI * pairs[:, 1]
    # Two uniform numbers give two independent normal numbers: r cos(angle) and r sin(angle).
    out = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], axis=1).reshape(-1)[:count]
    if std != 1.0:
        out = out * out.dtype.type(std)
    if mean != 0.0:
        out = out + out.dtype.type(mean)
    return out.astype(dtype, copy=False).reshape(shape)


def integers(xp, state, call, shape, low, span):
    """Returns int64 integers in [low, low + span). A span of 2^64 is the whole range."""
    bits = longs(xp, state, call, math.prod(shape))
    if span < 1 << 64:
        bits = bits % np.uint64(span)
    # Unsigned addition wraps around, which gives the right two's complement result.
    return (bits + np.uint64(low % (1 << 64))).view(np.int64).reshape(shape)


def seed_of(seed, call):
    """Returns a 64-bit seed, a function of seed and call, for a generator without counters, as a Python int."""
    halves = [np.array([n & 0xFFFFFFFF], np.uint64) for n in (seed, seed >> 32)]
    a, b, _, _ = philox([np.array([n], np.uint64) for n in (0, call, 0, 0xFFFFFFFF)], halves)
    return int(a[0]) << 32 | int(b[0])
