"""Scaled dot-product attention, one head at a time; long heads in blocks of rows whose scores fit into the second-level cache.

The matrix products use BLAS, which is faster than a compiled loop here. Each product runs on one thread, because the heads are
divided among the threads. The kernels do everything between the products in one pass over the scores: scale, mask, softmax
and the gradient of softmax. For a causal block, only the columns that at least one row attends to are computed and stored.
This is little more than half of the columns that the reference computes and stores.

One query, or a few queries that share keys, as in text generation, use one kernel from the scores to the output.
"""

import math

import numpy as np

from .. import blas
from ..heads import laid_out_as, side_by_side
from ..threads import chunks_for, split
from .common import exp, is_float32, kernel, larger, rows_of

ROWS = 128  # query rows of a block
FEW = 8  # up to this number of queries per head, one fused kernel replaces BLAS


@kernel
def _softmax(scores, scale, causal, first, left):
    """Replaces scores (N, rows, columns) by probabilities: softmax(scores * scale) along the last axis.

    With `causal`, row i attends to columns up to first + i. `left` is the window: the number of columns before that column.
    """
    n, rows, columns = scores.shape
    for h in range(n):
        for i in range(rows):
            # The visible columns [begin, end). The columns outside are masked and become 0.
            end = min(first + i + 1, columns) if causal else columns
            begin = max(first + i - left, 0)
            visible = scores[h, i, begin:end]
            # Subtract the row's maximum: every exponent is at most 0, so exp cannot overflow.
            peak = np.float32(-np.inf)
            for j in range(len(visible)):
                peak = larger(peak, visible[j])
            total = np.float32(0.0)
            for j in range(len(visible)):
                e = exp((visible[j] - peak) * scale)
                visible[j] = e
                total += e
            # One division per row.
            inverse = np.float32(1.0) / total
            for j in range(len(visible)):
                visible[j] *= inverse
            scores[h, i, :begin] = 0
            scores[h, i, end:] = 0


@kernel
def _softmax_bwd(gp, p, scale):
    """Replaces the gradient of the probabilities (N, L, S) by the gradient of the scores: p * (gp - sum(gp * p)) * scale."""
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
    """Computes attention: query (N, L, E), key (N, S, E) and value (N, S, Ev) to p (N, L, S) and out (N, L, Ev)."""
    heads, length, width = query.shape
    columns, v_width = value.shape[1:]
    for h in range(heads):
        # rows_of declares each head as contiguous, so that the compiler vectorizes the loops over e.
        q, k = rows_of(query, h, length, width), rows_of(key, h, columns, width)
        total, v = rows_of(out, h, length, v_width), rows_of(value, h, columns, v_width)
        # Scores of all queries of the head: p = q @ kᵀ.
        for i in range(length):
            for j in range(columns):
                score = np.float32(0)
                for e in range(width):
                    score += q[i, e] * k[j, e]
                p[h, i, j] = score
        _softmax(p[h : h + 1], scale, False, 0, length)
        for i in range(length):
            # out = p @ v, a sum of rows of v: the inner loop runs along contiguous memory.
            total[i] = 0
            for j in range(columns):
                for e in range(v_width):
                    total[i, e] += p[h, i, j] * v[j, e]


residuals = ("probabilities",)


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Accepts float32 with equal leading axes and a positive scale; no mask except a causal one with a window, and no softcap."""
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


def is_faster(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Returns True for few queries, or at least 512 scores."""
    return _are_few(query, key, keep, causal) or math.prod(query.shape[:-1]) * key.shape[-2] >= 512


def _are_few(query, key, keep, causal):
    return query.shape[-2] <= FEW and keep is None and (key.shape[-2] == 1 or not causal)


def _blocks(rows, columns, causal, window):
    """Divides the query rows into blocks.

    Returns:
        A list of (first row, end row, first column, end column, slice of the probabilities), the total number of probabilities
        and the window: the number of columns before its own column that a row attends to.
    """
    blocks, size, step = [], 0, ROWS if rows >= 2 * ROWS else rows
    left = max(rows, columns) if window is None else window[0]
    for i in range(0, rows, step):
        j = min(i + step, rows)
        # The union of the columns that the block's rows attend to.
        start, stop = min(max(i - left, 0), columns - 1), min(j, columns) if causal else columns
        blocks.append((i, j, start, stop, slice(size, size + (j - i) * (stop - start))))
        size += (j - i) * (stop - start)
    return blocks, size, left


def _run(function, blocks, arrays, *options):
    """Calls function(blocks, *arrays, *options) for groups of heads if one block is a whole head, otherwise for single heads.

    Args:
        arrays: arrays with the same leading axes, or None.
    """
    batch_shape = arrays[0].shape[:-2]
    if len(blocks) > 1:
        # Long heads: one task per head, so that the scores of a block stay in the cache.
        groups = list(np.ndindex(batch_shape))
    else:
        # Short heads: batched products over several heads. Cut along the first axis that is longer than 1.
        while len(batch_shape) > 1 and batch_shape[0] == 1:
            batch_shape, arrays = batch_shape[1:], [a if a is None else a[0] for a in arrays]
        chunks = (
            min(batch_shape[0], chunks_for(math.prod(batch_shape) * blocks[0][1] * blocks[0][3])) if batch_shape else 1
        )
        if chunks < 2:
            with blas.one_thread():
                function(blocks, *arrays, *options)
            return
        groups = [slice(i, j) for i, j in blas.bounds(batch_shape[0], chunks)]
    blas.run(function, [(blocks, *(a if a is None else a[g] for a in arrays), *options) for g in groups])


