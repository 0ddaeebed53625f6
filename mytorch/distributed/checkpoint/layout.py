"""The parts of tensors that processes store: boxes of positions in the whole tensors."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import Array
from ...arrays.tensor import Tensor
from ..tensor.dtensor import DTensor
from ..tensor.redistribution import rows_of


class Box(NamedTuple):
    """A part of a tensor: the position in the local array, the position in the whole tensor, and the size."""

    local: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def within(self, raw):
        """Returns the part of the local array."""
        return raw[(..., *(slice(a, a + n) for a, n in zip(self.local, self.sizes, strict=True)))]


def _runs(rows):
    """Yields (local start, whole start, length) of the consecutive positions in an array of positions."""
    if not len(rows):
        return
    breaks = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    for a, b in itertools.pairwise(breaks):
        yield a, int(rows[a]), b - a


def boxes_of(value: Any, name: str) -> list[Box]:
    """Returns the boxes that this process stores of a tensor.

    Raises:
        ValueError: the tensor is a partial sum.
    """
    shape = tuple(value.shape)
    if not isinstance(value, DTensor):
        return [Box((0,) * len(shape), (0,) * len(shape), shape)]
    mesh, placements = value.device_mesh, value.placements
    if any(p.is_partial() for p in placements):
        raise ValueError(
            f"distributed.checkpoint: expected complete tensors, got {name!r} with {placements}. Redistribute it."
        )
    where = mesh.get_coordinate()
    if where is None:
        return []
    runs = [list(_runs(rows_of(placements, mesh.shape, where, d, n))) for d, n in enumerate(shape)]
    out = []
    for combination in itertools.product(*runs):
        out.append(Box(*(tuple(part[k] for part in combination) for k in range(3))))
    return out


def raw_of(value: Any) -> Any:
    """Returns the local raw array of a tensor."""
    value = value._local_tensor if isinstance(value, DTensor) else value
    return value._mt_data._array if isinstance(value, (Tensor, Array)) else value


def overlap(a_offsets, a_sizes, b_offsets, b_sizes):
    """Returns (start, size) of the common positions of two boxes in each dimension, or None."""
    starts = [max(x, y) for x, y in zip(a_offsets, b_offsets, strict=True)]
    ends = [min(x + n, y + m) for x, n, y, m in zip(a_offsets, a_sizes, b_offsets, b_sizes, strict=True)]
    sizes = [e - s for s, e in zip(starts, ends, strict=True)]
    return (starts, sizes) if all(n > 0 for n in sizes) else None
