"""Attention a head at a time, and long heads in blocks of rows: scores, softmax and products with what fits in the second-level cache.

The matrix products stay with BLAS (a loop of ours would not reach it), on one thread, as the heads are spread over the threads;
the kernels do everything between them, scale, mask, softmax and its backward, in one pass over the scores. Of a causal
block only the columns that one of its rows sees are computed, and kept: nearly half of what the reference makes and keeps.

A query alone, or a few that share keys, as in making text, are one kernel from the scores to the sum of the values.
"""

import math

import numpy as np

from .. import blas
from ..heads import laid_out_as, side_by_side
from ..threads import chunks_for, split
from .common import exp, is_float32, kernel, larger, rows_of

ROWS = 128  # of a block
FEW = 8  # queries of a head up to which BLAS has little to win


@kernel
def _softmax(scores, scale, causal, first, left):
    """scores (N, rows, columns) to probabilities, in place; row 0 is row `first` of the columns' own, and sees `left` before it."""
    n, rows, columns = scores.shape
    for h in range(n):
        for i in range(rows):
            end = min(first + i + 1, columns) if causal else columns
            begin = max(first + i - left, 0)
            seen = scores[h, i, begin:end]
            peak = np.float32(-np.inf)
            for j in range(len(seen)):
                peak = larger(peak, seen[j])
            total = np.float32(0.0)
            for j in range(len(seen)):
                e = exp((seen[j] - peak) * scale)
                seen[j] = e
                total += e
            inverse = np.float32(1.0) / total
            for j in range(len(seen)):
                seen[j] *= inverse
            scores[h, i, :begin] = 0
            scores[h, i, end:] = 0


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


@kernel
def _few(query, key, value, p, out, scale):
    """Heads (N, L, E), (N, S, E) and (N, S, Ev), with probabilities p (N, L, S) and out (N, L, Ev)."""
    heads, length, width = query.shape
    columns, deep = value.shape[1:]
    for h in range(heads):
        q, k = rows_of(query, h, length, width), rows_of(key, h, columns, width)
        total, v = rows_of(out, h, length, deep), rows_of(value, h, columns, deep)
        for i in range(length):
            for j in range(columns):
                score = np.float32(0)
                for e in range(width):
                    score += q[i, e] * k[j, e]
                p[h, i, j] = score
        _softmax(p[h : h + 1], scale, False, 0, length)
        for i in range(length):
            total[i] = 0
            for j in range(columns):
                for e in range(deep):
                    total[i, e] += p[h, i, j] * v[j, e]


residuals = ("probabilities",)


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """float32, no mask but causality and a window before it, no cap, equal leading axes, a positive scale."""
    return (
        is_float32(query, key, value)
        and mask is None
        and (window is None or (causal and window[0] >= 0))
        and softcap is None
        and scale > 0
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and query.shape[-2] > 0
        and key.shape[-2] > 0
    )


