"""Losses: cross-entropy in full; the others are added beside it."""

import math

import numpy as np

from .._array import Array
from ..backend import ndarray
from ..tensor import Tensor
from .activation import log_softmax
from .core import op
from .elementwise import cast


@op(name="cross_entropy", dtype="same", residuals=("weights", "total"), autocast="float32")
def _cross_entropy(xp, input, *, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """Cross-entropy of rows of logits (N, C) with class indices (N,)."""
    logits = xp.astype(input, np.float32) if input.dtype.itemsize == 2 else input
    n, classes = logits.shape
    kept = target != ignore_index
    index = xp.where(kept, target, 0)
    peak = xp.max(logits, axis=-1, keepdims=True)
    shifted = logits - peak
    lse = xp.log(xp.sum(xp.exp(shifted), axis=-1))  # (N,)
    picked = xp.reshape(xp.take_along_axis(shifted, index[:, None], axis=-1), (n,))
    weights = xp.astype(kept, logits.dtype) if weight is None else xp.astype(weight, logits.dtype)[index] * kept
    losses = (lse - picked) * weights
    if label_smoothing:
        if weight is None:
            smooth = (lse * classes - xp.sum(shifted, axis=-1)) * weights
        else:
            smooth = xp.sum((lse[:, None] - shifted) * xp.astype(weight, logits.dtype), axis=-1) * kept
        losses = losses * (1 - label_smoothing) + smooth * (label_smoothing / classes)
    total = xp.sum(weights) if reduction == "mean" else xp.asarray(1.0, logits.dtype)
    if reduction == "none":
        out = losses
    else:
        out = xp.sum(losses) / total
    return xp.astype(out, input.dtype), weights, total


def _cross_entropy_grad(g, input, target, weight, ignore_index, label_smoothing, reduction, weights, total, xp):
    logits = xp.astype(input, np.float32) if input.dtype.itemsize == 2 else input
    n, classes = logits.shape
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    p = xp.exp(shifted)
    p = p / xp.sum(p, axis=-1, keepdims=True)
    index = xp.where(target != ignore_index, target, 0)
    one_hot = xp.astype(xp.arange(classes) == index[:, None], logits.dtype)
    grad = (p - one_hot) * (weights * (1 - label_smoothing))[:, None]
    if label_smoothing:
        kept = xp.astype(target != ignore_index, logits.dtype)[:, None]
        w = kept if weight is None else xp.astype(weight, logits.dtype) * kept
        spread = p * (xp.sum(w, axis=-1, keepdims=True) if weight is not None else w * classes) - w
        grad = grad + spread * (label_smoothing / classes)
    scale = xp.reshape(g, (n, 1)) if reduction == "none" else g / total
    return grad * scale


_cross_entropy.grad(input=_cross_entropy_grad)
_cross_entropy.fuse(cpu="mytorch.kernels.numba.cross_entropy")



def raw_of(x):
    """The raw array of a Tensor or Array; None stays None."""
    if x is None:
        return None
    data = x._data if isinstance(x, Tensor) else x
    return data._array if isinstance(data, Array) else data


def check_reduction(reduction):
    """Refuse a word that is none of PyTorch's three."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction; expected 'mean', 'sum' or 'none'.")


def class_indices(target, name):
    """Class targets as an integer raw array; whole floats are accepted, as lists of ints become floats.

    Raises:
        ValueError: a float target with a fraction.
    """
    raw = raw_of(target)
    if raw.dtype.kind in "fV":
        whole = raw.astype(np.int64)
        if isinstance(raw, ndarray) and (whole != raw).any():
            raise ValueError(f"{name}: class targets must be whole numbers, got {raw.dtype} values with a fraction.")
        return whole
    if raw.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: expected class indices of an integer dtype, got {raw.dtype}.")
    return raw


def _check_classes(raw, classes, ignore_index, name):
    """Refuse class indices outside [0, classes); only on the CPU, where looking costs no synchronisation."""
    if isinstance(raw, ndarray) and raw.size:
        bad = (raw != ignore_index) & ((raw < 0) | (raw >= classes))
        if bad.any():
            raise IndexError(f"{name}: Target {int(raw[bad][0])} is out of bounds for {classes} classes.")


def _classes_last(input, target):
    """Whether shapes fit only with the classes on the last axis, (…, V) logits with (…) targets."""
    shape, want = tuple(input.shape), tuple(target.shape)
    pytorch = len(shape) == len(want) + 1 and (shape[0], *shape[2:]) == want if len(shape) > 1 else want == ()
    return not pytorch and len(shape) >= 2 and shape[:-1] == want


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
    *,
    softcap=None,
    fused=None,
):
    """The negative log-likelihood of `target` under softmax(input).

    Args:
        input: logits (C,), (N, C) or (N, C, d1, …). Where PyTorch would refuse the shapes, logits with
            the classes last, (…, C) with targets (…), are understood too.
        target: class indices of any integer dtype, or probabilities of input's shape.
        weight: (C,) a factor for each class; "mean" divides by the sum of the weights used.
        ignore_index: targets with this value count for nothing.
        label_smoothing: the share of the target's mass that is spread over all classes.
        softcap: apply `softcap * tanh(input / softcap)` to the logits first.

    Raises:
        ValueError: shapes that fit neither reading, a reduction that is not known.
        IndexError: a class index out of range.
    """
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if softcap is not None:
        input = (input / softcap).tanh() * softcap
    if tuple(input.shape) == tuple(target.shape) and target.dtype.is_floating_point and input.ndim:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    shape = tuple(input.shape)
    if _classes_last(input, target):
        classes, rows, out_shape = shape[-1], input.reshape(-1, shape[-1]), shape[:-1]
    elif len(shape) == 1 and target.ndim == 0:
        classes, rows, out_shape = shape[0], input.reshape(1, -1), ()
    else:
        if input.ndim < 2 or (shape[0], *shape[2:]) != tuple(target.shape):
            raise ValueError(f"cross_entropy: target has shape {tuple(target.shape)}, but logits of shape {shape} want {(shape[0], *shape[2:])}.")
        classes, out_shape = shape[1], (shape[0], *shape[2:])
        rows = input if input.ndim == 2 else input.movedim(1, -1).reshape(-1, classes)
    index = class_indices(target, "cross_entropy").reshape(-1)
    _check_classes(index, classes, ignore_index, "cross_entropy")
    out = _cross_entropy(
        rows,
        target=index,
        weight=raw_of(weight),
        ignore_index=ignore_index,
        label_smoothing=float(label_smoothing),
        reduction=reduction,
        fused=fused,
    )
    return out.reshape(out_shape) if reduction == "none" else out


def _soft_cross_entropy(input, target, weight, reduction, label_smoothing):
    """Cross-entropy with probabilities as targets."""
    axis = 1 if input.ndim > 1 else 0
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    terms = log_softmax(input, axis) * cast(target, input.dtype)
    if weight is not None:
        terms = terms * weight.reshape([-1 if i == axis else 1 for i in range(input.ndim)])
    losses = -terms.sum(axis)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / (math.prod(input.shape) / classes) if reduction == "mean" else total


