"""Copies between GPUs, as PyTorch's `torch.cuda.comm`."""

from collections.abc import Sequence
from typing import Any

from .._tensor import Tensor
from ..ops.movement import cat


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Any = None) -> tuple[Tensor, ...]:
    """A copy of a tensor on each device."""
    if out is not None:
        return tuple(o.copy_(tensor) for o in out)
    return tuple(tensor.to(device) for device in devices or ())


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copies of several tensors on each device."""
    return [tuple(t.to(device) for t in tensors) for device in devices]


def scatter(
    tensor: Tensor, devices: Sequence[Any], chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> tuple[Tensor, ...]:
    """A tensor in parts along an axis, one on each device.

    Args:
        tensor: what is cut.
        devices: where the parts go.
        chunk_sizes: sizes of the parts; equal ones if not given.
        dim: the axis.
        streams: accepted; parts are copied one after another.
    """
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(device) for part, device in zip(parts, devices, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Parts from several devices, along an axis, on one."""
    place = tensors[0].device if destination is None else destination
    return cat([t.to(place) for t in tensors], dim)


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors on several devices, on one."""
    place = inputs[0].device if destination is None else destination
    total = inputs[0].to(place)
    for t in inputs[1:]:
        total = total + t.to(place)
    return total
