"""torchvision's transforms v2: transforms of samples, which are images in nested tuples, lists and dicts.

An image is a tensor of at least three axes, an array, or a PIL image. Labels and other values are returned unchanged.
Random numbers are drawn once per sample, so all images of a sample get the same transform.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...._tensor import Tensor
from ....nn import Module
from ....ops.random import positions, set_positions
from ... import transforms as _first
from ..augment import AutoAugmentPolicy
from ..images import is_pil
from . import functional
from .functional import InterpolationMode


def _is_picture(x):
    return is_pil(x) or (isinstance(x, Tensor) and x.ndim >= 3)


class Transform(Module):
    """Base class of transforms of samples: applies `transform` to every image in its input."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Transforms one image.

        Args:
            inpt: the image.
            params: random numbers of the sample.
        """
        raise NotImplementedError(f"{type(self).__name__}.transform")

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draws the random numbers of a sample.

        Args:
            flat_inputs: all values of the sample.
        """
        return {}

    def takes(self, x: Any) -> bool:
        """Returns True for a value to transform.

        Args:
            x: a value of the sample.
        """
        return _is_picture(x)

    def forward(self, *inputs: Any) -> Any:
        sample = inputs[0] if len(inputs) == 1 else inputs
        leaves: list[Any] = []
        _each(sample, leaves.append)
        params = self.make_params(leaves)
        return _each(sample, lambda x: self.transform(x, params) if self.takes(x) else x)


def _each(sample, change):
    if isinstance(sample, dict):
        return {k: _each(v, change) for k, v in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*[_each(v, change) for v in sample])
    if isinstance(sample, (list, tuple)):
        return type(sample)([_each(v, change) for v in sample])
    return change(sample)


class _OfFirst(Transform):
    """A v1 transform for samples; all images of a sample use the same random numbers."""

    kind: type

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        self.one = self.kind(*args, **kwargs)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("one"), name)

    def make_params(self, flat_inputs):
        return {"state": positions(), "done": False}

    def transform(self, inpt, params):
        if params["done"]:
            set_positions(params["state"])
        params["done"] = True
        return self.one(inpt)

    def __repr__(self):
        return repr(self.one)


_WORDS = (
    "CenterCrop ColorJitter Grayscale Normalize Pad RandomCrop RandomErasing RandomGrayscale RandomHorizontalFlip RandomResizedCrop "
    "AugMix AutoAugment ElasticTransform FiveCrop GaussianBlur RandAugment RandomAdjustSharpness RandomAffine RandomAutocontrast "
    "RandomEqualize RandomInvert RandomPerspective RandomPosterize RandomSolarize TenCrop TrivialAugmentWide "
    "RandomRotation RandomVerticalFlip Resize PILToTensor ToPILImage ToTensor ConvertImageDtype"
).split()
for _word in _WORDS:
    _kind = getattr(_first, _word)
    globals()[_word] = type(_word, (_OfFirst,), {"kind": _kind, "__doc__": _kind.__doc__, "__module__": __name__})


class Compose(Transform):
    """Applies several transforms in sequence.

    Args:
        transforms: functions of a sample.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]):
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        sample = inputs if len(inputs) > 1 else inputs[0]
        for transform in self.transforms:
            sample = transform(*sample) if len(inputs) > 1 else transform(sample)
        return sample


class ToImage(Transform):
    """Converts PIL images and arrays to tensors (C, H, W) of the same dtype."""

    def takes(self, x: Any) -> bool:
        return _is_picture(x) or type(x).__module__ == "numpy"

    def transform(self, inpt, params):
        return functional.to_image(inpt)


class ToDtype(Transform):
    """Converts images to another dtype.

    Args:
        dtype: the dtype, or a dict {class: dtype}. The entry of Tensor is used.
        scale: scale the values to the range of the dtype.
    """

    def __init__(self, dtype: Any, scale: bool = False):
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def transform(self, inpt, params):
        dtype = self.dtype
        if isinstance(dtype, dict):
            dtype = dtype.get(Tensor, dtype.get("others"))
        return inpt if dtype is None else functional.to_dtype(inpt, dtype, self.scale)


class RGB(Transform):
    """Converts grayscale images to three channels."""

    def transform(self, inpt, params):
        return functional.grayscale_to_rgb(inpt)


class Identity(Transform):
    """Returns samples unchanged."""

    def transform(self, inpt, params):
        return inpt


class ToPureTensor(Identity):
    """Returns samples unchanged, because all tensors are plain tensors."""


class Lambda(Transform):
    """Applies a function to each value of a sample.

    Args:
        lambd: the function.
        *types: classes of the values to transform (default: all).
    """

    def __init__(self, lambd: Callable[..., Any], *types: type):
        super().__init__()
        self.lambd, self.types = lambd, types or (object,)

    def takes(self, x: Any) -> bool:
        return isinstance(x, self.types)

    def transform(self, inpt, params):
        return self.lambd(inpt)


class RandomApply(Compose):
    """Applies all transforms with probability p, and none otherwise.

    Args:
        transforms: functions of a sample.
        p: probability.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: float = 0.5):
        super().__init__(transforms)
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        if _first.compose.chance(self.p):
            return super().forward(*inputs)
        return inputs if len(inputs) > 1 else inputs[0]


__all__ = [
    *_WORDS, "AutoAugmentPolicy", "Compose", "Identity", "InterpolationMode", "Lambda", "RGB", "RandomApply", "ToDtype", "ToImage",
    "ToPureTensor", "Transform", "functional",
]  # fmt: skip
