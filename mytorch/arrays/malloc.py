"""Settings of the C library's malloc."""

import ctypes
import os
import sys


def keep_freed_memory():
    """Makes the C library keep freed memory for the next step instead of returning it to the system.

    Each training step frees and allocates arrays of the same sizes. glibc's malloc returns large arrays to the system
    each time. The page faults of allocating them again take a third of a small model's step. After this call, glibc
    keeps up to 1 GB. MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ in the environment have priority. Other C
    libraries are not changed.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    # Arrays below the mmap threshold come from the heap, which is trimmed only above 1 GB of free memory.
    if mallopt(mmap_threshold, 256 << 20) or mallopt(mmap_threshold, 32 << 20):  # 32 MB: older releases' limit
        mallopt(trim_threshold, 1 << 30)
