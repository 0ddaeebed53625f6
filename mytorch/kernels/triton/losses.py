"""Losses of an input and a target of one shape, element by element, and the log-likelihood of classes: one pass each way.

    mse       d²                                     2 d            with d = x - t
    l1        |d|                                    sign d
    smooth_l1 d² / 2β, or |d| - β / 2 from |d| = β on    d / β within ±1
    huber     β times smooth_l1
    bce       -t log x - (1 - t) log(1 - x), logarithms at least -100        (x - t) / max(x (1 - x), 1e-12)
    bce_logits    max(x, 0) - x t + log(1 + exp(-|x|))    sigmoid(x) - t
    kl        t log t - t x                          -t
    kl_log    exp(t) (t - x)                         -exp(t)
    nll       -w_t x_t

Grid: a program for STEPS blocks of elements, whose sum it writes; more than one program's sums are added up by one program, in
a fixed order. Backward: a program for each block, which computes the slope again. Kept for backward: the inputs (nll: the
mean's divisor). Accumulation: float32. x_ptr, t_ptr and the gradients (N,); nll's x_ptr (N, C, L), target_ptr (N, L).
"""

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch
from .common import LOG2E, contiguous, is_float, one_dtype
from .cross_entropy import add_losses, count

KINDS = {"mse": 0, "l1": 1, "smooth_l1": 2, "huber": 3, "bce": 4, "bce_logits": 5, "kl": 6, "kl_log": 7}
BLOCK, STEPS = 1024, 8
LEAST = 1


@triton.jit
def _log1p(e):
    """log(1 + e) for e > -1, right where 1 + e is 1 too. Source: Goldberg, 1991, theorem 4."""
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _loss(x, t, beta, KIND: tl.constexpr):
    """The losses of a float32 block."""
    d = x - t
    if KIND == 0:
        out = d * d
    elif KIND == 1:
        out = tl.abs(d)
    elif KIND <= 3:
        near = tl.minimum(tl.maximum(d, -beta), beta)
        out = near * (d - 0.5 * near)
        if KIND == 2:
            out = out / beta
        out = tl.where(d == d, out, d)
    elif KIND == 4:
        out = -(t * tl.maximum(tl.log(x), -100.0) + (1.0 - t) * tl.maximum(_log1p(-x), -100.0))
        out = tl.where(d == d, out, d)
    elif KIND == 5:
        out = tl.where(x > 0, x, x * 0.0) - x * t + _log1p(tl.exp2(-tl.abs(x) * LOG2E))
    elif KIND == 6:
        out = tl.where(t == 0.0, 0.0, t * tl.log(t)) - t * x
    else:
        out = tl.exp2(t * LOG2E) * (t - x)
    return out


@triton.jit
def _slopes(x, t, beta, KIND: tl.constexpr):
    """The derivatives of the losses by x and by t."""
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
        gt = tl.where(t == 0.0, 0.0, tl.log(t)) + t / t - x
    else:
        gx = -tl.exp2(t * LOG2E)
        gt = gx * (x - t - 1.0)
    return gx, gt


