"""Forking while other threads run BLAS.

OpenBLAS ends its threads before a fork, and waits indefinitely for a thread that is working. So if the program has other
threads, BLAS is limited to one thread during the fork, and the fork waits for work in progress.
"""

import contextlib
import ctypes
import functools
import os
import threading
import time

from ....kernels import blas

LONGEST = 3.0  # seconds to wait for work in progress
_NAMES = ("{}_set_num_threads64_", "{}_set_num_threads")


@functools.cache
def _libraries():
    """Returns the functions (get, set) for the number of threads of each OpenBLAS in this process."""
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split(None, 5)[5].strip() for line in file if "openblas" in line}
    except OSError:
        return ()
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for prefix in ("scipy_openblas", "openblas"):
                name = next((n for n in (name.format(prefix) for name in _NAMES) if hasattr(library, n)), None)
                if name is not None:
                    found.append((getattr(library, name.replace("_set_", "_get_")), getattr(library, name)))
                    break
    return tuple(found)


def _busy():
    """Returns True if a thread that Python does not manage, such as a BLAS thread, is working."""
    ours = {thread.native_id for thread in threading.enumerate()}
    for name in os.listdir("/proc/self/task"):
        if int(name) not in ours:
            with contextlib.suppress(OSError), open(f"/proc/self/task/{name}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "RD":
                    return True
    return False


@contextlib.contextmanager
def safe_to_fork():
    """A context manager that allows forks of this process."""
    if threading.active_count() == 1:
        yield
        return
    with blas.one_thread():  # no product that ends meanwhile gives NumPy's BLAS its threads back
        others = [(setter, n) for getter, setter in _libraries() if (n := getter()) > 1]
        for setter, _ in others:
            setter(1)
        try:
            until = time.monotonic() + LONGEST
            while (others or blas.one_thread.before > 1) and _busy() and time.monotonic() < until:
                time.sleep(2e-3)
            yield
        finally:
            for setter, n in others:
                setter(n)
