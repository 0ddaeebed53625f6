"""Softmax of scores with a mask, causality, or both; the kernels are softmax.py's."""

from .common import is_float
from .softmax import masked, run_backward


def accepts(input, mask=None, *, causal=False, dtype=None):
    """Floats, with a bool or float mask."""
    return (
        is_float(input) and input.ndim > 0 and input.size > 0 and (mask is None or mask.dtype == bool or is_float(mask))
    )


def pays(input, mask=None, *, causal=False, dtype=None):
    """Always: one launch where the reference takes eight."""
    return True


def forward(xp, input, mask=None, *, causal=False, dtype=None):
    """The softmax of what may be seen of each row."""
    return masked(xp, input, mask, causal, dtype=dtype)


def vjp(g, input, mask, out, needs, xp):
    """The gradients of input and of a mask that was added."""
    gx = run_backward(xp, g, out, False, out.ndim - 1, input.dtype)
    return gx, gx[...] if needs[1] else None
