"""Digits that require no download: scikit-learn's handwritten digits, and synthetic digits."""

import numpy as np

from ...arrays.errors import needed
from ...ops.random import Generator
from .base import Change, SplitInMemory


class _Digits(SplitInMemory):
    classes = [str(i) for i in range(10)]


class Digits(_Digits):
    """Handwritten 8 x 8 digits from scikit-learn: 1,437 for training, and every fifth, 360 in total, for testing.

    Args:
        train: if True, use the training set, otherwise the test set.
        transform: function of the image.
        target_transform: function of the target.

    Attributes:
        data: uint8 tensor (N, 8, 8), scaled from 0 … 16 to 0 … 255.
        targets: int64 tensor (N,).

    Items are (image, int), as in `MNIST`.

    Raises:
        ImportError: if scikit-learn is not installed.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """

    def __init__(self, train: bool = True, transform: Change | None = None, target_transform: Change | None = None):
        super().__init__(transform=transform, target_transform=target_transform)
        why = "Digits requires scikit-learn. Run `pip install scikit-learn`, or use SyntheticDigits."
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
    """Return the ten digits as 0 and 1, (10, 7, 5)."""
    rows = [[[pixel == "#" for pixel in glyph] for glyph in line.split()] for line in _FONT.split("\n") if line]
    return np.array(rows, np.float32).transpose(1, 0, 2)


class SyntheticDigits(_Digits):
    """Synthetic digits in a 5 x 7 font with random slant, size, position and noise, which require no file.

    They are easier to classify than handwriting, and useful for testing a program.

    Args:
        train: if True, use the training set, otherwise the test set, drawn with other random numbers.
        size: number of images.
        image_size: height and width of an image in pixels, at least 12.
        transform: function of the image.
        target_transform: function of the target.

    Attributes:
        data: uint8 tensor (size, image_size, image_size).
        targets: int64 tensor (size,).

    Items are (image, int), as in `MNIST`. Equal arguments give equal images.

    Raises:
        ValueError: if image_size is less than 12.

    Example:
        >>> images = mytorch.vision.datasets.SyntheticDigits(size=10)
        >>> len(images), images.data.shape
        (10, mytorch.Size([10, 28, 28]))
    """

    def __init__(
        self, train: bool = True, size: int = 2000, image_size: int = 28, transform: Change | None = None,
        target_transform: Change | None = None,
    ):  # fmt: skip
        super().__init__(transform=transform, target_transform=target_transform)
        if image_size < 12:
            raise ValueError(f"SyntheticDigits: expected image_size to be at least 12, got {image_size}.")
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
        v = (y - top) / height  # vertical position in the glyph, from 0 to 1
        u = (x - left) / width + slant * (v - 0.5)
        row, column = np.floor(v * 7).astype(int), np.floor(u * 5).astype(int)
        inside = (row >= 0) & (row < 7) & (column >= 0) & (column < 5)
        ink = _glyphs()[targets[:, None, None], row.clip(0, 6), column.clip(0, 4)] * inside
        noise = generator.normal(ink.shape, np.float32, 0.0, 0.1)
        strength = 0.8 + 0.2 * next(unit)
        self._hold(np.rint((ink * strength + noise).clip(0, 1) * 255), targets)
