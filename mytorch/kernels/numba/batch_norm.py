"""Batch norm, forward and backward, and input * scale + shift for each channel: float32, (N, C, positions), a channel at a time.

Mean and variance are found in one reading of memory: those of each row of positions, which is in cache the second time, are
joined with those of the rows before. Backward reads a channel twice, for its two sums and for the gradient, with
h = (x - mean) * rstd and n elements of a channel:

    gx = (g - mean(g) - h * mean(g * h)) * rstd * weight
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import is_float32, kernel


@kernel
def _statistics(channels, means, variances, x):
    for j in range(len(channels)):
        count, mean, squares = 0.0, 0.0, 0.0
        for n in range(len(x)):
            row = x[n, channels[j]]
            total = np.float32(0.0)
            for i in range(row.size):
                total += row[i]
            middle = total / np.float32(row.size)
            around = np.float32(0.0)
            for i in range(row.size):
                around += (row[i] - middle) * (row[i] - middle)
            apart = middle - mean
            squares += around + apart * apart * count * row.size / (count + row.size)
            count += row.size
            mean += apart * row.size / count
        means[j] = mean
        variances[j] = squares / count


@kernel
def _scale(channels, x, out, centres, scales, shifts):
    for j in range(len(channels)):
        c = channels[j]
        centre, scale, shift = centres[c], scales[c], shifts[c]
        for n in range(len(x)):
            row, to = x[n, c], out[n, c]
            for i in range(row.size):
                to[i] = (row[i] - centre) * scale + shift


@kernel
def _bwd(channels, g_sums, gn_sums, g, x, gx, means, rstds, weights):
    for j in range(len(channels)):
        c = channels[j]
        g_sum, gn_sum, mean, rstd = 0.0, 0.0, means[c], rstds[c]
        for n in range(len(x)):
            row, up = x[n, c], g[n, c]
            of_g, of_gx = np.float32(0.0), np.float32(0.0)
            for i in range(row.size):
                of_g += up[i]
                of_gx += up[i] * (row[i] - mean)
            g_sum += of_g
            gn_sum += of_gx * rstd
        g_sums[j] = g_sum
        gn_sums[j] = gn_sum
        count = np.float32(len(x) * x.shape[2])
        middle, slope, scale = g_sums[j] / count, gn_sums[j] * rstd / count, rstd * weights[c]
        for n in range(len(x)):
            row, up, to = x[n, c], g[n, c], gx[n, c]
            for i in range(row.size):
                to[i] = (up[i] - middle - (row[i] - mean) * slope) * scale


@kernel
def _affine_bwd(channels, g_sums, gx_sums, g, x, gx, scales):
    for j in range(len(channels)):
        c = channels[j]
        scale, g_sum, gx_sum = scales[c], 0.0, 0.0
        for n in range(len(x)):
            row, up, to = x[n, c], g[n, c], gx[n, c]
            of_g, of_gx = np.float32(0.0), np.float32(0.0)
            for i in range(row.size):
                of_g += up[i]
                of_gx += up[i] * row[i]
                to[i] = up[i] * scale
            g_sum += of_g
            gx_sum += of_gx
        g_sums[j] = g_sum
        gx_sums[j] = gx_sum


def _in_rows(x):
    """x as (N, C, positions)."""
    return np.ascontiguousarray(x).reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _vector(values, count, otherwise):
    """Values of the channels, contiguous."""
    return np.full(count, otherwise, np.float32) if values is None else np.ascontiguousarray(values).reshape(-1)


def statistics(raw):
    """The mean and the variance of each channel."""
    channels = np.arange(raw.shape[1])
    mean, var = np.empty((2, raw.shape[1]), np.float32)
    split(_statistics, raw.size, (channels, mean, var), _in_rows(raw))
    return mean, var


def _scaled(x, centres, scales, shifts):
    """(x - centre) * scale + shift for each channel."""
    rows = _in_rows(x)
    out = np.empty_like(rows)
    split(_scale, x.size, (np.arange(x.shape[1]),), rows, out, centres, scales, shifts)
    return out.reshape(x.shape)


def _accepts(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """float32, of two axes at least, with something in it."""
    fit = input.ndim >= 2 and all(p is None or p.size == input.shape[1] for p in (weight, bias))
    return fit and is_float32(input, weight, bias) and input.size > 0


def _pays(input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Where a channel has positions that follow one another in memory."""
    return math.prod(input.shape[2:]) >= 8


def _forward(xp, input, weight=None, bias=None, *, eps=1e-5, stats=None):
    mean, var = (np.ascontiguousarray(s, np.float32) for s in stats or statistics(input))
    rstd = np.float32(1.0) / np.sqrt(var + np.float32(eps))
    count = input.shape[1]
    return _scaled(input, mean, rstd * _vector(weight, count, 1), _vector(bias, count, 0)), mean, rstd


def _vjp(g, input, weight, mean, rstd, needs):
    x, count = _in_rows(input), input.shape[1]
    gx, (g_sums, gn_sums) = np.empty_like(x), np.empty((2, count), np.float32)
    arrays = np.arange(count), g_sums, gn_sums
    split(_bwd, x.size, arrays, _in_rows(g), x, gx, mean, rstd, _vector(weight, count, 1))
    return gx.reshape(input.shape) if needs[0] else None, gn_sums if needs[1] else None, g_sums if needs[2] else None


def _affine(xp, input, scale, shift):
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
    accepts=_accepts, pays=_pays, forward=_forward, vjp=_vjp, residuals=("mean", "rstd"), statistics=statistics
)
channel_affine = Kernel(accepts=_accepts, pays=_pays, forward=_affine, vjp=_affine_vjp)
