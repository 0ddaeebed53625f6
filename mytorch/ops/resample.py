"""Resampling: interpolation, sampling on a grid, pixel shuffles, unfolding into patches.

Interpolation along an axis is a matrix multiplication with weights, with one row for each output element. Separable
modes use one multiplication for each axis.
"""

import functools
import math

import numpy as np

from ..arrays import dtypes, is_raw, memory_owner
from ..arrays.errors import warn_as_pytorch
from ..arrays.tensor import Tensor
from .conv import check_window, out_size, several, tap_slices, taps, windows
from .dispatch.bind import public_function
from .dispatch.half import once_rounded
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.unwrap import on_device_of, raw_of
from .elementwise import where
from .movement import as_shape, contiguous, laid_out_as, stack
from .padding import pad
from .pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, along

_DIMS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def _sources(n, out, scale, align_corners):
    """Returns the (fractional) source position of each output element."""
    i = np.arange(out)
    if align_corners:
        return i * ((n - 1) / (out - 1)) if out > 1 else np.zeros(out)
    # Pixels are areas with centers at i + 0.5; with align_corners, they are points.
    return (i + 0.5) * scale - 0.5


def _linear_taps(n, out, scale, align_corners):
    """Returns (indices, weights), each (2, out): the two source elements of each output element, and their weights."""
    source = np.clip(_sources(n, out, scale, align_corners), 0, n - 1)
    low = np.floor(source).astype(np.int64)
    fraction = source - low
    return np.stack([low, np.minimum(low + 1, n - 1)]), np.stack([1 - fraction, fraction])


@functools.lru_cache(16)
def _matrix(taps_of, n, out, scale, align_corners):
    """Returns (the taps of a function as a matrix (out, n), the elements that are taps)."""
    indices, weights = taps_of(n, out, scale, align_corners)
    matrix = np.zeros((out, n))
    rows = np.arange(indices.shape[1])
    # At the border, several taps are clipped to the same element, so their weights must add up.
    np.add.at(matrix, (rows, indices), weights)
    taps = np.zeros(matrix.shape, bool)
    taps[rows, indices] = True
    return matrix, taps


def _tapped(input, axis, indices, weights):
    """Returns the weighted sum of the elements at each row of indices along an axis."""
    total = None
    for index, weight in zip(indices, weights, strict=True):
        factor = weight.reshape(-1, *(1,) * (input.ndim - 1 - axis)).astype(raw_of(input).dtype)
        part = input.index_select(axis, Tensor._wrap(index)) * Tensor._wrap(factor)
        total = part if total is None else total + part
    return total


def _near(x, a):
    """Returns the cubic convolution weight with coefficient a for distances up to 1 (Keys, 1981)."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x, a):
    """Returns the cubic convolution weight for distances from 1 to 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _cubic_weights(t, a=-0.75):
    """Returns the weights of four points for a position t after the second point. PyTorch and OpenCV use the same a."""
    return _far(t + 1, a), _near(t, a), _near(1 - t, a), _far(2 - t, a)


def _cubic_taps(n, out, scale, align_corners):
    """Returns (indices, weights), each (4, out), as `_linear_taps`."""
    source = _sources(n, out, scale, align_corners)
    low = np.floor(source).astype(np.int64)
    indices = np.stack([np.clip(low + offset, 0, n - 1) for offset in (-1, 0, 1, 2)])
    return indices, np.stack(_cubic_weights(source - low))


def _keys(x, a=-0.5):
    """Returns the cubic weight at any distance. Pillow, and PyTorch with antialias, use this a."""
    x = np.abs(x)
    return np.where(x < 1, _near(x, a), np.where(x < 2, _far(x, a), 0.0))


_FILTERS = {  # (half the width, function: distance -> weight)
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, lambda x: np.maximum(1 - np.abs(x), 0.0)),
    "hamming": (1.0, lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)),
    "bicubic": (2.0, _keys),
    "lanczos": (3.0, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}


