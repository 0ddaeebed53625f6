"""GELU, forward and backward, one pass each: float32, any shape.

Infinities give the same results as the reference, because `exp` is 0 and inf there. Forward saves only its input. Backward
computes the normal distribution again, which is faster than reading it from memory.
"""

import numpy as np

from .common import each, erf, exp, is_float32, kernel

_SQRT_HALF = np.float32(0.7071067811865476)  # sqrt(1 / 2)
_DENSITY = np.float32(0.3989422804014327)  # 1 / sqrt(2 pi)
_SCALE = np.float32(0.7978845608028654)  # sqrt(2 / pi)
_CUBE = np.float32(0.044715)


@kernel
def _fwd(x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        out[i] = v * (erf(v * _SQRT_HALF) * np.float32(0.5) + np.float32(0.5))


@kernel
def _bwd(g, x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        # (x cdf)' = cdf + x pdf.
        cdf = erf(v * _SQRT_HALF) * np.float32(0.5) + np.float32(0.5)
        out[i] = g[i] * (cdf + v * _DENSITY * exp(v * v * np.float32(-0.5)))


@kernel
def _fwd_tanh(x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        u = _SCALE * (v + _CUBE * v * v * v)
        out[i] = v / (np.float32(1.0) + exp(np.float32(-2.0) * u))  # 0.5 * (1 + tanh u) = sigmoid(2u)


@kernel
def _bwd_tanh(g, x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        u = _SCALE * (v + _CUBE * v * v * v)
        s = np.float32(1.0) / (np.float32(1.0) + exp(np.float32(-2.0) * u))
        slope = np.float32(2.0) * _SCALE * (np.float32(1.0) + np.float32(3.0) * _CUBE * v * v)
        tail = s * (np.float32(1.0) - s)  # 0 for large numbers, where the slope can be infinite
        out[i] = g[i] * (s + (v * tail * slope if tail > np.float32(0.0) else np.float32(0.0)))


LEAST = 512  # for fewer elements, NumPy's calls cost less than the launch


def accepts(input, *, approximate="none"):
    """Accepts float32 only."""
    return is_float32(input)


def forward(xp, input, *, approximate="none"):
    """Returns input * P(Z <= input)."""
    return each(_fwd_tanh if approximate == "tanh" else _fwd, input)


def vjp(g, input, approximate):
    """Returns the gradient of the input."""
    return (each(_bwd_tanh if approximate == "tanh" else _bwd, g, input),)
