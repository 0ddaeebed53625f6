"""Functions with exponentials (sigmoid, SiLU, ELU, softplus, logaddexp), forward and backward, one pass each: float32, any shape."""

import numpy as np

from ..kernel import Kernel
from .common import each, exp, expm1_of_negative, is_float32, log1p_of_exp, with_nan

_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


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


@with_nan
def _elu(x, out, low, scale, rate):
    for i in range(x.size):
        v = x[i]
        y = v * scale if v > _ZERO else low * expm1_of_negative(v * rate)
        out[i] = v if v != v else y


@with_nan
def _elu_bwd(g, x, out, low, scale, rate):
    for i in range(x.size):
        v = x[i]
        slope = scale if v > _ZERO else low * rate * exp(v * rate)
        out[i] = v if v != v else g[i] * slope


@with_nan
def _softplus(x, out, beta, limit):
    for i in range(x.size):
        v = x[i]
        z = v * beta
        y = ((z if z > _ZERO else _ZERO) + log1p_of_exp(-abs(z))) / beta
        out[i] = v if z > limit or v != v else y


@with_nan
def _softplus_bwd(g, x, out, beta, limit):
    for i in range(x.size):
        v = x[i]
        z = v * beta
        slope = _ONE if z > limit else _ONE / (_ONE + exp(-z))
        out[i] = v if v != v else g[i] * slope


@with_nan
def _logsigmoid(x, out):
    for i in range(x.size):
        v = x[i]
        y = (v if v < _ZERO else _ZERO) - log1p_of_exp(-abs(v))
        out[i] = v if v != v else y


@with_nan
def _logsigmoid_bwd(g, x, out):
    for i in range(x.size):
        v = x[i]
        out[i] = v if v != v else g[i] / (_ONE + exp(v))


@with_nan
def _logaddexp(x, y, out):
    for i in range(x.size):
        a, b = x[i], y[i]
        # Equal infinities have a difference of NaN, and NaN stays NaN in the sum.
        distance = _ZERO if a == b else abs(a - b)
        high = a if a > b else b
        out[i] = a + b if a != a or b != b else high + log1p_of_exp(-distance)


def _accepts(input, **options):
    """Accepts float32 only."""
    return is_float32(input)


def _accepts_elu(input, *, alpha, scale=1.0, rate=1.0):
    return is_float32(input) and rate >= 0.0  # a negative rate has no exponential of negative numbers


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
elu = Kernel(
    LEAST=4096,
    accepts=_accepts_elu,
    forward=lambda xp, input, *, alpha, scale=1.0, rate=1.0: each(_elu, input, constants=(alpha * scale, scale, rate)),
    vjp=lambda g, input, alpha, scale, rate: (each(_elu_bwd, g, input, constants=(alpha * scale, scale, rate)),),
)
softplus = Kernel(
    LEAST=4096,
    accepts=_accepts,
    forward=lambda xp, input, *, beta, limit: each(_softplus, input, constants=(beta, limit)),
    vjp=lambda g, input, beta, limit: (each(_softplus_bwd, g, input, constants=(beta, limit)),),
)
logsigmoid = Kernel(
    LEAST=4096,
    accepts=_accepts,
    forward=lambda xp, input: each(_logsigmoid, input),
    vjp=lambda g, input: (each(_logsigmoid_bwd, g, input),),
)
logaddexp = Kernel(
    LEAST=2048,
    accepts=lambda input, other: is_float32(input, other) and input.shape == other.shape,
    forward=lambda xp, input, other: each(_logaddexp, input, other),
)
