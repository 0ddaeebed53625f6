"""All operations. Each file defines some, with their gradients; `bind` gives them their names."""

from . import (
    activation,
    attention,
    creation,
    elementwise,
    embedding,
    indexing,
    inplace,
    linalg,
    loss,
    movement,
    normalization,
    random,
    reduction,
    tensor_ns,
)
from .bind import METHODS, PUBLIC, attach

__all__ = [
    "METHODS",
    "PUBLIC",
    "activation",
    "attach",
    "attention",
    "creation",
    "elementwise",
    "embedding",
    "indexing",
    "inplace",
    "linalg",
    "loss",
    "movement",
    "normalization",
    "random",
    "reduction",
    "tensor_ns",
]
