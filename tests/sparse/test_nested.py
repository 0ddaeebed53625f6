"""Nested tensors, compared with PyTorch's jagged tensors and with dense items."""

import copy
import pickle

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.cpu_only,
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage"),
]
LENGTHS = [(2, 4, 1), (3, 3, 3), (5,), (1, 6)]


def items(seed, lengths, width=6):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, width)) for n in lengths]


FUNCTIONS = {
    "add": lambda lib, x, y: x + y,
    "arithmetic": lambda lib, x, y: (2 * x - y / 3) * x + 1,
    "reversed": lambda lib, x, y: 1 - x,
    "unary": lambda lib, x, y: lib.sin(x).exp() + lib.nn.functional.gelu(x) + lib.relu(x),
    "dense": lambda lib, x, y: x * lib.arange(6).double() + lib.ones(1, 1, 6).double(),
    "softmax": lambda lib, x, y: x.softmax(-1),
    "linear": lambda lib, x, y: lib.nn.functional.linear(
        x, lib.arange(12).double().reshape(2, 6) / 7, lib.ones(2).double()
    ),
    "matmul": lambda lib, x, y: x @ (lib.arange(12).double().reshape(6, 2) / 7),
    "layer_norm": lambda lib, x, y: lib.nn.functional.layer_norm(x, (6,)),
    "sum of the last dimension": lambda lib, x, y: (
        x.sum(-1) if lib is mytorch else lib.cat([t.sum(-1) for t in x.unbind()])
    ),
    "sum of all": lambda lib, x, y: x.sum(),
    "mean of all": lambda lib, x, y: x.mean(),
    "sum of the items": lambda lib, x, y: x.sum(1) if lib is mytorch else lib.stack([t.sum(0) for t in x.unbind()]),
    "padded": lambda lib, x, y: lib.nested.to_padded_tensor(x, -3.0),
    "padded to a size": lambda lib, x, y: lib.nested.to_padded_tensor(x, 0.5, (len(x), 9, 6)),
    "values": lambda lib, x, y: x.values(),
    "item": lambda lib, x, y: x[-1] if lib is mytorch else x[len(x) - 1],
    "unbind": lambda lib, x, y: x.unbind()[0] * 2,
    "chunk": lambda lib, x, y: x.chunk(3, -1)[1],
    "unflatten": lambda lib, x, y: x.unflatten(-1, (2, 3)),
    "transpose": lambda lib, x, y: x.transpose(1, 2) * 2,
    "attention": lambda lib, x, y: attention(lib, x, y, False),
    "causal attention": lambda lib, x, y: attention(lib, x, x, True),
}


def attention(lib, x, y, causal):
    if lib is torch:  # which has no attention of float64 for nested tensors on a CPU
        return torch.cat([attention(mytorch, *pair, causal) for pair in zip(x.unbind(), y.unbind(), strict=True)])
    q, k = (t.unflatten(-1, (2, 3)).transpose(-2, -3) for t in (x, y))
    run = (mytorch if isinstance(q, mytorch.Tensor) else torch).nn.functional.scaled_dot_product_attention
    return run(q, k, k, is_causal=causal).transpose(-2, -3).flatten(-2)


def packed(x):
    return x.values() if x.is_nested else x


