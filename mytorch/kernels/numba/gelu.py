"""GELU, forward and backward, in one pass each: float32, any shape.

At infinities as the reference: `exp` is 0 and inf there. Forward keeps nothing but its input; backward evaluates the normal distribution again, which costs less
than reading it back from memory.
"""

import numpy as np

from .common import each, erf, exp, is_float32, kernel

_SQRT_HALF = np.float32(0.7071067811865476)
_DENSITY = np.float32(0.3989422804014327)
_SCALE = np.float32(0.7978845608028654)
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
        cdf = erf(v * _SQRT_HALF) * np.float32(0.5) + np.float32(0.5)
        out[i] = g[i] * (cdf + v * _DENSITY * exp(v * v * np.float32(-0.5)))


@kernel
def _fwd_tanh(x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        u = _SCALE * (v + _CUBE * v * v * v)
        out[i] = v / (np.float32(1.0) + exp(np.float32(-2.0) * u))  # 0.5 * (1 + tanh u) is a sigmoid of 2u


@kernel
def _bwd_tanh(g, x, out):
    n = x.size
    for i in range(n):
        v = x[i]
        u = _SCALE * (v + _CUBE * v * v * v)
        s = np.float32(1.0) / (np.float32(1.0) + exp(np.float32(-2.0) * u))
        slope = np.float32(2.0) * _SCALE * (np.float32(1.0) + np.float32(3.0) * _CUBE * v * v)
        out[i] = g[i] * (s + v * s * (np.float32(1.0) - s) * slope)


LEAST = 512  # below, NumPy's calls cost less than the launch


def accepts(input, *, approximate="none"):
    """float32 only."""
    return is_float32(input)


def forward(xp, input, *, approximate="none"):
    """input * P(Z <= input)."""
    return each(_fwd_tanh if approximate == "tanh" else _fwd, input)


def vjp(g, input, approximate):
    """The gradient of input."""
    return (each(_bwd_tanh if approximate == "tanh" else _bwd, g, input),)
