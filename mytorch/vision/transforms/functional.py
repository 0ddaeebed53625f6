"""What the transforms do, as functions of a picture and all that is random about them.

A picture is a tensor (…, C, H, W), an array (H, W) or (H, W, C), or a PIL image; the result is of the same kind.
On float tensors everything but `to_pil_image` can be differentiated. Colours run from 0 to 1 in floats, from 0 to
255 in uint8.
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


class InterpolationMode(Enum):
    """How `resize` and `rotate` find a colour between pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


Sizes = int | Sequence[int]
Colour = float | Sequence[float] | None  # of all channels, or of each
_PIL_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _mode(interpolation):
    """Its name, given as InterpolationMode, as Pillow's number, or as text."""
    if isinstance(interpolation, InterpolationMode):
        return interpolation.value
    name = _PIL_NUMBERS.get(interpolation, interpolation) if isinstance(interpolation, int) else interpolation
    return InterpolationMode(name).value


# -- kinds of pictures -------------------------------------------------------------------------------------------


def to_tensor(pic: Any) -> Tensor:
    """A PIL image or an array (H, W) or (H, W, C) as a tensor (C, H, W); a number as a 0-d tensor.

    uint8 becomes the default float dtype, divided by 255; other dtypes are kept.

    Raises:
        TypeError: something else.
    """
    if isinstance(pic, (bool, int, float, np.generic)):  # targets
        return tensor(pic, device="cpu")
    out = pil_to_tensor(pic) if is_pil(pic) else array_tensor(pic) if is_array(pic) else None
    if out is None:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    return out.to(dtypes.default_dtype()) / 255 if out.dtype is dtypes.uint8 else out


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a tensor (C, H, W), its numbers unchanged.

    Raises:
        TypeError: no PIL image.
    """
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return pil_tensor(pic)


def to_pil_image(pic: Tensor | np.ndarray, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or (H, W), or an array (H, W) or (H, W, C), as a PIL image; floats are multiplied by 255.

    Args:
        mode: Pillow's name of what the channels are, such as "YCbCr"; by default what their number says.

    Raises:
        TypeError, ValueError: no picture, or none that a mode fits.
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
    """image in another dtype, its numbers brought to that dtype's range.

    Raises:
        RuntimeError: floats that are too coarse for the integers wanted.
    """
    dtype = dtypes.as_dtype(dtype)
    if image.dtype is dtype or (image.is_floating_point() and dtype.is_floating_point):
        return image.to(dtype)
    if image.is_floating_point():
        if (image.dtype is dtypes.float32 and dtype in (dtypes.int32, dtypes.int64)) or (
            image.dtype is dtypes.float64 and dtype is dtypes.int64
        ):
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        return (image * (_highest(dtype) + 1 - 1e-3)).to(dtype)  # 1e-3: so that 1.0 is the highest, as torchvision
    if dtype.is_floating_point:
        return image.to(dtype) / _highest(image.dtype)
    old, new = _highest(image.dtype), _highest(dtype)
    if old > new:
        return (image // ((old + 1) // (new + 1))).to(dtype)
    return image.to(dtype) * ((new + 1) // (old + 1))


def _highest(dtype):
    """The number that stands for full brightness."""
    if dtype.is_floating_point:
        return 1
    return 1 if dtype is dtypes.bool_ else int(np.iinfo(dtype.numpy).max)


def get_dimensions(img: Any) -> list[int]:
    """[C, H, W] of a picture."""
    if is_pil(img):
        return [len(img.getbands()), img.height, img.width]
    if is_array(img):
        return [img.shape[2] if img.ndim == 3 else 1, *img.shape[:2]]
    if not isinstance(img, Tensor) or img.ndim < 2:
        raise TypeError(f"Unexpected type {type(img)}: expected a tensor (…, C, H, W), an array or a PIL image.")
    return [img.shape[-3] if img.ndim > 2 else 1, *img.shape[-2:]]


def get_image_size(img: Any) -> list[int]:
    """[W, H] of a picture."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Any) -> int:
    """The number of channels of a picture."""
    return get_dimensions(img)[0]


# -- numbers ------------------------------------------------------------------------------------------------------


def _of_channels(values, image, name):
    """Numbers, one for all channels or one for each, as a tensor (C or 1, 1, 1) like image."""
    out = as_tensor(values, dtype=image.dtype, device=image.device).reshape(-1, 1, 1)
    channels = image.shape[-3] if image.ndim > 2 else 1
    if len(out) not in (1, channels):
        raise ValueError(f"{name}: {len(out)} numbers for a picture of {channels} channels.")
    return out


@on_tensors
def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(tensor - mean) / std, with a number for each channel.

    Args:
        tensor: (…, C, H, W).
        mean: for each channel.
        std: for each channel.
        inplace: write the result into the picture.

    Raises:
        TypeError: not floats.
        ValueError: a std of 0, or fewer than three axes.
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
    """img with the h x w pixels from row i, column j on replaced by v, which broadcasts to them.

    Args:
        img: a picture (…, H, W).
        i: first row.
        j: first column.
        h: height.
        w: width.
        v: what to write.
        inplace: write into img.
    """
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


