"""Helpers that the Triton kernels share: dtype checks, block sizes, constants, random bits, views as rows."""

import math

import triton
import triton.language as tl

from ..launch import INTERPRET, power_of_2

FLOATS = ("float32", "float16", "bfloat16")
LONGEST = 16384  # longest row, in elements, that a program holds in registers; longer rows use a loop
LOG2E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x LOG2E): GPUs have an instruction for powers of 2
LN2 = tl.constexpr(math.log(2))


def is_float(*arrays):
    """Returns True if every array that is not None is float32, float16 or bfloat16."""
    return all(a is None or a.dtype.name in FLOATS for a in arrays)


def one_dtype(*arrays):
    """Returns True if the arrays that are not None are floats of one dtype."""
    present = [a for a in arrays if a is not None]
    return is_float(*present) and all(a.dtype == present[0].dtype for a in present)


def is_mask(mask):
    """Returns True if the kernels support the attention mask: None, bool, or floats to add."""
    return mask is None or mask.dtype == bool or is_float(mask)


def contiguous(xp, x):
    """Returns x in C order, copied only if necessary; None for None."""
    return None if x is None else xp.ascontiguousarray(x)


def strides_of(x):
    """Returns the strides of x in elements."""
    return [s // x.itemsize for s in x.strides]


def rows_of(xp, x, width):
    """Returns x as a contiguous matrix (rows, width)."""
    return contiguous(xp, x).reshape(math.prod(x.shape) // max(width, 1), width)


def shaped(x, shapes, i):
    """Returns x in the i-th shape. No view is made if x has this shape, since a parameter's gradient that is a view is copied."""
    return x if x is None or x.shape == tuple(shapes[i]) else x.reshape(shapes[i])


def row_blocks(width, longest=LONGEST):
    """Returns the block sizes of a kernel that works on rows.

    Returns:
        ROWS, BLOCK: the tile; ONE: True if a row fits into one block; num_warps.
    """
    block = power_of_2(max(width, 16))
    one = block <= longest
    block = block if one else min(longest, 4096)
    rows = max(1, 1024 // block)  # short rows share a program, which then has about 1024 elements
    # About 512 elements per warp: 16 for each of its 32 threads.
    return {"ROWS": rows, "BLOCK": block, "ONE": one, "num_warps": min(max(rows * block // 512, 2), 16)}


def one_program(count):
    """Returns the block of a single program that sums `count` numbers: large, since the program waits for memory once per block."""
    block = min(power_of_2(max(count, 128)), 16384)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 32)}


INTERPRETED = tl.constexpr(INTERPRET)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """Returns acc + a @ b, accumulated in float32.

    Triton's interpreter multiplies bfloat16 numbers as their bits, so it gets float32.
    """
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def running_softmax(peak, total, x, axis: tl.constexpr):
    """Adds the block x to the running maximum m and the running sum of exp(x - m) of each row (online softmax).

    Milakov and Gimelshein, 2018. The reduced axis is kept with size 1.
    """
    higher = tl.maximum(peak, tl.max(x, axis=axis, keep_dims=True))
    # A row that is fully masked so far has the maximum -inf, and -inf - -inf would be NaN.
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    e = tl.exp2((x - safe) * LOG2E)
    # Rescale the old sum to the new maximum: sum exp(x - m') = exp(m - m') sum exp(x - m).
    return higher, total * tl.exp2((peak - safe) * LOG2E) + tl.sum(e, axis=axis, keep_dims=True)


@triton.jit
def uniform4(seed, counter, call, stream):
    """Returns four blocks of 32 random bits for each counter, by Philox 4x32.

    The same (seed, call, stream, counter) gives the same bits, so backward computes the mask again instead of
    reading it from memory. Seven rounds pass BigCrush (Salmon et al., 2011).
    """
    zero = counter * 0
    # The 128-bit counter: (element, call, stream, 0). Adding to `zero` broadcasts the scalars to the shape of counter.
    words = counter.to(tl.uint32), (zero + call).to(tl.uint32), (zero + stream).to(tl.uint32), zero.to(tl.uint32)
    return tl.philox(seed, words[0], words[1], words[2], words[3], 7)


def threshold(p):
    """Returns the threshold in [0, 2^32): an element is dropped if its 32 random bits are below it."""
    return min(int(p * 2.0**32), 2**32 - 1)
