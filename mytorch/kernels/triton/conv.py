"""Convolution in one and two dimensions as an implicit matrix product, its two gradients, and transposed convolution.

The columns of `im2col` are never stored. A program computes a tile of the product. In each step along the inner axis, it
gathers the elements of the input that its windows cover.

    forward   out[(n, y, x), o]    = sum over (c, r, s) of  x[n, c, y*sy - py + r*dy, x*sx - px + s*dx] * w[o, (c, r, s)]
    input     gx[(n, y, x), c]     = sum over (o, r, s) of  g[n, o, (y + py - r*dy) / sy, …] * w[o, c, r, s]
                                     over the taps for which the divisions are exact
    weight    gw[o, (c, r, s)]     = sum over (n, y, x) of  g[n, o, y, x] * x[n, c, y*sy - py + r*dy, …]

The last two are the derivatives of the first: out is linear in x and in w. The weight gradient has few outputs and a long inner
axis. Different programs therefore sum chunks of that axis, and a second kernel adds the partial sums in a fixed order. One dimension
is treated as two dimensions with a height of 1. A transposed convolution is the input gradient used as forward; its
gradients are then the other two products.

If cuDNN is installed, it computes these three products (cudnn/convolution.py), and the kernels here those that it does not.

Neighboring threads must read neighboring elements of an image. Triton cannot see from divisions by a width that they are neighbors,
and then some of its versions let threads follow the channels. So positions are numbered in pairs (`_place`), and a test that differs
within a pair is only part of a mask.

Grid: one program for each tile (BM, BN) of the product of each group. Saved for backward: the inputs. Accumulation: float32.
x (N, groups * ins, height, width), w (groups * outs, ins, KH, KW), out and g (N, groups * outs, out_h, out_w), contiguous.
"""

import math
from functools import lru_cache

import triton
import triton.language as tl

from ...arrays import config
from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2, processors, tuned
from ..registry import CUDNN_CONVOLUTIONS
from .common import contiguous, dot, one_dtype
from .norm import add_up

FAR = tl.constexpr(-(1 << 30))  # added to a row, it gives a negative row, also if it is added twice


