"""`auto=True` composes an op of others, and `fused=True` is taken everywhere: equal results, equal gradients."""

import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.kernels import registry
from tests.loops import loop

F = nn.functional


def leaf(*shape):
    return mytorch.randn(*shape, requires_grad=True)


def labels(node, seen=None):
    """The names of the nodes that lead to one."""
    seen = set() if seen is None else seen
    if node is not None and node not in seen:
        seen.add(node)
        for parent, _ in node.next_functions:
            labels(parent, seen)
    return {n.label for n in seen}


def results(function, tensors, **options):
    for t in tensors:
        t.grad = None
    mytorch.manual_seed(3)  # for dropout
    out = function(**options)
    weights = mytorch.arange(float(out.numel())).reshape(out.shape)
    (out * weights).sum().backward() if out.ndim else out.backward()
    return out.grad_fn, [out.detach().numpy(), *(t.grad.numpy() for t in tensors if t.grad is not None)]


ACTIVATIONS = """
    celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 relu_squared selu sigmoid silu
    softplus softshrink tanh
""".split()
TARGETS = [1, 0, 2]
CASES = {
    **{name: lambda t, name=name, **k: getattr(F, name)(t[0], **k) for name in ACTIVATIONS},
    "softmax": lambda t, **k: F.softmax(t[0], 1, **k),
    "log_softmax": lambda t, **k: F.log_softmax(t[0], 1, **k),
    "linear": lambda t, **k: F.linear(t[0], t[1], t[2], **k),
    "layer_norm": lambda t, **k: F.layer_norm(t[0], (4,), t[3], t[4], **k),
    "rms_norm": lambda t, **k: F.rms_norm(t[0], (4,), t[3], **k),
    "batch_norm": lambda t, **k: F.batch_norm(t[5], None, None, t[3], t[4], training=True, **k),
    "group_norm": lambda t, **k: F.group_norm(t[5], 2, t[3], t[4], **k),
    "instance_norm": lambda t, **k: F.instance_norm(t[5], weight=t[3], bias=t[4], **k),
    "conv1d": lambda t, **k: F.conv1d(t[5][:, :, 0], t[6][:, :, 0], t[7], padding=1, **k),
    "conv2d": lambda t, **k: F.conv2d(t[5], t[6], t[7], stride=2, padding=1, **k),
    "conv_transpose2d": lambda t, **k: F.conv_transpose2d(t[5], t[8], stride=2, padding=1, **k),
    "max_pool2d": lambda t, **k: F.max_pool2d(t[5], 2, **k),
    "avg_pool2d": lambda t, **k: F.avg_pool2d(t[5], 3, 2, 1, **k),
    "attention": lambda t, **k: F.scaled_dot_product_attention(t[5], t[5], t[5], is_causal=True, **k),
    "embedding": lambda t, **k: F.embedding(mytorch.tensor(TARGETS), t[1], **k),
    "embedding_with_padding": lambda t, **k: F.embedding(mytorch.tensor(TARGETS), t[1], padding_idx=1, **k),
    "dropout": lambda t, **k: F.dropout(t[0], 0.5, **k),
    "cross_entropy": lambda t, **k: F.cross_entropy(t[0], mytorch.tensor(TARGETS), **k),
    "nll_loss": lambda t, **k: F.nll_loss(t[0], mytorch.tensor(TARGETS), **k),
    "mse_loss": lambda t, **k: F.mse_loss(t[0], t[0].detach() * 2, **k),
}
# Functions that consist of elementary ops, and functions that fill memory in place, run unchanged.
UNCHANGED = ["tanh", "max_pool2d", "embedding_with_padding"]


