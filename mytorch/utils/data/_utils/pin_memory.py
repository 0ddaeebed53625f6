"""Pinning the tensors of a batch, through containers."""

from typing import Any

from .collate import map_container


def pin_memory(data: Any, device: Any = None) -> Any:
    """A batch with `pin_memory()` called on everything that has it; containers keep their types."""
    return (
        data.pin_memory() if hasattr(data, "pin_memory") else map_container(lambda item: pin_memory(item, device), data)
    )
