"""Cross-entropy of rows of logits: forward computes log-sum-exp, backward softmax minus one-hot.

With w the class weights, t a row's target, s the label smoothing, C the number of classes:

    loss = (1 - s) * w_t * (lse - x_t) + s / C * sum_c w_c (lse - x_c),
    gx_c = (1 - s) * w_t * (p_c - [c = t]) + s / C * (p_c * sum_k w_k - w_c),   p = exp(x - lse).

since d lse / dx_c = p_c. Forward reads the logits once, with a running maximum and sum (softmax.py), and saves two numbers
per row instead of the probabilities. Backward computes them again while it writes the gradient. If the logits are not needed
afterward, `rows_both` does both in one kernel and overwrites the logits with their gradient (linear_cross_entropy.py).

Grid: one program for each row. Saved for backward: the log-sum-exp of each row, and the divisor of the mean. Accumulation: float32.
Arguments:

    x_ptr and gx_ptr (N, C), row stride stride_xn    target_ptr and loss_ptr (N,)    lse_ptr (2, N): maximum and log(sum)
    weight_ptr (C,)    total_ptr (1,)    g_ptr (N,), or (1,) with stride_gn = 0
"""

import triton
import triton.language as tl

from ..launch import launch, power_of_2
from .common import LN2, LOG2E, contiguous, is_float, one_program

residuals = ("lse", "total")


