"""Module: registration, state dicts, hooks, moving and printing, compared with PyTorch."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn.layer import Layer
from mytorch.ops import functional
from tests.loops import loop


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.GELU()])
        self.scale = nn.Parameter(mytorch.ones(4))
        self.register_buffer("seen", mytorch.zeros(()))
        self.register_buffer("cache", mytorch.zeros(2), persistent=False)

    def forward(self, x):
        x = self.norm(self.fc(x))
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


def test_names_and_state_dict_keys():
    block = Block()
    assert [n for n, _ in block.named_parameters()] == [
        "scale", "fc.weight", "fc.bias", "norm.weight", "norm.bias",
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
    ]  # fmt: skip
    assert "seen" in block.state_dict()
    assert "cache" not in block.state_dict()
    assert dict(block.named_buffers()).keys() == {"seen", "cache"}
    assert [n for n, _ in block.named_children()] == ["fc", "norm", "layers"]
    assert [n for n, _ in block.named_modules()][:3] == ["", "fc", "norm"]


def test_equal_seeds_give_pytorchs_weights(torch):
    mytorch.manual_seed(5)
    torch.manual_seed(5)
    for mine, theirs in (
        (nn.Linear(7, 5), torch.nn.Linear(7, 5)),
        (nn.Embedding(9, 4), torch.nn.Embedding(9, 4)),
        (nn.Bilinear(3, 4, 2), torch.nn.Bilinear(3, 4, 2)),
    ):
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.numpy(force=True), q.detach().numpy(), atol=1e-6)


def test_repr_is_pytorchs(torch):
    def build(n):
        return n.Sequential(
            n.Linear(2, 3),
            n.ReLU(),
            n.ModuleList([n.Linear(3, 3), n.Linear(3, 3), n.GELU()]),
            n.Flatten(),
            n.Embedding(4, 5, padding_idx=1),
        )

    assert repr(build(nn)) == repr(build(torch.nn))
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1)"


def test_load_state_dict_lists_everything_that_is_wrong():
    block = Block()
    state = block.state_dict()
    del state["scale"]
    state["extra"] = mytorch.zeros(1)
    state["fc.weight"] = mytorch.zeros(2, 2)
    with pytest.raises(RuntimeError) as error:
        block.load_state_dict(state)
    text = str(error.value)
    assert 'Missing key(s) in state_dict: "scale"' in text
    assert 'Unexpected key(s) in state_dict: "extra"' in text
    assert "size mismatch for fc.weight: copying a param with shape mytorch.Size([2, 2])" in text
    state.pop("fc.weight")
    result = block.load_state_dict(state, strict=False)
    assert result.unexpected_keys == ["extra"]
    assert set(result.missing_keys) == {"scale", "fc.weight"}


@pytest.mark.parametrize("frozen", [False, True])
def test_assigned_parameters_require_gradients_as_those_that_they_replace(frozen):
    layer = nn.Linear(2, 2).requires_grad_(not frozen)
    state = {"weight": nn.Parameter(mytorch.ones(2, 2), requires_grad=frozen), "bias": mytorch.ones(2)}
    layer.load_state_dict(state, assign=True)
    assert [p.requires_grad for p in layer.parameters()] == [not frozen] * 2


@pytest.mark.parametrize("assign", [False, True])
def test_a_tensor_with_one_element_is_loaded_as_a_number(assign):
    norm = nn.BatchNorm1d(2)
    norm.load_state_dict({**norm.state_dict(), "num_batches_tracked": mytorch.tensor([7])}, assign=assign)
    assert norm.num_batches_tracked.shape == ()
    assert norm.num_batches_tracked.item() == 7


def test_errors_of_single_tensors_are_listed():
    state = {"weight": mytorch.ones(2, 2, dtype=mytorch.int64), "bias": mytorch.ones(3)}
    with pytest.raises(RuntimeError, match='named "weight"(.|\n)*an exception occurred(.|\n)*size mismatch for bias'):
        nn.Linear(2, 2).load_state_dict(state, assign=True)


def test_state_dict_round_trip_and_exchange_with_torch(torch):
    mine = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    mine.init_from_torch(theirs)
    x = np.random.randn(5, 3).astype(np.float32)
    np.testing.assert_allclose(
        mine(mytorch.tensor(x)).numpy(force=True), theirs(torch.tensor(x)).detach().numpy(), atol=1e-5
    )
    other = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    assert repr(other.load_state_dict(mine.state_dict())) == "<All keys matched successfully>"
    for p, q in zip(mine.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.numpy(force=True), q.numpy(force=True))


def test_state_dict_shares_memory():
    layer = nn.Linear(2, 2)
    layer.state_dict()["weight"].zero_()
    assert layer.weight.abs().sum().item() == 0


def test_tied_weights_come_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    tied = Tied()
    assert len(list(tied.parameters())) == 1
    assert len(tied.state_dict()) == 2
    tied.double()
    assert tied.a.weight is tied.b.weight
    assert copy.deepcopy(tied).a.weight.dtype is mytorch.float64


def test_to_keeps_identity_and_integers():
    block = Block()
    block.register_buffer("count", mytorch.zeros(1, dtype=mytorch.int64))
    weight = block.fc.weight
    block.to(mytorch.float64)
    assert block.fc.weight is weight
    assert weight.dtype is mytorch.float64
    assert block.count.dtype is mytorch.int64
    block(mytorch.randn(2, 3, dtype=mytorch.float64)).sum().backward()
    assert weight.grad.dtype is mytorch.float64
    with pytest.raises(TypeError, match="only accepts floating point"):
        block.to(mytorch.int64)


def test_train_eval_apply_requires_grad_zero_grad():
    block = Block()
    assert block.eval().fc.training is False
    assert block.train().layers[0].training is True
    seen = []
    block.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Block"
    block(mytorch.randn(2, 3)).sum().backward()
    block.zero_grad()
    assert block.fc.weight.grad is None
    block.requires_grad_(False)
    assert not any(p.requires_grad for p in block.parameters())


def test_hooks_in_order():
    layer = nn.Linear(2, 2)
    calls = []
    handles = [
        layer.register_forward_pre_hook(lambda m, a: calls.append("pre") or (a[0] * 0,)),
        layer.register_forward_hook(lambda m, a, o: calls.append("post") or o + 1),
        layer.register_full_backward_hook(lambda m, gi, go: calls.append("backward") or (gi[0] * 10,)),
    ]
    x = mytorch.ones(1, 2, requires_grad=True)
    out = layer(x)
    np.testing.assert_allclose(out.numpy(force=True), layer.bias.numpy(force=True)[None] + 1, atol=1e-6)
    out.sum().backward()
    assert calls == ["pre", "post", "backward"]
    for handle in handles:
        handle.remove()
    layer(x)
    assert len(calls) == 3


def test_hook_with_kwargs():
    class Add(nn.Module):
        def forward(self, x, *, y):
            return x + y

    add = Add()
    add.register_forward_pre_hook(lambda m, a, k: (a, {"y": k["y"] * 2}), with_kwargs=True)
    assert add(mytorch.ones(1), y=mytorch.ones(1)).item() == 3


def test_attribute_errors():
    with pytest.raises(AttributeError, match="'Block' object has no attribute 'missing'"):
        Block().missing  # noqa: B018

    class Early(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(mytorch.ones(1))

    with pytest.raises(AttributeError, match="cannot assign parameters before Module.__init__"):
        Early()
    with pytest.raises(TypeError, match="cannot assign 'int' as parameter 'scale'"):
        Block().scale = 3
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_containers():
    seq = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert seq.a is seq[0]
    assert len(seq[:1]) == 1
    seq.append(nn.Linear(3, 1))
    assert seq(mytorch.randn(4, 2)).shape == (4, 1)
    d = nn.ModuleDict({"x": nn.Linear(1, 1)})
    d["y"] = nn.ReLU()
    assert list(d) == ["x", "y"]
    params = nn.ParameterList([mytorch.ones(2), mytorch.zeros(3)])
    assert len(list(params.parameters())) == 2
    assert isinstance(params[0], nn.Parameter)
    named = nn.ParameterDict({"w": mytorch.ones(2)})
    assert "w" in named
    assert next(named.named_parameters())[0] == "w"


def test_pickle_and_deepcopy():
    block = Block()
    twin = pickle.loads(pickle.dumps(block))
    x = mytorch.randn(2, 3)
    np.testing.assert_array_equal(block(x).numpy(force=True), twin(x).numpy(force=True))
    clone = copy.deepcopy(block)
    clone.fc.weight.data.zero_()
    assert block.fc.weight.abs().sum().item() > 0


def test_auto_equals_the_written_backward():
    x = mytorch.randn(3, 6)
    for make in (
        lambda **k: nn.LayerNorm(6, **k),
        lambda **k: nn.Linear(6, 4, **k),
        lambda **k: nn.Softmax(dim=-1, **k),
        lambda **k: nn.Sigmoid(**k),
        lambda **k: nn.ReLU(**k),
        lambda **k: nn.RMSNorm(6, **k),
    ):
        a, b = make(), make(auto=True)
        b.load_state_dict(a.state_dict())
        grads = []
        for layer in (a, b):
            y = x.clone().requires_grad_()
            layer(y).square().sum().backward()
            grads.append(np.asarray(y.grad))
        np.testing.assert_allclose(*grads, atol=1e-4)


def test_clip_grad_norm(torch):
    shapes = [(3, 4), (5,), (2, 2, 2)]
    for norm_type in (2.0, 1.0, float("inf")):
        grads = [np.random.randn(*s).astype(np.float32) for s in shapes]
        mine = [nn.Parameter(mytorch.zeros(*s)) for s in shapes]
        theirs = [torch.nn.Parameter(torch.zeros(*s)) for s in shapes]
        for p, q, g in zip(mine, theirs, grads, strict=True):
            p.grad, q.grad = mytorch.tensor(g), torch.tensor(g)
        a = nn.utils.clip_grad_norm_(mine, 0.5, norm_type)
        b = torch.nn.utils.clip_grad_norm_(theirs, 0.5, norm_type)
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-5)
        for p, q in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(p.grad), q.grad.numpy(), rtol=1e-5)
    mine[0].grad.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)


def test_init_draws_as_torch(torch):
    for name, kwargs in (
        ("xavier_uniform_", {}), ("xavier_normal_", {"gain": 2.0}), ("kaiming_uniform_", {"a": 1}), ("orthogonal_", {}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}), ("normal_", {"std": 0.1}), ("uniform_", {"a": -1, "b": 2}),
        ("ones_", {}), ("eye_", {}), ("constant_", {"val": 3.0}),
    ):  # fmt: skip
        mytorch.manual_seed(1)
        torch.manual_seed(1)
        a = getattr(nn.init, name)(mytorch.empty(6, 5), **kwargs)
        b = getattr(torch.nn.init, name)(torch.empty(6, 5), **kwargs)
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-6, err_msg=name)


def test_dropout():
    drop = nn.Dropout(dropout_p=0.25)
    x = mytorch.ones(10_000)
    y = drop(x)
    assert set(np.unique(y.numpy())) <= {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).float().mean().item() - 0.25) < 0.03
    assert drop.eval()(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


@pytest.mark.cpu_only
def test_fused_true_equals_fused_false():
    pytest.importorskip("numba", reason="there is no kernel without it")
    x = mytorch.randn(64, 96)
    for make in (lambda f: nn.LayerNorm(96, fused=f), lambda f: nn.GELU(fused=f), lambda f: nn.Softmax(-1, fused=f)):
        outs = []
        for fused in (True, False):
            y = x.clone().requires_grad_()
            out = make(fused)(y)
            (out * x).sum().backward()
            outs.append((out.numpy(force=True), np.asarray(y.grad)))
        for a, b in zip(*outs, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


@loop
@pytest.mark.cpu_only
@pytest.mark.parametrize("shape", [(512,), (1, 512), (1, 1, 512), (1, 48), (3, 80), (2, 4, 512)])
def test_a_linear_layer_of_few_rows_is_the_product(rng, shape):
    pytest.importorskip("numba")
    layer = nn.Linear(shape[-1], 517, bias=len(shape) != 2)
    x = rng.standard_normal((*shape[:-1], 2 * shape[-1])).astype("float32")[..., ::2]  # not contiguous
    g, found = mytorch.from_numpy(rng.standard_normal((*shape[:-1], 517)).astype("float32")), []
    for fused in (None, False):
        given = mytorch.from_numpy(x).requires_grad_()
        layer.zero_grad()
        with mytorch.fused(fused):
            out = layer(given)
            out.backward(g)
        found.append([out.detach(), given.grad, layer.weight.grad.clone()])
    bias = 0 if layer.bias is None else layer.bias.detach().numpy().astype("float64")
    truth = x.astype("float64") @ layer.weight.detach().numpy().T.astype("float64") + bias
    np.testing.assert_allclose(found[0][0].numpy(), truth, rtol=1e-5, atol=1e-5)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


@pytest.mark.cpu_only
def test_fused_true_without_a_kernel_warns_once_with_the_reason():
    x = mytorch.randn(8, 8, dtype=mytorch.float64)
    mytorch.kernels.registry._warned.clear()
    with pytest.warns(
        UserWarning, match="fused=True: layer_norm uses the reference because float64 is not supported on CPU"
    ):
        nn.LayerNorm(8, fused=True).double()(x)
    nn.LayerNorm(8, fused=True).double()(x)  # warnings are errors here: the second time is silent


def test_functional_call_adds_and_removes_tensors_that_the_module_lacks(torch):
    for L in (mytorch, torch):
        layer = L.nn.Linear(2, 2)
        for extra in (L.ones(1), L.nn.Parameter(L.ones(1))):
            given = {"weight": L.ones(2, 2), "extra": extra}
            L.func.functional_call(layer, given, L.ones(1, 2))
            assert not hasattr(layer, "extra")
            assert len(list(layer.parameters())) == 2
        with pytest.raises(RuntimeError, match="Unexpected key"):
            L.func.functional_call(layer, given, L.ones(1, 2), strict=True)


def test_hooks_after_accumulation_return_nothing(torch):
    for L in (mytorch, torch):
        x = L.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda t: t.grad)
        with pytest.raises(RuntimeError, match=r"hooks should return None"):
            x.sum().backward()
        y = L.ones(2, requires_grad=True)
        handle = y.register_post_accumulate_grad_hook(lambda t: t.add_(t.grad))  # the tensor itself is accepted
        y.sum().backward()
        assert y.tolist() == [2, 2]
        handle.remove()
        y.register_post_accumulate_grad_hook(lambda t: 1)
        with pytest.raises(TypeError, match=r"expected Variable, but hook returned 'int'"):
            y.sum().backward()


def test_registered_hooks_and_handles_are_listed():
    layer = mytorch.nn.Linear(1, 1)
    handle = layer.register_forward_hook(lambda *args: None, always_call=True)
    assert list(layer._forward_hooks_always_called) == [handle.id]
    assert handle.hooks_dict_ref() is layer._forward_hooks
    assert mytorch.nn.functional.grad is mytorch.nn.grad
    assert mytorch.ones(2).new(mytorch.Size([3, 1])).shape == (3, 1)


def test_always_called_hooks_run_though_another_raises():
    """Each once, with the exception of forward, and none of it is left when they are removed."""
    calls, layer = [], nn.Identity()

    def failing(module, args, output):
        calls.append("failing")
        raise RuntimeError("raised by a hook")

    handles = [
        layer.register_forward_hook(failing, always_call=True),
        layer.register_forward_hook(lambda m, a, o: calls.append("last"), always_call=True),
        layer.register_forward_pre_hook(lambda m, a: 1 / 0),
    ]
    with pytest.warns(UserWarning, match="silenced"), pytest.raises(ZeroDivisionError):
        layer(mytorch.ones(1))
    assert calls == ["failing", "last"]
    for handle in handles:
        handle.remove()
    assert not layer._forward_hooks_always_called


def test_backward_hooks_receive_gradients_of_inputs_that_require_grad(torch):
    """Hooks receive gradients only for inputs that require grad, and must return as many gradients. Double backward skips hooks."""

    def run(L):
        seen, layer = [], L.nn.Bilinear(2, 2, 1)

        def hook(module, grad_input, grad_output):
            seen.append([g is None for g in grad_input])

        layer.register_full_backward_hook(hook)
        x = L.ones(1, 2, requires_grad=True)
        (g,) = L.autograd.grad(layer(x, L.ones(1, 2)).sum(), x, create_graph=True)
        (g**2).sum().backward()
        layer.register_full_backward_pre_hook(lambda m, grads: ())
        try:
            layer(x, L.ones(1, 2)).sum().backward()
        except RuntimeError as error:
            return seen, "expected 1" in str(error)

    (mine, refused), (theirs, theirs_refused) = run(mytorch), run(torch)
    assert refused
    assert theirs_refused
    assert mine[0] == [False, True]
    assert len(mine) == len(theirs)


def test_a_layer_of_a_function_that_is_a_record(rng, monkeypatch):
    """As docs/adding.md adds one: the record in the table of F, a class of one line."""

    monkeypatch.setitem(functional._HOMES, "exp", "elementwise")

    class Exp(Layer, function=functional.exp):
        """e**x."""

    x = mytorch.from_numpy(rng.standard_normal((3, 5)))
    np.testing.assert_array_equal(Exp()(x).numpy(), np.exp(x.numpy()))


RECURSIVE = (
    "train eval apply _apply state_dict named_modules modules children named_children parameters named_parameters buffers "
    "named_buffers zero_grad requires_grad_ extra_repr to double half cpu _save_to_state_dict _load_from_state_dict"
).split()
CALLS = {
    "train": lambda m: m.train(),
    "train(False)": lambda m: m.train(False),
    "eval": lambda m: m.eval(),
    "apply": lambda m: m.apply(lambda layer: None),
    "double": lambda m: m.double(),
    "to": lambda m: m.to("cpu"),
    "cpu": lambda m: m.cpu(),
    "state_dict": lambda m: m.state_dict(),
    "load_state_dict": lambda m: m.load_state_dict(m.state_dict()),
    "modules": lambda m: list(m.modules()),
    "parameters": lambda m: list(m.parameters()),
    "named_buffers": lambda m: list(m.named_buffers()),
    "zero_grad": lambda m: m.zero_grad(),
    "requires_grad_": lambda m: m.requires_grad_(False),
    "repr": repr,
}


@loop
@pytest.mark.parametrize("call", CALLS)
def test_overridden_methods_of_submodules_are_called_as_in_pytorch(call):
    torch = pytest.importorskip("torch")

    def called(library):
        log = []

        def recording(name):
            inherited = getattr(library.nn.Linear, name)

            def method(self, *args, **kwargs):
                log.append(name)
                return inherited(self, *args, **kwargs)

            return method

        overriding = type("Overriding", (library.nn.Linear,), {name: recording(name) for name in RECURSIVE})
        model = library.nn.Sequential(library.nn.Sequential(overriding(2, 3)), overriding(3, 1))
        CALLS[call](model)
        return set(log)

    assert called(mytorch) == called(torch)


def test_train_leaves_frozen_statistics_of_submodules_unchanged():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(Frozen(3)))
    model.train()(mytorch.randn(5, 2))
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert model[1][0].num_batches_tracked.item() == 0
