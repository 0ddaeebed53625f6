"""Changes of the values of an image: sharpness, blur, bits, thresholds and histograms. `functional` exports these functions."""

from collections.abc import Sequence

import numpy as np

from ..._tensor import Tensor
from ...base import dtypes
from ...nn import functional as F
from ...ops.creation import as_tensor, tensor
from ...ops.elementwise import where
from ...ops.movement import stack
from .images import on_tensors


def highest(dtype):
    """Return the maximum brightness of a dtype."""
    if dtype.is_floating_point:
        return 1
    return 1 if dtype is dtypes.bool_ else int(np.iinfo(dtype.numpy).max)


def in_floats(img, change):
    """Apply a function in floats; integers are rounded and clipped afterward."""
    if img.is_floating_point():
        return change(img)
    out = change(img.to(dtypes.float32)).round()
    if img.dtype is dtypes.bool_:
        return out > 0.5
    info = np.iinfo(img.dtype.numpy)
    return out.clamp(info.min, info.max).to(img.dtype)


def blend(img, other, share):
    """Compute share * img + (1 - share) * other in the dtype and range of img."""
    out = (img * share + other * (1.0 - share)).clamp(0, highest(img.dtype))
    return out.to(img.dtype)


@on_tensors
def invert(img: Tensor) -> Tensor:
    """Inverts the colors: maximum brightness minus img.

    Args:
        img: the image.
    """
    return highest(img.dtype) - img


@on_tensors
def solarize(img: Tensor, threshold: float) -> Tensor:
    """Inverts all values from a threshold on.

    Args:
        img: the image.
        threshold: the threshold.

    Raises:
        TypeError: if the threshold is greater than the maximum brightness.
    """
    if threshold > highest(img.dtype):
        raise TypeError(f"solarize: expected threshold at most {highest(img.dtype)} for {img.dtype}, got {threshold}.")
    return where(img >= threshold, highest(img.dtype) - img, img)


@on_tensors
def posterize(img: Tensor, bits: int) -> Tensor:
    """Keeps only the highest bits of uint8 values.

    Args:
        img: the image.
        bits: number of bits to keep, from 0 to 8.

    Raises:
        TypeError: if the image does not have the dtype uint8.
    """
    if img.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    if not 0 <= bits <= 8:
        raise ValueError(f"posterize: expected bits from 0 to 8, got {bits}.")
    return img & (256 - 2 ** (8 - int(bits))) if bits else img * 0


@on_tensors
def autocontrast(img: Tensor) -> Tensor:
    """Scales the values of each channel to the whole range. A channel with one value does not change.

    Args:
        img: image (…, C, H, W).
    """
    top = highest(img.dtype)
    x = img if img.is_floating_point() else img.to(dtypes.float32)
    low, high = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True)
    flat = high == low
    out = where(flat, x, (x - low) * (top / where(flat, 1.0, high - low)))
    return out.clamp(0, top).to(img.dtype)


@on_tensors
def equalize(img: Tensor) -> Tensor:
    """Makes the histogram of each channel of a uint8 image almost uniform. It has no gradient.

    Args:
        img: image (…, C, H, W).

    Raises:
        TypeError: if the image does not have the dtype uint8.
    """
    if img.dtype is not dtypes.uint8:
        raise TypeError(
            f"equalize: expected an image of dtype uint8, got {img.dtype}. Convert it with convert_image_dtype."
        )
    if not img.numel():
        return img
    return stack([_equalized(x) for x in img.reshape(-1, *img.shape[-2:])]).reshape(img.shape)


def _equalized(channel):
    counts = channel.reshape(-1).to(dtypes.int64).bincount(minlength=256)
    step = (counts.sum() - counts[channel.max().to(dtypes.int64)]).item() // 255
    if step == 0:
        return channel
    # The new value is the number of darker pixels, in steps.
    table = (counts.cumsum(0) - counts + step // 2) // step
    return table.clamp(0, 255).to(dtypes.uint8)[channel.to(dtypes.int64)]


@on_tensors
def adjust_sharpness(img: Tensor, sharpness_factor: float) -> Tensor:
    """Scales the difference between an image and its blurred version. Pixels at the borders do not change.

    Args:
        img: image (…, C, H, W).
        sharpness_factor: 0 gives a blurred image, 1 the original image.

    Raises:
        ValueError: if the factor is negative.
    """
    if sharpness_factor < 0:
        raise ValueError(f"sharpness_factor ({sharpness_factor}) is not non-negative.")
    height, width = img.shape[-2:]
    if height <= 2 or width <= 2:
        return img

    def blurred(x):
        weights = np.ones((1, 1, 3, 3))
        weights[0, 0, 1, 1] = 5
        kernel = as_tensor(weights / 13, dtype=x.dtype, device=x.device)
        inside = F.conv2d(x.reshape(-1, 1, height, width), kernel).reshape(*x.shape[:-2], height - 2, width - 2)
        out = x.clone()
        out[..., 1:-1, 1:-1] = inside
        return out

    return blend(img, in_floats(img, blurred), sharpness_factor)


def numbers(value, count, name):
    """Return a list of `count` numbers for one number or a sequence."""
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
    widths = numbers(kernel_size, 2, "kernel_size")
    if any(k <= 0 or k % 2 == 0 for k in widths):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {widths}")
    sigmas = [k * 0.15 + 0.35 for k in widths] if sigma is None else numbers(sigma, 2, "sigma")
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
