"""What programs for several processes use beside the Accelerator, with Hugging Face's names."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import distributed
from ..distributed import environment
from ..ops.random import manual_seed
from .loader import send_to as send_to_device
from .state import ProcessState

__all__ = [
    "broadcast_object_list", "gather", "gather_object", "notebook_launcher", "send_to_device", "set_seed", "tqdm",
    "wait_for_everyone",
]  # fmt: skip


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed Python's, NumPy's and this library's random numbers; with device_specific, each process differently."""
    seed += environment.place().rank if device_specific else 0
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)


def gather(tensor: Any) -> Any:
    """The tensors of all processes joined along the first axis, through nested containers."""
    from .accelerator import Accelerator

    return Accelerator().gather(tensor) if distributed.is_initialized() else tensor


def gather_object(object: Any) -> Any:
    """The lists of all processes as one list; alone, the object itself."""
    if not distributed.is_initialized():
        return object
    return [item for part in ProcessState().gather_objects(object) for item in part]


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the list's objects, on every process, by those of one; returns it."""
    if distributed.is_initialized():
        distributed.broadcast_object_list(object_list, from_process)
    return object_list


def wait_for_everyone() -> None:
    """Wait until every process is here."""
    if distributed.is_initialized():
        distributed.barrier()


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """A progress bar of tqdm, on the main process; shown where the program, or its launcher, writes to a terminal."""
    import tqdm as bars

    if main_process_only and environment.place().rank != 0:
        kwargs["disable"] = True
    kwargs.setdefault("disable", False if "MYTORCHRUN_TERMINAL" in os.environ else None)
    return bars.tqdm(*args, **kwargs)


def notebook_launcher(
    function: Callable, args: tuple = (), num_processes: int | None = None, mixed_precision: str = "no", **options: Any
) -> None:
    """Call a function that trains from a notebook, in this process.

    Raises:
        RuntimeError: several processes are wanted, which `mytorchrun launch` starts.
    """
    if num_processes not in (None, 1):
        raise RuntimeError(
            f"notebook_launcher: num_processes is {num_processes}; several are started from a terminal, by "
            f"`mytorchrun launch --nproc_per_node {num_processes} script.py`."
        )
    before = os.environ.get("MYTORCHRUN_MIXED_PRECISION")
    os.environ["MYTORCHRUN_MIXED_PRECISION"] = mixed_precision
    try:
        function(*args)
    finally:
        if before is None:
            del os.environ["MYTORCHRUN_MIXED_PRECISION"]
        else:
            os.environ["MYTORCHRUN_MIXED_PRECISION"] = before
