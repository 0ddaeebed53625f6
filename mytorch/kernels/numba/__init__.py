"""Kernels for the CPU, compiled by Numba: loops that pass over memory once, on all cores.

A kernel is used if Numba is installed and the arrays are large enough. Compiled code is cached on disk next to
the source, so only the first run waits for the compiler.
"""

from numba import config

if getattr(config, "DISABLE_JIT", False):  # the kernels contain LLVM instructions, which Python cannot run
    raise ImportError("NUMBA_DISABLE_JIT is set", name="mytorch")

from . import pool  # defines how the threads wait, and divides kernels