@triton.jit
def _row_lse(x_ptr, weight_ptr, classes,
             AGAIN: tl.constexpr, WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Returns the maximum of a row, log(sum(exp(x - maximum))), and with SMOOTH the (weighted) sum of x - maximum.

    The first two are separate, since in their sum large logits would round off the logarithm. AGAIN: the row will be read again.
    """
    # Each thread reads 8 adjacent elements at a time, and has its own maximum and sum. They are combined once, at the end.
    cols = tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    peak = tl.full((BLOCK // 8,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK // 8,), tl.float32)
    linear = tl.zeros((BLOCK // 8,), tl.float32)
    # Sum x - first instead of x: the terms are small, so little precision is lost. Corrected at the end.
    first = tl.load(x_ptr).to(tl.float32)
    first = tl.where(tl.abs(first) < float("inf"), first, 0.0)
    mass = tl.zeros((BLOCK // 8,), tl.float32)
    for start in range(0, classes, BLOCK):
        inside = start + cols < classes
        # evict_last keeps the row in the cache for the second reading.
        policy: tl.constexpr = "evict_last" if AGAIN else ""
        x = tl.load(x_ptr + start + cols, mask=inside, other=float("-inf"), eviction_policy=policy).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=1))
        # If all logits so far are -inf, subtract 0: -inf - -inf would be NaN.
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2((peak - safe) * LOG2E) + tl.sum(tl.exp2((x - safe[:, None]) * LOG2E), axis=1)
        peak = higher
        if SMOOTH:
            w = inside.to(tl.float32)
            if WEIGHT:
                w = tl.load(weight_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            linear += tl.sum(tl.where(inside, (x - first) * w, 0.0), axis=1)
            mass += tl.sum(w, axis=1)
    # Combine the threads: rescale each sum to the row's maximum.
    top = tl.max(peak, axis=0)
    safe = tl.where(top == float("-inf"), 0.0, top)
    log = tl.log2(tl.sum(total * tl.exp2((peak - safe) * LOG2E), axis=0)) * LN2
    # sum w (x - max) = sum w (x - first) + sum(w) (first - max).
    return safe, log, tl.sum(linear, axis=0) + tl.sum(mass, axis=0) * (first - safe)


@triton.jit
def _row_loss(x_ptr, weight_ptr, target, kept, peak, log, linear, classes, smoothing, weight_sum,
              WEIGHT: tl.constexpr, SMOOTH: tl.constexpr):  # fmt: skip
    """Returns the loss of a row, 0 if its target is ignored."""
    index = tl.where(kept, target, 0)
    picked = tl.load(x_ptr + index).to(tl.float32)
    weight = 1.0
    if WEIGHT:
        weight = tl.load(weight_ptr + index).to(tl.float32)
    # lse - x_t = log(sum) - (x_t - max). Both terms are small, also for large logits.
    loss = (log - (picked - peak)) * weight
    if SMOOTH:
        loss = loss * (1.0 - smoothing) + (log * weight_sum - linear) * (smoothing / classes)
    return tl.where(kept, loss, 0.0)


@triton.jit
def _row_gradient(x_ptr, gx_ptr, weight_ptr, target, kept, peak, log, scale, classes, smoothing, weight_sum,
                  WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Stores `scale` times the gradient of a row's loss."""
    scale = tl.where(kept, scale, 0.0)
    weight = 1.0
    if WEIGHT:
        weight = tl.load(weight_ptr + tl.where(kept, target, 0)).to(tl.float32)
    hit = scale * weight
    if SMOOTH:
        hit *= 1.0 - smoothing
        smooth = scale * smoothing / classes
    cols = tl.arange(0, BLOCK)
    for start in range(0, classes, BLOCK):
        inside = start + cols < classes
        x = tl.load(x_ptr + start + cols, mask=inside, other=float("-inf"), eviction_policy="evict_first").to(
            tl.float32
        )
        # The probabilities again: exp(x - lse).
        p = tl.exp2((x - peak - log) * LOG2E)
        if SMOOTH:
            w = 1.0
            if WEIGHT:
                w = tl.load(weight_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            gx = p * (hit + smooth * weight_sum) - smooth * w
        else:
            gx = p * hit
        gx = tl.where(kept, gx - tl.where(start + cols == target, hit, 0.0), 0.0)
        tl.store(gx_ptr + start + cols, gx.to(gx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _forward(x_ptr, target_ptr, weight_ptr, lse_ptr, loss_ptr, stride_xn, classes, ignore_index, smoothing, weight_sum,
             WEIGHT: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes maximum, log(sum) and loss of a row."""
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
    """Computes the loss, and overwrites the logits with its gradient. The second reading finds the row in the second-level cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xn
    target = tl.load(target_ptr + row)
    kept = target != ignore_index
    peak, log, linear = _row_lse(x_ptr, weight_ptr, classes, True, WEIGHT, SMOOTH, BLOCK)
    loss = _row_loss(x_ptr, weight_ptr, target, kept, peak, log, linear, classes, smoothing, weight_sum, WEIGHT, SMOOTH)
    tl.store(loss_ptr + row, loss)
    tl.debug_barrier()  # all threads must have read the target's logit before it is overwritten
    _row_gradient(
        x_ptr, x_ptr, weight_ptr, target, kept, peak, log, 1.0, classes, smoothing, weight_sum, WEIGHT, SMOOTH, BLOCK
    )


@triton.jit
def _count(target_ptr, weight_ptr, total_ptr, rows, ignore_index, WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Sums the weights of the targets that are not ignored, in one program."""
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
    """Computes the sum or mean of the losses in one program, so that the order is fixed."""
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
    """Computes a row of gx_ptr."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    scale = tl.load(g_ptr + row * stride_gn).to(tl.float32)
    if MEAN:
        scale = scale / tl.load(total_ptr)
    _row_gradient(x_ptr + row * stride_xn, gx_ptr + row * stride_xn, weight_ptr, target, target != ignore_index, tl.load(lse_ptr + row),
                  tl.load(lse_ptr + tl.num_programs(0) + row), scale, classes, smoothing, weight_sum, WEIGHT, SMOOTH, BLOCK)  # fmt: skip


def blocks_of(classes):
    """Returns the block size of a kernel that loops over a row of logits."""
    block = min(power_of_2(max(classes, 64)), 4096)
    return {"BLOCK": block, "num_warps": max(2, min(block // 256, 8))}


def accepts(input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """Accepts float logits (N, C) and class weights of any float dtype."""
    return is_float(input, weight) and input.size > 0


def count(xp, target, weight, ignore_index):
    """Returns the divisor of the mean: number or total weight of the targets that are not ignored; float32, 0-d."""
    total, weighted = xp.empty((), "float32"), weight is not None
    sizes = target.size, ignore_index
    launch(_count, (1,), target, weight, total, *sizes, WEIGHT=weighted, **one_program(target.size))
    return total


def weight_sum_of(xp, weight, classes):
    """Returns the sum of the class weights as a Python float. This synchronizes with the GPU."""
    return float(classes) if weight is None else float(xp.sum(weight.astype("float32")))


def rows_forward(xp, logits, target, weight, ignore_index, smoothing, weight_sum, loss):
    """Fills `loss` (N,) for contiguous logits. Returns lse (2, N)."""
    rows, classes = logits.shape
    lse = xp.empty((2, rows), "float32")
    launch(
        _forward, (rows,), logits, target, weight, lse, loss, classes, classes, ignore_index, float(smoothing), weight_sum,
        WEIGHT=weight is not None, SMOOTH=smoothing > 0, **blocks_of(classes),
    )  # fmt: skip
    return lse


def rows_both(xp, logits, target, weight, ignore_index, smoothing, weight_sum, loss):
    """Fills `loss` (N,) for contiguous logits, and overwrites the logits with the gradient of the sum of the losses."""
    rows, classes = logits.shape
    # Large blocks: few programs run at once, so their rows stay in the cache. A multiprocessor holds two programs of 16 warps.
    # If their rows exceed the cache of an H100 (132 multiprocessors, 50 MB), it holds one program of 32 warps.
    block = min(power_of_2(max(classes, 64)), 16384)
    most = 32 if 2 * 132 * classes * logits.itemsize > 45e6 else 16
    launch(
        _both, (rows,), logits, target, weight, loss, classes, classes, ignore_index, float(smoothing), weight_sum,
        WEIGHT=weight is not None, SMOOTH=smoothing > 0, BLOCK=block, num_warps=max(2, min(block // 256, most)),
    )  # fmt: skip


def rows_backward(xp, g, logits, target, weight, lse, total, ignore_index, smoothing, weight_sum, reduction, into):
    """Stores the gradient of contiguous logits in `into`, which may be the logits."""
    rows, classes = logits.shape
    launch(
        _backward, (rows,), g, logits, target, weight, lse, total, into, 1 if reduction == "none" else 0, classes, classes,
        ignore_index, float(smoothing), weight_sum, WEIGHT=weight is not None, SMOOTH=smoothing > 0, MEAN=reduction == "mean",
        **blocks_of(classes),
    )  # fmt: skip
    return into


def add_losses(xp, losses, total, reduction, dtype):
    """Returns the sum or mean of losses (N,), 0-d, in dtype."""
    out = xp.empty((), dtype)
    launch(_add_losses, (1,), losses, total, out, losses.size, MEAN=reduction == "mean", **one_program(losses.size))
    return out


def forward(xp, input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """Returns (the losses, their mean or their sum, the log-sum-exp of each row, the divisor of the mean)."""
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
    """Returns the gradient of the logits."""
    logits, target, weight, g = (contiguous(xp, a) for a in (input, target, weight, g))
    gx = xp.empty_like(logits)
    weight_sum = weight_sum_of(xp, weight, logits.shape[1]) if label_smoothing else 0.0
    rows_backward(xp, g, logits, target, weight, lse, total, ignore_index, label_smoothing, weight_sum, reduction, gx)
    return (gx,)
