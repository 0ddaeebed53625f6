"""The library's own threads, which sleep when there is no work: for compiled kernels and for the CPU's matrix products.

Work is cut into more chunks than there are threads, and whoever is free takes the next one. So a thread whose core another
program has taken holds nobody up: the others do its share. Threads that spin while they wait (OpenMP's; OpenBLAS's, for 2^26
cycles after each product) take the core from whatever runs next, and beside another busy program a product of 40
microseconds then takes 50 milliseconds. Therefore BLAS computes on one thread what comes from here, see blas.py.

To wake a thread takes tens of microseconds, and a step of a small model hands out work a hundred times. So where Numba is
there, a thread that has run out of work watches for more, for less than a millisecond and without Python's lock, and so does
the one that handed it out while the others end theirs: see numba/waiting.py.
"""

import os
import threading
from collections import deque
from queue import SimpleQueue

import numpy as np

from ..base import hooks

SMALL = 16384  # elements below which handing a chunk to a thread costs more than it saves
LOOKS = 10_000  # at a counter, of about 40 nanoseconds each, before a thread goes to sleep


def _from_environment():
    """The number of threads that the environment asks for, or that of the cores which this process may use."""
    for name in ("MYTORCH_NUM_THREADS", "OMP_NUM_THREADS"):
        word = os.environ.get(name, "").partition(",")[0].strip()
        if word.isdigit() and int(word):
            return int(word)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_count = _from_environment()
_jobs = SimpleQueue()
_started = 0
_starting = threading.Lock()
_posted, _ended = (
    np.zeros(1, np.int64),
    np.zeros(1, np.int64),
)  # how often work was handed out, and a thread ended its part


def get_num_threads():
    """How many threads kernels and matrix products on the CPU use."""
    return _count


def set_num_threads(n):
    """Let kernels and matrix products on the CPU use n threads; at first as many as MYTORCH_NUM_THREADS, OMP_NUM_THREADS or the
    cores say.

    Raises:
        RuntimeError: n is not positive.
    """
    global _count
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}.")
    _count = int(n)


class _Job:
    """Calls of one function that any thread may take."""

    __slots__ = ("done", "function", "left")

    def __init__(self, function, calls):
        self.function, self.left, self.done = function, deque(calls), SimpleQueue()

    def work(self):
        """Take calls until none is left; what came of each goes to `done`: what it returned, or the error."""
        while True:
            try:
                arguments = self.left.popleft()
            except IndexError:
                return
            try:
                self.done.put(self.function(*arguments))
            except BaseException as error:
                self.done.put(error)


def _serve(jobs):
    seen = _posted.item()
    while True:
        if hooks.rest is not None:
            hooks.rest(_ended, _posted, seen, LOOKS)
        job = jobs.get()
        seen = _posted.item()
        job.work()


def _forget_threads():
    """A forked child has none of its parent's threads, and starts its own when it needs them."""
    global _jobs, _started, _starting
    _jobs, _started, _starting = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def run(function, calls):
    """function(*arguments) for each of a list of arguments, on as many threads as there are; this one works with them.

    Returns:
        What each call returned, in their order where this thread made them all.

    Raises:
        BaseException: what a call raised, once all have ended.
    """
    global _started
    helpers = min(_count, len(calls)) - 1
    if helpers < 1:
        return [function(*arguments) for arguments in calls]
    if _started < helpers:
        with _starting:
            while _started < helpers:
                threading.Thread(target=_serve, args=(_jobs,), daemon=True, name="mytorch-kernel").start()
                _started += 1
    job = _Job(function, calls)
    for _ in range(helpers):
        _jobs.put(job)
    ended = _ended.item()
    _posted[0] += 1
    job.work()
    while hooks.watch is not None and job.done.qsize() < len(calls):
        before, ended = ended, hooks.watch(_ended, ended, LOOKS)
        if ended == before:  # nobody has ended for long: sleep until the last call has
            break
    outcomes = [job.done.get() for _ in calls]
    failed = [error for error in outcomes if isinstance(error, BaseException)]
    if failed:
        raise failed[0]
    return outcomes


def chunks_for(size):
    """How many chunks work on `size` elements is cut into."""
    return 1 if size < SMALL or _count == 1 else min(2 * _count, 2 * size // SMALL)


def split(kernel, size, arrays, *constants):
    """Call kernel(*chunks of the arrays, *constants), once for each chunk; whether any call returned something true.

    Args:
        size: how many elements there are to work on; few are not worth a thread.
        arrays: cut along their first axes, each by its own length.
    """
    chunks = 1 if size < SMALL else min(chunks_for(size), max(len(arrays[0]), 1))
    if chunks == 1:
        return kernel(*arrays, *constants)
    return any(run(kernel, [
        (*(a[len(a) * c // chunks : len(a) * (c + 1) // chunks] for a in arrays), *constants) for c in range(chunks)
    ]))  # fmt: skip