def result_of(lib, function, lengths):
    leaves = [[lib.tensor(a, requires_grad=True) for a in items(seed, lengths)] for seed in (0, 1)]
    x, y = (lib.nested.as_nested_tensor(t, layout=lib.jagged) for t in leaves)
    if lib is torch:  # tensors of equal lengths have to share their offsets
        y = torch.nested.nested_tensor_from_jagged(torch.cat(leaves[1]), x.offsets())
    out = packed(function(lib, x, y))
    out.backward(lib.tensor(np.random.default_rng(2).standard_normal(tuple(out.shape))))
    grads = [None if t.grad is None else np.asarray(t.grad) for group in leaves for t in group]
    return np.asarray(out.detach()), grads


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_jagged_tensors(name):
    for lengths in LENGTHS:
        (ours, mine), (theirs, yours) = (result_of(lib, FUNCTIONS[name], lengths) for lib in (mytorch, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        for a, b in zip(mine, yours, strict=True):
            if a is None or b is None:
                assert a is None or not a.any()
                assert b is None or not b.any()
            else:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_transformer_block_trains_as_with_padding():
    """Attention over padded tensors with a mask has the same gradients."""
    nn = mytorch.nn
    mytorch.manual_seed(0)
    norm, project, out = nn.LayerNorm(6).double(), nn.Linear(6, 18).double(), nn.Linear(6, 6).double()
    parameters = [p for m in (norm, project, out) for p in m.parameters()]
    data, grads = items(0, (2, 4, 1)), []
    for nested in (True, False):
        for p in parameters:
            p.grad = None
        if nested:
            x = mytorch.nested.nested_tensor([mytorch.tensor(a) for a in data], layout=mytorch.jagged)
            q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in project(norm(x)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
            (x + out(y)).pow(2).sum().backward()
        else:
            padded = mytorch.zeros(3, 4, 6).double()
            real = mytorch.zeros(3, 4).bool()
            for i, a in enumerate(data):
                padded[i, : len(a)], real[i, : len(a)] = mytorch.tensor(a), True
            q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in project(norm(padded)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, real[:, None, None, :]).transpose(1, 2).flatten(-2)
            ((padded + out(y)).pow(2) * real.unsqueeze(-1)).sum().backward()
        grads.append([np.asarray(p.grad) for p in parameters])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_attributes_and_copies():
    x = mytorch.nested.nested_tensor(
        [mytorch.ones(2, 3), mytorch.ones(4, 3)], layout=mytorch.jagged, requires_grad=True
    )
    assert x.is_nested
    assert x.layout == mytorch.jagged
    assert x.dim() == 3
    assert len(x) == 2
    assert x.numel() == 18
    assert x.offsets().tolist() == [0, 2, 6]
    assert x.lengths() is None
    assert repr(x.shape).endswith("3])")
    assert isinstance(x, mytorch.Tensor)
    assert x.requires_grad
    assert x.is_leaf
    assert not mytorch.ones(2).is_nested
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.offsets().tolist() == [0, 2, 6]
        assert other.requires_grad
        assert type(other) is type(x)
    (x * 3).sum().backward()
    assert x.grad.is_nested
    assert x.grad.values().tolist() == mytorch.full((6, 3), 3.0).tolist()
    assert x.double().dtype is mytorch.float64
    assert x.detach().is_nested
    columns = mytorch.nested.nested_tensor([mytorch.ones(3, 2), mytorch.ones(3, 5)])
    assert columns.to_padded_tensor(0.0).shape == (2, 3, 5)
    assert "nested_tensor([" in repr(columns)
    empty = mytorch.nested.nested_tensor([mytorch.ones(0, 3), mytorch.ones(2, 3)])
    assert empty.to_padded_tensor(1.0).tolist() == [[[1.0] * 3] * 2] * 2
    lengths = mytorch.nested.nested_tensor_from_jagged(mytorch.ones(6, 3), lengths=mytorch.tensor([2, 4]))
    assert lengths.offsets().tolist() == [0, 2, 6]


def test_errors():
    nested, ones = mytorch.nested, mytorch.ones
    x, y = nested.nested_tensor([ones(2, 3), ones(4, 3)]), nested.nested_tensor([ones(3, 3), ones(3, 3)])
    for call, text in (
        (lambda: x + y, "equal lengths"),
        (lambda: x + ones(2, 4, 3), "dimension of different lengths"),
        (lambda: x.cumsum(1), "nested tensor"),
        (lambda: nested.nested_tensor([ones(2, 3), ones(4, 5)]), "one dimension"),
        (lambda: nested.nested_tensor([]), "at least one"),
        (lambda: nested.nested_tensor([ones(2), ones(2, 3)]), "equal number of dimensions"),
        (lambda: nested.nested_tensor_from_jagged(ones(6, 3), mytorch.tensor([0, 2, 5])), "end at 6"),
        (lambda: nested.nested_tensor_from_jagged(ones(6, 3), mytorch.tensor([0, 7, 6])), "rise"),
        (lambda: nested.nested_tensor_from_jagged(ones(6, 3)), "required"),
        (lambda: nested.to_padded_tensor(x, 0.0, (2, 1, 3)), "at least"),
        (lambda: nested.to_padded_tensor(ones(2), 0.0), "nested tensor"),
        (lambda: x.softmax(1), "other than 0"),
        (lambda: mytorch.nn.functional.scaled_dot_product_attention(x, x, x), "sizes"),
    ):
        with pytest.raises((RuntimeError, NotImplementedError), match=text):
            call()
