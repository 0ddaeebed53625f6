"""Reading and writing images as uint8 tensors (C, H, W). Requires Pillow."""

import io as _io
import os
from enum import Enum
from typing import Any

import numpy as np

from .._tensor import Tensor
from ..base.errors import needed
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


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Reads an image file as a uint8 tensor (C, H, W).

    Args:
        path: path of a file in a format that Pillow supports.
        mode: channels of the result, an ImageReadMode or its name.
        apply_exif_orientation: not supported; must be False.
    """
    if apply_exif_orientation:
        raise NotImplementedError("read_image: apply_exif_orientation=True is not supported.")
    return _decoded(path, mode)


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Decodes an image as a uint8 tensor (C, H, W).

    Args:
        input: bytes of the file as a vector of uint8, or its path.
        mode: channels of the result, an ImageReadMode or its name.
        apply_exif_orientation: not supported; must be False.
    """
    if isinstance(input, (str, os.PathLike)):
        return read_image(input, mode, apply_exif_orientation)
    return read_image(_io.BytesIO(input.numpy().tobytes()), mode, apply_exif_orientation)


decode_png = decode_jpeg = decode_gif = decode_webp = decode_image


def _encoded(picture, kind, **options):
    buffer = _io.BytesIO()
    to_pil_image(picture).save(buffer, kind, **options)
    return tensor(np.frombuffer(buffer.getvalue(), np.uint8).copy())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """Encodes an image as PNG.

    Args:
        input: uint8 tensor (C, H, W).
        compression_level: compression level from 0 to 9.

    Returns:
        The bytes of the file as a vector of uint8.
    """
    return _encoded(input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """Encodes an image as JPEG.

    Args:
        input: uint8 tensor (C, H, W).
        quality: quality from 1 to 100.

    Returns:
        The bytes of the file as a vector of uint8.
    """
    return _encoded(input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: str | os.PathLike, compression_level: int = 6) -> None:
    """Writes an image to a PNG file.

    Args:
        input: uint8 tensor (C, H, W).
        filename: path of the file.
        compression_level: compression level from 0 to 9.
    """
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: str | os.PathLike, quality: int = 75) -> None:
    """Writes an image to a JPEG file.

    Args:
        input: uint8 tensor (C, H, W).
        filename: path of the file.
        quality: quality from 1 to 100.
    """
    write_file(filename, encode_jpeg(input, quality))


__all__ = [
    "ImageReadMode", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "decode_webp", "encode_jpeg", "encode_png",
    "read_file", "read_image", "write_file", "write_jpeg", "write_png",
]  # fmt: skip
