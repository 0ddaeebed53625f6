"""Batch norm, forward and backward, and input * scale + shift per channel: float32, (N, C, positions), one channel at a time.

Mean and variance need one pass over memory. The two sums of a row of positions are computed
separately; the second one reads the row from the cache. They are merged with the sums of the rows before by the parallel
algorithm of Chan, Golub and LeVeque (1983). Backward reads a channel twice: for
its two sums, and for the gradient. With h = (x - mean) * rstd and means over the elements of a channel:

    gx = (g - mean(g) - h * mean(g * h)) * rstd * weight
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import inlined, is_float32, kernel


@inlined
def merged(row, count, mean, squares):
    """Returns number, mean and sum of squared deviations of the numbers so far and those of a row."""
    # Mean of the row and squared deviations from it, in float32: two vectorized loops over cached memory.
    total = np.float32(0.0)
    for i in range(row.size):
        total += row[i]
    row_mean = total / np.float32(row.size)
    row_squares, rest = np.float32(0.0), np.float32(0.0)
    for i in range(row.size):
        deviation = row[i] - row_mean
        rest += deviation
        row_squares += deviation * deviation
    # The sum of the deviations is the rounding error of the mean, which matters if the mean is large.
    error = np.float64(rest) / row.size
    squares += max(row_squares - error * rest, 0.0)
    # Merge: M = M_a + M_b + delta² n_a n_b / (n_a + n_b), and mean += delta n_b / n.
    delta, together = row_mean + error - mean, count + row.size
    squares += delta * delta * count * row.size / together
    return together, mean + delta * row.size / together, squares


@kernel
def _statistics(channels, means, variances, x):
    """Computes the mean and the biased variance of each channel."""
    for j in range(len(channels)):
        # Running statistics of the channel, in float64.
        count, mean, squares = 0.0, 0.0, 0.0
        for n in range(len(x)):
            count, mean, squares = merged(x[n, channels[j]], count, mean, squares)
        means[j] = mean
        variances[j] = squares / count


@kernel
def _scale(channels, x, out, centers, scales, shifts):
    """Computes out = (x - center) * scale + shift. Subtracting first avoids cancellation where |mean| is large."""
    for j in range(len(channels)):
        c = channels[j]
        center, scale, shift = centers[c], scales[c], shifts[c]
        for n in range(len(x)):
            row, to = x[n, c], out[n, c]
            for i in range(row.size):
                to[i] = (row[i] - center) * scale + shift


@kernel
def _bwd(channels, g_sums, gn_sums, g, x, gx, means, rstds, weights):
    """Computes gx, and per channel the sums of g (gradient of the bias) and of g * h (gradient of the weight)."""
    for j in range(len(channels)):
        c = channels[j]
        g_sum, gn_sum, mean, rstd = 0.0, 0.0, means[c], rstds[c]
        for n in range(len(x)):
            row, up = x[n, c], g[n, c]
            # First pass: a row's sums in float32, the channel's sums in float64.
            row_g, row_gx = np.float32(0.0), np.float32(0.0)
            for i in range(row.size):
                row_g += up[i]
                row_gx += up[i] * (row[i] - mean)
            g_sum += row_g
            gn_sum += row_gx * rstd
        g_sums[j] = g_sum
        gn_sums[j] = gn_sum
        # Second pass: gx = (g - mean(g) - h * mean(g h)) * rstd * weight. `slope` is mean(g h) * rstd.
        count = np.float32(len(x) * x.shape[2])
        g_mean, slope, scale = g_sums[j] / count, gn_sums[j] * rstd / count, rstd * weights[c]
        for n in range(len(x)):
            row, up, to = x[n, c], g[n, c], gx[n, c]
            for i in range(row.size):
                to[i] = (up[i] - g_mean - (row[i] - mean) * slope) * scale


@kernel
def _affine_bwd(channels, g_sums, gx_sums, g, x, gx, scales):
    """Computes gx = g * scale, and per channel the sums of g and of g * x."""
    for j in range(len(channels)):
        c = channels[j]
        scale, g_sum, gx_sum = scales[c], 0.0, 0.0
        for n in range(len(x)):
            row, up, to = x[n, c], g[n, c], gx[n, c]
            row_g, row_gx = np.float32(0.0), np.float32(0.0)
            for i in range(row.size):
                row_g += up[i]
                row_gx += up[i] * row[i]
                to[i] = up[i] * scale
            g_sum += row_g
            gx_sum += row_gx
        g_sums[j] = g_sum
        gx_sums[j] = gx_sum


def _in_rows(x):
    """Returns x as a contiguous array (N, C, positions)."""
    return np.ascontiguousarray(x).reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _vector(values, count, default):
    """Returns one value per channel, contiguous; the default where `values` is None."""
    return np.full(count, default, np.float32) if values is None else np.ascontiguousarray(values).reshape(-1)


def statistics(raw):
    """Returns the mean and the biased variance of each channel."""
    channels = np.arange(raw.shape[1])
    mean, var = np.empty((2, raw.shape[1]), np.float32)
    split(_statistics, raw.size, (channels, mean, var), _in_rows(raw))
    return mean, var


def _scaled(x, centers, scales, shifts):
    """Returns (x - center) * scale + shift for each channel."""
    rows = _in_rows(x)
    out = np.empty_like(rows)
    split(_scale, x.size, (np.arange(x.shape[1]),), rows, out, centers, scales, shifts)
    return out.reshape(x.shape)


def _accepts(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Accepts float32 arrays of at least two axes that are not empty."""
    fit = input.ndim >= 2 and all(p is None or p.size == input.shape[1] for p in (weight, bias))
    return fit and is_float32(input, weight, bias) and input.size > 0


