"""Process groups: beginning and ending them, and asking who is in them."""

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
from ..backend import cuda_available
from . import environment, mpi, nccl
from .collective_log import CollectiveLog
from .engine import Engine
from .objects import all_gather_bytes
from .work import DistBackendError

BACKENDS = ("nccl", "mpi", "gloo")
DEFAULT_TIMEOUT = {"nccl": 600.0, "mpi": 1800.0, "gloo": 1800.0}


class ProcessGroup:
    """Some ranks and the engine between them.

    Attributes:
        ranks: their numbers in the default group, in order.
        backend: the name that the program gave.
        timeout: seconds that a collective may take.
    """

    def __init__(self, engine: Engine, ranks: Sequence[int], backend: str, timeout: float, log_path: str | None = None):
        self.engine = engine
        self.ranks = list(ranks)
        self.backend = backend
        self.timeout = timeout
        self.log = CollectiveLog(log_path, engine.rank, self.ranks)
        engine.explain = self.log.missing

    def rank(self) -> int:
        """This process's number within the group."""
        return self.engine.rank

    def size(self) -> int:
        """How many processes it has."""
        return self.engine.size

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def enter(self, what: str) -> str:
        """Note a collective in the log; its name for messages.

        Raises:
            DistBackendError: another rank has called another one in its place.
        """
        try:
            return self.log.enter(what)
        except ValueError as error:
            raise DistBackendError(str(error)) from None

    def number_of(self, rank: int) -> int:
        """The number within the group of a rank of the default group.

        Raises:
            ValueError: it is not in the group.
        """
        if rank not in self.ranks:
            raise ValueError(f"Global rank {rank} is not part of group with ranks {self.ranks}")
        return self.ranks.index(rank)

    def __repr__(self):
        return f"<ProcessGroup {self.backend}, ranks {self.ranks}>"


class Backend(str):
    """A backend's name in small letters: `Backend("NCCL")`, `Backend.NCCL`.

    Raises:
        ValueError: an unknown one.
    """

    UNDEFINED, NCCL, MPI, GLOO = "undefined", "nccl", "mpi", "gloo"
    backend_list = [UNDEFINED, *BACKENDS]

    def __new__(cls, name):
        if str(name).lower() not in BACKENDS:
            raise ValueError(f"Invalid backend: {name!r}; expected one of {', '.join(BACKENDS)}.")
        return super().__new__(cls, str(name).lower())


class _World:
    """What `init_process_group` makes; there is one or none."""

    group: ProcessGroup | None = None


class NonMember:
    """What `new_group` gives to processes that are not in the new group."""

    def __repr__(self):
        return "GroupMember.NON_GROUP_MEMBER"


NON_MEMBER = NonMember()


class GroupMember:
    """PyTorch's names: WORLD is the default group, NON_GROUP_MEMBER what a process outside a group holds."""

    NON_GROUP_MEMBER = NON_MEMBER

    @property
    def WORLD(self) -> ProcessGroup | None:
        return _World.group


group = GroupMember()
Group = Any  # an argument `group`: a ProcessGroup, `group` or None for the default one, or NON_MEMBER


@functools.cache
def _say_once(sentence):
    print(f"mytorch.distributed: {sentence}", file=sys.stderr, flush=True)


def is_available() -> bool:
    """True: the package is there; what a backend needs is looked for at first use.

    Example:
        >>> mytorch.distributed.is_available(), mytorch.distributed.is_initialized()
        (True, False)
    """
    return True


def is_nccl_available() -> bool:
    """Whether CuPy, a GPU and NCCL are there."""
    if not cuda_available():
        return False
    try:
        nccl.load()
    except RuntimeError:
        return False
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py and an MPI library are installed."""
    return find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """Whether backend="gloo" is accepted: where MPI is, which it runs over."""
    return is_mpi_available()


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group(backend)` would find what it needs."""
    checks = {"nccl": is_nccl_available, "mpi": is_mpi_available, "gloo": is_gloo_available}
    return checks.get(str(backend).lower(), lambda: False)()


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _World.group is not None


