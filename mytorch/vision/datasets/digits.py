"""Digits that need no network: scikit-learn's, and digits drawn by rule."""

import numpy as np

from ...base.errors import needed
from ...ops.random import Generator
from .base import Change, SplitInMemory


class _Digits(SplitInMemory):
    classes = [str(i) for i in range(10)]


class Digits(_Digits):
    """scikit-learn's handwritten digits, 8 x 8: 1,437 to train, 360 (every fifth) to test.

    Args:
        train: the training set, or the test set.
        transform, target_transform: functions of each picture and of each target.

    Attributes:
        data: uint8 tensor (N, 8, 8); the original's 0 … 16 become 0 … 255.
        targets: int64 tensor (N,).

    Items are (picture, int), as `MNIST`'s.

    Raises:
        ImportError: scikit-learn is not installed.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """

    def __init__(self, train: bool = True, transform: Change | None = None, target_transform: Change | None = None):
        super().__init__(transform=transform, target_transform=target_transform)
        why = "Digits are scikit-learn's: pip install scikit-learn; or use SyntheticDigits, which needs nothing."
        load_digits = needed("sklearn.datasets", why).load_digits
        self.train = train
        found = load_digits()
        chosen = (np.arange(len(found.target)) % 5 == 0) != train
        self._hold(np.rint(found.images[chosen] * (255 / 16)), found.target[chosen])


_FONT = """
.###. ..#.. .###. .###. ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def _glyphs():
    """The ten digits, (10, 7, 5), 0 or 1."""
    rows = [[[pixel == "#" for pixel in glyph] for glyph in line.split()] for line in _FONT.split("\n") if line]
    return np.array(rows, np.float32).transpose(1, 0, 2)


class SyntheticDigits(_Digits):
    """Digits in one 5 x 7 font, each slanted, scaled, moved and dirtied at random: made here, of no file.

    Easier than handwriting; they are for trying a program out where there is nothing else.

    Args:
        train: the training set, or the test set: other draws of the same kind.
        size: how many.
        image_size: the side of a picture, at least 12.
        transform, target_transform: functions of each picture and of each target.

    Attributes:
        data: uint8 tensor (size, image_size, image_size).
        targets: int64 tensor (size,).

    Items are (picture, int), as `MNIST`'s; equal arguments give equal pictures.

    Raises:
        ValueError: a side that is too small for a digit.
    """

    def __init__(
        self, train: bool = True, size: int = 2000, image_size: int = 28, transform: Change | None = None,
        target_transform: Change | None = None,
    ):  # fmt: skip
        super().__init__(transform=transform, target_transform=target_transform)
        if image_size < 12:
            raise ValueError(f"SyntheticDigits: image_size is {image_size}; expected at least 12.")
        self.train = train
        generator = Generator().manual_seed(1 if train else 2)
        targets = generator.integers(0, 10, (size,))
        unit = iter(generator.uniform((6, size, 1, 1), np.float32) * 2 - 1)  # each in [-1, 1)
        height = image_size * (0.65 + 0.1 * next(unit))  # in pixels
        width = height * (0.65 + 0.1 * next(unit))
        top = (image_size - height) * (0.5 + 0.4 * next(unit))
        left = (image_size - width) * (0.5 + 0.4 * next(unit))
        slant = 0.15 * next(unit)
        y, x = np.mgrid[:image_size, :image_size].astype(np.float32) + 0.5
        v = (y - top) / height  # where in its glyph a pixel lies, 0 … 1
        u = (x - left) / width + slant * (v - 0.5)
        row, column = np.floor(v * 7).astype(int), np.floor(u * 5).astype(int)
        inside = (row >= 0) & (row < 7) & (column >= 0) & (column < 5)
        ink = _glyphs()[targets[:, None, None], row.clip(0, 6), column.clip(0, 4)] * inside
        noise = generator.normal(ink.shape, np.float32, 0.0, 0.1)
        strength = 0.8 + 0.2 * next(unit)
        self._hold(np.rint((ink * strength + noise).clip(0, 1) * 255), targets)
