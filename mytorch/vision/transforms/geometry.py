"""Geometric transforms: sizes, crops and flips."""

import math
from collections.abc import Sequence
from typing import Any

from . import functional as F
from .compose import RandomTransform, Transform, uniform, whole
from .functional import Colour, InterpolationMode, Sizes


class Resize(Transform):
    """Resizes an image; see `functional.resize`.

    Args:
        size: (height, width), or the length of the shorter side.
        interpolation: an InterpolationMode.
        max_size: maximum length of the longer side.
        antialias: smooth when shrinking.
    """

    function = staticmethod(F.resize)

    def __init__(
        self, size: Sizes, interpolation: InterpolationMode = InterpolationMode.BILINEAR, max_size: int | None = None,
        antialias: bool = True,
    ):  # fmt: skip
        super().__init__(size=size, interpolation=interpolation, max_size=max_size, antialias=antialias)


class CenterCrop(Transform):
    """Crops the center of an image.

    Args:
        size: (height, width), or one number for both.
    """

    function = staticmethod(F.center_crop)

    def __init__(self, size: Sizes):
        super().__init__(size=F._pair(size))


class Pad(Transform):
    """Adds borders to an image; see `functional.pad`.

    Args:
        padding: one number for all borders, (left/right, top/bottom), or (left, top, right, bottom).
        fill: value of a constant border.
        padding_mode: "constant", "edge", "reflect" or "symmetric".
    """

    function = staticmethod(F.pad)

    def __init__(self, padding: Sizes, fill: Colour = 0, padding_mode: str = "constant"):
        F._borders(padding)
        super().__init__(padding=padding, fill=fill, padding_mode=padding_mode)


class RandomCrop(Transform):
    """Crops an image at a random position.

    Args:
        size: (height, width), or one number for both.
        padding: borders to add first; see `functional.pad`.
        pad_if_needed: add borders if the image is too small.
        fill: value of the borders.
        padding_mode: type of the borders; see `functional.pad`.

    Raises:
        ValueError: if the image is too small.
    """

    hidden = ("pad_if_needed", "fill", "padding_mode")

    def __init__(
        self, size: Sizes, padding: Sizes | None = None, pad_if_needed: bool = False, fill: Colour = 0,
        padding_mode: str = "constant",
    ):  # fmt: skip
        options = {"pad_if_needed": pad_if_needed, "fill": fill, "padding_mode": padding_mode}
        super().__init__(size=F._pair(size), padding=padding, **options)

    @staticmethod
    def get_params(img: Any, output_size: Sequence[int]) -> tuple[int, int, int, int]:
        """Returns a random (top, left, height, width).

        Args:
            output_size: (height, width).
        """
        _, h, w = F.get_dimensions(img)
        th, tw = output_size
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size {(h, w)}")
        if (h, w) == (th, tw):
            return 0, 0, h, w
        return whole(h - th + 1), whole(w - tw + 1), th, tw

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(Transform):
    """Crops a random area with a random aspect ratio, and resizes it.

    Args:
        size: (height, width) of the result, or one number for both.
        scale: minimum and maximum fraction of the area.
        ratio: minimum and maximum width / height.
        interpolation: see `functional.resize`.
        antialias: see `functional.resize`.

    Source: Szegedy et al., 2015.
    """

    def __init__(
        self, size: Sizes, scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR, antialias: bool = True,
    ):  # fmt: skip
        if scale[0] > scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise ValueError(
                f"RandomResizedCrop: expected (minimum, maximum) for scale and ratio, got {scale} and {ratio}."
            )
        size = F._pair(size)
        super().__init__(size=size, scale=scale, ratio=ratio, interpolation=interpolation, antialias=antialias)

    @staticmethod
    def get_params(img: Any, scale: tuple[float, float], ratio: tuple[float, float]) -> tuple[int, int, int, int]:
        """Returns a random (top, left, height, width); the largest central crop if ten attempts fail.

        Args:
            img: image (…, H, W).
            scale: (minimum, maximum) fraction of the area.
            ratio: (minimum, maximum) width / height.
        """
        _, height, width = F.get_dimensions(img)
        for _ in range(10):
            area = height * width * uniform(*scale)
            shape = math.exp(uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                return whole(height - h + 1), whole(width - w + 1), h, w
        w, h = width, height
        if width / height < min(ratio):
            h = round(width / min(ratio))
        elif width / height > max(ratio):
            w = round(height * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)


class RandomHorizontalFlip(RandomTransform):
    """Flips an image horizontally with probability p.

    Args:
        p: probability.
    """

    function = staticmethod(F.hflip)


class RandomVerticalFlip(RandomTransform):
    """Flips an image vertically with probability p.

    Args:
        p: probability.
    """

    function = staticmethod(F.vflip)
