"""Flash attention: softmax(q kᵀ * scale + mask) v without storing the (L, S) scores.

**Forward.** A program computes BM queries and loops over the keys, BN at a time. For each block it has the scores s (BM, BN)
in registers. When the maximum of a row grows, it rescales the sums so far, as for long rows in softmax.py:

    m' = max(m, max(s)),   acc = acc * 2^(m - m') + 2^(s - m') v,   l = l * 2^(m - m') + sum(2^(s - m')),

with scores in units of log2. At the end out = acc / l. Only lse = m + log2(l) is saved, one float32 per row.

**Backward.** With lse, the probabilities are computed again in one step, p = 2^(s - lse). With dp = g vᵀ:

    gv = pᵀ g,   ds = p * (dp - delta),   gq = ds k * scale,   gk = dsᵀ q * scale,

Here delta = sum_j p_j dp_j = sum(g * out) per row (the same sum, over D numbers instead of S). One kernel holds a block
of queries and loops over the keys (gq and delta). Another kernel holds keys and loops over the queries (gk, gv). No atomics are
used, so results are deterministic. With grouped queries, the second kernel sums over all query heads of a group.

**Masking.** Query i attends to keys i - left … i + right; a causal mask is right = 0. Fully masked blocks are skipped. Only
blocks at the edge of the window, or all blocks under a mask array, need comparisons. A fully masked query gives zeros.
Dropout uses Philox bits by (seed, offset, head, i, j), so forward and backward use the same mask (dropout.py). Products
accumulate in float32. float32 inputs use three TF32 products (Ootomo and Yokota, 2022).

Grid: one program for each block of queries (or keys) of each head. Arguments of the kernels:

    q_ptr (B, H, L, D), k_ptr (B, H / group, S, D), v_ptr (B, H / group, S, Dv), out_ptr and g_ptr (B, H, L, Dv),
    mask_ptr (B, H, L, S): any strides; the last axis of the first five is contiguous
    lse_ptr and delta_ptr (B, H, L): contiguous
    state_ptr (2,) int64: the Philox seed and offset

In the kernels, sizes = (L, S, D, Dv), window = (left, right), and drop = (seed, offset, call, head, limit) of dropout.

Sources: Dao, FlashAttention-2, 2023; Milakov and Gimelshein, 2018.
"""

import itertools
import math
import sys
from functools import lru_cache

import triton
import triton.language as tl

from ...arrays import config, xp_of
from ..heads import by_time, side_by_side
from ..kernel import Kernel
from ..launch import cdiv, launch, mode_for, power_of_2, tuned
from ..registry import CUDNN_ATTENTION
from .common import LOG2E, contiguous, dot, is_mask, one_dtype, strides_of, threshold

MODE = "TRITON_FLASH_AUTOTUNE_MODE"


