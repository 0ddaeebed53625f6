"""Softmax, log-softmax and the softmax of masked scores. Read this kernel first.

A GPU runs many *programs* of one kernel in parallel. Each program has a number (`tl.program_id`) and works
on a *block* of elements at once: `tl.arange(0, BLOCK)` are the positions in the block, `tl.load` reads a whole
block from memory into registers, and reductions such as `tl.max` run over it. Block sizes are powers of 2. If the
row is shorter, a mask keeps loads and stores inside it. `other=-inf` fills in values that do not change a maximum
and add nothing to a sum.

Softmax is limited by memory bandwidth. So each row is read once, stays in registers for maximum, exponentials and
sum, and is written once. This is the reason for fusing these steps into one kernel. A program works on a tile
(ROWS, BLOCK), with several rows if they are short. A row longer than a block does not fit into registers. It is read
twice, the first time for a running maximum m and sum s. The sum is rescaled when the maximum grows (`running_softmax`):

    m' = max(m, max(x)),   s' = s * exp(m - m') + sum(exp(x - m')).

Exponentials are computed as powers of 2, because GPUs have an instruction for them: exp(x) = 2^(x * log2(e)).

Backward needs only the output, p = softmax(x):    gx_j = p_j * (g_j - sum_k g_k p_k),
and for log-softmax, l = out:                      gx_j = g_j - exp(l_j) * sum_k g_k.

The first follows from dp_k / dx_j = p_k ([j = k] - p_j), the second from dl_k / dx_j = [j = k] - p_j.

Along an axis that is not the last, a program processes adjacent columns from top to bottom (`_forward_columns`), so that
it reads whole cache lines.

Grid: one program for each ROWS rows. Saved for backward: the output. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2
from .common import LN2, LOG2E, contiguous, is_float, is_mask, row_blocks, rows_of, running_softmax, strides_of


@triton.jit
def _scores(x_ptr, mask_ptr, row, cols, inside, sizes, strides, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """Loads a block of rows as float32, with -inf at masked positions.

    x_ptr (B H L, S). mask_ptr (B, H, L, S) with any strides. MASK: 0 none, 1 bool, 2 a float to add. sizes: (S, H, L).
    """
    width, heads, length = sizes
    x = tl.load(x_ptr + row.to(tl.int64) * width + cols, mask=inside, other=float("-inf")).to(tl.float32)
    # Row r of x is query r % L of head r // L.
    query = row % length
    if CAUSAL:
        x = tl.where(cols <= query, x, float("-inf"))
    if MASK != 0:
        # A broadcast axis of the mask has stride 0, so the mask is never expanded in memory.
        stride_b, stride_h, stride_l, stride_s = strides
        batch_head = row // length
        offset = (
            (batch_head // heads).to(tl.int64) * stride_b
            + (batch_head % heads).to(tl.int64) * stride_h  # int64: one sample may have more than 2^31 elements
            + query.to(tl.int64) * stride_l
            + cols.to(tl.int64) * stride_s
        )
        if MASK == 1:
            x = tl.where(tl.load(mask_ptr + offset, mask=inside, other=0) != 0, x, float("-inf"))
        else:
            x += tl.load(mask_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _result(x, peak, total, LOG: tl.constexpr):
    """Returns softmax or log-softmax from the maximum of a row and its sum of exponentials."""
    if LOG:
        return x - peak - tl.log2(total) * LN2
    return tl.exp2((x - peak) * LOG2E) / total


@triton.jit
def _slope(g, out, total, LOG: tl.constexpr):
    """Returns gx from the row's sum of g (LOG) or of g * out."""
    if LOG:
        return g - tl.exp2(out * LOG2E) * total
    return out * (g - total)


