"""A linear layer with its activation, in one of two ways, of which tuning takes the quicker: the product and bias by cuBLASLt
and a pass for the activation (the default), or all in the epilogue of matmul.py's product.

Kept for backward: what went into the activation.
"""

import math

import numpy as np

from ..launch import power_of_2, tuned
from ..linear import backward
from . import activation as pointwise
from .common import one_dtype
from .matmul import linear, linear_backward

residuals = ("inner",)
WAYS = {"none": [{"way": "two passes"}], "medium": [{"way": "epilogue"}]}


def accepts(input, weight, bias=None, *, activation):
    """Floats of one dtype."""
    return one_dtype(input, weight, bias) and input.size > 0 and weight.size > 0


def pays(input, weight, bias=None, *, activation):
    """Always: one pass for the activation, where the reference's takes several."""
    return True


def forward(xp, input, weight, bias=None, *, activation):
    """activation(input @ weightᵀ + bias), with the activation's input."""

    def attempt(candidate):
        if candidate["way"] == "epilogue":
            return linear(xp, input, weight, bias, activation, before=True)
        inner = xp.linear(input, weight, bias)
        return pointwise.apply(xp, inner, activation), inner

    if isinstance(input, np.ndarray):  # in Triton's interpreter
        return attempt(WAYS["medium"][0])
    key = ("linear_activation", input.dtype.name, power_of_2(math.prod(input.shape[:-1])), *weight.shape, activation)
    return attempt(tuned(forward, key, WAYS, attempt))


def vjp(g, input, weight, bias, inner, activation, needs, xp):
    """The gradients of input, weight and bias."""
    if isinstance(input, np.ndarray):
        return linear_backward(xp, g, input, weight, inner, activation, needs, None if bias is None else bias.dtype)
    return backward(xp, pointwise.apply_backward(xp, g, inner, activation), input, weight, needs)
