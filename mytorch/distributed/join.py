"""Join: uneven inputs in distributed training, as in `torch.distributed.algorithms.join`.

Processes with more batches continue to train. A process without batches takes part in their collectives with zeros.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor
from ..nn.parallel.distributed import DistributedDataParallel
from ..optim.zero import ZeroRedundancyOptimizer
from . import collectives
from .engine import ReduceOp
from .process_group import ProcessGroup, member_of
from .reducer import broadcast_coalesced


class JoinHook:
    """The actions of a process that has no more inputs."""

    def main_hook(self) -> None:
        """Runs the collectives of one step of the other processes."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs after all processes have joined.

        Args:
            is_last_joiner: True if this process was among the last ones.
        """


class Joinable(ABC):
    """The base class of objects that `Join` supports. They call `Join.notify_join_context(self)` before their collectives."""

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook of this object.

        Args:
            kwargs: keyword arguments of Join.
        """

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The process group of the collectives."""


class _DDPHook(JoinHook):
    def __init__(self, ddp):
        self.ddp = ddp

    def main_hook(self):
        reducer = self.ddp.reducer
        for i, bucket in enumerate(reducer.buckets):
            bucket.flat[...] = 0
            reducer._start(i)
        reducer._finish()  # a ZeroRedundancyOptimizer needs the gradients

    def post_hook(self, is_last_joiner):
        group = self.ddp.process_group
        source = _count(group, group.rank() if is_last_joiner else -1, ReduceOp.MAX)
        broadcast_coalesced([*self.ddp.module.parameters(), *self.ddp.module.buffers()], source, group)


class _Adapter(Joinable):
    """A DistributedDataParallel or a ZeroRedundancyOptimizer in Join.

    Args:
        hook: its actions.
        group: its process group.
        ddp: the DistributedDataParallel, if it is one.
    """

    def __init__(self, hook, group, ddp=None):
        self.hook, self.group, self.ddp = hook, group, ddp

    def join_hook(self, **kwargs):
        return self.hook

    @property
    def join_process_group(self):
        return self.group


class _ZeROHook(JoinHook):
    """A process without inputs continues to update its part of the parameters."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def main_hook(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def _joinable(x):
    """Returns the Joinable of an object."""
    if isinstance(x, DistributedDataParallel):
        return _Adapter(_DDPHook(x), x.process_group, x)
    if isinstance(x, ZeroRedundancyOptimizer):
        return _Adapter(_ZeROHook(x), x.process_group)
    if not isinstance(x, Joinable):
        raise TypeError(
            "Join: expected a DistributedDataParallel, a ZeroRedundancyOptimizer or a Joinable, got "
            f"{type(x).__name__}."
        )
    return x


def _ddp_of(joinable):
    return joinable.ddp if isinstance(joinable, _Adapter) else None


def _count(group, number, op=ReduceOp.SUM):
    """Returns the sum of a number over the processes."""
    device = "cuda" if group.engine.device_type == "cuda" else "cpu"
    total = Tensor._wrap(np.array([number], np.int64)).to(device)
    collectives.all_reduce(total, op, group)
    return int(total.item())


