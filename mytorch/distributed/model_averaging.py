"""Averages the parameters of processes that train on their own for some steps (local SGD), as in PyTorch's `model_averaging`."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..arrays.tensor import Tensor
from .process_group import Group, resolve
from .reducer import average_coalesced


def _with_gradients(params: Iterable[Any]) -> Iterator[Tensor]:
    for item in params:
        for p in item["params"] if isinstance(item, dict) else (item,):
            if p.grad is not None:
                yield p


class ModelAverager:
    """Base class of averagers, which count the steps.

    Args:
        process_group: processes that average their parameters (default: the default group).
    """

    def __init__(self, process_group: Group = None) -> None:
        self.process_group = resolve(process_group)
        self.step = 0

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Counts a step and averages the parameters if it is their turn.

        Args:
            params: parameters, or parameter groups of an optimizer.
        """
        raise NotImplementedError


class PeriodicModelAverager(ModelAverager):
    """Averages the parameters over all processes every few steps, after a number of first steps.

    Use it when communication in each step is too slow: the processes train without exchanging gradients, and exchange parameters
    from time to time. In the first steps, models should be averaged more often, by DistributedDataParallel.

    Args:
        period: number of steps between two averages.
        warmup_steps: number of first steps without an average (default: 0).
        process_group: processes that average their parameters (default: the default group).

    Raises:
        ValueError: the period is not positive, or `warmup_steps` is negative.

    Source: Lin et al., Don't Use Large Mini-Batches, Use Local SGD, 2020.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Group = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period <= 0:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Counts a step. Averages the parameters that have gradients if `period` steps have passed since the last average.

        Args:
            params: parameters, or parameter groups of an optimizer.
        """
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_coalesced(list(_with_gradients(params)), self.process_group)
        self.step += 1


__all__ = ["ModelAverager", "PeriodicModelAverager"]
