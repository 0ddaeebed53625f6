"""Who this process is among how many, and what processes say to each other.

`ProcessState` reads the launcher's environment (RANK, WORLD_SIZE, LOCAL_RANK). Everything that processes
exchange goes through the few methods at its end, so that another state may answer them over a network.
"""

import os

from ..backend import as_device, cuda_available


class Flag(int):
    """A bool that may also be called: `is_main_process` and `is_main_process()` mean the same."""

    def __new__(cls, value):
        return super().__new__(cls, bool(value))

    def __call__(self):
        return bool(self)

    def __repr__(self):
        return repr(bool(self))


class ProcessState:
    """One process, alone.

    Args:
        device: where it computes; by default the GPU of its local rank if there is one, else the CPU.
        rank, num_processes: by default the environment's RANK and WORLD_SIZE.

    Raises:
        RuntimeError: the environment announces several processes.
    """

    def __init__(self, device=None, rank=None, num_processes=None):
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.num_processes = int(os.environ.get("WORLD_SIZE", 1)) if num_processes is None else num_processes
        if self.num_processes != 1:
            raise RuntimeError(
                f"Accelerator: {self.num_processes} processes were announced (WORLD_SIZE), but only one is supported; "
                "start the script with plain `python`."
            )
        if device is None:
            device = f"cuda:{self.local_rank}" if cuda_available() else "cpu"
        self.device = as_device(device)

    @property
    def is_main_process(self):
        return Flag(self.rank == 0)

    @property
    def is_local_main_process(self):
        return Flag(self.local_rank == 0)

    # -- what processes exchange; alone, each is its own answer -----------------------------------------

    def barrier(self):
        """Wait until every process is here."""

    def all_reduce(self, array, op="sum"):
        """The sum (or "mean", "max") over processes of an Array, in place; returns it."""
        return array

    def gather(self, array):
        """The Arrays of all processes, joined along the first axis."""
        return array

    def broadcast(self, array, source=0):
        """The Array of one process, to all; in place; returns it."""
        return array
