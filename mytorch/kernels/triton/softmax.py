"""Softmax and log-softmax along the last axis: the kernel to read first.

A GPU runs many *programs* of one kernel side by side. Each knows its number (`tl.program_id`) and works
on a *block* of elements at once: `tl.arange(0, BLOCK)` are the positions within it, `tl.load` fetches a whole
block from memory into registers, reductions like `tl.max` run over it. Blocks are powers of 2; where the
row ends earlier, a mask keeps loads and stores inside it, and `other=-inf` fills in what changes no maximum
and adds nothing to a sum.

Softmax is bound by memory: 2 bytes moved per flop. So the row is read once, stays in registers for maximum,
exponentials and sum, and is written once. That is the whole point of fusing. A program takes ROWS rows of a
tile (ROWS, BLOCK), several if they are short. A row longer than a block can't stay: it is read twice, the
first time for a running maximum m and sum s, which are mended whenever the maximum grows:

    m' = max(m, max(x)),   s' = s * exp(m - m') + sum(exp(x - m')).

Exponentials are powers of 2, which is what the hardware has: exp(x) = 2^(x * log2(e)).

Backward needs the output alone, p = softmax(x):   gx_j = p_j * (g_j - sum_k g_k p_k),
and for log-softmax, l = out:                      gx_j = g_j - exp(l_j) * sum_k g_k.

Grid: one program for each ROWS rows. Kept for backward: the output. Accumulation: float32.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch
from .common import contiguous, is_float, row_blocks, rows_of

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _scores(x_ptr, mask_ptr, row, cols, inside, width, heads, length, stride_b, stride_h, stride_q, stride_k,
            CAUSAL: tl.constexpr, MASK: tl.constexpr):  # fmt: skip
    """A block of rows as float32, with -inf where nothing may be attended to; MASK: 0 none, 1 bool, 2 to add."""
    x = tl.load(x_ptr + row.to(tl.int64) * width + cols, mask=inside, other=float("-inf")).to(tl.float32)
    query = row % length
    if CAUSAL:
        x = tl.where(cols <= query, x, float("-inf"))
    if MASK != 0:
        above = row // length
        place = (above // heads).to(tl.int64) * stride_b + (above % heads) * stride_h + query * stride_q + cols * stride_k
        if MASK == 1:
            x = tl.where(tl.load(mask_ptr + place, mask=inside, other=0) != 0, x, float("-inf"))
        else:
            x += tl.load(mask_ptr + place, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _forward(x_ptr, out_ptr, mask_ptr, rows, width, heads, length, stride_b, stride_h, stride_q, stride_k,
             LOG: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    out_row = out_ptr + row.to(tl.int64) * width
    if ONE:
        inside = (row < rows) & (cols < width)
        x = _scores(x_ptr, mask_ptr, row, cols, inside, width, heads, length, stride_b, stride_h, stride_q, stride_k, CAUSAL, MASK)
        peak = tl.max(x, axis=1, keep_dims=True)
        if CAUSAL or MASK != 0:
            peak = tl.where(peak == float("-inf"), 0.0, peak)
        e = tl.exp2((x - peak) * LOG2E)
        total = tl.sum(e, axis=1, keep_dims=True)
        if LOG:
            out = x - peak - tl.log2(total) * LN2
        else:
            if CAUSAL or MASK != 0:
                total = tl.where(total == 0.0, 1.0, total)  # a row that may see nothing gives zeros
            out = e / total
        tl.store(out_row + cols, out.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        peak = tl.full((ROWS, 1), float("-inf"), tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _scores(x_ptr, mask_ptr, row, start + cols, inside, width, heads, length, stride_b, stride_h, stride_q, stride_k, CAUSAL, MASK)
            higher = tl.maximum(peak, tl.max(x, axis=1, keep_dims=True))
            still = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp2((peak - still) * LOG2E) + tl.sum(tl.exp2((x - still) * LOG2E), axis=1, keep_dims=True)
            peak = higher
        if CAUSAL or MASK != 0:
            peak = tl.where(peak == float("-inf"), 0.0, peak)
            if not LOG:
                total = tl.where(total == 0.0, 1.0, total)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _scores(x_ptr, mask_ptr, row, start + cols, inside, width, heads, length, stride_b, stride_h, stride_q, stride_k, CAUSAL, MASK)
            if LOG:
                out = x - peak - tl.log2(total) * LN2
            else:
                out = tl.exp2((x - peak) * LOG2E) / total
            tl.store(out_row + start + cols, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, out_ptr, gx_ptr, rows, width,
              LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    place = row.to(tl.int64) * width + cols
    if ONE:
        inside = (row < rows) & (cols < width)
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
        out = tl.load(out_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if LOG:
            gx = g - tl.exp2(out * LOG2E) * tl.sum(g, axis=1, keep_dims=True)
        else:
            gx = out * (g - tl.sum(g * out, axis=1, keep_dims=True))
        tl.store(gx_ptr + place, gx.to(gx_ptr.dtype.element_ty), mask=inside)
    else:
        total = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            g = tl.load(g_ptr + place + start, mask=inside, other=0.0).to(tl.float32)
            if not LOG:
                g *= tl.load(out_ptr + place + start, mask=inside, other=0.0).to(tl.float32)
            total += tl.sum(g, axis=1, keep_dims=True)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            g = tl.load(g_ptr + place + start, mask=inside, other=0.0).to(tl.float32)
            out = tl.load(out_ptr + place + start, mask=inside, other=0.0).to(tl.float32)
            if LOG:
                gx = g - tl.exp2(out * LOG2E) * total
            else:
                gx = out * (g - total)
            tl.store(gx_ptr + place + start, gx.to(gx_ptr.dtype.element_ty), mask=inside)


def masked(xp, input, mask=None, causal=False, log=False):
    """Softmax of scores (B, H, L, S) with a causal mask, a mask, or both.

    Args:
        mask: broadcasts to the scores; bool, True where attention is allowed, or a float to add.
        causal: query i sees keys 0 … i.
        log: give the logarithm.

    Returns:
        (B, H, L, S); a row that may see nothing gives zeros (NaN for the logarithm).
    """
    heads, length, width = input.shape[-3:]
    x = rows_of(xp, input, width)
    out = xp.empty_like(x)
    kind, strides = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == bool else 2
        mask = xp.broadcast_to(mask, (x.shape[0] // (heads * length), heads, length, width))
        strides = tuple(s // mask.itemsize for s in mask.strides)
    blocks = row_blocks(width)
    grid = (cdiv(x.shape[0], blocks["ROWS"]),)
    launch(_forward, grid, x, out, mask, *x.shape, heads, length, *strides, LOG=log, CAUSAL=causal, MASK=kind, **blocks)
    return out.reshape(input.shape)


def run_forward(xp, input, log):
    """Softmax, or its logarithm, along the last axis."""
    x = rows_of(xp, input, input.shape[-1])
    out = xp.empty_like(x)
    blocks = row_blocks(x.shape[1])
    grid = (cdiv(x.shape[0], blocks["ROWS"]),)
    launch(_forward, grid, x, out, None, *x.shape, 1, 1, 0, 0, 0, 0, LOG=log, CAUSAL=False, MASK=0, **blocks)
    return out.reshape(input.shape)


def run_backward(xp, g, out, log):
    """The gradient of the input from the output; the masks left their zeros in it."""
    y = rows_of(xp, out, out.shape[-1])
    gx = xp.empty_like(y)
    blocks = row_blocks(y.shape[1], 8192)
    grid = (cdiv(y.shape[0], blocks["ROWS"]),)
    launch(_backward, grid, contiguous(xp, g), y, gx, *y.shape, LOG=log, **blocks)
    return gx.reshape(out.shape)


def accepts(input, *, dim):
    """Floats, along the last axis, of which there is something."""
    return is_float(input) and input.ndim > 0 and dim == input.ndim - 1 and input.size > 0


def pays(input, *, dim):
    """Always: one launch where the reference takes five."""
    return True


def forward(xp, input, *, dim):
    """exp(x - max) / sum, row by row."""
    return run_forward(xp, input, log=False)


def vjp(g, out, dim, xp):
    """The gradient of input."""
    return (run_backward(xp, g, out, log=False),)
