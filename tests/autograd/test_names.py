"""The printed names of nodes, and custom operations made with `grad_fn=`."""

import numpy as np
import pytest

import mytorch
from mytorch import Tensor
from tests.loops import loop

F = mytorch.nn.functional


def rand(*shape):
    return mytorch.rand(*shape, requires_grad=True)


x, s, im = rand(3, 4), rand(2, 4, 6), rand(2, 4, 6, 6)
MADE = {
    "Add": x + x, "Sub": x - x, "Mul": x * x, "Div": x / x, "Pow": x**2, "RPow": 2**x, "Matmul": x @ rand(4, 2), "Exp": x.exp(),
    "Log": x.log(), "Abs": x.abs(), "Clamp": x.clamp(0, 1), "Sqrt": x.sqrt(), "Sin": x.sin(), "Cos": x.cos(), "Tan": x.tan(),
    "Index": x[0], "Transpose": x.transpose(0, 1), "Permute": x.permute(1, 0), "Reshape": x.reshape(4, 3), "Flatten": x.flatten(),
    "Squeeze": rand(1, 3).squeeze(0), "Unsqueeze": x.unsqueeze(0), "Concat": mytorch.cat([x, x]), "Stack": mytorch.stack([x, x]),
    "Chunk": x.chunk(2)[1], "Split": x.split(2)[1], "Sum": x.sum(), "Cumsum": x.cumsum(0), "Mean": x.mean(), "Var": x.var(),
    "Max": x.max(), "Min": x.min(), "MaskedFill": x.masked_fill(x > 0.5, 0.0), "Sort": x.sort()[0], "Sigmoid": x.sigmoid(),
    "ReLU": F.relu(x), "GELU": F.gelu(x), "Softmax": x.softmax(1), "CrossEntropy": F.cross_entropy(x, mytorch.tensor([0, 1, 2])),
    "MSE": F.mse_loss(x, x.detach()), "LayerNorm": F.layer_norm(x, (4,)), "BatchNorm": F.batch_norm(im, None, None, training=True),
    "Linear": F.linear(x, rand(5, 4)), "Dropout": F.dropout(x), "SDPA": F.scaled_dot_product_attention(s, s, s),
    "Conv1d": F.conv1d(s, rand(3, 4, 2)), "Conv2d": F.conv2d(im, rand(3, 4, 2, 2)),
    "ConvTranspose1d": F.conv_transpose1d(s, rand(4, 3, 2)), "ConvTranspose2d": F.conv_transpose2d(im, rand(4, 3, 2, 2)),
    "MaxPool2d": F.max_pool2d(im, 2), "AveragePool2d": F.avg_pool2d(im, 2),
}  # fmt: skip


@loop
@pytest.mark.parametrize("name", MADE)
def test_grad_fn_is_named(name):
    assert f"grad_fn=<{name}Backward>" in repr(MADE[name])


def test_in_place_operators_are_named():
    a, b, c, d = (rand(2) * 1 for _ in range(4))
    a += 1
    b -= 1
    c *= 2
    d /= 2
    assert [t.grad_fn.label for t in (a, b, c, d)] == [f"I{word}Backward" for word in ("Add", "Sub", "Mul", "Div")]
    a.sum().backward()


def test_pytorchs_layout_has_pytorchs_names(torch):
    for mine, theirs in ((F.relu(x), "Relu"), (F.gelu(x), "Gelu"), (F.conv2d(im, rand(3, 4, 2, 2)), "Convolution")):
        assert mine.grad_fn.name() == f"{theirs}Backward0"
    y = torch.ones(2, requires_grad=True)
    assert torch.relu(y).grad_fn.name() == "ReluBackward0"


def test_a_renamed_node_has_its_gradient():
    y = rand(3)
    (2**y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), (2 ** y.detach() * np.log(2)).numpy(), rtol=1e-5)
    assert mytorch.autograd.gradcheck(
        lambda a: a.masked_fill(a > 0.5, 0.0).flatten(), mytorch.rand(3, 2, dtype=mytorch.float64, requires_grad=True)
    )


def sigmoid(x):
    """The custom operation of the texts."""
    out_data = 1 / (1 + np.exp(-x.data))

    def _sigmoid_backward(grad_output):
        grad_input = grad_output * out.data * (1 - out.data)
        if x.grad is None:
            x.grad = grad_input
        else:
            x.grad += grad_input

    requires_grad = x.requires_grad and Tensor.build_graph_enabled()
    out = Tensor(
        out_data,
        requires_grad=requires_grad,
        grad_fn=_sigmoid_backward if requires_grad else None,
        grad_fn_name="<SigmoidBackward>" if requires_grad else None,
    )
    if requires_grad:
        out._add_parents(x)
    return out


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_tensor_with_a_custom_grad_fn():
    grads = []
    for made in (sigmoid, lambda t: t.sigmoid()):
        a = mytorch.tensor([1.0, -2.0], requires_grad=True)
        out = made(a * 3)
        assert "grad_fn=<SigmoidBackward>" in repr(out)
        (out * out + a).sum().backward()  # the result is used twice, and so is the leaf
        grads.append(a.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-5)
    with mytorch.no_grad():
        assert sigmoid(a).grad_fn is None
    leaf = mytorch.tensor([0.0], requires_grad=True)
    for _ in range(2):
        sigmoid(leaf).sum().backward()
    assert leaf.grad.item() == pytest.approx(0.5)


def test_parents_need_a_grad_fn():
    with pytest.raises(RuntimeError, match="grad_fn"):
        mytorch.ones(1)._add_parents(mytorch.ones(1))
