"""The k largest of each row and their positions: one pass with insertion into a sorted list; most elements need one comparison."""

import numpy as np

from ..threads import split
from .common import kernel


@kernel
def _largest(x, positions, sign):
    rows, width = x.shape
    k = positions.shape[1]
    best = np.empty(k, x.dtype)
    for r in range(rows):
        count, last = 0, x[r, 0]
        for i in range(width):
            # With sign = -1, the largest are the smallest. Most elements are not above the last of the list.
            v = sign * x[r, i]
            if count == k and v <= last:
                continue
            slot = count if count < k else k - 1
            # Insertion sort: shift smaller elements back. `<` keeps the first of equal elements in front.
            while slot > 0 and best[slot - 1] < v:
                best[slot], positions[r, slot] = best[slot - 1], positions[r, slot - 1]
                slot -= 1
            best[slot], positions[r, slot] = v, i
            count = min(count + 1, k)
            last = best[count - 1]


def accepts(x, k, largest):
    """Accepts float32 or float64 without NaN, and k up to 64."""
    return 0 < k <= 64 and x.dtype in (np.float32, np.float64) and not np.isnan(x).any()


def forward(xp, x, k, largest):
    """Returns the int64 positions of the k largest or smallest along the last axis, sorted; of equal elements the first."""
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    positions = np.empty((len(rows), k), np.int64)
    split(_largest, rows.size, (rows, positions), rows.dtype.type(1 if largest else -1))
    return positions.reshape(*x.shape[:-1], k)