def pays(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Wherever there are more than a few hundred scores, or few queries."""
    return _are_few(query, key, keep, causal) or math.prod(query.shape[:-1]) * key.shape[-2] >= 512


def _are_few(query, key, keep, causal):
    return query.shape[-2] <= FEW and keep is None and (key.shape[-2] == 1 or not causal)


def _blocks(rows, columns, causal, window):
    """(begin, end, first column, last, place of the probabilities) for each block of rows, the size of all together, and how many
    columns before its own a row sees."""
    blocks, size, step = [], 0, ROWS if rows >= 2 * ROWS else rows
    left = max(rows, columns) if window is None else window[0]
    for i in range(0, rows, step):
        j = min(i + step, rows)
        start, stop = min(max(i - left, 0), columns - 1), min(j, columns) if causal else columns
        blocks.append((i, j, start, stop, slice(size, size + (j - i) * (stop - start))))
        size += (j - i) * (stop - start)
    return blocks, size, left


def _run(function, blocks, arrays, *options):
    """function(blocks, *arrays, *options) for groups of heads where one block is a whole head, else for single heads.

    Args:
        arrays: each with the same leading axes, or None.
    """
    lead = arrays[0].shape[:-2]
    if len(blocks) > 1:
        groups = list(np.ndindex(lead))
    else:
        while len(lead) > 1 and lead[0] == 1:
            lead, arrays = lead[1:], [a if a is None else a[0] for a in arrays]
        chunks = min(lead[0], chunks_for(math.prod(lead) * blocks[0][1] * blocks[0][3])) if lead else 1
        if chunks < 2:
            with blas.one_thread():
                function(blocks, *arrays, *options)
            return
        groups = [slice(i, j) for i, j in blas.bounds(lead[0], chunks)]
    blas.run(function, [(blocks, *(a if a is None else a[g] for a in arrays), *options) for g in groups])


def _forward(blocks, query, key, value, keep, p, out, scale, causal, left):
    for i, j, start, stop, place in blocks:
        scores = p[..., place].reshape(*p.shape[:-1], j - i, stop - start)
        np.matmul(query[..., i:j, :], key[..., start:stop, :].swapaxes(-1, -2), scores)
        _softmax(scores.reshape(-1, j - i, stop - start), scale, causal, i - start, left)
        dropped = scores if keep is None else scores * keep[..., i:j, start:stop]
        np.matmul(dropped, value[..., start:stop, :], out[..., i:j, :])


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """softmax(query @ keyᵀ * scale) @ value."""
    if _are_few(query, key, keep, causal):
        return _forward_of_few(query, key, value, np.float32(scale))
    blocks, size, left = _blocks(query.shape[-2], key.shape[-2], causal, window)
    p = np.empty((*query.shape[:-2], size), np.float32)
    out = laid_out_as(np, query, value.shape[-1])
    _run(_forward, blocks, (query, key, value, _over(keep, query, key), p, out), np.float32(scale), causal, left)
    return out, p


def _forward_of_few(query, key, value, scale):
    lead, (length, width), (columns, deep) = query.shape[:-2], query.shape[-2:], value.shape[-2:]
    p, out = np.empty((*lead, length * columns), np.float32), np.empty((*lead, length, deep), np.float32)
    heads = [x.reshape(-1, *x.shape[-2:]) for x in (np.ascontiguousarray(query), key, value)]
    heads[1:] = [x if x.strides[1:] == (4 * x.shape[2], 4) else np.ascontiguousarray(x) for x in heads[1:]]
    arrays = *heads, p.reshape(-1, length, columns), out.reshape(-1, length, deep)
    split(_few, p.size * width, arrays, scale)
    return out, p


def _over(keep, query, key):
    """A mask of dropout with all leading axes."""
    return None if keep is None else np.broadcast_to(keep, (*query.shape[:-1], key.shape[-2]))


def _backward(blocks, g, query, key, value, keep, p, gq, gk, gv, scale, whole):
    for i, j, start, stop, place in blocks:
        scores = p[..., place].reshape(*p.shape[:-1], j - i, stop - start)
        # `_softmax_bwd` writes to a reshaped view of gp. Without `out`, matmul would give gp the axis order of g and value,
        # in which `reshape` may return a copy.
        gp = np.empty(scores.shape, np.float32)
        np.matmul(g[..., i:j, :], value[..., start:stop, :].swapaxes(-1, -2), gp)
        dropped = scores
        if keep is not None:
            kept = keep[..., i:j, start:stop]
            gp *= kept
            dropped = scores * kept
        _softmax_bwd(gp.reshape(-1, j - i, stop - start), scores.reshape(-1, j - i, stop - start), scale)
        if gq is not None:
            np.matmul(gp, key[..., start:stop, :], gq[..., i:j, :])
        for total, a, b in ((gk, gp, query), (gv, dropped, g)):
            if total is not None:
                product = np.matmul(a.swapaxes(-1, -2), b[..., i:j, :], total if whole else None)
                if not whole:
                    total[..., start:stop, :] += product


def vjp(g, query, key, value, probabilities, keep, causal, window, scale, needs):
    """The gradients of query, key and value."""
    blocks, *_ = _blocks(query.shape[-2], key.shape[-2], causal, window)
    whole = len(blocks) == 1 and blocks[0][3] - blocks[0][2] == key.shape[-2]  # all of a head's keys at once
    gq, gk, gv = (all(needs[:3]) and side_by_side(np, query, key, value)) or [
        laid_out_as(np, x, x.shape[-1]) if n else None for x, n in zip((query, key, value), needs[:3], strict=True)
    ]
    if not whole:
        for total in (gk, gv):
            if total is not None:
                total[...] = 0
    arrays = (g, query, key, value, _over(keep, query, key), probabilities, gq, gk, gv)
    _run(_backward, blocks, arrays, np.float32(scale), whole)
    return gq, gk, gv, None
