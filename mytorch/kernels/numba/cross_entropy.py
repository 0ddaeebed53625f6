"""Cross-entropy of rows of logits: the log-sum-exp in forward, softmax minus one-hot in backward.

Forward keeps one number a row, not the probabilities; backward makes them again while it writes the
gradient, so the logits are read once each way.
"""

import numpy as np

from ...backend import numpy_ns
from ..threads import split
from .common import exp, is_float32, kernel, larger


@kernel
def _fwd(x, target, peaks, logs, picked, ignore_index):
    rows, width = x.shape
    for r in range(rows):
        peak = x[r, 0]
        for j in range(width):
            peak = larger(peak, x[r, j])
        total = np.float32(0.0)
        for j in range(width):
            total += exp(x[r, j] - peak)
        peaks[r] = peak  # apart from the logarithm, which their sum would swallow where logits are large
        logs[r] = np.log(total)
        picked[r] = peak if target[r] == ignore_index else x[r, target[r]]


@kernel
def _bwd(x, target, peaks, logs, scale, gx, ignore_index):
    rows, width = x.shape
    for r in range(rows):
        if target[r] == ignore_index:
            for j in range(width):
                gx[r, j] = np.float32(0.0)
        else:
            s = scale[r]
            peak = peaks[r]
            part = s * exp(-logs[r])  # a total between 1 and the number of classes
            for j in range(width):
                gx[r, j] = exp(x[r, j] - peak) * part
            gx[r, target[r]] -= s


residuals = ("peaks", "logs", "total")


LEAST = 1024


def accepts(input, *, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """float32 logits without class weights or label smoothing."""
    return is_float32(input) and weight is None and not label_smoothing and input.size > 0


def pays(input, *, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """If no infinity or NaN is about: those take the reference."""
    return bool(np.isfinite(numpy_ns.sum(input)))


def forward(xp, input, *, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """lse - logit of the target, and their mean, sum or all of them."""
    x = np.ascontiguousarray(input)
    peaks, logs, picked = np.empty((3, x.shape[0]), np.float32)
    split(_fwd, x.size, (x, target, peaks, logs, picked), ignore_index)
    losses = np.where(
        target == ignore_index, np.float32(0.0), logs - (picked - peaks)
    )  # here, where no compiler reorders it
    total = np.float32(1.0)
    if reduction == "mean":
        total = np.float32(np.count_nonzero(target != ignore_index))
    return losses if reduction == "none" else losses.sum() / total, peaks, logs, total


def vjp(g, input, target, ignore_index, reduction, peaks, logs, total):
    """The gradient of the logits."""
    x = np.ascontiguousarray(input)
    gx = np.empty_like(x)
    scale = np.ascontiguousarray(np.broadcast_to(g if reduction == "none" else g / total, (x.shape[0],)), np.float32)
    split(_bwd, x.size, (x, target, peaks, logs, scale, gx), ignore_index)
    return (gx,)
