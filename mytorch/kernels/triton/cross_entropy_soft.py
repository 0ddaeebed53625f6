"""Cross-entropy of rows of logits with probabilities as targets.

With t the target, w the class weights, s the label smoothing, C the number of classes, and u_c = w_c * ((1 - s) t_c + s / C):

    loss = sum_c u_c (lse - x_c) = lse * sum(u) - sum(u * x),
    gx_c = p_c * sum(u) - u_c,   p = exp(x - lse),        gt_c = (1 - s) * w_c * (lse - x_c).

since d lse / dx_c = p_c. Forward reads logits and targets once, with a running maximum and sum (softmax.py). Backward reads
them again.

Grid: one program for each row, in backward for each BLOCK of a row. Saved for backward: log-sum-exp and sum(u) of each
row. Accumulation: float32. `spread` is s / C. Arguments:

    x_ptr, target_ptr, gx_ptr, gt_ptr (N, C), contiguous    weight_ptr (C,)    lse_ptr, mass_ptr, loss_ptr (N,)
    g_ptr (N,), or (1,) with stride_gn = 0
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch
from .common import LN2, LOG2E, contiguous, is_float, running_softmax
from .cross_entropy import add_losses, blocks_of

residuals = ("lse", "mass")


@triton.jit
def _wanted(target_ptr, weight_ptr, offset, cols, inside, smoothing, spread, WEIGHT: tl.constexpr):
    """Returns u for a block: the smoothed target times the class weights."""
    u = tl.load(target_ptr + offset, mask=inside, other=0.0).to(tl.float32) * (1.0 - smoothing) + spread
    if WEIGHT:
        u *= tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, u, 0.0)


@triton.jit
def _forward(x_ptr, target_ptr, weight_ptr, lse_ptr, mass_ptr, loss_ptr, classes, smoothing, spread,
             WEIGHT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes log-sum-exp (maximum and log(sum), as in cross_entropy.py), sum(u) and loss of a row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    peak = tl.full((1,), float("-inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    mass = tl.zeros((1,), tl.float32)
    linear = tl.zeros((1,), tl.float32)
    # Sum u (x - first) instead of u x: the terms are small, so little precision is lost.
    first = tl.load(x_ptr + row * classes).to(tl.float32)
    first = tl.where(tl.abs(first) < float("inf"), first, 0.0)
    for start in range(0, classes, BLOCK):
        cols = start + lane
        inside = cols < classes
        x = tl.load(x_ptr + row * classes + cols, mask=inside, other=float("-inf")).to(tl.float32)
        peak, total = running_softmax(peak, total, x, 0)
        u = _wanted(target_ptr, weight_ptr, row * classes + cols, cols, inside, smoothing, spread, WEIGHT)
        mass += tl.sum(u, axis=0)
        linear += tl.sum(tl.where(inside, u * (x - first), 0.0), axis=0)
    log = tl.log2(total) * LN2
    # The sums have shape (1,), so the pointers must have it too.
    one = row + tl.arange(0, 1)
    tl.store(lse_ptr + one, peak)
    tl.store(lse_ptr + tl.num_programs(0) + one, log)
    tl.store(mass_ptr + one, mass)
    # loss = sum(u) (lse - first) - sum(u (x - first)).
    tl.store(loss_ptr + one, (log + (peak - first)) * mass - linear)


@triton.jit
def _backward(g_ptr, x_ptr, target_ptr, weight_ptr, lse_ptr, mass_ptr, gx_ptr, gt_ptr, stride_gn, classes, smoothing, spread, factor,
              WEIGHT: tl.constexpr, GX: tl.constexpr, GT: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes BLOCK elements of a row of gx_ptr (GX) and gt_ptr (GT). factor: 1 / N for the mean."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < classes
    offset = row * classes + cols
    scale = tl.load(g_ptr + row * stride_gn).to(tl.float32) * factor
    peak, log = tl.load(lse_ptr + row), tl.load(lse_ptr + tl.num_programs(0) + row)
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    if GX:
        u = _wanted(target_ptr, weight_ptr, offset, cols, inside, smoothing, spread, WEIGHT)
        gx = (tl.exp2((x - peak - log) * LOG2E) * tl.load(mass_ptr + row) - u) * scale
        tl.store(gx_ptr + offset, gx.to(gx_ptr.dtype.element_ty), mask=inside)
    if GT:
        gt = (log - (x - peak)) * (1.0 - smoothing) * scale
        if WEIGHT:
            gt *= tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(gt_ptr + offset, gt.to(gt_ptr.dtype.element_ty), mask=inside)


def accepts(input, target, *, weight=None, label_smoothing=0.0, reduction="mean", dtype=None):
    """Accepts float logits and targets (N, C), and class weights of any float dtype."""
    return is_float(input, target, weight) and input.size > 0


def forward(xp, input, target, *, weight=None, label_smoothing=0.0, reduction="mean", dtype=None):
    """Returns the losses, their mean or their sum, with lse and sum(u) of each row."""
    x, t, weight = contiguous(xp, input), contiguous(xp, target), contiguous(xp, weight)
    dtype = input.dtype if dtype is None else dtype.numpy
    rows, classes = x.shape
    lse, mass, losses = xp.empty((2, rows), "float32"), xp.empty(rows, "float32"), xp.empty(rows, "float32")
    launch(
        _forward, (rows,), x, t, weight, lse, mass, losses, classes, float(label_smoothing), label_smoothing / classes,
        WEIGHT=weight is not None, **blocks_of(classes),
    )  # fmt: skip
    if reduction == "none":
        return losses.astype(dtype, copy=False), lse, mass
    return add_losses(xp, losses, xp.full((), rows, "float32"), reduction, dtype), lse, mass


def vjp(g, input, target, weight, label_smoothing, reduction, lse, mass, needs, xp):
    """Returns the gradients of logits and targets."""
    x, t, weight, g = (contiguous(xp, a) for a in (input, target, weight, g))
    rows, classes = x.shape
    gx = xp.empty(x.shape, x.dtype) if needs[0] else None
    gt = xp.empty(t.shape, t.dtype) if needs[1] else None
    blocks = blocks_of(classes)
    launch(
        _backward, (rows, cdiv(classes, blocks["BLOCK"])), g, x, t, weight, lse, mass, gx, gt, 1 if reduction == "none" else 0, classes,
        float(label_smoothing), label_smoothing / classes, 1.0 / rows if reduction == "mean" else 1.0, WEIGHT=weight is not None,
        GX=bool(needs[0]), GT=bool(needs[1]), **blocks,
    )  # fmt: skip
    return gx, gt