def smoothing_matrix(n, out, scale, mode):
    """Returns weights (out, n) of a filter that widens when an image shrinks, so that every pixel contributes."""
    support, weight = _FILTERS[mode]
    filter_scale = max(scale, 1.0)
    center = (np.arange(out) + 0.5)[:, None] * scale
    # The range of source pixels of each output pixel, rounded like Pillow and PyTorch.
    low = np.maximum(np.floor(center - support * filter_scale + 0.5), 0)
    high = np.minimum(np.floor(center + support * filter_scale + 0.5), n)
    index = np.arange(n)
    weights = np.where((index >= low) & (index < high), weight((index - center + 0.5) / filter_scale), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _nearest(n, out, scale, exact):
    at = (np.arange(out) + (0.5 if exact else 0.0)) * scale
    return np.minimum(np.floor(at).astype(np.int64), n - 1)


_WRONG_COUNT = (
    "Input and {0} must have the same number of spatial dimensions, but got input with spatial dimensions of {1} and "
    "{0} of {2}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and {0} of as many values."
)


@public_function
def interpolate(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
    antialias=False,
):  # fmt: skip
    """Resizes the spatial axes of the input.

    Args:
        input: (N, C, …).
        size: output size, one number or one for each spatial axis. Give either `size` or `scale_factor`.
        scale_factor: factor of the spatial sizes, one number or one for each spatial axis.
        mode: "nearest" (default), "nearest-exact", "linear" (3-d inputs), "bilinear" or "bicubic" (4-d inputs),
            "trilinear" (5-d inputs), or "area".
        align_corners: if True, aligns the centers of the corner elements, which then keep their values (default: None).
        recompute_scale_factor: if True, computes the scale again from the rounded output size (default: None).
        antialias: if True, smooths while shrinking; for modes "bilinear" and "bicubic" (default: False).

    Raises:
        ValueError: not exactly one of `size` and `scale_factor`, or an option that does not fit the mode.
        NotImplementedError: a mode that is unknown or does not fit the number of axes.

    Example:
        >>> F.interpolate(tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]

    See also: `nn.Upsample`, `nn.functional.grid_sample`.
    """
    d = input.ndim - 2
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "only one of size or scale_factor should be defined"
            if size is not None
            else "either size or scale_factor should be defined"
        )
    if not 1 <= d <= 3:
        raise NotImplementedError(f"interpolate: expected an input of 3 to 5 dimensions, got {input.ndim}.")
    if mode in _DIMS and _DIMS[mode] != d:
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs {_DIMS[mode] + 2}D input")
    if mode not in (*_DIMS, "nearest", "nearest-exact", "area"):
        raise NotImplementedError(f"interpolate: unknown mode {mode!r}.")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    spatial = tuple(input.shape[2:])
    if size is not None:
        if isinstance(size, (tuple, list)) and len(size) != d:
            raise ValueError(_WRONG_COUNT.format("output", spatial, size))
        out = several(size, d, "interpolate")
        scales = [n / max(o, 1) for n, o in zip(spatial, out, strict=True)]
    else:
        factors = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * d
        if len(factors) != d:
            raise ValueError(_WRONG_COUNT.format("scale_factor", spatial, factors))
        if not all(math.isfinite(f) for f in factors):
            raise RuntimeError(f"interpolate: scale_factor must be finite, got {scale_factor}")
        out = tuple(math.floor(n * f) for n, f in zip(spatial, factors, strict=True))
        scales = [
            1 / (f or 1) if not recompute_scale_factor else n / max(o, 1)
            for f, n, o in zip(factors, spatial, out, strict=True)
        ]
    if min((*spatial, *out), default=1) <= 0:
        raise RuntimeError(
            f"interpolate: Input and output sizes should be greater than 0, but got input {spatial} output {out}"
        )
    integers = not (input.dtype.is_floating_point or input.dtype.is_complex)
    if integers and input.dtype is not dtypes.uint8:
        raise NotImplementedError(f"interpolate: mode {mode!r} not implemented for {input.dtype}")
    if integers and mode in _DIMS:  # round to bytes after each axis, the last axis first, as PyTorch does
        for i in reversed(range(d)):
            sizes, only = list(input.shape[2:]), [1.0] * d
            sizes[i], only[i] = out[i], scales[i]
            wide = _resized(input.to(dtypes.float32), sizes, only, mode, align_corners, antialias)
            input = laid_out_as(input, wide.round().clamp(0, 255).to(dtypes.uint8))
        return input
    if mode == "area":
        return laid_out_as(input, (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[d - 1](input, out))
    return laid_out_as(input, _resized(input, out, scales, mode, align_corners, antialias))


@in_precision("float32")
@once_rounded
def _resized(input, out, scales, mode, align_corners, antialias):
    """Resizes the spatial axes of the input to the sizes `out`, one axis after the other."""
    axes = list(enumerate(zip(tuple(input.shape[2:]), out, scales, strict=True), 2))
    if mode.startswith("nearest") and math.prod(out) > math.prod(input.shape[2:]):
        axes.reverse()  # elements of the last axis are copied one by one, so while there are few of them
    for axis, (n, o, scale) in axes:
        if mode.startswith("nearest"):
            index = _nearest(n, o, scale, mode == "nearest-exact")
            if n != o or (index != np.arange(n)).any():
                input = input[(slice(None),) * axis + (index,)]
        elif n != o or (mode == "bicubic" and not antialias):
            if antialias:
                matrix = smoothing_matrix(n, o, ((n - 1) / (o - 1) if o > 1 else 0.0) if align_corners else scale, mode)
                input = along(input, axis, matrix)
            else:
                taps_of = _cubic_taps if mode == "bicubic" else _linear_taps
                if n > 128 and input.device.type == "cpu":  # a dense matrix would be mostly zeros
                    input = _tapped(input, axis, *taps_of(n, o, scale, bool(align_corners)))
                    continue
                input = along(input, axis, *_matrix(taps_of, n, o, scale, bool(align_corners)))
    return input


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Resizes the spatial axes of the input. Deprecated; use `interpolate`.

    Args:
        input: (N, C, …).
        size: output size. Give either `size` or `scale_factor`.
        scale_factor: factor of the spatial sizes.
        mode: as in `interpolate` (default: "nearest").
        align_corners: as in `interpolate` (default: None).
    """
    warn_as_pytorch("nn.functional.upsample is deprecated. Use nn.functional.interpolate instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


# -- channels and pixels -----------------------------------------------------------------------------------------


def _image(input, name):
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    return input.shape


def _factor(r, word):
    (r,) = several(r, 1, word)
    if r <= 0:
        raise RuntimeError(f"expected a positive {word}, but got {r}")
    return r


def pixel_shuffle(input, upscale_factor):
    """Moves elements from channels to positions, which makes an image r times larger.

        (…, C * r^2, H, W) -> (…, C, H * r, W * r)

    Args:
        input: (…, C * r^2, H, W).
        upscale_factor: factor r.

    Raises:
        RuntimeError: the number of channels is not divisible by r^2.

    Source: Shi et al., 2016.

    Example:
        >>> F.pixel_shuffle(mytorch.arange(4.0).reshape(4, 1, 1), 2).tolist()
        [[[0.0, 1.0], [2.0, 3.0]]]

    See also: `nn.PixelShuffle`.
    """
    r, (*lead, c, h, w) = _factor(upscale_factor, "upscale_factor"), _image(input, "pixel_shuffle")
    if c % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    n = len(lead)
    # (…, C, r, r, H, W) to (…, C, H, r, W, r).
    x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return laid_out_as(input, x.reshape(*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """Moves elements from positions to channels, the inverse of `pixel_shuffle`.

        (…, C, H * r, W * r) -> (…, C * r^2, H, W)

    Args:
        input: (…, C, H * r, W * r).
        downscale_factor: factor r.

    Raises:
        RuntimeError: the height or width is not divisible by r.

    Example:
        >>> F.pixel_unshuffle(mytorch.arange(4.0).reshape(1, 2, 2), 2).shape
        mytorch.Size([4, 1, 1])

    See also: `nn.PixelUnshuffle`.
    """
    r, (*lead, c, h, w) = _factor(downscale_factor, "downscale_factor"), _image(input, "pixel_unshuffle")
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, got {h}x{w} and {r}"
        )
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    n = len(lead)
    # (…, C, H, r, W, r) to (…, C, r, r, H, W).
    x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return laid_out_as(input, x.reshape(*lead, c * r * r, h // r, w // r))


def channel_shuffle(input, groups):
    """Interleaves the channels of several groups.

    Args:
        input: (N, C, …).
        groups: number of groups; must divide C.

    Raises:
        RuntimeError: the number of channels is not divisible by `groups`.

    Source: Zhang et al., 2018.

    Example:
        >>> F.channel_shuffle(mytorch.arange(4.0).reshape(1, 4, 1, 1), 2).flatten().tolist()
        [0.0, 2.0, 1.0, 3.0]

    See also: `nn.ChannelShuffle`.
    """
    n, c, *rest = _image(input, "channel_shuffle")
    if c % _factor(groups, "number of groups"):
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    return laid_out_as(input, input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest))


# -- patches ---------------------------------------------------------------------------------------------------------


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Extracts sliding windows of images as columns.

    Args:
        input: (N, C, H, W) or (C, H, W).
        kernel_size: size of a window, one number or (height, width).
        dilation: step between the elements of a window, one number or two (default: 1).
        padding: number of zeros added at both ends of an axis, one number or two (default: 0).
        stride: step between windows, one number or two (default: 1).

    Shape:
        result: (N, C * kH * kW, number of windows).

    Raises:
        RuntimeError: the shape does not fit, or there is no window.

    Example:
        >>> F.unfold(mytorch.arange(4.0).reshape(1, 1, 2, 2), kernel_size=(1, 2)).tolist()
        [[[0.0, 2.0], [1.0, 3.0]]]

    See also: `nn.Unfold`, `nn.functional.fold`.
    """
    kernel, dilation, padding, stride = (several(v, 2, "unfold") for v in (kernel_size, dilation, padding, stride))
    check_window("unfold", kernel=kernel, dilation=dilation, padding=padding, stride=stride)
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(input.shape)}"
        )
    single = input.ndim == 3
    x = input.unsqueeze(0) if single else input
    _blocks(x.shape[2:], kernel, stride, padding, dilation)
    x = pad(x, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else x
    out = _windows(x, kernel=kernel, stride=stride, dilation=dilation)
    return out.squeeze(0) if single else out


def _blocks(spatial, kernel, stride, padding, dilation):
    """Returns the number of windows along each axis.

    Raises:
        RuntimeError: an axis has no window.
    """
    out = [out_size(*sizes) for sizes in zip(spatial, kernel, stride, padding, dilation, strict=True)]
    if min(out) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(spatial)}, kernel_size={kernel}, dilation={dilation}, padding={padding}, "
            f"expected at least one sliding block along each axis, but calculated {tuple(out)} blocks."
        )
    return out


