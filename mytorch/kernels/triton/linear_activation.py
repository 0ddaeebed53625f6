"""A linear layer with bias and activation in the epilogue of its product; the kernel is matmul.py's.

Kept for backward: what went into the activation.
"""

from .common import one_dtype
from .matmul import linear, linear_backward

residuals = ("inner",)


def accepts(input, weight, bias=None, *, activation):
    """Floats of one dtype."""
    return one_dtype(input, weight, bias) and input.size > 0 and weight.size > 0


def pays(input, weight, bias=None, *, activation):
    """Not known to: cuBLAS and a pass for the activation may be as quick. `fused=True` asks for it."""
    return False


def forward(xp, input, weight, bias=None, *, activation):
    """activation(input @ weightᵀ + bias), with the activation's input."""
    return linear(xp, input, weight, bias, activation, before=True)


def vjp(g, input, weight, bias, inner, activation, needs, xp):
    """The gradients of input, weight and bias."""
    return linear_backward(xp, g, input, weight, inner, activation, needs, None if bias is None else bias.dtype)