@triton.jit
def _place(index, height, width):
    """Returns (n, y, x) of positions in images of this size. Numbers 2 i and 2 i + 1 are neighbors in a row.

    Rows have an even length here. If the width is odd, the last x of a row is outside of the image.
    """
    pair = index // 2
    pairs = (width + 1) // 2
    row = pair // pairs
    return (row // height).to(tl.int64), row % height, pair % pairs * 2 + index % 2


@triton.jit
def _inside(y, x, height, width):
    """Returns which positions are inside of an image. As unsigned numbers, negative ones are larger than any size."""
    return (y.to(tl.uint32) < height) & (x.to(tl.uint32) < width)


@triton.jit
def _forward(x_ptr, w_ptr, bias_ptr, out_ptr, samples, height, width, out_h, out_w, groups, ins, outs,
             stride_y, stride_x, pad_y, pad_x, step_y, step_x, BIAS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
             PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Computes a tile (BM positions, BN channels) of out_ptr. ins, outs: channels of a group; step_y, step_x: dilation."""
    group = tl.program_id(1)
    tiles_n = tl.cdiv(outs, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # (n, y, x)
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # o
    sample, out_y, out_x = _place(rows, out_h, out_w)
    # Upper left corner of each position's window in the input; negative inside the padding.
    top = tl.where(sample < samples, out_y * stride_y - pad_y, FAR)
    left = out_x * stride_x - pad_x
    corner = x_ptr + (sample * groups + group) * ins * height * width + (top * width + left)
    inner_size = ins * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, inner_size, BK):
        # Split the inner index into channel and tap, and gather the input at this tap of each window.
        inner = start + tl.arange(0, BK)  # (c, r, s)
        down = tl.where(inner < inner_size, inner % (KH * KW) // KW * step_y, FAR)
        right = inner % KW * step_x
        # Positions in the padding read 0, without a padded copy of x.
        valid = _inside(top[:, None] + down[None, :], left[:, None] + right[None, :], height, width)
        offset = inner // (KH * KW) * (height * width) + down * width + right
        a = tl.load(corner[:, None] + offset[None, :], mask=valid, other=0.0)
        # The weight (outs, ins KH KW) is read transposed: (BK, BN).
        ptrs = w_ptr + (group * outs + cols).to(tl.int64)[None, :] * inner_size + inner[:, None]
        b = tl.load(ptrs, mask=(inner < inner_size)[:, None] & (cols < outs)[None, :], other=0.0)
        acc = dot(a, b, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + group * outs + cols, mask=cols < outs, other=0.0).to(tl.float32)[None, :]
    # Channels of out are out_h * out_w elements apart.
    offset = (sample * groups + group) * outs * (out_h * out_w) + (out_y * out_w + out_x)
    ptrs = out_ptr + offset[:, None] + (cols * (out_h * out_w))[None, :]
    tl.store(
        ptrs,
        acc.to(out_ptr.dtype.element_ty),
        mask=((sample < samples) & (out_x < out_w))[:, None] & (cols < outs)[None, :],
    )


@triton.jit
def _input(g_ptr, w_ptr, bias_ptr, gx_ptr, samples, height, width, out_h, out_w, groups, ins, outs, pad_y, pad_x, step_y, step_x,
           STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr, BIAS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
           PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Computes a tile (BM positions, BN channels) of gx_ptr."""
    group = tl.program_id(1)
    tiles_n = tl.cdiv(ins, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # (n, y, x) of the input
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # c
    sample, in_y, in_x = _place(rows, height, width)
    # Output y * stride - pad + tap * dilation = input position, solved for y: subtract the tap, then divide.
    bottom = tl.where(sample < samples, in_y + pad_y, FAR)
    right = in_x + pad_x
    plane = g_ptr + (sample * groups + group) * outs * out_h * out_w
    inner_size = outs * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, inner_size, BK):
        inner = start + tl.arange(0, BK)  # (o, r, s)
        channel = inner // (KH * KW)
        tap = inner % (KH * KW)
        up = tl.where(inner < inner_size, tap // KW * step_y, -FAR)
        y = (bottom[:, None] - up[None, :]).to(tl.uint32)  # very large if negative
        x = (right[:, None] - (tap % KW * step_x)[None, :]).to(tl.uint32)
        valid = _inside(y // STRIDE_Y, x // STRIDE_X, out_h, out_w)
        # Only taps for which the division is exact contribute.
        if STRIDE_Y > 1:
            valid = valid & (y % STRIDE_Y == 0)
        if STRIDE_X > 1:
            valid = valid & (x % STRIDE_X == 0)
        offset = (
            (channel * (out_h * out_w))[None, :] + (y // STRIDE_Y).to(tl.int32) * out_w + (x // STRIDE_X).to(tl.int32)
        )
        a = tl.load(plane[:, None] + offset, mask=valid, other=0.0)
        ptrs = w_ptr + ((group * outs + channel).to(tl.int64)[:, None] * ins + cols[None, :]) * (KH * KW) + tap[:, None]
        b = tl.load(ptrs, mask=(inner < inner_size)[:, None] & (cols < ins)[None, :], other=0.0)
        acc = dot(a, b, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + group * ins + cols, mask=cols < ins, other=0.0).to(tl.float32)[None, :]
    offset = (sample * groups + group) * ins * (height * width) + (in_y * width + in_x)
    ptrs = gx_ptr + offset[:, None] + (cols * (height * width))[None, :]
    tl.store(
        ptrs,
        acc.to(gx_ptr.dtype.element_ty),
        mask=((sample < samples) & (in_x < width))[:, None] & (cols < ins)[None, :],
    )


@triton.jit
def _weight(g_ptr, x_ptr, part_ptr, samples, height, width, out_h, out_w, groups, ins, outs,
            stride_y, stride_x, pad_y, pad_x, step_y, step_x, per_chunk, KH: tl.constexpr, KW: tl.constexpr,
            PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Computes a tile (BM channels, BN taps) of part_ptr (chunks, groups, outs, ins KH KW), summed over a chunk of positions."""
    group = tl.program_id(1)
    chunk = tl.program_id(2)
    inner_size = ins * KH * KW
    tiles_n = tl.cdiv(inner_size, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)  # o
    cols = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)  # (c, r, s)
    # Offset of each tap relative to the window's corner, including the padding.
    tap_y = tl.where(cols < inner_size, cols % (KH * KW) // KW * step_y - pad_y, FAR)
    tap_x = cols % KW * step_x - pad_x
    tap = cols // (KH * KW) * (height * width) + tap_y * width + tap_x
    acc = tl.zeros((BM, BN), tl.float32)
    # This chunk of the inner axis; the partial sums are written to part_ptr[chunk].
    for start in range(chunk * per_chunk, (chunk + 1) * per_chunk, BK):
        inner = start + tl.arange(0, BK)  # (n, y, x) of the output
        sample, out_y, out_x = _place(inner, out_h, out_w)
        valid_inner = (sample < samples) & (out_x < out_w)
        offset = (sample * groups + group) * outs * (out_h * out_w) + (out_y * out_w + out_x)
        ptrs = g_ptr + offset[:, None] + (rows * (out_h * out_w))[None, :]
        a = tl.load(ptrs, mask=valid_inner[:, None] & (rows < outs)[None, :], other=0.0)
        top = tl.where(sample < samples, out_y * stride_y, FAR)
        left = out_x * stride_x
        corner = x_ptr + (sample * groups + group) * ins * (height * width) + (top * width + left)
        valid = _inside(top[:, None] + tap_y[None, :], left[:, None] + tap_x[None, :], height, width)
        valid = valid & (out_x < out_w)[:, None]
        b = tl.load(corner[:, None] + tap[None, :], mask=valid, other=0.0)
        acc = dot(tl.trans(a), b, acc, PRECISION)
    ptrs = part_ptr + ((chunk * groups + group).to(tl.int64) * outs + rows)[:, None] * inner_size + cols[None, :]
    tl.store(ptrs, acc, mask=(rows < outs)[:, None] & (cols < inner_size)[None, :])


def _precision(dtype):
    """Returns the precision of float32 products: TF32, PyTorch's default for convolutions, or exact."""
    return "ieee" if dtype.itemsize == 4 and not config.convolution_tf32 else "tf32"


@lru_cache
def _tiles(n, wide, exact):
    """Returns the candidate tiles for an output of n columns. wide: float32; exact: not in TF32, so not on tensor cores."""

    def options(bm, bn, bk, warps, stages):
        return {"BM": bm, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": stages}

    narrow = 32 if n <= 32 else 64
    if exact:
        return {"none": [options(64, narrow, 16, 4, 3)], "medium": [options(128, narrow, 16, 8, 3), options(128, 128, 16, 8, 2)],
                "max": [options(64, 32, 32, 4, 2), options(64, 128, 16, 8, 3)]}  # fmt: skip
    if wide:  # half as many elements fit into shared memory
        return {"none": [options(128, narrow, 32, 8, 2)], "medium": [options(64, 64, 32, 4, 3), options(128, 128, 32, 8, 2)],
                "max": [options(64, 128, 32, 4, 3), options(128, 128, 16, 8, 3)]}  # fmt: skip
    default = options(128, narrow if n <= 64 else 128, 32, 8, 3)
    return {"none": [default], "medium": [options(128, 64, 64, 4, 3), options(64, 64, 64, 4, 3), options(256, 64, 32, 8, 3)],
            "max": [options(128, 128, 64, 8, 3), options(128, 256, 32, 8, 3), options(64, 128, 64, 4, 4)]}  # fmt: skip


def _tiles_for(n, dtype):
    return _tiles(n, dtype.itemsize == 4, _precision(dtype) == "ieee")


def _count(samples, size):
    """Returns the count of positions that `_place` numbers."""
    return samples * math.prod(size[:-1]) * (size[-1] + size[-1] % 2)


class _Geometry:
    """Sizes in two dimensions, for inputs of one or two, in the order of the kernels' arguments."""

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
        self.is_whole = True  # the output has as many positions as windows fit into the input

    def leave(self, out):
        """Sets the output size: the size of a transposed convolution's input is not unique (`output_padding`)."""
        out = (1, *out) if len(out) == 1 else tuple(out)
        self.is_whole, self.out = out == self.out, out
        self.sizes = (self.samples, *self.spatial, *self.out, self.groups, self.ins, self.outs)

    def constants(self, dtype):
        """Returns the compile-time constants that all kernels have."""
        return {"KH": self.kernel[0], "KW": self.kernel[1], "PRECISION": _precision(dtype)}

    def key(self, dtype):
        """Returns the key of the stored, tuned tile."""
        sizes = (*self.spatial, *self.kernel, *self.stride, self.groups, self.ins, self.outs)
        return dtype.name, _precision(dtype), power_of_2(self.samples), *sizes

    def product(self, kernel, arrays, positions, channels, dtype, numbers, **constants):
        """Launches a kernel that computes positions × channels of each group, with the tuned tile."""

        def attempt(tile):
            grid = (cdiv(_count(self.samples, positions), tile["BM"]) * cdiv(channels, tile["BN"]), self.groups)
            shared = {"BIAS": arrays[2] is not None, **self.constants(dtype), **tile}
            launch(kernel, grid, *arrays, *self.sizes, *numbers, **constants, **shared)

        attempt(tuned(kernel, self.key(dtype), _tiles_for(channels, dtype), attempt))


def _by_cudnn(kind, xp, shape, first, second, geo):
    """Returns a product of a convolution by cuDNN, or None if it does not compute it."""
    cudnn = CUDNN_CONVOLUTIONS.allowed("cuda")
    return cudnn and cudnn.product(kind, xp, shape, first, second, geo)


def _add_bias(xp, out, bias):
    return out if bias is None else xp.add(out, bias.reshape(-1, *(1,) * (out.ndim - 2)), out=out)


def run_forward(xp, x, w, bias, stride, padding, dilation, groups, size=None):
    """Returns the convolution of (N, C, [H,] W) with (O, C / groups, [R,] S), or its first `size` positions."""
    geo = _Geometry(x.shape, w.shape, stride, padding, dilation, groups)
    if size is not None:
        geo.leave(size)
    shape = (x.shape[0], w.shape[0], *geo.out[2 - (x.ndim - 2) :])
    if (out := _by_cudnn("forward", xp, shape, x, w, geo)) is not None:
        return _add_bias(xp, out, bias)
    out = xp.empty(shape, x.dtype)
    if out.size:
        arrays = (*(contiguous(xp, a) for a in (x, w, bias)), out)
        geo.product(_forward, arrays, geo.out, geo.outs, x.dtype, geo.steps)
    return out


def run_input(xp, g, w, shape, stride, padding, dilation, groups, bias=None):
    """Returns the gradient of an input (N, C, *shape). With a bias (C,), it is a transposed convolution."""
    whole = (g.shape[0], w.shape[1] * groups, *shape)
    geo = _Geometry(whole, w.shape, stride, padding, dilation, groups)
    geo.leave(g.shape[2:])
    if (gx := _by_cudnn("input", xp, whole, g, w, geo)) is not None:
        return _add_bias(xp, gx, bias)
    gx = xp.empty(whole, g.dtype)
    if gx.size:
        arrays, (stride_y, stride_x) = (*(contiguous(xp, a) for a in (g, w, bias)), gx), geo.stride
        numbers, constants = (*geo.padding, *geo.dilation), {"STRIDE_Y": stride_y, "STRIDE_X": stride_x}
        geo.product(_input, arrays, geo.spatial, geo.ins, g.dtype, numbers, **constants)
    return gx


def run_weight(xp, g, x, kernel, stride, padding, dilation, groups):
    """Returns the gradient of the weight (O, C / groups, *kernel)."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    geo = _Geometry(x.shape, shape, stride, padding, dilation, groups)
    geo.leave(g.shape[2:])
    if (gw := _by_cudnn("weight", xp, shape, x, g, geo)) is not None:
        return gw
    g, x = contiguous(xp, g), contiguous(xp, x)
    rows = _count(geo.samples, geo.out)
    inner_size = geo.ins * math.prod(geo.kernel)
    result = []

    def attempt(tile):
        tiles = cdiv(geo.outs, tile["BM"]) * cdiv(inner_size, tile["BN"])
        # Enough chunks for about two programs per multiprocessor, but at least four steps of BK per chunk.
        chunks = max(1, min(cdiv(rows, 4 * tile["BK"]), 2 * processors() // (tiles * groups), 64))
        per_chunk = cdiv(cdiv(rows, chunks), tile["BK"]) * tile["BK"]
        parts = xp.empty((chunks, g.shape[1] * inner_size), "float32")
        constants = {**geo.constants(x.dtype), **tile}
        launch(_weight, (tiles, groups, chunks), g, x, parts, *geo.sizes, *geo.steps, per_chunk, **constants)
        result[:] = [parts]

    if not rows or not inner_size:
        return xp.zeros(shape, x.dtype)
    tiles = _tiles_for(inner_size, x.dtype)
    # With few output channels, a tall tile would be mostly padding.
    if geo.outs <= 64:
        tiles = {**tiles, "none": [{**tiles["none"][0], "BM": 64 if geo.outs > 32 else 32}]}
    attempt(tuned(_weight, geo.key(x.dtype), tiles, attempt))
    return add_up(xp, result[0], x.dtype).reshape(shape)


def bias_gradient(xp, g, dtype):
    """Returns the sum of g over samples and positions."""
    return xp.sum(g, axis=(0, *range(2, g.ndim)), dtype="float32").astype(dtype, copy=False)


# -- kernels of the ops -----------------------------------------------------------------------------------------------


def _accepts(input, weight, bias=None, **options):
    """Accepts floats of one dtype, in one or two dimensions."""
    return one_dtype(input, weight) and (bias is None or one_dtype(bias)) and input.ndim in (3, 4)


def _pays(input, weight, bias=None, *, stride, padding, dilation, groups, shape=None):
    """Returns False for 1 × 1 windows, which are a plain matrix product."""
    return any(k != 1 for k in weight.shape[2:]) or any(s != 1 for s in stride) or any(padding) or groups != 1


def _convolution(xp, input, weight, bias=None, *, stride, padding, dilation, groups):
    return run_forward(xp, input, weight, bias, stride, padding, dilation, groups)


def _convolution_vjp(g, input, weight, bias, shapes, stride, padding, dilation, groups, needs, xp):
    geometry = (stride, padding, dilation, groups)
    return (
        run_input(xp, g, weight, tuple(shapes[0][2:]), *geometry) if needs[0] else None,
        run_weight(xp, g, input, tuple(shapes[1][2:]), *geometry) if needs[1] else None,
        bias_gradient(xp, g, bias.dtype) if needs[2] else None,
    )


def _transposed_accepts(g, weight, bias=None, **options):
    return _accepts(g, weight, bias) and g.size > 0


def _transposed(xp, g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    return run_input(xp, g, weight, tuple(shape), stride, padding, dilation, groups, bias)


def _transposed_vjp(up, g, weight, bias, shapes, stride, padding, dilation, groups, needs, xp):
    geometry = (stride, padding, dilation, groups)
    return (
        run_forward(xp, up, weight, None, *geometry, size=shapes[0][2:]) if needs[0] else None,
        run_weight(xp, g, up, tuple(shapes[1][2:]), *geometry) if needs[1] else None,
        bias_gradient(xp, up, bias.dtype) if needs[2] else None,
    )


convolution = Kernel(accepts=_accepts, is_faster=_pays, forward=_convolution, vjp=_convolution_vjp)
conv_transpose = Kernel(accepts=_transposed_accepts, is_faster=_pays, forward=_transposed, vjp=_transposed_vjp)
