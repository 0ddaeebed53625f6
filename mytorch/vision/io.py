"""Reading images and writing PNG files, as uint8 tensors (C, H, W). Requires Pillow."""

import io as _io
import os
from enum import Enum
from typing import Any

import numpy as np

from ..arrays.errors import needed
from ..arrays.tensor import Tensor
from ..ops.creation import tensor
from .transforms.functional import pil_to_tensor, to_pil_image


class ImageReadMode(Enum):
    """Channels of an image after reading; UNCHANGED keeps the channels of the file."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_PIL_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def _pillow():
    return needed("PIL.Image", "vision.io requires Pillow. Run `pip install pillow`.")


def _decoded(source, mode):
    mode = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
    with _pillow().open(source) as picture:
        wanted = _PIL_MODES.get(mode.name)
        if wanted is None:
            wanted = {"P": "RGB", "1": "L", "CMYK": "RGB"}.get(picture.mode, picture.mode)
        return pil_to_tensor(picture if picture.mode == wanted else picture.convert(wanted))


def read_file(path: str | os.PathLike) -> Tensor:
    """Returns the bytes of a file as a vector of uint8.

    Args:
        path: path of the file.
    """
    with open(path, "rb") as file:
        return tensor(np.frombuffer(file.read(), np.uint8).copy())


def write_file(filename: str | os.PathLike, data: Tensor) -> None:
    """Writes a vector of uint8 to a file.

    Args:
        filename: path of the file.
        data: the bytes.
    """
    with open(filename, "wb") as file:
        file.write(data.numpy().tobytes())


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Reads an image file as a uint8 tensor (C, H, W).

    Args:
        path: path of a file in a format that Pillow supports.
        mode: channels of the result, an ImageReadMode or its name.
    """
    return _decoded(path, mode)


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Decodes an image as a uint8 tensor (C, H, W).

    Args:
        input: bytes of the file as a vector of uint8, or its path.
        mode: channels of the result, an ImageReadMode or its name.
    """
    return _decoded(input if isinstance(input, (str, os.PathLike)) else _io.BytesIO(input.numpy().tobytes()), mode)


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """Encodes an image as PNG.

    Args:
        input: uint8 tensor (C, H, W).
        compression_level: compression level from 0 to 9.

    Returns:
        The bytes of the file as a vector of uint8.
    """
    buffer = _io.BytesIO()
    to_pil_image(input).save(buffer, "PNG", compress_level=compression_level)
    return tensor(np.frombuffer(buffer.getvalue(), np.uint8).copy())


def write_png(input: Tensor, filename: str | os.PathLike, compression_level: int = 6) -> None:
    """Writes an image to a PNG file.

    Args:
        input: uint8 tensor (C, H, W).
        filename: path of the file.
        compression_level: compression level from 0 to 9.
    """
    write_file(filename, encode_png(input, compression_level))


__all__ = ["ImageReadMode", "decode_image", "encode_png", "read_file", "read_image", "write_file", "write_png"]
