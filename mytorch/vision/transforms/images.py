"""Conversions between tensors, arrays and PIL images.

Every transform is written once, for tensors (…, C, H, W). A PIL image or an array, (H, W) or (H, W, C), is converted to
a tensor and the result back (`on_tensors`). Pillow is never needed unless pictures are its own.
"""

import functools
import sys
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from ..._tensor import Tensor
from ...base.errors import needed
from ...ops.creation import as_tensor


def is_pil(picture):
    """Whether it is a PIL image; Pillow is not imported to find out."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(picture, module.Image)


def is_array(picture):
    """Whether it is an array that can be a picture."""
    return isinstance(picture, np.ndarray) and picture.ndim in (2, 3)


def pil_tensor(picture):
    """A PIL image as a tensor (C, H, W), its numbers unchanged.

    Raises:
        ValueError: a mode whose numbers are not colours, such as a palette's.
    """
    if picture.mode not in (*_OF_BYTES, *_NATURAL.values()):
        raise ValueError(f"pictures of mode {picture.mode!r} are not supported; convert them with .convert('RGB').")
    return array_tensor(np.array(picture))


def array_tensor(array):
    """An array (H, W) or (H, W, C) as a tensor (C, H, W) on the CPU, with a copy of it."""
    array = array[:, :, None] if array.ndim == 2 else array
    return as_tensor(np.ascontiguousarray(array.transpose(2, 0, 1)), device="cpu", copy=True)


def tensor_array(tensor):
    """A tensor (C, H, W) as an array (H, W, C)."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy().transpose(1, 2, 0))


def to_tensor_kind(picture, name):
    """(tensor, a function that makes a tensor what the picture was).

    Raises:
        TypeError: it is no picture.
    """
    if isinstance(picture, Tensor):
        if picture.ndim < 2:
            raise TypeError(f"{name}: a picture is (…, C, H, W); got a tensor of shape {tuple(picture.shape)}.")
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
    """Let a function of a tensor, its first argument, take every kind of picture and give that kind back."""

    @functools.wraps(function)
    def wrapper(img, *args, **kwargs):
        tensor, back = to_tensor_kind(img, function.__name__)
        return back(function(tensor, *args, **kwargs))

    return wrapper


_NATURAL = {  # the mode of an image by its channels and dtype
    (1, "bool"): "1", (1, "uint8"): "L", (1, "uint16"): "I;16", (1, "int32"): "I", (1, "float32"): "F",
    (2, "uint8"): "LA", (3, "uint8"): "RGB", (4, "uint8"): "RGBA",
}  # fmt: skip
_OF_BYTES = {"L": 1, "LA": 2, "RGB": 3, "YCbCr": 3, "HSV": 3, "LAB": 3, "RGBA": 4, "CMYK": 4, "RGBX": 4}


def pil_image(tensor, mode=None, like=None):
    """A tensor (C, H, W) as a PIL image of a mode, or of that of the image `like` if it fits, or of the usual one.

    Args:
        tensor: (C, H, W) or (H, W).
        mode: PIL's name; guessed if None.
        like: an image whose mode to take.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: no mode, or not this one, has so many channels of that dtype.
    """
    Image = needed("PIL.Image", "Making a PIL image needs Pillow: pip install pillow.")
    array = tensor_array(tensor)
    height, width, channels = array.shape
    kind = array.dtype.name
    natural = _NATURAL.get((channels, kind))
    fitting = {m for m, n in _OF_BYTES.items() if n == channels and kind == "uint8"} | {natural}
    mode = mode or (like if like in fitting else natural)
    if mode is None or mode not in fitting:
        raise ValueError(f"a picture of {channels} channels of dtype {kind} can't be a PIL image of mode {mode}.")
    if mode == natural:
        return Image.fromarray(array[:, :, 0] if channels == 1 else array)
    return Image.frombytes(mode, (width, height), array.tobytes())
