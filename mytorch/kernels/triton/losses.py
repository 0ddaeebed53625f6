"""Elementwise losses of an input and a target of one shape, and the negative log-likelihood: one pass each for forward and backward.

    mse       d²                                     2 d            with d = x - t
    l1        |d|                                    sign d
    smooth_l1 d² / 2β, or |d| - β / 2 from |d| = β on    d / β within ±1
    huber     β times smooth_l1
    bce       -t log x - (1 - t) log(1 - x), logarithms at least -100        (x - t) / max(x (1 - x), 1e-12)
    bce_logits    max(x, 0) - x t + log(1 + exp(-|x|))    sigmoid(x) - t
    kl        t log t - t x                          -t
    kl_log    exp(t) (t - x)                         -exp(t)
    nll       -w_t x_t

Grid: one program for STEPS blocks of elements, which stores their sum. If there are several programs, one more program adds their
sums in a fixed order. Backward: one program for each block, which computes the derivative. Saved for backward: the inputs (nll:
the divisor of the mean). Accumulation: float32. x_ptr, t_ptr and the gradients (N,); nll's x_ptr (N, C, L), target_ptr (N, L).
"""

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch
from .common import LOG2E, contiguous, is_float, one_dtype
from .cross_entropy import add_losses, count

KINDS = {"mse": 0, "l1": 1, "smooth_l1": 2, "huber": 3, "bce": 4, "bce_logits": 5, "kl": 6, "kl_log": 7}
BLOCK, STEPS = 1024, 8
LEAST = 1  # smallest number of elements for which the kernel is used


@triton.jit
def _log1p(e):
    """Returns log(1 + e) for e > -1, accurate also if 1 + e rounds to 1. Source: Goldberg, 1991, theorem 4."""
    # log(u) * e / (u - 1): the rounding errors of u cancel in log(u) / (u - 1).
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _loss(x, t, beta, KIND: tl.constexpr):
    """Returns the losses of a float32 block. KIND is a constant, so the other branches are not compiled."""
    d = x - t
    if KIND == 0:
        out = d * d
    elif KIND == 1:
        out = tl.abs(d)
    elif KIND <= 3:
        # With c = clip(d, ±beta), c (d - c / 2) is d² / 2 inside and beta (|d| - beta / 2) outside.
        clipped = tl.minimum(tl.maximum(d, -beta), beta)
        out = clipped * (d - 0.5 * clipped)
        if KIND == 2:
            out = out / beta
        # minimum and maximum may drop NaN; put it back.
        out = tl.where(d == d, out, d)
    elif KIND == 4:
        # PyTorch clamps the logarithms at -100, so a certain but wrong prediction has a finite loss.
        out = -(t * tl.maximum(tl.log(x), -100.0) + (1.0 - t) * tl.maximum(_log1p(-x), -100.0))
        out = tl.where(d == d, out, d)
    elif KIND == 5:
        # The stable form: the exponent is never positive.
        out = tl.where(x > 0, x, x * 0.0) - x * t + _log1p(tl.exp2(-tl.abs(x) * LOG2E))
    elif KIND == 6:
        out = tl.where(t == 0.0, 0.0, t * tl.log(t)) - t * x
    else:
        out = tl.exp2(t * LOG2E) * (t - x)
    return out


@triton.jit
def _slopes(x, t, beta, KIND: tl.constexpr):
    """Returns the derivatives of the losses with respect to x and t."""
    d = x - t
    if KIND == 0:
        gx = 2.0 * d
        gt = -gx
    elif KIND == 1:
        gx = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, d))
        gt = -gx
    elif KIND <= 3:
        gx = tl.where(d > beta, beta, tl.where(d < -beta, -beta, d))
        if KIND == 2:
            gx = gx / beta
        gt = -gx
    elif KIND == 4:
        gx = d / tl.maximum(x * (1.0 - x), 1e-12)  # finite at x = 0 and 1, as in PyTorch
        gt = _log1p(-x) - tl.log(x)
    elif KIND == 5:
        gx = tl.sigmoid(x) - t
        gt = -x
    elif KIND == 6:
        gx = -t
        # t / t is 1, but NaN at t = 0, like PyTorch's gradient of xlogy.
        gt = tl.where(t == 0.0, 0.0, tl.log(t)) + t / t - x
    else:
        gx = -tl.exp2(t * LOG2E)
        gt = gx * (x - t - 1.0)
    return gx, gt