@op(dtype="same", name="unfold_windows")
def _windows(xp, input, *, kernel, stride, dilation):
    view = windows(xp, input, kernel, stride, dilation)
    shape = input.shape[0], input.shape[1] * math.prod(kernel), math.prod(view.shape[2 + len(kernel) :])
    columns = view.reshape(shape)
    # A window of one element: the result has its own memory, too.
    return columns.copy() if is_raw(columns) and memory_owner(columns) is memory_owner(input) else columns


@op(dtype="same", name="fold_windows")
def _overlap(xp, g, *, shape, kernel, stride, dilation):
    """Adds columns at the positions of their windows in an array of `shape`: the gradient of `_windows`."""
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True)]
    columns = g.reshape(shape[0], shape[1], math.prod(kernel), *out)
    result = xp.zeros(shape, g.dtype)
    # Windows overlap, but position t of all windows is one strided slice without overlap.
    for t, position in enumerate(taps(kernel)):
        result[(slice(None), slice(None), *tap_slices(position, out, stride, dilation))] += columns[:, :, t]
    return result


_windows.grad(
    input=lambda g, shape, kernel, stride, dilation, xp: xp.call(
        _overlap, g, shape=tuple(shape), kernel=kernel, stride=stride, dilation=dilation
    )
)
_overlap.grad(
    g=lambda g, kernel, stride, dilation, xp: xp.call(_windows, g, kernel=kernel, stride=stride, dilation=dilation)
)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Adds up columns at the positions of their windows, the reverse of `unfold`.

    Args:
        input: (N, C * kH * kW, number of windows), or without N.
        output_size: size of the result, one number or (H, W).
        kernel_size: size of a window, one number or (height, width).
        dilation: step between the elements of a window, one number or two (default: 1).
        padding: padding that `unfold` added, one number or two (default: 0).
        stride: step between windows, one number or two (default: 1).

    Shape:
        result: (N, C, H, W).

    Raises:
        RuntimeError: the shape does not fit the windows.

    Example:
        >>> columns = F.unfold(mytorch.ones(1, 1, 3, 3), 2)
        >>> F.fold(columns, output_size=3, kernel_size=2)[0, 0].tolist()  # how many windows contain each position
        [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]

    See also: `nn.Fold`, `nn.functional.unfold`.
    """
    size, kernel, dilation, padding, stride = (
        several(v, 2, "fold") for v in (output_size, kernel_size, dilation, padding, stride)
    )
    check_window("fold", kernel=kernel, dilation=dilation, padding=padding, stride=stride)
    single = input.ndim == 2
    x = input.unsqueeze(0) if single else input
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions, but got: "
            f"{list(input.shape)}"
        )
    if x.shape[1] % math.prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={x.shape[1]} and kernel_size={kernel}."
        )
    blocks = math.prod(_blocks(size, kernel, stride, padding, dilation))
    if x.shape[2] != blocks:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, stride={stride}, expected "
            f"size of input's dimension 2 to match the calculated number of sliding blocks {blocks}, but got input.size(2)={x.shape[2]}."
        )
    padded = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    shape = (x.shape[0], x.shape[1] // math.prod(kernel), *padded)
    out = _overlap(x, shape=shape, kernel=kernel, stride=stride, dilation=dilation)
    out = contiguous(out[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]])
    return out.squeeze(0) if single else out


# -- sampling on a grid ----------------------------------------------------------------------------------------------


def _warn_of_default(name):
    warn_as_pytorch(
        f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old "
        f"behavior is desired. See the documentation of {name} for details."
    )


def affine_grid(theta, size, align_corners=None):
    """Computes the positions of the pixels of an image after an affine map, as a grid.

    Args:
        theta: affine matrices, (N, 2, 3) for images or (N, 3, 4) for volumes.
        size: size of the image, (N, C, H, W) or (N, C, D, H, W).
        align_corners: if True, -1 and 1 are the centers of the corner pixels; otherwise the image borders (default: False).

    Returns:
        Positions in [-1, 1] for `grid_sample`, (N, H, W, 2) or (N, D, H, W, 3).

    Raises:
        ValueError: the shape of `theta` does not fit `size`.

    Example:
        >>> identity = tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> F.affine_grid(identity, (1, 1, 2, 2), align_corners=True)[0, 0].tolist()
        [[-1.0, -1.0], [1.0, -1.0]]

    See also: `nn.functional.grid_sample`.
    """
    if not theta.is_floating_point():
        raise ValueError(f"affine_grid: expected theta to have floating point type, but got {theta.dtype}")
    if align_corners is None:
        _warn_of_default("affine_grid")
    n, _, *spatial = as_shape(size)
    d = len(spatial)
    if tuple(theta.shape) != (n, d, d + 1):
        raise ValueError(
            f"Expected a batch of {d}D affine matrices of shape {n}x{d}x{d + 1} for size {tuple(size)}. Got {tuple(theta.shape)}."
        )

    def axis(count):
        points = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
        return points if align_corners else points * ((count - 1) / count)

    grids = np.meshgrid(*(axis(c) for c in spatial), indexing="ij")
    # Homogeneous coordinates (x, y, 1), with the last axis first.
    base = np.stack([*reversed(grids), np.ones_like(grids[0])], -1).reshape(1, -1, d + 1)
    points = on_device_of(np.broadcast_to(base, (n, *base.shape[1:])).astype(theta._mt_data._array.dtype), theta)
    return (points @ theta.transpose(1, 2)).reshape(n, *spatial, d)


def _reflect(x, low, high):
    """Reflects x at both borders until it is between them."""
    width = high - low
    if width == 0:
        return x * 0
    x = (x - low).abs()
    reflections = (x.detach() / width).floor()
    remainder = x - reflections * width
    # An even number of reflections keeps the direction, an odd one reverses it.
    even = (reflections % 2) == 0
    return where(even, remainder + low, high - remainder)


# Weighted sums of a few elements, and the two gradients: three ops, each linear in both inputs, which are each other's gradients.
# An index counts along x's last axis. The index one past the end refers to an appended zero.


def _and_zero(xp, x):
    return xp.concatenate([x, xp.zeros((*x.shape[:-1], 1), x.dtype)], -1)


def _taken(xp, x, index, k):
    """Returns every channel's elements at the k-th of the indices (N, K, P), as (N, C, P)."""
    image, channel = (np.arange(n).reshape(shape) for n, shape in zip(x.shape, ((-1, 1, 1), (-1, 1)), strict=False))
    image, channel = on_device_of(image, index), on_device_of(channel, index)
    return _and_zero(xp, x)[image, channel, index[:, k, None]]


