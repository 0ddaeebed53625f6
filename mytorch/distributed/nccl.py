"""The NCCL engine: collectives between GPUs through CuPy's `cupy.cuda.nccl`.

The unique id that the ranks meet by goes from rank 0 to the others over TCP (`rendezvous.py`). Transfers run
on a stream of the engine's own: it waits for what the current stream has computed so far, and `Work.wait`
lets the current stream wait for it, so the CPU never does. A thread watches for transfers that take longer than the
timeout, and for errors of the other ranks; since a hung NCCL kernel cannot be raised out of, it says so and ends the process.

Source: https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.nccl.NcclCommunicator.html
"""

import collections
import importlib
import os
import sys
import threading
import time

import numpy as np

from ..backend import cupy_ns
from ..base import dtypes
from .engine import Engine, ReduceOp, reduction_of
from .rendezvous import exchange
from .work import DistBackendError, Work

# NCCL's constants, as nccl.h has them; CuPy names those that its NCCL knows.
_NAMES = "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
_TYPES = {dtypes.as_numpy(name): f"NCCL_{name.upper()}" for name in _NAMES} | {np.dtype(np.bool_): "NCCL_UINT8"}
_OPS = {ReduceOp.SUM: "NCCL_SUM", ReduceOp.PRODUCT: "NCCL_PROD", ReduceOp.MIN: "NCCL_MIN", ReduceOp.MAX: "NCCL_MAX"}
_AVG = 4  # ncclAvg, which CuPy does not name
_NOT_READY = 600  # cudaErrorNotReady


def load():
    """CuPy's module of NCCL.

    Raises:
        DeviceError: CuPy or a GPU is missing. RuntimeError: this CuPy has no NCCL.
    """
    cupy_ns()
    nccl = importlib.import_module("cupy.cuda.nccl")  # `import cupy` leaves it out
    if not nccl.available:
        raise RuntimeError(
            "distributed: this CuPy was built without NCCL, or its library is not installed (nvidia-nccl-cu12 or -cu13)."
        )
    return nccl


class NCCLWork(Work):
    """A transfer on the engine's stream.

    Args:
        event: recorded behind it.
    """

    def __init__(self, event, keep, label, timeout, explain):
        super().__init__(label, timeout, explain)
        self.event = event
        self.keep = keep
        self.started = time.monotonic()

    def poll(self):
        """Whether the GPU has done it.

        Raises:
            DistBackendError: the GPU has failed.
        """
        status = cupy_ns().cuda.runtime.eventQuery(self.event.ptr)  # the event's `done` is False for an error too
        if status not in (0, _NOT_READY):
            self.error = DistBackendError(f"{self.label}: the GPU failed, CUDA error {status}.")
            raise self.error
        return status == 0

    def wait(self, timeout=None):
        """Let the current stream wait for the transfer; the CPU goes on.

        What must be done with the result is put on the current stream, behind the transfer.
        """
        if not self._done:
            cupy_ns().cuda.get_current_stream().wait_event(self.event)
            self._complete()
        return True

    synchronize = wait


