"""The MPI engine: collectives on the CPU through mpi4py.

Every collective starts with MPI's nonblocking call, in program order, and is then polled. `Work.wait` polls while the
program waits. A thread polls while the program computes, because MPI makes progress only during calls. No call blocks
inside MPI, so a hanging rank delays the others at most until their timeout.

MPI has no 16-bit floats. They are reduced in float32 and rounded once at the end.
"""

import atexit
import collections
import contextlib
import functools
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

from ..arrays import dtypes
from .engine import Engine, ReduceOp, reduction_of
from .work import DistBackendError, Work

_lock = threading.Lock()  # only one thread may call MPI at a time
_NOTE = 48  # bytes of the description that follows a message
_HALVES = (dtypes.float16.numpy, dtypes.bfloat16.numpy)


def _note(x):
    """Describe the size and dtype of an array in _NOTE bytes."""
    return np.frombuffer(f"{x.size} numbers of {x.dtype.name}".encode()[:_NOTE].ljust(_NOTE, b"\0"), np.uint8)


def load():
    """Return mpi4py's MPI module, initialized.

    Raises:
        RuntimeError: if mpi4py or an MPI library is missing.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.finalize = False  # a failed rank must not wait in MPI_Finalize; see _leave
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"distributed: several processes on CPUs require MPI ({error}). Run `pip install mpi4py mpich`."
        ) from error
    _leave_well()
    _unlink_segments()
    return MPI


@functools.cache
def _unlink_segments():
    """Remove the names of MPICH's shared memory segments; the memory is freed when the last rank ends."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "/dev/shm/mpich" in line:
                Path(line[line.index("/dev/shm") :]).unlink(missing_ok=True)


_failed = False


@functools.cache
def _leave_well():
    """Call MPI_Finalize at a normal exit; without it, mpiexec notices a failure immediately."""
    before = sys.excepthook

    def note(kind, error, trace):
        global _failed
        _failed = True
        before(kind, error, trace)

    sys.excepthook = note
    atexit.register(_leave)


def _leave():
    """Call MPI_Finalize, which waits for all processes, except after an error.

    mpiexec treats an exit without MPI_Finalize as a failure, so under mpiexec this function waits. The launcher of this
    library checks the exit codes instead. Under it, a rank may end while others are in a collective. This function then
    waits at most a second, so that messages under way can arrive.
    """
    from mpi4py import MPI

    _progress.stop()
    if _failed or not MPI.Is_initialized() or MPI.Is_finalized() or os.getpid() != _owner:
        return
    launched = "MYTORCHRUN_CONTROL" in os.environ
    everyone, until = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + (1.0 if launched else float("inf"))
    while not everyone.Test() and time.monotonic() < until:
        time.sleep(1e-3)
    if not launched:
        MPI.Finalize()


_owner = os.getpid()


