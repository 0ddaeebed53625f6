"""Rotary position embedding."""

from .dispatch.op import op


def _turned(xp, x):
    """Returns (-second half, first half) of the last axis."""
    half = x.shape[-1] // 2
    return xp.concatenate([-x[..., half:], x[..., :half]], axis=-1)


@op(name="rotary", dtype="same")
def rotary(xp, input, *, cos, sin):
    """Computes input * cos + turned(input) * sin, for tables that broadcast to input (…, T, D)."""
    return input * xp.asarray(cos) + _turned(xp, input) * xp.asarray(sin)


rotary.grad(input=lambda g, cos, sin, xp: g * xp.asarray(cos) - _turned(xp, g * xp.asarray(sin)))
rotary.register_kernel(cuda="mytorch.kernels.triton.rotary")