class Join:
    """Trains with different numbers of batches on each process, as a context manager.

    Buffers are not exchanged during the context. At its end, all processes receive the parameters and buffers of a
    process that had inputs until the last step.

    Args:
        joinables: DistributedDataParallel models, ZeroRedundancyOptimizers and other Joinables with one process group, in
            the order of their communication in a step.
        enable: False disables the context (default: True).
        throw_on_early_termination: raise an error on all processes as soon as one has no more inputs (default: False).
        divide_by_initial_world_size: divide gradients by the number of all processes. False divides by the number of
            processes that still have inputs (default: True).
        kwargs: keyword arguments of the join hooks.

    Raises:
        ValueError: the list is empty, or the process groups differ.
        TypeError: an object is not a Joinable.

    Example:
        >>> from mytorch.distributed.join import Join
        >>> mytorch.distributed.init_process_group()
        >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        >>> with Join([model]):
        ...     for _ in range(3):
        ...         model(mytorch.ones(1, 2)).sum().backward()
        >>> mytorch.distributed.destroy_process_group()
    """

    def __init__(
        self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False,
        divide_by_initial_world_size: bool = True, **kwargs: Any,
    ):  # fmt: skip
        if not joinables:
            raise ValueError("Join: expected at least one joinable, got an empty list.")
        self._joinables = [_joinable(j) for j in joinables]
        groups = [member_of(j.join_process_group) for j in self._joinables]
        if any(group is not groups[0] for group in groups):
            raise ValueError("Join: expected joinables with one process group, got several groups.")
        self._group: ProcessGroup = groups[0]
        self._enable, self._throw = enable, throw_on_early_termination
        self._divide_by_initial = divide_by_initial_world_size
        self._hooks = [j.join_hook(**kwargs) for j in self._joinables]
        self._undo: list[Any] = []

    def __enter__(self):
        if not self._enable:
            return self
        self._joinables[0].__dict__["_join"] = self
        for j in self._joinables:
            if _ddp_of(j) is not None:
                self._watch(j)
        return self

    def _watch(self, j):
        """Lets a DistributedDataParallel report each step."""
        ddp, reducer = j.ddp, j.ddp.reducer
        if ddp.reducer.buffers:
            buffers, reducer.buffers = reducer.buffers, []
            self._undo.append(lambda: setattr(reducer, "buffers", buffers))

        def before(module, args):
            if ddp.require_backward_grad_sync and module.training:
                Join.notify_join_context(j)

        self._undo.append(ddp.register_forward_pre_hook(before).remove)

    def _divide(self, active):
        """Divides the gradients of the next step by the number of processes with inputs, if wanted."""
        for j in self._joinables:
            if _ddp_of(j) is not None and not self._divide_by_initial:
                j.ddp.reducer.scale = self._group.size() / active if active else 1.0

    def __exit__(self, kind, error, trace):
        if not self._enable:
            return
        self._joinables[0].__dict__.pop("_join", None)
        for undo in self._undo:
            undo()
        self._undo.clear()
        if kind is not None:
            return
        steps, last = 0, True
        while active := _count(self._group, 0):
            if self._throw:
                _count(self._group, 1)  # the other processes wait for this collective and raise, too
                raise RuntimeError("Join: this process has no more inputs, and throw_on_early_termination is set.")
            last = False
            self._divide(active)
            for hook in self._hooks:
                hook.main_hook()
            steps += 1
            if steps == 1000:
                warnings.warn(
                    "Join: other processes have at least 1000 batches more than this one. Divide the data more evenly.",
                    stacklevel=2,
                )
        self._divide(0)
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Reports that this process has inputs for another step. Only the first joinable of a context reports.

        Args:
            joinable: the object that calls it.

        Raises:
            RuntimeError: another process has no more inputs, and `throw_on_early_termination` is set.
        """
        join = joinable.__dict__.get("_join")
        if join is None:
            return
        active = _count(join._group, 1)
        join._divide(active)
        if join._throw and active < join._group.size():
            _count(join._group, 0)
            raise RuntimeError("Join: another process has no more inputs, and throw_on_early_termination is set.")


def join(
    self: DistributedDataParallel, divide_by_initial_world_size: bool = True, enable: bool = True,
    throw_on_early_termination: bool = False,
) -> Join:  # fmt: skip
    """Returns a `Join` context of this model: `with model.join():` trains with different numbers of batches on each process.

    Args:
        divide_by_initial_world_size: divide gradients by the number of all processes (default: True).
        enable: False disables the context (default: True).
        throw_on_early_termination: raise an error on all processes as soon as one has no more inputs (default: False).
    """
    return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size)


__all__ = ["Join", "JoinHook", "Joinable"]
