"""`profile` with the arguments of `torch.profiler`: a table of wall times of forward ops and named ranges."""

import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from .autograd.profiler import profile as _profile
from .autograd.profiler import record_function


class ProfilerActivity(Enum):
    """What to measure; here, the CPU's side alone."""

    CPU = 0
    CUDA = 1


def kineto_available() -> bool:
    """False: PyTorch's profiler of kernels is not here."""
    return False


class ProfilerAction(Enum):
    """What a profiler does at a step; here it measures all of them."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function from the step to its ProfilerAction: wait, warm up, record, and again.

    Args:
        wait, warmup, active: steps of each kind in a cycle.
        repeat: cycles; 0 for no end.
        skip_first: steps before the first cycle.
        skip_first_wait: not 0: the first cycle does not wait.
    """

    def action(step):
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, place = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function that writes a profile's trace into a folder.

    Args:
        dir_name: the folder, made if missing.
        worker_name: begins the file's name; "worker" if not given.
        use_gzip: refused.
    """
    if use_gzip:
        raise NotImplementedError("tensorboard_trace_handler: use_gzip=True is not supported.")

    def write(prof):
        os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json"))

    return write


class profile(_profile):
    """Measure the wall time of forward ops and `record_function` ranges within the block.

    Args:
        activities: None, or a list with ProfilerActivity.CPU.
        record_shapes: count calls with other shapes of inputs apart (`key_averages(group_by_input_shape=True)`).

    Raises:
        NotImplementedError: ProfilerActivity.CUDA, or any other of PyTorch's options.

    Example:
        >>> with mytorch.profiler.profile() as p:
        ...     x = mytorch.ones(2).exp().exp()
        >>> [(event.key, event.count) for event in p.key_averages() if event.key == "exp"]
        [('exp', 2)]
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, record_shapes: bool = False, **options: Any
    ):
        if activities is not None and ProfilerActivity.CUDA in activities:
            raise NotImplementedError(
                "profile: ProfilerActivity.CUDA is not supported; use a profiler of the GPU's maker."
            )
        asked = [name for name, value in options.items() if value]
        if asked:
            raise NotImplementedError(f"profile: {', '.join(asked)} is not supported; there is a table of times.")
        super().__init__(record_shapes=record_shapes)


__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]


class itt:
    """`torch.profiler.itt`: marks for Intel's profiler, which is not there."""

    @staticmethod
    def is_available():
        """False."""
        return False
