"""Transforms made of transforms, and what all of them are: modules of a picture.

Whatever is random is drawn from the library's CPU generator, in torchvision's order: equal seeds give its crops, flips
and colours (`RandomChoice` and `RandomOrder` draw from Python's generator there, and differ).
"""

from collections.abc import Sequence

import numpy as np

from ...nn import Module
from ...ops.creation import tensor
from ...ops.random import default_generator, multinomial, rand, randint, randperm


class Transform(Module):
    """A module of one picture; `shown` names the attributes that `print` shows."""

    shown = ()

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={self._shown(name)}' for name in self.shown)})"

    def _shown(self, name):
        value = getattr(self, name)
        return value.value if hasattr(value, "value") else value  # an InterpolationMode's


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
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        super().__init__()
        self.transforms = transforms

    def forward(self, img):
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

    def __init__(self, lambd):
        super().__init__()
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def forward(self, img):
        return self.lambd(img)


class RandomApply(Compose):
    """All of the transforms with probability p, else none."""

    def __init__(self, transforms, p=0.5):
        super().__init__(transforms)
        check_probability(p, "RandomApply")
        self.p = p

    def forward(self, img):
        return img if self.p < float(rand(1, device="cpu")[0]) else super().forward(img)

    def __repr__(self):
        return "\n".join(["RandomApply(", f"    p={self.p}", *(f"    {t}" for t in self.transforms), ")"])


class RandomChoice(Compose):
    """One of the transforms, drawn with equal probability or with weights p.

    Raises:
        TypeError: p is no sequence.
        ValueError: not one weight for each transform.
    """

    def __init__(self, transforms, p=None):
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError(f"Argument p should be a sequence, got {type(p).__name__}")
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"RandomChoice: {len(p)} weights for {len(transforms)} transforms.")
        self.p = p

    def forward(self, img):
        if self.p is None:
            return self.transforms[whole(len(self.transforms))](img)
        weights = tensor([float(w) for w in self.p], device="cpu")
        return self.transforms[int(multinomial(weights, 1)[0])](img)


class RandomOrder(Compose):
    """All of the transforms, in random order."""

    def forward(self, img):
        for i in randperm(len(self.transforms), device="cpu").tolist():
            img = self.transforms[i](img)
        return img
