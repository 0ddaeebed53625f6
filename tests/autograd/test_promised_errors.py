"""What PyTorch promises about custom Functions, hooks and gradients of decompositions, compared with PyTorch where it is installed."""

import gc
import weakref

import numpy as np
import pytest

import mytorch


@pytest.fixture(params=["mytorch", "torch"])
def L(request):
    return mytorch if request.param == "mytorch" else pytest.importorskip("torch")


def function(L, forward, backward=lambda ctx, *g: g[0]):
    return type("Made", (L.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def values(x):
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x.to("cpu")).tolist()


def test_an_input_that_forward_returns_is_a_tensor_of_its_own(L):
    same, fixed = function(L, lambda ctx, x: x), function(L, lambda ctx, x: ctx.mark_non_differentiable(x) or x)
    for made in (same, fixed):
        for x in (L.ones(2), L.ones(2, requires_grad=True), L.ones(2, requires_grad=True) * 2):
            y = made.apply(x)
            assert y is not x
            assert y.requires_grad == (x.requires_grad and made is same)
    with L.no_grad():
        x = L.ones(2, requires_grad=True)
        assert same.apply(x) is not x


def test_a_dirty_input_gets_a_new_version(L):
    made = function(L, lambda ctx, x: ctx.mark_dirty(x) or x)
    x = L.ones(2)
    assert made.apply(x) is x
    assert x._version == 1
    x = L.ones(2, requires_grad=True) * 1
    made.apply(x)
    assert x._version == 1


def test_a_function_is_not_called_as_an_object(L):
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = function(L, lambda ctx, x: x)()
    x = L.ones(1)
    with pytest.raises(RuntimeError, match="non-static forward"):
        instance(x)


def test_results_of_hooks(L):
    for register in (
        lambda y: y.grad_fn.register_prehook(lambda g: g[0]),
        lambda y: y.grad_fn.register_hook(lambda gi, go: gi[0]),
    ):
        y = L.ones(2, requires_grad=True) * 2
        register(y)
        with pytest.raises(TypeError, match="expected tuple"):
            y.sum().backward()
    x = L.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: 3)
    with pytest.raises(TypeError):
        x.sum().backward()


def test_hooks_of_an_output_without_a_gradient_receive_none(L):
    x = L.ones(3, requires_grad=True)
    seen, parts = [], x.unbind()
    parts[0].register_hook(lambda g: seen.append(None if g is None else 1))
    parts[0].backward(retain_graph=True)
    parts[1].backward(retain_graph=True)
    assert seen == [1, None]
    assert values(x.grad) == [1.0, 1.0, 0.0]
    parts[2].register_hook(lambda g: L.ones(()))
    with pytest.raises(RuntimeError, match="None gradient"):
        parts[1].backward()


def test_backward_to_a_computed_tensor_runs_the_hooks_of_its_node(L):
    log = []
    b = L.tensor(1.0, requires_grad=True).clone()
    b.grad_fn.register_prehook(lambda g: log.append("node"))
    b.register_hook(lambda g: log.append("tensor"))
    b.sum().backward(inputs=(b,))
    assert log == ["tensor", "node"]


def test_a_hook_that_refers_to_its_node_is_collected(L):
    def scope():
        x = L.ones(2, requires_grad=True).clone()
        node, marker = x.grad_fn, np.zeros(1)
        node.register_hook(lambda *_: (node, marker) and None)
        return x * 2, weakref.ref(marker)

    y, alive = scope()
    y.sum().backward()
    assert alive() is not None
    del y
    gc.collect()
    assert alive() is None


def test_a_gradient_edge_is_not_materialized(L):
    x, y = (L.ones(2, requires_grad=True).clone() for _ in "xy")
    edge = L.autograd.graph.get_gradient_edge(y)
    assert L.autograd.grad(x.sum(), (x, edge), allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used"):
        L.autograd.grad((x * 1).sum(), (x, edge), allow_unused=True, materialize_grads=True)


def test_a_leaf_after_set_does_not_belong_to_earlier_results(L):
    x = L.ones(3, requires_grad=True)
    out = x.clone()
    with L.no_grad():
        x.set_(L.ones(2))
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        L.autograd.grad(out.sum(), x)
    L.cat((x, x)).sum().backward()
    assert values(x.grad) == [2.0, 2.0]


@pytest.mark.parametrize("name", ["svd", "eigh", "eig", "qr"])
def test_gradients_of_decompositions_that_are_not_defined(L, name):
    rng = np.random.default_rng(3)
    A = L.tensor(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)), requires_grad=True)
    if name == "qr":
        B = L.tensor(rng.standard_normal((4, 3)), requires_grad=True)
        for mode, match in (("r", "depends on Q"), ("complete", "not differentiable")):
            R = L.linalg.qr(B, mode=mode).R
            with pytest.raises(RuntimeError, match=match):
                R.sum().backward()
        return
    found = {
        "svd": lambda: (lambda s: s[0] + s[2])(L.linalg.svd(A, full_matrices=False)),
        "eigh": lambda: L.linalg.eigh(A + A.mH)[1],
        "eig": lambda: L.linalg.eig(A)[1],
    }[name]()
    with pytest.raises(RuntimeError, match="ill-defined"):
        found.sum().abs().backward()
    # a function of the vectors without their phases has a gradient
    found = {
        "svd": lambda: (lambda s: s[0] @ s[2])(L.linalg.svd(A, full_matrices=False)),
        "eigh": lambda: L.linalg.eigh(A + A.mH)[1].abs(),
        "eig": lambda: L.linalg.eig(A)[1].abs(),
    }[name]()
    (g,) = L.autograd.grad(found.abs().sum(), A, create_graph=True)
    assert L.isfinite(L.autograd.grad(g.abs().sum(), A)[0].abs().sum())


def test_interpolation_runs_backward_again(L):
    x = L.ones(1, 2, 3, 3, 3, requires_grad=True)
    for mode, size in (("trilinear", x), ("bilinear", x[0]), ("bicubic", x[0]), ("linear", x[0, 0])):
        y = L.nn.functional.interpolate(size, scale_factor=2, mode=mode)
        y.sum().backward(retain_graph=False)
        y = L.nn.functional.interpolate(size.detach().requires_grad_(), scale_factor=2, mode=mode)
        y.sum().backward()
        y.sum().backward()