@pytest.fixture
def tensors():
    mytorch.manual_seed(0)
    shapes = (3, 4), (5, 4), (5,), (4,), (4,), (2, 4, 6, 6), (8, 4, 3, 3), (8,), (4, 2, 3, 3)
    return [leaf(*shape) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_auto_gives_equal_results(name, tensors):
    own, expected = results(CASES[name], tensors, t=tensors)
    auto, found = results(CASES[name], tensors, t=tensors, auto=True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert (labels(auto) == labels(own)) == (name in UNCHANGED)


LAYERS = {
    "ReLU GELU Sigmoid Tanh LeakyReLU SiLU ELU Softplus Hardswish Mish": ((), (3, 4)),
    "Softmax LogSoftmax": ((1,), (3, 4)),
    "Linear": ((4, 5), (3, 4)),
    "LayerNorm RMSNorm": ((4,), (3, 4)),
    "BatchNorm1d": ((4,), (3, 4)),
    "BatchNorm2d InstanceNorm2d": ((4,), (2, 4, 5, 5)),
    "GroupNorm": ((2, 4), (2, 4, 5, 5)),
    "Conv2d ConvTranspose2d": ((4, 2, 3), (2, 4, 5, 5)),
    "Conv1d ConvTranspose1d": ((4, 2, 3), (2, 4, 5)),
    "MaxPool2d AvgPool2d": ((2,), (2, 4, 6, 6)),
    "Dropout": ((0.5,), (3, 4)),
}


@loop
@pytest.mark.parametrize(("name", "args", "shape"), [(n, *v) for names, v in LAYERS.items() for n in names.split()])
def test_layers_take_auto(name, args, shape):
    layers = []
    for auto in (False, True):
        mytorch.manual_seed(1)
        layers.append(getattr(nn, name)(*args, auto=auto))
    mytorch.manual_seed(2)
    x = leaf(*shape)
    (_, a), (_, b) = (results(lambda layer=layer: layer(x), [x, *layer.parameters()]) for layer in layers)
    for own, composed in zip(a, b, strict=True):
        np.testing.assert_allclose(own, composed, rtol=1e-4, atol=1e-4)


def test_embedding_and_losses_take_auto():
    table = nn.Embedding(5, 3, auto=True)
    assert "IndexBackward" in labels(table(mytorch.tensor([1, 1])).grad_fn)
    x, target = leaf(3, 4), mytorch.tensor(TARGETS)
    own, composed = nn.CrossEntropyLoss()(x, target), nn.CrossEntropyLoss(auto=True)(x, target)
    assert own.item() == pytest.approx(composed.item(), rel=1e-6)
    assert nn.MSELoss(auto=True)(x, x.detach() + 1).item() == pytest.approx(1.0)


@loop
@pytest.mark.filterwarnings("ignore:fused=True")
@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "glu"])
def test_activations_take_fused(name):
    x = mytorch.randn(3, 4)
    out = getattr(F, name)(x, fused=True)
    np.testing.assert_allclose(out.numpy(), getattr(F, name)(x).numpy(), rtol=1e-5, atol=1e-6)


@loop
@pytest.mark.filterwarnings("ignore:fused=True")
@pytest.mark.parametrize("name", "Tanh LeakyReLU ELU Mish Softplus Hardswish Sigmoid SELU Hardtanh LogSigmoid".split())
def test_activation_layers_take_fused(name):
    x = mytorch.randn(3, 4)
    out = getattr(nn, name)(fused=True)(x)
    np.testing.assert_allclose(out.numpy(), getattr(nn, name)()(x).numpy(), rtol=1e-5, atol=1e-6)


def test_fused_without_a_kernel_warns_once():
    before = set(registry._warned)
    registry._warned.clear()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                nn.Tanh(fused=True)(mytorch.ones(2))
        assert [str(w.message) for w in seen] == [
            "fused=True: tanh uses the reference because there is no kernel for the CPU."
        ]
    finally:
        registry._warned.update(before)


@pytest.mark.parametrize(
    "call", [lambda x, a: F.sigmoid(x, auto=a), lambda x, a: x.exp(auto=a), lambda x, a: F.gelu(x, auto=a)]
)
def test_auto_must_be_a_bool(call):
    x = mytorch.ones(3)
    with pytest.raises(TypeError, match="auto must be True or False, got int"):
        call(x, 2)
    assert call(x, False).equal(call(x, True))


def test_fused_and_auto_are_no_positional_arguments():
    given = (mytorch.sigmoid, ()), (mytorch.Tensor.sigmoid, ()), (F.silu, (False,)), (F.gelu, ("none",))
    for call, before in given:
        with pytest.raises(TypeError, match="positional argument"):
            call(mytorch.ones(3), *before, True)
