"""The NCCL engine: collectives between GPUs through CuPy's `cupy.cuda.nccl`.

Rank 0 sends NCCL's unique id to the other ranks over TCP (`rendezvous.py`). Transfers run on the engine's stream. The
stream waits for earlier work of the current stream. `Work.wait` makes the current stream wait for the transfer, so
the CPU does not wait. A thread watches for timeouts and for errors of other ranks. A hung NCCL kernel cannot be
interrupted by an exception, so the thread prints the reason and ends the process.

Source: https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.nccl.NcclCommunicator.html
"""

import collections
import importlib
import os
import sys
import threading
import time

import numpy as np

from ..arrays import capturing, cupy_ns, dtypes
from .engine import Engine, ReduceOp, reduction_of
from .rendezvous import exchange
from .work import DistBackendError, Work

# NCCL's constants, as in nccl.h. CuPy defines the dtypes of its NCCL version.
_NAMES = "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
_TYPES = {dtypes.as_numpy(name): f"NCCL_{name.upper()}" for name in _NAMES} | {np.dtype(np.bool_): "NCCL_UINT8"}
_OPS = {ReduceOp.SUM: "NCCL_SUM", ReduceOp.PRODUCT: "NCCL_PROD", ReduceOp.MIN: "NCCL_MIN", ReduceOp.MAX: "NCCL_MAX"}
_AVG = 4  # ncclAvg, which CuPy does not define
_NOT_READY = 600  # cudaErrorNotReady


def load():
    """Return CuPy's NCCL module.

    Raises:
        DeviceError: if CuPy or a GPU is missing.
        RuntimeError: if this CuPy has no NCCL.
    """
    cupy_ns()
    nccl = importlib.import_module("cupy.cuda.nccl")  # `import cupy` leaves it out
    if not nccl.available:
        raise RuntimeError(
            "distributed: expected CuPy with NCCL, found none. Install nvidia-nccl-cu12 or nvidia-nccl-cu13."
        )
    return nccl


class NCCLWork(Work):
    """A transfer on the engine's stream.

    Args:
        event: CUDA event, recorded after the transfer.
        keep: arrays that must exist until the transfer has ended.
        label: description of the transfer for messages.
        timeout: time limit in seconds.
        explain: see Engine.
    """

    def __init__(self, event, keep, label, timeout, explain):
        super().__init__(label, timeout, explain)
        self.event = event
        self.keep = keep
        self.started = time.monotonic()

    def poll(self):
        """Return True if the GPU has finished the transfer.

        Raises:
            DistBackendError: if the GPU reports an error.
            CaptureError: during the capture of a CUDA graph.
        """
        capturing.refuse("asking whether a collective has ended", "call wait(), which the graph contains.")
        status = cupy_ns().cuda.runtime.eventQuery(self.event.ptr)  # `event.done` is False after an error too
        if status not in (0, _NOT_READY):
            self.error = DistBackendError(f"{self.label}: the GPU failed, CUDA error {status}.")
            raise self.error
        return status == 0

    def wait(self, timeout=None):
        """Make the current stream wait for the transfer; the CPU continues.

        Later steps, such as copies of the result, run on the current stream.
        """
        if not self._done:
            cupy_ns().cuda.get_current_stream().wait_event(self.event)
            self._complete()
        return True

    synchronize = wait