@triton.jit
def _forward(x_ptr, t_ptr, out_ptr, size, beta, scale, KIND: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """EACH: the losses. Otherwise their sum, times scale, to out_ptr (programs,)."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        place = first + step * BLOCK + tl.arange(0, BLOCK)
        inside = place < size
        x = tl.load(x_ptr + place, mask=inside, other=0.5).to(tl.float32)
        loss = _loss(x, tl.load(t_ptr + place, mask=inside, other=0.5).to(tl.float32), beta, KIND)
        if EACH:
            tl.store(out_ptr + place, loss.to(out_ptr.dtype.element_ty), mask=inside)
        total += tl.where(inside, loss, 0.0)
    if not EACH:
        tl.store(out_ptr + tl.program_id(0), (tl.sum(total, axis=0) * scale).to(out_ptr.dtype.element_ty))


@triton.jit
def _backward(g_ptr, x_ptr, t_ptr, gx_ptr, gt_ptr, size, beta, scale, KIND: tl.constexpr, EACH: tl.constexpr, INPUT: tl.constexpr,
              TARGET: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A block of both gradients, those that are wanted; EACH: g_ptr (N,) rather than one number."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    x = tl.load(x_ptr + place, mask=inside, other=0.5).to(tl.float32)
    gx, gt = _slopes(x, tl.load(t_ptr + place, mask=inside, other=0.5).to(tl.float32), beta, KIND)
    if EACH:
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
    else:
        g = tl.load(g_ptr).to(tl.float32) * scale
    if INPUT:
        tl.store(gx_ptr + place, (g * gx).to(gx_ptr.dtype.element_ty), mask=inside)
    if TARGET:
        tl.store(gt_ptr + place, (g * gt).to(gt_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _nll_forward(x_ptr, target_ptr, weight_ptr, total_ptr, out_ptr, size, classes, length, ignore_index, WEIGHT: tl.constexpr,
                 EACH: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """EACH: the losses of a block of targets. Otherwise their sum to out_ptr (programs,), divided by total_ptr (1,) for the MEAN."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + place, mask=place < size, other=ignore_index).to(tl.int64)
    kept = (place < size) & (target != ignore_index)
    at = (place // length * classes + target) * length + place % length
    loss = -tl.load(x_ptr + at, mask=kept, other=0.0).to(tl.float32)
    if WEIGHT:
        loss *= tl.load(weight_ptr + target, mask=kept, other=0.0).to(tl.float32)
    if EACH:
        tl.store(out_ptr + place, loss.to(out_ptr.dtype.element_ty), mask=place < size)
    else:
        out = tl.sum(loss, axis=0)
        if MEAN:
            out = out / tl.load(total_ptr)
        tl.store(out_ptr + tl.program_id(0), out.to(out_ptr.dtype.element_ty))


@triton.jit
def _nll_backward(g_ptr, target_ptr, weight_ptr, total_ptr, gx_ptr, size, classes, length, ignore_index, WEIGHT: tl.constexpr,
                  EACH: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A block of gx_ptr (N, C, L): -w g at each target's class, 0 elsewhere."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    row = place // (classes * length) * length + place % length
    target = tl.load(target_ptr + row, mask=inside, other=ignore_index).to(tl.int64)
    hit = inside & (target != ignore_index) & (target == place // length % classes)
    if EACH:
        g = -tl.load(g_ptr + row, mask=hit, other=0.0).to(tl.float32)
    else:
        g = -tl.load(g_ptr).to(tl.float32)
        if MEAN:
            g = g / tl.load(total_ptr)
    if WEIGHT:
        g = g * tl.load(weight_ptr + target, mask=hit, other=0.0).to(tl.float32)
    tl.store(gx_ptr + place, tl.where(hit, g, 0.0).to(gx_ptr.dtype.element_ty), mask=inside)


def _places(xp, programs, shape, dtype, reduction):
    """Where forward writes: the losses, the one sum, or each program's."""
    if reduction == "none":
        return xp.empty(shape, dtype)
    return xp.empty((), dtype) if programs == 1 else xp.empty(programs, "float32")


def _summed(xp, parts, reduction, dtype):
    """The sum of the programs' sums, where there were several."""
    return parts if reduction == "none" or not parts.ndim else add_losses(xp, parts, parts, "sum", dtype)


def accepts(input, target, *, kind, reduction="mean", beta=1.0):
    """Floats of one dtype and shape."""
    return one_dtype(input, target) and input.shape == target.shape and input.size > 0


def forward(xp, input, target, *, kind, reduction="mean", beta=1.0):
    """The losses, their mean or their sum."""
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
    """The gradients of input and target."""
    g, x, t = (contiguous(xp, a) for a in (g, input, target))
    made = [xp.empty(x.shape, x.dtype) if wanted else None for wanted in needs]
    scale = 1.0 / x.size if reduction == "mean" else 1.0
    launch(
        _backward, (cdiv(x.size, BLOCK),), g, x, t, *made, x.size, float(beta), scale, KIND=KINDS[kind],
        EACH=reduction == "none", INPUT=needs[0], TARGET=needs[1], BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return made


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
