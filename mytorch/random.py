"""Seeds and generator states, with `torch.random`'s names."""

from contextlib import contextmanager

from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .ops.random import positions as _positions
from .ops.random import set_positions as _set_positions


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """Draw what you like inside the block: afterwards the generators are where they were before.

    Args:
        devices: the GPUs whose generators are restored, as well as the CPU's; all by default.
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