class NCCLEngine(Engine):
    """Collectives over an NCCL communicator, on the current GPU.

    Args:
        rank: rank within the communicator.
        size: number of ranks.
        unique_id: NCCL's unique id, the same on all ranks.
        timeout: see Engine.
        explain: see Engine.
    """

    name = "nccl"
    device_type = "cuda"
    averages = True

    def __init__(self, rank, size, unique_id, timeout=None, explain=None):
        super().__init__(rank, size, timeout, explain)
        self.nccl = load()
        self.stream = cupy_ns().cuda.Stream(non_blocking=True, priority=-1)  # a higher priority than computation
        self.device = cupy_ns().cuda.Device()
        self.comm = self._connect(unique_id)
        self.pending = collections.deque()  # works whose memory must stay, oldest first
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.watcher = threading.Thread(target=self._watch, name="mytorch-nccl", daemon=True)
        self.watcher.start()

    @classmethod
    def world(cls, rank, size, address, port, timeout=None, store=None):
        """Return the engine over all ranks, which connect to (address, port), or read from a store."""
        mine = encode_id(load().get_unique_id()) if rank == 0 else None
        if store is not None and rank == 0:
            store.set("nccl_id", mine)
        mine = exchange(mine, rank, size, address, port, timeout) if store is None else store.get("nccl_id")
        return cls(rank, size, decode_id(mine), timeout)

    def _connect(self, unique_id):
        """Create the communicator on all ranks. NCCL waits for missing ranks indefinitely."""
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
        """Print the error and end the process: a hung kernel cannot be interrupted by an exception."""
        who = f" {self.explain()}" if self.explain else ""
        sys.stderr.write(f"{DistBackendError.__name__}: {problem}.{who}\n")
        sys.stderr.flush()
        os._exit(1)

    def _watch(self):
        """End the process if a transfer fails or exceeds the timeout, and name the transfer."""
        self.device.use()  # a thread starts on GPU 0, where querying an event would allocate memory
        while not self.closed.wait(1.0):
            problem = self._problem()
            if problem is not None and not self.closed.is_set():
                self.comm.abort()  # lets the other ranks notice the failure immediately
                self._give_up(problem)

    def _problem(self):
        """Return a description of the failed transfer, or None."""
        work = None
        try:
            self.comm.check_async_error()  # errors of another rank or the network
            self._forget_done()
            with self.lock:
                work = self.pending[0] if self.pending else None
        except Exception as error:  # various types of NCCL and CuPy
            return f"{work.label if work else 'a transfer'} failed ({error})"
        if work is not None and self.timeout is not None and time.monotonic() - work.started > self.timeout:
            return f"{work.label} timed out after {self.timeout:g} seconds"
        return None

    def _forget_done(self):
        """Release the memory of finished transfers; a stream works in order."""
        with self.lock:
            while self.pending and self.pending[0].poll():
                self.pending.popleft()

    def _run(self, transfer, keep, label):
        """Run `transfer(stream pointer)` on the engine's stream, after the current stream's work."""
        xp = cupy_ns()
        ready = xp.cuda.get_current_stream().record()
        self.stream.wait_event(ready)
        transfer(self.stream.ptr)
        work = NCCLWork(self.stream.record(), keep, label, self.timeout, self.explain)
        if capturing.is_recording():  # the event belongs to the graph and must not be queried, by the watcher either
            capturing.current.kept.append(keep)
            return work
        self.pending.append(work)
        self._forget_done()
        return work

    def watch(self, work):
        """Do nothing: the GPU runs its transfers independently."""

    def _type(self, x):
        name = _TYPES.get(x.dtype)
        if name is None or not hasattr(self.nccl, name):
            raise TypeError(f"NCCL: expected a supported dtype, got {x.dtype}. Convert the tensor first.")
        return getattr(self.nccl, name)

    def _op(self, x, op):
        op = reduction_of(x.dtype, op)
        if op is ReduceOp.AVG:
            return _AVG
        if op not in _OPS:
            raise ValueError(f"NCCL: ReduceOp.{op.name} is not supported.")
        return getattr(self.nccl, _OPS[op])

    # -- transfers -------------------------------------------------------------------------------

    def barrier(self, label=""):
        """Wait for all ranks, also on the CPU."""
        capturing.refuse("barrier", "it makes the CPU wait. Call it before or after the step.")
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
        """Run NCCL sends and receives as one group; each is (pointer, bytes, peer)."""
        byte = self.nccl.NCCL_UINT8

        def transfer(stream):
            self.nccl.groupStart()
            try:
                for pointer, nbytes, peer in sends:
                    if nbytes:
                        self.comm.send(pointer, nbytes, byte, peer, stream)
                for pointer, nbytes, peer in receives:
                    if nbytes:
                        self.comm.recv(pointer, nbytes, byte, peer, stream)
            finally:  # NCCL would add all later transfers of the thread to an open group
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
            raise ValueError(f"{label}: expected tag=0, because NCCL has no tags, got tag={tag}.")
        return self._exchange([(x.data.ptr, x.nbytes, to)], [], x, label)

    def receive(self, x, source, tag, label=""):
        if tag or source is None:
            raise ValueError(f"{label}: expected the rank of the source and tag=0, because NCCL has no tags.")
        work = self._exchange([], [(x.data.ptr, x.nbytes, source)], x, label)
        work.source = source
        return work

    # -- reductions ------------------------------------------------------------------------------

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
        """Create a communicator with a new unique id, sent from the first rank of the group to all."""
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
        self.watcher.join()  # the thread uses the communicator
        self.comm.destroy()


def encode_id(unique_id):
    """Return NCCL's unique id as bytes, with a last byte that names the form of CuPy's result.

    CuPy 14 returns bytes. Earlier versions return a tuple of numbers, which are signed where C's char is signed.
    """
    if isinstance(unique_id, bytes):
        return unique_id + b"\2"
    return bytes(int(b) & 0xFF for b in unique_id) + bytes([min(unique_id) < 0])


def decode_id(content):
    """Return the unique id that `encode_id` received, in its original form."""
    content, form = content[:128], content[128]
    if form == 2:
        return content
    return tuple(b - 256 if form == 1 and b > 127 else b for b in content)
