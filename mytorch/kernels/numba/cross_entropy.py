"""Cross-entropy of rows of logits: forward computes log-sum-exp, backward softmax minus one-hot.

Forward saves two numbers per row, the maximum and the logarithm of the sum, instead of the probabilities. Backward computes the
probabilities again while it writes the gradient.
"""

import numpy as np

from ..threads import split
from .common import exact, exp, is_float32, kernel, within
from .softmax import peak_of


@kernel
def _fwd(x, target, losses, peaks, logs, ignore_index):
    """Computes the loss, the maximum and log(sum(exp(x - max))) of each row. Returns True for infinite maxima and NaN."""
    rows, width = x.shape
    has_nonfinite = False
    for r in range(rows):
        peak, infinite = peak_of(x, r)
        has_nonfinite = has_nonfinite or infinite
        total = np.float32(0.0)
        for j in range(width):
            total += exp(x[r, j] - peak)
        # Save maximum and logarithm separately: in their sum, large logits would round off the logarithm's digits.
        peaks[r] = peak
        counts = target[r] != ignore_index
        logs[r] = np.log(total) if counts else np.float32(0.0)
        # loss = (max - x[target]) + log(sum). The logarithm is added in the loop below.
        losses[r] = peak - x[r, within(target[r], width)] if counts else np.float32(0.0)
    # A separate loop: with reassociation allowed, the compiler could add max and logarithm first.
    for r in range(rows):
        losses[r] += logs[r]
    return has_nonfinite


@exact
def _mean(losses, target, ignore_index, mean):
    """Returns (sum of the losses / divisor, divisor). The divisor is the number of counted rows for a mean, otherwise 1."""
    # The sum is in float64.
    total, count = 0.0, 0
    for r in range(losses.size):
        total += losses[r]
        count += target[r] != ignore_index
    number = np.float32(count if mean else 1)
    return np.float32(total / number), number


@kernel
def _bwd(x, target, peaks, logs, scale, gx, ignore_index):
    """Computes gx = (softmax(x) - one_hot(target)) * scale row by row, 0 for ignored rows."""
    rows, width = x.shape
    for r in range(rows):
        if target[r] == ignore_index:
            for j in range(width):
                gx[r, j] = np.float32(0.0)
        else:
            s = scale[r]
            peak = peaks[r]
            # scale / sum, the factor of all probabilities. The sum is between 1 and the number of classes: no overflow.
            part = s * exp(-logs[r])
            for j in range(width):
                gx[r, j] = exp(x[r, j] - peak) * part
            gx[r, within(target[r], width)] -= s


residuals = ("total", "peaks", "logs")


def accepts(input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """Accepts float32 logits without class weights and label smoothing."""
    return is_float32(input) and weight is None and not label_smoothing and input.size > 0


def forward(xp, input, target, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean", dtype=None):
    """Returns logsumexp - logit of the target: the mean, the sum or all losses."""
    x, target = np.ascontiguousarray(input), np.ascontiguousarray(target)
    losses, peaks, logs = np.empty((3, x.shape[0]), np.float32)
    if split(_fwd, x.size, (x, target, losses, peaks, logs), ignore_index):
        return None
    if reduction == "none":
        return losses, np.float32(1.0), peaks, logs
    loss, total = _mean(losses, target, ignore_index, reduction == "mean")  # Numba returns Python floats
    return np.float32(loss), np.float32(total), peaks, logs


def vjp(g, input, target, ignore_index, reduction, peaks, logs, total):
    """Returns the gradient of the logits."""
    x, target = np.ascontiguousarray(input), np.ascontiguousarray(target)
    gx = np.empty_like(x)
    scale = np.ascontiguousarray(np.broadcast_to(g if reduction == "none" else g / total, (x.shape[0],)), np.float32)
    split(_bwd, x.size, (x, target, peaks, logs, scale, gx), ignore_index)
    return (gx,)