@triton.jit
def _forward(x_ptr, t_ptr, out_ptr, size, beta, scale, KIND: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """Stores the losses (EACH), or their sum times scale in out_ptr (programs,)."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        index = first + step * BLOCK + tl.arange(0, BLOCK)
        inside = index < size
        # other=0.5 is inside the domain of every loss; these lanes are dropped below.
        x = tl.load(x_ptr + index, mask=inside, other=0.5).to(tl.float32)
        loss = _loss(x, tl.load(t_ptr + index, mask=inside, other=0.5).to(tl.float32), beta, KIND)
        if EACH:
            tl.store(out_ptr + index, loss.to(out_ptr.dtype.element_ty), mask=inside)
        total += tl.where(inside, loss, 0.0)
    if not EACH:
        tl.store(out_ptr + tl.program_id(0), (tl.sum(total, axis=0) * scale).to(out_ptr.dtype.element_ty))


@triton.jit
def _backward(g_ptr, x_ptr, t_ptr, gx_ptr, gt_ptr, size, beta, scale, KIND: tl.constexpr, EACH: tl.constexpr, INPUT: tl.constexpr,
              TARGET: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes a block of the gradients of INPUT and TARGET. EACH: g_ptr is (N,), otherwise one number."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    x = tl.load(x_ptr + index, mask=inside, other=0.5).to(tl.float32)
    gx, gt = _slopes(x, tl.load(t_ptr + index, mask=inside, other=0.5).to(tl.float32), beta, KIND)
    if EACH:
        g = tl.load(g_ptr + index, mask=inside, other=0.0).to(tl.float32)
    else:
        g = tl.load(g_ptr).to(tl.float32) * scale
    if INPUT:
        tl.store(gx_ptr + index, (g * gx).to(gx_ptr.dtype.element_ty), mask=inside)
    if TARGET:
        tl.store(gt_ptr + index, (g * gt).to(gt_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _nll_forward(x_ptr, target_ptr, weight_ptr, total_ptr, out_ptr, size, classes, length, ignore_index, WEIGHT: tl.constexpr,
                 EACH: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Stores the losses of a block of targets (EACH), or their sum in out_ptr (programs,), for MEAN divided by total_ptr (1,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + index, mask=index < size, other=ignore_index).to(tl.int64)
    kept = (index < size) & (target != ignore_index)
    # Element (n, target, l) of x (N, C, L), for index = n L + l.
    offset = (index // length * classes + target) * length + index % length
    loss = -tl.load(x_ptr + offset, mask=kept, other=0.0).to(tl.float32)
    if WEIGHT:
        loss *= tl.load(weight_ptr + target, mask=kept, other=0.0).to(tl.float32)
    if EACH:
        tl.store(out_ptr + index, loss.to(out_ptr.dtype.element_ty), mask=index < size)
    else:
        out = tl.sum(loss, axis=0)
        if MEAN:
            out = out / tl.load(total_ptr)
        tl.store(out_ptr + tl.program_id(0), out.to(out_ptr.dtype.element_ty))


@triton.jit
def _nll_backward(g_ptr, target_ptr, weight_ptr, total_ptr, gx_ptr, size, classes, length, ignore_index, WEIGHT: tl.constexpr,
                  EACH: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes a block of gx_ptr (N, C, L): -w g at the target's class, 0 elsewhere."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    # The target that belongs to element (n, c, l).
    row = index // (classes * length) * length + index % length
    target = tl.load(target_ptr + row, mask=inside, other=ignore_index).to(tl.int64)
    hit = inside & (target != ignore_index) & (target == index // length % classes)
    if EACH:
        g = -tl.load(g_ptr + row, mask=hit, other=0.0).to(tl.float32)
    else:
        g = -tl.load(g_ptr).to(tl.float32)
        if MEAN:
            g = g / tl.load(total_ptr)
    if WEIGHT:
        g = g * tl.load(weight_ptr + target, mask=hit, other=0.0).to(tl.float32)
    tl.store(gx_ptr + index, tl.where(hit, g, 0.0).to(gx_ptr.dtype.element_ty), mask=inside)


def _places(xp, programs, shape, dtype, reduction):
    """Returns the output array of forward: the losses, one sum, or one sum per program."""
    if reduction == "none":
        return xp.empty(shape, dtype)
    return xp.empty((), dtype) if programs == 1 else xp.empty(programs, "float32")


def _summed(xp, parts, reduction, dtype):
    """Returns the sum of the programs' sums if there are several."""
    return parts if reduction == "none" or not parts.ndim else add_losses(xp, parts, parts, "sum", dtype)


def accepts(input, target, *, kind, reduction="mean", beta=1.0):
    """Accepts floats of one dtype and shape."""
    return one_dtype(input, target) and input.shape == target.shape and input.size > 0


def forward(xp, input, target, *, kind, reduction="mean", beta=1.0):
    """Returns the losses, their mean or their sum."""
    x, t = contiguous(xp, input), contiguous(xp, target)
    programs = cdiv(x.size, BLOCK * STEPS)
    out = _places(xp, programs, x.shape, x.dtype, reduction)
    scale = 1.0 / x.size if reduction == "mean" else 1.0
    launch(
        _forward, (programs,), x, t, out, x.size, float(beta), scale, KIND=KINDS[kind], EACH=reduction == "none",
        BLOCK=BLOCK, STEPS=STEPS, num_warps=4,
    )  # fmt: skip
    return _summed(xp, out, reduction, x.dtype)


def vjp(g, input, target, kind, reduction, beta, needs, xp):
    """Returns the gradients of input and target."""
    g, x, t = (contiguous(xp, a) for a in (g, input, target))
    grads = [xp.empty(x.shape, x.dtype) if needed else None for needed in needs]
    scale = 1.0 / x.size if reduction == "mean" else 1.0
    launch(
        _backward, (cdiv(x.size, BLOCK),), g, x, t, *grads, x.size, float(beta), scale, KIND=KINDS[kind],
        EACH=reduction == "none", INPUT=needs[0], TARGET=needs[1], BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return grads


def _nll_accepts(input, target, *, weight=None, ignore_index=-100, reduction="mean"):
    return is_float(input, weight) and input.size > 0


def _nll(xp, input, target, *, weight=None, ignore_index=-100, reduction="mean"):
    x, target, weight = (contiguous(xp, a) for a in (input, target, weight))
    total = count(xp, target.reshape(-1), weight, ignore_index) if reduction == "mean" else None
    programs = cdiv(target.size, BLOCK)
    out = _places(xp, programs, target.shape, x.dtype, reduction)
    launch(
        _nll_forward, (programs,), x, target, weight, total, out, target.size, *x.shape[1:], ignore_index,
        WEIGHT=weight is not None, EACH=reduction == "none", MEAN=reduction == "mean", BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return _summed(xp, out, reduction, x.dtype), total


def _nll_vjp(g, target, weight, total, ignore_index, reduction, shape, xp):
    g, target, weight = (contiguous(xp, a) for a in (g, target, weight))
    gx = xp.empty(shape, g.dtype)
    launch(
        _nll_backward, (cdiv(gx.size, BLOCK),), g, target, weight, total, gx, gx.size, *shape[1:], ignore_index,
        WEIGHT=weight is not None, EACH=reduction == "none", MEAN=reduction == "mean", BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return (gx,)


nll = Kernel(accepts=_nll_accepts, forward=_nll, vjp=_nll_vjp, residuals=("total",), LEAST=LEAST)
