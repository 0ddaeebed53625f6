"""The MPI engine: collectives on the CPU through mpi4py.

Every collective is started by MPI's nonblocking call, in the order of the program, and then polled for its
progress: by `Work.wait` when the program waits, and meanwhile, if the program does something else, by one
thread, for MPI moves nothing while nobody calls it. No call blocks inside MPI, so a rank that hangs costs
the others their timeout and no more.

MPI has no 16-bit floats: they are reduced as float32 and rounded once at the end.
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

from ..base import dtypes
from .engine import Engine, ReduceOp, reduction_of
from .work import DistBackendError, Work

_lock = threading.Lock()  # one thread in MPI at a time
_NOTE = 48  # bytes that go with a message
_HALVES = (dtypes.float16.numpy, dtypes.bfloat16.numpy)


def _note(x):
    """What the bytes of an array are, as _NOTE bytes."""
    return np.frombuffer(f"{x.size} numbers of {x.dtype.name}".encode()[:_NOTE].ljust(_NOTE, b"\0"), np.uint8)


def load():
    """mpi4py's MPI, initialised.

    Raises:
        RuntimeError: mpi4py or an MPI library is missing.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.finalize = False  # a rank that fails must not wait for the others in there; see _leave
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"distributed: several processes on CPUs need MPI (pip install mpi4py mpich): {error}"
        ) from error
    _leave_well()
    _unlink_segments()
    return MPI


@functools.cache
def _unlink_segments():
    """Take the names off MPICH's segments of shared memory, which all ranks have mapped once MPI is initialised: they go with the last."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "/dev/shm/mpich" in line:
                Path(line[line.index("/dev/shm") :]).unlink(missing_ok=True)


_failed = False


@functools.cache
def _leave_well():
    """Arrange that the program ends MPI if it ended well; if not, mpiexec shall notice at once."""
    before = sys.excepthook

    def note(kind, error, trace):
        global _failed
        _failed = True
        before(kind, error, trace)

    sys.excepthook = note
    atexit.register(_leave)


def _leave():
    """MPI_Finalize, for which all processes wait; not after an error.

    mpiexec takes an end without it for a failure, so under plain mpiexec this waits as MPI programs do. Under our launcher
    nobody has to, which looks at how each process ended: a rank may end while the others are in a collective, and one that ends
    long after the others must not wait for them in there. It stays for a second, though, in which what it has sent can arrive.
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
    """The thread that asks for the progress of works while the program computes."""

    def __init__(self):
        self.incoming = collections.deque()
        self.wake = threading.Event()
        self.thread = None

    def add(self, work):
        """Look after a work until it has ended."""
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
        request: MPI's handle.
        keep: buffers that must outlive the call.
    """

    def __init__(self, request, keep, label, timeout, explain):
        super().__init__(label, timeout, explain)
        self.request = request
        self.keep = keep
        self.ended = False
        self.status = None

    def progress(self):
        """Let MPI work; whether the call has ended."""
        with _lock:
            if not self.ended and self.request.Test(self.status):
                self.ended = True
                self.keep = None
        return self.ended

    poll = progress


class MPIEngine(Engine):
    """Collectives over an MPI communicator.

    Args:
        comm: the communicator.
        timeout, explain: see Engine.
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
        """The engine over all processes that mpiexec has started."""
        return cls(load().COMM_WORLD.Dup(), timeout)

    def _start(self, call, keep, label, *args):
        with _lock:
            request = call(*args)
        return MPIWork(request, keep, label, self.timeout, self.explain)

    def watch(self, work):
        """Have the thread drive a work that the program does not wait for at once."""
        if not work.is_completed():
            _progress.add(work)

    # -- moving bytes ----------------------------------------------------------------------------

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
        """A message of x's bytes and, behind them, a note of what they are; both lie where they lie."""
        parts = [part for part in (x.reshape(-1).view(np.uint8), note) if part.size]
        m = self.MPI
        kind = m.BYTE.Create_hindexed([part.size for part in parts], [m.Get_address(part) for part in parts]).Commit()
        return [m.BOTTOM, 1, kind], kind

    def send(self, x, to, tag, label=""):
        note = _note(x)
        message, kind = self._with_note(x, note)
        work = self._start(self.comm.Isend, (x, note), label, message, to, tag)
        kind.Free()  # MPI keeps it until the message is sent
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

    # -- reducing --------------------------------------------------------------------------------

    def _for_mpi(self, x, op):
        """(x as MPI can reduce it, MPI's operation)."""
        how = self.ops[reduction_of(x.dtype, op)]
        if x.dtype in _HALVES:
            return x.astype(np.float32), how
        return x.view(np.uint8) if x.dtype == np.bool_ else x, how

    def _take_result(self, x, buffer, op):
        """Put the reduced buffer into x, averaged if asked."""
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
        self.barrier("new_group").wait()  # where the others' absence has a timeout
        if self.rank not in ranks:
            return None
        with _lock:
            comm = self.comm.Create_group(group)
        return MPIEngine(comm, self.timeout, self.explain)

    def close(self):
        with _lock:
            if not self.MPI.Is_finalized():
                self.comm.Free()
