"""Tools beside the layers: data loading, checkpointing, drawing the graph."""

from . import checkpoint, data

__all__ = ["checkpoint", "data"]