@op(name="sampled", dtype="same")
def _sampled(xp, x, weight, *, index):
    """Returns the sum over k of weight[n, k, p] * x[n, c, index[n, k, p]], as (N, C, P)."""
    total = 0
    for k in range(weight.shape[1]):
        total = _taken(xp, x, index, k) * weight[:, k, None] + total
    return total


@op(name="sampled_input", dtype="same")
def _sampled_input(xp, g, weight, *, index, size):
    """Returns the gradient for x, (N, C, size): g times the weights, added at the indices."""
    out = xp.zeros((*g.shape[:2], size + 1), g.dtype)
    for k in range(weight.shape[1]):
        xp.add_along(out, xp.broadcast_to(index[:, k, None], g.shape), 2, g * weight[:, k, None])
    # Drop the element that stands for positions outside.
    return out[..., :size]


@op(name="sampled_weight", dtype="same")
def _sampled_weight(xp, g, x, *, index):
    """Returns the gradient for the weights, (N, K, P)."""
    return xp.stack([xp.sum(g * _taken(xp, x, index, k), axis=1) for k in range(index.shape[1])], 1)


_sampled.grad(
    x=lambda g, weight, shapes, index, xp: xp.call(_sampled_input, g, weight, index=index, size=shapes[0][2]),
    weight=lambda g, x, index, xp: xp.call(_sampled_weight, g, x, index=index),
)
_sampled.register_kernel(cpu="mytorch.kernels.numba.sampling:sampled")
_sampled_input.grad(
    g=lambda up, weight, index, xp: xp.call(_sampled, up, weight, index=index),
    weight=lambda up, g, index, xp: xp.call(_sampled_weight, g, up, index=index),
)
_sampled_weight.grad(
    g=lambda up, x, index, xp: xp.call(_sampled, x, up, index=index),
    x=lambda up, g, index, shapes, xp: xp.call(_sampled_input, g, up, index=index, size=shapes[1][2]),
)


