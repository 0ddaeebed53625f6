"""Image operations as functions without random choices.

An image is a tensor (…, C, H, W), an array (H, W) or (H, W, C), or a PIL image. The result has the same type. On float
tensors, every function except `to_pil_image` is differentiable. Values are from 0 to 1 in floats, and from 0 to 255 in
uint8.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from ...arrays import dtypes
from ...arrays.tensor import Tensor
from ...nn import functional as F
from ...ops.creation import as_tensor, tensor
from ...ops.elementwise import where
from ...ops.pool import along
from ...ops.resample import smoothing_matrix
from .images import array_tensor, highest, in_floats, is_array, is_pil, on_tensors, pil_image, pil_tensor


class InterpolationMode(Enum):
    """Interpolation methods of `resize`."""

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
    """Returns [C, H, W] of an image."""
    if is_pil(img):
        return [len(img.getbands()), img.height, img.width]
    if is_array(img):
        return [img.shape[2] if img.ndim == 3 else 1, *img.shape[:2]]
    if not isinstance(img, Tensor) or img.ndim < 2:
        raise TypeError(f"Unexpected type {type(img)}: expected a tensor (…, C, H, W), an array or a PIL image.")
    return [img.shape[-3] if img.ndim > 2 else 1, *img.shape[-2:]]


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


# -- geometry ------------------------------------------------------------------------------------------------------


@on_tensors
def hflip(img: Tensor) -> Tensor:
    """Flips an image horizontally."""
    return img.flip(-1)


@on_tensors
def vflip(img: Tensor) -> Tensor:
    """Flips an image vertically."""
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
