"""mytorch.func against torch.func: gradients, Jacobians, Hessians, batches, modules as functions."""

import importlib

import numpy as np
import pytest

import mytorch
from tests.loops import loop

X = np.random.default_rng(0).standard_normal((3, 4))
Y = np.random.default_rng(1).standard_normal((3, 4))
V = np.random.default_rng(2).standard_normal(4)

CALLS = {
    "grad": lambda t, f, x, y, v: f.grad(lambda a: (a.sin() * y).sum())(x),
    "grad of grad": lambda t, f, x, y, v: f.vmap(f.grad(f.grad(lambda a: a.sin())))(v),
    "grad argnums": lambda t, f, x, y, v: f.grad(lambda a, b: (a**3 * b).sum(), argnums=(0, -1))(x, y),
    "grad dict": lambda t, f, x, y, v: f.grad(lambda p: (p["w"] * p["b"][0]).sum())({"w": x, "b": [y]}),
    "grad unused": lambda t, f, x, y, v: f.grad(lambda a, b: a.sum(), argnums=(0, 1))(x, y),
    "grad aux": lambda t, f, x, y, v: f.grad(lambda a: ((a**2).sum(), a * 2), has_aux=True)(x),
    "grad_and_value": lambda t, f, x, y, v: f.grad_and_value(lambda a: a.exp().sum())(x),
    "grad inside": lambda t, f, x, y, v: f.grad(lambda b: (f.grad(lambda a: (a**2 * b).sum())(x) * b).sum())(y),
    "no_grad inside": lambda t, f, x, y, v: f.grad(_partly_constant(t))(v),
    "vjp": lambda t, f, x, y, v: f.vjp(lambda a, b: (a * b).sin(), x, y)[1](y),
    "vjp many": lambda t, f, x, y, v: f.vjp(lambda a: (a.sin(), {"k": a.exp()}), x)[1]((y, {"k": x})),
    "vjp value": lambda t, f, x, y, v: f.vjp(lambda a: a.sin(), x)[0],
    "jvp": lambda t, f, x, y, v: f.jvp(lambda a: a.sin() @ v, (x,), (y,)),
    "jvp two": lambda t, f, x, y, v: f.jvp(lambda a, b: (a * b, a.exp()), (x, y), (y, x)),
    "jvp of grad": lambda t, f, x, y, v: f.jvp(f.grad(lambda a: (a**3).sum()), (x,), (y,)),
    "grad of jvp": lambda t, f, x, y, v: f.grad(lambda a: f.jvp(lambda b: b**3, (a,), (y,))[1].sum())(x),
    "linearize": lambda t, f, x, y, v: f.linearize(lambda a: a.sin(), x)[1](y),
    "jacrev": lambda t, f, x, y, v: f.jacrev(lambda a: (a.sin() * y).sum(0))(x),
    "jacrev nums": lambda t, f, x, y, v: f.jacrev(lambda a, b: (a * b.sum(0), b), argnums=(0, 1))(v, x),
    "jacrev dict": lambda t, f, x, y, v: f.jacrev(lambda p: {"out": p["w"] @ p["v"]})({"w": x, "v": v}),
    "jacfwd": lambda t, f, x, y, v: f.jacfwd(lambda a: a.outer(a))(v),
    "hessian": lambda t, f, x, y, v: f.hessian(lambda a: (a.sin() * v).sum() ** 2)(v),
    "hessian two": lambda t, f, x, y, v: f.hessian(lambda a, b: (a.sin() * b).sum() ** 2, argnums=(0, 1))(v, x[0]),
    "vmap": lambda t, f, x, y, v: f.vmap(lambda a, b: a.dot(b))(x, y),
    "vmap dims": lambda t, f, x, y, v: f.vmap(lambda a, b: a.outer(b), in_dims=(1, None), out_dims=-1)(x, v),
    "vmap many": lambda t, f, x, y, v: f.vmap(lambda a, d: (a + d["k"], a.sum()), (0, {"k": 0}), (1, 0))(x, {"k": y}),
    "vmap vmap": lambda t, f, x, y, v: f.vmap(f.vmap(lambda a, b: a * b), in_dims=(0, None))(x, v),
    "per-sample": lambda t, f, x, y, v: f.vmap(f.grad(lambda w, a: (w * a).sin().sum()), in_dims=(None, 0))(v, x),
    "vmap jacrev": lambda t, f, x, y, v: f.vmap(f.jacrev(lambda a: a.sin() * a.sum()))(x),
}  # fmt: skip


def _partly_constant(torch):
    def function(a):
        with torch.no_grad():
            c = a * 2
        return (a * c).sum()

    return function


def _leaves(tree):
    if isinstance(tree, dict):
        return [leaf for k in sorted(tree) for leaf in _leaves(tree[k])]
    return [leaf for t in tree for leaf in _leaves(t)] if isinstance(tree, (tuple, list)) else [tree]


