"""The library's own thread pool for compiled kernels, matrix products and NumPy's functions of large arrays. Idle threads sleep.

Work is divided into more chunks than there are threads, and each idle thread takes the next chunk. If another program
occupies a core, the threads on the other cores process its share. Spinning threads (OpenMP; OpenBLAS, for 2^26 cycles after each
product) occupy their core instead: next to another busy program, a product of 40 microseconds then takes
50 milliseconds. Therefore BLAS uses one thread for calls from this pool, see `blas.py`.

Waking a thread takes tens of microseconds, and one step of a small model submits work a hundred times. So if Numba is
installed, an idle thread first polls for new work for less than a millisecond, without holding the GIL. The submitting thread
polls in the same way while it waits for the other threads, see `numba/pool.py`.

Dividing a call of a Python function costs about 15 microseconds, because each thread needs the GIL to begin; of a compiled kernel, 3 to 5
(`numba/pool.py`); and both cost more if the threads are asleep. In this time a sum of 10^5 numbers is complete, but not their sines. So the
first calls of a function with a dtype run on one thread and are measured, and the next ones are divided if they take long enough.
"""

import math
import os
import threading
from collections import deque
from contextlib import contextmanager
from contextvars import copy_context
from queue import SimpleQueue
from time import thread_time

import numpy as np

from ..arrays import hooks

SMALL = 16384  # with fewer elements, passing a chunk to a thread costs more than it saves
WORTH = 50e-6  # seconds on one thread from which dividing pays; 0: every call is divided, without measuring it
COMPILED = 0.5  # the same for a compiled kernel, as a part of WORTH
CALLS = 3  # calls to measure: the first ones may compile kernels, and their memory is new
LOOKS = 10_000  # polls of a counter, about 40 nanoseconds each, before a thread sleeps
LINE = 8  # cells of a cache line
POSTED, ENDED = 0, LINE  # cells that count submitted jobs, and finished threads


def _from_environment():
    """Returns the number of threads from the environment, by default the number of cores available to this process."""
    for name in ("MYTORCH_NUM_THREADS", "OMP_NUM_THREADS"):
        word = os.environ.get(name, "").partition(",")[0].strip()
        if word.isdigit() and int(word):
            return int(word)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_count = _from_environment()
_live = []  # the jobs that `run` has not completed
_asleep = []  # for each sleeping thread, the queue that wakes it
_started = 0
_starting = threading.Lock()
_within = threading.local()  # `job`: True in a thread that executes calls of `run`
_UNKNOWN = 0, math.inf, 0
_costs = {}  # what was called -> (number of measured calls, fewest seconds for an element, most elements of these calls)
cells = np.zeros(1024, np.int64)  # what all threads read without the GIL, see numba/pool.py


def get_num_threads():
    """Returns the number of threads that functions of large tensors on the CPU use."""
    return _count


def set_num_threads(n):
    """Sets the number of threads of functions of large tensors on the CPU.

    The default is MYTORCH_NUM_THREADS, OMP_NUM_THREADS or the number of cores.

    Raises:
        RuntimeError: n is not positive.
    """
    global _count
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}.")
    _count = int(n)


class _Job:
    """Calls of one function, which any thread may execute. Each helping thread takes a context."""

    __slots__ = ("contexts", "done", "function", "left")

    def __init__(self, function, calls, helpers):
        self.function, self.left, self.done = function, deque(calls), SimpleQueue()
        self.contexts = [copy_context() for _ in range(helpers)]

    def help(self):
        """Executes calls in a thread of the pool, unless enough threads have come before."""
        try:
            context = self.contexts.pop()  # atomic, as is deque.popleft below, so threads need no lock
        except IndexError:
            return
        context.run(self.work)

    def work(self):
        """Executes calls until none is left. The result or the exception of each call is put into `done`."""
        while True:
            try:
                arguments = self.left.popleft()
            except IndexError:
                return
            try:
                self.done.put(self.function(*arguments))
            except BaseException as error:
                self.done.put(error)


def _serve():
    """Helps with all live jobs, polls for a while (`rest`), and then sleeps until the next job.

    It looks at what is live and not at what was submitted. A thread that is late has nothing to catch up with.
    """
    _within.job, bell = True, SimpleQueue()
    while True:
        seen = cells.item(POSTED)
        for job in list(_live):
            job.help()
        job = None
        if hooks.rest is not None and hooks.rest(cells, seen, LOOKS) != seen:
            continue
        _asleep.append(bell)
        if cells.item(POSTED) == seen:
            bell.get()
        else:
            try:
                _asleep.remove(bell)
            except ValueError:  # `run` has taken it and rings
                bell.get()


