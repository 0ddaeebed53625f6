"""Softmax, log-softmax and the softmax of masked scores: the kernel to read first.

A GPU runs many *programs* of one kernel side by side. Each knows its number (`tl.program_id`) and works
on a *block* of elements at once: `tl.arange(0, BLOCK)` are the positions within it, `tl.load` fetches a whole
block from memory into registers, reductions like `tl.max` run over it. Blocks are powers of 2; where the
row ends earlier, a mask keeps loads and stores inside it, and `other=-inf` fills in what changes no maximum
and adds nothing to a sum.

Softmax is bound by memory: 2 bytes moved per flop. So the row is read once, stays in registers for maximum,
exponentials and sum, and is written once. That is the whole point of fusing. A program takes ROWS rows of a
tile (ROWS, BLOCK), several if they are short. A row longer than a block can't stay: it is read twice, the
first time for a running maximum m and sum s, which is rescaled whenever the maximum grows (`running_softmax`):

    m' = max(m, max(x)),   s' = s * exp(m - m') + sum(exp(x - m')).

Exponentials are powers of 2, which is what the hardware has: exp(x) = 2^(x * log2(e)).

Backward needs the output alone, p = softmax(x):   gx_j = p_j * (g_j - sum_k g_k p_k),
and for log-softmax, l = out:                      gx_j = g_j - exp(l_j) * sum_k g_k.

The first follows from dp_k / dx_j = p_k ([j = k] - p_j), the second from dl_k / dx_j = [j = k] - p_j.

Along another axis than the last, a program takes some neighbouring columns and goes down them (`_forward_columns`), so that
memory is still read in whole lines.

Grid: one program for each ROWS rows. Kept for backward: the output. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2
from .common import LN2, LOG2E, contiguous, is_float, is_mask, row_blocks, rows_of, running_softmax, strides_of


@triton.jit
def _scores(x_ptr, mask_ptr, row, cols, inside, sizes, strides, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """A block of rows as float32, with -inf where nothing may be attended to.

    x_ptr (B H L, S). mask_ptr (B, H, L, S) of any strides; MASK: 0 none, 1 bool, 2 to add. sizes: (S, H, L).
    """
    width, heads, length = sizes
    x = tl.load(x_ptr + row.to(tl.int64) * width + cols, mask=inside, other=float("-inf")).to(tl.float32)
    query = row % length
    if CAUSAL:
        x = tl.where(cols <= query, x, float("-inf"))
    if MASK != 0:
        stride_b, stride_h, stride_l, stride_s = strides
        above = row // length
        place = (
            (above // heads).to(tl.int64) * stride_b + (above % heads) * stride_h + query * stride_l + cols * stride_s
        )
        if MASK == 1:
            x = tl.where(tl.load(mask_ptr + place, mask=inside, other=0) != 0, x, float("-inf"))
        else:
            x += tl.load(mask_ptr + place, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _result(x, peak, total, LOG: tl.constexpr):
    """(Log-)softmax from a row's maximum and its sum of exponentials."""
    if LOG:
        return x - peak - tl.log2(total) * LN2
    return tl.exp2((x - peak) * LOG2E) / total


@triton.jit
def _slope(g, out, total, LOG: tl.constexpr):
    """gx from the row's sum of g (LOG) or g * out."""
    if LOG:
        return g - tl.exp2(out * LOG2E) * total
    return out * (g - total)


