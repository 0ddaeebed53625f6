"""Group norm, forward and backward, one group of channels at a time: float32, (N, C, positions).

The statistics of a group are those of a row of its channels, merged block by block (`merged` in batch_norm.py). Backward reads a group
twice: for the sums of each channel, and for the gradient. With h = (x - mean) * rstd, u = g * weight and means over a group:

    gx = (u - mean(u) - h * mean(u * h)) * rstd
"""

import numpy as np

from ..threads import split
from .batch_norm import merged
from .common import is_float32, kernel

_BLOCK = 2048  # elements that are summed in float32


@kernel
def _fwd(x, out, means, variances, rstds, weights, biases, eps):
    groups, channels, positions = x.shape
    for r in range(groups):
        flat = x[r].reshape(-1)
        count, mean, squares = 0.0, 0.0, 0.0
        for start in range(0, flat.size, _BLOCK):
            count, mean, squares = merged(flat[start : start + _BLOCK], count, mean, squares)
        means[r], variances[r] = mean, squares / count
        rstds[r] = np.float32(1.0) / np.sqrt(variances[r] + eps)
        for c in range(channels):
            row, to = x[r, c], out[r, c]
            center, scale, shift = means[r], rstds[r] * weights[r, c], biases[r, c]
            for i in range(positions):
                to[i] = (row[i] - center) * scale + shift


@kernel
def _bwd(g, x, gx, means, rstds, weights, g_weights, g_biases):
    """Computes gx, and for each channel of each sample the sums of g * h and of g."""
    groups, channels, positions = x.shape
    for r in range(groups):
        mean, rstd, rest, sum_u, sum_uh = means[r], rstds[r], 0.0, 0.0, 0.0
        for c in range(channels):
            row, up = x[r, c], g[r, c]
            sum_x, sum_g, sum_gx = np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for i in range(positions):
                sum_x += row[i] - mean
                sum_g += up[i]
                sum_gx += up[i] * (row[i] - mean)
            rest += sum_x
            g_weights[r, c], g_biases[r, c] = sum_gx, sum_g
        # The sum of the deviations is the rounding error of the mean, which matters if the mean is large.
        count = channels * positions
        rest /= count
        for c in range(channels):
            g_weights[r, c] = (g_weights[r, c] - rest * g_biases[r, c]) * rstd
            sum_u += g_biases[r, c] * weights[r, c]
            sum_uh += g_weights[r, c] * weights[r, c]
        slope = sum_uh / count * rstd
        u_mean, slope = np.float32(sum_u / count - rest * slope), np.float32(slope)
        for c in range(channels):
            row, up, to, weight = x[r, c], g[r, c], gx[r, c], weights[r, c]
            for i in range(positions):
                to[i] = (up[i] * weight - u_mean - (row[i] - mean) * slope) * rstd


residuals = ("mean", "rstd")


def accepts(input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Accepts float32 arrays that are not empty, with factors for each channel."""
    fit = input.ndim >= 2 and input.size > 0 and (dtype is None or dtype.numpy == np.float32)
    return fit and is_float32(input, weight, bias)


def is_faster(input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Returns True if each channel has at least 8 positions, which are contiguous in memory."""
    return input.size >= 8 * input.shape[0] * input.shape[1]


def _in_groups(x, groups):
    """Returns x as a contiguous array (all groups of all samples, channels of a group, positions)."""
    samples, channels = x.shape[:2]
    return np.ascontiguousarray(x).reshape(samples * groups, channels // groups, x.size // (samples * channels))


def _for_each_group(vector, groups, shape, default):
    """Returns one number for each channel of each group of each sample; the default where `vector` is None."""
    count = shape[0] * groups, shape[1] // groups
    if vector is None:
        return np.full(count, default, np.float32)
    return np.tile(np.ascontiguousarray(vector).reshape(groups, -1), (shape[0], 1))


def forward(xp, input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Returns the result, and the mean and 1 / deviation of each group, which are saved for backward."""
    x = _in_groups(input, num_groups)
    out = np.empty_like(x)
    mean, variance, rstd = np.empty((3, len(x), 1), np.float32)
    vectors = (_for_each_group(v, num_groups, input.shape, d) for v, d in ((weight, 1), (bias, 0)))
    split(_fwd, x.size, (x, out, mean[:, 0], variance[:, 0], rstd[:, 0], *vectors), np.float32(eps))
    if not variance.max() < np.inf:
        return None  # the reference computes rstd in float64
    return out.reshape(input.shape), mean, rstd


def vjp(g, input, weight, shapes, mean, rstd, num_groups, needs):
    """Returns the gradients of input, weight and bias."""
    x, samples = _in_groups(input, num_groups), input.shape[0]
    gx, (g_weight, g_bias) = np.empty_like(x), np.empty((2, *x.shape[:2]), np.float32)
    weights = _for_each_group(weight, num_groups, input.shape, 1)
    arrays = _in_groups(g, num_groups), x, gx, mean.reshape(-1), rstd.reshape(-1), weights, g_weight, g_bias
    split(_bwd, x.size, arrays)
    return (
        gx.reshape(input.shape) if needs[0] else None,
        g_weight.reshape(samples, -1).sum(0).reshape(shapes[1]) if needs[1] else None,
        g_bias.reshape(samples, -1).sum(0).reshape(shapes[2]) if needs[2] else None,
    )
