"""Inference tensors: tensors that `inference_mode` creates, compared with PyTorch."""

import copy
import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

SETUP = """
w, n = torch.ones(2, requires_grad=True), torch.tensor([3.0, 4.0])
i, k = torch.tensor([0, 1]), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
with torch.inference_mode():
    a, j, m, big = torch.ones(2), torch.tensor([0, 1]), torch.ones(2, 2), torch.ones(300, 300)
"""
INSIDE = """a * 2; n + 1; n[0]; n.view(2); n.view(2) + 1; torch.zeros(2); torch.tensor([1.0]); torch.randn(2); torch.arange(3); n.detach();
n.clone(); n.double(); n.contiguous(); k.t(); k @ k; k.sum(0); k.max(0)[0]; k.split(1)[0]; torch.cat([n, n]); torch.where(n > 3, n, n); n.relu();
F.linear(n, k); F.conv1d(k[None], k[None]); F.softmax(k, 0); F.layer_norm(k, (2,)); F.cross_entropy(k, i); torch.rand_like(n); n.half();
torch.from_numpy(np.ones(2)); torch.nn.Linear(2, 2).weight; n.unsqueeze(0); n.add_(1); n.mul_(2).view(1, 2); torch.add(n, n, out=torch.empty(2));
torch.einsum("ij,j->i", k, n); k.sort()[0]; k.unbind(0)[0]; n.expand(2, 2); n > 3; torch.linspace(0, 1, 3); torch.eye(2);
w * 2; w.detach(); (w * 2).sum(); torch.stack([n, n]); n.to(torch.int64); torch.full((2,), 3.0); F.dropout(n); torch.ones_like(n);
torch.empty_like(n).normal_(); k.cumsum(0); n.index_select(0, i); k.gather(0, i[None]); F.embedding(i, k); big.exp(); F.gelu(big)"""
OUTSIDE = """a + 1; a.view(2); a[0]; a.detach(); a.clone(); a.exp(); w + a; w - a; w.sum() + a; torch.cat([w, a]); n.add_(a); n.copy_(a);
w * a; w / a; a / w; F.linear(a, k.requires_grad_()); F.linear(m, k.requires_grad_()); k.requires_grad_() @ m; w.gather(0, j); w[j]; F.embedding(j, k.requires_grad_());
F.cross_entropy(k.requires_grad_(), j); torch.where(a > 0, w, w); w.masked_fill(a > 0, 1.0); w.lerp(a, 0.5); w.index_select(0, j); F.mse_loss(w, a);
a.add_(1); a.zero_(); a.copy_(n); a.normal_(); a.uniform_(); a.fill_(2.0); a[0] = 1; a.view(2).mul_(2); torch.add(n, n, out=a); a.exp_(); a.clamp_(0, 1);
a.requires_grad_(); a.requires_grad_(False); a.numpy(); a.tolist(); a._version; torch.nn.Parameter(a); a.unsqueeze(0).expand(2, 2); a.sum().item();
copy.deepcopy(a); pickle.loads(pickle.dumps(a)); big.gelu_() if hasattr(big, "gelu_") else 0; big.relu_(); torch.nn.BatchNorm1d(2)(m); a @ w;
torch.utils.checkpoint.checkpoint(lambda u, v: u * v, w, a, use_reentrant=False); torch.maximum(w, a); F.softplus(w) * a; w.addcmul(a, n); w.pow(a);
j.index_add_(0, i, i); a.scatter_(0, i, 1.0); a.index_fill_(0, i, 1.0); a.sort()[0]; big @ big; F.conv1d(m[None], k.requires_grad_()[None])"""


def run(lib, text, inside):
    """Runs a statement and returns (is_inference, requires_grad) of its result, or the error."""
    lib.manual_seed(0)
    scope = {"torch": lib, "F": lib.nn.functional, "np": np, "copy": copy, "pickle": pickle}
    exec(SETUP, scope)
    try:
        with lib.inference_mode(inside):
            if " = " in text:
                exec(text, scope)
                return "done"
            result = eval(text, scope)
    except RuntimeError as error:
        return str(error).split(".")[0]
    return (result.is_inference(), result.requires_grad) if isinstance(result, lib.Tensor) else type(result)


def statements(text):
    return [line.strip().replace("\n", " ") for line in text.split(";")]


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", statements(INSIDE))
def test_inside(text):
    assert run(mytorch, text, True) == run(torch, text, True)


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", statements(OUTSIDE))
def test_outside(text):
    assert run(mytorch, text, False) == run(torch, text, False)


@pytest.mark.parametrize("lib", [mytorch, torch])
def test_nested_modes(lib):
    w = lib.ones(2, requires_grad=True)
    with lib.inference_mode():
        with lib.enable_grad():
            assert not (w * 2).requires_grad
        with lib.inference_mode(False):
            assert (w * 2).requires_grad
            assert not (w * 2).is_inference()
        assert (w * 2).is_inference()
    assert not (w * 2).is_inference()


def test_an_op_recorded_with_an_inference_tensor_leaves_no_trace():
    """After the error, the other input is trained as before."""
    w = mytorch.ones(2, requires_grad=True)
    with mytorch.inference_mode():
        a = mytorch.ones(2)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        w * a
    (w * a.clone()).sum().backward()
    assert w.grad.tolist() == [1, 1]


def test_a_function_may_not_save_an_inference_tensor():
    class Times(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * y.clone()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    with mytorch.inference_mode():
        a = mytorch.ones(2)
        Times.apply(mytorch.ones(2), a)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        Times.apply(mytorch.ones(2, requires_grad=True), a)


def test_tensors_without_a_graph_can_be_detached_in_place():
    with mytorch.inference_mode():
        x = mytorch.ones(2)
    assert x.detach_() is x
    a, b = (mytorch.ones(2, requires_grad=True) for _ in range(2))
    for made in (mytorch.complex(a, b), mytorch.polar(a, b), a.take(mytorch.tensor([1, 0])), mytorch.kron(a, b)):
        assert not made.detach_().requires_grad
