"""Transforms that move pixels: sizes, crops, flips, rotations."""

import math
import numbers

from . import functional as F
from .compose import Transform, chance, check_probability, uniform, whole
from .functional import InterpolationMode


class Resize(Transform):
    """A picture in another size; the arguments are those of `functional.resize`."""

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
        super().__init__()
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias

    def forward(self, img):
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle of a picture: a square of side `size`, or (height, width)."""

    shown = ("size",)

    def __init__(self, size):
        super().__init__()
        self.size = F._pair(size)

    def forward(self, img):
        return F.center_crop(img, self.size)


class Pad(Transform):
    """A picture with borders; the arguments are those of `functional.pad`."""

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding, fill=0, padding_mode="constant"):
        super().__init__()
        F._borders(padding)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img):
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Transform):
    """A part of the given size from anywhere.

    Args:
        size: the side of a square, or (height, width).
        padding: borders that are added first; see `functional.pad` for them, `fill` and `padding_mode`.
        pad_if_needed: add borders where the picture is too small.

    Raises:
        ValueError: the picture is too small.
    """

    shown = ("size", "padding")

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        super().__init__()
        self.size = F._pair(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img, output_size):
        """(top, left, height, width) of the part."""
        _, h, w = F.get_dimensions(img)
        th, tw = output_size
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size {(h, w)}")
        if (h, w) == (th, tw):
            return 0, 0, h, w
        return whole(h - th + 1), whole(w - tw + 1), th, tw

    def forward(self, img):
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(Transform):
    """A part of random size and shape from anywhere, brought to one size.

    Args:
        size: the side of a square, or (height, width).
        scale: the least and the greatest share of the area.
        ratio: the least and the greatest width / height.
        interpolation, antialias: as in `functional.resize`.

    Source: Szegedy et al., 2015.
    """

    shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(
        self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation=InterpolationMode.BILINEAR, antialias=True
    ):
        super().__init__()
        self.size = F._pair(size)
        if scale[0] > scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomResizedCrop: scale is {scale} and ratio {ratio}; expected (least, greatest).")
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation
        self.antialias = antialias

    @staticmethod
    def get_params(img, scale, ratio):
        """(top, left, height, width) of the part; the middle, as large as can be, if ten draws did not fit."""
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

    def forward(self, img):
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)


class RandomHorizontalFlip(Transform):
    """Left and right exchanged with probability p."""

    shown = ("p",)

    def __init__(self, p=0.5):
        super().__init__()
        check_probability(p, type(self).__name__)
        self.p = p

    def forward(self, img):
        return F.hflip(img) if chance(self.p) else img


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom exchanged with probability p."""

    def forward(self, img):
        return F.vflip(img) if chance(self.p) else img


class RandomRotation(Transform):
    """A picture turned by a random angle.

    Args:
        degrees: the least and the greatest angle, or a number d for (-d, d).
        interpolation, expand, center, fill: as in `functional.rotate`.

    Raises:
        ValueError: a negative number, or not two.
    """

    shown = ("degrees", "interpolation", "expand", "center", "fill")

    def __init__(self, degrees, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=0):
        super().__init__()
        if isinstance(degrees, numbers.Number):
            if degrees < 0:
                raise ValueError("If degrees is a single number, it must be positive.")
            degrees = (-degrees, degrees)
        if len(degrees) != 2:
            raise ValueError("degrees should be a sequence of length 2.")
        self.degrees = [float(d) for d in degrees]
        self.interpolation = interpolation
        self.expand = expand
        self.center = center
        self.fill = fill

    @staticmethod
    def get_params(degrees):
        """The angle."""
        return uniform(degrees[0], degrees[1])

    def forward(self, img):
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)