@on_tensors
def invert(img: Tensor) -> Tensor:
    """The negative: full brightness minus img."""
    return _highest(img.dtype) - img


# -- place ---------------------------------------------------------------------------------------------------------


@on_tensors
def hflip(img: Tensor) -> Tensor:
    """Left and right exchanged."""
    return img.flip(-1)


@on_tensors
def vflip(img: Tensor) -> Tensor:
    """Top and bottom exchanged."""
    return img.flip(-2)


def _borders(padding):
    """[left, top, right, bottom] of torchvision's one, two or four numbers."""
    values = [padding] if isinstance(padding, int) else list(padding)
    if len(values) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(values)} element tuple")
    return values if len(values) == 4 else [values[0], values[-1]] * 2


@on_tensors
def pad(img: Tensor, padding: Sizes, fill: Colour = 0, padding_mode: str = "constant") -> Tensor:
    """img with borders added; negative ones crop.

    Args:
        padding: all four borders; left/right and top/bottom; or left, top, right, bottom.
        fill: the colour of a constant border, for all channels or for each.
        padding_mode: "constant", "edge", "reflect" (without the edge) or "symmetric" (with it).

    Raises:
        ValueError: another mode, or another number of borders.
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
    """The height x width pixels from row `top`, column `left` on; what lies outside is 0.

    Args:
        img: a picture (…, H, W).
        top: first row.
        left: first column.
        height: rows.
        width: columns.
    """
    h, w = img.shape[-2:]
    outside = [max(-left, 0), max(left + width - w, 0), max(-top, 0), max(top + height - h, 0)]
    if any(outside):
        img = F.pad(img, outside)
        top, left = max(top, 0), max(left, 0)
    return img[..., top : top + height, left : left + width]


def _pair(size):
    """(height, width) of one number or two."""
    values = [size] if isinstance(size, int) else list(size)
    if len(values) not in (1, 2):
        raise ValueError(f"Please provide only two dimensions (h, w) for size, got {size}.")
    return int(values[0]), int(values[-1])


@on_tensors
def center_crop(img: Tensor, output_size: Sizes) -> Tensor:
    """The middle of img; a side that is too short gets a border of 0."""
    height, width = _pair(output_size)
    h, w = img.shape[-2:]
    if width > w or height > h:
        across, down = max(width - w, 0), max(height - h, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        h, w = img.shape[-2:]
    return crop(img, round((h - height) / 2), round((w - width) / 2), height, width)


def _resized(height, width, size, max_size):
    """The (height, width) that a picture gets: `size` itself, or its shorter side becomes size."""
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


def _in_floats(img, change):
    """change(img) done in floats; integers are rounded and kept in their range afterwards."""
    if img.is_floating_point():
        return change(img)
    out = change(img.to(dtypes.float32)).round()
    if img.dtype is dtypes.bool_:
        return out > 0.5
    info = np.iinfo(img.dtype.numpy)
    return out.clamp(info.min, info.max).to(img.dtype)


@on_tensors
def resize(
    img: Tensor, size: Sizes, interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None, antialias: bool = True,
) -> Tensor:  # fmt: skip
    """img in another size.

    Args:
        size: (height, width), or the length of the shorter side, the shape being kept.
        interpolation: an InterpolationMode. "bilinear" and "bicubic" are F.interpolate's if antialias is False;
            "nearest" and "nearest-exact" always are.
        max_size: the most that the longer side may become, if size is the shorter one's.
        antialias: smooth while shrinking, as Pillow does, so that every pixel counts. It is heeded for every
            kind of picture; "box", "hamming" and "lanczos" do it always.

    Raises:
        ValueError: sizes that don't go together.
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

    return _in_floats(img, smooth if antialias or mode not in ("bilinear", "bicubic") else plain)


def _flat(img):
    """(…, H, W) as (1, everything else, H, W)."""
    return img.reshape(1, -1, *img.shape[-2:])


@on_tensors
def resized_crop(
    img: Tensor, top: int, left: int, height: int, width: int, size: Sizes,
    interpolation: InterpolationMode = InterpolationMode.BILINEAR, antialias: bool = True,
) -> Tensor:  # fmt: skip
    """`crop`, then `resize`.

    Args:
        img: a picture (…, H, W).
        top: first row.
        left: first column.
        height: rows.
        width: columns.
        size: (H, W) of the result, or of the shorter side.
        interpolation: how.
        antialias: smooth when shrinking.
    """
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def _rotated_size(matrix, height, width):
    """The (height, width) that all of a rotated picture needs."""
    corners = np.array([[-width, -height, 2], [-width, height, 2], [width, height, 2], [width, -height, 2]]) / 2
    points = np.round(corners @ matrix.T + (width / 2, height / 2), 4)  # corners on a border but for rounding
    low, high = np.floor(points.min(0)), np.ceil(points.max(0))
    across, down = (high - low).astype(int).tolist()
    return down, across


