"""Checkpoints of which each process writes a part, as in `torch.distributed.checkpoint`. The files are safetensors files."""

from ... import _extensions
from .saving import CheckpointException, async_save, latest, load, save

__all__ = ["CheckpointException", "async_save", "latest", "load", "save"]

__getattr__, __dir__ = _extensions.lazy(__name__, "state_dict")