@triton.jit
def _forward(x_ptr, out_ptr, mask_ptr, rows, width, heads, length, stride_mb, stride_mh, stride_ml, stride_ms,
             LOG: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """ROWS rows of x_ptr and out_ptr (rows, width); ONE: a row fits into a block. For the mask, see `_scores`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    out_row = out_ptr + row.to(tl.int64) * width
    sizes, strides = (width, heads, length), (stride_mb, stride_mh, stride_ml, stride_ms)
    if ONE:
        inside = (row < rows) & (cols < width)
        x = _scores(x_ptr, mask_ptr, row, cols, inside, sizes, strides, CAUSAL, MASK)
        peak = tl.max(x, axis=1, keep_dims=True)
        if CAUSAL or MASK != 0:
            peak = tl.where(peak == float("-inf"), 0.0, peak)
        total = tl.sum(tl.exp2((x - peak) * LOG2E), axis=1, keep_dims=True)
        if (CAUSAL or MASK != 0) and not LOG:
            total = tl.where(total == 0.0, 1.0, total)  # a row that may see nothing gives zeros
        tl.store(out_row + cols, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)
    else:
        peak = tl.full((ROWS, 1), float("-inf"), tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _scores(x_ptr, mask_ptr, row, start + cols, inside, sizes, strides, CAUSAL, MASK)
            peak, total = running_softmax(peak, total, x, 1)
        if CAUSAL or MASK != 0:
            peak = tl.where(peak == float("-inf"), 0.0, peak)
            if not LOG:
                total = tl.where(total == 0.0, 1.0, total)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _scores(x_ptr, mask_ptr, row, start + cols, inside, sizes, strides, CAUSAL, MASK)
            tl.store(out_row + start + cols, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, out_ptr, gx_ptr, rows, width,
              LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """ROWS rows of gx_ptr, from those of g_ptr and out_ptr, all (rows, width)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    place = row.to(tl.int64) * width + cols
    if ONE:
        inside = (row < rows) & (cols < width)
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
        out = tl.load(out_ptr + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(g if LOG else g * out, axis=1, keep_dims=True)
        tl.store(gx_ptr + place, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)
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
            tl.store(gx_ptr + place + start, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _column_block(length, inner, ROWS: tl.constexpr, COLS: tl.constexpr):
    """This program's COLS columns of (outer, length, inner): their places in row 0, whether they are inside, and ROWS row numbers."""
    blocks = tl.cdiv(inner, COLS)
    col = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)[None, :]
    base = (tl.program_id(0) // blocks).to(tl.int64) * length * inner + col
    return base, col < inner, tl.arange(0, ROWS)[:, None]


@triton.jit
def _forward_columns(x_ptr, out_ptr, length, inner,
                     LOG: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """COLS neighbouring columns of x_ptr and out_ptr (outer, length, inner), ROWS of their elements at a time."""
    base, there, rows = _column_block(length, inner, ROWS, COLS)
    peak = tl.full((1, COLS), float("-inf"), tl.float32)
    total = tl.zeros((1, COLS), tl.float32)
    for start in range(0, length, ROWS):
        inside = (start + rows < length) & there
        place = base + (start + rows).to(tl.int64) * inner
        x = tl.load(x_ptr + place, mask=inside, other=float("-inf")).to(tl.float32)
        peak, total = running_softmax(peak, total, x, 0)
        if ONE:
            tl.store(out_ptr + place, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)
    if not ONE:
        for start in range(0, length, ROWS):
            inside = (start + rows < length) & there
            place = base + (start + rows).to(tl.int64) * inner
            x = tl.load(x_ptr + place, mask=inside, other=float("-inf")).to(tl.float32)
            tl.store(out_ptr + place, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_columns(g_ptr, out_ptr, gx_ptr, length, inner,
                      LOG: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """COLS neighbouring columns of gx_ptr, from those of g_ptr and out_ptr, all (outer, length, inner)."""
    base, there, rows = _column_block(length, inner, ROWS, COLS)
    total = tl.zeros((1, COLS), tl.float32)
    for start in range(0, length, ROWS):
        inside = (start + rows < length) & there
        place = base + (start + rows).to(tl.int64) * inner
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if ONE or not LOG:
            out = tl.load(out_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if LOG:
            total += tl.sum(g, axis=0, keep_dims=True)
        else:
            total += tl.sum(g * out, axis=0, keep_dims=True)
        if ONE:
            tl.store(gx_ptr + place, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)
    if not ONE:
        for start in range(0, length, ROWS):
            inside = (start + rows < length) & there
            place = base + (start + rows).to(tl.int64) * inner
            g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
            out = tl.load(out_ptr + place, mask=inside, other=0.0).to(tl.float32)
            tl.store(gx_ptr + place, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)


def _columns(shape, dim):
    """(length, inner) of a shape around an axis, the grid, and the tile of the kernels that go down columns."""
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    columns = min(power_of_2(inner), 64)
    rows = min(power_of_2(length), 8192 // columns)
    blocks = {"ROWS": rows, "COLS": columns, "ONE": length <= rows, "num_warps": min(max(rows * columns // 512, 2), 8)}
    return length, inner, (math.prod(shape[:dim]) * cdiv(inner, columns),), blocks


def masked(xp, input, mask=None, causal=False, log=False, dtype=None):
    """Softmax of scores (…, L, S) with a causal mask, a mask, or both.

    Args:
        mask: broadcasts to the scores; bool, True where attention is allowed, or a float to add.
        causal: query i sees keys 0 … i.
        log: give the logarithm.
        dtype: of the result, one of the library's; input's if None.

    Returns:
        (…, L, S); a row that may see nothing gives zeros (NaN for the logarithm).
    """
    heads, length, width = (1, 1, 1, *input.shape)[-3:]
    x = rows_of(xp, input, width)
    out = xp.empty(x.shape, x.dtype if dtype is None else dtype.numpy)
    kind, strides = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == bool else 2
        mask = xp.broadcast_to(mask, input.shape)
        mask = mask.reshape(-1, heads, length, width)  # a view, but where more than four axes are broadcast
        strides = strides_of(mask)
    blocks = row_blocks(width)
    grid = (cdiv(x.shape[0], blocks["ROWS"]),)
    launch(_forward, grid, x, out, mask, *x.shape, heads, length, *strides, LOG=log, CAUSAL=causal, MASK=kind, **blocks)
    return out.reshape(input.shape)


def run_forward(xp, input, log, dim, dtype=None):
    """Softmax, or its logarithm, along an axis, as `dtype` if that is given."""
    x = contiguous(xp, input)
    out = xp.empty(x.shape, x.dtype if dtype is None else dtype.numpy)
    if dim != x.ndim - 1:
        length, inner, grid, blocks = _columns(x.shape, dim)
        launch(_forward_columns, grid, x, out, length, inner, LOG=log, **blocks)
        return out
    width = x.shape[-1]
    rows, blocks = x.size // width, row_blocks(width)
    grid = (cdiv(rows, blocks["ROWS"]),)
    launch(_forward, grid, x, out, None, rows, width, 1, 1, 0, 0, 0, 0, LOG=log, CAUSAL=False, MASK=0, **blocks)
    return out


def run_backward(xp, g, out, log, dim, dtype):
    """The gradient of the input, of dtype, from the output; the masks left their zeros in it."""
    g, y = contiguous(xp, g), contiguous(xp, out)
    gx = xp.empty(y.shape, dtype)
    if dim != y.ndim - 1:
        length, inner, grid, blocks = _columns(y.shape, dim)
        launch(_backward_columns, grid, g, y, gx, length, inner, LOG=log, **blocks)
        return gx
    width = y.shape[-1]
    rows, blocks = y.size // width, row_blocks(width, 8192)
    launch(_backward, (cdiv(rows, blocks["ROWS"]),), g, y, gx, rows, width, LOG=log, **blocks)
    return gx


def _along_dim(log):
    """The kernel of softmax or of log-softmax along an axis."""

    def accepts(input, *, dim, dtype=None):
        return is_float(input) and input.ndim > 0 and input.size > 0

    def forward(xp, input, *, dim, dtype=None):
        return run_forward(xp, input, log, dim, dtype)

    def vjp(g, input, out, dim, xp):
        return (run_backward(xp, g, out, log, dim, input.dtype),)

    return Kernel(accepts=accepts, forward=forward, vjp=vjp)


softmax, log_softmax = _along_dim(False), _along_dim(True)


def _masked_accepts(input, mask=None, *, causal=False, dtype=None):
    return is_float(input) and input.ndim > 0 and input.size > 0 and is_mask(mask)


def _masked_forward(xp, input, mask=None, *, causal=False, dtype=None):
    return masked(xp, input, mask, causal, dtype=dtype)


def _masked_vjp(g, input, mask, out, needs, xp):
    gx = run_backward(xp, g, out, False, out.ndim - 1, input.dtype)
    return gx, gx[...] if needs[1] else None


masked_softmax = Kernel(accepts=_masked_accepts, forward=_masked_forward, vjp=_masked_vjp)
