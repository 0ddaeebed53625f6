"""Sharing a dataset among processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from ...ops.random import Generator, randperm
from .sampler import Sampler


class DistributedSampler(Sampler):
    """Every num_replicas-th index of a common order, beginning at `rank`.

    Args:
        num_replicas, rank: how many processes there are and which this is; by default the process group's.
        shuffle: a new common order for each epoch; call `set_epoch(epoch)` before each.
        seed: of that order, the same in all processes.
        drop_last: leave out the tail that does not divide evenly; else some indices are repeated.
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
        """Choose the order of an epoch."""
        self.epoch = epoch


def _from_group(num_replicas, rank):
    """What is missing, from the process group.

    Raises:
        RuntimeError: there is none.
    """
    try:
        from ... import distributed
    except ImportError:
        raise RuntimeError("DistributedSampler requires a process group, or both num_replicas and rank.") from None
    if num_replicas is None:
        num_replicas = distributed.get_world_size()
    return num_replicas, distributed.get_rank() if rank is None else rank
