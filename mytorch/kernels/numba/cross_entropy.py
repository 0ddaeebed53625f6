"""Cross-entropy of rows of logits: the log-sum-exp in forward, softmax minus one-hot in backward.

Forward keeps one number a row, not the probabilities; backward makes them again while it writes the
gradient, so the logits are read once each way.
"""

import numpy as np

from ..threads import split
from .common import exact, exp, is_float32, kernel, within
from .softmax import peak_of


@kernel
def _fwd(x, target, losses, peaks, logs, ignore_index):
    rows, width = x.shape
    odd = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        odd = odd or infinite
        total = np.float32(0.0)
        for j in range(width):
            total += exp(x[r, j] - peak)
        peaks[r] = peak  # apart from the logarithm, which their sum would swallow where logits are large
        counts = target[r] != ignore_index
        logs[r] = np.log(total) if counts else np.float32(0.0)
        losses[r] = peak - x[r, within(target[r], width)] if counts else np.float32(0.0)
    for r in range(rows):  # apart: in one sum the compiler would add up the large numbers with the logarithm first
        losses[r] += logs[r]
    return odd


@exact
def _mean(losses, target, ignore_index, mean):
    """The losses' sum, over how many of them count or over 1; and that number."""
    total, count = 0.0, 0
    for r in range(losses.size):
        total += losses[r]
        count += target[r] != ignore_index
    number = np.float32(count if mean else 1)
    return np.float32(total / number), number


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
            gx[r, within(target[r], width)] -= s


residuals = ("total", "peaks", "logs")


def accepts(input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """float32 logits without class weights or label smoothing."""
    return is_float32(input) and weight is None and not label_smoothing and input.size > 0


def forward(xp, input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """lse - logit of the target, and their mean, sum or all of them."""
    x, target = np.ascontiguousarray(input), np.ascontiguousarray(target)
    losses, peaks, logs = np.empty((3, x.shape[0]), np.float32)
    if split(_fwd, x.size, (x, target, losses, peaks, logs), ignore_index):
        return None
    if reduction == "none":
        return losses, np.float32(1.0), peaks, logs
    loss, total = _mean(losses, target, ignore_index, reduction == "mean")  # Python's floats by now
    return np.float32(loss), np.float32(total), peaks, logs


def vjp(g, input, target, ignore_index, reduction, peaks, logs, total):
    """The gradient of the logits."""
    x, target = np.ascontiguousarray(input), np.ascontiguousarray(target)
    gx = np.empty_like(x)
    scale = np.ascontiguousarray(np.broadcast_to(g if reduction == "none" else g / total, (x.shape[0],)), np.float32)
    split(_bwd, x.size, (x, target, peaks, logs, scale, gx), ignore_index)
    return (gx,)
