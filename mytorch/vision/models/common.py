"""What the models share."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ...serialization import load

Model = TypeVar("Model", bound=Module)


def with_weights(model: Model, weights: Any) -> Model:
    """The model, with the state dict of a file if a path is given.

    Raises:
        ValueError: the name of weights that torchvision would download.
    """
    if weights is None:
        return model
    if not isinstance(weights, (str, os.PathLike)) or not os.path.exists(weights):
        raise ValueError(f"weights={weights!r}: nothing is downloaded here; give the path of a state dict, or None.")
    model.load_state_dict(load(weights))
    return model


def variant(name: str, text: str, kind: type[Model], build: Callable[..., Model]) -> Callable[..., Model]:
    """The function of a name that makes a network, a `kind`, by `build(**kwargs)`; its docstring begins with text."""

    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> Model:
        return with_weights(build(**kwargs), weights)

    make.__name__ = make.__qualname__ = name
    make.__module__, make.__annotations__["return"] = kind.__module__, kind
    make.__doc__ = f"""{text}

    Args:
        weights: the path of a state dict, or None.
        progress: accepted.
        kwargs: as for `{kind.__name__}`.
    """
    return make


class Classifier(Module):
    """Pictures' features, their mean at a few places, and a classifier of that."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, num_classes) of pictures (N, 3, H, W)."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def drawn(model: Module, linear: Callable[[Any], Any]) -> None:
    """Draw a model's weights as torchvision does for its mobile networks: convolutions by their fan-out, `linear` for linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            linear(module)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
