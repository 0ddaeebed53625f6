"""Layer norm, RMS norm and group norm, the first two also with a residual that is added first: one pair of kernels.

All three center and scale rows: h = (x - mean) * rstd (RMS norm: mean = 0), out = h * weight + bias. They differ in
the weight of an element. For layer and RMS norm, element j of a row has weight j. For group norm, a row consists of
whole channels, and element j of row r has the weight of channel (r % groups) * per_group + j // inner.

With a residual, the input is x + residual, added in float32 and rounded once. The sum is also stored, since a transformer
continues with it next to the norm. Adding again there would need another pass over memory.

Backward, with u = g * weight, the gradient of h. Since dh_k / dx_j = rstd * ([j = k] - 1 / C - h_j h_k / C),

    gx = rstd * (u - mean(u) - h * mean(u * h))   (RMS norm: without mean(u)).

The gradients of weight and bias are sums over rows of g * h and g. Summing with atomics would not be
deterministic. Instead, as many programs as fit on the GPU loop over some of the rows and keep partial sums in
registers. A second kernel adds the partial sums. Rows that are too long for this, and group norm, use separate
kernels that loop over columns or channels.

Grid: one program for each ROWS rows (forward), a few for each multiprocessor (backward). Saved for backward:
mean and rstd, one float32 per row. Accumulation: float32; two passes over a row in registers for the variance.
"""

import math

import triton
import triton.language as tl

from ...arrays.dtypes import promote_types
from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2, processors
from .common import contiguous, is_float, row_blocks, rows_of, shaped

LONGEST = 8192  # longest row, in elements, for which backward keeps its sums of gw and gb in registers


