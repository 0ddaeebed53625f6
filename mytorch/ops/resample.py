"""Changing resolution: interpolation, sampling on a grid, pixel shuffles, unfolding into patches.

Interpolation along an axis is a product with a matrix of weights, one row for each output element; separable
kinds are one product for each axis.
"""

import math

import numpy as np

from .._tensor import Tensor
from ..base import dtypes
from ..dispatch.op import op
from ..dispatch.precision import in_precision
from ..dispatch.unwrap import on_device_of, raw_of
from .conv import check_window, out_size, several, tap_slices, taps, windows
from .elementwise import where
from .movement import laid_out_as, stack
from .padding import pad
from .pool import along, averaging_matrix

_DIMS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def _sources(n, out, scale, align_corners):
    """The (fractional) source position of each output element."""
    i = np.arange(out)
    if align_corners:
        return i * ((n - 1) / (out - 1)) if out > 1 else np.zeros(out)
    return (i + 0.5) * scale - 0.5


def _linear_taps(n, out, scale, align_corners):
    """(places, weights), each (2, out): which two elements make each output element, and how much of each."""
    at = np.clip(_sources(n, out, scale, align_corners), 0, n - 1)
    low = np.floor(at).astype(np.int64)
    share = at - low
    return np.stack([low, np.minimum(low + 1, n - 1)]), np.stack([1 - share, share])


def _matrix(places, weights, n):
    """Taps as a matrix (out, n) to multiply by."""
    matrix = np.zeros((places.shape[1], n))
    np.add.at(matrix, (np.arange(places.shape[1]), places), weights)
    return matrix


def _tapped(input, axis, places, weights):
    """The sum of the elements at each row of places along an axis, times its weights."""
    total = None
    for at, weight in zip(places, weights, strict=True):
        factor = weight.reshape(-1, *(1,) * (input.ndim - 1 - axis)).astype(raw_of(input).dtype)
        part = input.index_select(axis, Tensor._wrap(at)) * Tensor._wrap(factor)
        total = part if total is None else total + part
    return total


def _near(x, a):
    """Keys' cubic convolution with coefficient a, for distances up to 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x, a):
    """The same for distances from 1 to 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _cubic_weights(t, a=-0.75):
    """The weights of four points for a place t beyond the second of them; a is that of PyTorch and OpenCV."""
    return _far(t + 1, a), _near(t, a), _near(1 - t, a), _far(2 - t, a)


def _cubic_taps(n, out, scale, align_corners):
    """As `_linear_taps`, of four elements."""
    at = _sources(n, out, scale, align_corners)
    low = np.floor(at).astype(np.int64)
    places = np.stack([np.clip(low + offset, 0, n - 1) for offset in (-1, 0, 1, 2)])
    return places, np.stack(_cubic_weights(at - low))


def _keys(x, a=-0.5):
    """Keys' weight at any distance; a is Pillow's, and PyTorch's where it smooths."""
    x = np.abs(x)
    return np.where(x < 1, _near(x, a), np.where(x < 2, _far(x, a), 0.0))


_FILTERS = {  # half the width, and the weight at a distance
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, lambda x: np.maximum(1 - np.abs(x), 0.0)),
    "hamming": (1.0, lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)),
    "bicubic": (2.0, _keys),
    "lanczos": (3.0, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}


