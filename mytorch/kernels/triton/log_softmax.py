"""Log-softmax; the kernels are softmax.py's."""

from .softmax import accepts, pays, run_backward, run_forward

__all__ = ["accepts", "forward", "pays", "vjp"]


def forward(xp, input, *, dim, dtype=None):
    """x - max - log(sum(exp(x - max))), row by row."""
    return run_forward(xp, input, True, dim, dtype)


def vjp(g, input, out, dim, xp):
    """The gradient of input."""
    return (run_backward(xp, g, out, True, dim, input.dtype),)
