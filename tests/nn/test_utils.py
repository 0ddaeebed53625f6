"""nn.utils compared with PyTorch: parametrizations, normalizations, fusion, pruning, skipping initial values."""

import copy
import importlib
import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop


@pytest.fixture(params=["Linear(6, 4)", "Linear(4, 6)", "Conv2d(3, 4, 3)", "ConvTranspose2d(3, 4, 3)"])
def layer(request):
    return request.param


def _pair(text, torch):
    """The layer in both libraries, with equal weights, in float64."""
    pair = []
    for lib in (mytorch, torch):
        lib.manual_seed(3)
        pair.append(eval(f"nn.{text}", {"nn": lib.nn}).double())
    pair[0].load_state_dict({k: v.numpy() for k, v in pair[1].state_dict().items()})
    return pair


def _input(text):
    shape = (5, int(text[7])) if text.startswith("Linear") else (2, 3, 6, 7)
    return np.random.default_rng(1).standard_normal(shape)


def _same_state(mine, theirs, **tolerance):
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[name].numpy(), value.numpy(), err_msg=name, **tolerance)


def _same_steps(mine, theirs, x, torch, atol=1e-8):
    """Equal outputs and gradients, twice, with a step of descent in between."""
    rng = np.random.default_rng(7)
    for _ in range(2):
        a, b = mytorch.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        out, ref = mine(a), theirs(b)
        np.testing.assert_allclose(out.numpy(force=True), ref.detach().numpy(), atol=atol)
        up = rng.standard_normal(tuple(ref.shape))
        mine.zero_grad()
        theirs.zero_grad()
        out.backward(mytorch.tensor(up))
        ref.backward(torch.tensor(up))
        np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), atol=atol)
        for lib, module in ((mytorch, mine), (torch, theirs)):
            with lib.no_grad():
                for p in module.parameters():
                    p.sub_(p.grad, alpha=0.01)
        _same_state(mine, theirs, atol=atol)


