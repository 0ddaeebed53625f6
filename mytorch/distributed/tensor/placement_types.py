"""Placements: the distribution of a tensor along one dimension of a device mesh.

`rows` maps a placement to positions along the sharded dimension. It is the only description of a layout: slicing,
gathering, and the files of `distributed.checkpoint` use it.
"""

from __future__ import annotations

import numpy as np


def chunk(n: int, parts: int, i: int) -> tuple[int, int]:
    """Returns (start, length) of chunk `i` of `n` items, as `Tensor.chunk` divides them: the last chunks can be shorter.

    Args:
        n: number of items.
        parts: number of chunks.
        i: number of the chunk.
    """
    size = -(-n // parts)
    start = min(i * size, n)
    return start, min(size, n - start)


class Placement:
    """The base class of placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Returns True for a shard, of any dimension or of the given one.

        Args:
            dim: dimension of the tensor (default: any).
        """
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Returns True for `Replicate`."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Returns True for `Partial`, with any reduction or with the given one.

        Args:
            reduce_op: name of the reduction (default: any).
        """
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def _key(self):
        return (type(self),)

    def __eq__(self, other):
        return isinstance(other, Placement) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())


class Shard(Placement):
    """Divides a dimension of the tensor into chunks, one for each process of the mesh dimension.

    Args:
        dim: dimension of the tensor. If its size is not divisible, the last processes have fewer elements or none.
    """

    def __init__(self, dim: int):
        self.dim = int(dim)

    def rows(self, n: int, parts: int, i: int) -> np.ndarray:
        """Returns the positions along `dim` that process `i` stores.

        Args:
            n: size of the dimension.
            parts: number of processes.
            i: position of the process in the mesh dimension.
        """
        start, length = chunk(n, parts, i)
        return np.arange(start, start + length)

    def at(self, dim: int) -> Shard:
        """Returns the same placement of another dimension of a tensor.

        Args:
            dim: the dimension.
        """
        return Shard(dim)

    def _key(self):
        return type(self), self.dim

    def __repr__(self):
        return f"Shard(dim={self.dim})"

    def __str__(self):
        return f"S({self.dim})"


class _StridedShard(Shard):
    """A shard inside the shards of later mesh dimensions. `fully_shard` uses it for tensor-parallel parameters."""

    def at(self, dim):
        return _StridedShard(dim)

    def __repr__(self):
        return f"_StridedShard(dim={self.dim})"


class _BlockShard(Shard):
    """Divides each of several equal blocks of a dimension, such as the queries, keys and values of a fused projection.

    Args:
        dim: dimension of the tensor.
        blocks: number of blocks.
    """

    def __init__(self, dim, blocks):
        super().__init__(dim)
        self.blocks = blocks

    def rows(self, n, parts, i):
        if n % (self.blocks * parts):
            raise ValueError(
                f"distribute_tensor: expected a size divisible by {self.blocks} blocks × {parts} processes, got {n}."
            )
        return np.arange(n).reshape(self.blocks, parts, -1)[:, i].reshape(-1)

    def at(self, dim):
        return _BlockShard(dim, self.blocks)

    def _key(self):
        return type(self), self.dim, self.blocks

    def __repr__(self):
        return f"_BlockShard(dim={self.dim}, blocks={self.blocks})"


class Replicate(Placement):
    """Stores the whole tensor in each process of the mesh dimension."""

    def __repr__(self):
        return "Replicate()"

    def __str__(self):
        return "R"


class Partial(Placement):
    """Stores one term of the tensor in each process. The tensor is the sum of the terms.

    Args:
        reduce_op: "sum" (default), or "avg", "max" or "min" for another combination of the terms.
    """

    def __init__(self, reduce_op: str = "sum"):
        if reduce_op not in ("sum", "avg", "max", "min"):
            raise ValueError(f"Partial: expected reduce_op to be 'sum', 'avg', 'max' or 'min', got {reduce_op!r}.")
        self.reduce_op = reduce_op

    def is_linear(self) -> bool:
        """Returns True if the sum of two tensors is the sum of their terms, and a multiple the multiple of the terms."""
        return self.reduce_op in ("sum", "avg")

    def _key(self):
        return type(self), self.reduce_op

    def __repr__(self):
        return f"Partial({self.reduce_op})"

    def __str__(self):
        return "P"