def _forward(blocks, query, key, value, keep, p, out, scale, causal, left):
    for i, j, start, stop, p_slice in blocks:
        # The scores are written into p, and softmax replaces them in place: p is saved for backward.
        scores = p[..., p_slice].reshape(*p.shape[:-1], j - i, stop - start)
        np.matmul(query[..., i:j, :], key[..., start:stop, :].swapaxes(-1, -2), scores)
        _softmax(scores.reshape(-1, j - i, stop - start), scale, causal, i - start, left)
        dropped = scores if keep is None else scores * keep[..., i:j, start:stop]
        np.matmul(dropped, value[..., start:stop, :], out[..., i:j, :])


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Returns softmax(query @ keyᵀ * scale) @ value, and the probabilities."""
    if _are_few(query, key, keep, causal):
        return _forward_of_few(query, key, value, np.float32(scale))
    blocks, size, left = _blocks(query.shape[-2], key.shape[-2], causal, window)
    p = np.empty((*query.shape[:-2], size), np.float32)
    out = laid_out_as(np, query, value.shape[-1])
    _run(_forward, blocks, (query, key, value, _over(keep, query, key), p, out), np.float32(scale), causal, left)
    return out, p


def _forward_of_few(query, key, value, scale):
    batch_shape, (length, width), (columns, v_width) = query.shape[:-2], query.shape[-2:], value.shape[-2:]
    p, out = (
        np.empty((*batch_shape, length * columns), np.float32),
        np.empty((*batch_shape, length, v_width), np.float32),
    )
    heads = [x.reshape(-1, *x.shape[-2:]) for x in (np.ascontiguousarray(query), key, value)]
    # A cache of keys may be longer than its used part: only the rows of each head must be contiguous.
    heads[1:] = [x if x.strides[1:] == (4 * x.shape[2], 4) else np.ascontiguousarray(x) for x in heads[1:]]
    arrays = *heads, p.reshape(-1, length, columns), out.reshape(-1, length, v_width)
    split(_few, p.size * width, arrays, scale)
    return out, p


def _over(keep, query, key):
    """Returns the dropout mask broadcast to all leading axes, or None."""
    return None if keep is None else np.broadcast_to(keep, (*query.shape[:-1], key.shape[-2]))


def _backward(blocks, g, query, key, value, keep, p, gq, gk, gv, scale, single_block):
    for i, j, start, stop, p_slice in blocks:
        scores = p[..., p_slice].reshape(*p.shape[:-1], j - i, stop - start)
        # `_softmax_bwd` writes to a reshaped view of gp. Without `out`, matmul would give gp the axis order of g and value,
        # in which `reshape` may return a copy.
        gp = np.empty(scores.shape, np.float32)
        np.matmul(g[..., i:j, :], value[..., start:stop, :].swapaxes(-1, -2), gp)
        dropped = scores
        if keep is not None:
            kept = keep[..., i:j, start:stop]
            gp *= kept
            dropped = scores * kept
        # gp becomes the gradient of the scores.
        _softmax_bwd(gp.reshape(-1, j - i, stop - start), scores.reshape(-1, j - i, stop - start), scale)
        if gq is not None:
            np.matmul(gp, key[..., start:stop, :], gq[..., i:j, :])
        for total, a, b in ((gk, gp, query), (gv, dropped, g)):
            if total is not None:
                # gk = gpᵀ @ query and gv = pᵀ @ g. With one block, the product is the result; otherwise blocks add up.
                product = np.matmul(a.swapaxes(-1, -2), b[..., i:j, :], total if single_block else None)
                if not single_block:
                    total[..., start:stop, :] += product


def vjp(g, query, key, value, probabilities, keep, causal, window, scale, needs):
    """Returns the gradients of query, key and value, and None for the mask."""
    blocks, *_ = _blocks(query.shape[-2], key.shape[-2], causal, window)
    # One block covers all keys of a head.
    single_block = len(blocks) == 1 and blocks[0][3] - blocks[0][2] == key.shape[-2]
    gq, gk, gv = (all(needs[:3]) and side_by_side(np, query, key, value)) or [
        laid_out_as(np, x, x.shape[-1]) if n else None for x, n in zip((query, key, value), needs[:3], strict=True)
    ]
    if not single_block:
        for total in (gk, gv):
            if total is not None:
                total[...] = 0
    arrays = (g, query, key, value, _over(keep, query, key), probabilities, gq, gk, gv)
    _run(_backward, blocks, arrays, np.float32(scale), single_block)
    return gq, gk, gv, None
