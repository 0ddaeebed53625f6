"""Process groups: creation, destruction, ranks and sizes."""

from __future__ import annotations

import functools
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from .. import cuda
from ..arrays import cuda_available
from . import environment, mpi, nccl
from .collective_log import CollectiveLog
from .engine import Engine
from .objects import all_gather_bytes
from .work import DistBackendError

BACKENDS = ("nccl", "mpi", "gloo")
DEFAULT_TIMEOUT = {"nccl": 600.0, "mpi": 1800.0, "gloo": 1800.0}


class ProcessGroup:
    """A set of ranks and the engine that connects them.

    Args:
        engine: connection between the processes.
        ranks: global ranks of the processes, in order.
        backend: name of the backend.
        timeout: time limit of a collective in seconds.
        log_path: file for the log of collectives (default: no file).

    Attributes:
        ranks: global ranks, in order.
        backend: name of the backend.
        timeout: time limit of a collective in seconds.
    """

    def __init__(self, engine: Engine, ranks: Sequence[int], backend: str, timeout: float, log_path: str | None = None):
        self.engine = engine
        self.ranks = list(ranks)
        self.backend = backend
        self.timeout = timeout
        self.log = CollectiveLog(log_path, engine.rank, self.ranks)
        engine.explain = self.log.missing

    def rank(self) -> int:
        """Returns the rank of this process within the group."""
        return self.engine.rank

    def size(self) -> int:
        """Returns the number of processes in the group."""
        return self.engine.size

    def name(self) -> str:
        """Returns the name of the backend."""
        return self.backend

    def enter(self, what: str) -> str:
        """Notes a collective in the log, and returns its description for messages.

        Args:
            what: name of the collective with its shapes.

        Raises:
            DistBackendError: if another rank has called a different collective.
        """
        try:
            return self.log.enter(what)
        except ValueError as error:
            raise DistBackendError(str(error)) from None

    def number_of(self, rank: int) -> int:
        """Returns the rank within the group of a global rank.

        Args:
            rank: global rank.

        Raises:
            ValueError: if the rank is not in the group.
        """
        if rank not in self.ranks:
            raise ValueError(f"Global rank {rank} is not part of group with ranks {self.ranks}")
        return self.ranks.index(rank)

    def __repr__(self):
        return f"<ProcessGroup {self.backend}, ranks {self.ranks}>"


class Backend(str):
    """The lowercase name of a backend: `Backend("NCCL")`, `Backend.NCCL`.

    Args:
        name: name of the backend, in any case: "nccl", "mpi" or "gloo".

    Raises:
        ValueError: if the name is unknown.
    """

    UNDEFINED, NCCL, MPI, GLOO = "undefined", "nccl", "mpi", "gloo"
    backend_list = [UNDEFINED, *BACKENDS]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name):
        if str(name).lower() not in BACKENDS:
            raise ValueError(f"Invalid backend: expected one of {', '.join(BACKENDS)}, got {name!r}.")
        return super().__new__(cls, str(name).lower())


class _World:
    """The default group, once `init_process_group` has created it."""

    group: ProcessGroup | None = None


class NonMember:
    """Result of `new_group` in processes outside the new group."""

    def __repr__(self):
        return "GroupMember.NON_GROUP_MEMBER"


NON_MEMBER = NonMember()


class GroupMember:
    """The default group `WORLD`, and `NON_GROUP_MEMBER` for processes outside a group, as in PyTorch."""

    NON_GROUP_MEMBER = NON_MEMBER

    @property
    def WORLD(self) -> ProcessGroup | None:
        return _World.group


group = GroupMember()
Group = Any  # type of `group` arguments: a ProcessGroup, `group`, None for the default group, or NON_MEMBER


@functools.cache
def _say_once(sentence):
    print(f"mytorch.distributed: {sentence}", file=sys.stderr, flush=True)


def is_available() -> bool:
    """Returns True. Each backend's dependencies are checked on first use.

    Example:
        >>> mytorch.distributed.is_available(), mytorch.distributed.is_initialized()
        (True, False)
    """
    return True


