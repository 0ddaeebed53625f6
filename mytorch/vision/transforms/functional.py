"""Image operations as functions without random choices.

An image is a tensor (…, C, H, W), an array (H, W) or (H, W, C), or a PIL image. The result has the same type. On float
tensors, every function except `to_pil_image` is differentiable. Values are from 0 to 1 in floats, and from 0 to 255 in
uint8.
"""

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from ..._tensor import Tensor
from ...base import dtypes
from ...nn import functional as F
from ...ops.creation import as_tensor, tensor
from ...ops.elementwise import where
from ...ops.movement import stack
from ...ops.pool import along
from ...ops.resample import smoothing_matrix
from .images import array_tensor, is_array, is_pil, on_tensors, pil_image, pil_tensor
from .tones import adjust_sharpness as adjust_sharpness
from .tones import autocontrast as autocontrast
from .tones import blend, highest, in_floats
from .tones import equalize as equalize
from .tones import gaussian_blur as gaussian_blur
from .tones import invert as invert
from .tones import posterize as posterize
from .tones import solarize as solarize


class InterpolationMode(Enum):
    """Interpolation methods of `resize` and `rotate`."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


Sizes = int | Sequence[int]
Colour = float | Sequence[float] | None  # for all channels, or one number per channel
_PIL_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _mode(interpolation):
    """Return the name of an InterpolationMode, Pillow's number, or text."""
    if isinstance(interpolation, InterpolationMode):
        return interpolation.value
    name = _PIL_NUMBERS.get(interpolation, interpolation) if isinstance(interpolation, int) else interpolation
    return InterpolationMode(name).value


# -- image types -------------------------------------------------------------------------------------------------


def to_tensor(pic: Any) -> Tensor:
    """Converts a PIL image or an array (H, W, C) or (H, W) to a tensor (C, H, W).

    A number becomes a 0-d tensor. uint8 becomes the default float dtype, divided by 255. Other dtypes do not change.

    Args:
        pic: the image.

    Raises:
        TypeError: if pic has another type.
    """
    if isinstance(pic, (bool, int, float, np.generic)):  # targets
        return tensor(pic, device="cpu")
    out = pil_to_tensor(pic) if is_pil(pic) else array_tensor(pic) if is_array(pic) else None
    if out is None:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    return out.to(dtypes.default_dtype()) / 255 if out.dtype is dtypes.uint8 else out


def pil_to_tensor(pic: Any) -> Tensor:
    """Converts a PIL image to a tensor (C, H, W) without scaling.

    Args:
        pic: the PIL image.

    Raises:
        TypeError: if pic is not a PIL image.
    """
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return pil_tensor(pic)


def to_pil_image(pic: Tensor | np.ndarray, mode: str | None = None) -> Any:
    """Converts a tensor (C, H, W) or an array (H, W, C) to a PIL image. The channel axis is optional.

    Floats are multiplied by 255.

    Args:
        pic: the image.
        mode: Pillow's mode, such as "YCbCr" (default: from the number of channels).

    Raises:
        TypeError: if pic is neither a tensor nor an array.
        ValueError: if the shape or the mode does not fit.
    """
    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        out = pic.detach().cpu()
        out = out.unsqueeze(0) if out.ndim == 2 else out
        if out.is_floating_point() and mode != "F":
            out = (out * 255).to(dtypes.int64).to(dtypes.uint8)
        return pil_image(out, mode)
    if is_array(pic):
        return pil_image(array_tensor(pic), mode)
    raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")


