"""Pinning the tensors of a batch, also in containers."""

from typing import Any

from .collate import map_container


def pin_memory(data: Any, device: Any = None) -> Any:
    """Calls `pin_memory()` on every object of a batch that has this method. Containers keep their types."""
    return (
        data.pin_memory() if hasattr(data, "pin_memory") else map_container(lambda item: pin_memory(item, device), data)
    )
