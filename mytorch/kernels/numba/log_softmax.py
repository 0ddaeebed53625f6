"""Log-softmax along the last axis: x - max - log(sum(exp(x - max))). Its gradient is g - exp(out) * sum(g).

The log-sum-exp is the same without the first x, and its gradient is g * exp(x - out).
"""

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import exp, kernel
from .softmax import accepts, by_rows, peak_of

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


def forward(xp, input, *, dim, dtype=None):
    """Returns the log-softmax, row by row."""
    return by_rows(_fwd, input)


def vjp(g, out, dim):
    """Returns the gradient of the input."""
    return (by_rows(_bwd, g, out),)


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


def _rows(x):
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1])


def _log_sum(xp, input, *, dim, keepdim=False):
    rows = _rows(input)
    out = np.empty(len(rows), np.float32)
    shape = (*input.shape[:-1], 1) if keepdim else input.shape[:-1]
    return None if split(_log_sums, rows.size, (rows, out)) else out.reshape(shape)


def _log_sum_vjp(g, input, out):
    gx = np.empty(input.shape, np.float32)
    rows = (np.ascontiguousarray(a).reshape(-1) for a in (g, out))
    split(_log_sums_bwd, gx.size, (*rows, _rows(input), _rows(gx)))
    return (gx,)


def _accepts_log_sum(input, *, dim, keepdim=False):
    return dim is not None and len(dim) == 1 and accepts(input, dim=dim[0])


logsumexp = Kernel(accepts=_accepts_log_sum, forward=_log_sum, vjp=_log_sum_vjp, residuals=())
