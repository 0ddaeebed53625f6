"""Layer norm, forward and backward, one row at a time, so that the row stays in the first-level cache.

Backward, with h = (x - mean) * rstd and u = g * weight:

    gx = rstd * (u - mean(u) - h * mean(u * h))

The gradients of weight and bias are the column sums of g * h and g. Each thread has its own sums, which are added at the end.
"""

import numpy as np

from ..threads import chunks_for, in_chunks, split
from .common import is_float32, kernel


@kernel
def _fwd(x, out, mean, rstd, weight, bias, eps):
    """Computes out, mean and rstd of each row of x (rows, width)."""
    rows, width = x.shape
    for r in range(rows):
        # Two passes: the mean, then the squared deviations. E[x²] - mean² in one pass would cancel digits.
        total = np.float32(0.0)
        for j in range(width):
            total += x[r, j]
        m = total / np.float32(width)
        squares = np.float32(0.0)
        rest = np.float32(0.0)
        for j in range(width):
            d = x[r, j] - m
            rest += d
            squares += d * d
        # The sum of the deviations is the rounding error of the mean, which matters if the mean is large.
        rest /= np.float32(width)
        variance = max(squares / np.float32(width) - rest * rest, np.float32(0.0))
        m += rest
        s = np.float32(1.0) / np.sqrt(variance + eps)
        if not squares < np.float32(np.inf):  # overflow: again in float64
            wide_total = np.float64(0.0)
            for j in range(width):
                wide_total += x[r, j]
            wide_mean = wide_total / width
            wide_squares = np.float64(0.0)
            for j in range(width):
                wide = x[r, j] - wide_mean
                wide_squares += wide * wide
            m = np.float32(wide_mean)
            s = np.float32(1.0 / np.sqrt(wide_squares / width + eps))
        mean[r] = m
        rstd[r] = s
        for j in range(width):
            out[r, j] = (x[r, j] - m) * s * weight[j] + bias[j]


@kernel
def _bwd(g, x, mean, rstd, gx, g_weight, g_bias, weight):
    """Computes gx and adds to row 0 of g_weight and g_bias, which belongs to the calling thread."""
    rows, width = x.shape
    for r in range(rows):
        m = mean[r]
        s = rstd[r]
        # First pass over the row: its two sums, and its share of the gradients of weight and bias.
        sum_u = np.float32(0.0)
        sum_uh = np.float32(0.0)
        for j in range(width):
            h = (x[r, j] - m) * s
            u = g[r, j] * weight[j]
            sum_u += u
            sum_uh += u * h
            g_weight[0, j] += g[r, j] * h
            g_bias[0, j] += g[r, j]
        # Second pass: h is computed again, which is cheaper than storing it.
        sum_u /= np.float32(width)
        sum_uh /= np.float32(width)
        for j in range(width):
            h = (x[r, j] - m) * s
            gx[r, j] = (g[r, j] * weight[j] - sum_u - h * sum_uh) * s


residuals = ("mean", "rstd")


def accepts(input, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    """Accepts float32 only."""
    return is_float32(input, weight, bias) and (dtype is None or dtype.numpy == np.float32)


def _vectors(weight, bias, width):
    weight = np.ones(width, np.float32) if weight is None else np.ascontiguousarray(weight).reshape(-1)
    bias = np.zeros(width, np.float32) if bias is None else np.ascontiguousarray(bias).reshape(-1)
    return weight, bias


def forward(xp, input, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    """Returns (x - mean) * rstd * weight + bias, and mean and rstd, which are saved for backward."""
    x = np.ascontiguousarray(input).reshape(-1, width)
    out = np.empty_like(x)
    mean, rstd = np.empty((2, x.shape[0]), np.float32)
    weight, bias = _vectors(weight, bias, width)
    split(_fwd, x.size, (x, out, mean, rstd), weight, bias, np.float32(eps))
    return out.reshape(input.shape), mean, rstd


def vjp(g, input, weight, shapes, mean, rstd, width, needs):
    """Returns the gradients of input, weight and bias."""
    x = np.ascontiguousarray(input).reshape(-1, width)
    g = np.ascontiguousarray(g).reshape(-1, width)
    chunks = min(chunks_for(x.size), max(x.shape[0], 1))
    gx = np.empty_like(x)
    # One row of sums per chunk: `in_chunks` cuts these arrays along their first axis, like x.
    g_weight, g_bias = np.zeros((2, chunks, width), np.float32)
    in_chunks(_bwd, chunks, (g, x, mean, rstd, gx, g_weight, g_bias), _vectors(weight, None, width)[0])
    return (
        gx.reshape(input.shape),
        g_weight.sum(0).reshape(shapes[1]) if needs[1] else None,
        g_bias.sum(0).reshape(shapes[2]) if needs[2] else None,
    )
