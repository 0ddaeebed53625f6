"""Function transforms in each other, with `detach` and `no_grad` inside, compared with PyTorch."""

import importlib

import numpy as np
import pytest

import mytorch
from mytorch.autograd import gradcheck
from tests.loops import loop

pytestmark = pytest.mark.filterwarnings("ignore")

FUNCTIONS = {
    "cube": lambda L, a: (a * a * a).sum(),
    "sin": lambda L, a: (a.sin() * a[[1, 0]]).sum(),
    "detach": lambda L, a: (a * a.detach()).sum(),
    "detached factor": lambda L, a: (a * a * a.detach().sin()).sum(),
    "detached product": lambda L, a: (a * (a * a).detach() * a).sum(),
    "detached index": lambda L, a: (a * a.detach()[[1, 0]]).sum(),
    "detached copy": lambda L, a: (a * a.clone().detach()).sum(),
    "all detached": lambda L, a: a.detach().sum(),
    "detached in place": lambda L, a: ((a * a).detach_() * a * a).sum(),
    "detached in place, of a product": lambda L, a: (a * (a.sin() * a[[1, 0]]).detach_().exp()).sum(),
    "in place by a detached factor": lambda L, a: (a * 1).mul_((a * 2).detach()).sum(),
    "in place by itself": lambda L, a: (_times_itself(a * 1) * a).sum(),
    "changed detached copy": lambda L, a: (_with_first(a.detach().clone(), a[1]) * a).sum(),
    "no_grad": lambda L, a: (a * _without_graph(L, a)).sum(),
}


def _times_itself(t):
    return t.mul_(t.detach() * 2)


def _with_first(t, value):
    t[0] = value
    return t


def _without_graph(L, a):
    with L.no_grad():
        return a * a


# Each gives a function of a vector from a function of a vector.
INNER = {
    "f": lambda L, f: f,
    "grad": lambda L, f: lambda x: (L.func.grad(f)(x) * _c(L)).sum(),
    "jvp": lambda L, f: lambda x: L.func.jvp(f, (x,), (_c(L),))[1],
}
OUTER = {
    "grad": lambda L, g, x, xs: L.func.grad(g)(x),
    "jvp": lambda L, g, x, xs: L.func.jvp(g, (x,), (_c(L),))[1],
    "hessian": lambda L, g, x, xs: L.func.hessian(g)(x),
    "vmap": lambda L, g, x, xs: L.func.vmap(g)(xs),
    "vmap of grad": lambda L, g, x, xs: L.func.vmap(L.func.grad(g))(xs),
    "vmap of jvp": lambda L, g, x, xs: L.func.vmap(INNER["jvp"](L, g))(xs),
    "grad of vmap": lambda L, g, x, xs: L.func.grad(lambda z: L.func.vmap(g)(z).sum())(xs),
    "jvp of vmap": lambda L, g, x, xs: L.func.jvp(lambda z: L.func.vmap(g)(z).sum(), (xs,), (xs * 2,))[1],
    "grad of vmap of grad": lambda L, g, x, xs: L.func.grad(lambda z: L.func.vmap(INNER["grad"](L, g))(z).sum())(xs),
    "grad of vmap of vmap": lambda L, g, x, xs: L.func.grad(lambda z: L.func.vmap(L.func.vmap(g))(z).sum())(xs[None]),
    "backward of vmap": lambda L, g, x, xs: _backward(L, lambda z: L.func.vmap(g)(z).sum(), xs),
    "backward of vmap of grad": lambda L, g, x, xs: _backward(L, lambda z: (L.func.vmap(L.func.grad(g))(z) ** 2).sum(), xs),
    "jacrev of vmap of grad": lambda L, g, x, xs: L.func.jacrev(L.func.vmap(L.func.grad(g)))(xs),
}  # fmt: skip


def _c(L):
    return L.tensor([1.5, -2.0], dtype=L.float64)


def _backward(L, f, x):
    x = x.clone().requires_grad_()
    y = f(x)
    return L.autograd.grad(y, x, allow_unused=True, materialize_grads=True)[0] if y.requires_grad else L.zeros_like(x)


@loop
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_nested_transforms(function, inner, outer, torch):
    if (list(FUNCTIONS).index(function) + list(INNER).index(inner) + list(OUTER).index(outer)) % 2:
        return  # half of the cells, which take five seconds
    results = []
    for L in (torch, mytorch):
        importlib.import_module(f"{L.__name__}.func")
        xs = L.tensor([[0.4, 1.3], [0.2, -0.6], [1.0, 2.0]], dtype=L.float64)
        try:
            found = OUTER[outer](L, INNER[inner](L, lambda a, L=L: FUNCTIONS[function](L, a)), xs[0], xs)
        except RuntimeError:
            if L is torch:
                return  # PyTorch refuses to differentiate a result that is constant
            raise
        results.append(found.detach().numpy(force=True))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9, atol=1e-12)


@loop
@pytest.mark.parametrize("function", [name for name in FUNCTIONS if "detached" not in name])
def test_gradients_of_per_sample_gradients(function):
    """The gradient of a loss of per-sample gradients, as for a gradient penalty, is the derivative of that loss."""
    if function in ("detach", "no_grad", "in place by itself"):
        return  # finite differences see the detached factor
    gradient = mytorch.func.grad(lambda a: FUNCTIONS[function](mytorch, a))
    xs = mytorch.tensor([[0.4, 1.3], [0.2, -0.6]], dtype=mytorch.float64, requires_grad=True)
    assert gradcheck(lambda z: (mytorch.func.vmap(gradient)(z) ** 2).sum(), (xs,))


@loop
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_checkpoints_in_transforms(function, inner, outer):
    """A checkpointed function has the derivatives of the function."""
    if (list(FUNCTIONS).index(function) + list(INNER).index(inner) + list(OUTER).index(outer)) % 3:
        return
    if "detached in place" in function:
        return  # the second run is outside of the transform that it detaches from, which is an error
    xs = mytorch.tensor([[0.4, 1.3], [0.2, -0.6], [1.0, 2.0]], dtype=mytorch.float64)

    def plain(a):
        return FUNCTIONS[function](mytorch, a)

    def checkpointed(a):
        return mytorch.utils.checkpoint.checkpoint(plain, a, use_reentrant=False)

    want, got = (OUTER[outer](mytorch, INNER[inner](mytorch, f), xs[0], xs) for f in (plain, checkpointed))
    np.testing.assert_allclose(got.detach().numpy(force=True), want.detach().numpy(force=True), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("outer", ["grad", "jacrev", "hessian"])
def test_transforms_of_a_reentrant_checkpoint_are_refused(outer):
    """Its second backward would also add to the gradients of other leaves, and records no graph."""

    def f(x):
        return mytorch.utils.checkpoint.checkpoint(lambda a: (a.sin() * a).sum(), x, use_reentrant=True)

    x = mytorch.tensor([0.4, 1.3], dtype=mytorch.float64)
    with pytest.raises(RuntimeError, match="use_reentrant=True|implement the jvp"):
        getattr(mytorch.func, outer)(f)(x)


def test_detach_in_place_of_a_tensor_from_outside_is_refused():
    def f(x):
        z = x * x
        return mytorch.func.grad(lambda y: (z.detach_() * y).sum())(x).sum()

    with pytest.raises(RuntimeError, match="from outside"):
        mytorch.func.grad(f)(mytorch.tensor([0.4, 1.3]))