class NCCLEngine(Engine):
    """Collectives over an NCCL communicator, on the current GPU.

    Args:
        rank, size: within the communicator.
        unique_id: NCCL's, the same in all ranks.
        timeout, explain: see Engine.
    """

    name = "nccl"
    device_type = "cuda"
    averages = True

    def __init__(self, rank, size, unique_id, timeout=None, explain=None):
        super().__init__(rank, size, timeout, explain)
        self.nccl = load()
        self.stream = cupy_ns().cuda.Stream(non_blocking=True, priority=-1)  # before what is being computed
        self.device = cupy_ns().cuda.Device()
        self.comm = self._connect(unique_id)
        self.pending = collections.deque()  # works whose memory must stay, the oldest first
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.watcher = threading.Thread(target=self._watch, name="mytorch-nccl", daemon=True)
        self.watcher.start()

    @classmethod
    def world(cls, rank, size, address, port, timeout=None):
        """The engine over all ranks, which meet at (address, port)."""
        mine = encode_id(load().get_unique_id()) if rank == 0 else None
        return cls(rank, size, decode_id(exchange(mine, rank, size, address, port, timeout)), timeout)

    def _connect(self, unique_id):
        """The communicator, made by all ranks together; NCCL waits for them without end."""
        late = f"connecting {self.size} ranks timed out after {self.timeout or 0:g} seconds"
        timer = threading.Timer(self.timeout or 0, self._give_up, (late,))
        timer.daemon = True
        if self.timeout is not None:
            timer.start()
        try:
            return self.nccl.NcclCommunicator(self.size, unique_id, self.rank)
        finally:
            timer.cancel()

    def _give_up(self, problem):
        """Say what went wrong, and end the process: a hung kernel can't be raised out of."""
        who = f" {self.explain()}" if self.explain else ""
        sys.stderr.write(f"{DistBackendError.__name__}: {problem}.{who}\n")
        sys.stderr.flush()
        os._exit(1)

    def _watch(self):
        """Name the transfer that fails, or takes longer than the timeout, and end the process."""
        self.device.use()  # a thread starts on GPU 0, where asking for an event would take memory
        while not self.closed.wait(1.0):
            problem = self._problem()
            if problem is not None and not self.closed.is_set():
                self.comm.abort()  # so that the other ranks see it at once
                self._give_up(problem)

    def _problem(self):
        """What is wrong with the transfers under way, or None."""
        work = None
        try:
            self.comm.check_async_error()  # a peer's, or the network's
            self._forget_done()
            with self.lock:
                work = self.pending[0] if self.pending else None
        except Exception as error:  # NCCL's and CuPy's own
            return f"{work.label if work else 'a transfer'} failed ({error})"
        if work is not None and self.timeout is not None and time.monotonic() - work.started > self.timeout:
            return f"{work.label} timed out after {self.timeout:g} seconds"
        return None

    def _forget_done(self):
        """Let go of the memory of transfers that have ended; a stream works in order."""
        with self.lock:
            while self.pending and self.pending[0].poll():
                self.pending.popleft()

    def _run(self, transfer, keep, label):
        """Put `transfer(stream pointer)` on the engine's stream, behind the current one's work."""
        xp = cupy_ns()
        ready = xp.cuda.get_current_stream().record()
        self.stream.wait_event(ready)
        transfer(self.stream.ptr)
        work = NCCLWork(self.stream.record(), keep, label, self.timeout, self.explain)
        self.pending.append(work)
        self._forget_done()
        return work

    def watch(self, work):
        """Nothing: the GPU drives its works."""

    def _type(self, x):
        name = _TYPES.get(x.dtype)
        if name is None or not hasattr(self.nccl, name):
            raise TypeError(f"This NCCL has no type for {x.dtype}; cast the tensor.")
        return getattr(self.nccl, name)

    def _op(self, x, op):
        op = reduction_of(x.dtype, op)
        if op is ReduceOp.AVG:
            return _AVG
        if op not in _OPS:
            raise ValueError(f"NCCL has no ReduceOp.{op.name}.")
        return getattr(self.nccl, _OPS[op])

    # -- moving bytes ----------------------------------------------------------------------------

    def barrier(self, label=""):
        """All ranks are here; the CPU waits, too."""
        x = cupy_ns().zeros(1, np.int32)
        work = self.all_reduce(x, ReduceOp.SUM, label)
        return work.finish(work.event.synchronize)

    def broadcast(self, x, root, label=""):
        byte = self.nccl.NCCL_UINT8
        return self._run(lambda s: self.comm.broadcast(x.data.ptr, x.data.ptr, x.nbytes, byte, root, s), x, label)

    def all_gather(self, out, x, label=""):
        byte = self.nccl.NCCL_UINT8
        return self._run(lambda s: self.comm.allGather(x.data.ptr, out.data.ptr, x.nbytes, byte, s), (out, x), label)

    def _exchange(self, sends, receives, keep, label):
        """One group of NCCL's sends and receives: (pointer, bytes, peer) each."""
        byte = self.nccl.NCCL_UINT8

        def transfer(stream):
            self.nccl.groupStart()
            for pointer, nbytes, peer in sends:
                if nbytes:
                    self.comm.send(pointer, nbytes, byte, peer, stream)
            for pointer, nbytes, peer in receives:
                if nbytes:
                    self.comm.recv(pointer, nbytes, byte, peer, stream)
            self.nccl.groupEnd()

        return self._run(transfer, keep, label)

    def gather(self, out, x, root, label=""):
        receives = []
        if self.rank == root:
            receives = [(out.data.ptr + i * x.nbytes, x.nbytes, i) for i in range(self.size)]
        return self._exchange([(x.data.ptr, x.nbytes, root)], receives, (out, x), label)

    def scatter(self, out, x, root, label=""):
        sends = []
        if self.rank == root:
            sends = [(x.data.ptr + i * out.nbytes, out.nbytes, i) for i in range(self.size)]
        return self._exchange(sends, [(out.data.ptr, out.nbytes, root)], (out, x), label)

    def all_to_all(self, out, x, out_counts, in_counts, label=""):
        def parts(array, counts):
            start = array.data.ptr
            for peer, count in enumerate(counts):
                yield start, count * array.itemsize, peer
                start += count * array.itemsize

        return self._exchange(list(parts(x, in_counts)), list(parts(out, out_counts)), (out, x), label)

    def send(self, x, to, tag, label=""):
        if tag:
            raise ValueError(f"{label}: NCCL has no tags; got tag={tag}.")
        return self._exchange([(x.data.ptr, x.nbytes, to)], [], x, label)

    def receive(self, x, source, tag, label=""):
        if tag or source is None:
            raise ValueError(f"{label}: NCCL needs the source's rank, and has no tags.")
        work = self._exchange([], [(x.data.ptr, x.nbytes, source)], x, label)
        work.source = source
        return work

    # -- reducing --------------------------------------------------------------------------------

    def all_reduce(self, x, op, label=""):
        kind, how = self._type(x), self._op(x, op)
        return self._run(lambda s: self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, kind, how, s), x, label)

    def reduce(self, x, root, op, label=""):
        kind, how = self._type(x), self._op(x, op)
        out = x if self.rank == root else cupy_ns().empty_like(x)
        return self._run(
            lambda s: self.comm.reduce(x.data.ptr, out.data.ptr, x.size, kind, how, root, s), (x, out), label
        )

    def reduce_scatter(self, out, x, op, label=""):
        kind, how = self._type(x), self._op(x, op)
        return self._run(
            lambda s: self.comm.reduceScatter(x.data.ptr, out.data.ptr, out.size, kind, how, s), (out, x), label
        )

    # -- groups ----------------------------------------------------------------------------------

    def split(self, ranks):
        """NCCL's own way to a new communicator: a new unique id from the group's first rank to all."""
        raw = encode_id(self.nccl.get_unique_id()) if self.rank == ranks[0] else bytes(256)
        xp = cupy_ns()
        shared = xp.asarray(np.frombuffer(raw.ljust(256, b"\0"), np.uint8).copy())
        work = self.broadcast(shared, ranks[0], "new_group")
        work.wait()
        if self.rank not in ranks:
            return None
        unique = decode_id(xp.asnumpy(shared).tobytes())
        return NCCLEngine(list(ranks).index(self.rank), len(ranks), unique, self.timeout, self.explain)

    def close(self):
        self.stream.synchronize()
        self.closed.set()
        self.watcher.join()  # it asks the communicator
        self.comm.destroy()


def encode_id(unique_id):
    """NCCL's unique id as plain bytes, and one more: in which form CuPy gave it, since it wants back what it gave. That is
    bytes, and before CuPy 14 a tuple of numbers, which are signed where C's char is."""
    if isinstance(unique_id, bytes):
        return unique_id + b"\2"
    return bytes(int(b) & 0xFF for b in unique_id) + bytes([min(unique_id) < 0])


def decode_id(content):
    """The unique id that `encode_id` got."""
    content, form = content[:128], content[128]
    if form == 2:
        return content
    return tuple(b - 256 if form == 1 and b > 127 else b for b in content)
