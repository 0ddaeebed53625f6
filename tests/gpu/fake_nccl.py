"""A fake of `cupy.cuda.nccl` for several processes: the collectives of NcclCommunicator, over MPI and the fake CuPy.

The methods have the names and the arguments of CuPy's documentation. A communicator needs the unique id that the first rank has
created, as in NCCL. Messages are compared between the ranks: another collective, count or type is an error on all ranks.
"""

import ctypes
import os
import sys
import tempfile
import time
import types
from pathlib import Path

import ml_dtypes
import numpy as np

# The numbers of ncclDataType_t and ncclRedOp_t in nccl.h
TYPES = {
    0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16, 7: np.float32, 8: np.float64,
    9: ml_dtypes.bfloat16,
}  # fmt: skip
CONSTANTS = {
    "NCCL_INT8": 0, "NCCL_CHAR": 0, "NCCL_UINT8": 1, "NCCL_INT32": 2, "NCCL_INT": 2, "NCCL_UINT32": 3, "NCCL_INT64": 4,
    "NCCL_UINT64": 5, "NCCL_FLOAT16": 6, "NCCL_HALF": 6, "NCCL_FLOAT32": 7, "NCCL_FLOAT": 7, "NCCL_FLOAT64": 8,
    "NCCL_DOUBLE": 8, "NCCL_BFLOAT16": 9, "NCCL_SUM": 0, "NCCL_PROD": 1, "NCCL_MAX": 2, "NCCL_MIN": 3,
}  # fmt: skip
REDUCTIONS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}
AVERAGE = 4
calls = []  # the names of all calls of this process
_group = None  # transfers between groupStart and groupEnd


def memory(pointer, count, dtype):
    """The array of `count` elements at an address."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer) if size else b"", np.uint8).view(dtype)


def get_unique_id():
    return os.urandom(16).hex().encode().ljust(128, b"x")


def groupStart():
    global _group
    _group = []


def groupEnd():
    global _group
    transfers, _group = _group, None
    for request in [start() for start in transfers]:
        request.Wait()


class NcclCommunicator:
    """Communicates over MPI. Creation waits for all ranks, which leave files named after the unique id."""

    def __init__(self, ndev, commId, rank):
        from mytorch.distributed.mpi import load

        MPI = load()
        assert type(commId) is bytes
        assert len(commId) == 128
        world, name = MPI.COMM_WORLD, commId[:32].decode()
        folder = Path(tempfile.gettempdir()) / f"fake_nccl_{name}"
        folder.mkdir(exist_ok=True)
        (folder / f"{rank}.new").write_text(str(world.rank))
        (folder / f"{rank}.new").rename(folder / str(rank))
        until, paths = time.monotonic() + 60, [folder / str(r) for r in range(ndev)]
        while not all(path.exists() for path in paths):
            assert time.monotonic() < until, "a rank did not create the communicator"
            time.sleep(0.002)
        members = world.group.Incl([int(path.read_text()) for path in paths])
        self.comm, self.rank = world.Create_group(members, int(name[:3], 16)), rank
        self.comm.Barrier()
        if rank == 0:
            for path in paths:
                path.unlink()
            folder.rmdir()

    def _all(self, send, count, datatype, *call):
        """Returns the arrays of all ranks, (ranks, count)."""
        calls.append(call[0])
        mine = (*call, count, datatype)
        every = self.comm.allgather(mine)
        assert all(other == mine for other in every), f"the ranks do not make the same call: {every}"
        out = np.empty((self.comm.size, count), TYPES[datatype])
        self.comm.Allgather(memory(send, count, TYPES[datatype]).view(np.uint8), out.view(np.uint8))
        return out

    def _reduced(self, send, count, datatype, op, name):
        arrays = self._all(send, count, datatype, name, op)
        wide = np.float32 if arrays.dtype.itemsize == 2 else arrays.dtype
        total = REDUCTIONS[op].reduce(arrays.astype(wide), axis=0)
        return total / len(arrays) if op == AVERAGE else total

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        memory(recvbuf, count, TYPES[datatype])[:] = self._reduced(sendbuf, count, datatype, op, "allReduce")

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        total = self._reduced(sendbuf, count, datatype, op, "reduce")
        if self.rank == root:
            memory(recvbuf, count, TYPES[datatype])[:] = total

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        total = self._reduced(sendbuf, recvcount * self.comm.size, datatype, op, "reduceScatter")
        memory(recvbuf, recvcount, TYPES[datatype])[:] = total[self.rank * recvcount : (self.rank + 1) * recvcount]

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        arrays = self._all(sendbuf, count, datatype, "allGather")
        memory(recvbuf, arrays.size, TYPES[datatype])[:] = arrays.reshape(-1)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        memory(recvbuff, count, TYPES[datatype])[:] = self._all(sendbuff, count, datatype, "broadcast", root)[root]

    def send(self, sendbuf, count, datatype, peer, stream):
        calls.append("send")
        _group.append(lambda: self.comm.Isend(memory(sendbuf, count, TYPES[datatype]).view(np.uint8), peer))

    def recv(self, recvbuf, count, datatype, peer, stream):
        calls.append("recv")
        _group.append(lambda: self.comm.Irecv(memory(recvbuf, count, TYPES[datatype]).view(np.uint8), peer))

    def check_async_error(self):
        """No error yet."""

    def abort(self):
        self.comm.Abort(1)

    def destroy(self):
        self.comm.Free()


def install():
    """Makes `import cupy.cuda.nccl` return the fake. The fake CuPy must be installed, and its transfers end at once."""
    sys.modules["cupy"].cuda.runtime.eventQuery = lambda event: 0
    module = types.ModuleType("cupy.cuda.nccl")
    module.__dict__.update(
        CONSTANTS, available=True, NcclCommunicator=NcclCommunicator, get_unique_id=get_unique_id, groupStart=groupStart,
        groupEnd=groupEnd,
    )  # fmt: skip
    sys.modules[module.__name__] = module