def _pays(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Returns True if each channel has at least 8 positions, which are contiguous in memory."""
    return math.prod(input.shape[2:]) >= 8


def _forward(xp, input, weight=None, bias=None, *, eps=1e-5, stats=None):
    mean, var = (np.ascontiguousarray(s, np.float32) for s in stats or statistics(input))
    if not var.max(initial=0.0) < np.inf:
        return None  # the reference computes rstd in float64
    # Normalization and the affine map are one pass: the scale is rstd * weight.
    rstd = np.float32(1.0) / np.sqrt(var + np.float32(eps))
    count = input.shape[1]
    return _scaled(input, mean, rstd * _vector(weight, count, 1), _vector(bias, count, 0)), mean, rstd


def _vjp(g, input, weight, mean, rstd, needs):
    x, count = _in_rows(input), input.shape[1]
    # The threads divide the channels, so each sum is written by one thread.
    gx, (g_sums, gn_sums) = np.empty_like(x), np.empty((2, count), np.float32)
    arrays = np.arange(count), g_sums, gn_sums
    split(_bwd, x.size, arrays, _in_rows(g), x, gx, mean, rstd, _vector(weight, count, 1))
    return gx.reshape(input.shape) if needs[0] else None, gn_sums if needs[1] else None, g_sums if needs[2] else None


def _affine(xp, input, scale, shift):
    # The same loop as the norm, with a center of 0.
    count = input.shape[1]
    return _scaled(input, np.zeros(count, np.float32), _vector(scale, count, 1), _vector(shift, count, 0))


def _affine_vjp(g, input, scale, shapes, needs):
    x, count = _in_rows(input), input.shape[1]
    gx, (g_sums, gx_sums) = np.empty_like(x), np.empty((2, count), np.float32)
    split(_affine_bwd, x.size, (np.arange(count), g_sums, gx_sums), _in_rows(g), x, gx, _vector(scale, count, 1))
    return (
        gx.reshape(input.shape) if needs[0] else None,
        gx_sums.reshape(shapes[1]) if needs[1] else None,
        g_sums.reshape(shapes[2]) if needs[2] else None,
    )


batch_norm = Kernel(
    accepts=_accepts, is_faster=_pays, forward=_forward, vjp=_vjp, residuals=("mean", "rstd"), statistics=statistics
)
channel_affine = Kernel(accepts=_accepts, is_faster=_pays, forward=_affine, vjp=_affine_vjp)
