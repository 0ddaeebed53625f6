"""Norms with a residual, gated activations and masked softmax: properties that tests/samples/layers.py does not cover."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.ops.normalization import _add_layer_norm, _add_rms_norm

RNG = np.random.default_rng(0)


def numbers(*shapes):
    return [mytorch.tensor(RNG.standard_normal(shape)).requires_grad_() for shape in shapes]


RECORDS = {
    "layer norm": (
        lambda x, r, w, b: _add_layer_norm(x, r, w, b, width=6), lambda x, r, w, b: (x + r, F.layer_norm(x + r, (6,), w, b)), [(4, 6), (4, 6), (6,), (6,)],
    ),
    "rms norm": (
        lambda x, r, w: _add_rms_norm(x, r, w, width=6, eps=1e-5), lambda x, r, w: (x + r, F.rms_norm(x + r, (6,), w, 1e-5)), [(4, 6), (4, 6), (6,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("used", ["both", "sum", "norm"])
@pytest.mark.parametrize("name", RECORDS)
def test_the_op_equals_its_parts(name, used):
    """Also where one of the two results is not used, and its gradient never comes."""
    op, parts, shapes = RECORDS[name]
    inputs = numbers(*shapes)
    wanted = inputs if used != "sum" else inputs[:2]

    def loss(total, normed):
        return (total**3).sum() * (used != "norm") + (normed**3).sum() * (used != "sum")

    def alone(total, normed):
        return {
            "sum": lambda: (total**3).sum(),
            "norm": lambda: (normed**3).sum(),
            "both": lambda: loss(total, normed),
        }[used]()

    found = []
    for make in (op, parts):
        firsts = mytorch.autograd.grad(alone(*make(*inputs)), wanted, create_graph=True)
        seconds = mytorch.autograd.grad(sum((g.cos() * g).sum() for g in firsts), wanted, create_graph=True)
        thirds = mytorch.autograd.grad(sum((g * g).sum() for g in seconds), inputs[:2])
        found.append([*firsts, *seconds, *thirds])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-8)


def test_gradients_of_input_and_residual_are_separate_arrays():
    x, r = numbers((4, 6), (4, 6))
    total, normed = _add_layer_norm(x, r, width=6)
    (total.sum() + normed.square().sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), r.grad.numpy())
    before = r.grad.numpy().copy()
    x.grad.mul_(2.0)
    np.testing.assert_array_equal(r.grad.numpy(), before)


def test_the_sum_alone_is_kept():
    x, r = numbers((4, 6), (4, 6))
    _, normed = _add_layer_norm(x, r, width=6)
    x.detach().mul_(2.0)  # the summands are not used any more
    r.detach().mul_(2.0)
    normed.sum().backward()


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("make", [nn.LayerNorm, nn.RMSNorm])
def test_layers_take_a_residual(make, auto):
    layer, plain = make(6, auto=auto).double(), make(6).double()
    x, r = numbers((2, 3, 6), (2, 3, 6))
    total, normed = layer(x, r)
    np.testing.assert_array_equal(total.detach().numpy(), (x + r).detach().numpy())
    np.testing.assert_allclose(normed.detach().numpy(), plain(x + r).detach().numpy(), rtol=1e-6)
    assert layer(x, dtype=mytorch.float16).dtype is mytorch.float16
    assert layer(x, r, dtype=mytorch.float16)[1].dtype is mytorch.float16


def test_dtypes_of_sum_and_norm():
    half, single = mytorch.randn(2, 6).half(), mytorch.randn(2, 6)
    for op in (F.add_layer_norm, F.add_rms_norm):
        assert [t.dtype for t in op(half, single, (6,))] == [mytorch.float32] * 2
        assert [t.dtype for t in op(half, half, (6,))] == [mytorch.float16] * 2
        assert [t.dtype for t in op(half, half.bfloat16(), (6,), dtype="bfloat16")] == [
            mytorch.float32,
            mytorch.bfloat16,
        ]


def test_what_is_refused():
    x = mytorch.randn(2, 6)
    with pytest.raises(RuntimeError, match="expected input and residual of one shape, got"):
        F.add_layer_norm(x, x[:1], (6,))
    with pytest.raises(RuntimeError, match="add_rms_norm: given normalized_shape"):
        F.add_rms_norm(x, x, (5,))
    with pytest.raises(
        RuntimeError, match="swiglu: expected a last axis of even size, which is split in two, got shape"
    ):
        F.swiglu(x[:, :5])
    with pytest.raises(RuntimeError, match="geglu: expected two tensors of one shape"):
        F.geglu(x, x[:1])
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh, got 'erf'"):
        F.geglu(x, x, "erf")
    with pytest.raises(ValueError, match="expected dim=-1 and at least two axes with causal=True, got dim=0 of 2 axes"):
        F.masked_softmax(x, causal=True, dim=0)
    with pytest.raises(RuntimeError, match="expected a mask that broadcasts to the input's shape"):
        F.masked_softmax(x, mytorch.ones(3, 6) > 0)


def test_rows_in_which_nothing_counts_give_zeros():
    x = mytorch.randn(3, 4, requires_grad=True)
    mask = mytorch.ones(3, 4) > 0
    mask[1] = False
    out = F.masked_softmax(x, mask)
    assert (out[1] == 0).all()
    np.testing.assert_allclose(out.sum(-1).detach().numpy(), [1, 0, 1], rtol=1e-6)
    out.square().sum().backward()
    assert np.isfinite(x.grad.numpy()).all()
    np.testing.assert_array_equal(F.masked_softmax(mytorch.tensor(3.0)).numpy(), 1.0)


def test_gated_layers(torch):
    x = mytorch.randn(3, 8)
    a, b = x.chunk(2, -1)
    for layer, gate in (
        (nn.SwiGLU(), F.silu),
        (nn.GEGLU(), F.gelu),
        (nn.ReGLU(), F.relu),
        (nn.GEGLU("tanh"), lambda x: F.gelu(x, "tanh")),
    ):
        np.testing.assert_allclose(layer(x).numpy(), (gate(a) * b).numpy(), rtol=1e-6)
    assert repr(nn.GEGLU("tanh")) == "GEGLU(approximate='tanh')"
