"""RMS norm; the kernels are norm.py's."""

from . import norm
from .common import is_float, shaped

residuals = ("rstd",)


def accepts(input, weight=None, *, width, eps, dtype=None):
    """Floats; weight may have another dtype than the input."""
    return is_float(input, weight) and width > 0


def pays(input, weight=None, *, width, eps, dtype=None):
    """Always: one launch where the reference takes six."""
    return True


def forward(xp, input, weight=None, *, width, eps, dtype=None):
    """x * rstd * weight, with rstd kept."""
    out, _, _, rstd = norm.forward(xp, input, weight, width=width, eps=eps, rms=True, dtype=dtype)
    return out, rstd


def vjp(g, input, weight, shapes, rstd, width, needs, xp):
    """The gradients of input and weight."""
    gx, gw, _ = norm.backward(
        xp, g, input, weight, None, rstd, width=width, rms=True, needs=(needs[0], needs[1], False)
    )
    return gx, shaped(gw, shapes, 1)
