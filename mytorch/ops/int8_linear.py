"""A linear layer whose weight is int8, with a scale for each output."""

from .core import op


@op(name="int8_linear", dtype="same")
def int8_linear(xp, input, *, weight, scale):
    """input @ (weight * scale)ᵀ: (…, in) to (…, out), for int8 weight (out, in) and float scale (out,)."""
    return xp.matmul(input, xp.swapaxes(xp.asarray(weight).astype(input.dtype), 0, 1)) * xp.asarray(scale)


int8_linear.grad(
    input=lambda g, weight, scale, xp: xp.matmul(g * xp.asarray(scale), xp.asarray(weight).astype(g.dtype))
)
int8_linear.fuse(cpu="mytorch.kernels.numba.int8_linear")
