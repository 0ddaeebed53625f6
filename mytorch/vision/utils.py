"""Grids of images, and image files."""

import io
import math
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from ..arrays import dtypes
from ..arrays.errors import needed
from ..arrays.tensor import Tensor
from ..files.writing import atomic_write
from ..ops.creation import full
from ..ops.movement import cat, stack


def make_grid(
    tensor: Tensor | Sequence[Tensor], nrow: int = 8, padding: int = 2, normalize: bool = False,
    value_range: tuple[float, float] | None = None, scale_each: bool = False, pad_value: float = 0.0,
) -> Tensor:  # fmt: skip
    """Arranges images in rows and returns one image (3, H, W).

    Args:
        tensor: (B, C, H, W), one image (C, H, W) or (H, W), or a list of images of equal size. One channel is repeated
            three times.
        nrow: number of images per row.
        padding: pixels between and around the images.
        normalize: scale the values from value_range to 0 … 1.
        value_range: (minimum, maximum) for normalize (default: minimum and maximum of the images).
        scale_each: normalize each image separately.
        pad_value: value of the padding.

    Raises:
        TypeError: if the input is neither a tensor nor a list of tensors.
    """
    if isinstance(tensor, (list, tuple)) and all(isinstance(t, Tensor) for t in tensor):
        tensor = stack(list(tensor), 0)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if not 2 <= tensor.ndim <= 4:
        raise ValueError(f"make_grid: expected (B, C, H, W), (C, H, W) or (H, W), got shape {tuple(tensor.shape)}.")
    x = tensor.detach()
    x = x.reshape((1,) * (4 - x.ndim) + tuple(x.shape))
    x = cat([x, x, x], 1) if x.shape[1] == 1 else x
    if normalize:
        x = stack([_scaled(picture, value_range) for picture in x]) if scale_each else _scaled(x, value_range)
    count, channels, height, width = x.shape
    if count == 1:
        return x[0]
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    down, across = height + padding, width + padding
    size = channels, rows * down + padding, columns * across + padding
    grid = full(size, pad_value, dtype=x.dtype, device=x.device)
    for i, picture in enumerate(x):
        top, left = i // columns * down + padding, i % columns * across + padding
        grid[:, top : top + height, left : left + width] = picture
    return grid


def _scaled(x, value_range):
    low, high = value_range if value_range is not None else (float(x.min()), float(x.max()))
    return (x.clamp(low, high) - low) / max(high - low, 1e-5)


def save_image(
    tensor: Tensor | Sequence[Tensor], fp: str | os.PathLike | BinaryIO, format: str | None = None, **options: Any
) -> None:
    """Writes an image or a grid of images to a file.

    Args:
        tensor: see `make_grid`; values from 0 to 1.
        fp: a path or a file object.
        format: Pillow's name of the format (default: from the file name). PNG files do not require Pillow.
        **options: arguments of `make_grid`.

    Raises:
        ImportError: if Pillow is not installed, for other formats than PNG.
    """
    grid = make_grid(tensor, **options)
    pixels = (grid * 255 + 0.5).clamp(0, 255).permute(1, 2, 0).to(dtypes.uint8).cpu().numpy()  # (H, W, 3)
    extension = os.path.splitext(os.fspath(fp))[1].lower() if isinstance(fp, (str, os.PathLike)) else None
    if extension == ".png" and format is None:
        content = png(pixels)
    else:
        image = needed("PIL.Image", "save_image: formats other than .png require Pillow. Run `pip install pillow`.")
        if format is None and extension is not None:
            formats = image.registered_extensions()
            if extension not in formats:
                raise ValueError(f"save_image: expected the extension of an image format, got {extension!r}")
            format = formats[extension]
        buffer = io.BytesIO()
        image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format=format)
        content = buffer.getvalue()
    if isinstance(fp, (str, os.PathLike)):
        atomic_write(fp, content)
    else:
        fp.write(content)


def png(pixels: np.ndarray) -> bytes:
    """Encodes a uint8 array (H, W, 3) as a PNG file. Source: the PNG specification, ISO/IEC 15948.

    Args:
        pixels: the array.
    """
    height, width, _ = pixels.shape

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, no interlacing
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # filter 0: none
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes())), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