@public_function
@in_precision("widest")
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Samples an image or volume at given positions.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: positions x, y (and z) in [-1, 1], of shape (N, h, w, 2) or (N, d, h, w, 3).
        mode: "bilinear" (default; trilinear for volumes), "nearest", or "bicubic" for images.
        padding_mode: values outside the image: "zeros" (default), "border" or "reflection".
        align_corners: if True, -1 and 1 are the centers of the corner pixels; otherwise the image borders (default: False).

    Shape:
        result: (N, C, h, w) or (N, C, d, h, w).

    Raises:
        ValueError: an unknown mode.
        RuntimeError: the shapes do not fit.

    Source: Jaderberg et al., 2015; cubic convolution with a = -0.75 as in PyTorch.

    Example:
        >>> image = tensor([[[[0.0, 1.0], [2.0, 3.0]]]])
        >>> F.grid_sample(image, tensor([[[[0.0, 0.0]]]]), align_corners=True).item()  # the center
        1.5

    See also: `nn.functional.affine_grid`, `nn.functional.interpolate`.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if align_corners is None:
        _warn_of_default("grid_sample")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    d = input.ndim - 2
    if d not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0] or grid.shape[-1] != d:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with the same number of dimensions and batch size, and a grid "
            f"with {d} coordinates. Got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}."
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            f"grid_sampler(): expected input to have non-empty spatial dimensions, got {list(input.shape)}"
        )
    if mode == "bicubic" and d == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    sizes = tuple(input.shape[2:])
    n, c = input.shape[:2]
    flat = input.reshape(n, c, math.prod(sizes))

    def into_image(x, size):
        """Moves a pixel coordinate into the image according to the padding mode."""
        if padding_mode == "border":
            return x.clamp(0, size - 1)
        if padding_mode == "reflection":
            x = _reflect(x, 0.0, size - 1.0) if align_corners else _reflect(x, -0.5, size - 0.5)
            return x.clamp(0, size - 1)
        return x

    def pixels(axis):
        g, size = grid[..., d - 1 - axis], sizes[axis]  # the grid has the last axis first: x, y, z
        return (g + 1) * 0.5 * (size - 1) if align_corners else ((g + 1) * size - 1) * 0.5

    def points(axis):
        """Returns (coordinate, weight) of each element around the positions along an axis."""
        x, size = pixels(axis), sizes[axis]
        if mode == "bicubic":  # the padding mode applies to each element, not to the position
            low = x.detach().floor()
            return [(into_image(low + (i - 1), size), w) for i, w in enumerate(_cubic_weights(x - low))]
        x = into_image(x, size)
        if mode == "nearest":
            # The weight is 1, but depends on the grid, so that the grid has a gradient (of 0).
            return [(x.detach().round(), (x * 0).nan_to_num(0.0, 0.0, 0.0) + 1)]
        low = x.detach().floor()
        fraction = x - low
        return [(low, 1 - fraction), (low + 1, fraction)]

    # The elements around a position are the products of those along each axis.
    found: list[tuple] = []  # (index, True where it is inside, weight)
    for axis, size in enumerate(sizes):
        along_axis = [(x.clamp(0, size - 1).long(), (x >= 0) & (x <= size - 1), weight) for x, weight in points(axis)]
        if axis:  # integer arithmetic is exact also beyond 2^24
            rows = [(i * size, a, w) for i, a, w in found]
            along_axis = [(i + j, a & b, w * v) for i, a, w in rows for j, b, v in along_axis]
        found = along_axis
    indices = [where(inside, index, math.prod(sizes)) for index, inside, _ in found]
    index, weight = raw_of(stack(indices, 1).flatten(2)), stack([w for _, _, w in found], 1).flatten(2)
    return own(_sampled(flat, weight, index=index).reshape(n, c, *grid.shape[1:-1]))
