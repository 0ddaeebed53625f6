"""ProcessState: the rank of this process, the number of processes, and communication between them.

`ProcessState` reads the launcher's environment and joins the default process group (`mytorch.distributed`) unless the
program has already joined it. The Accelerator communicates only through the methods at the end of the class.
"""

import os
from typing import Any

from .. import cuda, distributed
from ..arrays import as_device, cuda_available, device_of, on
from ..arrays.array import Array
from ..arrays.errors import DeviceError
from ..arrays.tensor import Tensor
from ..distributed import environment


class Flag(int):
    """A bool that may also be called: `is_main_process` and `is_main_process()` are the same."""

    def __new__(cls, value):
        return super().__new__(cls, bool(value))

    def __call__(self):
        return bool(self)

    def __repr__(self):
        return repr(bool(self))


class ProcessState:
    """The state of this process in the process group.

    Args:
        device: device of this process (default: the GPU of its local rank, or the CPU without a GPU).
        rank: rank (default: set by the launcher).
        num_processes: expected number of processes (default: set by the launcher).
        address: address of the first process (default: set by the launcher).
        port: port of the first process (default: set by the launcher).

    Raises:
        RuntimeError: if num_processes differs from the number of started processes.
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
                f"Accelerator: expected {num_processes} started processes (num_gpus={num_processes}), got {here.world_size}. "
                f"Start the script with `mytorchrun launch --num_gpus {num_processes}`."
            )
        self.rank = here.rank if rank is None else rank
        self.local_rank = here.local_rank
        self.num_processes = here.world_size
        if device is None:
            on_gpu = cuda_available() and "MYTORCHRUN_CPU" not in os.environ
            device = f"cuda:{self.local_rank}" if on_gpu else "cpu"
        self.device = as_device(device)
        if self.device.type == "meta":
            raise DeviceError("Accelerator: expected device 'cpu' or 'cuda', got 'meta', whose tensors have no data.")
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

    # -- communication; a single process returns its own values -----------------------------------------

    @property
    def together(self):
        """`mytorch.distributed` with several processes, otherwise None."""
        return None if self.num_processes == 1 else distributed

    def barrier(self) -> None:
        """Waits until all processes reach this call."""
        if self.together:
            self.together.barrier()

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """Reduces an Array over processes, in place, and returns it.

        Args:
            array: input and result.
            op: "sum", "mean", "max" or "min".
        """
        if self.together:
            self.together.all_reduce(Tensor._of(array), op)
        return array

    def gather(self, array: Array) -> Array:
        """Concatenates the Arrays of all processes along the first axis; 0-d Arrays become a vector.

        Args:
            array: input of this process.
        """
        if not self.together:
            return array
        whole = (1, *array.shape) if array.ndim == 0 else tuple(array.shape)
        out = Array(_empty((self.num_processes * whole[0], *whole[1:]), array._array))
        self.together.all_gather_into_tensor(Tensor._of(out), Tensor._of(array))
        return out

    def broadcast(self, array: Array, source: int = 0) -> Array:
        """Copies the Array of one process to all processes, in place, and returns it.

        Args:
            array: Array to send or to overwrite.
            source: rank of the sender.
        """
        if self.together:
            self.together.broadcast(Tensor._of(array), source)
        return array

    def gather_objects(self, obj: Any) -> list[Any]:
        """Returns a list of the objects of all processes, on every process.

        Args:
            obj: plain data and tensors.
        """
        out = [obj] * self.num_processes
        if self.together:
            self.together.all_gather_object(out, obj)
        return out

    def broadcast_object(self, obj: Any, source: int = 0) -> Any:
        """Returns the object of one process, on every process.

        Args:
            obj: plain data and tensors.
            source: rank of the sender.
        """
        box = [obj]
        if self.together:
            self.together.broadcast_object_list(box, source)
        return box[0]


def _empty(shape, like):
    xp, there = on(device_of(like))
    with there:
        return xp.empty(shape, like.dtype)
