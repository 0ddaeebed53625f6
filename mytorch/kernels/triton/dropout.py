"""Dropout whose mask is never stored: Philox makes the same random bits again in backward.

Random numbers come from (seed, offset), two int64 in device memory, and `call`, a number of the call's own. So a
training step that was captured into a CUDA graph draws new masks at each replay if the offset is raised there,
while forward and backward of one step agree. An element is dropped where its 32 random bits lie below p * 2^32,
and the others are scaled by 1 / (1 - p).

Grid: a program for each four blocks, since each counter of Philox gives four numbers. Kept for backward: nothing, as
gx = g * mask and the mask is made again.
"""

import triton
import triton.language as tl

from ...backend import xp_of
from ..launch import cdiv, launch
from .common import contiguous, is_float, threshold, uniform4

BLOCK = 512


@triton.jit
def _block(x_ptr, out_ptr, place, bits, limit, scale, count):
    """One block, by its random bits."""
    inside = place < count
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    out = tl.where(bits.to(tl.uint32) >= limit.to(tl.uint32), x * scale, 0.0)
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["call", "limit"])
def _dropout(x_ptr, out_ptr, state_ptr, call, limit, scale, count, BLOCK: tl.constexpr):
    """Four blocks of `count` elements; state_ptr (2,) int64: seed and offset."""
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    seed = tl.load(state_ptr)
    offset = tl.load(state_ptr + 1)
    a, b, c, d = uniform4(seed, program * BLOCK + lane, call, offset)
    place = program * (4 * BLOCK) + lane
    _block(x_ptr, out_ptr, place, a, limit, scale, count)
    _block(x_ptr, out_ptr, place + BLOCK, b, limit, scale, count)
    _block(x_ptr, out_ptr, place + 2 * BLOCK, c, limit, scale, count)
    _block(x_ptr, out_ptr, place + 3 * BLOCK, d, limit, scale, count)


def apply(xp, x, p, state, call):
    """x with elements zeroed with probability p and the others times 1 / (1 - p).

    Called with the gradient, and the same state and call, this is its own backward.

    Args:
        state: int64 (2,), seed and offset, on x's device.
        call: which of the draws at this offset; below 2^31.
    """
    if p >= 1.0:
        return xp.zeros_like(x)
    flat = contiguous(xp, x)
    out = xp.empty_like(flat)
    grid, numbers = (cdiv(x.size, 4 * BLOCK),), (call, threshold(p), 1.0 / (1.0 - p), x.size)
    launch(_dropout, grid, flat, out, state, *numbers, BLOCK=BLOCK, num_warps=4)
    return out


# -- as a kernel of the op: mask is a Draw of ops/dropout.py, or an array that was drawn --------------------------------

draws = True  # it makes its own random bits


def mask(p, state, call, shape, dtype):
    """The mask that `apply` multiplies by, as an array."""
    xp = xp_of(state)
    return apply(xp, xp.ones(shape, dtype), p, state, call)


def accepts(input, *, mask):
    """Floats, with a mask that is still to be drawn."""
    return is_float(input) and hasattr(mask, "arguments")


def forward(xp, input, *, mask):
    """input with elements dropped."""
    return apply(xp, input, *mask.arguments)


def vjp(g, mask, xp):
    """The gradient of input."""
    return (apply(xp, g, *mask.arguments),)
