"""Color transforms."""

import numbers
from typing import Any

from ...ops.random import randperm
from . import functional as F
from .compose import RandomTransform, Transform, uniform

Factors = float | tuple[float, float]


def _range(value, name, centre=1.0, least=0.0, most=float("inf")):
    """Return the range (low, high) of a factor: from a pair, or from a distance to the center; None if nothing changes."""
    if isinstance(value, numbers.Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        low, high = max(centre - value, least), centre + value
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = map(float, value)
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not least <= low <= high <= most:
        raise ValueError(f"{name} values should be between {least} and {most}, but got {(low, high)}.")
    return None if low == high == centre else (float(low), float(high))


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Args:
        brightness: x for factors in [max(0, 1 - x), 1 + x], or a pair (lowest, highest).
        contrast: x or a pair, as for brightness.
        saturation: x or a pair, as for brightness.
        hue: x for shifts in [-x, x], or a pair, within [-0.5, 0.5].

    Raises:
        TypeError: if an argument is neither a number nor a pair.
        ValueError: if a value is out of range.
    """

    def __init__(self, brightness: Factors = 0, contrast: Factors = 0, saturation: Factors = 0, hue: Factors = 0):
        if isinstance(hue, numbers.Number) and hue > 0.5:
            raise ValueError(f"hue values should be between -0.5 and 0.5, but got {hue}.")
        super().__init__(
            brightness=_range(brightness, "brightness"),
            contrast=_range(contrast, "contrast"),
            saturation=_range(saturation, "saturation"),
            hue=_range(hue, "hue", centre=0.0, least=-0.5, most=0.5),
        )

    @staticmethod
    def get_params(brightness, contrast, saturation, hue):
        """Returns (order, brightness, contrast, saturation, hue): a permutation of 0 … 3, and a factor or None for each.

        Args:
            brightness: (lowest, highest) factor, or None.
            contrast: (lowest, highest) factor, or None.
            saturation: (lowest, highest) factor, or None.
            hue: (lowest, highest) shift, or None.
        """
        order = randperm(4, device="cpu")
        return order, *(None if r is None else uniform(*r) for r in (brightness, contrast, saturation, hue))

    def forward(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        changes = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order.tolist():
            img = changes[i](img, factors[i]) if factors[i] is not None else img
        return img


class Grayscale(Transform):
    """Converts an image to grayscale.

    Args:
        num_output_channels: 1, or 3 for three equal channels.
    """

    function = staticmethod(F.rgb_to_grayscale)

    def __init__(self, num_output_channels: int = 1):
        super().__init__(num_output_channels=num_output_channels)


class RandomGrayscale(RandomTransform):
    """Converts an image to grayscale with probability p; the number of channels does not change.

    Args:
        p: probability.
    """

    def __init__(self, p: float = 0.1):
        super().__init__(p)

    def function(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img))
