"""Names for stretches of a program, as NVIDIA's profilers show them: `torch.cuda.nvtx`, by CuPy's NVTX."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

from .. import backend


def _nvtx():
    found = importlib.import_module("cupy.cuda.nvtx") if backend.cuda_available() else None
    if found is None or not found.available:
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")
    return found


def range_push(msg: str) -> None:
    """Begin a range within those that are open.

    Raises:
        RuntimeError: there is no GPU, or CuPy without NVTX; so for all of them.
    """
    _nvtx().RangePush(msg)


def range_pop() -> None:
    """End the range that was begun last."""
    _nvtx().RangePop()


def mark(msg: str) -> None:
    """Mark a moment."""
    _nvtx().Mark(msg)


@contextmanager
def range(msg: str, *args, **kwargs) -> Iterator[None]:
    """A context (or decorator) that is a range; the message is formatted with the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
