"""Batch norm, forward and backward, and input * scale + shift for each channel, of (N, C, positions).

Channel c has N P elements, in N contiguous pieces of P elements. Element i is at (i // P) C P + c P + i % P. A channel has more
elements than one program can process, and a GPU may have more multiprocessors than a layer has channels. So a channel is
divided into chunks: a program processes one chunk of CHANNELS channels, and a second kernel combines the chunks. If P is
1, as after a linear layer, adjacent channels are adjacent in memory, and a program processes many of them. Images with their
channels last in memory are processed so, too, as (N P, C).

Mean and variance need one pass over memory. The mean and the sum of squared deviations of a block are merged with the
statistics of the blocks before (`norm.joined`). Chunks are merged in the same way.

Backward reads memory twice: for two sums, and for the gradient. With h = (x - mean) * rstd and n = N P:

    gx = (g - mean(g) - h * mean(g * h)) * rstd * weight,   gw = sum(g * h),   gb = sum(g).

Grid: (channels / CHANNELS, chunks) for sums, otherwise one program for each BLOCK elements. Saved for backward: mean and rstd, one
float32 per channel. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ...arrays import xp_of
from ...arrays.memory_format import suggests_channels_last
from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2, processors
from .common import contiguous, is_float, shaped
from .norm import add_up, joined

BLOCK = 1024


@triton.jit
def _place(i, channel, channels, positions):
    """Returns the offset of element i of a channel, as int64."""
    n = i // positions
    return (n.to(tl.int64) * channels + channel) * positions + (i - n * positions)


@triton.jit
def _statistics(
    x_ptr, mean_ptr, squares_ptr, count, channels, positions, per_chunk, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Computes mean and sum of squared deviations of one chunk, in mean_ptr and squares_ptr (chunks, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    begin = tl.program_id(1) * per_chunk
    end = tl.minimum(count, begin + per_chunk)
    mean = tl.zeros((1, CHANNELS), tl.float32)
    squares = tl.zeros((1, CHANNELS), tl.float32)
    done = 0
    for start in range(begin, end, ROWS):
        i = start + tl.arange(0, ROWS)[:, None]
        inside = (i < end) & (channel < channels)
        x = tl.load(x_ptr + _place(i, channel, channels, positions), mask=inside, other=0.0).to(tl.float32)
        # Two passes over the block in registers, then merge it with the blocks before.
        block_count = tl.minimum(end - start, ROWS)
        block_mean = tl.sum(x, axis=0, keep_dims=True) / block_count
        d = tl.where(inside, x - block_mean, 0.0)
        mean, squares = joined(mean, squares, done, block_mean, tl.sum(d * d, axis=0, keep_dims=True), block_count)
        done += block_count
    offset = tl.program_id(1) * channels + channel
    tl.store(mean_ptr + offset, mean, mask=channel < channels)
    tl.store(squares_ptr + offset, squares, mask=channel < channels)


@triton.jit
def _join(means_ptr, squares_ptr, mean_ptr, var_ptr, count, channels, per_chunk, chunks, CHANNELS: tl.constexpr):
    """Computes mean and biased variance of CHANNELS channels from the statistics of their chunks (chunks, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < channels
    mean = tl.zeros((CHANNELS,), tl.float32)
    squares = tl.zeros((CHANNELS,), tl.float32)
    done = 0
    for chunk in range(chunks):
        chunk_count = tl.minimum(count - done, per_chunk)
        chunk_mean = tl.load(means_ptr + chunk * channels + channel, mask=inside, other=0.0)
        chunk_squares = tl.load(squares_ptr + chunk * channels + channel, mask=inside, other=0.0)
        mean, squares = joined(mean, squares, done, chunk_mean, chunk_squares, chunk_count)
        done += chunk_count
    tl.store(mean_ptr + channel, mean, mask=inside)
    tl.store(var_ptr + channel, squares / count, mask=inside)


@triton.jit
def _affine(x_ptr, out_ptr, centre_ptr, rstd_ptr, scale_ptr, shift_ptr, size, channels, positions,
            NORM: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes BLOCK elements of (x - center) * rstd (NORM) * scale + shift; all four are (C,)."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < size
    # One index for the whole array, so that a block may cross rows of positions.
    channel = offset // positions % channels
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        x = (x - tl.load(centre_ptr + channel, mask=inside, other=0.0)) * tl.load(
            rstd_ptr + channel, mask=inside, other=0.0
        )
    if SCALE:
        x *= tl.load(scale_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    if SHIFT:
        x += tl.load(shift_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + offset, x.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _sums(g_ptr, x_ptr, centre_ptr, g_sums_ptr, gx_sums_ptr, count, channels, positions, per_chunk,
          CENTRE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """Computes the sums over one chunk of g and of g * (x - center), in g_sums_ptr and gx_sums_ptr (chunks, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    begin = tl.program_id(1) * per_chunk
    end = tl.minimum(count, begin + per_chunk)
    # One accumulator per position of the tile: the reduction over rows is done once, after the loop.
    sum_g = tl.zeros((ROWS, CHANNELS), tl.float32)
    sum_gx = tl.zeros((ROWS, CHANNELS), tl.float32)
    if CENTRE:
        centre = tl.load(centre_ptr + channel, mask=channel < channels, other=0.0)
    for start in range(begin, end, ROWS):
        i = start + tl.arange(0, ROWS)[:, None]
        inside = (i < end) & (channel < channels)
        offset = _place(i, channel, channels, positions)
        g = tl.load(g_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        if CENTRE:
            x -= centre
        sum_g += g
        sum_gx += g * x
    offset = tl.program_id(1) * channels + channel
    tl.store(g_sums_ptr + offset, tl.sum(sum_g, axis=0, keep_dims=True), mask=channel < channels)
    tl.store(gx_sums_ptr + offset, tl.sum(sum_gx, axis=0, keep_dims=True), mask=channel < channels)


@triton.jit
def _slope(g_ptr, x_ptr, gx_ptr, mean_ptr, rstd_ptr, weight_ptr, g_sums_ptr, gx_sums_ptr, size, count, channels, positions,
           WEIGHT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes BLOCK elements of gx from the sums of g and of g * (x - mean), (C,)."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < size
    channel = offset // positions % channels
    rstd = tl.load(rstd_ptr + channel, mask=inside, other=0.0)
    g = tl.load(g_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    d = x - tl.load(mean_ptr + channel, mask=inside, other=0.0)
    # h * sum(g h) = (x - mean) * rstd² * sum(g (x - mean)).
    slope = tl.load(gx_sums_ptr + channel, mask=inside, other=0.0) * rstd * rstd
    g -= (tl.load(g_sums_ptr + channel, mask=inside, other=0.0) + d * slope) / count
    if WEIGHT:
        rstd *= tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(gx_ptr + offset, (g * rstd).to(gx_ptr.dtype.element_ty), mask=inside)


def _flat(xp, x, last):
    """Returns x in row-major order, and with `last` as (N P, C), which is a view if the channels are last in memory."""
    if not last:
        return contiguous(xp, x)
    x = xp.moveaxis(x, 1, -1)
    return contiguous(xp, x).reshape(-1, x.shape[-1])


def _unflat(xp, out, shape, last):
    """Returns a result for an array of `_flat` in the shape (N, C, …)."""
    samples, channels, *size = shape
    return xp.moveaxis(out.reshape(samples, *size, channels), -1, 1) if last else out.reshape(shape)


def _sizes(shape):
    """Returns (elements of a channel, channels, positions) of (N, C, …)."""
    positions = math.prod(shape[2:])
    return shape[0] * positions, shape[1], positions


def _cut(shape):
    """Returns how `_statistics` and `_sums` divide (N, C, …): (grid, elements of a chunk, constants)."""
    count, channels, positions = _sizes(shape)
    # Channels of a program: with few positions, adjacent channels fill a cache line.
    wide = 1 if positions >= 32 else 32
    rows = min(power_of_2(max(count, 16)), BLOCK // wide)
    groups = cdiv(channels, wide)
    # About four programs per multiprocessor, but at least four blocks of rows per chunk.
    chunks = max(1, min(cdiv(count, 4 * rows), cdiv(4 * processors(), groups), 256))
    # Rounded up to whole blocks of rows, so that only the last chunk needs its mask.
    per_chunk = cdiv(cdiv(count, chunks), rows) * rows
    return (groups, cdiv(count, per_chunk)), per_chunk, {"ROWS": rows, "CHANNELS": wide, "num_warps": 4}


def statistics(raw):
    """Returns the mean and the biased variance of each channel, in float32."""
    xp = xp_of(raw)
    x = _flat(xp, raw, suggests_channels_last(raw))
    sizes, (grid, per_chunk, blocks) = _sizes(x.shape), _cut(x.shape)
    means, squares = xp.empty((2, grid[1], x.shape[1]), "float32")
    launch(_statistics, grid, x, means, squares, *sizes, per_chunk, **blocks)
    mean, var = xp.empty((2, x.shape[1]), "float32")
    join = (cdiv(x.shape[1], 64),)
    launch(_join, join, means, squares, mean, var, *sizes[:2], per_chunk, grid[1], CHANNELS=64, num_warps=2)
    return mean, var


def _affined(xp, x, center, rstd, scale, shift):
    """Returns (x - center) * rstd * scale + shift for each channel. Steps without an array are skipped."""
    last, shape = suggests_channels_last(x), x.shape
    x = _flat(xp, x, last)
    out = xp.empty(x.shape, x.dtype)
    flags = {"NORM": rstd is not None, "SCALE": scale is not None, "SHIFT": shift is not None}
    arrays = [contiguous(xp, a) for a in (center, rstd, scale, shift)]
    launch(
        _affine, (cdiv(x.size, BLOCK),), x, out, *arrays, x.size, *_sizes(x.shape)[1:], BLOCK=BLOCK, num_warps=4,
        **flags,
    )  # fmt: skip
    return _unflat(xp, out, shape, last)


def _sums_of(xp, g, x, center):
    """Returns the sums of g and of g * (x - center) over each channel, (C,) in float32."""
    grid, per_chunk, blocks = _cut(x.shape)
    parts = xp.empty((2, grid[1], x.shape[1]), "float32")
    launch(_sums, grid, g, x, center, *parts, *_sizes(x.shape), per_chunk, CENTRE=center is not None, **blocks)
    return [add_up(xp, part, "float32") for part in parts]


def _accepts(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Accepts floats with at least two axes that are not empty."""
    fit = input.ndim >= 2 and all(p is None or p.size == input.shape[1] for p in (weight, bias))
    return fit and is_float(input, weight, bias) and input.size > 0


def _forward(xp, input, weight=None, bias=None, *, eps=1e-5, stats=None):
    mean, var = (contiguous(xp, s) for s in stats or statistics(input))  # the kernels read them with a stride of 1
    rstd = xp.reciprocal(xp.sqrt(var + xp.float32(eps)))
    return _affined(xp, input, mean, rstd, weight, bias), mean, rstd


def _vjp(g, input, weight, bias, shapes, mean, rstd, needs, xp):
    last = suggests_channels_last(input)
    g, x = _flat(xp, g, last), _flat(xp, input, last)
    g_sums, gx_sums = _sums_of(xp, g, x, mean)
    gx = xp.empty(x.shape, x.dtype) if needs[0] else None
    if needs[0]:
        arrays = g, x, gx, mean, rstd, contiguous(xp, weight), g_sums, gx_sums
        launch(
            _slope, (cdiv(x.size, BLOCK),), *arrays, x.size, *_sizes(x.shape), WEIGHT=weight is not None,
            BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
        gx = _unflat(xp, gx, input.shape, last)
    gw = shaped((gx_sums * rstd).astype(weight.dtype), shapes, 1) if needs[1] else None
    return gx, gw, shaped(g_sums.astype(bias.dtype), shapes, 2) if needs[2] else None


def _affine_forward(xp, input, scale, shift):
    return _affined(xp, input, None, None, scale, shift)


def _affine_vjp(g, input, scale, shift, shapes, needs, xp):
    sums = ()
    if needs[1] or needs[2]:
        last = suggests_channels_last(input)
        sums = _sums_of(xp, _flat(xp, g, last), _flat(xp, input, last), None)
    gx = _affined(xp, g, None, None, scale, None).astype(input.dtype, copy=False) if needs[0] else None
    grads = zip(needs[1:], (scale, shift), reversed(sums), strict=False)
    return gx, *(total.astype(p.dtype).reshape(p.shape) if wanted else None for wanted, p, total in grads)


batch_norm = Kernel(accepts=_accepts, forward=_forward, vjp=_vjp, residuals=("mean", "rstd"), statistics=statistics)
channel_affine = Kernel(accepts=_accepts, forward=_affine_forward, vjp=_affine_vjp)
