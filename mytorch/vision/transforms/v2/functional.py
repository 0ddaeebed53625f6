"""torchvision's transforms v2 as functions. Most are the v1 functions, for images with any number of leading axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...._tensor import Tensor
from ....base import dtypes
from ....nn import functional as F
from ....ops.creation import tensor
from .. import functional as first
from ..functional import (
    InterpolationMode,
    center_crop,
    convert_image_dtype,
    crop,
    get_image_num_channels,
    get_image_size,
    hflip,
    invert,
    normalize,
    pad,
    pil_to_tensor,
    resize,
    resized_crop,
    rgb_to_grayscale,
    rotate,
    vflip,
)
from ..images import on_tensors

horizontal_flip = hflip
vertical_flip = vflip
get_num_channels = get_image_num_channels


def get_size(inpt: Any) -> list[int]:
    """Returns [height, width] of an image.

    Args:
        inpt: the image.
    """
    return get_image_size(inpt)[::-1]


def to_image(inpt: Any) -> Tensor:
    """Converts an image to a tensor (…, C, H, W) of the same dtype.

    Args:
        inpt: the image.
    """
    if isinstance(inpt, Tensor):
        return inpt if inpt.ndim != 2 else inpt.unsqueeze(0)
    if isinstance(inpt, np.ndarray):
        array = inpt[:, :, None] if inpt.ndim == 2 else inpt
        return tensor(np.ascontiguousarray(np.moveaxis(array, -1, 0)))
    return pil_to_tensor(inpt)


def to_dtype(inpt: Tensor, dtype: Any = dtypes.float32, scale: bool = False) -> Tensor:
    """Converts a tensor to another dtype.

    Args:
        inpt: the tensor.
        dtype: the dtype.
        scale: scale the values to the range of the dtype.
    """
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


def _numbers(value, count, name):
    values = [value] * count if isinstance(value, (int, float)) else list(value)
    if len(values) not in (1, count):
        raise ValueError(f"{name}: expected 1 or {count} numbers, got {len(values)}.")
    return values * count if len(values) == 1 else values


@on_tensors
def gaussian_blur(
    img: Tensor, kernel_size: Sequence[int] | int, sigma: Sequence[float] | float | None = None
) -> Tensor:
    """Blurs an image with weights exp(-distance² / (2 sigma²)); borders are reflected.

    Args:
        img: image (…, C, H, W).
        kernel_size: odd size of the kernel in pixels, one number or (x, y).
        sigma: one number or (x, y) (default: 0.15 kernel_size + 0.35).
    """
    widths = _numbers(kernel_size, 2, "kernel_size")
    if any(k <= 0 or k % 2 == 0 for k in widths):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {widths}")
    sigmas = [k * 0.15 + 0.35 for k in widths] if sigma is None else _numbers(sigma, 2, "sigma")
    if any(s <= 0 for s in sigmas):
        raise ValueError(f"sigma should have positive values. Got {sigmas}")
    given = img.dtype
    x = img.reshape(-1, 1, *img.shape[-2:]).to(given if given.is_floating_point else dtypes.float32)
    x = F.pad(x, (widths[0] // 2, widths[0] // 2, widths[1] // 2, widths[1] // 2), "reflect")
    for width, s, shape in zip(widths, sigmas, ((1, 1, 1, -1), (1, 1, -1, 1)), strict=True):
        weights = np.exp(-0.5 * ((np.arange(width) - width // 2) / s) ** 2)
        x = F.conv2d(x, tensor(weights / weights.sum(), dtype=x.dtype, device=x.device).reshape(shape))
    x = x.reshape(img.shape)
    return x if given.is_floating_point else x.round().to(given)


def to_grayscale(inpt: Tensor, num_output_channels: int = 1) -> Tensor:
    """Converts an image to grayscale.

    Args:
        inpt: the image.
        num_output_channels: 1, or 3 for three equal channels.
    """
    return rgb_to_grayscale(inpt, num_output_channels)


def grayscale_to_rgb(image: Tensor) -> Tensor:
    """Converts a grayscale image (…, 1, H, W) to three equal channels. A color image does not change.

    Args:
        image: the image.
    """
    if image.shape[-3] >= 3:
        return image
    return image[..., :1, :, :].expand(*image.shape[:-3], 3, *image.shape[-2:])


@on_tensors
def solarize(img: Tensor, threshold: float) -> Tensor:
    """Inverts all values from a threshold on.

    Args:
        img: the image.
        threshold: the threshold.
    """
    return invert(img).where(img >= threshold, img)


@on_tensors
def posterize(img: Tensor, bits: int) -> Tensor:
    """Keeps only the highest bits of uint8 values.

    Args:
        img: the image.
        bits: number of bits to keep.
    """
    if img.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return img & (256 - 2 ** (8 - bits))


def five_crop(inpt: Any, size: Sequence[int]) -> tuple[Any, ...]:
    """Returns the four corners and the center of an image.

    Args:
        inpt: the image.
        size: (height, width) of the crops.
    """
    height, width = [size, size] if isinstance(size, int) else list(size) * (2 // len(size))
    rows, columns = get_size(inpt)
    corners = [(0, 0), (0, columns - width), (rows - height, 0), (rows - height, columns - width)]
    return (*[crop(inpt, *corner, height, width) for corner in corners], center_crop(inpt, [height, width]))


def gaussian_noise(inpt: Tensor, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Tensor:
    """Adds normal noise to a float image.

    Args:
        inpt: the image.
        mean: mean of the noise.
        sigma: standard deviation of the noise.
        clip: clip the result to [0, 1].
    """
    noisy = inpt + (inpt.new_empty(inpt.shape).normal_() * sigma + mean)
    return noisy.clamp(0, 1) if clip else noisy


# torchvision's names of these functions for tensors
to_dtype_image = convert_dtype = to_dtype
pad_image, resize_image, crop_image, normalize_image, rotate_image = pad, resize, crop, normalize, rotate
horizontal_flip_image, vertical_flip_image, invert_image = hflip, vflip, invert
center_crop_image, resized_crop_image, gaussian_blur_image = center_crop, resized_crop, gaussian_blur
rgb_to_grayscale_image, grayscale_to_rgb_image = rgb_to_grayscale, grayscale_to_rgb
pil_modes_mapping = {number: InterpolationMode(name) for number, name in first._PIL_NUMBERS.items()}
__all__ = [n for n in dir() if not n.startswith("_") and n not in ("Any", "F", "Sequence", "Tensor", "dtypes", "first", "math", "np", "on_tensors", "tensor")]  # fmt: skip