@triton.jit
def _forward(x_ptr, out_ptr, mask_ptr, rows, width, heads, length, stride_mb, stride_mh, stride_ml, stride_ms,
             LOG: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Processes ROWS rows of x_ptr and out_ptr (rows, width). ONE: a row fits into a block. See `_scores` for the mask."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # (ROWS, 1)
    cols = tl.arange(0, BLOCK)[None, :]  # (1, BLOCK)
    out_row = out_ptr + row.to(tl.int64) * width  # offsets beyond 2^31 elements need 64 bits
    sizes, strides = (width, heads, length), (stride_mb, stride_mh, stride_ml, stride_ms)
    if ONE:
        inside = (row < rows) & (cols < width)
        x = _scores(x_ptr, mask_ptr, row, cols, inside, sizes, strides, CAUSAL, MASK)
        peak = tl.max(x, axis=1, keep_dims=True)
        if CAUSAL or MASK != 0:
            # A fully masked row: -inf - -inf would be NaN. With maximum 0 its exponentials are 0.
            peak = tl.where(peak == float("-inf"), 0.0, peak)
        total = tl.sum(tl.exp2((x - peak) * LOG2E), axis=1, keep_dims=True)
        if (CAUSAL or MASK != 0) and not LOG:
            total = tl.where(total == 0.0, 1.0, total)  # a fully masked row gives zeros instead of 0 / 0
        tl.store(out_row + cols, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)
    else:
        # First pass over a long row: running maximum and sum.
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
        # Second pass: read x again and write the result.
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _scores(x_ptr, mask_ptr, row, start + cols, inside, sizes, strides, CAUSAL, MASK)
            tl.store(out_row + start + cols, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, out_ptr, gx_ptr, rows, width,
              LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Computes ROWS rows of gx_ptr from g_ptr and out_ptr, all (rows, width)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    offset = row.to(tl.int64) * width + cols
    if ONE:
        inside = (row < rows) & (cols < width)
        g = tl.load(g_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        out = tl.load(out_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(g if LOG else g * out, axis=1, keep_dims=True)
        tl.store(gx_ptr + offset, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)
    else:
        total = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            g = tl.load(g_ptr + offset + start, mask=inside, other=0.0).to(tl.float32)
            if not LOG:
                g *= tl.load(out_ptr + offset + start, mask=inside, other=0.0).to(tl.float32)
            total += tl.sum(g, axis=1, keep_dims=True)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            g = tl.load(g_ptr + offset + start, mask=inside, other=0.0).to(tl.float32)
            out = tl.load(out_ptr + offset + start, mask=inside, other=0.0).to(tl.float32)
            tl.store(gx_ptr + offset + start, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _column_block(length, inner, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Returns this program's COLS columns of (outer, length, inner): offsets in row 0, a mask, and ROWS row numbers."""
    blocks = tl.cdiv(inner, COLS)
    col = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)[None, :]
    base = (tl.program_id(0) // blocks).to(tl.int64) * length * inner + col
    return base, col < inner, tl.arange(0, ROWS)[:, None]


@triton.jit
def _forward_columns(x_ptr, out_ptr, length, inner,
                     LOG: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Processes COLS adjacent columns of x_ptr and out_ptr (outer, length, inner), ROWS elements at a time."""
    base, valid, rows = _column_block(length, inner, ROWS, COLS)
    peak = tl.full((1, COLS), float("-inf"), tl.float32)
    total = tl.zeros((1, COLS), tl.float32)
    for start in range(0, length, ROWS):
        inside = (start + rows < length) & valid
        offset = base + (start + rows).to(tl.int64) * inner
        x = tl.load(x_ptr + offset, mask=inside, other=float("-inf")).to(tl.float32)
        peak, total = running_softmax(peak, total, x, 0)
        # ONE: the loop has a single iteration, so x is still in registers and the result can be written at once.
        if ONE:
            tl.store(out_ptr + offset, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)
    if not ONE:
        for start in range(0, length, ROWS):
            inside = (start + rows < length) & valid
            offset = base + (start + rows).to(tl.int64) * inner
            x = tl.load(x_ptr + offset, mask=inside, other=float("-inf")).to(tl.float32)
            tl.store(out_ptr + offset, _result(x, peak, total, LOG).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_columns(g_ptr, out_ptr, gx_ptr, length, inner,
                      LOG: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Computes COLS adjacent columns of gx_ptr from g_ptr and out_ptr, all (outer, length, inner)."""
    base, valid, rows = _column_block(length, inner, ROWS, COLS)
    total = tl.zeros((1, COLS), tl.float32)
    for start in range(0, length, ROWS):
        inside = (start + rows < length) & valid
        offset = base + (start + rows).to(tl.int64) * inner
        g = tl.load(g_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        if ONE or not LOG:
            out = tl.load(out_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        if LOG:
            total += tl.sum(g, axis=0, keep_dims=True)
        else:
            total += tl.sum(g * out, axis=0, keep_dims=True)
        if ONE:
            tl.store(gx_ptr + offset, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)
    if not ONE:
        for start in range(0, length, ROWS):
            inside = (start + rows < length) & valid
            offset = base + (start + rows).to(tl.int64) * inner
            g = tl.load(g_ptr + offset, mask=inside, other=0.0).to(tl.float32)
            out = tl.load(out_ptr + offset, mask=inside, other=0.0).to(tl.float32)
            tl.store(gx_ptr + offset, _slope(g, out, total, LOG).to(gx_ptr.dtype.element_ty), mask=inside)


def _columns(shape, dim):
    """Returns (length, inner) of a shape around an axis, the grid, and the tile of the column kernels."""
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    columns = min(power_of_2(inner), 64)
    # At most 8192 elements in a tile, which then fits into registers.
    rows = min(power_of_2(length), 8192 // columns)
    blocks = {"ROWS": rows, "COLS": columns, "ONE": length <= rows, "num_warps": min(max(rows * columns // 512, 2), 8)}
    return length, inner, (math.prod(shape[:dim]) * cdiv(inner, columns),), blocks


def masked(xp, input, mask=None, causal=False, log=False, dtype=None):
    """Returns the softmax of scores (…, L, S) with a causal mask, a mask, or both.

    Args:
        mask: broadcasts to the scores; bool, True where attention is allowed, or a float to add.
        causal: query i sees keys 0 … i.
        log: return the logarithm.
        dtype: dtype of the result, a dtype of the library; the input's if None.

    Returns:
        (…, L, S). A fully masked row gives zeros (NaN for the logarithm).
    """
    heads, length, width = (1, 1, 1, *input.shape)[-3:]
    x = rows_of(xp, input, width)
    out = xp.empty(x.shape, x.dtype if dtype is None else dtype.numpy)
    kind, strides = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == bool else 2
        mask = xp.broadcast_to(mask, input.shape)
        mask = mask.reshape(-1, heads, length, width)  # a view, except if more than four axes are broadcast
        strides = strides_of(mask)
    blocks = row_blocks(width)
    grid = (cdiv(x.shape[0], blocks["ROWS"]),)
    launch(_forward, grid, x, out, mask, *x.shape, heads, length, *strides, LOG=log, CAUSAL=causal, MASK=kind, **blocks)
    return out.reshape(input.shape)


def run_forward(xp, input, log, dim, dtype=None):
    """Returns softmax or log-softmax along an axis, in `dtype` if it is not None."""
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
    """Returns the gradient of the input in dtype, from the output. Masked positions have output 0, so no mask is needed."""
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
    """Returns the kernel of softmax or log-softmax along one axis."""

    def accepts(input, *, dim, dtype=None):
        return is_float(input) and input.ndim > 0 and input.size > 0

    def forward(xp, input, *, dim, dtype=None):
        return run_forward(xp, input, log, dim % input.ndim, dtype)

    def vjp(g, out, dim, dtypes, xp):
        return (run_backward(xp, g, out, log, dim % out.ndim, dtypes[0]),)

    return Kernel(accepts=accepts, forward=forward, vjp=vjp)


softmax, log_softmax = _along_dim(False), _along_dim(True)


def _masked_accepts(input, mask=None, *, causal=False, dtype=None):
    return is_float(input) and input.ndim > 0 and input.size > 0 and is_mask(mask)


def _masked_forward(xp, input, mask=None, *, causal=False, dtype=None):
    return masked(xp, input, mask, causal, dtype=dtype)


def _masked_vjp(g, out, dtypes, needs, xp):
    gx = run_backward(xp, g, out, False, out.ndim - 1, dtypes[0])
    # The mask is added to the scores, so its gradient is the same array. The engine sums over broadcast axes.
    return gx, gx[...] if needs[1] else None


masked_softmax = Kernel(accepts=_masked_accepts, forward=_masked_forward, vjp=_masked_vjp)
