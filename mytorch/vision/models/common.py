"""What the models share."""

import os
from typing import Any, TypeVar

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
