"""Running a compiled kernel on several cores: arrays are cut along their first axis, one chunk a thread.

The threads are plain Python ones that wait on a queue; kernels release the interpreter lock. An OpenMP pool
would spin between launches and so take the cores from BLAS, whose own threads run in between: measured,
that made a training step five times slower.
"""

import os
import threading
from queue import SimpleQueue

SMALL = 16384  # elements below which handing a chunk to a thread costs more than it saves


def _cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_count = int(os.environ.get("MYTORCH_NUM_THREADS", 0)) or _cores()
_tasks = None
_owner = None


def get_num_threads():
    """How many threads a CPU kernel may use."""
    return _count


def set_num_threads(n):
    """Let CPU kernels use n threads. BLAS has its own setting (OPENBLAS_NUM_THREADS).

    Raises:
        RuntimeError: n is not positive.
    """
    global _count
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}.")
    _count = int(n)


def _serve(tasks):
    while True:
        kernel, arguments, results = tasks.get()
        try:
            kernel(*arguments)
        except BaseException as error:  # handed to the caller, who raises it
            results.put(error)
        else:
            results.put(None)


def _queue(workers):
    """The task queue, with at least `workers` threads behind it; a forked child gets its own."""
    global _tasks, _owner
    if _owner is None or _owner[0] != os.getpid():
        _tasks, _owner = SimpleQueue(), [os.getpid(), 0]
    while _owner[1] < workers:
        threading.Thread(target=_serve, args=(_tasks,), daemon=True, name="mytorch-kernel").start()
        _owner[1] += 1
    return _tasks


def chunks_for(size):
    """How many chunks work on `size` elements is cut into."""
    return 1 if size < SMALL else _count


def split(kernel, size, arrays, *constants):
    """Call kernel(*chunks of the arrays, *constants), once for each chunk.

    Args:
        size: how many elements there are to work on; few are not worth a thread.
        arrays: cut along their first axes, each by its own length.
    """
    chunks = min(chunks_for(size), max(len(arrays[0]), 1))
    if chunks == 1:
        kernel(*arrays, *constants)
        return
    tasks, results = _queue(chunks - 1), SimpleQueue()

    def chunk(c):
        return [a[len(a) * c // chunks : len(a) * (c + 1) // chunks] for a in arrays]

    for c in range(1, chunks):
        tasks.put((kernel, (*chunk(c), *constants), results))
    kernel(*chunk(0), *constants)
    failed = [error for error in [results.get() for _ in range(1, chunks)] if error is not None]
    if failed:
        raise failed[0]
