"""Linear layers with an activation, for kernels that apply the activation to each tile of the matrix multiplication."""

from .activation import _gelu, _gelu_grad, _relu, _relu_squared, _silu, _silu_grad
from .dispatch.op import op
from .linalg import _linear

ACTIVATIONS = {  # name -> (op, its attributes, gradient of its input)
    "relu": (_relu, {}, lambda g, x, xp: xp.where(x > 0, g, 0.0)),
    "relu_squared": (_relu_squared, {}, lambda g, x, xp: xp.where(x > 0, g * x * 2.0, 0.0)),
    "silu": (_silu, {}, _silu_grad),
    "gelu": (_gelu, {"approximate": "none"}, lambda g, x, xp: _gelu_grad(g, x, "none", xp)),
}


@op(name="linear_activation", autocast="half")
def linear_activation(xp, input, weight, bias=None, *, activation):
    """Computes activation(input @ weightᵀ + bias)."""
    act, attributes, _ = ACTIVATIONS[activation]
    return xp.call(act, xp.call(_linear, input, weight, bias), **attributes)


def _vjp(g, input, weight, bias, shapes, activation, needs, xp):
    g = ACTIVATIONS[activation][2](g, xp.call(_linear, input, weight, bias), xp)
    rows = xp.reshape(g, (-1, g.shape[-1]))
    return (
        xp.reshape(xp.matmul(rows, weight), shapes[0]) if needs[0] else None,
        xp.matmul(xp.transpose(rows), xp.reshape(input, (-1, input.shape[-1]))) if needs[1] else None,
        xp.sum(rows, axis=0) if needs[2] else None,
    )


linear_activation.vjp(_vjp)
linear_activation.register_kernel(cuda="mytorch.kernels.triton.matmul:linear_activation")


@op(name="gelu_mlp", autocast="half")
def gelu_mlp(xp, input, weight1, weight2, bias1=None, bias2=None):
    """Computes two linear layers with a tanh-approximated GELU between them."""
    hidden = xp.call(_gelu, xp.call(_linear, input, weight1, bias1), approximate="tanh")
    return xp.call(_linear, hidden, weight2, bias2)


def _gelu_mlp_vjp(g, input, weight1, weight2, bias1, shapes, needs, xp):
    before = xp.call(_linear, input, weight1, bias1)
    g, before, rows = (xp.reshape(x, (-1, x.shape[-1])) for x in (g, before, input))
    gw2 = xp.matmul(xp.transpose(g), xp.call(_gelu, before, approximate="tanh")) if needs[2] else None
    gb2 = xp.sum(g, axis=0) if needs[4] else None
    g = _gelu_grad(xp.matmul(g, weight2), before, "tanh", xp)
    return (
        xp.reshape(xp.matmul(g, weight1), shapes[0]) if needs[0] else None,
        xp.matmul(xp.transpose(g), rows) if needs[1] else None,
        gw2,
        xp.sum(g, axis=0) if needs[3] else None,
        gb2,
    )


gelu_mlp.vjp(_gelu_mlp_vjp)
gelu_mlp.register_kernel(cuda="mytorch.kernels.triton.matmul:gelu_mlp")
