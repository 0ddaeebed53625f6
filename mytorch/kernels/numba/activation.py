"""Activation functions with exponentials, forward and backward, in one pass each: float32, any shape."""

import numpy as np

from ...backend import numpy_ns
from ..kernel import Kernel
from ..threads import split
from .common import exp, flat, is_float32, kernel

_ONE = np.float32(1.0)


@kernel
def _silu(x, out):
    for i in range(x.size):
        out[i] = x[i] / (_ONE + exp(-x[i]))


@kernel
def _silu_bwd(g, x, out):
    for i in range(x.size):
        s = _ONE / (_ONE + exp(-x[i]))
        out[i] = g[i] * (s * (_ONE + x[i] * (_ONE - s)))


def _accepts(input):
    """float32 only."""
    return is_float32(input)


def _pays(input):
    """If no infinity or NaN is about: those take the reference."""
    return bool(np.isfinite(numpy_ns.sum(input)))


def _run(loop, *arrays):
    arrays, shape = [flat(a) for a in arrays], arrays[-1].shape
    out = np.empty_like(arrays[-1])
    split(loop, out.size, (*arrays, out))
    return out.reshape(shape)


silu = Kernel(
    LEAST=2048,
    accepts=_accepts,
    pays=_pays,
    forward=lambda xp, input: _run(_silu, input),
    vjp=lambda g, input: (_run(_silu_bwd, g, input),),
)
