"""Tools around the layers: data loading, checkpointing, drawing the graph."""

from importlib import import_module

from . import checkpoint, data, einops_hook

_LATER = ("_pytree", "benchmark", "collect_env", "dlpack", "graph", "tensorboard", "tokenizer")


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'mytorch.utils' has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


__all__ = ["checkpoint", "data"]

einops_hook.watch()
