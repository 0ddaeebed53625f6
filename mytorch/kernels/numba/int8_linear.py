"""A product of one row, or a few, with an int8 weight: it reads a quarter of the bytes that float32 has, and that is what it costs."""

import numpy as np

from ..threads import split
from .common import is_float32, kernel

ROWS = 4  # above, BLAS is quicker on the weight as floats


@kernel
def _dots(weight, scale, out, x):
    """out[i, r] = scale[i] · weight[i] · x[r]: four rows of the weight at a time, which share the loads of x."""
    n, k = weight.shape
    for r in range(len(x)):
        for q in range(n // 4):
            i = 4 * q
            a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for j in range(k):
                v = x[r, j]
                a += v * np.float32(weight[i, j])
                b += v * np.float32(weight[i + 1, j])
                c += v * np.float32(weight[i + 2, j])
                d += v * np.float32(weight[i + 3, j])
            out[i, r], out[i + 1, r] = a * scale[i], b * scale[i + 1]
            out[i + 2, r], out[i + 3, r] = c * scale[i + 2], d * scale[i + 3]
        for i in range(n - n % 4, n):
            a = np.float32(0)
            for j in range(k):
                a += x[r, j] * np.float32(weight[i, j])
            out[i, r] = a * scale[i]


def accepts(input, *, weight, scale):
    """float32 in memory that is contiguous where the loop runs; something to sum."""
    return is_float32(input, scale) and input.size > 0 and weight.flags.c_contiguous


def pays(input, *, weight, scale):
    """For a few rows, as in making text."""
    return input.size <= ROWS * input.shape[-1]


def forward(xp, input, *, weight, scale):
    """input @ (weight * scale)ᵀ."""
    x = np.ascontiguousarray(input).reshape(-1, input.shape[-1])
    out = np.empty((len(weight), len(x)), np.float32)
    split(_dots, weight.size, (weight, scale, out), x)
    return np.ascontiguousarray(out.T).reshape(*input.shape[:-1], len(weight))
