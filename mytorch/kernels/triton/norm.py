"""Layer norm, RMS norm and group norm: one pair of kernels, with the sum of two inputs in front if wanted.

All three centre and scale rows: h = (x - mean) * rstd (RMS norm: mean = 0), out = h * weight + bias. They differ in
which weight belongs to an element: for layer and RMS norm element j of a row has weight j; for group norm a row
holds whole channels, and row r, element j has that of channel (r % groups) * per_group + j // inner.

With a residual, the input is x + residual in float32, rounded once and written out as well, for it goes on
beside the norm in a transformer; reading it there again would cost another pass.

Backward, with u = g * weight:   gx = rstd * (u - mean(u) - h * mean(u * h))   (RMS norm: without mean(u)).
The gradients of weight and bias are sums over rows of g * h and g. Adding them up with atomics would differ
from run to run; instead as many programs as the card holds each go through some rows and keep partial sums in
registers, and a second kernel adds those up. Where a row is too long for that, and for group norm, a kernel of
its own goes down the columns.

Grid: a program for each ROWS rows (forward), a few for each multiprocessor (backward). Kept for backward:
mean and rstd, one float32 a row. Accumulation: float32; two passes over a row in registers for the variance.
"""

import triton
import triton.language as tl

from ...base.dtypes import promote_types
from ..launch import cdiv, launch, power_of_2, processors
from .common import contiguous, row_blocks, rows_of


