"""Copies between GPUs, with the API of `torch.cuda.comm`."""

from collections.abc import Sequence
from typing import Any

from ..arrays.tensor import Tensor
from ..ops.movement import cat


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Any = None) -> tuple[Tensor, ...]:
    """Copies a tensor to several devices.

    Args:
        out: tensors to overwrite, instead of `devices`.
    """
    if out is not None:
        return tuple(o.copy_(tensor) for o in out)
    return tuple(tensor.to(device) for device in devices or ())


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copies several tensors to several devices.

    Args:
        buffer_size: accepted for compatibility.
    """
    return [tuple(t.to(device) for t in tensors) for device in devices]


def scatter(
    tensor: Tensor, devices: Sequence[Any], chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> tuple[Tensor, ...]:
    """Splits a tensor along an axis and copies each part to a device.

    Args:
        devices: devices of the parts.
        chunk_sizes: sizes of the parts (default: equal parts).
        dim: the axis.
        streams: ignored; the parts are copied in sequence.
    """
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(device) for part, device in zip(parts, devices, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Concatenates tensors of several devices on one device.

    Args:
        dim: the axis.
        destination: device of the result.
    """
    place = tensors[0].device if destination is None else destination
    return cat([t.to(place) for t in tensors], dim)


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """Adds tensors of several devices on one device.

    Args:
        inputs: the tensors.
        destination: device of the result.
    """
    place = inputs[0].device if destination is None else destination
    total = inputs[0].to(place)
    for t in inputs[1:]:
        total = total + t.to(place)
    return total
