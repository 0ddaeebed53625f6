"""Reading images and writing PNG files, as uint8 tensors (C, H, W). Requires Pillow."""

import os
from enum import Enum
from typing import Any

from .._extensions import lazy
from ..arrays.errors import needed
from ..arrays.tensor import Tensor
from ..files.writing import atomic_file
from .transforms.functional import pil_to_tensor, to_pil_image


class ImageReadMode(Enum):
    """Channels of an image after reading; UNCHANGED keeps the channels of the file."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_PIL_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Reads an image file as a uint8 tensor (C, H, W).

    Args:
        path: path of a file in a format that Pillow supports.
        mode: channels of the result, an ImageReadMode or its name.
    """
    mode = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
    with needed("PIL.Image", "vision.io requires Pillow. Run `pip install pillow`.").open(path) as picture:
        wanted = _PIL_MODES.get(mode.name)
        if wanted is None:
            wanted = {"P": "RGB", "1": "L", "CMYK": "RGB"}.get(picture.mode, picture.mode)
        return pil_to_tensor(picture if picture.mode == wanted else picture.convert(wanted))


def write_png(input: Tensor, filename: str | os.PathLike, compression_level: int = 6) -> None:
    """Writes an image to a PNG file.

    Args:
        input: uint8 tensor (C, H, W).
        filename: path of the file.
        compression_level: compression level from 0 to 9.
    """
    with atomic_file(filename) as file:
        to_pil_image(input).save(file, "PNG", compress_level=compression_level)


__all__ = ["ImageReadMode", "read_image", "write_png"]
__getattr__, __dir__ = lazy(__name__)
