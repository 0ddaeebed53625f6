"""Conversion between float32 and bfloat16, its upper 16 bits, by integer operations; to nearest, ties to even."""

import numpy as np

from ..threads import split
from .common import kernel


@kernel
def _narrowed(bits, out):
    for i in range(out.size):
        u = bits[i]
        # Add 0x7FFF and the lowest kept bit, then truncate: a carry rounds up, and ties go to even.
        even = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        # A NaN keeps its sign and becomes quiet. Rounding it could give infinity.
        nan = (u >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0)
        out[i] = nan if (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else even


@kernel
def _widened(bits, out):
    for i in range(out.size):
        # Exact: bfloat16 is the upper half of float32.
        out[i] = np.uint32(bits[i]) << np.uint32(16)


def accepts(x, dtype):
    """Accepts float32 to bfloat16 and bfloat16 to float32, contiguous."""
    kinds = x.dtype.name, np.dtype(dtype).name
    return kinds in (("float32", "bfloat16"), ("bfloat16", "float32")) and x.flags.c_contiguous


def forward(xp, x, dtype):
    """Returns x converted to `dtype`."""
    out = np.empty(x.shape, dtype)
    bits, to = (a.reshape(-1).view(np.uint16 if a.itemsize == 2 else np.uint32) for a in (x, out))
    split(_narrowed if out.itemsize == 2 else _widened, out.size, (bits, to))
    return out