def is_nccl_available() -> bool:
    """Returns True if CuPy, a GPU and NCCL are available."""
    if not cuda_available():
        return False
    try:
        nccl.load()
    except RuntimeError:
        return False
    return True


def is_mpi_available() -> bool:
    """Returns True if mpi4py and an MPI library are installed."""
    return find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """Returns True if backend="gloo" is accepted; it runs over MPI."""
    return is_mpi_available()


def is_backend_available(backend: str) -> bool:
    """Returns True if the requirements of a backend are installed.

    Args:
        backend: name of the backend.
    """
    checks = {"nccl": is_nccl_available, "mpi": is_mpi_available, "gloo": is_gloo_available}
    return checks.get(str(backend).lower(), lambda: False)()


def is_initialized() -> bool:
    """Returns True if the default group exists."""
    return _World.group is not None


def is_torchelastic_launched() -> bool:
    """Returns True if `mytorchrun launch` or `python -m mytorch.distributed.run` started this process."""
    return "MYTORCHRUN_CONTROL" in os.environ


def _backend_of(name):
    """Return (name to report, "nccl" or "mpi") for a backend's name.

    Raises:
        ValueError: if the name is unknown.
    """
    if name is None or name == "cpu:gloo,cuda:nccl":
        chosen = "nccl" if cuda_available() and "MYTORCHRUN_CPU" not in os.environ else "mpi"
        return chosen, chosen
    name = str(name).lower()
    if ":" in name:  # "cuda:nccl"
        name = name.rpartition(":")[2]
    if name not in BACKENDS:
        raise ValueError(f"init_process_group: expected backend {', '.join(BACKENDS)} or None, got {name!r}.")
    return name, "nccl" if name == "nccl" else "mpi"


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Creates the default group, which connects all processes of the program. Every process calls it once.

    Args:
        backend: "nccl" for GPUs, "mpi" for CPUs, or None to select by hardware (default). "gloo" runs over MPI, with
            a message. The order of PyNorch, `init_process_group(rank, world_size)`, is also accepted.
        init_method: "env://" reads ranks, address and port from the environment (default); "tcp://host:port"
            replaces MASTER_ADDR and MASTER_PORT.
        timeout: time limit of a collective, as a timedelta or in seconds. The default is MYTORCHRUN_TIMEOUT, or ten
            minutes for NCCL and thirty minutes for MPI.
        world_size: number of processes (default: read from the environment).
        rank: rank of this process (default: read from the environment).
        store: key-value store for the connection of NCCL, instead of init_method. It requires world_size and rank. MPI
            does not use the store.
        group_name: ignored.
        pg_options: not supported; must be None.
        device_id: GPU of this process (default: the GPU with the local rank's number).

    A single process does not need MPI. Several processes on CPUs must be started with `mytorchrun launch` or
    `mpiexec -n N python script.py`.

    Raises:
        RuntimeError: if the default group exists, if MPI or NCCL is missing, or if mpiexec did not start the processes.
        ValueError: if the backend or init_method is unknown, or the rank is not below world_size.
        DistBackendError: if a process is missing after the timeout.

    Example:
        >>> import mytorch.distributed as dist
        >>> dist.init_process_group()
        >>> x = mytorch.tensor([1.0, 2.0])
        >>> dist.all_reduce(x)  # the sum over all processes; here there is one
        >>> x.tolist(), dist.get_rank(), dist.get_world_size()
        ([1.0, 2.0], 0, 1)
        >>> dist.destroy_process_group()
    """
    if _World.group is not None:
        raise RuntimeError("trying to initialize the default process group twice!")
    if pg_options is not None or (store is not None and (init_method is not None or min(rank, world_size) < 0)):
        raise ValueError("init_process_group: expected no pg_options, and a store only with rank and world_size.")
    if isinstance(backend, int):  # PyNorch: (rank, world_size)
        world_size = init_method if isinstance(init_method, int) else world_size
        backend, rank, init_method = None, backend, None
    here = environment.place(None if {rank, world_size} & {-1, None} else (int(rank), int(world_size)))
    rank = here.rank if rank in (-1, None) else int(rank)
    size = here.world_size if world_size in (-1, None) else int(world_size)
    if not 0 <= rank < size:
        raise ValueError(f"init_process_group: expected rank to be from 0 to {size - 1}, got {rank}.")
    address, port = _address(init_method)
    backend, engine_name = _backend_of(backend)
    seconds = environment.seconds(timeout, DEFAULT_TIMEOUT[backend])
    log, temporary = os.environ.get("MYTORCHRUN_COLLECTIVE_LOG") if size > 1 else None, False
    if engine_name == "nccl":
        _use_gpu(device_id, here.local_rank)
        engine = nccl.NCCLEngine.world(rank, size, address, port, seconds, store)
    elif size == 1:
        engine = Engine()
    else:
        engine = mpi.MPIEngine.world(seconds)
        _check_world(engine, rank, size)
        if log is None:
            log, temporary = _share_log(engine), True
        if backend == "gloo" and rank == 0:
            _say_once('backend="gloo" runs over MPI here.')
    _World.group = ProcessGroup(engine, range(size), backend, seconds, log)
    engine.barrier(_World.group.enter("barrier")).wait()
    if temporary and log and rank == 0:
        os.remove(log)  # all ranks have mapped the file


def _address(init_method):
    """Return (address, port) from init_method or the environment.

    Raises:
        ValueError: if init_method has another format.
    """
    if init_method in (None, "env://"):
        return environment.master()
    kind, _, rest = str(init_method).partition("://")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not port.isdigit():
        raise ValueError(f"init_method: expected 'env://' or 'tcp://host:port', got {init_method!r}.")
    return host, int(port)


def _use_gpu(device_id, local_rank):
    """Select the GPU `device_id`, or the GPU with the local rank's number."""
    if device_id is not None:
        cuda.set_device(device_id)
    elif cuda.device_count() > 1:
        cuda.set_device(local_rank % cuda.device_count())


def _check_world(engine, rank, size):
    """Compare rank and size in MPI with the program's values, on all ranks.

    Raises:
        RuntimeError: if mpiexec did not start the process.
        ValueError: if the values differ.
    """
    if engine.size == 1:
        raise RuntimeError(
            f"init_process_group: expected {size} processes started by mpiexec, but MPI sees rank {rank} alone. Start the "
            "program with `mytorchrun launch --nproc_per_node N script.py` or `mpiexec -n N python script.py`."
        )
    for expected, found in enumerate(all_gather_bytes(engine, f"{rank} and {size}".encode())):
        if found.decode() != f"{expected} and {engine.size}":
            raise ValueError(
                f"init_process_group: expected rank {expected} and world_size {engine.size}, as in MPI, got {found.decode()}."
            )


def _share_log(engine):
    """Return the path of a log for the ranks of an MPI engine, or None if they are on several machines."""
    same = len(set(all_gather_bytes(engine, socket.gethostname().encode()))) == 1
    return _new_log(engine, 0, engine.size) if same else None


def _new_log(engine, owner, size):
    """Create a log for `size` ranks in process `owner`, and return its path in all processes."""
    mine = CollectiveLog.create(size).encode() if engine.rank == owner else b""
    return all_gather_bytes(engine, mine)[owner].decode()


def destroy_process_group(group: Group = None) -> None:
    """Destroys a process group.

    Args:
        group: process group (default: all groups).

    Raises:
        ValueError: if there is no default group.
    """
    if group is None or group is _World.group:
        default_group().engine.close()
        _World.group = None
    elif group is not NON_MEMBER:
        group.engine.close()


def default_group() -> ProcessGroup:
    """Returns the default group.

    Raises:
        ValueError: if there is none.
    """
    if _World.group is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group "
            "(and start several processes with `mytorchrun launch script.py`)."
        )
    return _World.group