def smoothing_matrix(n, out, scale, mode):
    """Weights (out, n) of a filter that widens as the picture shrinks, so that every pixel counts."""
    support, weight = _FILTERS[mode]
    stretch = max(scale, 1.0)
    centre = (np.arange(out) + 0.5)[:, None] * scale
    low = np.maximum(np.floor(centre - support * stretch + 0.5), 0)
    high = np.minimum(np.floor(centre + support * stretch + 0.5), n)
    at = np.arange(n)
    weights = np.where((at >= low) & (at < high), weight((at - centre + 0.5) / stretch), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _nearest(n, out, scale, exact):
    at = (np.arange(out) + (0.5 if exact else 0.0)) * scale
    return np.minimum(np.floor(at).astype(np.int64), n - 1)


_WRONG_COUNT = (
    "Input and {0} must have the same number of spatial dimensions, but got input with spatial dimensions of {1} and "
    "{0} of {2}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and {0} of as many values."
)


def interpolate(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
    antialias=False,
):  # fmt: skip
    """input (N, C, …) with its spatial axes resized to `size`, or by `scale_factor`.

    Args:
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
        align_corners: whether the corner elements keep their places.
        antialias: smooth while shrinking, so that every element counts ("bilinear" and "bicubic" of images).

    Raises:
        ValueError: not exactly one of size and scale_factor, or a mode that does not fit the axes.
        NotImplementedError: an unknown mode.

    Example:
        >>> F.interpolate(tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
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
        raise RuntimeError(f"interpolate: mode {mode!r} not implemented for {input.dtype}")
    if integers and mode in _DIMS:  # to the nearest byte, after each axis, the last one first
        for i in reversed(range(d)):
            sizes, only = list(input.shape[2:]), [1.0] * d
            sizes[i], only[i] = out[i], scales[i]
            wide = _resized(input.to(dtypes.float32), sizes, only, mode, align_corners, antialias)
            input = laid_out_as(input, wide.round().clamp(0, 255).to(dtypes.uint8))
        return input
    resize = _resized if mode == "area" else in_precision("float32")(_resized)
    return laid_out_as(input, resize(input, out, scales, mode, align_corners, antialias))


def _resized(input, out, scales, mode, align_corners, antialias):
    """The spatial axes of input, one after the other, at the sizes `out`."""
    for i, (n, o, scale) in enumerate(zip(tuple(input.shape[2:]), out, scales, strict=True)):
        axis = 2 + i
        if mode.startswith("nearest"):
            index = _nearest(n, o, scale, mode == "nearest-exact")
            if n != o or (index != np.arange(n)).any():
                input = input[(slice(None),) * axis + (index,)]
        elif n != o or mode == "bicubic":
            if antialias:
                matrix = smoothing_matrix(n, o, ((n - 1) / (o - 1) if o > 1 else 0.0) if align_corners else scale, mode)
            elif mode == "area":
                matrix = averaging_matrix(n, o)
            else:
                taps_of = _cubic_taps if mode == "bicubic" else _linear_taps
                places, weights = taps_of(n, o, scale, bool(align_corners))
                if n > 128 and input.device.type == "cpu":  # a product would multiply by zeros, mostly
                    input = _tapped(input, axis, places, weights)
                    continue
                matrix = _matrix(places, weights, n)
            input = along(input, axis, matrix)
    return input


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The older name of `interpolate`.

    Args:
        input: (N, C, *spatial).
        size: of the spatial axes.
        scale_factor: factor of their sizes.
        mode: as in `interpolate`.
        align_corners: as in `interpolate`.
    """
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
    """(…, C r², H, W) to (…, C, H r, W r). Source: Shi et al., 2016.

    Example:
        >>> F.pixel_shuffle(mytorch.arange(4.0).reshape(4, 1, 1), 2).tolist()
        [[[0.0, 1.0], [2.0, 3.0]]]
    """
    r, (*lead, c, h, w) = _factor(upscale_factor, "upscale_factor"), _image(input, "pixel_shuffle")
    if c % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    n = len(lead)
    x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return laid_out_as(input, x.reshape(*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """(…, C, H r, W r) to (…, C r², H, W)."""
    r, (*lead, c, h, w) = _factor(downscale_factor, "downscale_factor"), _image(input, "pixel_unshuffle")
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, got {h}x{w} and {r}"
        )
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    n = len(lead)
    x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return laid_out_as(input, x.reshape(*lead, c * r * r, h // r, w // r))


def channel_shuffle(input, groups):
    """(N, g C, …) with the channels of g groups interleaved. Source: Zhang et al., 2018."""
    n, c, *rest = _image(input, "channel_shuffle")
    if _factor(groups, "number of groups") > c or c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    return laid_out_as(input, input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest))


# -- patches ---------------------------------------------------------------------------------------------------------


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Every window of (N, C, H, W) as a column: (N, C * prod(kernel), windows).

    Args:
        kernel_size: of a window. dilation: distance of its elements. padding: zeros at both ends. stride: distance of
            windows.

    Example:
        >>> F.unfold(mytorch.arange(4.0).reshape(1, 1, 2, 2), kernel_size=(1, 2)).tolist()
        [[[0.0, 2.0], [1.0, 3.0]]]
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
    """How many windows lie along each axis.

    Raises:
        RuntimeError: none along one of them.
    """
    out = [out_size(*sizes) for sizes in zip(spatial, kernel, stride, padding, dilation, strict=True)]
    if min(out) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(spatial)}, kernel_size={kernel}, dilation={dilation}, padding={padding}, "
            f"calculated shape of the array of sliding blocks as {tuple(out)}, but its components must be at least one."
        )
    return out


@op(dtype="same", name="unfold_windows")
def _windows(xp, input, *, kernel, stride, dilation):
    view = windows(xp, input, kernel, stride, dilation)
    return view.reshape(input.shape[0], input.shape[1] * math.prod(kernel), math.prod(view.shape[2 + len(kernel) :]))


@op(dtype="same", name="fold_windows")
def _overlap(xp, g, *, shape, kernel, stride, dilation):
    """Columns added back where their windows lay, in an array of `shape`."""
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True)]
    columns = g.reshape(shape[0], shape[1], math.prod(kernel), *out)
    result = xp.zeros(shape, g.dtype)
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
    """What `unfold` takes apart put together again, by addition: columns (N, C * prod(kernel), windows) added up in (N, C, *output_size).

    Args:
        output_size: (H, W). kernel_size, dilation, padding, stride: of the windows, as given to `unfold`.
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
    out = out[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]
    return out.squeeze(0) if single else out


# -- sampling on a grid ----------------------------------------------------------------------------------------------


def affine_grid(theta, size, align_corners=False):
    """The grid of positions in [-1, 1] that a batch of affine matrices maps an image's pixels to.

    Args:
        theta: (N, 2, 3) for images, (N, 3, 4) for volumes. size: (N, C, H, W) or (N, C, D, H, W).

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3), for `grid_sample`.
    """
    n, _, *spatial = size
    d = len(spatial)
    if tuple(theta.shape) != (n, d, d + 1):
        raise ValueError(
            f"Expected a batch of {d}D affine matrices of shape {n}x{d}x{d + 1} for size {tuple(size)}. Got {tuple(theta.shape)}."
        )

    def axis(count):
        points = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
        return points if align_corners else points * ((count - 1) / count)

    grids = np.meshgrid(*(axis(c) for c in spatial), indexing="ij")
    base = np.stack([*reversed(grids), np.ones_like(grids[0])], -1).reshape(1, -1, d + 1)
    points = on_device_of(np.broadcast_to(base, (n, *base.shape[1:])).astype(theta._data._array.dtype), theta)
    return (points @ theta.transpose(1, 2)).reshape(n, *spatial, d)


def _reflect(x, low, high):
    """x reflected at both borders until it lies between them."""
    span = high - low
    if span == 0:
        return x * 0
    x = (x - low).abs()
    turns = (x.detach() / span).floor()
    rest = x - turns * span
    even = (turns % 2) == 0
    return where(even, rest + low, high - rest)


# Sums of a few elements at given places, and its two gradients: three ops, each linear in both its inputs. An index counts along
# x's last axis; one past its end stands for a zero.


def _and_zero(xp, x):
    return xp.concatenate([x, xp.zeros((*x.shape[:-1], 1), x.dtype)], -1)


def _taken(xp, x, index, k):
    """(N, C, P): every channel's elements at the k-th of the places (N, K, P)."""
    image, channel = (np.arange(n).reshape(shape) for n, shape in zip(x.shape, ((-1, 1, 1), (-1, 1)), strict=False))
    image, channel = on_device_of(image, index), on_device_of(channel, index)
    return _and_zero(xp, x)[image, channel, index[:, k, None]]


