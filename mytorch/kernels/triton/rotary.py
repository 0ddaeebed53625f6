"""Rotary position embedding: pairs of a head's elements turned by an angle that grows with the position.

    out_1 = x_1 cos - x_2 sin,   out_2 = x_2 cos + x_1 sin

where (x_1, x_2) are the two halves of a head (GPT-NeoX, LLaMA), or neighbours (`interleaved`, GPT-J). A rotation's
gradient is the rotation back: sin with its sign turned.

Grid: a program for each position of each head. Kept for backward: nothing. Accumulation: float32.
Source: Su et al., 2021.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch, power_of_2
from .common import is_float


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, out_ptr, count, heads, length, half, x_b, x_h, x_t, x_d, o_b, o_h, o_t, o_d, c_t, shift,
            BACK: tl.constexpr, INTERLEAVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (lane < half)
    time = row % length
    above = row // length
    batch = (above // heads).to(tl.int64)
    head = above % heads
    cos = tl.load(cos_ptr + (time + shift) * c_t + lane, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + (time + shift) * c_t + lane, mask=inside, other=0.0).to(tl.float32)
    if BACK:
        sin = -sin
    if INTERLEAVED:
        first = 2 * lane
        second = 2 * lane + 1
    else:
        first = lane
        second = lane + half
    at = x_ptr + batch * x_b + head * x_h + time * x_t
    to = out_ptr + batch * o_b + head * o_h + time * o_t
    a = tl.load(at + first * x_d, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + second * x_d, mask=inside, other=0.0).to(tl.float32)
    tl.store(to + first * o_d, (a * cos - b * sin).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(to + second * o_d, (b * cos + a * sin).to(out_ptr.dtype.element_ty), mask=inside)


def accepts(x, cos, sin):
    """Floats; x (B, H, T, D) with an even D, tables (at least T, D / 2)."""
    return is_float(x, cos, sin) and x.ndim == 4 and x.shape[3] % 2 == 0 and cos.shape == sin.shape and cos.shape[1] == x.shape[3] // 2


def rotate(xp, x, cos, sin, *, interleaved=False, shift=0, back=False):
    """x (B, H, T, D) rotated; any strides, so a transposed (B, T, H, D) needs no copy.

    Args:
        cos, sin: (positions, D / 2).
        interleaved: pairs are neighbours rather than the two halves.
        shift: position of the first element, for generation with a cache.
        back: rotate back: the gradient.

    Raises:
        ValueError: tables that don't fit.
    """
    if not accepts(x, cos, sin) or cos.shape[0] < x.shape[2] + shift:
        raise ValueError(f"rotary: tables of shape {cos.shape} don't fit x of shape {x.shape} at shift {shift}; wanted (T, D / 2).")
    batch, heads, length, width = x.shape
    out = xp.empty_like(x)  # with x's layout, as both libraries' empty_like has
    cos, sin = xp.ascontiguousarray(cos), xp.ascontiguousarray(sin)
    block = power_of_2(width // 2)
    rows = max(1, 512 // block)
    count = batch * heads * length
    x_strides = [s // x.itemsize for s in x.strides]
    strides = [s // out.itemsize for s in out.strides]
    launch(
        _rotate, (cdiv(count, rows),), x, cos, sin, out, count, heads, length, width // 2, *x_strides, *strides, width // 2, shift,
        BACK=back, INTERLEAVED=interleaved, ROWS=rows, BLOCK=block, num_warps=2,
    )  # fmt: skip
    return out
