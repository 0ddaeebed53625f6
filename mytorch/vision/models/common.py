"""Functions and classes shared by the models."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ...ops.creation import as_tensor
from ...serialization import load

Model = TypeVar("Model", bound=Module)


def with_weights(model: Model, weights: Any) -> Model:
    """Load the state dict of a file into the model, if `weights` is a path.

    Raises:
        ValueError: if `weights` is the name of weights to download.
    """
    if weights is None:
        return model
    if not isinstance(weights, (str, os.PathLike)) or not os.path.exists(weights):
        raise ValueError(
            f"weights: expected the path of a state dict or None, got {weights!r}. Weights are not downloaded."
        )
    model.load_state_dict(load(weights))
    return model


def variant(name: str, text: str, kind: type[Model], build: Callable[..., Model]) -> Callable[..., Model]:
    """Return a function with the given name that builds a network; `text` is the first line of its docstring."""

    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> Model:
        return with_weights(build(**kwargs), weights)

    make.__name__ = make.__qualname__ = name
    make.__module__, make.__annotations__["return"] = kind.__module__, kind
    make.__doc__ = f"""{text}

    Args:
        weights: path of a state dict, or None.
        progress: ignored.
        kwargs: arguments of `{kind.__name__}`.
    """
    return make


class Classifier(Module):
    """Feature extraction, average pooling and a classifier."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def drawn(model: Module, linear: Callable[[Any], Any]) -> None:
    """Initialize weights as torchvision's mobile networks: convolutions by fan-out, linear layers by `linear`."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            linear(module)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)


def relative_positions(height: int, width: int) -> Tensor:
    """Returns the row of each pair of positions of a window in a table of relative positions, (H * W, H * W).

    Args:
        height: height of the window.
        width: width of the window.
    """
    y, x = np.divmod(np.arange(height * width), width)
    rows, columns = y[:, None] - y + height - 1, x[:, None] - x + width - 1
    return as_tensor(rows * (2 * width - 1) + columns)