@op(name="sampled", dtype="same")
def _sampled(xp, x, weight, *, index):
    """(N, C, P): the sum over k of weight[n, k, p] * x[n, c, index[n, k, p]]."""
    total = 0
    for k in range(weight.shape[1]):
        total = _taken(xp, x, index, k) * weight[:, k, None] + total
    return total


@op(name="sampled_input", dtype="same")
def _sampled_input(xp, g, weight, *, index, size):
    """(N, C, size): its gradient for x: g times weights, added up where they came from."""
    out = xp.zeros((*g.shape[:2], size + 1), g.dtype)
    for k in range(weight.shape[1]):
        xp.add_along(out, xp.broadcast_to(index[:, k, None], g.shape), 2, g * weight[:, k, None])
    return out[..., :size]


@op(name="sampled_weight", dtype="same")
def _sampled_weight(xp, g, x, *, index):
    """(N, K, P): its gradient for the weights."""
    return xp.stack([xp.sum(g * _taken(xp, x, index, k), axis=1) for k in range(index.shape[1])], 1)


_sampled.grad(
    x=lambda g, weight, shapes, index, xp: xp.call(_sampled_input, g, weight, index=index, size=shapes[0][2]),
    weight=lambda g, x, index, xp: xp.call(_sampled_weight, g, x, index=index),
)
_sampled.fuse(cpu="mytorch.kernels.numba.sampling:sampled")
_sampled_input.grad(
    g=lambda up, weight, index, xp: xp.call(_sampled, up, weight, index=index),
    weight=lambda up, g, index, xp: xp.call(_sampled_weight, g, up, index=index),
)
_sampled_weight.grad(
    g=lambda up, x, index, xp: xp.call(_sampled, x, up, index=index),
    x=lambda up, g, index, shapes, xp: xp.call(_sampled_input, g, up, index=index, size=shapes[1][2]),
)


