"""Conversions between tensors, arrays and PIL images.

Every transform is implemented for tensors (…, C, H, W). A PIL image or an array, (H, W) or (H, W, C), is converted to a
tensor, and the result is converted back (`on_tensors`). Pillow is required only for PIL images.
"""

import functools
import sys
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from ...arrays import dtypes
from ...arrays.errors import needed
from ...arrays.tensor import Tensor
from ...ops.creation import from_numpy


def is_pil(picture):
    """Return True for a PIL image, without importing Pillow."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(picture, module.Image)


def is_array(picture):
    """Return True for an array that can be an image."""
    return isinstance(picture, np.ndarray) and picture.ndim in (2, 3)


def pil_tensor(picture):
    """Convert a PIL image to a tensor (C, H, W) without scaling.

    Raises:
        ValueError: if the mode's values are not colors, such as the palette mode.
    """
    if picture.mode not in (*_OF_BYTES, *_NATURAL.values()):
        raise ValueError(
            f"expected an image of a supported mode, got mode {picture.mode!r}. Convert it with .convert('RGB')."
        )
    return array_tensor(np.array(picture))


def array_tensor(array):
    """Copy an array (H, W) or (H, W, C) to a CPU tensor (C, H, W)."""
    array = array[:, :, None] if array.ndim == 2 else array
    return from_numpy(np.array(array.transpose(2, 0, 1), order="C"))


def tensor_array(tensor):
    """Convert a tensor (C, H, W) to an array (H, W, C)."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy().transpose(1, 2, 0))


def to_tensor_kind(picture, name):
    """Return the image as a tensor, and a function that converts a tensor back to the image's type.

    Raises:
        TypeError: if it is not an image.
    """
    if isinstance(picture, Tensor):
        if picture.ndim < 2:
            raise TypeError(f"{name}: expected an image (…, C, H, W), got a tensor of shape {tuple(picture.shape)}.")
        return picture, lambda out: out
    if is_pil(picture):
        return pil_tensor(picture), lambda out: pil_image(out, like=picture.mode)
    if is_array(picture):
        flat = picture.ndim == 2
        back = lambda out: tensor_array(out)[:, :, 0] if flat and len(out) == 1 else tensor_array(out)  # noqa: E731
        return array_tensor(picture), back
    raise TypeError(
        f"{name}: expected a tensor (…, C, H, W), an array (H, W) or (H, W, C), or a PIL image, got {type(picture)}"
    )


Picture = TypeVar("Picture")  # a tensor, an array or a PIL image
Arguments = ParamSpec("Arguments")


def on_tensors(
    function: Callable[Concatenate[Tensor, Arguments], Tensor],
) -> Callable[Concatenate[Picture, Arguments], Picture]:
    """Let a function of a tensor, its first argument, accept every type of image and return the same type."""

    @functools.wraps(function)
    def wrapper(img, *args, **kwargs):
        tensor, back = to_tensor_kind(img, function.__name__)
        return back(function(tensor, *args, **kwargs))

    return wrapper


_NATURAL = {  # the mode of an image, by its channels and dtype
    (1, "bool"): "1", (1, "uint8"): "L", (1, "uint16"): "I;16", (1, "int32"): "I", (1, "float32"): "F",
    (2, "uint8"): "LA", (3, "uint8"): "RGB", (4, "uint8"): "RGBA",
}  # fmt: skip
_OF_BYTES = {"L": 1, "LA": 2, "RGB": 3, "YCbCr": 3, "HSV": 3, "LAB": 3, "RGBA": 4, "CMYK": 4, "RGBX": 4}


def pil_image(tensor, mode=None, like=None):
    """Convert a tensor to a PIL image.

    Args:
        tensor: (C, H, W) or (H, W).
        mode: Pillow's mode (default: from the number of channels).
        like: image with the mode to use, if it fits.

    Raises:
        ImportError: if Pillow is not installed.
        ValueError: if the mode does not fit the number of channels and the dtype.
    """
    Image = needed("PIL.Image", "Creating a PIL image requires Pillow. Run `pip install pillow`.")
    array = tensor_array(tensor)
    height, width, channels = array.shape
    kind = array.dtype.name
    natural = _NATURAL.get((channels, kind))
    fitting = {m for m, n in _OF_BYTES.items() if n == channels and kind == "uint8"} | {natural}
    mode = mode or (like if like in fitting else natural)
    if mode is None or mode not in fitting:
        raise ValueError(
            f"to_pil_image: mode {mode} does not support an image with {channels} channels of dtype {kind}."
        )
    if mode == natural:
        return Image.fromarray(array[:, :, 0] if channels == 1 else array)
    return Image.frombytes(mode, (width, height), array.tobytes())


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
