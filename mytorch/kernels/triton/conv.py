"""Convolution in one and two dimensions as an implicit matrix product, and its two gradients.

The columns of `im2col` are never written: a program makes a tile of the product and gathers, at each step along the
inner axis, the elements of the input that its windows cover.

    forward   out[(n, y, x), o]    = sum over (c, r, s) of  x[n, c, y*sy - py + r*dy, x*sx - px + s*dx] * w[o, (c, r, s)]
    input     gx[(n, y, x), c]     = sum over (o, r, s) of  g[n, o, (y + py - r*dy) / sy, …] * w[o, c, r, s]
                                     where the divisions leave no rest
    weight    gw[o, (c, r, s)]     = sum over (n, y, x) of  g[n, o, y, x] * x[n, c, y*sy - py + r*dy, …]

The last one has few outputs and a long inner axis, so that axis is cut into pieces that different programs take; their
partial sums are added up by a second kernel, in a fixed order. One dimension is two with a height of 1.

Grid: a program for each tile, of each group. Accumulation: float32.
"""

from functools import lru_cache

import triton
import triton.language as tl

from ..launch import cdiv, launch, power_of_2, processors, tuned
from .common import contiguous, dot, one_dtype
from .norm import add_up


@triton.jit
def _forward(x_ptr, w_ptr, bias_ptr, out_ptr, samples, height, width, out_h, out_w, groups, ins, outs,
             stride_y, stride_x, pad_y, pad_x, gap_y, gap_x, BIAS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
             PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """ins and outs are the channels of one group."""
    group = tl.program_id(1)
    tiles_n = tl.cdiv(outs, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # (n, y, x)
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # o
    count = samples * out_h * out_w
    sample = (rows // (out_h * out_w)).to(tl.int64)
    spot = rows % (out_h * out_w)
    top = spot // out_w * stride_y - pad_y
    left = spot % out_w * stride_x - pad_x
    plane = x_ptr + (sample * groups + group) * ins * height * width
    deep = ins * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, deep, BK):
        inner = start + tl.arange(0, BK)  # (c, r, s)
        channel = inner // (KH * KW)
        y = top[:, None] + (inner % (KH * KW) // KW * gap_y)[None, :]
        x = left[:, None] + (inner % KW * gap_x)[None, :]
        seen = (rows < count)[:, None] & (inner < deep)[None, :] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        a = tl.load(plane[:, None] + channel[None, :] * (height * width) + y * width + x, mask=seen, other=0.0)
        at = w_ptr + (group * outs + cols).to(tl.int64)[None, :] * deep + inner[:, None]
        b = tl.load(at, mask=(inner < deep)[:, None] & (cols < outs)[None, :], other=0.0)
        acc = dot(a, b, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + group * outs + cols, mask=cols < outs, other=0.0).to(tl.float32)[None, :]
    at = (
        out_ptr
        + ((sample * groups + group) * outs)[:, None] * (out_h * out_w)
        + cols[None, :] * (out_h * out_w)
        + spot[:, None]
    )
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=(rows < count)[:, None] & (cols < outs)[None, :])


@triton.jit
def _input(g_ptr, w_ptr, bias_ptr, gx_ptr, samples, height, width, out_h, out_w, groups, ins, outs,
           stride_y, stride_x, pad_y, pad_x, gap_y, gap_x, BIAS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
           PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    group = tl.program_id(1)
    tiles_n = tl.cdiv(ins, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # (n, y, x) of the input
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # c
    count = samples * height * width
    sample = (rows // (height * width)).to(tl.int64)
    spot = rows % (height * width)
    bottom = spot // width + pad_y
    right = spot % width + pad_x
    plane = g_ptr + (sample * groups + group) * outs * out_h * out_w
    deep = outs * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, deep, BK):
        inner = start + tl.arange(0, BK)  # (o, r, s)
        channel = inner // (KH * KW)
        tap = inner % (KH * KW)
        y = bottom[:, None] - (tap // KW * gap_y)[None, :]
        x = right[:, None] - (tap % KW * gap_x)[None, :]
        seen = (rows < count)[:, None] & (inner < deep)[None, :] & (y >= 0) & (x >= 0)
        seen = seen & (y % stride_y == 0) & (x % stride_x == 0)
        y = y // stride_y
        x = x // stride_x
        seen = seen & (y < out_h) & (x < out_w)
        a = tl.load(plane[:, None] + channel[None, :] * (out_h * out_w) + y * out_w + x, mask=seen, other=0.0)
        at = w_ptr + ((group * outs + channel).to(tl.int64)[:, None] * ins + cols[None, :]) * (KH * KW) + tap[:, None]
        b = tl.load(at, mask=(inner < deep)[:, None] & (cols < ins)[None, :], other=0.0)
        acc = dot(a, b, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + group * ins + cols, mask=cols < ins, other=0.0).to(tl.float32)[None, :]
    at = (
        gx_ptr
        + ((sample * groups + group) * ins)[:, None] * (height * width)
        + cols[None, :] * (height * width)
        + spot[:, None]
    )
    tl.store(at, acc.to(gx_ptr.dtype.element_ty), mask=(rows < count)[:, None] & (cols < ins)[None, :])


@triton.jit
def _weight(g_ptr, x_ptr, part_ptr, samples, height, width, out_h, out_w, groups, ins, outs,
            stride_y, stride_x, pad_y, pad_x, gap_y, gap_x, per_piece, KH: tl.constexpr, KW: tl.constexpr,
            PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    group = tl.program_id(1)
    piece = tl.program_id(2)
    deep = ins * KH * KW
    tiles_n = tl.cdiv(deep, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # o
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # (c, r, s)
    channel = cols // (KH * KW)
    down = cols % (KH * KW) // KW * gap_y - pad_y
    along = cols % KW * gap_x - pad_x
    count = samples * out_h * out_w
    end = tl.minimum(count, (piece + 1) * per_piece)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(piece * per_piece, end, BK):
        inner = start + tl.arange(0, BK)  # (n, y, x) of the output
        sample = (inner // (out_h * out_w)).to(tl.int64)
        spot = inner % (out_h * out_w)
        at = (
            g_ptr
            + ((sample * groups + group) * outs)[None, :] * (out_h * out_w)
            + rows[:, None] * (out_h * out_w)
            + spot[None, :]
        )
        a = tl.load(at, mask=(rows < outs)[:, None] & (inner < end)[None, :], other=0.0)
        y = (spot // out_w * stride_y)[:, None] + down[None, :]
        x = (spot % out_w * stride_x)[:, None] + along[None, :]
        seen = (inner < end)[:, None] & (cols < deep)[None, :] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        at = (
            x_ptr
            + ((sample * groups + group) * ins)[:, None] * (height * width)
            + channel[None, :] * (height * width)
            + y * width
            + x
        )
        b = tl.load(at, mask=seen, other=0.0)
        acc = dot(a, b, acc, PRECISION)
    at = part_ptr + ((piece * groups + group).to(tl.int64) * outs + rows)[:, None] * deep + cols[None, :]
    tl.store(at, acc, mask=(rows < outs)[:, None] & (cols < deep)[None, :])


@lru_cache
def _tiles(n, wide):
    """Tiles to choose from, for an output of n columns."""

    def options(bm, bn, bk, warps, stages):
        return {"BM": bm, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": stages}

    narrow = 32 if n <= 32 else 64
    if wide:
        return {"none": [options(64, narrow, 16, 4, 3)], "medium": [options(128, narrow, 16, 8, 3), options(128, 128, 16, 8, 2)],
                "max": [options(64, 32, 32, 4, 2), options(64, 128, 16, 8, 3)]}  # fmt: skip
    default = options(128, narrow if n <= 64 else 128, 32, 8, 3)
    return {"none": [default], "medium": [options(128, 64, 64, 4, 3), options(64, 64, 64, 4, 3), options(256, 64, 32, 8, 3)],
            "max": [options(128, 128, 64, 8, 3), options(128, 256, 32, 8, 3), options(64, 128, 64, 4, 4)]}  # fmt: skip


class _Geometry:
    """Sizes in two dimensions, whatever the number given, in the order in which the kernels take them."""

    def __init__(self, input_shape, weight_shape, stride, padding, dilation, groups):
        def two(values, front):
            return (front, *values) if len(values) == 1 else tuple(values)

        self.samples, channels = input_shape[:2]
        self.spatial = two(input_shape[2:], 1)
        self.kernel = two(weight_shape[2:], 1)
        self.stride, self.padding, self.dilation = two(stride, 1), two(padding, 0), two(dilation, 1)
        sides = zip(self.spatial, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        self.out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides)
        self.groups, self.ins, self.outs = groups, channels // groups, weight_shape[0] // groups
        self.sizes = (self.samples, *self.spatial, *self.out, groups, self.ins, self.outs)
        self.steps = (*self.stride, *self.padding, *self.dilation)

    def leave(self, out):
        """Take `out` as the output's size: a transposed convolution may leave a rest."""
        self.out = (1, *out) if len(out) == 1 else tuple(out)
        self.sizes = (self.samples, *self.spatial, *self.out, self.groups, self.ins, self.outs)

    def constants(self, dtype):
        """The constexprs that all kernels have."""
        return {"KH": self.kernel[0], "KW": self.kernel[1], "PRECISION": "ieee" if dtype.itemsize == 4 else "tf32"}

    def key(self, dtype):
        """What tiles are chosen by."""
        return (
            dtype.name,
            power_of_2(self.samples),
            *self.spatial,
            *self.kernel,
            *self.stride,
            self.groups,
            self.ins,
            self.outs,
        )


def run_forward(xp, x, w, bias, stride, padding, dilation, groups, size=None):
    """The convolution of (N, C, [H,] W) with (O, C / groups, [R,] S); of its output only the first `size`, if that is given."""
    geo = _Geometry(x.shape, w.shape, stride, padding, dilation, groups)
    if size is not None:
        geo.leave(size)
    x, w = contiguous(xp, x), contiguous(xp, w)
    bias = None if bias is None else contiguous(xp, bias)
    out = xp.empty((x.shape[0], w.shape[0], *geo.out[2 - (x.ndim - 2) :]), x.dtype)
    rows = geo.samples * geo.out[0] * geo.out[1]

    def attempt(tile):
        grid = (cdiv(rows, tile["BM"]) * cdiv(geo.outs, tile["BN"]), groups)
        launch(
            _forward,
            grid,
            x,
            w,
            bias,
            out,
            *geo.sizes,
            *geo.steps,
            BIAS=bias is not None,
            **geo.constants(x.dtype),
            **tile,
        )

    if out.size:
        attempt(tuned(_forward, geo.key(x.dtype), _tiles(geo.outs, x.dtype.itemsize == 4), attempt))
    return out


def run_input(xp, g, w, shape, stride, padding, dilation, groups, bias=None):
    """The gradient of an input (N, C, *shape); with a bias (C,) added, a transposed convolution."""
    whole = (g.shape[0], w.shape[1] * groups, *shape)
    geo = _Geometry(whole, w.shape, stride, padding, dilation, groups)
    geo.leave(g.shape[2:])
    g, w = contiguous(xp, g), contiguous(xp, w)
    bias = None if bias is None else contiguous(xp, bias)
    gx = xp.empty(whole, g.dtype)
    rows = geo.samples * geo.spatial[0] * geo.spatial[1]

    def attempt(tile):
        grid = (cdiv(rows, tile["BM"]) * cdiv(geo.ins, tile["BN"]), groups)
        launch(
            _input,
            grid,
            g,
            w,
            bias,
            gx,
            *geo.sizes,
            *geo.steps,
            BIAS=bias is not None,
            **geo.constants(g.dtype),
            **tile,
        )

    if gx.size:
        attempt(tuned(_input, geo.key(g.dtype), _tiles(geo.ins, g.dtype.itemsize == 4), attempt))
    return gx


def run_weight(xp, g, x, kernel, stride, padding, dilation, groups):
    """The gradient of the weight (O, C / groups, *kernel)."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    geo = _Geometry(x.shape, shape, stride, padding, dilation, groups)
    geo.leave(g.shape[2:])
    g, x = contiguous(xp, g), contiguous(xp, x)
    rows = geo.samples * geo.out[0] * geo.out[1]
    deep = geo.ins * geo.kernel[0] * geo.kernel[1]
    found = []

    def attempt(tile):
        tiles = cdiv(geo.outs, tile["BM"]) * cdiv(deep, tile["BN"])
        pieces = max(1, min(cdiv(rows, 4 * tile["BK"]), 2 * processors() // (tiles * groups), 64))
        per_piece = cdiv(cdiv(rows, pieces), tile["BK"]) * tile["BK"]
        parts = xp.empty((pieces, g.shape[1] * deep), "float32")
        launch(
            _weight,
            (tiles, groups, pieces),
            g,
            x,
            parts,
            *geo.sizes,
            *geo.steps,
            per_piece,
            **geo.constants(x.dtype),
            **tile,
        )
        found[:] = [parts]

    if not rows or not deep:
        return xp.zeros(shape, x.dtype)
    tiles = _tiles(deep, x.dtype.itemsize == 4)
    if geo.outs <= 64:
        tiles = {**tiles, "none": [{**tiles["none"][0], "BM": 64 if geo.outs > 32 else 32}]}
    attempt(tuned(_weight, geo.key(x.dtype), tiles, attempt))
    return add_up(xp, found[0], x.dtype).reshape(shape)


def bias_gradient(xp, g, dtype):
    """The sum of g over samples and positions."""
    return xp.sum(g.reshape(*g.shape[:2], -1), axis=(0, 2), dtype="float32").astype(dtype, copy=False)


def accepts(input, weight, bias=None, *, stride, padding, dilation, groups):
    """Floats of one dtype, in one or two dimensions."""
    return one_dtype(input, weight) and (bias is None or one_dtype(bias)) and input.ndim in (3, 4)


def pays(input, weight, bias=None, *, stride, padding, dilation, groups):
    """Except for 1 × 1 windows, which are a plain product."""
    plain = all(k == 1 for k in weight.shape[2:]) and all(s == 1 for s in stride) and not any(padding) and groups == 1
    return not plain


def forward(xp, input, weight, bias=None, *, stride, padding, dilation, groups):
    """The convolution of (N, C, *spatial) with (O, C / groups, *kernel)."""
    return run_forward(xp, input, weight, bias, stride, padding, dilation, groups)


def vjp(g, input, weight, bias, shapes, stride, padding, dilation, groups, needs, xp):
    """The gradients of input, weight and bias."""
    geometry = (stride, padding, dilation, groups)
    return (
        run_input(xp, g, weight, tuple(shapes[0][2:]), *geometry) if needs[0] else None,
        run_weight(xp, g, input, tuple(shapes[1][2:]), *geometry) if needs[1] else None,
        bias_gradient(xp, g, bias.dtype) if needs[2] else None,
    )
