"""Tools beside the layers: data loading, checkpointing, drawing the graph."""

from . import checkpoint, data, einops_hook

__all__ = ["checkpoint", "data"]

einops_hook.watch()
