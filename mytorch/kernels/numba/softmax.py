"""Softmax and its logarithm along the last axis, forward and backward, a row at a time.

Forward makes three sweeps over a row that is in cache: its maximum, the exponentials and their sum, the
division. Backward: gx = out * (g - sum(g * out)).
"""

import numpy as np

from ...backend import numpy_ns
from ..kernel import Kernel
from ..threads import split
from .common import exp, is_float32, kernel, larger


@kernel
def _fwd(x, out):
    rows, width = x.shape
    for r in range(rows):
        peak = x[r, 0]
        for j in range(width):
            peak = larger(peak, x[r, j])
        total = np.float32(0.0)
        for j in range(width):
            e = exp(x[r, j] - peak)
            out[r, j] = e
            total += e
        scale = np.float32(1.0) / total
        for j in range(width):
            out[r, j] *= scale


@kernel
def _bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j] * out[r, j]
        for j in range(width):
            gx[r, j] = out[r, j] * (g[r, j] - total)


LEAST = 1024


@kernel
def _log_fwd(x, out):
    rows, width = x.shape
    for r in range(rows):
        peak = x[r, 0]
        for j in range(width):
            peak = larger(peak, x[r, j])
        total = np.float32(0.0)
        for j in range(width):
            total += exp(x[r, j] - peak)
        least = peak + np.log(total)
        for j in range(width):
            out[r, j] = x[r, j] - least


@kernel
def _log_bwd(g, out, gx):
    rows, width = out.shape
    for r in range(rows):
        total = np.float32(0.0)
        for j in range(width):
            total += g[r, j]
        for j in range(width):
            gx[r, j] = g[r, j] - exp(out[r, j]) * total


def accepts(input, *, dim, dtype=None):
    """float32, along the last axis, of which there is something."""
    return dtype is None and is_float32(input) and input.ndim > 0 and dim == input.ndim - 1 and input.size > 0


def pays(input, *, dim, dtype=None):
    """If no infinity or NaN is about: those take the reference."""
    return bool(np.isfinite(numpy_ns.sum(input)))


def _forward(loop, input):
    x = np.ascontiguousarray(input).reshape(-1, input.shape[-1])
    out = np.empty_like(x)
    split(loop, x.size, (x, out))
    return out.reshape(input.shape)


def _backward(loop, g, out):
    p = np.ascontiguousarray(out).reshape(-1, out.shape[-1])
    gx = np.empty_like(p)
    split(loop, p.size, (np.ascontiguousarray(g).reshape(p.shape), p, gx))
    return (gx.reshape(out.shape),)


def forward(xp, input, *, dim, dtype=None):
    """exp(x - max) / sum, row by row."""
    return _forward(_fwd, input)


def vjp(g, out, dim):
    """The gradient of input."""
    return _backward(_bwd, g, out)


log_softmax = Kernel(
    accepts=accepts,
    pays=pays,
    forward=lambda xp, input, *, dim, dtype=None: _forward(_log_fwd, input),
    vjp=lambda g, out, dim: _backward(_log_bwd, g, out),
)
