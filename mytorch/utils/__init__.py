"""Tools beside the layers: data loading, checkpointing, drawing the graph."""

from . import data

__all__ = ["data"]
