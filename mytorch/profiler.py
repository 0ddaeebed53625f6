"""`profile` with the arguments of `torch.profiler`: a table of wall times of forward ops and named ranges."""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from .autograd.profiler import profile as _profile
from .autograd.profiler import record_function


class ProfilerActivity(Enum):
    """What to measure; here, the CPU's side alone."""

    CPU = 0
    CUDA = 1


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


__all__ = ["ProfilerActivity", "profile", "record_function"]


class itt:
    """`torch.profiler.itt`: marks for Intel's profiler, which is not there."""

    @staticmethod
    def is_available():
        """False."""
        return False
