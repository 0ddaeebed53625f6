"""Log-softmax along an axis: x - max - log(sum(exp(x - max))). Its gradient is g - exp(out) * sum(g).

The log-sum-exp is the same without the first x, and its gradient is g * exp(x - out).
"""

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import exp, kernel
from .softmax import _ROWS, _STRIP, accepts, along, in_columns, peak_of, peaks_of, strip_of

__all__ = ["accepts", "forward", "logsumexp", "vjp"]


@kernel
def _fwd(x, out):
    rows, width = x.shape
    has_nonfinite = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        has_nonfinite = has_nonfinite or infinite
        total = np.float32(0.0)
        for j in range(width):
            shifted = x[r, j] - peak
            # Store x - max first: max + log(total) as one number would lose digits for a large maximum.
            out[r, j] = shifted
            total += exp(shifted)
        log_total = np.log(total)
        for j in range(width):
            out[r, j] -= log_total
    return has_nonfinite


@kernel
def _bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        # The softmax is exp(out), so it is computed again instead of being saved.
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j]
        for j in range(width):
            gx[r, j] = g[r, j] - exp(out[r, j]) * total


@kernel
def _fwd_columns(own, x, out):
    has_nonfinite = False
    peaks, part, totals = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float32), np.empty(_STRIP)
    for t in own:
        o, first, last = strip_of(t, x)
        has_nonfinite = peaks_of(x[o], first, last, peaks) or has_nonfinite
        totals[:] = 0.0
        for start in range(0, x.shape[1], _ROWS):
            part[:] = 0.0
            for j in range(start, min(start + _ROWS, x.shape[1])):
                row, to = x[o, j, first:last], out[o, j, first:last]
                for c in range(row.size):
                    shifted = row[c] - peaks[c]
                    to[c] = shifted
                    part[c] += exp(shifted)
            for c in range(last - first):
                totals[c] += part[c]
        for c in range(last - first):
            peaks[c] = np.log(totals[c])
        for j in range(x.shape[1]):
            to = out[o, j, first:last]
            for c in range(to.size):
                to[c] -= peaks[c]
    return has_nonfinite


@kernel
def _bwd_columns(own, g, out, gx):
    sums, part, totals = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float32), np.empty(_STRIP)
    for t in own:
        o, first, last = strip_of(t, g)
        totals[:] = 0.0
        for start in range(0, g.shape[1], _ROWS):
            part[:] = 0.0
            for j in range(start, min(start + _ROWS, g.shape[1])):
                up = g[o, j, first:last]
                for c in range(up.size):
                    part[c] += up[c]
            for c in range(last - first):
                totals[c] += part[c]
        for c in range(last - first):
            sums[c] = totals[c]
        for j in range(g.shape[1]):
            up, row, to = g[o, j, first:last], out[o, j, first:last], gx[o, j, first:last]
            for c in range(row.size):
                to[c] = up[c] - exp(row[c]) * sums[c]


def forward(xp, input, *, dim, dtype=None):
    """Returns the log-softmax along an axis."""
    return along(dim, _fwd, _fwd_columns, input)


def vjp(g, out, dim):
    """Returns the gradient of the input."""
    return (along(dim, _bwd, _bwd_columns, g, out),)


@kernel
def _log_sums(x, out):
    rows, width = x.shape
    has_nonfinite = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        has_nonfinite = has_nonfinite or infinite
        total = np.float32(0.0)
        for j in range(width):
            total += exp(x[r, j] - peak)
        out[r] = peak + np.log(total)
    return has_nonfinite


@kernel
def _log_sums_bwd(g, out, x, gx):
    rows, width = x.shape
    for r in range(rows):
        for j in range(width):
            gx[r, j] = g[r] * exp(x[r, j] - out[r])


@kernel
def _log_sums_of_columns(own, x, out):
    has_nonfinite = False
    peaks, part, totals = np.empty(_STRIP, np.float32), np.empty(_STRIP, np.float32), np.empty(_STRIP)
    for t in own:
        o, first, last = strip_of(t, x)
        has_nonfinite = peaks_of(x[o], first, last, peaks) or has_nonfinite
        totals[:] = 0.0
        for start in range(0, x.shape[1], _ROWS):
            part[:] = 0.0
            for j in range(start, min(start + _ROWS, x.shape[1])):
                row = x[o, j, first:last]
                for c in range(row.size):
                    part[c] += exp(row[c] - peaks[c])
            for c in range(last - first):
                totals[c] += part[c]
        for c in range(last - first):
            out[o, 0, first + c] = peaks[c] + np.log(totals[c])
    return has_nonfinite


@kernel
def _log_sums_bwd_columns(own, x, g, out, gx):
    # Each row along the axis has the same row of gradients and of results.
    for t in own:
        o, first, last = strip_of(t, x)
        up, total = g[o, first:last], out[o, first:last]
        for j in range(x.shape[1]):
            row, to = x[o, j, first:last], gx[o, j, first:last]
            for c in range(row.size):
                to[c] = up[c] * exp(row[c] - total[c])


def _log_sum(xp, input, *, dim, keepdim=False):
    axis = dim[0] % input.ndim
    shape = tuple(1 if a == axis else n for a, n in enumerate(input.shape) if keepdim or a != axis)
    return along(axis, _log_sums, _log_sums_of_columns, input, out=np.empty(shape, np.float32))


def _log_sum_vjp(g, input, out, dim):
    axis = dim[0] % input.ndim
    gx, x = np.empty(input.shape, np.float32), np.ascontiguousarray(input)
    g, out = (np.ascontiguousarray(a) for a in (g, out))
    if axis == input.ndim - 1:
        split(_log_sums_bwd, gx.size, (g.reshape(-1), out.reshape(-1), *(a.reshape(-1, a.shape[-1]) for a in (x, gx))))
    else:
        (x, to), tasks = in_columns(axis, x, gx)
        sums = (a.reshape(len(x), x.shape[2]) for a in (g, out))
        split(_log_sums_bwd_columns, gx.size, (tasks,), x, *sums, to)
    return (gx,)


def _accepts_log_sum(input, *, dim, keepdim=False):
    return dim is not None and len(dim) == 1 and accepts(input, dim=dim[0])


logsumexp = Kernel(accepts=_accepts_log_sum, forward=_log_sum, vjp=_log_sum_vjp, residuals=())
