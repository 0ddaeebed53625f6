"""Group norm of (N, C, …): channels in groups, each channel with its own weight; the kernels are norm.py's."""

import math

from . import norm
from .common import is_float

residuals = ("mean", "rstd")


def accepts(input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Floats; weight and bias may have another dtype than the input."""
    return is_float(input, weight, bias) and input.size > 0


def pays(input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Always."""
    return True


def forward(xp, input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    """Each group centred and scaled, then each channel; with mean and rstd kept."""
    inner = math.prod(input.shape[2:])
    width = input.shape[1] // num_groups * inner
    out, _, mean, rstd = norm.forward(
        xp, input, weight, bias, width=width, eps=eps, groups=num_groups, inner=inner, dtype=dtype
    )
    return out, mean, rstd


def vjp(g, input, weight, bias, mean, rstd, num_groups, needs, xp):
    """The gradients of input, weight and bias."""
    inner = math.prod(input.shape[2:])
    width = input.shape[1] // num_groups * inner
    dtype = None if bias is None else bias.dtype
    return norm.backward(
        xp, g, input, weight, mean, rstd, width=width, groups=num_groups, inner=inner, needs=needs, bias_dtype=dtype
    )
