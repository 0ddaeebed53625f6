"""Settings of the C library's malloc."""

import ctypes
import os
import sys


def keep_freed_memory():
    """Ask the C library to keep freed memory for the next step instead of handing it back to the system.

    A training step frees and takes the same arrays again and again. glibc's malloc returns the large ones
    each time, and the page faults of getting them back cost a third of a small model's step. It keeps up to
    1 GB from here on. MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ in the environment win; elsewhere
    than on glibc nothing happens.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    if mallopt(mmap_threshold, 256 << 20) or mallopt(mmap_threshold, 32 << 20):  # 32 MB: older releases' limit
        mallopt(trim_threshold, 1 << 30)
