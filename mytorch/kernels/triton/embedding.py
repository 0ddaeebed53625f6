"""Embedding: copies rows of a table, and adds gradients to the rows that were looked up.

out_n = weight[i_n], so the gradient of row v is the sum of g_n over all n with i_n = v.

Backward adds with atomics into a float32 table. Frequent tokens collide, but the indices need not be sorted. If another
layer has already computed a gradient of the same weight, as GPT-2's last layer does, backward adds into that gradient.
The order of summation is unspecified, so the last bits may differ from run to run on a GPU. With
`use_deterministic_algorithms`, the indices are sorted first, and one program sums all rows of one token.

Grid: one program for each looked-up row. Saved for backward: the indices. Accumulation: float32.
Arguments: weight_ptr and out_ptr of backward (V, C), g_ptr and out_ptr of forward (N, C), index_ptr (N,), counts_ptr (V,).
"""

import triton
import triton.language as tl

from ...arrays import config
from ..launch import cdiv, launch, power_of_2
from .common import contiguous, is_float


@triton.jit
def _forward(weight_ptr, index_ptr, out_ptr, width, BLOCK: tl.constexpr):
    """Copies one row of the table. Wide rows are copied in blocks."""
    row = tl.program_id(0).to(tl.int64)
    source = tl.load(index_ptr + row).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    for start in range(0, width, BLOCK):
        inside = start + cols < width
        x = tl.load(weight_ptr + source * width + start + cols, mask=inside)
        tl.store(out_ptr + row * width + start + cols, x, mask=inside)


@triton.jit
def _backward(g_ptr, index_ptr, counts_ptr, out_ptr, width, padding, COUNTS: tl.constexpr, BLOCK: tl.constexpr):
    """Adds a row of g to the row of its token. COUNTS: divided by the number of occurrences of the token."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(index_ptr + row).to(tl.int64)
    if target != padding:
        scale = 1.0
        if COUNTS:
            scale = 1.0 / tl.load(counts_ptr + target).to(tl.float32)
        cols = tl.arange(0, BLOCK)
        for start in range(0, width, BLOCK):
            inside = start + cols < width
            g = tl.load(g_ptr + row * width + start + cols, mask=inside, other=0.0).to(tl.float32)
            # relaxed: nothing else is ordered by these additions; the kernel's end makes them visible.
            tl.atomic_add(out_ptr + target * width + start + cols, g * scale, mask=inside, sem="relaxed")


@triton.jit
def _backward_sorted(g_ptr, index_ptr, order_ptr, counts_ptr, out_ptr, rows, width, padding,
                     COUNTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Sums all rows of one token in order. One program per sorted position and block of columns; only the first of a token works."""
    position = tl.program_id(0)
    target = tl.load(index_ptr + position).to(tl.int64)
    before = tl.load(index_ptr + tl.maximum(position - 1, 0)).to(tl.int64)
    # The first position of a run of equal tokens; all other programs end here.
    if ((position == 0) | (before != target)) & (target != padding):
        cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = cols < width
        total = tl.zeros((BLOCK,), tl.float32)
        next_position = position
        next_target = target
        while (next_position < rows) & (next_target == target):
            row = tl.load(order_ptr + next_position).to(tl.int64)
            total += tl.load(g_ptr + row * width + cols, mask=inside, other=0.0).to(tl.float32)
            next_position += 1
            # Clamped, since the loop reads one position past the run.
            next_target = tl.load(index_ptr + tl.minimum(next_position, rows - 1)).to(tl.int64)
        if COUNTS:
            total = total / tl.load(counts_ptr + target).to(tl.float32)
        tl.store(out_ptr + target * width + cols, total.to(out_ptr.dtype.element_ty), mask=inside)


def accepts(weight, index, *, padding_idx=None, scale_grad_by_freq=False):
    """Accepts a float table (V, C)."""
    return is_float(weight) and weight.ndim == 2 and weight.size > 0


def _block(width):
    block = min(power_of_2(max(width, 32)), 2048)
    return {"BLOCK": block, "num_warps": max(1, min(block // 256, 8))}


def forward(xp, weight, index, *, padding_idx=None, scale_grad_by_freq=False):
    """Returns weight[index]. Indices are not checked on a GPU and must be in the range of the table."""
    weight, index = contiguous(xp, weight), contiguous(xp, index)
    if index.dtype.kind == "i" and index.dtype.itemsize < 8:
        index = index.astype("int64")
    out = xp.empty((*index.shape, weight.shape[1]), weight.dtype)
    launch(_forward, (index.size,), weight, index, out, weight.shape[1], **_block(weight.shape[1]))
    return out


def vjp(g, index, padding_idx, scale_grad_by_freq, shape, owned_sum, xp):
    """Returns the gradient of the table, or None if it was added to `owned_sum`, the gradient from another use of the table."""
    rows = contiguous(xp, index).reshape(-1).astype("int64", copy=False)
    counts = xp.bincount(rows, minlength=shape[0]) if scale_grad_by_freq else None
    g = contiguous(xp, g)
    padding = -1 if padding_idx is None else padding_idx
    if config.deterministic:
        out = xp.zeros(shape, g.dtype)
        order = xp.argsort(rows)
        blocks = _block(min(shape[1], 256))
        grid = (rows.size, cdiv(shape[1], blocks["BLOCK"]))
        launch(_backward_sorted, grid, g, rows[order], order, counts, out, rows.size, shape[1], padding,
               COUNTS=scale_grad_by_freq, **blocks)  # fmt: skip
        return (out,)
    # float32, since atomics in half precision would round each addition.
    total = owned_sum
    adds = total is not None and total.dtype == "float32" and total.shape == tuple(shape) and total.flags.c_contiguous
    out = total if adds else xp.zeros(shape, "float32")
    launch(
        _backward, (rows.size,), g, rows, counts, out, shape[1], padding, COUNTS=scale_grad_by_freq, **_block(shape[1])
    )
    return (None if adds else out.astype(g.dtype, copy=False),)