def resolve(group: Group) -> ProcessGroup | None:
    """Return the ProcessGroup for a `group` argument, or None if this process is not in it."""
    if group is None or isinstance(group, GroupMember):
        return default_group()
    return None if group is NON_MEMBER else group


def member_of(group: Group) -> ProcessGroup:
    """Like `resolve`, for a process that must be in the group.

    Raises:
        ValueError: if the process is not in the group.
    """
    found = resolve(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return found


def get_rank(group: Group = None) -> int:
    """Returns the rank of this process in the group; -1 outside the group.

    Args:
        group: process group (default: all processes).
    """
    found = resolve(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Group = None) -> int:
    """Returns the number of processes in the group; -1 outside the group.

    Args:
        group: process group (default: all processes).
    """
    found = resolve(group)
    return -1 if found is None else found.size()


def get_backend(group: Group = None) -> str:
    """Returns the name of the group's backend.

    Args:
        group: process group (default: all processes).
    """
    return member_of(group).backend


def get_process_group_ranks(group: Group = None) -> list[int]:
    """Returns the global ranks of a group.

    Args:
        group: process group (default: all processes).
    """
    found = resolve(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: Group, group_rank: int) -> int:
    """Converts a rank within a group to the global rank of the same process.

    Args:
        group: process group, from `new_group`.
        group_rank: rank of the process within `group`.

    Returns:
        The rank of the process in the default group.

    See also: `distributed.get_group_rank`.
    """
    return member_of(group).ranks[group_rank]


def get_group_rank(group: Group, global_rank: int) -> int:
    """Converts a global rank to the rank of the same process within a group.

    Args:
        group: process group, from `new_group`.
        global_rank: rank of the process in the default group.

    Returns:
        The rank within `group`, from 0 to the size of the group - 1.

    See also: `distributed.get_global_rank`.
    """
    return member_of(group).number_of(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns the rank of this process among the processes on its machine.

    Args:
        fallback_rank: result without a launcher.
    """
    if "LOCAL_RANK" not in os.environ and fallback_rank is not None:
        return int(fallback_rank)
    return environment.place().local_rank


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> ProcessGroup | NonMember:
    """Creates a group of some processes. All processes call it in the same order, also processes outside the group.

    Args:
        ranks: global ranks of the group (default: all).
        timeout: time limit of a collective (default: the default group's timeout).
        backend: backend of the default group, or None. Other backends raise.
        pg_options: not supported; must be None.
        use_local_synchronization: ignored with a warning.
        group_desc: ignored.
        device_id: ignored.

    Returns:
        The group, or GroupMember.NON_GROUP_MEMBER.

    Raises:
        ValueError: if a rank does not exist or is repeated, or if the backend differs from the default group's backend.
    """
    world = default_group()
    ranks = list(range(world.size())) if ranks is None else sorted(int(r) for r in ranks)
    if pg_options is not None:
        raise ValueError("new_group: expected pg_options to be None; they are not supported.")
    if len(set(ranks)) != len(ranks) or not all(0 <= r < world.size() for r in ranks) or not ranks:
        raise ValueError(f"new_group: expected different ranks from 0 to {world.size() - 1}, got {ranks}.")
    if backend is not None and _backend_of(backend)[1] != _backend_of(world.backend)[1]:
        raise ValueError(f"new_group: expected backend {world.backend!r} of the default group, got {backend!r}.")
    if use_local_synchronization:
        warnings.warn("new_group: use_local_synchronization is ignored.", stacklevel=2)
    world.enter(f"new_group({ranks})")
    engine = world.engine.split(ranks)
    path = _new_log(world.engine, ranks[0], len(ranks)) if world.log.shared else None
    result: ProcessGroup | NonMember = NON_MEMBER
    if engine is not None:
        seconds = world.timeout if timeout is None else environment.seconds(timeout, None)
        engine.timeout = seconds
        result = ProcessGroup(engine, ranks, world.backend, seconds, path)
    if path:
        world.engine.barrier("new_group").wait()
        if world.rank() == ranks[0]:
            os.remove(path)
    return result


__all__ = [
    "Backend", "GroupMember", "ProcessGroup", "destroy_process_group", "get_backend", "get_global_rank",
    "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "new_group",
]  # fmt: skip