@on_tensors
def rotate(
    img: Tensor, angle: float, interpolation: InterpolationMode = InterpolationMode.NEAREST, expand: bool = False,
    center: Sequence[float] | None = None, fill: Colour = None,
) -> Tensor:  # fmt: skip
    """img turned counter-clockwise by an angle in degrees.

    Args:
        interpolation: NEAREST or BILINEAR.
        expand: make room for all of it, turning about the middle.
        center: (x, y) to turn about, from the upper left corner; by default the middle.
        fill: the colour of what comes in from outside, for all channels or for each; by default 0.

    Raises:
        ValueError: another interpolation.
    """
    mode = _mode(interpolation)
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"rotate: interpolation is {mode!r}; expected 'nearest' or 'bilinear'.")
    height, width = img.shape[-2:]
    cx, cy = (0.0, 0.0) if center is None or expand else (center[0] - width * 0.5, center[1] - height * 0.5)
    turn = math.radians(-angle)
    cos, sin = math.cos(turn), math.sin(turn)
    # From where, seen from the middle, a pixel of the result comes.
    matrix = np.array([[cos, sin, cx - cos * cx - sin * cy], [-sin, cos, cy + sin * cx - cos * cy]])
    h, w = _rotated_size(matrix, height, width) if expand else (height, width)
    y, x = np.mgrid[:h, :w] + 0.5
    places = np.stack([x - w / 2, y - h / 2, np.ones_like(x)], axis=-1) @ matrix.T  # (h, w, 2)
    grid = as_tensor((places / (width / 2, height / 2))[None], dtype=dtypes.float32, device=img.device)

    def turned(x):
        flat = _flat(x)
        here = grid.to(x.dtype)
        out = F.grid_sample(flat, here, mode=mode, align_corners=False).reshape(*x.shape[:-2], h, w)
        if fill is None:
            return out
        inside = F.grid_sample(flat[:, :1] * 0 + 1, here, mode=mode, align_corners=False)[0]
        return out * inside + (1 - inside) * _of_channels(fill, x, "rotate")

    return _in_floats(img, turned)


# -- colour --------------------------------------------------------------------------------------------------------


def _blend(img, other, share):
    """share * img + (1 - share) * other, in img's dtype and range."""
    out = (img * share + other * (1.0 - share)).clamp(0, _highest(img.dtype))
    return out.to(img.dtype)


def _colours(img, name):
    channels = img.shape[-3] if img.ndim > 2 else 1
    if channels not in (1, 3):
        raise TypeError(f"{name}: the picture has {channels} channels; expected 1 or 3.")
    return channels


def _factor(value, name):
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")


@on_tensors
def rgb_to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    """0.2989 red + 0.587 green + 0.114 blue, in one channel or three equal ones.

    Raises:
        ValueError: another number of channels.
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
    """img times a factor: 0 is black, 1 is img."""
    _factor(brightness_factor, "brightness_factor")
    _colours(img, "adjust_brightness")
    return _blend(img, 0.0, brightness_factor)


@on_tensors
def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    """img's distance from its mean grey times a factor: 0 is grey all over, 1 is img."""
    _factor(contrast_factor, "contrast_factor")
    _colours(img, "adjust_contrast")
    grey = rgb_to_grayscale(img)
    grey = grey if img.is_floating_point() else grey.to(dtypes.float32)
    return _blend(img, grey.mean((-3, -2, -1), keepdim=True), contrast_factor)


@on_tensors
def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    """img's distance from grey times a factor: 0 is grey, 1 is img."""
    _factor(saturation_factor, "saturation_factor")
    return img if _colours(img, "adjust_saturation") == 1 else _blend(img, rgb_to_grayscale(img), saturation_factor)


@on_tensors
def adjust_gamma(img: Tensor, gamma: float, gain: float = 1) -> Tensor:
    """gain * img ** gamma, in colours from 0 to 1.

    Args:
        img: a picture (…, H, W).
        gamma: above 1 darkens.
        gain: factor of the result.
    """
    _factor(gamma, "gamma")
    out = convert_image_dtype(img, img.dtype if img.is_floating_point() else dtypes.float32)
    return convert_image_dtype((gain * out**gamma).clamp(0, 1), img.dtype)


@on_tensors
def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """img with its hues turned by hue_factor of the colour circle, from -0.5 to 0.5.

    Raises:
        ValueError: a factor outside.
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
    def channel(offset):  # how far the hue is from where this channel is brightest
        k = (offset + hue * 6.0) % 6.0
        return value - value * saturation * k.minimum(4.0 - k).clamp(0, 1)

    return stack([channel(5.0), channel(3.0), channel(1.0)], -3)
