"""Activation functions with exponentials (sigmoid, SiLU), forward and backward, one pass each: float32, any shape."""

import numpy as np

from ..kernel import Kernel
from .common import each, exp, is_float32, with_nan

_ONE = np.float32(1.0)


@with_nan
def _sigmoid(x, out):
    for i in range(x.size):
        v = x[i]
        s = _ONE / (_ONE + exp(-v))
        out[i] = v if v != v else s  # `exp` does not propagate NaN


@with_nan
def _sigmoid_bwd(g, s, out):
    for i in range(s.size):
        out[i] = g[i] * (s[i] * (_ONE - s[i]))


@with_nan
def _silu(x, out):
    for i in range(x.size):
        v = x[i]
        y = v / (_ONE + exp(-v))
        out[i] = v if v != v else y


@with_nan
def _silu_bwd(g, x, out):
    for i in range(x.size):
        v = x[i]
        s = _ONE / (_ONE + exp(-v))
        # (v s)' = s + v s (1 - s).
        slope = s * (_ONE + v * (_ONE - s))
        out[i] = v if v != v else g[i] * slope


def _accepts(input):
    """Accepts float32 only."""
    return is_float32(input)


sigmoid = Kernel(
    LEAST=8192,
    accepts=_accepts,
    forward=lambda xp, input: each(_sigmoid, input),
    vjp=lambda g, out: (each(_sigmoid_bwd, g, out),),
)
silu = Kernel(
    LEAST=2048,
    accepts=_accepts,
    forward=lambda xp, input: each(_silu, input),
    vjp=lambda g, input: (each(_silu_bwd, g, input),),
)
