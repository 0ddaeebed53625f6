"""Conversions between PIL images, arrays and tensors, and transforms of values: scaling and normalization."""

from collections.abc import Iterable, Sequence

from ...arrays import dtypes
from ...ops.movement import reshape
from . import functional as F
from .compose import Transform


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
    """Converts an image to another dtype and scales the values to its range."""

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