@triton.jit
def _tile(ptr, rows, stride, cols, limit, width, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Loads rows of a (…, width) array. Rows from `limit` on and padding columns are 0.

    EVEN: the width is a power of 2, so there are no padding columns. Loads without a mask are faster.
    """
    ptrs = ptr + rows[:, None].to(tl.int64) * stride + cols[None, :]
    if CHECK_ROWS:
        if EVEN:
            return tl.load(ptrs, mask=rows[:, None] < limit, other=0.0)
        return tl.load(ptrs, mask=(rows[:, None] < limit) & (cols[None, :] < width), other=0.0)
    if EVEN:
        return tl.load(ptrs)
    return tl.load(ptrs, mask=cols[None, :] < width, other=0.0)


@triton.jit
def _store_tile(ptr, x, rows, stride, cols, limit, width):
    """Stores rows of a (…, width) array. Rows from `limit` on and padding columns are skipped."""
    ptrs = ptr + rows[:, None].to(tl.int64) * stride + cols[None, :]
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=(rows[:, None] < limit) & (cols[None, :] < width))


@triton.jit
def _keep(drop, rows, start, length_k, BM: tl.constexpr, BN: tl.constexpr):
    """Returns the dropout mask of a (BM, BN) block of scores. `start`, the first key, is a multiple of BN."""
    seed, offset, call, head, limit = drop
    # One Philox call gives 4 numbers, so it is shared by 4 adjacent keys of a row.
    fours = start // 4 + tl.arange(0, BN // 4)
    # The counter numbers all groups of 4 keys of the head. It does not depend on the block sizes.
    counter = rows[:, None].to(tl.int64) * ((length_k + 3) // 4) + fours[None, :]
    zero = (counter * 0).to(tl.uint32)
    a, b, c, d = tl.philox(
        seed, (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32) + call.to(tl.uint32), zero + offset.to(tl.uint32),
        zero + head.to(tl.uint32), 7,
    )  # fmt: skip
    # Interleave the four results: join adds a last axis of size 2, so the order is a, b, c, d.
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BM, BN))
    return bits.to(tl.uint32) >= limit.to(tl.uint32)


@triton.jit
def _mask(s, mask_ptr, rows, cols, sizes, window, stride_ml, stride_ms,
          RIM: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr):  # fmt: skip
    """Returns the scores with -inf at masked positions. rows and cols have shapes that broadcast to s."""
    length_q, length_k, _, _ = sizes
    left, right = window
    if RIM:
        visible = (cols < length_k) & (rows < length_q)
        if LEFT:
            visible = visible & (cols >= rows - left)
        if RIGHT:
            visible = visible & (cols <= rows + right)
        s = tl.where(visible, s, float("-inf"))
    if MASK != 0:
        inside = (rows < length_q) & (cols < length_k)
        ptrs = mask_ptr + rows.to(tl.int64) * stride_ml + cols.to(tl.int64) * stride_ms
        if MASK == 1:
            s = tl.where(tl.load(ptrs, mask=inside, other=0) != 0, s, float("-inf"))
        else:
            # The scores are in units of log2, so an added mask is converted too.
            s += tl.load(ptrs, mask=inside, other=0.0).to(tl.float32) * LOG2E
    return s


@triton.jit
def _range(
    first, length, before, after, OWN: tl.constexpr, STEP: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr
):
    """Returns the range of the other axis that OWN rows from `first` on attend to, in blocks of STEP.

    Row i attends to i - before … i + after.

    Returns:
        The first visible position, begin and end of the blocks that all rows attend to entirely, and the last visible position + 1.
    """
    low = 0
    full_low = 0
    high = length
    full_high = length
    if BEFORE:
        # The first row reaches furthest back. The last row limits the blocks that are visible to all rows.
        low = tl.maximum(first - before, 0) // STEP * STEP
        full_low = (tl.maximum(first + OWN - 1 - before, 0) + STEP - 1) // STEP * STEP
    if AFTER:
        # The last row reaches furthest ahead, and the first row limits the full blocks.
        high = tl.minimum(length, first + OWN + after)
        full_high = tl.minimum(length, first + after + 1)
    # Whole blocks only: the rest is part of the edge.
    full_high = tl.maximum(full_high // STEP * STEP, full_low)
    return low, full_low, full_high, high


@triton.jit
def _part(ranges, PART: tl.constexpr):
    """Returns begin and end of the blocks at the left edge (PART 0), without masking (1), and at the right edge (2)."""
    low, full_low, full_high, high = ranges
    if PART == 0:
        return low, tl.minimum(full_low, high)
    if PART == 1:
        return full_low, full_high
    return full_high, high


@triton.jit
def _forward_sweep(acc, total, peak, q, k_ptr, v_ptr, mask_ptr, rows, begin, end, sizes, window, stride_ks, stride_vs, stride_ml, stride_ms,
                   scale, drop, RIM: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr,
                   FOLD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr,
                   PRECISION: tl.constexpr):  # fmt: skip
    """Loops over the keys in [begin, end). RIM: the blocks need masking. FOLD: scale > 0 and no mask array."""
    _, length_k, width, width_v = sizes
    for start in range(begin, end, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(k_ptr, cols, stride_ks, tl.arange(0, BD), length_k, width, RIM, EVEN)
        s = dot(q, tl.trans(k), None, PRECISION)
        if not FOLD:
            s *= scale
        s = _mask(
            s, mask_ptr, rows[:, None], cols[None, :], sizes, window, stride_ml, stride_ms, RIM, LEFT, RIGHT, MASK
        )
        # FOLD: s stays unscaled; `s * scale - safe` below is one fused multiply-add.
        if FOLD:
            higher = tl.maximum(peak, tl.max(s, axis=1) * scale)
        else:
            higher = tl.maximum(peak, tl.max(s, axis=1))
        # A fully masked row has the maximum -inf, and -inf - -inf is NaN. Without a mask array and a left limit, every query attends
        # to the first key, so this cannot happen.
        if MASK != 0 or (RIM and LEFT):
            safe = tl.where(higher == float("-inf"), 0.0, higher)
        else:
            safe = higher
        if FOLD:
            p = tl.exp2(s * scale - safe[:, None])
        else:
            p = tl.exp2(s - safe[:, None])
        rescale = tl.exp2(peak - safe)
        # The sum of a row is the sum of softmax before dropout.
        total = total * rescale + tl.sum(p, axis=1)
        if DROP:
            p = tl.where(_keep(drop, rows, start, length_k, BM, BN), p, 0.0)
        v = _tile(v_ptr, cols, stride_vs, tl.arange(0, BV), length_k, width_v, RIM, EVEN)
        # p is rounded to the dtype of v for the tensor cores; the accumulator stays float32.
        acc = dot(p.to(v.dtype), v, acc * rescale[:, None], PRECISION)
        peak = higher
    return acc, total, peak


@triton.jit(do_not_specialize=["call", "limit"])
def _forward(q_ptr, k_ptr, v_ptr, mask_ptr, state_ptr, out_ptr, lse_ptr, blocks, heads, group, length_q, length_k, width, width_v,
             stride_qb, stride_qh, stride_ql, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
             stride_ob, stride_oh, stride_ol, stride_mb, stride_mh, stride_ml, stride_ms, left, right, scale, call, limit, kept_scale,
             LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, FOLD: tl.constexpr, BD: tl.constexpr,
             BV: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Computes out and lse of BM queries of a head."""
    block = tl.program_id(0) % blocks
    if RIGHT:
        block = blocks - 1 - block  # the longest rows first, so that no long program starts last
    batch_head = tl.program_id(0) // blocks
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)  # int64, because head * stride may exceed 32 bits
    first = block * BM
    rows = first + tl.arange(0, BM)
    sizes, window, drop = (length_q, length_k, width, width_v), (left, right), (0, 0, call, batch_head, limit)
    q = _tile(
        q_ptr + batch * stride_qb + head * stride_qh, rows, stride_ql, tl.arange(0, BD), length_q, width, True, EVEN
    )
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + (head // group) * stride_vh
    if MASK != 0:
        mask_ptr += batch * stride_mb + head * stride_mh
    if DROP:
        drop = (tl.load(state_ptr), tl.load(state_ptr + 1), call, batch_head, limit)
    peak = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    # Three loops: left edge, full blocks without comparisons, right edge.
    ranges = _range(first, length_k, left, right, BM, BN, LEFT, RIGHT)
    for part in tl.static_range(0 if LEFT else 1, 3):
        begin, end = _part(ranges, part)
        acc, total, peak = _forward_sweep(
            acc, total, peak, q, k_ptr, v_ptr, mask_ptr, rows, begin, end, sizes, window, stride_ks, stride_vs, stride_ml, stride_ms,
            scale, drop, part != 1, LEFT, RIGHT, MASK, DROP, FOLD, BM, BN, BD, BV, EVEN, PRECISION)  # fmt: skip
    # A fully masked query: out is 0, and lse = inf makes its probabilities 0 in backward.
    empty = total == 0.0
    # Normalize once at the end. kept_scale is 1 / (1 - p) of dropout.
    acc = acc * (kept_scale / tl.where(empty, 1.0, total))[:, None]
    lse = tl.where(empty, float("inf"), peak + tl.log2(total))
    tl.store(lse_ptr + batch_head.to(tl.int64) * length_q + rows, lse, mask=rows < length_q)
    _store_tile(
        out_ptr + batch * stride_ob + head * stride_oh, acc, rows, stride_ol, tl.arange(0, BV), length_q, width_v
    )


@triton.jit
def _delta(g_ptr, out_ptr, delta_ptr, count, heads, length, width, stride_gb, stride_gh, stride_gl, stride_ob, stride_oh, stride_ol,
           ROWS: tl.constexpr, BV: tl.constexpr):  # fmt: skip
    """Computes delta = sum(g * out) of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    batch_head = row // length
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    time = (row % length).to(tl.int64)
    cols = tl.arange(0, BV)[None, :]
    inside = (row < count)[:, None] & (cols < width)
    g_ptrs = g_ptr + (batch * stride_gb + head * stride_gh + time * stride_gl)[:, None] + cols
    out_ptrs = out_ptr + (batch * stride_ob + head * stride_oh + time * stride_ol)[:, None] + cols
    g = tl.load(g_ptrs, mask=inside, other=0.0).to(tl.float32)
    out = tl.load(out_ptrs, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta_ptr + row, tl.sum(g * out, axis=1), mask=row < count)


@triton.jit
def _keys_sweep(gk, gv, k, v, q_ptr, g_ptr, lse_ptr, delta_ptr, mask_ptr, cols, first, begin, end, sizes, window, stride_ql, stride_gl,
                stride_ml, stride_ms, scale, drop, kept_scale,
                RIM: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr,
                BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr,
                PRECISION: tl.constexpr):  # fmt: skip
    """Loops over the queries in [begin, end) for a block of keys. Blocks are transposed, (BN, BM), so pᵀ needs no transposition."""
    length_q, length_k, width, width_v = sizes
    for start in range(begin, end, BM):
        start = tl.multiple_of(start, BM)
        rows = start + tl.arange(0, BM)
        q = _tile(q_ptr, rows, stride_ql, tl.arange(0, BD), length_q, width, RIM, EVEN)
        s = dot(k, tl.trans(q), None, PRECISION) * scale
        s = _mask(
            s, mask_ptr, rows[None, :], cols[:, None], sizes, window, stride_ml, stride_ms, RIM, LEFT, RIGHT, MASK
        )
        if RIM:
            lse = tl.load(lse_ptr + rows, mask=rows < length_q, other=float("inf"))
            delta = tl.load(delta_ptr + rows, mask=rows < length_q, other=0.0)
        else:
            lse = tl.load(lse_ptr + rows)
            delta = tl.load(delta_ptr + rows)
        # The probabilities again, already normalized. Rows past the end have lse = inf and p = 0.
        p = tl.exp2(s - lse[None, :])
        g = _tile(g_ptr, rows, stride_gl, tl.arange(0, BV), length_q, width_v, RIM, EVEN)
        # Gradient of the probabilities: gp = v gᵀ.
        gp = dot(v, tl.trans(g), None, PRECISION)
        if DROP:
            # The mask of forward, from the same counters. Dropout's gradient is the mask and the factor again.
            keep = tl.trans(_keep(drop, rows, first, length_k, BM, BN).to(tl.int8)) != 0
            gv = dot(tl.where(keep, p * kept_scale, 0.0).to(g.dtype), g, gv, PRECISION)
            gp = tl.where(keep, gp * kept_scale, 0.0)
        else:
            gv = dot(p.to(g.dtype), g, gv, PRECISION)
        # Gradient of softmax; `scale` follows once at the end.
        gs = p * (gp - delta[None, :])
        gk = dot(gs.to(q.dtype), q, gk, PRECISION)
    return gk, gv


@triton.jit(do_not_specialize=["call", "limit"])
def _backward_keys(q_ptr, k_ptr, v_ptr, g_ptr, lse_ptr, delta_ptr, mask_ptr, state_ptr, gk_ptr, gv_ptr, blocks, heads, group,
                   length_q, length_k, width, width_v, stride_qb, stride_qh, stride_ql, stride_kb, stride_kh, stride_ks,
                   stride_vb, stride_vh, stride_vs, stride_gb, stride_gh, stride_gl, stride_gkb, stride_gkh, stride_gks,
                   stride_gvb, stride_gvh, stride_gvs, stride_mb, stride_mh, stride_ml, stride_ms,
                   left, right, scale, back_scale, call, limit, kept_scale,
                   LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, BD: tl.constexpr,
                   BV: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Computes the gradients of BN keys and values, summed over the query heads that share them."""
    block = tl.program_id(0) % blocks
    batch_head = tl.program_id(0) // blocks
    key_heads = heads // group
    batch = (batch_head // key_heads).to(tl.int64)
    key_head = (batch_head % key_heads).to(tl.int64)
    first = block * BN
    cols = first + tl.arange(0, BN)
    d, dv = tl.arange(0, BD), tl.arange(0, BV)
    sizes, window = (length_q, length_k, width, width_v), (left, right)
    k = _tile(k_ptr + batch * stride_kb + key_head * stride_kh, cols, stride_ks, d, length_k, width, True, EVEN)
    v = _tile(v_ptr + batch * stride_vb + key_head * stride_vh, cols, stride_vs, dv, length_k, width_v, True, EVEN)
    seed = 0
    offset = 0
    if DROP:
        seed = tl.load(state_ptr)
        offset = tl.load(state_ptr + 1)
    gk = tl.zeros((BN, BD), tl.float32)
    gv = tl.zeros((BN, BV), tl.float32)
    # Seen from a key, the window is mirrored: key j is visible to queries j - right … j + left.
    ranges = _range(first, length_q, right, left, BN, BM, RIGHT, LEFT)
    # Grouped-query attention: `group` query heads share one key head.
    for member in range(0, group):
        head = key_head * group + member
        flat = batch * heads + head
        q_head = q_ptr + batch * stride_qb + head * stride_qh
        g_head = g_ptr + batch * stride_gb + head * stride_gh
        lse_head = lse_ptr + flat * length_q
        delta_head = delta_ptr + flat * length_q
        mask_head = mask_ptr
        if MASK != 0:
            mask_head = mask_ptr + batch * stride_mb + head * stride_mh
        drop = (seed, offset, call, flat, limit)
        for part in tl.static_range(0 if RIGHT else 1, 3):
            begin, end = _part(ranges, part)
            gk, gv = _keys_sweep(
                gk, gv, k, v, q_head, g_head, lse_head, delta_head, mask_head, cols, first, begin, end, sizes, window, stride_ql, stride_gl,
                stride_ml, stride_ms, scale, drop, kept_scale,
                part != 1, LEFT, RIGHT, MASK, DROP, BM, BN, BD, BV, EVEN, PRECISION)  # fmt: skip
    _store_tile(
        gk_ptr + batch * stride_gkb + key_head * stride_gkh, gk * back_scale, cols, stride_gks, d, length_k, width
    )
    _store_tile(gv_ptr + batch * stride_gvb + key_head * stride_gvh, gv, cols, stride_gvs, dv, length_k, width_v)


@triton.jit
def _queries_sweep(gq, q, g, lse, delta, k_ptr, v_ptr, mask_ptr, gs_ptr, rows, begin, end, sizes, window, stride_ks, stride_vs,
                   stride_ml, stride_ms, scale, drop, kept_scale,
                   RIM: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr,
                   GS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
                   EVEN: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Loops over the keys in [begin, end) for a block of queries."""
    length_q, length_k, width, width_v = sizes
    for start in range(begin, end, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(k_ptr, cols, stride_ks, tl.arange(0, BD), length_k, width, RIM, EVEN)
        v = _tile(v_ptr, cols, stride_vs, tl.arange(0, BV), length_k, width_v, RIM, EVEN)
        s = dot(q, tl.trans(k), None, PRECISION) * scale
        s = _mask(
            s, mask_ptr, rows[:, None], cols[None, :], sizes, window, stride_ml, stride_ms, RIM, LEFT, RIGHT, MASK
        )
        p = tl.exp2(s - lse[:, None])
        gp = dot(g, tl.trans(v), None, PRECISION)
        if DROP:
            gp = tl.where(_keep(drop, rows, start, length_k, BM, BN), gp * kept_scale, 0.0)
        gs = p * (gp - delta[:, None])
        # The gradient of an added mask is the gradient of the scores, which has to be stored.
        if GS:
            _store_tile(gs_ptr, gs, rows, length_k, cols, length_q, length_k)
        gq = dot(gs.to(k.dtype), k, gq, PRECISION)
    return gq


@triton.jit(do_not_specialize=["call", "limit"])
def _backward_queries(q_ptr, k_ptr, v_ptr, g_ptr, out_ptr, lse_ptr, delta_ptr, mask_ptr, state_ptr, gq_ptr, gs_ptr, blocks, heads,
                      group, length_q, length_k, width, width_v, stride_qb, stride_qh, stride_ql, stride_kb, stride_kh, stride_ks,
                      stride_vb, stride_vh, stride_vs, stride_gb, stride_gh, stride_gl, stride_ob, stride_oh, stride_ol,
                      stride_gqb, stride_gqh, stride_gql, stride_mb, stride_mh, stride_ml, stride_ms,
                      left, right, scale, back_scale, call, limit, kept_scale,
                      LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, GS: tl.constexpr,
                      DELTA: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
                      BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Computes the gradient of BM queries. GS: also of the scores, for an added mask. DELTA: also compute delta."""
    block = tl.program_id(0) % blocks
    if RIGHT:
        block = blocks - 1 - block
    batch_head = tl.program_id(0) // blocks
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)  # int64, because head * stride may exceed 32 bits
    first = block * BM
    rows = first + tl.arange(0, BM)
    d, dv = tl.arange(0, BD), tl.arange(0, BV)
    sizes, window, drop = (length_q, length_k, width, width_v), (left, right), (0, 0, call, batch_head, limit)
    q = _tile(q_ptr + batch * stride_qb + head * stride_qh, rows, stride_ql, d, length_q, width, True, EVEN)
    g = _tile(g_ptr + batch * stride_gb + head * stride_gh, rows, stride_gl, dv, length_q, width_v, True, EVEN)
    lse_ptr += batch_head.to(tl.int64) * length_q
    delta_ptr += batch_head.to(tl.int64) * length_q
    lse = tl.load(lse_ptr + rows, mask=rows < length_q, other=float("inf"))
    # delta is needed here and by `_backward_keys`, which runs later and reads it from memory.
    if DELTA:
        out = _tile(out_ptr + batch * stride_ob + head * stride_oh, rows, stride_ol, dv, length_q, width_v, True, EVEN)
        delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), axis=1)
        tl.store(delta_ptr + rows, delta, mask=rows < length_q)
    else:
        delta = tl.load(delta_ptr + rows, mask=rows < length_q, other=0.0)
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + (head // group) * stride_vh
    if MASK != 0:
        mask_ptr += batch * stride_mb + head * stride_mh
    if GS:
        gs_ptr += batch_head.to(tl.int64) * length_q * length_k
    if DROP:
        drop = (tl.load(state_ptr), tl.load(state_ptr + 1), call, batch_head, limit)
    gq = tl.zeros((BM, BD), tl.float32)
    ranges = _range(first, length_k, left, right, BM, BN, LEFT, RIGHT)
    for part in tl.static_range(0 if LEFT else 1, 3):
        begin, end = _part(ranges, part)
        gq = _queries_sweep(
            gq, q, g, lse, delta, k_ptr, v_ptr, mask_ptr, gs_ptr, rows, begin, end, sizes, window, stride_ks, stride_vs,
            stride_ml, stride_ms, scale, drop, kept_scale,
            part != 1, LEFT, RIGHT, MASK, DROP, GS, BM, BN, BD, BV, EVEN, PRECISION)  # fmt: skip
    _store_tile(gq_ptr + batch * stride_gqb + head * stride_gqh, gq * back_scale, rows, stride_gql, d, length_q, width)


# -- block sizes ------------------------------------------------------------------------------------------------------


def _options(bm, bn, warps, stages):
    return {"BM": bm, "BN": bn, "num_warps": warps, "num_stages": stages}


@lru_cache
def _candidates(kernel, depth, wide, crowded=False):
    """Returns the candidate block sizes of a kernel (by name) for a padded head width.

    Args:
        wide: float32.
        crowded: dropout or loads of a mask array need registers too, so the default has 8 warps.
    """
    # float32 needs twice the registers, and three TF32 products need more: larger blocks would spill registers.
    if wide:
        known, size = _FLOAT32, 64 if depth <= 64 else depth
        return {
            "none": [_options(*known[kernel][size])],
            "medium": [_options(32, 32, 8, 1)],
            "max": [_options(32, 32, 4, 1), _options(16, 64, 8, 1)],
        }
    default, medium, large = _HALF[kernel]
    chosen = _options(*default[max(depth, 64)])
    return {
        "none": [{**chosen, "num_warps": 8} if crowded else chosen],
        "medium": [_options(*blocks) for blocks in medium],
        "max": [_options(*blocks) for blocks in itertools.product(*large)],
    }


_FLOAT32 = {  # kernel -> head width -> BM, BN, warps, stages
    "forward": {64: (64, 32, 4, 2), 128: (32, 64, 8, 1), 256: (16, 16, 8, 1)},
    "keys": {64: (32, 32, 4, 2), 128: (32, 32, 8, 1), 256: (16, 16, 8, 1)},
    "queries": {64: (64, 32, 4, 2), 128: (32, 32, 8, 2), 256: (16, 16, 8, 1)},
}
_HALF = {  # kernel -> (default by head width, candidates of "medium", values that "max" combines)
    "forward": (
        {64: (128, 64, 4, 3), 128: (128, 64, 8, 3), 256: (128, 64, 8, 2)},
        [(128, 128, 8, 3), (64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 4, 2)],
        ((64, 128), (32, 64, 128), (4, 8), (2, 3, 4)),
    ),
    "keys": (
        {64: (64, 64, 4, 3), 128: (32, 128, 8, 2), 256: (32, 64, 8, 2)},  # fewer than 64 keys would exclude wgmma
        [(64, 128, 8, 2), (64, 64, 4, 2), (64, 128, 8, 3), (32, 128, 4, 3)],
        ((16, 32, 64, 128), (64, 128), (4, 8), (1, 2, 3)),
    ),
    "queries": (
        {64: (128, 64, 8, 2), 128: (128, 64, 8, 2), 256: (64, 32, 8, 2)},
        [(64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 3), (128, 64, 8, 3)],
        ((64, 128), (32, 64, 128), (4, 8), (1, 2, 3)),
    ),
}


# -- calling ----------------------------------------------------------------------------------------------------------


def _four(xp, x):
    """Returns x as (B, H, L, D) with a contiguous last axis, copied only if necessary."""
    while x.ndim < 4:
        x = x[None]
    if x.ndim > 4:
        x = x.reshape(-1, *x.shape[-3:])
    return x if x.strides[3] == x.itemsize or x.shape[3] == 1 else contiguous(xp, x)


def _mask_of(xp, mask, query, key):
    """Returns the mask for (B, H, L, S). The inputs may have more than four axes. The leading axes are merged."""
    if mask is None or query.ndim <= 4:
        return mask
    shape = (*query.shape[:-1], key.shape[-2])
    return xp.broadcast_to(mask, shape).reshape(-1, *shape[-3:])


def _kept_scale(p):
    """Returns the factor of the elements that dropout keeps, 1 / (1 - p)."""
    return 0.0 if p >= 1.0 else 1.0 / (1.0 - p)


def _precision(wide):
    """Returns the precision of products.

    float32 uses three TF32 products on the tensor cores, with the error of float32, or a single one if
    `set_float32_matmul_precision` allows it.
    """
    return "tf32x3" if wide and config.float32_matmul_precision == "highest" else "tf32"


class _Setting:
    """Arguments that the three kernels share: sizes, kind and strides of the mask, the window, dropout."""

    def __init__(self, xp, q, k, v, mask, causal, window, scale, dropout):  # q, k, v: (B, H, L, D)
        left, right = (-1, -1) if window is None else window
        if causal:
            right = 0 if right < 0 else min(right, 0)
        self.window = (max(left, 0), max(right, 0))
        self.mask = None
        mask_kind, self.mask_strides = 0, (0, 0, 0, 0)
        if mask is not None:
            mask_kind = 1 if mask.dtype == bool else 2
            while mask.ndim < 4:
                mask = mask[None]
            # Broadcast axes have stride 0: no copy.
            self.mask = xp.broadcast_to(mask, (*q.shape[:3], k.shape[2]))
            self.mask_strides = strides_of(self.mask)
        p, self.state, call = dropout if dropout is not None else (0.0, None, 0)
        self.dropout = (call, threshold(p), _kept_scale(p))
        self.scale = float(scale)
        self.heads, self.group = q.shape[1], q.shape[1] // k.shape[1]
        self.sizes = (q.shape[2], k.shape[2], q.shape[3], v.shape[3])
        wide = q.dtype.itemsize == 4
        # Triton's blocks are powers of 2, and its dot needs at least 16 elements.
        depth = max(power_of_2(q.shape[3]), power_of_2(v.shape[3]), 16)
        self.depth, self.wide = depth, wide
        self.constants = {
            "LEFT": left >= 0, "RIGHT": right >= 0, "MASK": mask_kind, "DROP": p > 0.0, "BD": depth, "BV": depth,
            "EVEN": q.shape[3] == v.shape[3] == depth, "PRECISION": _precision(wide),
        }  # fmt: skip

    def start(self, name, rows, heads, arrays, strided, scales, **constants):
        """Launches a kernel over `rows` of each of `heads`, with the default block sizes or the sizes of TRITON_FLASH_AUTOTUNE_MODE.

        Args:
            arrays: the kernel's first arguments. strided: arrays that pass their first three strides as arguments, in order.
            scales: the factor of the scores, and in backward also the factor of the gradients.
        """
        kernel, side = _KERNELS[name]
        strides = [step for x in strided for step in strides_of(x)[:3]]
        shared = (
            self.heads, self.group, *self.sizes, *strides, *self.mask_strides, *self.window, *scales, *self.dropout,
        )  # fmt: skip

        def attempt(blocks):
            count = cdiv(rows, blocks[side])
            launch(kernel, (count * heads,), *arrays, count, *shared, **self.constants, **constants, **blocks)

        # Without a multiple of 16 keys, elements of the mask array are loaded one by one, which forward has no registers for.
        by_element = name == "forward" and self.constants["MASK"] and self.sizes[1] % 16
        candidates = _candidates(name, self.depth, self.wide, self.constants["DROP"] or bool(by_element))
        if mode_for(MODE) == "none":
            return attempt(candidates["none"][0])
        lengths = [power_of_2(n) for n in self.sizes[:2]]
        flags = [int(v) for k, v in self.constants.items() if k in ("LEFT", "RIGHT", "MASK", "DROP", "EVEN")]
        key = (arrays[0].dtype.name, self.depth, *lengths, self.group, *flags)
        return attempt(tuned(kernel, key, candidates, attempt, MODE))


_KERNELS = {"forward": (_forward, "BM"), "keys": (_backward_keys, "BN"), "queries": (_backward_queries, "BM")}


def run_forward(xp, query, key, value, mask=None, *, causal=False, window=None, scale=None, dropout=None):
    """Returns softmax(query @ keyᵀ * scale + mask) @ value, and lse.

    Args:
        query: (…, H, L, D). key: (…, Hk, S, D), H a multiple of Hk. value: (…, Hk, S, Dv). D and Dv up to 256.
        mask: broadcasts to (…, H, L, S): bool, True where attention is allowed, or a float to add.
        causal: query i attends to keys 0 … i.
        window: (left, right): query i attends to keys i - left … i + right; -1 means unlimited.
        dropout: (p, state, call): state is int64 (2,), seed and offset, on the device (dropout.py).

    Returns:
        out (…, H, L, Dv), and lse (B, H, L) in units of log2, for `run_backward`.
    """
    q, k, v = _four(xp, query), _four(xp, key), _four(xp, value)
    mask = _mask_of(xp, mask, query, key)
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    setting = _Setting(xp, q, k, v, mask, causal, window, scale, dropout)
    out = by_time(xp, q, v.shape[3])
    lse = xp.empty(q.shape[:3], "float32")
    arrays, scales = (q, k, v, setting.mask, setting.state, out, lse), (setting.scale * LOG2E.value,)
    fold = setting.scale > 0 and setting.mask is None
    setting.start("forward", q.shape[2], q.shape[0] * q.shape[1], arrays, (q, k, v, out), scales, FOLD=fold)
    return out.reshape(*query.shape[:-1], value.shape[-1]) if query.ndim != 4 else out, lse


def run_backward(xp, g, query, key, value, out, lse, mask=None, *, causal=False, window=None, scale=None, dropout=None,
                 needs=(True,) * 4):  # fmt: skip
    """Returns the gradients of query, key, value and a float mask, and None for gradients that are not needed."""
    q, k, v, g, o = (_four(xp, x) for x in (query, key, value, g, out))
    if g.dtype != q.dtype:
        g = g.astype(q.dtype)
    mask = _mask_of(xp, mask, query, key)
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    setting = _Setting(xp, q, k, v, mask, causal, window, scale, dropout)
    batch, heads, length, _ = q.shape
    delta = xp.empty(q.shape[:3], "float32")
    # The scores are computed in units of log2; the gradients are not.
    scales = (setting.scale * LOG2E.value, setting.scale)
    gq = gk = gv = gs = None
    joined = side_by_side(xp, q, k, v) if all(needs[:3]) else None
    needs_mask = mask is not None and needs[3] and mask.dtype != bool
    by_queries = (needs[0] or needs_mask) and not setting.wide  # the float32 kernel has no registers left for delta
    if not by_queries:
        count, rows = batch * heads * length, max(1, 2048 // setting.depth)
        launch(
            _delta, (cdiv(count, rows),), g, o, delta, count, heads, length, v.shape[3], *strides_of(g)[:3], *strides_of(o)[:3],
            ROWS=rows, BV=setting.depth, num_warps=4,
        )  # fmt: skip
    if needs[0] or needs_mask:
        gq = by_time(xp, q, q.shape[3]) if joined is None else joined[0]
        gs = xp.zeros((batch, heads, length, k.shape[2]), "float32") if needs_mask else None
        arrays = (q, k, v, g, o, lse, delta, setting.mask, setting.state, gq, gs)
        setting.start(
            "queries", length, batch * heads, arrays, (q, k, v, g, o, gq), scales, GS=needs_mask, DELTA=by_queries
        )
    if needs[1] or needs[2]:
        gk = by_time(xp, k, k.shape[3]) if joined is None else joined[1]
        gv = by_time(xp, v, v.shape[3]) if joined is None else joined[2]
        arrays = (q, k, v, g, lse, delta, setting.mask, setting.state, gk, gv)
        setting.start("keys", k.shape[2], batch * k.shape[1], arrays, (q, k, v, g, gk, gv), scales)
    grads = [
        None if not needed else gx if x.ndim == 4 else gx.reshape(x.shape)
        for gx, x, needed in zip((gq, gk, gv), (query, key, value), needs[:3], strict=True)
    ]
    return *grads, gs.reshape(*query.shape[:-1], k.shape[2]) if needs_mask else None


# -- kernel of the op: keep is a DropoutSeed of ops/dropout.py, or None -------------------------------------------------------

residuals = ("lse",)
draws = True  # the kernel generates its own random bits


@triton.jit(do_not_specialize=["call", "limit"])
def _keep_mask(out_ptr, state_ptr, length_q, length_k, call, limit, kept_scale, BM: tl.constexpr, BN: tl.constexpr):
    """Stores a block of a head's dropout mask, kept_scale or 0, to out_ptr (B H, L, S)."""
    batch_head = tl.program_id(0)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    start = tl.program_id(2) * BN
    keep = _keep((tl.load(state_ptr), tl.load(state_ptr + 1), call, batch_head, limit), rows, start, length_k, BM, BN)
    out_ptr += batch_head.to(tl.int64) * length_q * length_k
    _store_tile(out_ptr, tl.where(keep, kept_scale, 0.0), rows, length_k, start + tl.arange(0, BN), length_q, length_k)


def mask(p, state, call, shape, dtype):
    """Returns the dropout mask (…, H, L, S) that the kernels generate, as an array."""
    xp = xp_of(state)
    out = xp.empty(shape, dtype)
    lengths = shape[-2:]
    grid = (math.prod(shape[:-2]), cdiv(lengths[0], 64), cdiv(lengths[1], 64))
    launch(_keep_mask, grid, out, state, *lengths, call, threshold(p), _kept_scale(p), BM=64, BN=64, num_warps=4)
    return out


def _shares(query, key, value):
    """Returns True if the leading axes are equal, except that several query heads may share one key head."""
    if query.ndim < 3:
        return query.ndim == key.ndim == value.ndim
    same = query.shape[:-3] == key.shape[:-3] == value.shape[:-3] and key.shape[-3] == value.shape[-3]
    return same and query.shape[-3] % max(key.shape[-3], 1) == 0


def better(*arrays, **options):
    """Returns cuDNN's kernel if it is installed, accepts these arrays, and is faster; otherwise None."""
    module = CUDNN_ATTENTION.find("cuda", None, arrays, options)
    return module and _with_fallback(module)


@lru_cache
def _with_fallback(cudnn):
    """Returns cuDNN's kernel, which runs this file's functions if cuDNN fails at the last moment."""
    flash = sys.modules[__name__]

    def forward(xp, *arrays, **options):
        return cudnn.forward(xp, *arrays, **options, flash=flash)

    def vjp(g, query, key, value, out, stats, causal, scale, needs, xp):
        return cudnn.vjp(g, query, key, value, out, stats, causal, scale, needs, xp, flash)

    return Kernel(library=cudnn, forward=forward, vjp=vjp, residuals=cudnn.residuals)


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Accepts one float dtype, head widths up to 256, and a bool or float mask; no softcap, and no dropout mask as an array."""
    return (
        one_dtype(query, key, value)
        and is_mask(mask)
        and softcap is None
        and (keep is None or hasattr(keep, "arguments"))
        and max(query.shape[-1], value.shape[-1]) <= 256
        and query.size > 0
        and key.size > 0
        and value.size > 0
        and _shares(query, key, value)
    )


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Returns softmax(query @ keyᵀ * scale + mask) @ value, and lse, which is saved for backward."""
    dropout = None if keep is None else keep.arguments
    return run_forward(xp, query, key, value, mask, causal=causal, window=window, scale=scale, dropout=dropout)


def vjp(g, query, key, value, mask, out, lse, keep, causal, window, scale, needs, xp):
    """Returns the gradients of query, key, value and mask."""
    dropout = None if keep is None else keep.arguments
    options = {"causal": causal, "window": window, "scale": scale, "dropout": dropout, "needs": needs}
    return run_backward(xp, g, query, key, value, out, lse, mask, **options)