@on_tensors
def convert_image_dtype(image: Tensor, dtype: dtypes.dtype = dtypes.float32) -> Tensor:
    """Converts an image to another dtype and scales the values to its range.

    Args:
        image: the image.
        dtype: the dtype.

    Raises:
        RuntimeError: if the float dtype is too coarse for the integer dtype.
    """
    dtype = dtypes.as_dtype(dtype)
    if image.dtype is dtype or (image.is_floating_point() and dtype.is_floating_point):
        return image.to(dtype)
    if image.is_floating_point():
        if (image.dtype is dtypes.float32 and dtype in (dtypes.int32, dtypes.int64)) or (
            image.dtype is dtypes.float64 and dtype is dtypes.int64
        ):
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        return (image * (highest(dtype) + 1 - 1e-3)).to(dtype)  # 1e-3: 1.0 becomes the maximum, as in torchvision
    if dtype.is_floating_point:
        return image.to(dtype) / highest(image.dtype)
    old, new = highest(image.dtype), highest(dtype)
    if old > new:
        return (image // ((old + 1) // (new + 1))).to(dtype)
    return image.to(dtype) * ((new + 1) // (old + 1))


def get_dimensions(img: Any) -> list[int]:
    """Returns [C, H, W] of an image.

    Args:
        img: the image.
    """
    if is_pil(img):
        return [len(img.getbands()), img.height, img.width]
    if is_array(img):
        return [img.shape[2] if img.ndim == 3 else 1, *img.shape[:2]]
    if not isinstance(img, Tensor) or img.ndim < 2:
        raise TypeError(f"Unexpected type {type(img)}: expected a tensor (…, C, H, W), an array or a PIL image.")
    return [img.shape[-3] if img.ndim > 2 else 1, *img.shape[-2:]]


def get_image_size(img: Any) -> list[int]:
    """Returns [W, H] of an image.

    Args:
        img: the image.
    """
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Any) -> int:
    """Returns the number of channels of an image.

    Args:
        img: the image.
    """
    return get_dimensions(img)[0]


# -- values -------------------------------------------------------------------------------------------------------


def _of_channels(values, image, name):
    """Convert numbers, one for all channels or one per channel, to a tensor (C or 1, 1, 1) like the image."""
    out = as_tensor(values, dtype=image.dtype, device=image.device).reshape(-1, 1, 1)
    channels = image.shape[-3] if image.ndim > 2 else 1
    if len(out) not in (1, channels):
        raise ValueError(f"{name}: expected 1 or {channels} numbers (channels of the image), got {len(out)}.")
    return out


@on_tensors
def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """Computes (tensor - mean) / std for each channel.

    Args:
        tensor: float tensor (…, C, H, W).
        mean: mean of each channel.
        std: standard deviation of each channel.
        inplace: overwrite the tensor.

    Raises:
        TypeError: if the tensor has an integer dtype.
        ValueError: if a std is 0, or the tensor has fewer than three axes.
    """
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tuple(tensor.shape)}"
        )
    center, scale = _of_channels(mean, tensor, "normalize"), _of_channels(std, tensor, "normalize")
    if bool((scale == 0).any()):
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    return tensor.sub_(center).div_(scale) if inplace else (tensor - center) / scale


@on_tensors
def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """Replaces a rectangle of an image.

    Args:
        img: image (…, H, W).
        i: first row.
        j: first column.
        h: height.
        w: width.
        v: new values, which broadcast to the rectangle.
        inplace: overwrite the image.
    """
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


# -- geometry ------------------------------------------------------------------------------------------------------


@on_tensors
def hflip(img: Tensor) -> Tensor:
    """Flips an image horizontally.

    Args:
        img: the image.
    """
    return img.flip(-1)


@on_tensors
def vflip(img: Tensor) -> Tensor:
    """Flips an image vertically.

    Args:
        img: the image.
    """
    return img.flip(-2)


def _borders(padding):
    """Return [left, top, right, bottom] for one, two or four numbers."""
    values = [padding] if isinstance(padding, int) else list(padding)
    if len(values) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(values)} element tuple")
    return values if len(values) == 4 else [values[0], values[-1]] * 2


@on_tensors
def pad(img: Tensor, padding: Sizes, fill: Colour = 0, padding_mode: str = "constant") -> Tensor:
    """Adds borders to an image; negative borders crop it.

    Args:
        img: the image.
        padding: one number for all borders, (left/right, top/bottom), or (left, top, right, bottom).
        fill: value of a constant border, for all channels or one number per channel.
        padding_mode: "constant", "edge", "reflect" (without the edge) or "symmetric" (with the edge).

    Raises:
        ValueError: if the mode is unknown, or the number of borders is wrong.
    """
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(f"Padding mode should be either constant, edge, reflect or symmetric, got {padding_mode!r}")
    left, top, right, bottom = _borders(padding)
    height, width = img.shape[-2:]
    mode: Any = padding_mode
    if mode != "constant":
        rows, columns = (
            np.pad(np.arange(n), (max(a, 0), max(b, 0)), mode)[max(-a, 0) :]
            for n, a, b in ((height, top, bottom), (width, left, right))
        )
        rows, columns = rows[: len(rows) + min(bottom, 0)], columns[: len(columns) + min(right, 0)]
        return img[..., rows[:, None], columns]
    if fill is None or isinstance(fill, (int, float)):
        return F.pad(img, [left, right, top, bottom], value=fill or 0)
    inside = F.pad(as_tensor(np.ones((height, width), bool), device=img.device), [left, right, top, bottom])
    return where(inside, F.pad(img, [left, right, top, bottom]), _of_channels(fill, img, "pad"))


