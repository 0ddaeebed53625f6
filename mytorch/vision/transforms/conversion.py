"""Conversions between PIL images, arrays and tensors, and transforms of values: scaling, normalization, erasing."""

import math
from collections.abc import Iterable, Sequence

from ..._tensor import Tensor
from ...base import dtypes
from ...ops.creation import as_tensor
from ...ops.movement import reshape
from ...ops.random import randn
from . import functional as F
from .compose import RandomTransform, Transform, chance, uniform, whole


class ToTensor(Transform):
    """Converts a PIL image or an array (H, W, C) or (H, W) to a tensor (C, H, W).

    uint8 values become floats from 0 to 1.

    A number becomes a 0-d tensor, so the transform is also useful as `target_transform`.

    Example:
        >>> x = mytorch.vision.transforms.ToTensor()(np.array([[0, 51, 255]], np.uint8))
        >>> x.shape, round(x[0, 0, 1].item(), 4)
        (mytorch.Size([1, 1, 3]), 0.2)
    """

    function = staticmethod(F.to_tensor)


class PILToTensor(Transform):
    """Converts a PIL image to a tensor (C, H, W) without scaling."""

    function = staticmethod(F.pil_to_tensor)


class ToPILImage(Transform):
    """Converts a tensor (C, H, W) or an array (H, W, C) to a PIL image; see `functional.to_pil_image`.

    Args:
        mode: Pillow's mode, such as "RGB" (default: from the number of channels).
    """

    function = staticmethod(F.to_pil_image)

    def __init__(self, mode: str | None = None):
        super().__init__(mode=mode)


class ConvertImageDtype(Transform):
    """Converts an image to another dtype and scales the values to its range.

    Args:
        dtype: the dtype.
    """

    function = staticmethod(F.convert_image_dtype)

    def __init__(self, dtype: dtypes.dtype):
        super().__init__(dtype=dtypes.as_dtype(dtype))


class Normalize(Transform):
    """Computes (image - mean) / std for each channel.

    Args:
        mean: mean of each channel.
        std: standard deviation of each channel.
        inplace: overwrite the image.

    Example:
        >>> mytorch.vision.transforms.Normalize([1.0, 2.0], [2.0, 4.0])(mytorch.ones(2, 1, 1)).tolist()
        [[[0.0]], [[-0.25]]]
    """

    function = staticmethod(F.normalize)
    hidden = ("inplace",)

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False):
        super().__init__(mean=mean, std=std, inplace=inplace)


class Reshape(Transform):
    """Reshapes a tensor.

    Args:
        shape: the new shape.
    """

    function = staticmethod(reshape)

    def __init__(self, shape: Iterable[int]):
        super().__init__(shape=tuple(shape))


class RandomErasing(RandomTransform):
    """Erases a random rectangle of a tensor with probability p.

    Args:
        p: probability.
        scale: minimum and maximum fraction of the area.
        ratio: minimum and maximum height / width.
        value: value of the rectangle: a number, one number per channel, or "random" for normal noise.
        inplace: overwrite the image.

    Raises:
        ValueError: if an argument is out of range.

    Source: Zhong et al., 2017.
    """

    def __init__(
        self, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33), ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0, inplace: bool = False,
    ):  # fmt: skip
        super().__init__(p, scale=scale, ratio=ratio, value=value, inplace=inplace)
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError(f"RandomErasing: expected scale to be (minimum, maximum) between 0 and 1, got {scale}.")
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomErasing: expected ratio to be (minimum, maximum) above 0, got {ratio}.")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")

    def get_params(self, img: Tensor) -> tuple[int, int, int, int, Tensor] | None:
        """Returns (top, left, height, width, replacement), or None if no rectangle fits after ten attempts.

        Args:
            img: image (…, C, H, W).
        """
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

    def forward(self, img: Tensor) -> Tensor:
        if not isinstance(img, Tensor) or img.ndim < 3:
            raise TypeError(f"RandomErasing: expected a tensor (…, C, H, W), got {type(img)}.")
        found = self.get_params(img) if chance(self.p) else None
        return img if found is None else F.erase(img, *found[:4], found[4].to(img.device), self.inplace)
