"""Cross-entropy of rows of logits: the log-sum-exp in forward, softmax minus one-hot in backward.

With w the class weights, t a row's target, s the label smoothing, C the number of classes:

    loss = (1 - s) * w_t * (lse - x_t) + s / C * sum_c w_c (lse - x_c),
    gx_c = (1 - s) * w_t * (p_c - [c = t]) + s / C * (p_c * sum_k w_k - w_c),   p = exp(x - lse).

since d lse / dx_c = p_c. Forward reads the logits once, with a running maximum and sum (softmax.py), and keeps one number
a row, not the probabilities; backward makes them again while it writes the gradient. Where nobody else needs the logits,
`rows_both` does both in one kernel and writes the gradient over them, as linear_cross_entropy.py wants it.

Grid: a program for each row. Kept for backward: the log-sum-exp of each row, and what the mean divides by.
Accumulation: float32. Arguments: x_ptr and gx_ptr (N, C), rows stride_xn apart; target_ptr and loss_ptr (N,); lse_ptr (2, N), the maximum and the rest;
weight_ptr (C,); total_ptr (1,); g_ptr (N,), or (1,) with stride_gn = 0.
"""

import triton
import triton.language as tl

from ..launch import launch, power_of_2
from .common import LN2, LOG2E, contiguous, is_float, one_program

residuals = ("lse", "total")


