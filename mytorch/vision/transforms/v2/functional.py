"""torchvision's transforms v2 as functions. Most are the v1 functions, for images with any number of leading axes."""

from typing import Any

import numpy as np

from ...._tensor import Tensor
from ....base import dtypes
from ....ops.creation import tensor
from .. import functional as first
from ..functional import (  # noqa: F401
    InterpolationMode,
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    affine,
    autocontrast,
    center_crop,
    convert_image_dtype,
    crop,
    elastic_transform,
    equalize,
    erase,
    five_crop,
    gaussian_blur,
    get_image_num_channels,
    get_image_size,
    hflip,
    invert,
    normalize,
    pad,
    perspective,
    pil_to_tensor,
    posterize,
    resize,
    resized_crop,
    rgb_to_grayscale,
    rotate,
    solarize,
    ten_crop,
    vflip,
)

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
__all__ = [n for n in dir() if not n.startswith("_") and n not in ("Any", "Tensor", "dtypes", "first", "np", "tensor")]  # fmt: skip
