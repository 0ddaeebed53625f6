"""Max and average pooling in one to three dimensions, one pass each for forward and backward.

A window is a product of positions ("taps"), numbered t = (a Kh + b) Kw + c. In forward, each output element has a lane that
loops over the window. For the maximum it saves the number t of the largest element as int16, like the reference.

Backward is a gather instead of a scatter, so it needs no atomics and is deterministic. Each *input* element has a lane
that visits every window containing it, o = (i + padding - t * dilation) / stride where the division is exact. It adds the window's
gradient if the window chose this element (maximum), or always (average).

Grid: one program for each BLOCK elements of the output (forward) or input (backward). Saved for backward: the numbers t
(maximum), nothing (average). Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch
from .common import contiguous, is_float

BLOCK = 512


@triton.jit
def _split(index, sizes):
    """Returns (plane, z, y, x) of a flat index into (planes, D, H, W). sizes: (D, H, W)."""
    depth, height, width = sizes
    x = index % width
    row = index // width
    y = row % height
    row = row // height
    return row // depth, (row % depth).to(tl.int32), y.to(tl.int32), x.to(tl.int32)


@triton.jit
def _forward(x_ptr, out_ptr, chosen_ptr, scale_ptr, size, in_d, in_h, in_w, out_d, out_h, out_w, k_d, k_h, k_w,
             s_d, s_h, s_w, p_d, p_h, p_w, d_d, d_h, d_w, factor, MAX: tl.constexpr, SCALES: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes BLOCK elements of out_ptr (planes, *out) from x_ptr (planes, *in). s, p, d: stride, padding, dilation of each axis.

    MAX: the maxima, with tap numbers in chosen_ptr. Otherwise the sums times `factor`, or (SCALES) times scale_ptr (*out).
    """
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    plane, z, y, x = _split(index, (out_d, out_h, out_w))
    best = tl.full((BLOCK,), float("-inf") if MAX else 0.0, tl.float32)
    best_tap = tl.full((BLOCK,), -1, tl.int32)
    for t in range(k_d * k_h * k_w):
        # Input position of tap t, and a mask for positions in the padding.
        from_z = z * s_d - p_d + t // (k_h * k_w) * d_d
        from_y = y * s_h - p_h + t // k_w % k_h * d_h
        from_x = x * s_w - p_w + t % k_w * d_w
        valid = (
            inside & (from_z >= 0) & (from_z < in_d) & (from_y >= 0) & (from_y < in_h) & (from_x >= 0) & (from_x < in_w)
        )
        source = ((plane * in_d + from_z) * in_h + from_y) * in_w + from_x
        value = tl.load(x_ptr + source, mask=valid, other=0.0).to(tl.float32)
        if MAX:
            # NaN wins, as in PyTorch. The first valid tap always counts, so a window of -inf has an index too.
            better = valid & ((value > best) | (value != value) | (best_tap < 0))
            best = tl.where(better, value, best)
            best_tap = tl.where(better, t, best_tap)
        else:
            best += value
    if MAX:
        tl.store(chosen_ptr + index, best_tap.to(tl.int16), mask=inside)
    elif SCALES:
        best *= tl.load(scale_ptr + index % (out_d * out_h * out_w), mask=inside, other=0.0)
    else:
        best *= factor
    tl.store(out_ptr + index, best.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, chosen_ptr, scale_ptr, gx_ptr, size, in_d, in_h, in_w, out_d, out_h, out_w, k_d, k_h, k_w,
              s_d, s_h, s_w, p_d, p_h, p_w, d_d, d_h, d_w, factor, MAX: tl.constexpr, SCALES: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes BLOCK elements of gx_ptr (planes, *in) from g_ptr and chosen_ptr (planes, *out)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    plane, z, y, x = _split(index, (in_d, in_h, in_w))
    total = tl.zeros((BLOCK,), tl.float32)
    for t in range(k_d * k_h * k_w):
        # The window in which this element is tap t exists if all divisions are exact and in range.
        to_z = z + p_d - t // (k_h * k_w) * d_d
        to_y = y + p_h - t // k_w % k_h * d_h
        to_x = x + p_w - t % k_w * d_w
        valid = (
            inside & (to_z >= 0) & (to_y >= 0) & (to_x >= 0) & (to_z % s_d == 0) & (to_y % s_h == 0) & (to_x % s_w == 0)
        )
        to_z, to_y, to_x = to_z // s_d, to_y // s_h, to_x // s_w
        valid = valid & (to_z < out_d) & (to_y < out_h) & (to_x < out_w)
        window = ((plane * out_d + to_z) * out_h + to_y) * out_w + to_x
        if MAX:
            valid = valid & (tl.load(chosen_ptr + window, mask=valid, other=-1) == t)
        g = tl.load(g_ptr + window, mask=valid, other=0.0).to(tl.float32)
        if SCALES:
            g *= tl.load(scale_ptr + window % (out_d * out_h * out_w), mask=valid, other=0.0)
        total += g
    tl.store(gx_ptr + index, (total * factor).to(gx_ptr.dtype.element_ty), mask=inside)


def _in_three(sizes, filling):
    """Returns the values of one to three axes as three, with leading default values."""
    return (*(filling,) * (3 - len(sizes)), *sizes)


def _geometry(outer, out_size, kernel, stride, padding, dilation):
    """Returns the size arguments of the kernels, each for three axes."""
    rows = (outer, 1), (out_size, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1)
    return [n for row, filling in rows for n in _in_three(row, filling)]


def _run(kernel, arrays, size, geometry, factor, **kinds):
    launch(kernel, (cdiv(size, BLOCK),), *arrays, size, *geometry, float(factor), BLOCK=BLOCK, num_warps=4, **kinds)


def _accepts_max(input, *, out_size, kernel, stride, padding, dilation):
    """Accepts floats that are not empty, with windows that each contain at least one input position."""
    sides = zip(input.shape[2:], kernel, padding, dilation, strict=True)
    known = is_float(input) and input.size > 0 and math.prod(kernel) < 1 << 15  # positions are int16
    return known and all(p <= d * (k - 1) and d <= n for n, k, p, d in sides)


def _max_forward(xp, input, *, out_size, kernel, stride, padding, dilation):
    shape = (*input.shape[:2], *out_size)
    out, chosen = xp.empty(shape, input.dtype), xp.empty(shape, "int16")
    geometry = _geometry(input.shape[2:], out_size, kernel, stride, padding, dilation)
    arrays = contiguous(xp, input), out, chosen, None
    _run(_forward, arrays, out.size, geometry, 1.0, MAX=True, SCALES=False)
    return out, chosen


def _max_vjp(g, chosen, shape, kernel, stride, padding, dilation, xp):
    gx = xp.empty(shape, g.dtype)
    geometry = _geometry(shape[2:], g.shape[2:], kernel, stride, padding, dilation)
    arrays = contiguous(xp, g), contiguous(xp, chosen), None, gx
    _run(_backward, arrays, gx.size, geometry, 1.0, MAX=True, SCALES=False)
    return (gx,)


def _scales(xp, scale):
    """Returns the factor of the windows' sums as (array or None, number, constants of the kernel)."""
    array = xp.ascontiguousarray(xp.asarray(scale, dtype="float32")) if getattr(scale, "ndim", 0) else None
    return array, 1.0 if array is not None else float(scale), {"MAX": False, "SCALES": array is not None}


def _accepts_mean(input, *, out_size, kernel, stride, padding, scale):
    """Accepts floats that are not empty."""
    return is_float(input) and input.size > 0 and math.prod(out_size) > 0


def _mean_forward(xp, input, *, out_size, kernel, stride, padding, scale):
    out = xp.empty((*input.shape[:2], *out_size), input.dtype)
    array, factor, kinds = _scales(xp, scale)
    geometry = _geometry(input.shape[2:], out_size, kernel, stride, padding, (1,) * len(kernel))
    _run(_forward, (contiguous(xp, input), out, None, array), out.size, geometry, factor, **kinds)
    return out


def _mean_vjp(g, shape, kernel, stride, padding, scale, xp):
    gx = xp.empty(shape, g.dtype)
    array, factor, kinds = _scales(xp, scale)
    geometry = _geometry(shape[2:], g.shape[2:], kernel, stride, padding, (1,) * len(kernel))
    _run(_backward, (contiguous(xp, g), None, array, gx), gx.size, geometry, factor, **kinds)
    return (gx,)


max_pool = Kernel(accepts=_accepts_max, forward=_max_forward, vjp=_max_vjp)
avg_pool = Kernel(accepts=_accepts_mean, forward=_mean_forward, vjp=_mean_vjp)
