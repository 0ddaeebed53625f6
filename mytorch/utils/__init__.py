"""Tools around the layers: data loading, checkpointing, drawing the graph."""

import os
from importlib import import_module
from typing import Any

from .._tensor import Tensor
from ..tools.model_summary import summary
from ..tools.watching import watch
from . import checkpoint, data, einops_hook

_LATER = ("_pytree", "benchmark", "collect_env", "dlpack", "graph", "tensorboard", "tokenizer", "views")


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'mytorch.utils' has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def render(self: Tensor, path: str | os.PathLike | None = None, **options: Any) -> Any:
    """Draw the graph that leads to this tensor, as `mytorch.tools.drawing.draw(self, path, **options)`, which says what there is."""
    return import_module(f"{__name__}.graph").draw(self, path, **options)


Tensor.render = render

__all__ = ["checkpoint", "data", "summary", "watch"]

einops_hook.watch()
