"""GELU; the kernel is activation.py's."""

from . import activation
from .common import is_float


def accepts(input, *, approximate="none"):
    """Floats."""
    return is_float(input)


def pays(input, *, approximate="none"):
    """Always: one launch where the reference takes five."""
    return True


def _kind(approximate):
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def forward(xp, input, *, approximate="none"):
    """input * P(Z <= input)."""
    return activation.apply(xp, input, _kind(approximate))


def vjp(g, input, approximate, xp):
    """The gradient of input."""
    return (activation.apply_backward(xp, g, input, _kind(approximate)),)