@loop
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_transform(name, torch):
    results = []
    for lib in (mytorch, torch):
        func = importlib.import_module(f"{lib.__name__}.func")
        results.append(_leaves(CALLS[name](lib, func, *(lib.tensor(a) for a in (X, Y, V)))))
    for mine, theirs in zip(*results, strict=True):
        assert mine.requires_grad == theirs.requires_grad
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["grad", "vjp", "jvp", "jacrev", "vmap", "per-sample", "hessian"])
def test_results_stay_differentiable(name, torch):
    """A tensor that the function closes over gets its gradient through the result."""
    results = []
    for lib in (mytorch, torch):
        func = importlib.import_module(f"{lib.__name__}.func")
        x, y, v = (lib.tensor(a, requires_grad=True) for a in (X, Y, V))
        found = _leaves(CALLS[name](lib, func, x, y, v))
        sum((t**2).sum() for t in found).backward()
        results.append([np.zeros(t.shape) if t.grad is None else np.asarray(t.grad) for t in (x, y, v)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)


def test_functional_call(torch):
    results = []
    for lib in (mytorch, torch):
        func = importlib.import_module(f"{lib.__name__}.func")
        lib.manual_seed(0)
        net = lib.nn.Sequential(lib.nn.Linear(4, 5), lib.nn.BatchNorm1d(5), lib.nn.Linear(5, 2)).double()
        params = {k: (p * 2).detach() for k, p in net.named_parameters()}
        buffers = {k: b.clone() for k, b in net.named_buffers()}
        before = net[1].running_mean.clone()
        x, t = lib.tensor(X), lib.tensor(X[:, :2])

        out = func.functional_call(net, (params, buffers), (x,))
        net.eval()

        def loss(p, net=net, func=func, buffers=buffers, x=x, t=t):
            return ((func.functional_call(net, (p, buffers), (x,)) - t) ** 2).mean()

        grads, value = func.grad_and_value(loss)(params)
        assert (net[1].running_mean == before).all()
        results.append([out, value, *grads.values(), *buffers.values()])
        with pytest.raises(ValueError, match="appeared in multiple dictionaries"):
            func.functional_call(net, (params, params), (x,))
        with pytest.raises(RuntimeError, match="Missing key"):
            func.functional_call(net, params, (x,), strict=True)
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-8)


def test_functional_call_with_tied_weights(torch):
    for lib in (mytorch, torch):
        func = importlib.import_module(f"{lib.__name__}.func")
        net = lib.nn.Sequential(lib.nn.Linear(3, 3, bias=False), lib.nn.Linear(3, 3, bias=False))
        net[1].weight = net[0].weight
        eye, x = lib.eye(3), lib.ones(1, 3)
        assert (func.functional_call(net, {"0.weight": eye * 2}, x) == 4).all()
        assert (func.functional_call(net, {"0.weight": eye, "1.weight": eye * 3}, x, tie_weights=False) == 3).all()
        with pytest.raises(ValueError, match="which are tied"):
            func.functional_call(net, {"0.weight": eye, "1.weight": eye * 3}, x)


def test_ensemble(torch):
    results = []
    for lib in (mytorch, torch):
        func = importlib.import_module(f"{lib.__name__}.func")
        lib.manual_seed(1)
        models = [lib.nn.Linear(4, 2) for _ in range(3)]
        params, buffers = func.stack_module_state(models)
        assert params["weight"].requires_grad

        def run(p, b, x, func=func, model=models[0]):
            return func.functional_call(model, (p, b), (x,))

        results.append(func.vmap(run, in_dims=(0, 0, None))(params, buffers, lib.tensor(X).float()))
    np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), rtol=1e-5)


def test_replace_batch_norms():
    net = mytorch.nn.Sequential(mytorch.nn.BatchNorm1d(3))
    assert mytorch.func.replace_all_batch_norm_modules_(net) is net
    assert net[0].running_mean is None
    assert not net[0].track_running_stats


def test_what_is_refused():
    func = mytorch.func
    x = mytorch.ones(3)
    with pytest.raises(RuntimeError, match="to return a scalar tensor, got tensor with 1 dims"):
        func.grad(lambda a: a)(x)
    with pytest.raises(RuntimeError, match="only 1 positional inputs"):
        func.grad(lambda a: a.sum(), argnums=1)(x)
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        func.vmap(lambda a, b: a + b)(x, mytorch.ones(4))
    with pytest.raises(ValueError, match="must only return Tensors"):
        func.vmap(lambda a: 1.0)(x)
    with pytest.raises(RuntimeError, match="same .* structure"):
        func.jvp(lambda a: a, (x,), (x, x))


@pytest.mark.cpu_only
def test_randomness_same():
    x = mytorch.zeros(4, 2)
    same = mytorch.vmap(lambda a: a + mytorch.rand(2), randomness="same")(x)
    assert (same == same[0]).all()
    other = mytorch.vmap(lambda a: a + mytorch.rand(2), randomness="different")(x)
    assert not (other == other[0]).all()