@triton.jit
def _row_lse(x_ptr, weight_ptr, classes,
             AGAIN: tl.constexpr, WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The maximum of a row, the logarithm of its sum of exp(x - maximum), and with SMOOTH the (weighted) sum of x - maximum.

    Apart, since the sum of the first two would swallow the second where logits are large. AGAIN: the row will be read again."""
    # Each thread has 8 neighbours at a time and a maximum and a sum of its own, which are joined at the end.
    cols = tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    peak = tl.full((BLOCK // 8,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK // 8,), tl.float32)
    linear = tl.zeros((BLOCK // 8,), tl.float32)
    first = tl.load(x_ptr).to(tl.float32)  # about where the logits lie, so that little is added up
    first = tl.where(tl.abs(first) < float("inf"), first, 0.0)
    mass = tl.zeros((BLOCK // 8,), tl.float32)
    for start in range(0, classes, BLOCK):
        inside = start + cols < classes
        policy: tl.constexpr = "evict_last" if AGAIN else ""
        x = tl.load(x_ptr + start + cols, mask=inside, other=float("-inf"), eviction_policy=policy).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=1))
        still = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2((peak - still) * LOG2E) + tl.sum(tl.exp2((x - still[:, None]) * LOG2E), axis=1)
        peak = higher
        if SMOOTH:
            w = inside.to(tl.float32)
            if WEIGHT:
                w = tl.load(weight_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            linear += tl.sum(tl.where(inside, (x - first) * w, 0.0), axis=1)
            mass += tl.sum(w, axis=1)
    top = tl.max(peak, axis=0)
    still = tl.where(top == float("-inf"), 0.0, top)
    log = tl.log2(tl.sum(total * tl.exp2((peak - still) * LOG2E), axis=0)) * LN2
    return still, log, tl.sum(linear, axis=0) + tl.sum(mass, axis=0) * (first - still)


@triton.jit
def _row_loss(x_ptr, weight_ptr, target, kept, peak, log, linear, classes, smoothing, weight_sum,
              WEIGHT: tl.constexpr, SMOOTH: tl.constexpr):  # fmt: skip
    """A row's loss, 0 if it is not counted."""
    index = tl.where(kept, target, 0)
    picked = tl.load(x_ptr + index).to(tl.float32)
    weight = 1.0
    if WEIGHT:
        weight = tl.load(weight_ptr + index).to(tl.float32)
    loss = (log - (picked - peak)) * weight
    if SMOOTH:
        loss = loss * (1.0 - smoothing) + (log * weight_sum - linear) * (smoothing / classes)
    return tl.where(kept, loss, 0.0)


@triton.jit
def _row_gradient(x_ptr, gx_ptr, weight_ptr, target, kept, peak, log, scale, classes, smoothing, weight_sum,
                  WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Write `scale` times the gradient of a row's loss."""
    scale = tl.where(kept, scale, 0.0)
    weight = 1.0
    if WEIGHT:
        weight = tl.load(weight_ptr + tl.where(kept, target, 0)).to(tl.float32)
    hit = scale * weight
    if SMOOTH:
        hit *= 1.0 - smoothing
        spread = scale * smoothing / classes
    cols = tl.arange(0, BLOCK)
    for start in range(0, classes, BLOCK):
        inside = start + cols < classes
        x = tl.load(x_ptr + start + cols, mask=inside, other=float("-inf"), eviction_policy="evict_first").to(
            tl.float32
        )
        p = tl.exp2((x - peak - log) * LOG2E)
        if SMOOTH:
            w = 1.0
            if WEIGHT:
                w = tl.load(weight_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            gx = p * (hit + spread * weight_sum) - spread * w
        else:
            gx = p * hit
        gx = tl.where(kept, gx - tl.where(start + cols == target, hit, 0.0), 0.0)
        tl.store(gx_ptr + start + cols, gx.to(gx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _forward(x_ptr, target_ptr, weight_ptr, lse_ptr, loss_ptr, stride_xn, classes, ignore_index, smoothing, weight_sum,
             WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The maximum, the logarithm of the sum and the loss of a row."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xn
    target = tl.load(target_ptr + row)
    kept = target != ignore_index
    peak, log, linear = _row_lse(x_ptr, weight_ptr, classes, False, WEIGHT, SMOOTH, BLOCK)
    loss = _row_loss(x_ptr, weight_ptr, target, kept, peak, log, linear, classes, smoothing, weight_sum, WEIGHT, SMOOTH)
    tl.store(lse_ptr + row, peak)
    tl.store(lse_ptr + tl.num_programs(0) + row, log)
    tl.store(loss_ptr + row, loss)


@triton.jit
def _both(x_ptr, target_ptr, weight_ptr, loss_ptr, stride_xn, classes, ignore_index, smoothing, weight_sum,
          WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The loss, and its gradient over the logits: the second reading finds the row in the second-level cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xn
    target = tl.load(target_ptr + row)
    kept = target != ignore_index
    peak, log, linear = _row_lse(x_ptr, weight_ptr, classes, True, WEIGHT, SMOOTH, BLOCK)
    loss = _row_loss(x_ptr, weight_ptr, target, kept, peak, log, linear, classes, smoothing, weight_sum, WEIGHT, SMOOTH)
    tl.store(loss_ptr + row, loss)
    tl.debug_barrier()  # the target's logit is read before it is written over
    _row_gradient(
        x_ptr, x_ptr, weight_ptr, target, kept, peak, log, 1.0, classes, smoothing, weight_sum, WEIGHT, SMOOTH, BLOCK
    )


@triton.jit
def _count(target_ptr, weight_ptr, total_ptr, rows, ignore_index, WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the weights of the targets that count, by one program."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        inside = start + lane < rows
        target = tl.load(target_ptr + start + lane, mask=inside, other=0)
        kept = inside & (target != ignore_index)
        if WEIGHT:
            total += tl.load(weight_ptr + target, mask=kept, other=0.0).to(tl.float32)
        else:
            total += kept.to(tl.float32)
    tl.store(total_ptr, tl.sum(total, axis=0))


@triton.jit
def _add_losses(loss_ptr, total_ptr, out_ptr, rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """The sum or mean of the losses, by one program."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        total += tl.load(loss_ptr + start + lane, mask=start + lane < rows, other=0.0)
    out = tl.sum(total, axis=0)
    if MEAN:
        out = out / tl.load(total_ptr)
    tl.store(out_ptr, out.to(out_ptr.dtype.element_ty))


@triton.jit
def _backward(g_ptr, x_ptr, target_ptr, weight_ptr, lse_ptr, total_ptr, gx_ptr, stride_gn, stride_xn, classes, ignore_index, smoothing,
              weight_sum, WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A row of gx_ptr."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    scale = tl.load(g_ptr + row * stride_gn).to(tl.float32)
    if MEAN:
        scale = scale / tl.load(total_ptr)
    _row_gradient(x_ptr + row * stride_xn, gx_ptr + row * stride_xn, weight_ptr, target, target != ignore_index, tl.load(lse_ptr + row),
                  tl.load(lse_ptr + tl.num_programs(0) + row), scale, classes, smoothing, weight_sum, WEIGHT, SMOOTH, BLOCK)  # fmt: skip


def blocks_of(classes):
    """The block of a kernel that goes through rows of logits."""
    block = min(power_of_2(max(classes, 64)), 4096)
    return {"BLOCK": block, "num_warps": max(2, min(block // 256, 8))}


def accepts(input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """Float logits (N, C); class weights of any float dtype."""
    return is_float(input, weight) and input.size > 0


def count(xp, target, weight, ignore_index):
    """What the mean divides by: the number, or the weight, of the targets that count; float32, 0-d."""
    total, weighted = xp.empty((), "float32"), weight is not None
    sizes = target.size, ignore_index
    launch(_count, (1,), target, weight, total, *sizes, WEIGHT=weighted, **one_program(target.size))
    return total


def weight_sum_of(xp, weight, classes):
    """The sum of the class weights, as a number; one synchronisation if they are on a GPU."""
    return float(classes) if weight is None else float(xp.sum(weight.astype("float32")))


def rows_forward(xp, logits, target, weight, ignore_index, smoothing, weight_sum, loss):
    """Fill `loss` (N,) for contiguous logits; returns lse (2, N)."""
    rows, classes = logits.shape
    lse = xp.empty((2, rows), "float32")
    launch(
        _forward, (rows,), logits, target, weight, lse, loss, classes, classes, ignore_index, float(smoothing), weight_sum,
        WEIGHT=weight is not None, SMOOTH=smoothing > 0, **blocks_of(classes),
    )  # fmt: skip
    return lse


def rows_both(xp, logits, target, weight, ignore_index, smoothing, weight_sum, loss):
    """Fill `loss` (N,) for contiguous logits, and write the gradient of the sum of the losses over them."""
    rows, classes = logits.shape
    block = min(power_of_2(max(classes, 64)), 16384)  # two programs a multiprocessor: their rows stay in the cache
    launch(
        _both, (rows,), logits, target, weight, loss, classes, classes, ignore_index, float(smoothing), weight_sum,
        WEIGHT=weight is not None, SMOOTH=smoothing > 0, BLOCK=block, num_warps=max(2, min(block // 256, 16)),
    )  # fmt: skip


def rows_backward(xp, g, logits, target, weight, lse, total, ignore_index, smoothing, weight_sum, reduction, into):
    """Write the gradient of contiguous logits to `into`, which may be the logits."""
    rows, classes = logits.shape
    launch(
        _backward, (rows,), g, logits, target, weight, lse, total, into, 1 if reduction == "none" else 0, classes, classes,
        ignore_index, float(smoothing), weight_sum, WEIGHT=weight is not None, SMOOTH=smoothing > 0, MEAN=reduction == "mean",
        **blocks_of(classes),
    )  # fmt: skip
    return into


def add_losses(xp, losses, total, reduction, dtype):
    """The sum or mean of losses (N,), 0-d, of dtype."""
    out = xp.empty((), dtype)
    launch(_add_losses, (1,), losses, total, out, losses.size, MEAN=reduction == "mean", **one_program(losses.size))
    return out


def forward(xp, input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """The losses, their mean or their sum, with the log-sum-exp of each row and the mean's divisor."""
    logits, target, weight = contiguous(xp, input), contiguous(xp, target), contiguous(xp, weight)
    dtype = input.dtype if dtype is None else dtype.numpy
    losses = xp.empty(logits.shape[0], "float32")
    weight_sum = weight_sum_of(xp, weight, logits.shape[1]) if label_smoothing else 0.0
    lse = rows_forward(xp, logits, target, weight, ignore_index, label_smoothing, weight_sum, losses)
    total = count(xp, target, weight, ignore_index) if reduction == "mean" else xp.empty((), "float32")
    if reduction == "none":
        return losses.astype(dtype, copy=False), lse, total
    return add_losses(xp, losses, total, reduction, dtype), lse, total


def vjp(g, input, target, weight, ignore_index, label_smoothing, reduction, lse, total, xp):
    """The gradient of the logits."""
    logits, target, weight, g = (contiguous(xp, a) for a in (input, target, weight, g))
    gx = xp.empty_like(logits)
    weight_sum = weight_sum_of(xp, weight, logits.shape[1]) if label_smoothing else 0.0
    rows_backward(xp, g, logits, target, weight, lse, total, ignore_index, label_smoothing, weight_sum, reduction, gx)
    return (gx,)
