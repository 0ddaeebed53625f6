"""Seeds and generator states, with `torch.random`'s names."""

from contextlib import contextmanager

from .ops.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    positions,
    seed,
    set_positions,
    set_rng_state,
)


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """Draw what you like inside the block: afterwards the generators are where they were before.

    Args:
        devices: the GPUs whose generators are restored, as well as the CPU's; all by default.
    """
    if not enabled:
        yield
        return
    before = positions(devices)
    try:
        yield
    finally:
        set_positions(before)


__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]