@triton.jit
def _scale(p_ptr, row, cols, inside, groups, inner, per_group, GROUP: tl.constexpr):
    """The elements of weight or bias that belong to a block of a row."""
    if GROUP:
        return tl.load(p_ptr + (row % groups) * per_group + cols // inner, mask=inside, other=0.0).to(tl.float32)
    return tl.load(p_ptr + cols + row * 0, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _forward(x_ptr, residual_ptr, sum_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, rows, width, eps,
             groups, inner, per_group, RMS: tl.constexpr, GROUP: tl.constexpr, ADD: tl.constexpr,
             WEIGHT: tl.constexpr, BIAS: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    base = row.to(tl.int64) * width + cols
    if ONE:
        inside = (row < rows) & (cols < width)
        x = tl.load(x_ptr + base, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            x += tl.load(residual_ptr + base, mask=inside, other=0.0).to(tl.float32)
            x = x.to(sum_ptr.dtype.element_ty)
            tl.store(sum_ptr + base, x, mask=inside)
            x = x.to(tl.float32)
        if RMS:
            d = x
            mean = tl.zeros((ROWS, 1), tl.float32)
        else:
            mean = tl.sum(x, axis=1, keep_dims=True) / width
            d = tl.where(inside, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(d * d, axis=1, keep_dims=True) / width + eps)
        out = d * rstd
        if WEIGHT:
            out *= _scale(weight_ptr, row, cols, inside, groups, inner, per_group, GROUP)
        if BIAS:
            out += _scale(bias_ptr, row, cols, inside, groups, inner, per_group, GROUP)
        tl.store(out_ptr + base, out.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        mean = tl.zeros((ROWS, 1), tl.float32)
        squares = tl.zeros((ROWS, 1), tl.float32)
        done = 0
        for start in range(
            0, width, BLOCK
        ):  # a block's mean and squared deviations join those so far (Chan et al., 1979)
            inside = (row < rows) & (start + cols < width)
            x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
            if ADD:
                x += tl.load(residual_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
                x = x.to(sum_ptr.dtype.element_ty)
                tl.store(sum_ptr + base + start, x, mask=inside)
                x = x.to(tl.float32)
            if RMS:
                squares += tl.sum(x * x, axis=1, keep_dims=True)
            else:
                count = tl.minimum(width - start, BLOCK)
                here = tl.sum(x, axis=1, keep_dims=True) / count
                d = tl.where(inside, x - here, 0.0)
                gap = here - mean
                both = (done + count).to(tl.float32)
                squares += tl.sum(d * d, axis=1, keep_dims=True) + gap * gap * (done / both) * count
                mean += gap * (count / both)
                done += count
        rstd = 1.0 / tl.sqrt(squares / width + eps)
        for start in range(0, width, BLOCK):
            inside = (row < rows) & (start + cols < width)
            if ADD:
                x = tl.load(sum_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
            else:
                x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
            out = (x - mean) * rstd
            if WEIGHT:
                out *= _scale(weight_ptr, row, start + cols, inside, groups, inner, per_group, GROUP)
            if BIAS:
                out += _scale(bias_ptr, row, start + cols, inside, groups, inner, per_group, GROUP)
            tl.store(out_ptr + base + start, out.to(out_ptr.dtype.element_ty), mask=inside)
    if not RMS:
        tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit
def _backward_rows(g_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, more_ptr, gx_ptr, also_ptr, gw_ptr, gb_ptr, rows, width, tiles,
                   RMS: tl.constexpr, WEIGHT: tl.constexpr, MORE: tl.constexpr, ALSO: tl.constexpr, GW: tl.constexpr, GB: tl.constexpr,
                   ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr):  # fmt: skip
    """Rows that fit into a block: gx, and this program's share of the gradients of weight and bias."""
    cols = tl.arange(0, BLOCK)[None, :]
    program = tl.program_id(0)
    if WEIGHT:
        weight = tl.load(weight_ptr + cols, mask=cols < width, other=0.0).to(tl.float32)
    gw = tl.zeros((ROWS, BLOCK), tl.float32)
    gb = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(program, tiles, tl.num_programs(0), num_stages=2):  # the next tile is fetched meanwhile
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
        gx = u - h * (tl.sum(u * h, axis=1, keep_dims=True) / width)
        if not RMS:
            gx -= tl.sum(u, axis=1, keep_dims=True) / width
        gx *= rstd
        if MORE:
            gx += rest
        tl.store(gx_ptr + base, gx.to(gx_ptr.dtype.element_ty), mask=inside)
        if ALSO:
            tl.store(also_ptr + base, gx.to(also_ptr.dtype.element_ty), mask=inside)
    if GW:
        tl.store(gw_ptr + program * width + cols, tl.sum(gw, axis=0, keep_dims=True), mask=cols < width)
    if GB:
        tl.store(gb_ptr + program * width + cols, tl.sum(gb, axis=0, keep_dims=True), mask=cols < width)


@triton.jit
def _backward_input(g_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, more_ptr, gx_ptr, also_ptr, rows, width, groups, inner, per_group,
                    RMS: tl.constexpr, GROUP: tl.constexpr, WEIGHT: tl.constexpr, MORE: tl.constexpr, ALSO: tl.constexpr,
                    BLOCK: tl.constexpr):  # fmt: skip
    """gx of one row of any length, in two sweeps."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    base = row.to(tl.int64) * width + cols
    rstd = tl.load(rstd_ptr + row)
    mean = 0.0
    if not RMS:
        mean = tl.load(mean_ptr + row)
    sum_u = tl.zeros((BLOCK,), tl.float32)
    sum_uh = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + cols < width
        u = tl.load(g_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            u *= _scale(weight_ptr, row, start + cols, inside, groups, inner, per_group, GROUP)
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
            u *= _scale(weight_ptr, row, start + cols, inside, groups, inner, per_group, GROUP)
        gx = (u - mean_u - (x - mean) * rstd * mean_uh) * rstd
        if MORE:
            gx += tl.load(more_ptr + base + start, mask=inside, other=0.0).to(tl.float32)
        tl.store(gx_ptr + base + start, gx.to(gx_ptr.dtype.element_ty), mask=inside)
        if ALSO:
            tl.store(also_ptr + base + start, gx.to(also_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_columns(g_ptr, x_ptr, mean_ptr, rstd_ptr, gw_ptr, gb_ptr, rows, width, per_piece,
                      RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Partial sums of g * h and g over a piece of the rows, for a block of columns."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    piece = tl.program_id(1)
    gw = tl.zeros((ROWS, BLOCK), tl.float32)
    gb = tl.zeros((ROWS, BLOCK), tl.float32)
    end = tl.minimum(rows, (piece + 1) * per_piece)
    for start in range(piece * per_piece, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (cols < width)
        base = row.to(tl.int64) * width + cols
        g = tl.load(g_ptr + base, mask=inside, other=0.0).to(tl.float32)
        h = tl.load(x_ptr + base, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            h -= tl.load(mean_ptr + row, mask=row < end, other=0.0)
        gw += g * h * tl.load(rstd_ptr + row, mask=row < end, other=0.0)
        gb += g
    tl.store(gw_ptr + piece * width + cols, tl.sum(gw, axis=0, keep_dims=True), mask=cols < width)
    tl.store(gb_ptr + piece * width + cols, tl.sum(gb, axis=0, keep_dims=True), mask=cols < width)


@triton.jit
def _backward_channels(g_ptr, x_ptr, mean_ptr, rstd_ptr, gw_ptr, gb_ptr, samples, channels, inner, per_group, groups,
                       BLOCK: tl.constexpr):  # fmt: skip
    """Group norm's sums of g * h and g for one channel, over samples and positions."""
    channel = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    gw = tl.zeros((BLOCK,), tl.float32)
    gb = tl.zeros((BLOCK,), tl.float32)
    for sample in range(0, samples):
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
def _add_up(parts_ptr, out_ptr, count, width, per_piece, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over a piece of the rows, for a block of columns."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    piece = tl.program_id(1)
    end = tl.minimum(count, (piece + 1) * per_piece)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(piece * per_piece, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        place = row.to(tl.int64) * width + cols
        total += tl.load(parts_ptr + place, mask=(row < end) & (cols < width), other=0.0).to(tl.float32)
    tl.store(
        out_ptr + piece * width + cols,
        tl.sum(total, axis=0, keep_dims=True).to(out_ptr.dtype.element_ty),
        mask=cols < width,
    )


def add_up(xp, parts, dtype):
    """The sum over the rows of (count, width), in float32, as (width,) of dtype; in two steps if there are many."""
    count, width = parts.shape
    if count > 1024:
        pieces = min(cdiv(count, 128), 128)
        sums = xp.empty((pieces, width), "float32")
        launch(
            _add_up,
            (cdiv(width, 64), pieces),
            parts,
            sums,
            count,
            width,
            cdiv(count, pieces),
            ROWS=16,
            BLOCK=64,
            num_warps=4,
        )
        parts, count = sums, pieces
    out = xp.empty(width, dtype)
    rows = 128 if count > 64 else 32  # few turns, each a wait for memory
    launch(_add_up, (cdiv(width, 32), 1), parts, out, count, width, count, ROWS=rows, BLOCK=32, num_warps=rows // 16)
    return out


def forward(xp, x, weight=None, bias=None, *, width, eps, rms=False, groups=0, inner=1, residual=None, dtype=None):
    """The norm of the rows of x, with what backward needs.

    Args:
        width: elements of a row. rms: don't centre.
        groups, inner: for group norm, the groups of a sample and the elements of a channel.
        residual: added to x first, of its shape; the sum has the wider of their dtypes.
        dtype: of out, one of the library's; that of the normalised input if None.

    Returns:
        out (x's shape), the normalised input (x itself, or x + residual), mean (None if rms), rstd.
    """
    flat = rows_of(xp, x, width)
    rows = flat.shape[0]
    added = flat if residual is None else xp.empty(flat.shape, promote_types(x.dtype, residual.dtype).numpy)
    out = xp.empty(flat.shape, added.dtype if dtype is None else dtype.numpy)
    rstd = xp.empty(rows, "float32")
    mean = None if rms else xp.empty(rows, "float32")
    weight = None if weight is None else contiguous(xp, weight)
    bias = None if bias is None else contiguous(xp, bias)
    blocks = row_blocks(width)
    per_group = width // inner if groups else 1
    launch(
        _forward, (cdiv(rows, blocks["ROWS"]),), flat, None if residual is None else contiguous(xp, residual),
        None if residual is None else added, weight, bias, out, mean, rstd, rows, width, float(eps), groups or 1, inner, per_group,
        RMS=rms, GROUP=bool(groups), ADD=residual is not None, WEIGHT=weight is not None, BIAS=bias is not None, **blocks,
    )  # fmt: skip
    return out.reshape(x.shape), added.reshape(x.shape), mean, rstd


def backward(
    xp, g, x, weight, mean, rstd, *, width, rms=False, groups=0, inner=1, more=None, also=None, needs=(True, True, True), bias_dtype=None
):  # fmt: skip
    """The gradients of x, weight and bias of `forward`, None where not needed.

    Args:
        x: what was normalised. more: a gradient to add to that of x, the residual stream's.
        also: a contiguous array of x's size, to which x's gradient is written in another dtype too.
        needs: which of the three are wanted; that of x is always computed.
        bias_dtype: dtype of bias, whose gradient may be wanted without a weight; weight's, or float32, if not given.
    """
    flat, g = rows_of(xp, x, width), rows_of(xp, g, width)
    rows = flat.shape[0]
    gx = xp.empty_like(flat)
    gw = gb = None
    wants_w, wants_b = bool(needs[1]), bool(needs[2])
    more = None if more is None else contiguous(xp, more)
    w_dtype = weight.dtype if weight is not None else "float32"
    b_dtype = bias_dtype or w_dtype
    weight = None if weight is None else contiguous(xp, weight)
    if rows == 0:
        channels = groups * (width // inner) if groups else width
        return (
            gx.reshape(x.shape),
            xp.zeros(channels, w_dtype) if wants_w else None,
            xp.zeros(channels, b_dtype) if wants_b else None,
        )
    if groups == 0 and width <= 8192:
        blocks = row_blocks(width, 8192)
        blocks["num_warps"] = min(
            max(blocks["ROWS"] * blocks["BLOCK"] // 256, 2), 16
        )  # 8 elements a thread, or too few programs fit
        tiles = cdiv(rows, blocks["ROWS"])
        programs = min(tiles, processors() * max(1, min(12, 24 // blocks["num_warps"])))
        gw = xp.empty((programs, width), "float32") if wants_w else None
        gb = xp.empty((programs, width), "float32") if wants_b else None
        launch(
            _backward_rows, (programs,), g, flat, weight, mean, rstd, more, gx, also, gw, gb, rows, width, tiles, RMS=rms,
            WEIGHT=weight is not None, MORE=more is not None, ALSO=also is not None, GW=wants_w, GB=wants_b, **blocks,
        )  # fmt: skip
        gw = add_up(xp, gw, w_dtype) if wants_w else None
        gb = add_up(xp, gb, b_dtype) if wants_b else None
        return gx.reshape(x.shape), gw, gb
    per_group = width // inner if groups else 1
    block = min(power_of_2(max(width, 128)), 4096)
    launch(
        _backward_input, (rows,), g, flat, weight, mean, rstd, more, gx, also, rows, width, groups or 1, inner, per_group, RMS=rms,
        GROUP=bool(groups), WEIGHT=weight is not None, MORE=more is not None, ALSO=also is not None, BLOCK=block,
        num_warps=8 if block > 1024 else 4,
    )  # fmt: skip
    if wants_w or wants_b:
        if groups:
            channels = groups * per_group
            gw, gb = xp.empty(channels, w_dtype), xp.empty(channels, b_dtype)
            block = min(power_of_2(max(inner, 64)), 2048)
            launch(
                _backward_channels, (channels,), g, flat, mean, rstd, gw, gb, rows // groups, channels, inner, per_group, groups,
                BLOCK=block, num_warps=4,
            )  # fmt: skip
        else:
            pieces = min(cdiv(rows, 16), 16)
            parts = xp.empty((2, pieces, width), "float32")
            launch(
                _backward_columns, (cdiv(width, 128), pieces), g, flat, mean, rstd, parts[0], parts[1], rows, width,
                cdiv(cdiv(rows, pieces), 16) * 16, RMS=rms, ROWS=16, BLOCK=128, num_warps=4,
            )  # fmt: skip
            gw = add_up(xp, parts[0], w_dtype) if wants_w else None
            gb = add_up(xp, parts[1], b_dtype) if wants_b else None
    return gx.reshape(x.shape), gw if wants_w else None, gb if wants_b else None