class _Progress:
    """A thread that polls works while the program computes."""

    def __init__(self):
        self.incoming = collections.deque()
        self.wake = threading.Event()
        self.thread = None

    def add(self, work):
        """Poll a work until it has ended."""
        self.incoming.append(work)
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="mytorch-mpi", daemon=True)
            self.thread.start()
        self.wake.set()

    def stop(self):
        """End the thread."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.wake.set()
            thread.join(1.0)

    def _run(self):
        me = threading.current_thread()
        works, pause = [], 1e-4
        while self.thread is me:
            while self.incoming:
                works.append(self.incoming.popleft())
                pause = 1e-4
            works = [work for work in works if not work.progress()]
            if works:
                time.sleep(pause)
                pause = min(pause * 1.2, 5e-4)
            else:
                self.wake.wait()
                self.wake.clear()


_progress = _Progress()


class MPIWork(Work):
    """A nonblocking MPI call.

    Args:
        request: request object of mpi4py.
        keep: buffers that must exist until the call has ended.
        label: description of the call for messages.
        timeout: time limit in seconds.
        explain: see Engine.
    """

    def __init__(self, request, keep, label, timeout, explain):
        super().__init__(label, timeout, explain)
        self.request = request
        self.keep = keep
        self.ended = False
        self.status = None

    def progress(self):
        """Let MPI make progress; returns True if the call has ended."""
        with _lock:
            if not self.ended and self.request.Test(self.status):
                self.ended = True
                self.keep = None
        return self.ended

    poll = progress


class MPIEngine(Engine):
    """Collectives over an MPI communicator.

    Args:
        comm: communicator of mpi4py.
        timeout: see Engine.
        explain: see Engine.
    """

    name = "mpi"
    device_type = "cpu"

    def __init__(self, comm, timeout=None, explain=None):
        self.MPI = load()
        super().__init__(comm.Get_rank(), comm.Get_size(), timeout, explain)
        self.comm = comm
        other_names = {"AVG": "SUM", "PRODUCT": "PROD"}
        self.ops = {op: getattr(self.MPI, other_names.get(op.name, op.name)) for op in ReduceOp}

    @classmethod
    def world(cls, timeout=None):
        """Return the engine over all processes that mpiexec has started."""
        return cls(load().COMM_WORLD.Dup(), timeout)

    def _start(self, call, keep, label, *args):
        with _lock:
            request = call(*args)
        return MPIWork(request, keep, label, self.timeout, self.explain)

    def watch(self, work):
        """Let the thread poll a work, because the program does not wait for it immediately."""
        if not work.is_completed():
            _progress.add(work)

    # -- transfers -------------------------------------------------------------------------------

    def _bytes(self, x):
        return None if x is None else [x.reshape(-1).view(np.uint8), self.MPI.BYTE]

    def barrier(self, label=""):
        return self._start(self.comm.Ibarrier, None, label)

    def broadcast(self, x, root, label=""):
        return self._start(self.comm.Ibcast, x, label, self._bytes(x), root)

    def all_gather(self, out, x, label=""):
        return self._start(self.comm.Iallgather, (out, x), label, self._bytes(x), self._bytes(out))

    def gather(self, out, x, root, label=""):
        return self._start(self.comm.Igather, (out, x), label, self._bytes(x), self._bytes(out), root)

    def scatter(self, out, x, root, label=""):
        return self._start(self.comm.Iscatter, (out, x), label, self._bytes(x), self._bytes(out), root)

    def all_to_all(self, out, x, out_counts, in_counts, label=""):
        def part(array, counts):
            counts = np.asarray(counts, np.int64) * array.itemsize
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            return [array.view(np.uint8), (counts.tolist(), starts.tolist()), self.MPI.BYTE]

        return self._start(self.comm.Ialltoallv, (out, x), label, part(x, in_counts), part(out, out_counts))

    def _with_note(self, x, note):
        """Return an MPI message of x's bytes followed by their description, without copying."""
        parts = [part for part in (x.reshape(-1).view(np.uint8), note) if part.size]
        m = self.MPI
        kind = m.BYTE.Create_hindexed([part.size for part in parts], [m.Get_address(part) for part in parts]).Commit()
        return [m.BOTTOM, 1, kind], kind

    def send(self, x, to, tag, label=""):
        note = _note(x)
        message, kind = self._with_note(x, note)
        work = self._start(self.comm.Isend, (x, note), label, message, to, tag)
        kind.Free()  # MPI keeps the datatype until the message is sent
        return work

    def receive(self, x, source, tag, label=""):
        source = self.MPI.ANY_SOURCE if source is None else source
        note = np.zeros(_NOTE, np.uint8)
        message, kind = self._with_note(x, note)
        work = self._start(self.comm.Irecv, (x, note), label, message, source, tag)
        kind.Free()
        work.status = self.MPI.Status()

        def check():
            work.source = work.status.Get_source()
            if not np.array_equal(note, _note(x)):
                sent = note.tobytes().rstrip(b"\0").decode("ascii", "replace")
                work.error = DistBackendError(
                    f"{label}: expected {_note(x).tobytes().rstrip(bytes(1)).decode()}, but "
                    + (f"{sent} was sent." if sent.isprintable() and sent else "a shorter message was sent.")
                )
                raise work.error

        return work.finish(check)

    # -- reductions ------------------------------------------------------------------------------

    def _for_mpi(self, x, op):
        """Return (x in a dtype that MPI can reduce, MPI's operation)."""
        how = self.ops[reduction_of(x.dtype, op)]
        if x.dtype in _HALVES:
            return x.astype(np.float32), how
        return x.view(np.uint8) if x.dtype == np.bool_ else x, how

    def _take_result(self, x, buffer, op):
        """Copy the reduced buffer to x, and divide by the number of processes for AVG."""
        if op is ReduceOp.AVG:
            buffer /= self.size
        if buffer.dtype.itemsize != x.dtype.itemsize:
            x[...] = buffer.astype(x.dtype)

    def all_reduce(self, x, op, label=""):
        buffer, how = self._for_mpi(x, op)
        work = self._start(self.comm.Iallreduce, (x, buffer), label, self.MPI.IN_PLACE, buffer, how)
        return work.finish(lambda: self._take_result(x, buffer, op))

    def reduce(self, x, root, op, label=""):
        buffer, how = self._for_mpi(x, op)
        if self.rank != root:
            return self._start(self.comm.Ireduce, (x, buffer), label, buffer, None, how, root)
        work = self._start(self.comm.Ireduce, (x, buffer), label, self.MPI.IN_PLACE, buffer, how, root)
        return work.finish(lambda: self._take_result(x, buffer, op))

    def reduce_scatter(self, out, x, op, label=""):
        buffer, how = self._for_mpi(x, op)
        into = np.empty(out.shape, buffer.dtype) if x.dtype in _HALVES else out.view(buffer.dtype)
        work = self._start(self.comm.Ireduce_scatter_block, (out, x, into), label, buffer, into, how)
        return work.finish(lambda: self._take_result(out, into, op))

    # -- groups ----------------------------------------------------------------------------------

    def split(self, ranks):
        group = self.comm.Get_group().Incl(list(ranks))
        self.barrier("new_group").wait()  # reports missing ranks after the timeout; MPI's Split has none
        if self.rank not in ranks:
            return None
        with _lock:
            comm = self.comm.Create_group(group)
        return MPIEngine(comm, self.timeout, self.explain)

    def close(self):
        with _lock:
            if not self.MPI.Is_finalized():
                self.comm.Free()