def is_torchelastic_launched() -> bool:
    """Whether this process was started by `mytorchrun launch` or `python -m mytorch.distributed.run`."""
    return "MYTORCHRUN_CONTROL" in os.environ


def _backend_of(name):
    """(the name to report, "nccl" or "mpi") for the backend that the program named.

    Raises:
        ValueError: an unknown name.
    """
    if name is None or name == "cpu:gloo,cuda:nccl":
        chosen = "nccl" if cuda_available() and "MYTORCHRUN_CPU" not in os.environ else "mpi"
        return chosen, chosen
    name = str(name).lower()
    if ":" in name:  # "cuda:nccl"
        name = name.rpartition(":")[2]
    if name not in BACKENDS:
        raise ValueError(f"init_process_group: backend is {name!r}; expected one of {', '.join(BACKENDS)}, or None.")
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
    """Join the other processes of this program; every process calls it once.

    Args:
        backend: "nccl" for GPUs, "mpi" for CPUs, None for what the machine has. "gloo" runs over MPI and says
            so. PyNorch's form, init_process_group(rank, world_size), is understood as well.
        init_method: "env://" (the default): ranks, address and port from the environment; "tcp://host:port"
            instead of MASTER_ADDR and MASTER_PORT.
        timeout: a timedelta, or seconds, after which a collective raises; by default MYTORCHRUN_TIMEOUT, or ten
            minutes for NCCL and thirty for MPI.
        world_size, rank: by default the launcher's.
        device_id: the GPU to use; by default the local rank's.

    One process alone needs no MPI. Several on CPUs must have been started through mpiexec: by `mytorchrun launch`,
    or by `mpiexec -n N python script.py`.

    Raises:
        RuntimeError: called twice; MPI or NCCL is missing; the processes were not started through mpiexec.
        ValueError: an unknown backend or init_method, or a rank that does not fit.
        DistBackendError: not all processes came within the timeout.
    """
    if _World.group is not None:
        raise RuntimeError("trying to initialize the default process group twice!")
    if store is not None or pg_options is not None:
        raise ValueError("init_process_group: store and pg_options are PyTorch's own objects; leave them out.")
    if isinstance(backend, int):  # PyNorch: (rank, world_size)
        world_size = init_method if isinstance(init_method, int) else world_size
        backend, rank, init_method = None, backend, None
    here = environment.place()
    rank = here.rank if rank in (-1, None) else int(rank)
    size = here.world_size if world_size in (-1, None) else int(world_size)
    if not 0 <= rank < size:
        raise ValueError(f"init_process_group: rank is {rank} and world_size {size}; a rank lies in [0, {size - 1}].")
    address, port = _address(init_method)
    backend, engine_name = _backend_of(backend)
    seconds = environment.seconds(timeout, DEFAULT_TIMEOUT[backend])
    log, temporary = os.environ.get("MYTORCHRUN_COLLECTIVE_LOG") if size > 1 else None, False
    if engine_name == "nccl":
        _use_gpu(device_id, here.local_rank)
        engine = nccl.NCCLEngine.world(rank, size, address, port, seconds)
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
        os.remove(log)  # all have it mapped


def _address(init_method):
    """(address, port) that init_method, or the environment, names.

    Raises:
        ValueError: another kind of init_method.
    """
    if init_method in (None, "env://"):
        return environment.master()
    kind, _, rest = str(init_method).partition("://")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not port.isdigit():
        raise ValueError(f"init_process_group: init_method is {init_method!r}; expected 'env://' or 'tcp://host:port'.")
    return host, int(port)


def _use_gpu(device_id, local_rank):
    """Make the device, or the local rank's GPU, the current one."""
    if device_id is not None:
        cuda.set_device(device_id)
    elif cuda.device_count() > 1:
        cuda.set_device(local_rank % cuda.device_count())


