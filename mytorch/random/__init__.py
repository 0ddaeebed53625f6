"""Seeds and states of random number generators, as in `torch.random`."""

from contextlib import contextmanager

from ..ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from ..ops.random import positions as _positions
from ..ops.random import set_positions as _set_positions


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """Restores the states of the random number generators at the end of a `with` block.

    Args:
        devices: GPUs to restore, in addition to the CPU (default: all).
        enabled: False disables the context manager (default: True).
        device_type: for compatibility with PyTorch.

    Example:
        >>> _ = mytorch.manual_seed(0)
        >>> with mytorch.random.fork_rng():
        ...     inside = mytorch.rand(1)
        >>> mytorch.equal(inside, mytorch.rand(1))
        True
    """
    if not enabled:
        yield
        return
    before = _positions(devices)
    try:
        yield
    finally:
        _set_positions(before)


__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip
