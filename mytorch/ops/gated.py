"""Gated activations: one half of a linear layer's output decides how much of the other passes."""

from ..base.errors import shapes
from ..dispatch.op import op
from .activation import _gelu, _gelu_grad, _relu, _silu, _silu_grad, gelu, relu, silu

GATES = {  # name -> (op, its attributes, gradient of its input)
    "silu": (_silu, {}, _silu_grad),
    "gelu": (_gelu, {"approximate": "none"}, lambda g, x, xp: _gelu_grad(g, x, "none", xp)),
    "gelu_tanh": (_gelu, {"approximate": "tanh"}, lambda g, x, xp: _gelu_grad(g, x, "tanh", xp)),
    "relu": (_relu, {}, lambda g, x, xp: xp.where(x > 0, g, 0.0)),
}


def _halves(x):
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


@op(name="gated")
def _gated(xp, input, other=None, *, gate):
    """gate(input) * other, or of the halves of input's last axis if there is no other."""
    record, attributes, _ = GATES[gate]
    a, b = _halves(input) if other is None else (input, other)
    return xp.call(record, a, **attributes) * b


def _gated_vjp(g, input, other, gate, needs, xp):
    record, attributes, slope = GATES[gate]
    a, b = _halves(input) if other is None else (input, other)
    ga = slope(g * b, a, xp) if needs[0] else None
    gb = g * xp.call(record, a, **attributes) if other is None or needs[1] else None
    return (xp.concatenate([ga, gb], axis=-1), None) if other is None else (ga, gb)


_gated.vjp(_gated_vjp)
_gated.register_kernel(cuda="mytorch.kernels.triton.activation:glu")


def _apply(name, gate, activation, input, other, fused):
    if other is None:
        if input.ndim == 0 or input.shape[-1] % 2:
            raise RuntimeError(f"{name}: the last axis is cut in two and must be even, got shape {tuple(input.shape)}.")
    elif tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"{name}: expected two tensors of one shape, got {shapes(input, other)}.")
    if input.device.type == "cpu":  # where the activation may have a kernel of its own
        a, b = _halves(input) if other is None else (input, other)
        return activation(a) * b
    return _gated(input, gate=gate, fused=fused) if other is None else _gated(input, other, gate=gate, fused=fused)


def swiglu(input, other=None, *, fused=None):
    """silu(input) * other, elementwise; of the halves of input's last axis, (…, 2C) to (…, C), if there is no other.

    Args:
        input: the gate, or both halves.
        other: of input's shape.

    Raises:
        RuntimeError: shapes that differ, or an odd last axis.
    Source: Shazeer, GLU Variants Improve Transformer, 2020.
    """
    return _apply("swiglu", "silu", lambda x: silu(x, fused=fused), input, other, fused)


def geglu(input, other=None, approximate="none", *, fused=None):
    """gelu(input) * other, as swiglu; `approximate` as in gelu.

    Args:
        input: the gate, or both halves.
        other: of input's shape.
        approximate: "none" or "tanh".
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    gate = "gelu_tanh" if approximate == "tanh" else "gelu"
    return _apply("geglu", gate, lambda x: gelu(x, approximate, fused=fused), input, other, fused)


def reglu(input, other=None, *, fused=None):
    """relu(input) * other, as swiglu.

    Args:
        input: the gate, or both halves.
        other: of input's shape.
    """
    return _apply("reglu", "relu", lambda x: relu(x, fused=fused), input, other, fused)