@pytest.mark.parametrize("kind", ["weight_norm", "weight_norm(dim=None)", "weight_norm(dim=1)", "spectral_norm", "spectral_norm(n_power_iterations=3)"])  # fmt: skip
def test_parametrizations(kind, layer, torch):
    name, _, options = kind.partition("(")
    options = eval(f"dict({options}") if options else {}
    pair = _pair(layer, torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        lib.manual_seed(5)
        parametrizations = importlib.import_module(f"{lib.__name__}.nn.utils.parametrizations")
        assert getattr(parametrizations, name)(module, **options) is module
    mine, theirs = pair
    assert repr(mine) == repr(theirs)
    _same_state(mine, theirs, atol=2e-6)
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    _same_steps(mine, theirs, _input(layer), torch)
    twin = copy.deepcopy(mine)
    mine.eval()
    theirs.eval()
    assert [p is not q for p, q in zip(twin.parameters(), mine.parameters(), strict=True)]
    mytorch.nn.utils.parametrize.remove_parametrizations(mine, "weight")
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight")
    assert repr(mine) == repr(theirs)
    _same_state(mine, theirs, atol=1e-8)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(twin)


@loop
@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivialization", [True, False])
@pytest.mark.parametrize("text", ["Linear(6, 4)", "Linear(4, 6)", "Linear(5, 5)"])
def test_orthogonal(text, trivialization, orthogonal_map, torch):
    pair = _pair(text, torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        lib.manual_seed(5)
        lib.nn.utils.parametrizations.orthogonal(module, "weight", orthogonal_map, use_trivialization=trivialization)
    mine, theirs = pair
    assert list(mine.state_dict()) == list(theirs.state_dict())
    w = mine.weight.detach().numpy()
    np.testing.assert_allclose(w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T, np.eye(min(w.shape)), atol=1e-10)
    np.testing.assert_allclose(w, theirs.weight.detach().numpy(), atol=1e-10)
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    _same_steps(mine, theirs, _input(text), torch)


def test_orthogonal_refuses():
    orthogonal = mytorch.nn.utils.parametrizations.orthogonal
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        orthogonal(mytorch.nn.Linear(3, 3), orthogonal_map="other")
    with pytest.raises(ValueError, match="Got a tensor of 1 dimensions"):
        orthogonal(mytorch.nn.Linear(3, 3), "bias")
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'nothing'"):
        orthogonal(mytorch.nn.Linear(3, 3), "nothing")


def _parametrizations(lib):
    class Symmetric(lib.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    class RankOne(lib.nn.Module):
        def forward(self, x, y):
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, z):
            return z[:, 0], z[0]

    class Wider(lib.nn.Module):
        def forward(self, x):
            return lib.cat([x, x])

    return Symmetric(), RankOne(), Wider()


def test_register_parametrization(torch):
    pair = _pair("Linear(4, 4)", torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        parametrize = importlib.import_module(f"{lib.__name__}.nn.utils.parametrize")
        symmetric, _, wider = _parametrizations(lib)
        parametrize.register_parametrization(module, "weight", symmetric)
        parametrize.register_parametrization(module, "weight", lib.nn.Tanh())
        parametrize.register_parametrization(module, "bias", lib.nn.Softmax(0))
        assert parametrize.is_parametrized(module, "weight")
        assert parametrize.type_before_parametrizations(module) is lib.nn.Linear
        with pytest.raises(ValueError, match=r"may not change the shape.*\n.*\n.*"):
            parametrize.register_parametrization(module, "bias", wider)
        with pytest.raises(RuntimeError, match="does not implement right_inverse"):
            module.bias = lib.zeros(4)
        with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
            parametrize.register_parametrization(module, "other", wider)
        with parametrize.cached():
            assert module.weight is module.weight
        assert module.weight is not module.weight
    mine, theirs = pair
    assert repr(mine) == repr(theirs)
    _same_steps(mine, theirs, _input("Linear(4, 4)"), torch)
    twins = [mytorch.nn.Linear(4, 4).double(), torch.nn.Linear(4, 4).double()]
    for lib, module, twin in zip((mytorch, torch), pair, twins, strict=True):
        parametrize = importlib.import_module(f"{lib.__name__}.nn.utils.parametrize")
        parametrize.transfer_parametrizations_and_params(module, twin)
        np.testing.assert_array_equal(twin.weight.detach().numpy(), module.weight.detach().numpy())
        parametrize.remove_parametrizations(module, "weight")
        parametrize.remove_parametrizations(module, "bias", leave_parametrized=False)
        assert type(module) is lib.nn.Linear
        with pytest.raises(ValueError, match="does not have a parametrization on weight"):
            parametrize.remove_parametrizations(module, "weight")
    _same_state(mine, theirs, atol=1e-12)
    _same_state(*twins, atol=1e-12)


def test_parametrization_of_several_tensors(torch):
    pair = _pair("Linear(4, 4)", torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        parametrize = importlib.import_module(f"{lib.__name__}.nn.utils.parametrize")
        parametrize.register_parametrization(module, "weight", _parametrizations(lib)[1])
    mine, theirs = pair
    _same_state(mine, theirs, atol=0)
    _same_steps(mine, theirs, _input("Linear(4, 4)"), torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        module.weight = lib.ones(4, 4, dtype=lib.float64)
        parametrize = importlib.import_module(f"{lib.__name__}.nn.utils.parametrize")
        with pytest.raises(ValueError, match="Cannot leave unparametrized"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
        parametrize.remove_parametrizations(module, "weight")
    _same_state(mine, theirs, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "kind", ["weight_norm", "weight_norm(dim=None)", "spectral_norm", "spectral_norm(n_power_iterations=2)"]
)
def test_hook_normalizations(kind, layer, torch):
    name, _, options = kind.partition("(")
    options = eval(f"dict({options}") if options else {}
    pair = _pair(layer, torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        lib.manual_seed(5)
        getattr(lib.nn.utils, name)(module, **options)
        with pytest.raises(RuntimeError, match=f"Cannot register two {name} hooks"):
            getattr(lib.nn.utils, name)(module)
    mine, theirs = pair
    assert repr(mine) == repr(theirs)
    _same_state(mine, theirs, atol=1e-6)
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    _same_steps(mine, theirs, _input(layer), torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        getattr(lib.nn.utils, f"remove_{name}")(module)
        with pytest.raises(ValueError, match=f"{name} of 'weight' not found"):
            getattr(lib.nn.utils, f"remove_{name}")(module)
    _same_state(mine, theirs, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_new_weight_norm_loads_old_state():
    old = mytorch.nn.utils.weight_norm(mytorch.nn.Linear(3, 2))
    new = mytorch.nn.utils.parametrizations.weight_norm(mytorch.nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    np.testing.assert_allclose(new.weight.detach().numpy(), old.weight.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(("text", "norm", "shape"), [("Conv2d(3, 4, 3)", "BatchNorm2d(4)", (2, 3, 6, 6)), ("Conv1d(3, 4, 3, bias=False)", "BatchNorm1d(4, affine=False)", (2, 3, 6)), ("ConvTranspose2d(3, 4, 3)", "BatchNorm2d(4)", (2, 3, 6, 6)), ("Linear(3, 4)", "BatchNorm1d(4)", (5, 3))])  # fmt: skip
def test_fusion(text, norm, shape):
    nn = mytorch.nn
    layer, bn = (eval(f"nn.{t}", {"nn": nn}).double() for t in (text, norm))
    x = mytorch.randn(*shape, dtype=mytorch.float64)
    for _ in range(3):
        bn(layer(x))
    layer.eval()
    if text.startswith("Linear"):
        fuse = nn.utils.fuse_linear_bn_eval
    else:

        def fuse(layer, bn):
            return nn.utils.fuse_conv_bn_eval(layer, bn, transpose=text.startswith("ConvT"))

    with pytest.raises(AssertionError, match="only for eval"):
        fuse(layer, bn)
    bn.eval()
    np.testing.assert_allclose(fuse(layer, bn)(x).detach().numpy(), bn(layer(x)).detach().numpy(), atol=1e-10)


PRUNINGS = [
    "random_unstructured(m, 'weight', 0.3)", "random_unstructured(m, 'weight', 5)", "l1_unstructured(m, 'weight', 0.4)",
    "l1_unstructured(m, 'weight', 3, m.weight.detach() * -m.weight.detach())", "random_structured(m, 'weight', 2, 0)",
    "ln_structured(m, 'weight', 0.5, 2, 1)", "ln_structured(m, 'weight', 1, float('inf'), -1)", "identity(m, 'bias')",
    "custom_from_mask(m, 'bias', m.bias.detach() > 0)", "l1_unstructured(m, 'weight', 0)",
]  # fmt: skip


@loop
@pytest.mark.parametrize("first", PRUNINGS)
@pytest.mark.parametrize(
    "second", ["identity(m, 'weight')", "l1_unstructured(m, 'weight', 0.25)", "ln_structured(m, 'weight', 1, 1, 0)"]
)
def test_pruning(first, second, torch):
    pair = _pair("Linear(6, 4)", torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        prune = importlib.import_module(f"{lib.__name__}.nn.utils.prune")
        module.float()
        lib.manual_seed(9)
        assert not prune.is_pruned(module)
        for call in (first, second):
            assert eval(f"prune.{call}", {"prune": prune, "m": module}) is module
        assert prune.is_pruned(module)
        module.double()
    mine, theirs = pair
    _same_state(mine, theirs, atol=0)
    _same_steps(mine, theirs, _input("Linear(6, 4)"), torch)
    for lib, module in zip((mytorch, torch), pair, strict=True):
        prune = importlib.import_module(f"{lib.__name__}.nn.utils.prune")
        prune.remove(module, "weight")
        with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
            prune.remove(module, "weight")
    _same_state(mine, theirs, atol=1e-8)


def test_global_pruning(torch):
    pair = []
    for lib in (mytorch, torch):
        lib.manual_seed(2)
        prune = importlib.import_module(f"{lib.__name__}.nn.utils.prune")
        net = lib.nn.Sequential(lib.nn.Linear(5, 4), lib.nn.Tanh(), lib.nn.Linear(4, 3))
        where = [(net[0], "weight"), (net[2], "weight")]
        prune.global_unstructured(where, pruning_method=prune.L1Unstructured, amount=0.3)
        prune.global_unstructured(where, pruning_method=prune.L1Unstructured, amount=4)
        with pytest.raises(TypeError, match='Only "unstructured"'):
            prune.global_unstructured(where, pruning_method=prune.LnStructured, amount=1, n=2)
        pair.append(net)
    _same_state(*pair, atol=1e-6)


def test_pruning_refuses():
    prune = mytorch.nn.utils.prune
    m = mytorch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="should either be a float in the range"):
        prune.l1_unstructured(m, "weight", 1.5)
    with pytest.raises(TypeError, match="Must be int or float"):
        prune.l1_unstructured(m, "weight", "much")
    with pytest.raises(ValueError, match="multidimensional"):
        prune.ln_structured(m, "bias", 1, 2, 0)
    assert list(m.state_dict()) == ["weight", "bias"]


def test_skip_init():
    mytorch.manual_seed(4)
    module = mytorch.nn.utils.skip_init(mytorch.nn.Linear, 3, 2, bias=False, dtype=mytorch.float64)
    assert tuple(module.weight.shape) == (2, 3)
    assert module.weight.dtype is mytorch.float64
    after = mytorch.rand(1)
    mytorch.manual_seed(4)
    assert after == mytorch.rand(1)
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        mytorch.nn.utils.skip_init(mytorch.nn.ReLU)
