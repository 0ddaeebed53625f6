"""Gated activations: an activation of one half of a linear layer's output multiplies the other half."""

from ..arrays.errors import shapes
from .activation import _gelu, _gelu_grad, _relu, _silu, _silu_grad, gelu, relu, silu
from .dispatch.op import op

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
    """Computes gate(input) * other. Without `other`, the inputs are the halves of the last axis of `input`."""
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
            raise RuntimeError(
                f"{name}: expected a last axis of even size, which is split in two, got shape {tuple(input.shape)}."
            )
    elif tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"{name}: expected two tensors of one shape, got {shapes(input, other)}.")
    if input.device.type == "cpu":  # the activation may have a kernel
        a, b = _halves(input) if other is None else (input, other)
        return activation(a) * b
    return _gated(input, gate=gate, fused=fused) if other is None else _gated(input, other, gate=gate, fused=fused)


def swiglu(input, other=None, *, fused=None):
    """Multiplies the silu of a gate by a second tensor.

        result = silu(input) * other

    Without `other`, `input` is split along its last axis: the first half is the gate, (…, 2C) to (…, C).

    Args:
        input: gate, or both halves concatenated along the last axis.
        other: tensor of the shape of `input` (default: None, the second half of `input`).

    Raises:
        RuntimeError: the shapes differ, or the last axis has an odd size.

    Source: Shazeer, GLU Variants Improve Transformer, 2020.

    Example:
        >>> F.swiglu(tensor([0.0, 0.0]), tensor([1.0, 2.0])).tolist()
        [0.0, 0.0]
    """
    return _apply("swiglu", "silu", lambda x: silu(x, fused=fused), input, other, fused)


def geglu(input, other=None, approximate="none", *, fused=None):
    """Multiplies the gelu of a gate by a second tensor.

        result = gelu(input) * other

    Args:
        input: gate, or both halves concatenated along the last axis.
        other: tensor of the shape of `input` (default: None, the second half of `input`).
        approximate: "none" (default) or "tanh", as in `gelu`.

    Raises:
        RuntimeError: the shapes differ, the last axis has an odd size, or another approximation.

    Example:
        >>> F.geglu(tensor([1.0, 0.0]), tensor([2.0, 2.0]))
        tensor([1.68269 0.00000])

    See also: `nn.functional.swiglu`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    gate = "gelu_tanh" if approximate == "tanh" else "gelu"
    return _apply("geglu", gate, lambda x: gelu(x, approximate, fused=fused), input, other, fused)


def reglu(input, other=None, *, fused=None):
    """Multiplies the relu of a gate by a second tensor.

        result = relu(input) * other

    Args:
        input: gate, or both halves concatenated along the last axis.
        other: tensor of the shape of `input` (default: None, the second half of `input`).

    Raises:
        RuntimeError: the shapes differ, or the last axis has an odd size.

    Example:
        >>> F.reglu(tensor([1.0, -1.0]), tensor([2.0, 2.0])).tolist()
        [2.0, 0.0]

    See also: `nn.functional.swiglu`.
    """
    return _apply("reglu", "relu", lambda x: relu(x, fused=fused), input, other, fused)
