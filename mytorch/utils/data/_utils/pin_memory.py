"""Pinning the tensors of a batch, through containers."""

from collections.abc import Mapping, Sequence
from typing import Any

from .collate import _refill


def pin_memory(data: Any, device: Any = None) -> Any:
    """A batch with `pin_memory()` called on everything that has it; containers keep their types."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _refill(data, {key: pin_memory(item, device) for key, item in data.items()})
    if isinstance(data, tuple):
        items = [pin_memory(item, device) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    if isinstance(data, Sequence):
        return _refill(data, [pin_memory(item, device) for item in data])
    return data