@in_precision("widest")
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """An image or volume sampled at given positions.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, h, w, 2) or (N, d, h, w, 3): x, y (and z) in [-1, 1].
        mode: "bilinear" (trilinear for volumes), "nearest", or "bicubic" for images.
        padding_mode: what lies outside: "zeros", "border" or "reflection".

    Raises:
        ValueError: an unknown mode. RuntimeError: shapes that do not fit.
    Source: Jaderberg et al., 2015; cubic convolution with a = -0.75 as in PyTorch.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    d = input.ndim - 2
    if d not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0] or grid.shape[-1] != d:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with the same number of dimensions and batch size and a grid with {d} "
            f"values at each place, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and d == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    sizes = tuple(input.shape[2:])
    n, c = input.shape[:2]
    flat = input.reshape(n, c, math.prod(sizes))

    def settle(x, size):
        """A coordinate in pixels, moved inside as the padding mode says."""
        if padding_mode == "border":
            return x.clamp(0, size - 1)
        if padding_mode == "reflection":
            x = _reflect(x, 0.0, size - 1.0) if align_corners else _reflect(x, -0.5, size - 0.5)
            return x.clamp(0, size - 1)
        return x

    def pixels(axis):
        g, size = grid[..., d - 1 - axis], sizes[axis]  # the grid names the last axis first
        return (g + 1) * 0.5 * (size - 1) if align_corners else ((g + 1) * size - 1) * 0.5

    found, weights = [], []

    def take(places, weight):
        """Note the elements at whole places, one tensor for each axis; 0 outside."""
        index, inside = 0, True
        for x, size in zip(places, sizes, strict=True):
            inside = (x >= 0) & (x <= size - 1) & inside
            index = index * size + x.clamp(0, size - 1).long()  # exact, also beyond 2^24
        found.append(where(inside, index, math.prod(sizes)))
        weights.append(weight)

    if mode == "bicubic":
        _bicubic([pixels(axis) for axis in range(2)], sizes, settle, take)
    elif mode == "nearest":
        at = [settle(pixels(axis), sizes[axis]) for axis in range(d)]
        take([x.detach().round() for x in at], (at[0] * 0).nan_to_num(0.0, 0.0, 0.0) + 1)
    else:
        _linear([settle(pixels(axis), sizes[axis]) for axis in range(d)], take)
    index = raw_of(stack(found, 1).flatten(2))
    return _sampled(flat, stack(weights, 1).flatten(2), index=index).reshape(n, c, *grid.shape[1:-1])


def _linear(at, take):
    """The points around each place, by how near they are."""
    low = [x.detach().floor() for x in at]
    share = [x - x0 for x, x0 in zip(at, low, strict=True)]
    for corner in np.ndindex(*(2,) * len(at)):
        weight = 1
        for bit, w in zip(corner, share, strict=True):
            weight = (w if bit else 1 - w) * weight
        take([x0 + bit for bit, x0 in zip(corner, low, strict=True)], weight)


def _bicubic(at, sizes, settle, take):
    """Sixteen points around each place; they, not the place, are moved inside by the padding mode."""
    low = [x.detach().floor() for x in at]
    rows, columns = (_cubic_weights(x - x0) for x, x0 in zip(at, low, strict=True))
    for i, wy in enumerate(rows):
        y = settle(low[0] + (i - 1), sizes[0])
        for j, wx in enumerate(columns):
            take([y, settle(low[1] + (j - 1), sizes[1])], wy * wx)
