"""Base classes of the transforms, and transforms that combine others.

Random numbers come from the library's CPU generator in torchvision's order. Equal seeds therefore give the same crops and
flips.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...nn import Module
from ...ops.random import default_generator, rand, randint


def _plain(value):
    return getattr(value, "value", value)  # of an InterpolationMode


class Transform(Module):
    """Base class of a transform of one image, which stores its arguments as attributes.

    It returns `function(image, *arguments)`, unless a subclass defines `forward`. `print` displays the arguments that are
    not in `hidden`.
    """

    function: Callable[..., Any]
    hidden: tuple[str, ...] = ()

    def __init__(self, **arguments: Any):
        super().__init__()
        cls: Any = type(self)
        if unknown := [name for name in arguments if name not in _declared(cls)]:
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {unknown[0]!r}")
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, img: Any) -> Any:
        return self.function(img, *(getattr(self, name) for name in self._arguments))

    def __repr__(self):
        shown = {name: getattr(self, name) for name in self._arguments if name not in self.hidden}
        return f"{type(self).__name__}({', '.join(f'{k}={_plain(v)}' for k, v in shown.items())})"


@functools.cache
def _declared(transform: Any) -> set[str]:
    """Returns the names of the arguments that the constructors of a class and of its base classes declare."""
    return {name for cls in transform.__mro__ for name in inspect.signature(cls.__init__).parameters}


class RandomTransform(Transform):
    """A transform that is applied with probability p, and otherwise returns the image."""

    def __init__(self, p: float = 0.5, **arguments: Any):
        check_probability(p, type(self).__name__)
        super().__init__(p=p, **arguments)

    def forward(self, img: Any) -> Any:
        return self.function(img) if chance(self.p) else img


def chance(p):
    """Return True with probability p."""
    return float(rand(1, device="cpu")[0]) < p


def uniform(low, high):
    """Draw a number uniformly from [low, high), in torchvision's precision."""
    return float(default_generator.uniform((1,), np.float32, low, high)[0])


def whole(high):
    """Draw an int uniformly from 0 … high - 1."""
    return int(randint(0, high, (1,), device="cpu")[0])


def check_probability(p, name):
    """Raise an error unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: expected p to be a probability from 0 to 1, got {p!r}.")


class Compose(Transform):
    """Applies several transforms in sequence.
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
    """Applies a function to an image.

    Args:
        lambd: the function.

    Raises:
        TypeError: if lambd is not callable.
    """

    hidden = ("lambd",)

    def __init__(self, lambd: Callable[[Any], Any]):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        super().__init__(lambd=lambd)

    def forward(self, img: Any) -> Any:
        return self.lambd(img)
