"""Insertion positions of values in ascending sequences: a binary search without branches, of many values at a time.

The step of a search depends on a comparison that a processor cannot predict for random values. Here each comparison adds its step or 0, and
a block of values makes each step together, so that their reads overlap.
"""

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import exact

_BLOCK = 256  # values that are searched together


@exact
def _search(values, out, sequence, right):
    found = np.empty(_BLOCK, np.uint64)
    for start in range(0, len(values), _BLOCK):
        block, to = values[start : start + _BLOCK], out[start : start + _BLOCK]
        found[:] = 0
        length = len(sequence)  # of the range that begins at `found` and contains the position
        while length > 0:
            half = np.uint64(length + 1) >> np.uint64(1)
            for i in range(len(block)):
                middle = sequence[found[i] + half - np.uint64(1)]
                # NaN is never smaller, so its position is the end, as in NumPy.
                beyond = middle > block[i] if right else middle >= block[i]
                found[i] += np.uint64(0) if beyond else half
            length = length - np.int64(half) if length > 1 else 0
        for i in range(len(block)):
            to[i] = found[i]


@exact
def _search_rows(values, out, sequences, right):
    for r in range(len(values)):
        _search(values[r], out[r], sequences[r], right)


def _accepts(values, sequence, *, right):
    if values.dtype != sequence.dtype or values.dtype.char not in "fdlq" or not sequence.size or not values.size:
        return False
    last = sequence[..., -1]  # NaN would be the largest number of a sequence
    return (sequence.ndim == 1 or sequence.shape[:-1] == values.shape[:-1]) and bool((last == last).all())


def _forward(xp, values, sequence, *, right):
    out = np.empty(values.shape, np.int64)
    values, sequence = np.ascontiguousarray(values), np.ascontiguousarray(sequence)
    if sequence.ndim == 1:
        split(_search, values.size, (values.reshape(-1), out.reshape(-1)), sequence, right)
    else:
        rows = [a.reshape(-1, a.shape[-1]) for a in (values, out, sequence)]
        split(_search_rows, values.size, rows, right)
    return out


positions = Kernel(accepts=_accepts, forward=_forward)
