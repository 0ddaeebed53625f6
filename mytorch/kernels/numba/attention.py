"""Attention for one head at a time: scores, softmax and products with what fits in the second-level cache.

The matrix products stay with BLAS (a loop of ours would not reach it); this kernel fuses everything
between them, mask, scale, softmax and its backward, into one pass over the scores, causally skipping the
half that is masked. Kept for backward: the probabilities, as the reference does.
"""

import math

import numpy as np

from ..threads import split
from .common import exp, is_float32, kernel


@kernel
def _softmax(scores, scale, causal):
    """scores (N, L, S) to probabilities, in place."""
    n, rows, columns = scores.shape
    for h in range(n):
        for i in range(rows):
            end = min(i + 1, columns) if causal else columns
            peak = scores[h, i, 0]
            for j in range(end):
                peak = max(peak, scores[h, i, j])
            total = np.float32(0.0)
            for j in range(end):
                e = exp((scores[h, i, j] - peak) * scale)
                scores[h, i, j] = e
                total += e
            inverse = np.float32(1.0) / total
            for j in range(end):
                scores[h, i, j] *= inverse
            for j in range(end, columns):
                scores[h, i, j] = np.float32(0.0)


@kernel
def _softmax_bwd(gp, p, scale):
    """Gradient of the probabilities (N, L, S) to gradient of the scores, times scale, in place."""
    n, rows, columns = p.shape
    for h in range(n):
        for i in range(rows):
            total = np.float32(0.0)
            for j in range(columns):
                total += gp[h, i, j] * p[h, i, j]
            for j in range(columns):
                gp[h, i, j] = p[h, i, j] * (gp[h, i, j] - total) * scale


residuals = ("probabilities",)


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale):
    """float32, no mask but causality, equal leading axes, a positive scale."""
    return (
        is_float32(query, key, value)
        and mask is None
        and window is None
        and scale > 0
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and query.shape[-2] > 0
        and key.shape[-2] > 0
    )


def pays(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale):
    """Wherever there are more than a few hundred scores."""
    return math.prod(query.shape[:-1]) * key.shape[-2] >= 512


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale):
    """softmax(query @ keyᵀ * scale) @ value."""
    p = np.matmul(query, key.swapaxes(-1, -2))
    scores = p.reshape(-1, *p.shape[-2:])
    split(_softmax, p.size, (scores,), np.float32(scale), causal)
    return np.matmul(p if keep is None else p * keep, value), p


def vjp(g, query, key, value, probabilities, keep, scale, needs):
    """The gradients of query, key and value."""
    p = probabilities
    gp = np.matmul(g, value.swapaxes(-1, -2))
    if keep is not None:
        gp *= keep
    flat = gp.reshape(-1, *gp.shape[-2:])
    split(_softmax_bwd, p.size, (flat, p.reshape(flat.shape)), np.float32(scale))
    gq = np.matmul(gp, key) if needs[0] else None
    gk = np.matmul(gp.swapaxes(-1, -2), query) if needs[1] else None
    gv = np.matmul((p if keep is None else p * keep).swapaxes(-1, -2), g) if needs[2] else None
    return gq, gk, gv, None
