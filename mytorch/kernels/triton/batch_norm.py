"""Batch norm, forward and backward, and input * scale + shift for each channel, of (N, C, positions).

The elements of a channel, number i = 0 … N P - 1 of them, lie in N pieces of P neighbours, i-th at (i // P) C P + c P + i % P.
A channel has far more elements than a program holds, and a card more multiprocessors than a network channels; so a channel is
cut into chunks, a program takes one chunk of CHANNELS channels, and a second kernel joins what the chunks gave. Where P is
1, as after a linear layer, a program takes many channels, which are neighbours in memory then.

Mean and variance are found in one reading of memory: a block's mean and sum of squared deviations join those of the blocks
before (`norm.joined`), and likewise a chunk's those of the chunks before.

Backward, with h = (x - mean) * rstd and n = N P, reads memory twice, for two sums and for the gradient:

    gx = (g - mean(g) - h * mean(g * h)) * rstd * weight,   gw = sum(g * h),   gb = sum(g).

Grid: (channels / CHANNELS, chunks) for sums, a program for each BLOCK elements otherwise. Kept for backward: mean and rstd, one
float32 a channel. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ...backend import xp_of
from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2, processors
from .common import contiguous, is_float, shaped
from .norm import add_up, joined

BLOCK = 1024


@triton.jit
def _place(i, channel, channels, positions):
    """Where element i of a channel lies."""
    n = i // positions
    return (n.to(tl.int64) * channels + channel) * positions + (i - n * positions)


@triton.jit
def _statistics(
    x_ptr, mean_ptr, squares_ptr, count, channels, positions, per_chunk, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Mean and squared deviations of a chunk, of mean_ptr and squares_ptr (chunks, C)."""
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
        here = tl.minimum(end - start, ROWS)
        middle = tl.sum(x, axis=0, keep_dims=True) / here
        d = tl.where(inside, x - middle, 0.0)
        mean, squares = joined(mean, squares, done, middle, tl.sum(d * d, axis=0, keep_dims=True), here)
        done += here
    place = tl.program_id(1) * channels + channel
    tl.store(mean_ptr + place, mean, mask=channel < channels)
    tl.store(squares_ptr + place, squares, mask=channel < channels)


