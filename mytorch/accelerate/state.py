"""Who this process is among how many, and what processes say to each other.

`ProcessState` reads the launcher's environment and joins the process group (`mytorch.distributed`), unless the
program has joined it already. Everything that processes exchange goes through the few methods at its end.
"""

import os
from typing import Any

from .. import cuda, distributed
from .._array import Array
from .._tensor import Tensor
from ..backend import as_device, cuda_available, device_of, on
from ..base.errors import DeviceError
from ..distributed import environment


class Flag(int):
    """A bool that may also be called: `is_main_process` and `is_main_process()` mean the same."""

    def __new__(cls, value):
        return super().__new__(cls, bool(value))

    def __call__(self):
        return bool(self)

    def __repr__(self):
        return repr(bool(self))


class ProcessState:
    """This process and the others.

    Args:
        device: where it computes; by default the GPU of its local rank if there is one, else the CPU.
        rank, num_processes: by default what the launcher has put into the environment.
        address, port: where the first process listens; by default the launcher's.

    Raises:
        RuntimeError: several processes are wanted that no launcher has started.
    """

    def __init__(
        self, device=None, rank: int | None = None, num_processes: int | None = None, address: str | None = None,
        port: int | None = None,
    ):  # fmt: skip
        here = environment.place()
        if distributed.is_initialized():
            here = here._replace(rank=distributed.get_rank(), world_size=distributed.get_world_size())
        if num_processes is not None and num_processes != here.world_size:
            raise RuntimeError(
                f"Accelerator: num_gpus is {num_processes}, but {here.world_size} "
                f"{'process was' if here.world_size == 1 else 'processes were'} started; start the script with "
                f"`mytorchrun launch --num_gpus {num_processes}`."
            )
        self.rank = here.rank if rank is None else rank
        self.local_rank = here.local_rank
        self.num_processes = here.world_size
        if device is None:
            on_gpu = cuda_available() and "MYTORCHRUN_CPU" not in os.environ
            device = f"cuda:{self.local_rank}" if on_gpu else "cpu"
        self.device = as_device(device)
        if self.device.type == "meta":
            raise DeviceError("tensors there have no numbers to train with.")
        if self.device.type == "cuda":
            cuda.set_device(self.device)
        if self.num_processes > 1 and not distributed.is_initialized():
            if address is not None:
                os.environ["MASTER_ADDR"] = str(address)
            if port is not None:
                os.environ["MASTER_PORT"] = str(port)
            distributed.init_process_group(
                "nccl" if self.device.type == "cuda" else "mpi", rank=self.rank, world_size=self.num_processes
            )

    def __repr__(self):
        backend = f"YES  Backend: {distributed.get_backend()}" if self.together else "NO"
        return (
            f"Distributed environment: {backend}\nNum processes: {self.num_processes}\nProcess index: {self.rank}\n"
            f"Local process index: {self.local_rank}\nDevice: {self.device}\n"
        )

    @property
    def process_index(self) -> int:
        return self.rank

    @property
    def local_process_index(self) -> int:
        return self.local_rank

    @property
    def is_main_process(self) -> Flag:
        return Flag(self.rank == 0)

    @property
    def is_local_main_process(self) -> Flag:
        return Flag(self.local_rank == 0)

    # -- what processes exchange; alone, each is its own answer -----------------------------------------

    @property
    def together(self):
        """`mytorch.distributed` if there are several processes, else None."""
        return None if self.num_processes == 1 else distributed

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.together:
            self.together.barrier()

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """The sum (or "mean", "max", "min") over processes of an Array, in place; returns it."""
        if self.together:
            self.together.all_reduce(Tensor._of(array), op)
        return array

    def gather(self, array: Array) -> Array:
        """The Arrays of all processes, joined along the first axis; numbers become an axis."""
        if not self.together:
            return array
        whole = (1, *array.shape) if array.ndim == 0 else tuple(array.shape)
        out = Array(_empty((self.num_processes * whole[0], *whole[1:]), array._array))
        self.together.all_gather_into_tensor(Tensor._of(out), Tensor._of(array))
        return out

    def broadcast(self, array: Array, source: int = 0) -> Array:
        """The Array of one process, to all; in place; returns it."""
        if self.together:
            self.together.broadcast(Tensor._of(array), source)
        return array

    def gather_objects(self, obj: Any) -> list[Any]:
        """The objects (plain data and tensors) of all processes, in a list; the same on every process."""
        out = [obj] * self.num_processes
        if self.together:
            self.together.all_gather_object(out, obj)
        return out

    def broadcast_object(self, obj: Any, source: int = 0) -> Any:
        """The object of one process, on every process."""
        box = [obj]
        if self.together:
            self.together.broadcast_object_list(box, source)
        return box[0]


def _empty(shape, like):
    xp, there = on(device_of(like))
    with there:
        return xp.empty(shape, like.dtype)
