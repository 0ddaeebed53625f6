"""Kernels for the CPU, compiled by Numba: loops that go through memory once, on all cores.

Each is chosen where Numba is installed and the sizes make it pay. Compiled code is cached on disk beside
the source, so only the first run ever waits for the compiler.
"""

from . import waiting  # which tells the threads how
