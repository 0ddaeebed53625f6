"""The CTC loss and its gradient by the forward recursion in log space; float32 and float64. See `ops/loss.py`.

`history[t, n, s]` is the logarithm of the probability of all alignments of sample n that are at state s after step t. The states are
the labels with a blank before, between and after them (Graves et al., 2006).
"""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import exact, exact_inlined, log1p_of_exp

_LOW = -1e30  # log(0): finite, so that differences are never NaN; the same as `LOW` in ops/loss.py


@exact_inlined
def _arrivals(before, skip, s):
    """Returns the log probabilities of the three ways to state s: stay, come from s - 1, or skip a blank from s - 2."""
    low = before.dtype.type(_LOW)
    return before[s], before[s - 1] if s > 0 else low, before[s - 2] if s > 1 and skip[s] else low


@exact_inlined
def _log_sum(a, b):
    """Returns log(e^a + e^b) for float32; NaN if a or b is NaN."""
    d = a - b
    return d if d != d else (a if d > 0 else b) + log1p_of_exp(-abs(d))


@exact_inlined
def _step_in_float32(before, after, emitted, skip):
    """Computes the states after a step by exponentials that the compiler vectorizes."""
    low = np.float32(_LOW)
    for s in range(len(after) - 2):
        c = before[s]
        total = _log_sum(_log_sum(before[s + 2], before[s + 1]), c if skip[s + 2] else low) + emitted[s + 2]
        after[s + 2] = low if total < low else total
    # The first two states have fewer ways to them.
    for s in range(min(len(after), 2)):
        total = _log_sum(before[s], before[0] if s else low) + emitted[s]
        after[s] = low if total < low else total


@exact_inlined
def _step(before, after, emitted, skip):
    low = emitted.dtype.type(_LOW)
    for s in range(len(after)):
        a, b, c = _arrivals(before, skip, s)
        # log(e^a + e^b + e^c), with the maximum subtracted so that no exponential overflows.
        peak = max(a, b, c)
        total = peak + math.log(math.exp(a - peak) + math.exp(b - peak) + math.exp(c - peak))
        total += emitted[s]
        after[s] = low if total < low else total  # not max, which drops NaN


@exact
def _fwd(samples, emissions, skip, steps, ends, history, losses):
    """Fills history (T, N, S) and losses (N), for the given samples."""
    low = emissions.dtype.type(_LOW)
    for n in samples:
        # Step 0: an alignment begins with the first blank or the first label.
        for s in range(history.shape[2]):
            history[0, n, s] = emissions[0, n, s] if s < 2 else low
        for t in range(1, steps[n]):
            before, after, emitted, can_skip = history[t - 1, n], history[t, n], emissions[t, n], skip[n]
            if emissions.itemsize == 4:
                _step_in_float32(before, after, emitted, can_skip)
            else:
                _step(before, after, emitted, can_skip)
        # An alignment ends with the last label or the blank after it: the loss is -log of the sum of the two.
        last, end = history[max(steps[n] - 1, 0), n], ends[n]
        # No input steps: only an empty target has an alignment.
        if steps[n] == 0:
            losses[n] = 0.0 if end == 0 else -low
        elif end == 0:
            losses[n] = -last[0]
        else:
            peak = max(last[end - 1], last[end])
            losses[n] = -(peak + math.log(math.exp(last[end - 1] - peak) + math.exp(last[end] - peak)))


@exact
def _bwd(samples, g, skip, steps, ends, history, losses, out):
    """Accumulates the gradient of the emissions in out (T, N, S), for the given samples."""
    for n in samples:
        if steps[n] == 0:
            continue
        # Last step: the loss is -logsumexp of the final states, so the gradient is minus their softmax.
        end, last = ends[n], out[steps[n] - 1, n]
        for s in range(max(end - 1, 0), end + 1):
            last[s] = -g[n] * math.exp(history[steps[n] - 1, n, s] + losses[n])
        for t in range(steps[n] - 1, 0, -1):
            # Each state passes its gradient to its predecessors, in proportion to their softmax.
            before, up, to = history[t - 1, n], out[t, n], out[t - 1, n]
            for s in range(len(up)):
                if up[s] != 0.0:
                    a, b, c = _arrivals(before, skip[n], s)
                    peak = max(a, b, c)
                    a, b, c = math.exp(a - peak), math.exp(b - peak), math.exp(c - peak)
                    share = up[s] / (a + b + c)
                    to[s] += a * share
                    if s > 0:
                        to[s - 1] += b * share
                    if s > 1:
                        to[s - 2] += c * share


def _accepts(emissions, **options):
    return emissions.dtype.char in "fd" and emissions.size > 0


def _forward(xp, emissions, *, skip, steps, ends):
    history, losses = np.empty(emissions.shape, emissions.dtype), np.empty(emissions.shape[1], emissions.dtype)
    emissions, skip, steps, ends = map(np.ascontiguousarray, (emissions, skip, steps, ends))
    split(_fwd, emissions.size * 8, (np.arange(len(losses)),), emissions, skip, steps, ends, history, losses)
    return losses, history


def _vjp(g, skip, steps, ends, history, out):
    grad = np.zeros(history.shape, history.dtype)
    g, skip, steps, ends = map(np.ascontiguousarray, (g, skip, steps, ends))
    split(_bwd, grad.size * 8, (np.arange(len(g)),), g, skip, steps, ends, history, out, grad)
    return (grad,)


alignments = Kernel(accepts=_accepts, forward=_forward, vjp=_vjp, residuals=("history",))
