"""Utilities for training: data loading, activation checkpointing and more."""

from .. import _extensions

__getattr__, __dir__ = _extensions.lazy(__name__, "checkpoint collect_env data deterministic tensorboard")
__all__ = ["checkpoint", "data", "summary", "watch"]
