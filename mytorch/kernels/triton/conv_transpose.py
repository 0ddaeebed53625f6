"""Transposed convolution in one and two dimensions: the gradient of a convolution's input, as a forward; the kernels are conv.py's."""

from .common import one_dtype
from .conv import bias_gradient, run_forward, run_input, run_weight


def accepts(g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """Floats of one dtype, in one or two dimensions."""
    return one_dtype(g, weight) and (bias is None or one_dtype(bias)) and g.ndim in (3, 4) and g.size > 0


def pays(g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """Except for 1 × 1 windows, which are a plain product."""
    return any(k != 1 for k in weight.shape[2:]) or any(s != 1 for s in stride) or any(padding) or groups != 1


def forward(xp, g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """(N, C, *out) spread by (C, O / groups, *kernel) to (N, O, *shape)."""
    return run_input(xp, g, weight, tuple(shape), stride, padding, dilation, groups, bias)


def vjp(up, g, weight, bias, shapes, stride, padding, dilation, groups, needs, xp):
    """The gradients of g, weight and bias."""
    geometry = (stride, padding, dilation, groups)
    return (
        run_forward(xp, up, weight, None, *geometry, size=shapes[0][2:]) if needs[0] else None,
        run_weight(xp, g, up, tuple(shapes[1][2:]), *geometry) if needs[1] else None,
        bias_gradient(xp, up, bias.dtype) if needs[2] else None,
    )