def _check_world(engine, rank, size):
    """Compare MPI's numbers with the program's.

    Raises:
        RuntimeError: the process was not started through mpiexec.
        ValueError: they differ.
    """
    if engine.size == 1:
        raise RuntimeError(
            f"init_process_group: rank {rank} of {size} was not started through mpiexec, so MPI sees it alone. Start the "
            "program with `mytorchrun launch --nproc_per_node N script.py` or `mpiexec -n N python script.py`."
        )
    if (engine.rank, engine.size) != (rank, size):
        raise ValueError(
            f"init_process_group: rank is {rank} and world_size {size}, but MPI calls this process "
            f"{engine.rank} of {engine.size}."
        )


def _share_log(engine):
    """The path of a log for an MPI engine's ranks; None if they are not all on one machine."""
    same = len(set(all_gather_bytes(engine, socket.gethostname().encode()))) == 1
    return _new_log(engine, 0, engine.size) if same else None


def _new_log(engine, owner, size):
    """The path of a log for so many ranks, which process `owner` makes."""
    mine = CollectiveLog.create(size).encode() if engine.rank == owner else b""
    return all_gather_bytes(engine, mine)[owner].decode()


def destroy_process_group(group: Group = None) -> None:
    """Leave a group; without one, all of them.

    Raises:
        ValueError: there is none.
    """
    if group is None or group is _World.group:
        default_group().engine.close()
        _World.group = None
    elif group is not NON_MEMBER:
        group.engine.close()


def default_group() -> ProcessGroup:
    """The default group.

    Raises:
        ValueError: there is none.
    """
    if _World.group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _World.group


def resolve(group: Group) -> ProcessGroup | None:
    """The ProcessGroup that an argument `group` means; None if this process is not in it."""
    if group is None or isinstance(group, GroupMember):
        return default_group()
    return None if group is NON_MEMBER else group


def member_of(group: Group) -> ProcessGroup:
    """As `resolve`, where the process has to be in it.

    Raises:
        ValueError: it is not.
    """
    found = resolve(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return found


def get_rank(group: Group = None) -> int:
    """This process's number in the group; -1 if it is not in it."""
    found = resolve(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Group = None) -> int:
    """How many processes the group has; -1 if this one is not in it."""
    found = resolve(group)
    return -1 if found is None else found.size()


def get_backend(group: Group = None) -> str:
    """The name of the group's backend."""
    return member_of(group).backend


def get_process_group_ranks(group: Group = None) -> list[int]:
    """The group's ranks, by their numbers in the default group."""
    found = resolve(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: Group, group_rank: int) -> int:
    """The number in the default group of the process that `group` calls `group_rank`."""
    return member_of(group).ranks[group_rank]


def get_group_rank(group: Group, global_rank: int) -> int:
    """The number in `group` of a process of the default group."""
    return member_of(group).number_of(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine."""
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
    """A group of some of the processes. All processes call it, in the same order, also those outside.

    Args:
        ranks: numbers in the default group; None for all.
        timeout: by default that of the default group.
        backend: must be the default group's; another one would need another engine in the same program.

    Returns:
        The group, or GroupMember.NON_GROUP_MEMBER.

    Raises:
        ValueError: a rank that does not exist or comes twice; another backend.
    """
    world = default_group()
    ranks = list(range(world.size())) if ranks is None else sorted(int(r) for r in ranks)
    if pg_options is not None:
        raise ValueError("new_group: pg_options are PyTorch's own objects; leave them out.")
    if len(set(ranks)) != len(ranks) or not all(0 <= r < world.size() for r in ranks) or not ranks:
        raise ValueError(f"new_group: ranks is {ranks}; expected different numbers in [0, {world.size() - 1}].")
    if backend is not None and _backend_of(backend)[1] != _backend_of(world.backend)[1]:
        raise ValueError(f"new_group: backend is {backend!r}; the default group runs over {world.backend!r}.")
    if use_local_synchronization:
        warnings.warn("new_group: use_local_synchronization is ignored; all processes call new_group.", stacklevel=2)
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