@triton.jit
def _join(means_ptr, squares_ptr, mean_ptr, var_ptr, count, channels, per_chunk, chunks, CHANNELS: tl.constexpr):
    """Mean and variance of CHANNELS channels from those of the chunks (chunks, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < channels
    mean = tl.zeros((CHANNELS,), tl.float32)
    squares = tl.zeros((CHANNELS,), tl.float32)
    done = 0
    for chunk in range(chunks):
        here = tl.minimum(count - done, per_chunk)
        middle = tl.load(means_ptr + chunk * channels + channel, mask=inside, other=0.0)
        around = tl.load(squares_ptr + chunk * channels + channel, mask=inside, other=0.0)
        mean, squares = joined(mean, squares, done, middle, around, here)
        done += here
    tl.store(mean_ptr + channel, mean, mask=inside)
    tl.store(var_ptr + channel, squares / count, mask=inside)


@triton.jit
def _affine(x_ptr, out_ptr, centre_ptr, rstd_ptr, scale_ptr, shift_ptr, size, channels, positions,
            NORM: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """BLOCK elements of (x - centre) * rstd (NORM) * scale + shift, all four (C,)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    channel = place // positions % channels
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        x = (x - tl.load(centre_ptr + channel, mask=inside, other=0.0)) * tl.load(
            rstd_ptr + channel, mask=inside, other=0.0
        )
    if SCALE:
        x *= tl.load(scale_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    if SHIFT:
        x += tl.load(shift_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, x.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _sums(g_ptr, x_ptr, centre_ptr, g_sums_ptr, gx_sums_ptr, count, channels, positions, per_chunk,
          CENTRE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """The sums over a chunk of g and of g * (x - centre), of g_sums_ptr and gx_sums_ptr (chunks, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    begin = tl.program_id(1) * per_chunk
    end = tl.minimum(count, begin + per_chunk)
    of_g = tl.zeros((ROWS, CHANNELS), tl.float32)
    of_gx = tl.zeros((ROWS, CHANNELS), tl.float32)
    if CENTRE:
        centre = tl.load(centre_ptr + channel, mask=channel < channels, other=0.0)
    for start in range(begin, end, ROWS):
        i = start + tl.arange(0, ROWS)[:, None]
        inside = (i < end) & (channel < channels)
        place = _place(i, channel, channels, positions)
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if CENTRE:
            x -= centre
        of_g += g
        of_gx += g * x
    place = tl.program_id(1) * channels + channel
    tl.store(g_sums_ptr + place, tl.sum(of_g, axis=0, keep_dims=True), mask=channel < channels)
    tl.store(gx_sums_ptr + place, tl.sum(of_gx, axis=0, keep_dims=True), mask=channel < channels)


@triton.jit
def _slope(g_ptr, x_ptr, gx_ptr, mean_ptr, rstd_ptr, weight_ptr, g_sums_ptr, gx_sums_ptr, size, count, channels, positions,
           WEIGHT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """BLOCK elements of the gradient, from the sums of g and of g * (x - mean), (C,)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    channel = place // positions % channels
    rstd = tl.load(rstd_ptr + channel, mask=inside, other=0.0)
    g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    d = x - tl.load(mean_ptr + channel, mask=inside, other=0.0)
    of_gx = tl.load(gx_sums_ptr + channel, mask=inside, other=0.0) * rstd * rstd
    g -= (tl.load(g_sums_ptr + channel, mask=inside, other=0.0) + d * of_gx) / count
    if WEIGHT:
        rstd *= tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(gx_ptr + place, (g * rstd).to(gx_ptr.dtype.element_ty), mask=inside)


def _sizes(shape):
    """(elements of a channel, channels, positions) of (N, C, …)."""
    positions = math.prod(shape[2:])
    return shape[0] * positions, shape[1], positions


def _cut(shape):
    """How `_statistics` and `_sums` cut (N, C, …) up: (grid, elements of a chunk, their constants)."""
    count, channels, positions = _sizes(shape)
    wide = 1 if positions >= 32 else 32  # channels of a program: neighbours in memory where positions are few
    rows = min(power_of_2(max(count, 16)), BLOCK // wide)
    groups = cdiv(channels, wide)
    chunks = max(1, min(cdiv(count, 4 * rows), cdiv(4 * processors(), groups), 256))
    per_chunk = cdiv(cdiv(count, chunks), rows) * rows
    return (groups, cdiv(count, per_chunk)), per_chunk, {"ROWS": rows, "CHANNELS": wide, "num_warps": 4}


def statistics(raw):
    """The mean and the variance of each channel, float32."""
    xp = xp_of(raw)
    x = contiguous(xp, raw)
    sizes, (grid, per_chunk, blocks) = _sizes(x.shape), _cut(x.shape)
    means, squares = xp.empty((2, grid[1], x.shape[1]), "float32")
    launch(_statistics, grid, x, means, squares, *sizes, per_chunk, **blocks)
    mean, var = xp.empty((2, x.shape[1]), "float32")
    join = (cdiv(x.shape[1], 64),)
    launch(_join, join, means, squares, mean, var, *sizes[:2], per_chunk, grid[1], CHANNELS=64, num_warps=2)
    return mean, var


def _affined(xp, x, centre, rstd, scale, shift):
    """(x - centre) * rstd * scale + shift for each channel; what is None does nothing."""
    x, out = contiguous(xp, x), xp.empty(x.shape, x.dtype)
    given = {"NORM": rstd is not None, "SCALE": scale is not None, "SHIFT": shift is not None}
    arrays = [contiguous(xp, a) for a in (centre, rstd, scale, shift)]
    launch(
        _affine, (cdiv(x.size, BLOCK),), x, out, *arrays, x.size, *_sizes(x.shape)[1:], BLOCK=BLOCK, num_warps=4,
        **given,
    )  # fmt: skip
    return out


def _sums_of(xp, g, x, centre):
    """The sums of g and of g * (x - centre) over each channel, (C,) float32."""
    grid, per_chunk, blocks = _cut(x.shape)
    parts = xp.empty((2, grid[1], x.shape[1]), "float32")
    launch(_sums, grid, g, x, centre, *parts, *_sizes(x.shape), per_chunk, CENTRE=centre is not None, **blocks)
    return [add_up(xp, part, "float32") for part in parts]


def _accepts(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Floats, of two axes at least, with something in it."""
    fit = input.ndim >= 2 and all(p is None or p.size == input.shape[1] for p in (weight, bias))
    return fit and is_float(input, weight, bias) and input.size > 0


def _forward(xp, input, weight=None, bias=None, *, eps=1e-5, stats=None):
    mean, var = (contiguous(xp, s) for s in stats or statistics(input))  # the kernels read them with a stride of 1
    rstd = xp.reciprocal(xp.sqrt(var + xp.float32(eps)))
    return _affined(xp, input, mean, rstd, weight, bias), mean, rstd


def _vjp(g, input, weight, bias, shapes, mean, rstd, needs, xp):
    g, x = contiguous(xp, g), contiguous(xp, input)
    g_sums, gx_sums = _sums_of(xp, g, x, mean)
    gx = xp.empty(x.shape, x.dtype) if needs[0] else None
    if needs[0]:
        arrays = g, x, gx, mean, rstd, contiguous(xp, weight), g_sums, gx_sums
        launch(
            _slope, (cdiv(x.size, BLOCK),), *arrays, x.size, *_sizes(x.shape), WEIGHT=weight is not None,
            BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
    gw = shaped((gx_sums * rstd).astype(weight.dtype), shapes, 1) if needs[1] else None
    return gx, gw, shaped(g_sums.astype(bias.dtype), shapes, 2) if needs[2] else None


def _affine_forward(xp, input, scale, shift):
    return _affined(xp, input, None, None, scale, shift)


def _affine_vjp(g, input, scale, shift, shapes, needs, xp):
    g, x = contiguous(xp, g), contiguous(xp, input)
    sums = _sums_of(xp, g, x, None) if needs[1] or needs[2] else ()
    gx = _affined(xp, g, None, None, scale, None).astype(x.dtype, copy=False) if needs[0] else None
    grads = zip(needs[1:], (scale, shift), reversed(sums), strict=False)
    return gx, *(total.astype(p.dtype).reshape(p.shape) if wanted else None for wanted, p, total in grads)


batch_norm = Kernel(accepts=_accepts, forward=_forward, vjp=_vjp, residuals=("mean", "rstd"), statistics=statistics)
channel_affine = Kernel(accepts=_accepts, forward=_affine_forward, vjp=_affine_vjp)
