"""The sum of an input and a residual with its RMS norm, and both gradients in one pass; the kernels are norm.py's."""

from . import norm
from .add_layer_norm import backward
from .common import is_float, shaped

residuals = ("rstd",)


def accepts(input, residual, weight=None, *, width, eps, dtype=None):
    """Floats, which may be of several dtypes."""
    return is_float(input, residual, weight) and width > 0


def pays(input, residual, weight=None, *, width, eps, dtype=None):
    """Always: it saves a pass each way."""
    return True


def forward(xp, input, residual, weight=None, *, width, eps, dtype=None):
    """input + residual and its RMS norm, with rstd kept."""
    out, total, _, rstd = norm.forward(
        xp, input, weight, width=width, eps=eps, rms=True, residual=residual, dtype=dtype
    )
    return total, out, rstd


def vjp(g, total, weight, shapes, dtypes, rstd, width, needs, xp):
    """The gradients of input, residual and weight."""
    gx, gr, gw, _ = backward(xp, g, dtypes, total, weight, None, rstd, needs, width=width, rms=True)
    return gx, gr, shaped(gw, shapes, 2)
