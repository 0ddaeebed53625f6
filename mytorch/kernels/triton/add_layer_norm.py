"""The sum of an input and a residual with its layer norm, and both gradients in one pass; the kernels are norm.py's."""

from . import norm
from .common import is_float, shaped

residuals = ("mean", "rstd")


def accepts(input, residual, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    """Floats, which may be of several dtypes."""
    return is_float(input, residual, weight, bias) and width > 0


def pays(input, residual, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    """Always: it saves a pass each way."""
    return True


def forward(xp, input, residual, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    """input + residual and its layer norm, with mean and rstd kept."""
    out, total, mean, rstd = norm.forward(xp, input, weight, bias, width=width, eps=eps, residual=residual, dtype=dtype)
    return total, out, mean, rstd


def vjp(g, total, weight, bias, shapes, dtypes, mean, rstd, width, needs, xp):
    """The gradients of input, residual, weight and bias."""
    gx, gr, gw, gb = backward(xp, g, dtypes, total, weight, mean, rstd, needs, width=width, bias=bias)
    return gx, gr, shaped(gw, shapes, 2), shaped(gb, shapes, 3)


def backward(xp, g, dtypes, total, weight, mean, rstd, needs, *, width, rms=False, bias=None):
    """The gradients of input, residual, weight and bias from g, those of the sum and of its norm, either of which may be None."""
    g_total, g_out = g
    if g_out is None:
        return g_total[...], g_total[...], None, None
    also = None
    for dtype, wanted in zip(dtypes[:2], needs[:2], strict=True):
        if wanted and dtype != total.dtype:
            also = xp.empty(total.shape, dtype)
    gx, gw, gb = norm.backward(
        xp, g_out, total, weight, mean, rstd, width=width, rms=rms, more=g_total, also=also, needs=(True, *needs[2:], False)[:3],
        bias_dtype=None if bias is None else bias.dtype,
    )  # fmt: skip
    each = [also if also is not None and dtype == also.dtype else gx for dtype in dtypes[:2]]
    return *each, gw, gb
