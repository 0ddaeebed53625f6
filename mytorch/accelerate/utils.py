"""Functions for programs with several processes, with the names of Hugging Face Accelerate."""

import os
import random
import sys
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
    """Seeds the random numbers of Python, NumPy and this library.

    Args:
        device_specific: add the rank to the seed.
        deterministic: also call `mytorch.use_deterministic_algorithms(True)`.
    """
    seed += environment.place().rank if device_specific else 0
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)
    if deterministic:
        sys.modules["mytorch"].use_deterministic_algorithms(True)


def gather(tensor: Any) -> Any:
    """Concatenates the tensors of all processes along the first axis.

    Args:
        tensor: a tensor, or nested lists, tuples and dicts of tensors.
    """
    from .accelerator import Accelerator

    return Accelerator().gather(tensor) if distributed.is_initialized() else tensor


def gather_object(object: Any) -> Any:
    """Concatenates the lists of all processes. With a single process, returns the object itself.

    Args:
        object: list of this process.
    """
    if not distributed.is_initialized():
        return object
    return [item for part in ProcessState().gather_objects(object) for item in part]


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replaces the objects of a list by the objects of one process, and returns the list.

    Args:
        object_list: list to send or to overwrite.
        from_process: rank of the sender.
    """
    if distributed.is_initialized():
        distributed.broadcast_object_list(object_list, from_process)
    return object_list


def wait_for_everyone() -> None:
    """Waits until all processes reach this call."""
    if distributed.is_initialized():
        distributed.barrier()


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """Returns a progress bar of tqdm, visible on the main process if the program writes to a terminal.

    Args:
        *args: arguments of `tqdm.tqdm`.
        main_process_only: if False, show the bar on all processes.
        **kwargs: arguments of `tqdm.tqdm`.
    """
    import tqdm as bars

    if main_process_only and environment.place().rank != 0:
        kwargs["disable"] = True
    kwargs.setdefault("disable", False if "MYTORCHRUN_TERMINAL" in os.environ else None)
    return bars.tqdm(*args, **kwargs)


def notebook_launcher(
    function: Callable, args: tuple = (), num_processes: int | None = None, mixed_precision: str = "no"
) -> None:
    """Calls a training function from a notebook, in this process.

    Args:
        num_processes: must be None or 1.
        mixed_precision: "no", "fp16" or "bf16".

    Raises:
        RuntimeError: if num_processes is greater than 1.
    """
    if num_processes not in (None, 1):
        raise RuntimeError(
            f"notebook_launcher: expected num_processes to be 1, got {num_processes}. Start several processes in a terminal "
            f"with `mytorchrun launch --nproc_per_node {num_processes} script.py`."
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
