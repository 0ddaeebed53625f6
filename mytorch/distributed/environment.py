"""The launcher's environment variables: the rank of this process, the number of processes, and the master address.

The variables of torchrun are read first: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
Open MPI's and MPICH's mpiexec and SLURM's srun set other variables, which are read next.
"""

import os
from typing import NamedTuple

DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 13333

# rank, number of processes, rank on this machine, number of processes on this machine
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


class Place(NamedTuple):
    """Ranks and numbers of processes, of the program and of this machine."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def _integer(name, text):
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: expected an integer, got {text!r}.") from None


def place(given=None):
    """Return the Place that the environment describes; without variables, a single process.

    Args:
        given: (rank, number of processes) of the program, which replace the variables (default: None).

    Raises:
        ValueError: if a variable is not an integer, or a rank is not below the number of processes.
    """
    for names in _LAUNCHERS:
        if names[0] in os.environ and names[1] in os.environ:
            rank, size = given or (_integer(name, os.environ[name]) for name in names[:2])
            local = _integer(names[2], os.environ.get(names[2], rank))
            nearby = os.environ.get(names[3], str(size)).partition("(")[0].partition(",")[0]
            if given is None and not 0 <= rank < size:
                raise ValueError(f"{names[0]}: expected a rank from 0 to {size - 1} ({names[1]}={size}), got {rank}.")
            return Place(rank, size, local, _integer(names[3], nearby))
    return Place(*(given or (0, 1)), _integer("LOCAL_RANK", os.environ.get("LOCAL_RANK", 0)), 1)


def master():
    """Return (address, port) of the first process."""
    address = os.environ.get("MASTER_ADDR") or os.environ.get("CUPYX_DISTRIBUTED_HOST") or DEFAULT_ADDRESS
    port = os.environ.get("MASTER_PORT") or os.environ.get("CUPYX_DISTRIBUTED_PORT") or DEFAULT_PORT
    return address, _integer("MASTER_PORT", port)


def seconds(timeout, default):
    """Return a timeout in seconds; None is replaced by MYTORCHRUN_TIMEOUT or the default.

    Raises:
        ValueError: if the timeout is not positive.
    """
    if timeout is None:
        timeout = os.environ.get("MYTORCHRUN_TIMEOUT") or default
    timeout = float(timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout)
    if not timeout > 0:
        raise ValueError(f"timeout: expected a positive number of seconds, got {timeout}.")
    return timeout
