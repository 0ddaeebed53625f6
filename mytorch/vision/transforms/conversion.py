"""Transforms between kinds of pictures, and of their numbers."""

import math

from ...base import dtypes
from ...ops.creation import as_tensor
from ...ops.random import randn
from ...tensor import Tensor
from . import functional as F
from .compose import Transform, chance, check_probability, uniform, whole


class ToTensor(Transform):
    """A PIL image or an array (H, W) or (H, W, C) as a tensor (C, H, W), uint8 as floats from 0 to 1.

    A number becomes a 0-d tensor, so that it serves as `target_transform` too.
    """

    def forward(self, pic):
        return F.to_tensor(pic)


class PILToTensor(Transform):
    """A PIL image as a tensor (C, H, W), its numbers unchanged."""

    def forward(self, pic):
        return F.pil_to_tensor(pic)


class ToPILImage(Transform):
    """A tensor (C, H, W) or an array (H, W, C) as a PIL image; see `functional.to_pil_image`."""

    shown = ("mode",)

    def __init__(self, mode=None):
        super().__init__()
        self.mode = mode

    def forward(self, pic):
        return F.to_pil_image(pic, self.mode)


class ConvertImageDtype(Transform):
    """A picture in another dtype, its numbers brought to that dtype's range."""

    shown = ("dtype",)

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtypes.as_dtype(dtype)

    def forward(self, image):
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Transform):
    """(picture - mean) / std, with a number for each channel."""

    shown = ("mean", "std")

    def __init__(self, mean, std, inplace=False):
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, tensor):
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class Reshape(Transform):
    """A tensor in another shape."""

    shown = ("shape",)

    def __init__(self, shape):
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, tensor):
        return tensor.reshape(self.shape)


class RandomErasing(Transform):
    """A rectangle of a tensor replaced, with probability p.

    Args:
        scale: the least and the most share of the area.
        ratio: the least and the greatest height / width.
        value: a number, one for each channel, or "random" for normal noise.
        inplace: change the picture itself.

    Raises:
        ValueError: ranges, a probability or a value that make no sense.

    Source: Zhong et al., 2017.
    """

    shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False):
        super().__init__()
        check_probability(p, "RandomErasing")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError(f"RandomErasing: scale is {scale}; expected (least, most) between 0 and 1.")
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomErasing: ratio is {ratio}; expected (least, greatest) above 0.")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    def get_params(self, img):
        """(top, left, height, width, replacement), or None if ten draws did not fit."""
        channels, height, width = img.shape[-3:]
        values = self.value if isinstance(self.value, (list, tuple)) else [self.value]
        if len(values) not in (1, channels):
            raise ValueError(
                f"If value is a sequence, it should have either a single value or {channels} (number of input channels)"
            )
        for _ in range(10):
            area = height * width * uniform(*self.scale)
            ratio = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < height and w < width:
                if self.value == "random":
                    value = randn(channels, h, w, dtype=img.dtype, device="cpu")
                else:
                    value = as_tensor(values, dtype=img.dtype, device="cpu").reshape(-1, 1, 1)
                return whole(height - h + 1), whole(width - w + 1), h, w, value
        return None

    def forward(self, img):
        if not isinstance(img, Tensor) or img.ndim < 3:
            raise TypeError(f"RandomErasing: expected a tensor (…, C, H, W), got {type(img)}.")
        found = self.get_params(img) if chance(self.p) else None
        return img if found is None else F.erase(img, *found[:4], found[4].to(img.device), self.inplace)
