"""Transforms made of transforms, and what all of them are: modules of a picture.

Whatever is random is drawn from the library's CPU generator, in torchvision's order: equal seeds give its crops, flips
and colours (`RandomChoice` and `RandomOrder` draw from Python's generator there, and differ).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...nn import Module
from ...ops.creation import tensor
from ...ops.random import default_generator, multinomial, rand, randint, randperm


def _plain(value):
    return getattr(value, "value", value)  # an InterpolationMode's


class Transform(Module):
    """A module of one picture, which keeps its arguments as attributes.

    It gives `function(picture, *arguments)`, unless it has a `forward` of its own. `print` shows the arguments that are
    not `hidden`.
    """

    function: Callable[..., Any]
    hidden: tuple[str, ...] = ()

    def __init__(self, **arguments: Any):
        super().__init__()
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, img: Any) -> Any:
        return self.function(img, *(getattr(self, name) for name in self._arguments))

    def __repr__(self):
        shown = {name: getattr(self, name) for name in self._arguments if name not in self.hidden}
        return f"{type(self).__name__}({', '.join(f'{k}={_plain(v)}' for k, v in shown.items())})"


class RandomTransform(Transform):
    """A transform that is done with probability p, and else leaves the picture as it is."""

    def __init__(self, p: float = 0.5, **arguments: Any):
        check_probability(p, type(self).__name__)
        super().__init__(p=p, **arguments)

    def forward(self, img: Any) -> Any:
        return self.function(img) if chance(self.p) else img


def chance(p):
    """True with probability p."""
    return float(rand(1, device="cpu")[0]) < p


def uniform(low, high):
    """A number drawn uniformly from [low, high), in the precision that torchvision draws it in."""
    return float(default_generator.uniform((1,), np.float32, low, high)[0])


def whole(high):
    """An int drawn uniformly from 0 … high - 1."""
    return int(randint(0, high, (1,), device="cpu")[0])


def check_probability(p, name):
    """Raise unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: p is {p!r}; expected a probability, from 0 to 1.")


class Compose(Transform):
    """Several transforms, one after the other.

    Example:
        >>> T = mytorch.vision.transforms
        >>> change = T.Compose([T.ToTensor(), T.Normalize([0.5], [0.5])])
        >>> change(np.array([[0, 255]], np.uint8)).tolist()
        [[[-1.0, 1.0]]]
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], **arguments: Any):
        super().__init__(transforms=transforms, **arguments)

    def forward(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self):
        return "\n".join([f"{type(self).__name__}(", *(f"    {t}" for t in self.transforms), ")"])


class Lambda(Transform):
    """Any function of a picture.

    Raises:
        TypeError: it can't be called.
    """

    hidden = ("lambd",)

    def __init__(self, lambd: Callable[[Any], Any]):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        super().__init__(lambd=lambd)

    def forward(self, img: Any) -> Any:
        return self.lambd(img)


class RandomApply(Compose):
    """All of the transforms with probability p, else none."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5):
        check_probability(p, "RandomApply")
        super().__init__(transforms, p=p)

    def forward(self, img: Any) -> Any:
        return img if self.p < float(rand(1, device="cpu")[0]) else super().forward(img)

    def __repr__(self):
        return "\n".join(["RandomApply(", f"    p={self.p}", *(f"    {t}" for t in self.transforms), ")"])


class RandomChoice(Compose):
    """One of the transforms, drawn with equal probability or with weights p.

    Raises:
        TypeError: p is no sequence.
        ValueError: not one weight for each transform.
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None):
        if p is not None and not isinstance(p, Sequence):
            raise TypeError(f"Argument p should be a sequence, got {type(p).__name__}")
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"RandomChoice: {len(p)} weights for {len(transforms)} transforms.")
        super().__init__(transforms, p=p)

    def forward(self, img: Any) -> Any:
        if self.p is None:
            return self.transforms[whole(len(self.transforms))](img)
        weights = tensor([float(w) for w in self.p], device="cpu")
        return self.transforms[int(multinomial(weights, 1)[0])](img)


class RandomOrder(Compose):
    """All of the transforms, in random order."""

    def forward(self, img: Any) -> Any:
        for i in randperm(len(self.transforms), device="cpu").tolist():
            img = self.transforms[i](img)
        return img