@triton.jit
def _parameter(p_ptr, row, cols, inside, channels, GROUP: tl.constexpr):
    """Loads the elements of weight or bias (C,) for a block of a row. channels: (groups, inner, per_group)."""
    if GROUP:
        groups, inner, per_group = channels
        return tl.load(p_ptr + (row % groups) * per_group + cols // inner, mask=inside, other=0.0).to(tl.float32)
    return tl.load(p_ptr + cols + row * 0, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _input(x_ptr, residual_ptr, sum_ptr, offset, inside, ADD: tl.constexpr):
    """Loads a block of the norm's input. ADD: it is x + residual, which is stored to sum_ptr."""
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(residual_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        # Normalize the rounded sum, since backward reads this sum from memory.
        x = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + offset, x, mask=inside)
        x = x.to(tl.float32)
    return x


@triton.jit
def _affine(out, weight_ptr, bias_ptr, row, cols, inside, channels,
            GROUP: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr):  # fmt: skip
    """out * weight + bias."""
    if WEIGHT:
        out *= _parameter(weight_ptr, row, cols, inside, channels, GROUP)
    if BIAS:
        out += _parameter(bias_ptr, row, cols, inside, channels, GROUP)
    return out


@triton.jit
def joined(mean, squares, done, mean_b, squares_b, count):
    """Merges mean and sum of squared deviations of `done` elements with mean_b and squares_b of `count` more.

    Source: Chan, Golub and LeVeque, 1979.
    """
    total = (done + count).to(tl.float32)
    delta = mean_b - mean
    # M = M_a + M_b + delta² n_a n_b / n. It avoids the cancellation of E[x²] - E[x]².
    return mean + delta * (count / total), squares + squares_b + delta * delta * (done / total) * count


@triton.jit
def _rstd(squares, width, eps, RMS: tl.constexpr):
    """Returns 1 / sqrt(squares / width + eps), or NaN if the variance overflows: 0 would hide the overflow in a row of zeros."""
    rstd = 1.0 / tl.sqrt(squares / width + eps)
    if not RMS:
        rstd = tl.where(rstd == 0.0, float("nan"), rstd)
    return rstd


@triton.jit
def _forward(x_ptr, residual_ptr, sum_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, rows, width, eps,
             groups, inner, per_group, RMS: tl.constexpr, GROUP: tl.constexpr, ADD: tl.constexpr,
             WEIGHT: tl.constexpr, BIAS: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Computes ROWS rows of out_ptr, mean_ptr and rstd_ptr, with ADD also of sum_ptr, from x_ptr and residual_ptr (rows, width)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    base = row.to(tl.int64) * width + cols
    channels = groups, inner, per_group
    if ONE:
        inside = (row < rows) & (cols < width)
        x = _input(x_ptr, residual_ptr, sum_ptr, base, inside, ADD)
        if RMS:
            d = x
            mean = tl.zeros((ROWS, 1), tl.float32)
        else:
            # Two passes over registers. Padding must not count as (0 - mean)².
            mean = tl.sum(x, axis=1, keep_dims=True) / width
            d = tl.where(inside, x - mean, 0.0)
        rstd = _rstd(tl.sum(d * d, axis=1, keep_dims=True), width, eps, RMS)
        out = _affine(d * rstd, weight_ptr, bias_ptr, row, cols, inside, channels, GROUP, WEIGHT, BIAS)
        tl.store(out_ptr + base, out.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        # A row longer than a block: statistics block by block, then a second pass over memory.
        mean = tl.zeros((ROWS, 1), tl.float32)
        squares = tl.zeros((ROWS, 1), tl.float32)
        done = 0
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            x = _input(x_ptr, residual_ptr, sum_ptr, base + start, inside, ADD)
            if RMS:
                squares += tl.sum(x * x, axis=1, keep_dims=True)
            else:
                count = tl.minimum(width - start, BLOCK)
                block_mean = tl.sum(x, axis=1, keep_dims=True) / count
                d = tl.where(inside, x - block_mean, 0.0)
                mean, squares = joined(mean, squares, done, block_mean, tl.sum(d * d, axis=1, keep_dims=True), count)
                done += count
        rstd = _rstd(squares, width, eps, RMS)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            if ADD:
                x = tl.load(sum_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
            else:
                x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
            out = (x - mean) * rstd
            out = _affine(out, weight_ptr, bias_ptr, row, start + cols, inside, channels, GROUP, WEIGHT, BIAS)
            tl.store(out_ptr + base + start, out.to(out_ptr.dtype.element_ty), mask=inside)
    if not RMS:
        tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit
def _backward_rows(g_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, more_ptr, gx_ptr, also_ptr, gw_ptr, gb_ptr, rows, width, tiles,
                   RMS: tl.constexpr, WEIGHT: tl.constexpr, MORE: tl.constexpr, ALSO: tl.constexpr, GW: tl.constexpr, GB: tl.constexpr,
                   ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Computes gx_ptr for rows that fit into a block, and partial sums of the gradients of weight and bias.

    A program processes every num_programs-th tile of ROWS rows.
    g_ptr, x_ptr, more_ptr, gx_ptr, also_ptr: (rows, width). gw_ptr, gb_ptr: (programs, width).
    """
    cols = tl.arange(0, BLOCK)[None, :]
    program = tl.program_id(0)
    if WEIGHT:
        weight = tl.load(weight_ptr + cols, mask=cols < width, other=0.0).to(tl.float32)
    # Partial sums of all rows of this program, in registers.
    gw = tl.zeros((ROWS, BLOCK), tl.float32)
    gb = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(program, tiles, tl.num_programs(0), num_stages=2):  # two stages: prefetch the next tile
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (cols < width)
        base = row.to(tl.int64) * width + cols
        g = tl.load(g_ptr + base, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + base, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            rest = tl.load(more_ptr + base, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        if RMS:
            h = x * rstd
        else:
            h = tl.where(inside, (x - tl.load(mean_ptr + row, mask=row < rows, other=0.0)) * rstd, 0.0)
        if GW:
            gw += g * h
        if GB:
            gb += g
        if WEIGHT:
            u = g * weight
        else:
            u = g
        # gx = rstd * (u - h * mean(u h) - mean(u)).
        gx = u - h * (tl.sum(u * h, axis=1, keep_dims=True) / width)
        if not RMS:
            gx -= tl.sum(u, axis=1, keep_dims=True) / width
        gx *= rstd
        if MORE:
            # MORE: the gradient of the residual stream joins here, which saves a pass.
            gx += rest
        tl.store(gx_ptr + base, gx.to(gx_ptr.dtype.element_ty), mask=inside)
        if ALSO:
            tl.store(also_ptr + base, gx.to(also_ptr.dtype.element_ty), mask=inside)
    # Sum over the tile's rows once, at the end.
    if GW:
        tl.store(gw_ptr + program * width + cols, tl.sum(gw, axis=0, keep_dims=True), mask=cols < width)
    if GB:
        tl.store(gb_ptr + program * width + cols, tl.sum(gb, axis=0, keep_dims=True), mask=cols < width)


@triton.jit
def _backward_input(g_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, more_ptr, gx_ptr, also_ptr, rows, width, groups, inner, per_group,
                    RMS: tl.constexpr, GROUP: tl.constexpr, WEIGHT: tl.constexpr, MORE: tl.constexpr, ALSO: tl.constexpr,
                    BLOCK: tl.constexpr):  # fmt: skip
    """Computes one row of gx_ptr (rows, width) of any length, in two passes."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    base = row.to(tl.int64) * width + cols
    rstd = tl.load(rstd_ptr + row)
    mean = 0.0
    if not RMS:
        mean = tl.load(mean_ptr + row)
    channels = groups, inner, per_group
    # First pass: mean(u) and mean(u h).
    sum_u = tl.zeros((BLOCK,), tl.float32)
    sum_uh = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + cols < width
        u = tl.load(g_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            u *= _parameter(weight_ptr, row, start + cols, inside, channels, GROUP)
        sum_u += u
        sum_uh += u * (x - mean) * rstd
    mean_uh = tl.sum(sum_uh, axis=0) / width
    mean_u = 0.0
    if not RMS:
        mean_u = tl.sum(sum_u, axis=0) / width
    for start in range(0, width, BLOCK):
        inside = start + cols < width
        u = tl.load(g_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            u *= _parameter(weight_ptr, row, start + cols, inside, channels, GROUP)
        # Second pass: read g and x again.
        gx = (u - mean_u - (x - mean) * rstd * mean_uh) * rstd
        if MORE:
            gx += tl.load(more_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        tl.store(gx_ptr + base + start, gx.to(gx_ptr.dtype.element_ty), mask=inside)
        if ALSO:
            tl.store(also_ptr + base + start, gx.to(also_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_columns(g_ptr, x_ptr, mean_ptr, rstd_ptr, gw_ptr, gb_ptr, rows, width, per_chunk,
                      RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes the sums of g * h and g over a chunk of rows for BLOCK columns, in gw_ptr and gb_ptr (chunks, width)."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    chunk = tl.program_id(1)
    gw = tl.zeros((ROWS, BLOCK), tl.float32)
    gb = tl.zeros((ROWS, BLOCK), tl.float32)
    end = tl.minimum(rows, (chunk + 1) * per_chunk)
    for start in range(chunk * per_chunk, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (cols < width)
        base = row.to(tl.int64) * width + cols
        g = tl.load(g_ptr + base, mask=inside, other=0.0).to(tl.float32)
        h = tl.load(x_ptr + base, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            h -= tl.load(mean_ptr + row, mask=row < end, other=0.0)
        gw += g * h * tl.load(rstd_ptr + row, mask=row < end, other=0.0)
        gb += g
    tl.store(gw_ptr + chunk * width + cols, tl.sum(gw, axis=0, keep_dims=True), mask=cols < width)
    tl.store(gb_ptr + chunk * width + cols, tl.sum(gb, axis=0, keep_dims=True), mask=cols < width)


@triton.jit
def _backward_channels(g_ptr, x_ptr, mean_ptr, rstd_ptr, gw_ptr, gb_ptr, samples, channels, inner, per_group, groups,
                       BLOCK: tl.constexpr):  # fmt: skip
    """Computes group norm's sums of g * h and g for one channel of (samples, channels, inner), over samples and positions."""
    channel = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    gw = tl.zeros((BLOCK,), tl.float32)
    gb = tl.zeros((BLOCK,), tl.float32)
    for sample in range(0, samples):
        # Mean and rstd belong to the group of this channel.
        row = sample * groups + channel // per_group
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        base = (sample * channels + channel).to(tl.int64) * inner
        for start in range(0, inner, BLOCK):
            inside = start + lane < inner
            g = tl.load(g_ptr + base + start + lane, mask=inside, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + base + start + lane, mask=inside, other=0.0).to(tl.float32)
            gw += g * (x - mean) * rstd
            gb += g
    tl.store(gw_ptr + channel, tl.sum(gw, axis=0).to(gw_ptr.dtype.element_ty))
    tl.store(gb_ptr + channel, tl.sum(gb, axis=0).to(gb_ptr.dtype.element_ty))


@triton.jit
def _add_up(parts_ptr, out_ptr, count, width, per_chunk, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Computes the sum over a chunk of the rows of parts_ptr (count, width) for BLOCK columns, in out_ptr (chunks, width)."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    chunk = tl.program_id(1)
    end = tl.minimum(count, (chunk + 1) * per_chunk)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(chunk * per_chunk, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        offset = row.to(tl.int64) * width + cols
        total += tl.load(parts_ptr + offset, mask=(row < end) & (cols < width), other=0.0).to(tl.float32)
    total = tl.sum(total, axis=0, keep_dims=True)
    tl.store(out_ptr + chunk * width + cols, total.to(out_ptr.dtype.element_ty), mask=cols < width)


def add_up(xp, parts, dtype):
    """Returns the sum over the rows of (count, width), added in float32, as (width,) of dtype."""
    count, width = parts.shape
    # Many rows: first sum chunks in parallel, then the chunks. The order is fixed, so results are deterministic.
    if count > 1024:
        chunks = min(cdiv(count, 128), 128)
        sums, grid = xp.empty((chunks, width), "float32"), (cdiv(width, 64), chunks)
        launch(_add_up, grid, parts, sums, count, width, cdiv(count, chunks), ROWS=16, BLOCK=64, num_warps=4)
        parts, count = sums, chunks
    out = xp.empty(width, dtype)
    rows = 128 if count > 64 else 32  # few iterations, since each waits for memory
    launch(_add_up, (cdiv(width, 32), 1), parts, out, count, width, count, ROWS=rows, BLOCK=32, num_warps=rows // 16)
    return out


def forward(xp, x, weight=None, bias=None, *, width, eps, rms=False, groups=0, inner=1, residual=None, dtype=None):
    """Returns the norm of the rows of x, and the values that backward needs.

    Args:
        width: elements of a row. rms: do not center.
        groups, inner: for group norm, the groups of a sample and the elements of a channel.
        residual: added to x first, with the shape of x. The sum has the promoted dtype.
        dtype: dtype of out, a dtype of the library; the dtype of the normalized input if None.

    Returns:
        out (x's shape), the normalized input (x itself, or x + residual), mean (None if rms), rstd.
    """
    flat = rows_of(xp, x, width)
    rows, add = flat.shape[0], residual is not None
    total = xp.empty(flat.shape, promote_types(x.dtype, residual.dtype).numpy) if add else None
    out = xp.empty(flat.shape, (flat if total is None else total).dtype if dtype is None else dtype.numpy)
    rstd = xp.empty(rows, "float32")
    mean = None if rms else xp.empty(rows, "float32")
    weight, bias, residual = contiguous(xp, weight), contiguous(xp, bias), contiguous(xp, residual)
    blocks = row_blocks(width)
    channels = (groups, inner, width // inner) if groups else (1, inner, 1)
    launch(
        _forward, (cdiv(rows, blocks["ROWS"]),), flat, residual, total, weight, bias, out, mean, rstd, rows, width, float(eps),
        *channels, RMS=rms, GROUP=bool(groups), ADD=add, WEIGHT=weight is not None, BIAS=bias is not None, **blocks,
    )  # fmt: skip
    return out.reshape(x.shape), (total if add else flat).reshape(x.shape), mean, rstd


def backward(
    xp, g, x, weight, mean, rstd, *, width, rms=False, groups=0, inner=1, more=None, also=None, needs=(True, True, True), bias_dtype=None
):  # fmt: skip
    """Returns the gradients of x, weight and bias of `forward`, and None for gradients that are not needed.

    Args:
        x: the normalized input. more: a gradient to add to the gradient of x, from the residual stream.
        also: a contiguous array of x's size that also receives the gradient of x, in another dtype.
        needs: three flags; the gradient of x is always computed.
        bias_dtype: dtype of the bias; by default the dtype of weight, or float32.
    """
    flat, g = rows_of(xp, x, width), rows_of(xp, g, width)
    rows, gx = flat.shape[0], xp.empty_like(flat)
    channels = (groups, inner, width // inner) if groups else (1, inner, 1)
    w_dtype = "float32" if weight is None else weight.dtype
    dtypes = [
        dtype if needed else None for dtype, needed in zip((w_dtype, bias_dtype or w_dtype), needs[1:], strict=True)
    ]
    weight, more = contiguous(xp, weight), contiguous(xp, more)
    flags = {"RMS": rms, "WEIGHT": weight is not None, "MORE": more is not None, "ALSO": also is not None}
    if rows == 0:
        size = groups * channels[2] if groups else width
        gw, gb = (None if dtype is None else xp.zeros(size, dtype) for dtype in dtypes)
    elif groups == 0 and width <= LONGEST:
        blocks = row_blocks(width, LONGEST)
        # 8 elements per thread; with more, fewer programs fit on a multiprocessor.
        warps = min(max(blocks["ROWS"] * blocks["BLOCK"] // 256, 2), 16)
        tiles = cdiv(rows, blocks["ROWS"])
        # As many programs as run at the same time; each loops over its tiles.
        programs = min(tiles, processors() * max(1, min(12, 24 // warps)))
        parts = [None if dtype is None else xp.empty((programs, width), "float32") for dtype in dtypes]
        launch(
            _backward_rows, (programs,), g, flat, weight, mean, rstd, more, gx, also, *parts, rows, width, tiles,
            GW=parts[0] is not None, GB=parts[1] is not None, **flags, **{**blocks, "num_warps": warps},
        )  # fmt: skip
        gw, gb = (None if dtype is None else add_up(xp, part, dtype) for part, dtype in zip(parts, dtypes, strict=True))
    else:
        block = min(power_of_2(max(width, 128)), 4096)
        launch(
            _backward_input, (rows,), g, flat, weight, mean, rstd, more, gx, also, rows, width, *channels, GROUP=bool(groups),
            BLOCK=block, num_warps=8 if block > 1024 else 4, **flags,
        )  # fmt: skip
        gw, gb = _long_sums(xp, g, flat, mean, rstd, rms, channels if groups else None, dtypes)
    return gx.reshape(x.shape), gw, gb


def _long_sums(xp, g, x, mean, rstd, rms, channels, dtypes):
    """Returns the gradients of weight and bias for rows (rows, width) of any length, in two dtypes; None where a dtype is None."""
    if dtypes == [None, None]:
        return None, None
    rows, width = x.shape
    if channels is not None:
        groups, inner, per_group = channels
        count = groups * per_group
        sums = [xp.empty(count, dtype or "float32") for dtype in dtypes]
        block = min(power_of_2(max(inner, 64)), 2048)
        sizes = rows // groups, count, inner, per_group, groups
        launch(_backward_channels, (count,), g, x, mean, rstd, *sums, *sizes, BLOCK=block, num_warps=4)
        return [None if dtype is None else total for total, dtype in zip(sums, dtypes, strict=True)]
    chunks = min(cdiv(rows, 16), 16)
    parts = xp.empty((2, chunks, width), "float32")
    launch(
        _backward_columns, (cdiv(width, 128), chunks), g, x, mean, rstd, parts[0], parts[1], rows, width,
        cdiv(cdiv(rows, chunks), 16) * 16, RMS=rms, ROWS=16, BLOCK=128, num_warps=4,
    )  # fmt: skip
    return [None if dtype is None else add_up(xp, part, dtype) for part, dtype in zip(parts, dtypes, strict=True)]


# -- kernels of the ops -----------------------------------------------------------------------------------------------


def _accepts(*arrays, width, eps=1e-5, dtype=None):
    """Accepts floats, which may have different dtypes."""
    return is_float(*arrays) and width > 0


def _dtype_of(x):
    return None if x is None else x.dtype


def _layer_norm(xp, input, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    out, _, mean, rstd = forward(xp, input, weight, bias, width=width, eps=eps, dtype=dtype)
    return out, mean, rstd


def _layer_norm_vjp(g, input, weight, bias, shapes, mean, rstd, width, needs, xp):
    gx, gw, gb = backward(xp, g, input, weight, mean, rstd, width=width, needs=needs, bias_dtype=_dtype_of(bias))
    return gx, shaped(gw, shapes, 1), shaped(gb, shapes, 2)


def _rms_norm(xp, input, weight=None, *, width, eps, dtype=None):
    out, _, _, rstd = forward(xp, input, weight, width=width, eps=eps, rms=True, dtype=dtype)
    return out, rstd


def _rms_norm_vjp(g, input, weight, shapes, rstd, width, needs, xp):
    gx, gw, _ = backward(xp, g, input, weight, None, rstd, width=width, rms=True, needs=(*needs[:2], False))
    return gx, shaped(gw, shapes, 1)


def _add_layer_norm(xp, input, residual, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    out, total, mean, rstd = forward(xp, input, weight, bias, width=width, eps=eps, residual=residual, dtype=dtype)
    return total, out, mean, rstd


def _add_layer_norm_vjp(g, total, weight, bias, shapes, dtypes, mean, rstd, width, needs, xp):
    gx, gr, gw, gb = _add_backward(
        xp, g, dtypes, total, weight, mean, rstd, needs, width=width, bias_dtype=_dtype_of(bias)
    )
    return gx, gr, shaped(gw, shapes, 2), shaped(gb, shapes, 3)


def _add_rms_norm(xp, input, residual, weight=None, *, width, eps, dtype=None):
    out, total, _, rstd = forward(xp, input, weight, width=width, eps=eps, rms=True, residual=residual, dtype=dtype)
    return total, out, rstd


def _add_rms_norm_vjp(g, total, weight, shapes, dtypes, rstd, width, needs, xp):
    gx, gr, gw, _ = _add_backward(xp, g, dtypes, total, weight, None, rstd, (*needs, False), width=width, rms=True)
    return gx, gr, shaped(gw, shapes, 2)


def _add_backward(xp, g, dtypes, total, weight, mean, rstd, needs, **options):
    """Returns the gradients of input, residual, weight and bias from g, the gradients of the sum and of its norm (or None)."""
    g_total, g_out = g
    if g_out is None:
        return g_total[...], g_total[...], None, None
    # Input and residual have the same gradient. If their dtypes differ, the kernel writes it in both.
    also = None
    for dtype, needed in zip(dtypes[:2], needs[:2], strict=True):
        if needed and dtype != total.dtype:
            also = xp.empty(total.shape, dtype)
    needs = (True, *needs[2:])
    gx, gw, gb = backward(xp, g_out, total, weight, mean, rstd, more=g_total, also=also, needs=needs, **options)
    return *(also if also is not None and dtype == also.dtype else gx for dtype in dtypes[:2]), gw, gb


def _group_accepts(*arrays, num_groups, eps=1e-5, dtype=None):
    return is_float(*arrays) and arrays[0].size > 0


def _group_sizes(input, num_groups):
    """Returns the sizes of a group norm of (N, C, …)."""
    inner = math.prod(input.shape[2:])
    return {"width": input.shape[1] // num_groups * inner, "groups": num_groups, "inner": inner}


def _group_norm(xp, input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    out, _, mean, rstd = forward(xp, input, weight, bias, eps=eps, dtype=dtype, **_group_sizes(input, num_groups))
    return out, mean, rstd


def _group_norm_vjp(g, input, weight, bias, mean, rstd, num_groups, needs, xp):
    sizes = _group_sizes(input, num_groups)
    return backward(xp, g, input, weight, mean, rstd, needs=needs, bias_dtype=_dtype_of(bias), **sizes)


_CENTERED, _RMS = ("mean", "rstd"), ("rstd",)
layer_norm = Kernel(accepts=_accepts, forward=_layer_norm, vjp=_layer_norm_vjp, residuals=_CENTERED)
rms_norm = Kernel(accepts=_accepts, forward=_rms_norm, vjp=_rms_norm_vjp, residuals=_RMS)
add_layer_norm = Kernel(accepts=_accepts, forward=_add_layer_norm, vjp=_add_layer_norm_vjp, residuals=_CENTERED)
add_rms_norm = Kernel(accepts=_accepts, forward=_add_rms_norm, vjp=_add_rms_norm_vjp, residuals=_RMS)
group_norm = Kernel(accepts=_group_accepts, forward=_group_norm, vjp=_group_norm_vjp, residuals=_CENTERED)
