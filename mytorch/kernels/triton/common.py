"""What the Triton kernels share: dtypes, block sizes, constants, random bits, an array as rows."""

import math

import triton
import triton.language as tl

from ..launch import INTERPRET, power_of_2

FLOATS = ("float32", "float16", "bfloat16")
LONGEST = 16384  # elements of a row that are held in registers; longer rows are processed in a loop
LOG2E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x LOG2E): the hardware has powers of 2
LN2 = tl.constexpr(math.log(2))


def is_float(*arrays):
    """Whether every array that is given is float32, float16 or bfloat16."""
    return all(a is None or a.dtype.name in FLOATS for a in arrays)


def one_dtype(*arrays):
    """Whether the arrays that are given are floats of one dtype."""
    given = [a for a in arrays if a is not None]
    return is_float(*given) and all(a.dtype == given[0].dtype for a in given)


def is_mask(mask):
    """Whether it is an attention mask that the kernels take: None, bool, or floats to add."""
    return mask is None or mask.dtype == bool or is_float(mask)


def contiguous(xp, x):
    """x in C order, a copy only where its strides demand it; None for None."""
    return None if x is None else xp.ascontiguousarray(x)


def strides_of(x):
    """The strides of x in elements."""
    return [s // x.itemsize for s in x.strides]


def rows_of(xp, x, width):
    """x as contiguous (rows, width)."""
    return contiguous(xp, x).reshape(math.prod(x.shape) // max(width, 1), width)


def shaped(x, shapes, i):
    """x in the i-th shape; itself if None, or where it has it, since the engine copies a view before a parameter keeps it."""
    return x if x is None or x.shape == tuple(shapes[i]) else x.reshape(shapes[i])


def row_blocks(width, longest=LONGEST):
    """How a kernel that goes through rows cuts them up.

    Returns:
        ROWS, BLOCK: the tile; ONE: whether a row fits into one block; num_warps.
    """
    block = power_of_2(max(width, 16))
    one = block <= longest
    block = block if one else min(longest, 4096)
    rows = max(1, 1024 // block)  # short rows share a program
    return {"ROWS": rows, "BLOCK": block, "ONE": one, "num_warps": min(max(rows * block // 512, 2), 16)}


def one_program(count):
    """The block of a single program that adds up `count` numbers: as wide as it may, since it waits for memory once a block."""
    block = min(power_of_2(max(count, 128)), 16384)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 32)}


INTERPRETED = tl.constexpr(INTERPRET)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a @ b, accumulated in float32. The interpreter multiplies bfloat16 by its bits, so there it is widened."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def running_softmax(peak, total, x, axis: tl.constexpr):
    """The maximum m of a row so far and its sum of exp(x - m), once the block x has joined it (softmax.py); axis is kept."""
    higher = tl.maximum(peak, tl.max(x, axis=axis, keep_dims=True))
    still = tl.where(higher == float("-inf"), 0.0, higher)
    e = tl.exp2((x - still) * LOG2E)
    return higher, total * tl.exp2((peak - still) * LOG2E) + tl.sum(e, axis=axis, keep_dims=True)


@triton.jit
def uniform4(seed, counter, call, stream, rounds: tl.constexpr = 7):
    """Four blocks of 32 random bits for each counter, by Philox.

    The same (seed, call, stream, counter) give the same bits, so backward makes its mask again instead of
    reading it. Seven rounds pass BigCrush (Salmon et al., 2011).
    """
    zero = counter * 0
    words = counter.to(tl.uint32), (zero + call).to(tl.uint32), (zero + stream).to(tl.uint32), zero.to(tl.uint32)
    return tl.philox(seed, words[0], words[1], words[2], words[3], rounds)


def threshold(p):
    """The 32 random bits below which an element is dropped, as an int in [0, 2^32)."""
    return min(int(p * 2.0**32), 2**32 - 1)