@on_tensors
def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Crops a rectangle of an image; pixels outside the image are 0.

    Args:
        img: image (…, H, W).
        top: first row.
        left: first column.
        height: number of rows.
        width: number of columns.
    """
    h, w = img.shape[-2:]
    outside = [max(-left, 0), max(left + width - w, 0), max(-top, 0), max(top + height - h, 0)]
    if any(outside):
        img = F.pad(img, outside)
        top, left = max(top, 0), max(left, 0)
    return img[..., top : top + height, left : left + width]


def _pair(size):
    """Return (height, width) for one number or two."""
    values = [size] if isinstance(size, int) else list(size)
    if len(values) not in (1, 2):
        raise ValueError(f"Please provide only two dimensions (h, w) for size, got {size}.")
    return int(values[0]), int(values[-1])


@on_tensors
def center_crop(img: Tensor, output_size: Sizes) -> Tensor:
    """Crops the center of an image; a side that is too short is padded with 0.

    Args:
        img: image (…, H, W).
        output_size: (height, width), or one number for both.
    """
    height, width = _pair(output_size)
    h, w = img.shape[-2:]
    if width > w or height > h:
        across, down = max(width - w, 0), max(height - h, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        h, w = img.shape[-2:]
    return crop(img, round((h - height) / 2), round((w - width) / 2), height, width)


def _resized(height, width, size, max_size):
    """Return the new (height, width) of an image: `size` itself, or with a shorter side of `size`."""
    values = [size] if isinstance(size, int) else list(size)
    if len(values) == 2:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge, "
                "i.e. size should be an int or a sequence of length 1"
            )
        return int(values[0]), int(values[1])
    if len(values) != 1:
        raise ValueError(f"Size must be an int or a 1 or 2 element tuple/list, not a {len(values)} element tuple/list")
    short, long = sorted((height, width))
    new_short, new_long = values[0], int(values[0] * long / short)
    if max_size is not None:
        if max_size <= values[0]:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size = {size}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


@on_tensors
def resize(
    img: Tensor, size: Sizes, interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None, antialias: bool = True,
) -> Tensor:  # fmt: skip
    """Resizes an image.

    Args:
        img: the image.
        size: (height, width), or the length of the shorter side, which preserves the aspect ratio.
        interpolation: an InterpolationMode. Without antialias, "bilinear" and "bicubic" use F.interpolate. "nearest" and
            "nearest-exact" always use F.interpolate.
        max_size: maximum length of the longer side, if size is the length of the shorter side.
        antialias: smooth when shrinking, as Pillow does. It applies to every type of image. "box", "hamming" and "lanczos"
            always smooth.

    Raises:
        ValueError: if size and max_size contradict each other.
    """
    mode = _mode(interpolation)
    height, width = img.shape[-2:]
    out = _resized(height, width, size, max_size)
    if out == (height, width):
        return img
    if mode in ("nearest", "nearest-exact"):
        return F.interpolate(_flat(img), out, mode=mode).reshape(*img.shape[:-2], *out)

    def plain(x):
        return F.interpolate(_flat(x), out, mode=mode, align_corners=False).reshape(*x.shape[:-2], *out)

    def smooth(x):
        for axis, (n, m) in ((x.ndim - 2, (height, out[0])), (x.ndim - 1, (width, out[1]))):
            x = along(x, axis, smoothing_matrix(n, m, n / m, mode)) if n != m else x
        return x

    return in_floats(img, smooth if antialias or mode not in ("bilinear", "bicubic") else plain)


def _flat(img):
    """Reshape (…, H, W) to (1, product of the other axes, H, W)."""
    return img.reshape(1, -1, *img.shape[-2:])


@on_tensors
def resized_crop(
    img: Tensor, top: int, left: int, height: int, width: int, size: Sizes,
    interpolation: InterpolationMode = InterpolationMode.BILINEAR, antialias: bool = True,
) -> Tensor:  # fmt: skip
    """Crops an image, then resizes the result.

    Args:
        img: image (…, H, W).
        top: first row.
        left: first column.
        height: number of rows.
        width: number of columns.
        size: (height, width) of the result, or the length of its shorter side.
        interpolation: see `resize`.
        antialias: smooth when shrinking.
    """
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def _rotated_size(matrix, height, width):
    """Return the (height, width) that contains the whole rotated image."""
    corners = np.array([[-width, -height, 2], [-width, height, 2], [width, height, 2], [width, -height, 2]]) / 2
    points = np.round(corners @ matrix.T + (width / 2, height / 2), 4)  # removes rounding errors at the borders
    low, high = np.floor(points.min(0)), np.ceil(points.max(0))
    across, down = (high - low).astype(int).tolist()
    return down, across


@on_tensors
def rotate(
    img: Tensor, angle: float, interpolation: InterpolationMode = InterpolationMode.NEAREST, expand: bool = False,
    center: Sequence[float] | None = None, fill: Colour = None,
) -> Tensor:  # fmt: skip
    """Rotates an image counterclockwise.

    Args:
        img: the image.
        angle: angle in degrees.
        interpolation: NEAREST or BILINEAR.
        expand: enlarge the result to the whole rotated image, with a rotation about the center.
        center: (x, y) of the rotation, from the upper left corner (default: the center of the image).
        fill: value of pixels outside the image, for all channels or one number per channel (default: 0).

    Raises:
        ValueError: if the interpolation is not supported.
    """
    mode = _checked_mode(interpolation, "rotate")
    height, width = img.shape[-2:]
    cx, cy = (0.0, 0.0) if center is None or expand else (center[0] - width * 0.5, center[1] - height * 0.5)
    turn = math.radians(-angle)
    cos, sin = math.cos(turn), math.sin(turn)
    # The source position of each pixel of the result, relative to the center.
    matrix = np.array([[cos, sin, cx - cos * cx - sin * cy], [-sin, cos, cy + sin * cx - cos * cy]])
    h, w = _rotated_size(matrix, height, width) if expand else (height, width)
    return _sampled(img, _moved(matrix, h, w), mode, fill, "rotate")


def _moved(matrix, height, width):
    """Return the source positions (height, width, 2) of an affine map, relative to the center of the image."""
    y, x = np.mgrid[:height, :width] + 0.5
    return np.stack([x - width / 2, y - height / 2, np.ones_like(x)], axis=-1) @ matrix.T


def _sampled(img, positions, mode, fill, name):
    """Read an image at positions (H_out, W_out, 2) of (x, y) in pixels relative to the center."""
    height, width = img.shape[-2:]
    if isinstance(positions, np.ndarray):
        positions = as_tensor(positions / (width / 2, height / 2), dtype=dtypes.float32, device=img.device)
    grid = positions.reshape(1, *positions.shape[-3:])

    def warped(x):
        flat = _flat(x)
        here = grid.to(x.dtype)
        out = F.grid_sample(flat, here, mode=mode, align_corners=False).reshape(*x.shape[:-2], *grid.shape[1:3])
        if fill is None:
            return out
        inside = F.grid_sample(flat[:, :1] * 0 + 1, here, mode=mode, align_corners=False)[0]
        return out * inside + (1 - inside) * _of_channels(fill, x, name)

    return in_floats(img, warped)


def _checked_mode(interpolation, name, allowed=("nearest", "bilinear")):
    mode = _mode(interpolation)
    if mode not in allowed:
        raise ValueError(f"{name}: expected interpolation {' or '.join(map(repr, allowed))}, got {mode!r}.")
    return mode


@on_tensors
def affine(
    img: Tensor, angle: float, translate: Sequence[int], scale: float, shear: Sequence[float] | float,
    interpolation: InterpolationMode = InterpolationMode.NEAREST, fill: Colour = None,
    center: Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """Rotates, scales, shears and translates an image.

    Args:
        img: the image.
        angle: angle in degrees, clockwise.
        translate: (x, y) in pixels.
        scale: factor of the size, above 0.
        shear: angle in degrees parallel to x, or a pair for x and y.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image, for all channels or one number per channel (default: 0).
        center: (x, y) of the rotation, from the upper left corner (default: the center of the image).

    Raises:
        ValueError: if scale is not positive, or the interpolation is not supported.
    """
    mode = _checked_mode(interpolation, "affine")
    if scale <= 0:
        raise ValueError(f"affine: expected scale > 0, got {scale}.")
    shears = [shear, 0.0] if isinstance(shear, (int, float)) else [*shear, 0.0][:2]
    if len(list(translate)) != 2:
        raise ValueError(f"affine: expected translate (x, y), got {translate!r}.")
    height, width = img.shape[-2:]
    middle = np.zeros(2) if center is None else np.array([center[0] - width * 0.5, center[1] - height * 0.5])
    turn, sx, sy = math.radians(angle), math.radians(shears[0]), math.radians(shears[1])
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    down = np.array([[1, 0], [-math.tan(sy), 1]])
    across = np.array([[1, -math.tan(sx)], [0, 1]])
    inverse = np.linalg.inv(scale * rotation @ down @ across)
    shift = middle - inverse @ (middle + np.array(translate, np.float64))
    return _sampled(img, _moved(np.column_stack([inverse, shift]), height, width), mode, fill, "affine")


@on_tensors
def perspective(
    img: Tensor, startpoints: Sequence[Sequence[int]], endpoints: Sequence[Sequence[int]],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR, fill: Colour = None,
) -> Tensor:  # fmt: skip
    """Maps four points of an image to four other points, with straight lines.

    Args:
        img: the image.
        startpoints: four pairs (x, y): upper left, upper right, lower right and lower left.
        endpoints: the new positions of these points.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image, for all channels or one number per channel (default: 0).

    Raises:
        ValueError: if there are not four points, or the interpolation is not supported.
    """
    mode = _checked_mode(interpolation, "perspective")
    start, end = np.array(startpoints, np.float64), np.array(endpoints, np.float64)
    if start.shape != (4, 2) or end.shape != (4, 2):
        raise ValueError(f"perspective: expected four points (x, y), got {startpoints!r} and {endpoints!r}.")
    # (a x + b y + c) / (g x + h y + 1) is the source of (x, y): eight linear equations, two for each point.
    rows = []
    for (x, y), source in zip(end, start, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -source[0] * x, -source[0] * y])
        rows.append([0, 0, 0, x, y, 1, -source[1] * x, -source[1] * y])
    solution = np.linalg.lstsq(np.array(rows), start.reshape(-1), rcond=None)[0]
    matrix = np.append(solution, 1.0).reshape(3, 3)
    height, width = img.shape[-2:]
    y, x = np.mgrid[:height, :width] + 0.5
    points = np.stack([x, y, np.ones_like(x)], axis=-1) @ matrix.T
    return _sampled(img, points[..., :2] / points[..., 2:] - (width / 2, height / 2), mode, fill, "perspective")


@on_tensors
def elastic_transform(
    img: Tensor,
    displacement: Tensor,
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    fill: Colour = None,
) -> Tensor:
    """Moves each pixel of an image by a displacement.

    Args:
        img: the image.
        displacement: (1, H, W, 2), the distance to the source of each pixel in x and y; the image has the size 2.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image, for all channels or one number per channel (default: 0).

    Raises:
        ValueError: if displacement has another shape, or the interpolation is not supported.
    """
    mode = _checked_mode(interpolation, "elastic_transform")
    height, width = img.shape[-2:]
    if tuple(displacement.shape) != (1, height, width, 2):
        raise ValueError(
            f"elastic_transform: expected displacement of shape (1, {height}, {width}, 2), got {tuple(displacement.shape)}."
        )
    y, x = np.mgrid[:height, :width]
    regular = np.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], axis=-1)
    grid = as_tensor(regular, dtype=displacement.dtype, device=displacement.device) + displacement
    return _sampled(img, grid, mode, fill, "elastic_transform")


def five_crop(img: Any, size: Sizes) -> tuple[Any, ...]:
    """Returns the four corners and the center of an image.

    Args:
        img: the image.
        size: (height, width) of the crops, or one number for both.

    Raises:
        ValueError: if the image is smaller than a crop.
    """
    height, width = _pair(size)
    _, rows, columns = get_dimensions(img)
    if height > rows or width > columns:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(rows, columns)}")
    corners = [(0, 0), (0, columns - width), (rows - height, 0), (rows - height, columns - width)]
    return (*[crop(img, *corner, height, width) for corner in corners], center_crop(img, [height, width]))


def ten_crop(img: Any, size: Sizes, vertical_flip: bool = False) -> tuple[Any, ...]:
    """Returns the five crops of `five_crop`, and the five crops of the flipped image.

    Args:
        img: the image.
        size: (height, width) of the crops, or one number for both.
        vertical_flip: flip vertically instead of horizontally.
    """
    flipped = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(flipped, size)


# -- color ---------------------------------------------------------------------------------------------------------


def _colours(img, name):
    channels = img.shape[-3] if img.ndim > 2 else 1
    if channels not in (1, 3):
        raise TypeError(f"{name}: expected an image with 1 or 3 channels, got {channels}.")
    return channels


def _factor(value, name):
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")


@on_tensors
def rgb_to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    """Converts an image to grayscale: 0.2989 red + 0.587 green + 0.114 blue.

    Args:
        img: the image.
        num_output_channels: 1, or 3 for three equal channels.

    Raises:
        ValueError: if num_output_channels is not 1 or 3.
    """
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if _colours(img, "rgb_to_grayscale") == 3:
        red, green, blue = img.unbind(-3)
        img = (red * 0.2989 + green * 0.587 + blue * 0.114).to(img.dtype).unsqueeze(-3)
    return img.expand(*img.shape[:-3], 3, *img.shape[-2:]).clone() if num_output_channels == 3 else img.clone()


to_grayscale = rgb_to_grayscale


@on_tensors
def adjust_brightness(img: Tensor, brightness_factor: float) -> Tensor:
    """Multiplies an image by a factor.

    Args:
        img: the image.
        brightness_factor: 0 gives black, 1 the original image.
    """
    _factor(brightness_factor, "brightness_factor")
    _colours(img, "adjust_brightness")
    return blend(img, 0.0, brightness_factor)


@on_tensors
def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    """Scales the difference between an image and its mean gray value.

    Args:
        img: the image.
        contrast_factor: 0 gives uniform gray, 1 the original image.
    """
    _factor(contrast_factor, "contrast_factor")
    _colours(img, "adjust_contrast")
    grey = rgb_to_grayscale(img)
    grey = grey if img.is_floating_point() else grey.to(dtypes.float32)
    return blend(img, grey.mean((-3, -2, -1), keepdim=True), contrast_factor)


@on_tensors
def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    """Scales the difference between an image and its grayscale version.

    Args:
        img: the image.
        saturation_factor: 0 gives a grayscale image, 1 the original image.
    """
    _factor(saturation_factor, "saturation_factor")
    return img if _colours(img, "adjust_saturation") == 1 else blend(img, rgb_to_grayscale(img), saturation_factor)


@on_tensors
def adjust_gamma(img: Tensor, gamma: float, gain: float = 1) -> Tensor:
    """Computes gain * img ** gamma for values from 0 to 1.

    Args:
        img: the image.
        gamma: exponent; above 1 darkens.
        gain: factor.
    """
    _factor(gamma, "gamma")
    out = convert_image_dtype(img, img.dtype if img.is_floating_point() else dtypes.float32)
    return convert_image_dtype((gain * out**gamma).clamp(0, 1), img.dtype)


@on_tensors
def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """Shifts the hue of an image.

    Args:
        img: the image.
        hue_factor: shift as a fraction of the color circle, from -0.5 to 0.5.

    Raises:
        ValueError: if hue_factor is out of range.
    """
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if _colours(img, "adjust_hue") == 1:
        return img
    colours = convert_image_dtype(img, img.dtype if img.is_floating_point() else dtypes.float32)
    hue, saturation, value = _rgb_to_hsv(colours)
    return convert_image_dtype(_hsv_to_rgb((hue + hue_factor) % 1.0, saturation, value), img.dtype)


def _rgb_to_hsv(img):
    red, green, blue = img.unbind(-3)
    high, low = img.amax(-3), img.amin(-3)
    span = high - low
    grey = span == 0
    divisor = where(grey, 1.0, span)
    saturation = span / where(grey, 1.0, high)
    hue = where(
        high == red,
        (green - blue) / divisor,
        where(high == green, 2.0 + (blue - red) / divisor, 4.0 + (red - green) / divisor),
    )
    return (hue / 6.0) % 1.0, saturation, high


def _hsv_to_rgb(hue, saturation, value):
    def channel(offset):  # distance of the hue from the channel's maximum
        k = (offset + hue * 6.0) % 6.0
        return value - value * saturation * k.minimum(4.0 - k).clamp(0, 1)

    return stack([channel(5.0), channel(3.0), channel(1.0)], -3)
