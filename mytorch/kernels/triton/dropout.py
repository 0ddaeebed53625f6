"""Dropout whose mask is never stored: backward generates the same random bits again with Philox.

Random numbers depend on (seed, offset), two int64 in device memory, and on `call`, the number of the call. A training step that
was captured into a CUDA graph draws new masks at each replay, if the graph increments the offset. Forward and
backward of one step use the same mask. An element is dropped if its 32 random bits are below p * 2^32, and the
other elements are scaled by 1 / (1 - p).

Grid: one program for each four blocks, since each Philox counter gives four numbers. Saved for backward: nothing, since
gx = g * mask and the mask is generated again.
"""

import triton
import triton.language as tl

from ...arrays import xp_of
from ..launch import cdiv, launch
from .common import contiguous, is_float, threshold, uniform4

BLOCK = 512


@triton.jit
def _block(x_ptr, out_ptr, index, bits, limit, scale, count):
    """Applies dropout to one block with the given random bits."""
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
    out = tl.where(bits.to(tl.uint32) >= limit.to(tl.uint32), x * scale, 0.0)
    tl.store(out_ptr + index, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["call", "limit"])
def _dropout(x_ptr, out_ptr, state_ptr, call, limit, scale, count, BLOCK: tl.constexpr):
    """Applies dropout to four blocks of `count` elements. state_ptr (2,) int64: seed and offset."""
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    seed = tl.load(state_ptr)
    offset = tl.load(state_ptr + 1)
    # The four numbers of a counter belong to four blocks, so that each block is stored contiguously.
    a, b, c, d = uniform4(seed, program * BLOCK + lane, call, offset)
    index = program * (4 * BLOCK) + lane
    _block(x_ptr, out_ptr, index, a, limit, scale, count)
    _block(x_ptr, out_ptr, index + BLOCK, b, limit, scale, count)
    _block(x_ptr, out_ptr, index + 2 * BLOCK, c, limit, scale, count)
    _block(x_ptr, out_ptr, index + 3 * BLOCK, d, limit, scale, count)


def apply(xp, x, p, state, call):
    """Returns x with elements zeroed with probability p and the others times 1 / (1 - p).

    Called with the gradient and the same state and call, it computes its own backward.

    Args:
        state: int64 (2,), seed and offset, on x's device.
        call: the number of the draw at this offset, below 2^31.
    """
    if p >= 1.0:
        return xp.zeros_like(x)
    flat = contiguous(xp, x)
    out = xp.empty_like(flat)
    grid, numbers = (cdiv(x.size, 4 * BLOCK),), (call, threshold(p), 1.0 / (1.0 - p), x.size)
    launch(_dropout, grid, flat, out, state, *numbers, BLOCK=BLOCK, num_warps=4)
    return out


# -- kernel of the op: mask is a Draw of ops/dropout.py, or an array that was drawn -------------------------------------

draws = True  # the kernel generates its own random bits


def mask(p, state, call, shape, dtype):
    """Returns the mask that `apply` multiplies by, as an array."""
    xp = xp_of(state)
    return apply(xp, xp.ones(shape, dtype), p, state, call)


def accepts(input, *, mask):
    """Accepts floats with a mask that is not drawn yet."""
    return is_float(input) and hasattr(mask, "arguments")


def forward(xp, input, *, mask):
    """Returns the input with elements dropped."""
    return apply(xp, input, *mask.arguments)


def vjp(g, mask, xp):
    """Returns the gradient of the input."""
    return (apply(xp, g, *mask.arguments),)
