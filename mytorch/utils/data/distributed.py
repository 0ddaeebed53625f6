"""A sampler that shares a dataset among processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from ...ops.random import Generator, randperm
from .sampler import Sampler


class DistributedSampler(Sampler):
    """Yields the indices of one process: every num_replicas-th index of a common order, starting at `rank`.

    Use it with `DistributedDataParallel`, or all processes see the same batches. Call `set_epoch`, or all epochs have
    one order.

    Args:
        dataset: dataset with a length.
        num_replicas: number of processes (default: the size of the process group).
        rank: number of this process (default: the rank in the process group).
        shuffle: if True, draws a new order for each epoch; call `set_epoch(epoch)` before each (default: True).
        seed: seed of the order, the same in all processes (default: 0).
        drop_last: if True, omits indices that do not divide evenly; otherwise repeats some indices (default: False).

    Raises:
        ValueError: `rank` is not between 0 and num_replicas - 1.
        RuntimeError: there is no process group, and `num_replicas` or `rank` is missing.

    Example:
        >>> [list(mytorch.utils.data.DistributedSampler("abcd", 2, rank, shuffle=False)) for rank in (0, 1)]
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if num_replicas is None or rank is None:
            num_replicas, rank = _from_group(num_replicas, rank)
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas, self.rank = num_replicas, rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        if drop_last and n % num_replicas:
            self.num_samples = math.ceil((n - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle, self.seed = shuffle, seed

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(n, generator=generator, device="cpu").tolist()
        else:
            order = list(range(n))
        if self.drop_last:
            order = order[: self.total_size]
        else:
            short = self.total_size - n
            order += (order * math.ceil(short / max(n, 1)))[:short]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which determines the random order.

        Args:
            epoch: number of the epoch.
        """
        self.epoch = epoch


def _from_group(num_replicas, rank):
    """Returns the missing values from the process group.

    Raises:
        RuntimeError: there is no process group.
    """
    try:
        from ... import distributed
    except ImportError:
        raise RuntimeError("DistributedSampler requires a process group, or both num_replicas and rank.") from None
    if num_replicas is None:
        num_replicas = distributed.get_world_size()
    return num_replicas, distributed.get_rank() if rank is None else rank
