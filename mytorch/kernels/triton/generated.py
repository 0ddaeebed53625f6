"""Kernels with a source that the compiler writes (`compiler/groups.py`), and the functions that the source calls.

The source is the text of one function `group`. It uses Triton's language as `tl`, and CUDA's functions as `library`. The source is registered
in `linecache`, from which Triton reads it.
"""

import functools
import linecache

import numpy as np
import triton
import triton.language as tl

from ...arrays import numpy_ns
from ..launch import INTERPRET

_NAMES = {"atan": "arctan", "pow": "power"}  # name in CUDA's library (libdevice) -> NumPy's name, if they differ


@functools.cache
def kernel(text):
    """Returns the kernel with a source."""
    name = f"<kernel {kernel.cache_info().misses} of mytorch.compile>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    scope = {"tl": tl, "library": library(), "__name__": __name__}
    exec(compile(text, name, "exec"), scope)
    return triton.jit(scope["group"])


@functools.cache
def library():
    """Returns CUDA's functions. Triton's interpreter cannot call them, so it gets NumPy's functions."""
    if not INTERPRET:
        from triton.language.extra.cuda import libdevice

        return libdevice
    return _NumPy()


class _NumPy:
    def __getattr__(self, name):
        from triton.runtime.interpreter import TensorHandle

        function = getattr(numpy_ns, _NAMES.get(name, name))

        def call(*args):
            dtype = args[0].handle.data.dtype
            data = function(*np.broadcast_arrays(*[x.handle.data for x in args])).astype(dtype, copy=False)
            largest = max(args, key=lambda x: len(x.shape))
            return tl.tensor(TensorHandle(data, largest.handle.dtype), largest.type)

        return call
