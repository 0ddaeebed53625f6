"""The product of a CSR matrix and a dense matrix.

A pass over a row of the result adds four elements of the sparse matrix. The row is thus read and written a quarter as often as
with one element for each pass. Each thread computes whole rows, so the order of the additions does not depend on the threads.
"""

import numpy as np

from ..threads import split
from .common import with_nan

LEAST = 1 << 12  # stored elements
TAKES = "float32 and float64"


@with_nan
def _add_rows(begins, ends, out, columns, values, dense):
    width = dense.shape[1]
    for r in range(len(begins)):
        e, end, to = begins[r], ends[r], out[r]
        while e + 4 <= end:
            a, b, c, d = values[e], values[e + 1], values[e + 2], values[e + 3]
            w, x, y, z = dense[columns[e]], dense[columns[e + 1]], dense[columns[e + 2]], dense[columns[e + 3]]
            for j in range(width):
                to[j] += a * w[j] + b * x[j] + c * y[j] + d * z[j]
            e += 4
        while e < end:
            a, w = values[e], dense[columns[e]]
            for j in range(width):
                to[j] += a * w[j]
            e += 1


def accepts(values, dense, pointers, columns):
    """Returns True for equal dtypes, float32 or float64, and int64 indices."""
    floats = values.dtype == dense.dtype and values.dtype in (np.float32, np.float64)
    return floats and pointers.dtype == columns.dtype == np.int64 and dense.shape[1] > 1


def forward(xp, values, dense, pointers, columns):
    """Returns the product, (rows, columns of the dense matrix)."""
    out = np.zeros((len(pointers) - 1, dense.shape[1]), dense.dtype)
    # Contiguous arrays, so that the strides are constants in the compiled code.
    values, dense, columns = (np.ascontiguousarray(x) for x in (values, dense, columns))
    split(_add_rows, len(values) * dense.shape[1], (pointers[:-1], pointers[1:], out), columns, values, dense)
    return out