def _forget_threads():
    """Resets the pool in a forked child, which has none of the parent's threads."""
    global _live, _asleep, _started, _starting
    _live, _asleep, _started, _starting = [], [], 0, threading.Lock()
    cells[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def _with_errors(function, settings):
    def call(*arguments):
        with np.errstate(**settings):
            return function(*arguments)

    return call


def _start(helpers):
    """Starts threads until there are as many as this number."""
    global _started
    if _started < helpers:
        with _starting:
            while _started < helpers:
                threading.Thread(target=_serve, daemon=True, name="mytorch-kernel").start()
                _started += 1


def _wake(helpers):
    """Wakes at most this number of threads."""
    for _ in range(helpers):
        try:
            _asleep.pop().put(None)
        except IndexError:
            break


def run(function, calls):
    """Calls function(*arguments) for each element of `calls` on the pool's threads and the current thread.

    Each thread gets a copy of the current context, which contains the settings of `np.errstate` and of the library. Calls inside of a
    call run on the same thread, because the other threads are busy with its siblings.

    Returns:
        The results, in order of completion.

    Raises:
        BaseException: the first exception of a call, after all calls have ended.
    """
    helpers = min(_count, len(calls)) - 1
    if helpers < 1 or getattr(_within, "job", False):
        return [function(*arguments) for arguments in calls]
    if np.__version__ < "2":  # whose np.errstate belongs to a thread, not to a context
        function = _with_errors(function, np.geterr())
    _start(helpers)
    job = _Job(function, calls, helpers)
    _live.append(job)
    ended = cells.item(ENDED)
    cells[POSTED] += 1
    _wake(helpers)
    _within.job = True
    try:
        job.work()
    finally:  # also after Ctrl-C
        _within.job = False
        _live.remove(job)
    while hooks.watch is not None and job.done.qsize() < len(calls):
        before, ended = ended, hooks.watch(cells, ENDED, ended, LOOKS)
        if ended == before:  # no thread finished while polling: block until the last call ends
            break
    outcomes = [job.done.get() for _ in calls]
    failed = [error for error in outcomes if isinstance(error, BaseException)]
    if failed:
        raise failed[0]
    return outcomes


def pays(key, size, worth=1):
    """Returns True if a call on `size` elements takes `worth` times WORTH, by calls that were measured; None if it must be measured."""
    if not WORTH:
        return True
    calls, cost, measured = _costs.get(key, _UNKNOWN)
    return None if calls < CALLS or size > 4 * measured else cost * size >= WORTH * worth


def undivided(pays, key, size, function, *arguments, **options):
    """Returns function(*arguments, **options). If `pays` is None, stores the processor time that it took."""
    if pays is not None:
        return function(*arguments, **options)
    start = thread_time()
    result = function(*arguments, **options)
    cost, (calls, least, measured) = (thread_time() - start) / size, _costs.get(key, _UNKNOWN)
    if size > 4 * measured:  # of which the time to call the function is a smaller part
        calls, least = 0, math.inf
    _costs[key] = calls + 1, min(cost, least), max(size, measured)
    return result


@contextmanager
def everything():
    """Context that divides each call, however small, among two threads: for tests, and to compile what divides kernels."""
    global SMALL, WORTH, _count
    before = SMALL, WORTH, _count
    SMALL, WORTH, _count = 1, 0, 2
    try:
        yield
    finally:
        SMALL, WORTH, _count = before


def chunks_for(size):
    """Returns the number of chunks for work on `size` elements: two per thread, for load balancing."""
    return 1 if size < SMALL or _count == 1 else min(2 * _count, 2 * size // SMALL)


def split(kernel, size, arrays, *constants):
    """Calls kernel(*chunks of the arrays, *constants) for each chunk. Returns True if any call returned a true value.

    Args:
        size: number of elements to work on; work that takes no longer than WORTH runs on the current thread.
        arrays: arrays that are divided along their first axes, each by its own length.
    """
    if size < SMALL or _count == 1:
        return kernel(*arrays, *constants)
    key = kernel, arrays[0].dtype
    long = pays(key, size, COMPILED if hooks.divide is not None else 1)
    if not long:
        return undivided(long, key, size, kernel, *arrays, *constants)
    return in_chunks(kernel, chunks_for(size), arrays, *constants, size=size)


def in_chunks(kernel, chunks, arrays, *constants, size=None):
    """Calls a kernel as `split`, but always in this number of chunks.

    For kernels that add within a chunk: the number of chunks then changes how their sums are rounded, so it must not depend on
    measured times.
    """
    chunks = min(chunks, len(arrays[0]))
    helpers = min(_count, chunks) - 1
    if chunks < 2:
        return kernel(*arrays, *constants)
    if hooks.divide is not None and helpers and not getattr(_within, "job", False):
        _start(helpers)
        _wake(helpers)
        result = hooks.divide(kernel, chunks, size, helpers, tuple(arrays), constants)
        if result is not None:
            return result
    return any(run(kernel, [(*chunk, *constants) for chunk in cut(arrays, chunks, size)]))


def cut(arrays, chunks, size=None):
    """Returns chunks of arrays, tuples of views: each array is divided along its first axis by its own length.

    Args:
        arrays: the arrays.
        chunks: number of chunks, at most the length of the first array.
        size: length of arrays of single elements.
    """
    chunks = min(chunks, len(arrays[0]))
    if chunks < 2:
        return [arrays]

    def bound(length, c):
        at = length * c // chunks
        # Chunks of single elements begin at multiples of 64, so that vector instructions process the same elements together for
        # any number of threads: the remainder of a loop may be rounded differently.
        return at // 64 * 64 if length == size and c < chunks else at

    return [tuple([a[bound(len(a), c) : bound(len(a), c + 1)] for a in arrays]) for c in range(chunks)]
