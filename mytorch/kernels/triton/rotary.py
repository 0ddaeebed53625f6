"""Rotary position embedding: rotates pairs of a head's elements by an angle proportional to the position.

    out_1 = x_1 cos - x_2 sin,   out_2 = x_2 cos + x_1 sin

Here x_1 and x_2 are the two halves of a head (GPT-NeoX, LLaMA). The gradient of a rotation is its transpose, the inverse rotation:
sin with the opposite sign.

Grid: one program for each ROWS positions of heads. Saved for backward: nothing. Accumulation: float32.
Source: Su et al., 2021.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch, power_of_2
from .common import contiguous, is_float, strides_of


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, out_ptr, count, heads, length, half, stride_xb, stride_xh, stride_xt, stride_xd,
            stride_ob, stride_oh, stride_ot, stride_od, stride_ct,
            BACK: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Rotates ROWS of the B H T rows of x_ptr (B, H, T, D), half = D / 2. cos_ptr, sin_ptr: (positions, D / 2), WHOLE: (…, D)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (lane < half)
    time = (row % length).to(tl.int64)  # int64, because time * stride may exceed 32 bits
    batch_head = row // length
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    cos = tl.load(cos_ptr + time * stride_ct + lane, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + time * stride_ct + lane, mask=inside, other=0.0).to(tl.float32)
    cos2 = cos
    sin2 = sin
    if WHOLE:
        cos2 = tl.load(cos_ptr + time * stride_ct + lane + half, mask=inside, other=0.0).to(tl.float32)
        sin2 = tl.load(sin_ptr + time * stride_ct + lane + half, mask=inside, other=0.0).to(tl.float32)
    # The transposed rotation swaps the two sines and their signs.
    if BACK:
        sin1 = sin
        sin = -sin2
        sin2 = -sin1
    first = lane
    second = lane + half
    x_row = x_ptr + batch * stride_xb + head * stride_xh + time * stride_xt
    out_row = out_ptr + batch * stride_ob + head * stride_oh + time * stride_ot
    a = tl.load(x_row + first * stride_xd, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x_row + second * stride_xd, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_row + first * stride_od, (a * cos - b * sin).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out_row + second * stride_od, (b * cos2 + a * sin2).to(out_ptr.dtype.element_ty), mask=inside)


def fits(x, cos, sin):
    """Returns True for a float array x (B, H, T, D) with even D, and tables of (at least T, D / 2 or D)."""
    if not is_float(x, cos, sin) or x.ndim != 4 or x.shape[3] % 2 or cos.shape != sin.shape or cos.ndim != 2:
        return False
    return cos.shape[1] in (x.shape[3] // 2, x.shape[3]) and cos.shape[0] >= x.shape[2]


def rotate(xp, x, cos, sin, *, back=False):
    """Returns x (B, H, T, D) rotated. x may have any strides, so a transposed (B, T, H, D) needs no copy.

    Args:
        cos, sin: (positions, D / 2); or (positions, D), for the elements of both halves.
        back: rotate in the opposite direction, for the gradient.

    Raises:
        ValueError: tables of the wrong shape.
    """
    if not fits(x, cos, sin):
        raise ValueError(f"rotary: tables of shape {cos.shape} don't fit x of shape {x.shape}; wanted (T, D / 2).")
    batch, heads, length, width = x.shape
    out = xp.empty_like(x)  # empty_like keeps the memory order of x
    cos, sin = contiguous(xp, cos), contiguous(xp, sin)
    block = power_of_2(width // 2)
    rows = max(1, 512 // block)
    count = batch * heads * length
    strides = *strides_of(x), *strides_of(out), cos.shape[1]
    launch(
        _rotate, (cdiv(count, rows),), x, cos, sin, out, count, heads, length, width // 2, *strides,
        BACK=back, WHOLE=cos.shape[1] == width, ROWS=rows, BLOCK=block, num_warps=2,
    )  # fmt: skip
    return out


# -- kernel of the op -------------------------------------------------------------------------------------------------


def _table(table, x):
    """Returns a table that broadcasts to x (B, H, T, D) as (T, D), or None if it differs between samples or heads."""
    shape = (1,) * (4 - table.ndim) + tuple(table.shape)
    return table.reshape(shape[2:]) if shape == (1, 1, *x.shape[2:]) else None


def accepts(input, *, cos, sin):
    """Accepts (B, H, T, D) with the same tables for all samples and heads."""
    if input.ndim != 4 or cos.ndim > 4 or cos.shape != sin.shape:
        return False
    table = _table(cos, input)
    return table is not None and input.size > 0 and fits(input, table, table)


def forward(xp, input, *, cos, sin):
    """Returns the rotated input."""
    return rotate(xp, input, _table(cos, input), _table(sin, input))


def vjp(g, cos, sin, xp):
    """Returns the gradient of the input."""
    return (rotate(xp, g, _table(cos, g), _table(sin, g), back=True),)
