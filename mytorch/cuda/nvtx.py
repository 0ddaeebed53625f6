"""`torch.cuda.nvtx`: named ranges for NVIDIA's profilers, with CuPy's NVTX."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

from .. import arrays as backend


def _nvtx():
    found = importlib.import_module("cupy.cuda.nvtx") if backend.cuda_available() else None
    if found is None or not found.available:
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")
    return found


def range_push(msg: str) -> None:
    """Starts a range within the open ranges.

    Args:
        msg: name of the range.

    Raises:
        RuntimeError: without a GPU, or if CuPy has no NVTX.
    """
    _nvtx().RangePush(msg)


def range_pop() -> None:
    """Ends the range that was started last."""
    _nvtx().RangePop()


def mark(msg: str) -> None:
    """Marks a point in time.

    Args:
        msg: name of the mark.
    """
    _nvtx().Mark(msg)


@contextmanager
def range(msg: str, *args, **kwargs) -> Iterator[None]:
    """Starts and ends a range, as a context manager or decorator.

    Args:
        msg: name of the range, formatted with the other arguments.
        *args: arguments of `msg.format`.
        **kwargs: arguments of `msg.format`.
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
