"""autograd.functional and gradcheck against PyTorch: values, structures and errors."""

import numpy as np
import pytest

import mytorch
from mytorch.autograd import gradcheck, gradgradcheck
from mytorch.autograd.gradcheck import GradcheckError
from tests.loops import loop

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((2, 3))
Y = np.random.default_rng(1).standard_normal((3,))


def _ones(L, *shape):
    return L.ones(*shape, dtype=L.float64)


CASES = {
    "jacobian": lambda L, F, x, y: F.jacobian(lambda a: a.exp().sum(1), x),
    "jacobian of two": lambda L, F, x, y: F.jacobian(lambda a, b: (a @ b, b * 2), (x, y)),
    "jacobian of tuples": lambda L, F, x, y: F.jacobian(lambda a: (a * 2,), (x,)),
    "jacobian vectorized": lambda L, F, x, y: F.jacobian(lambda a, b: a @ b, (x, y), vectorize=True),
    "jacobian forward": lambda L, F, x, y: F.jacobian(
        lambda a: a.exp().sum(1), x, vectorize=True, strategy="forward-mode"
    ),
    "jacobian unused": lambda L, F, x, y: F.jacobian(lambda a, b: a * 2, (x, y)),
    "hessian": lambda L, F, x, y: F.hessian(lambda a: (a**3).sum(), x),
    "hessian of two": lambda L, F, x, y: F.hessian(lambda a, b: ((a @ b) ** 3).sum(), (x, y)),
    "hessian of one": lambda L, F, x, y: F.hessian(lambda a: (a**3).sum(), (x,)),
    "hessian linear": lambda L, F, x, y: F.hessian(lambda a: a.sum(), x),
    "vjp": lambda L, F, x, y: F.vjp(lambda a, b: a @ b, (x, y), _ones(L, 2)),
    "vjp one number": lambda L, F, x, y: F.vjp(lambda a: a.sum(), x),
    "jvp": lambda L, F, x, y: F.jvp(lambda a, b: a @ b, (x, y), (_ones(L, 2, 3), _ones(L, 3))),
    "vhp": lambda L, F, x, y: F.vhp(lambda a, b: ((a @ b) ** 3).sum(), (x, y), (_ones(L, 2, 3), _ones(L, 3))),
    "hvp": lambda L, F, x, y: F.hvp(lambda a, b: ((a @ b) ** 3).sum(), (x, y), (_ones(L, 2, 3), _ones(L, 3))),
}
REFUSED = {
    "strict jacobian": lambda L, F, x, y: F.jacobian(lambda a, b: a * 2, (x, y), strict=True),
    "strict constant": lambda L, F, x, y: F.jacobian(lambda a: L.ones(3), (x,), strict=True),
    "strict hessian": lambda L, F, x, y: F.hessian(lambda a: a.sum(), x, strict=True),
    "strict vhp": lambda L, F, x, y: F.vhp(lambda a: a.sum(), x, _ones(L, 2, 3), strict=True),
    "hessian of many": lambda L, F, x, y: F.hessian(lambda a: a * 2, x),
    "vjp without v": lambda L, F, x, y: F.vjp(lambda a: a * 2, x),
    "jvp without v": lambda L, F, x, y: F.jvp(lambda a: a * 2, x),
    "hvp without v": lambda L, F, x, y: F.hvp(lambda a: (a**3).sum(), x),
    "vjp sizes": lambda L, F, x, y: F.vjp(lambda a: a * 2, x, _ones(L, 3)),
    "hvp of many": lambda L, F, x, y: F.hvp(lambda a: a**3, x, _ones(L, 2, 3)),
    "hvp of a tuple": lambda L, F, x, y: F.hvp(lambda a: (a.sum(),), x, _ones(L, 2, 3)),
    "no tensor in": lambda L, F, x, y: F.jacobian(lambda a: a, (x, 3)),
    "no tensor out": lambda L, F, x, y: F.jacobian(lambda a: 3, x),
    "strategy": lambda L, F, x, y: F.jacobian(lambda a: a, x, strategy="sideways"),
    "forward without vectorize": lambda L, F, x, y: F.jacobian(lambda a: a, x, strategy="forward-mode"),
}


def _run(case, L):
    return case(L, L.autograd.functional, L.tensor(X), L.tensor(Y))


def _same(a, b):
    assert isinstance(a, (tuple, list)) == isinstance(b, (tuple, list))
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    else:
        np.testing.assert_allclose(np.asarray(b.detach()), a.detach().numpy(), rtol=1e-9, atol=1e-12)


@loop
@pytest.mark.parametrize("name", CASES)
def test_values_and_structures(name):
    _same(_run(CASES[name], torch), _run(CASES[name], mytorch))


@loop
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    errors = []
    for L in (torch, mytorch):
        with pytest.raises((RuntimeError, TypeError, AssertionError)) as caught:
            _run(REFUSED[name], L)
        errors.append((caught.type, str(caught.value).replace("mytorch", "torch")[:50]))
    assert errors[0] == errors[1]


def test_create_graph_goes_on():
    for L in (torch, mytorch):
        x = L.tensor(X, requires_grad=True)
        J = L.autograd.functional.jacobian(lambda a: (a**3).sum(1), x, create_graph=True)
        (g,) = L.autograd.grad(J.sum(), x)
        np.testing.assert_allclose(np.asarray(g.detach()), 6 * X)


def test_gradcheck_of_real_and_complex_functions():
    x = mytorch.tensor(X, requires_grad=True)
    z = mytorch.tensor(X + 1j * X[::-1], requires_grad=True)
    for fast in (False, True):
        assert gradcheck(lambda a: (a.sin(), a.exp() * 2), (x,), fast_mode=fast)
        assert gradcheck(lambda a, b: a * b * b.conj(), (x, z), fast_mode=fast)
        assert gradcheck(lambda a: (a * a).exp(), z, fast_mode=fast)
        assert gradgradcheck(lambda a: a.sin() * a, (x,), fast_mode=fast, gen_non_contig_grad_outputs=True)
    assert gradcheck(lambda a: (a.detach() * 1, a.sin()), (x,), check_grad_dtypes=True)


def test_gradcheck_detects_wrong_gradients():
    x = mytorch.tensor(X, requires_grad=True)
    calls = []

    class Wrong(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return g * (3 if len(calls) < 3 else 2 + len(calls))

    calls.extend([1, 1, 1])
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(Wrong.apply, (x,))
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(Wrong.apply, (x,), nondet_tol=1e9)
    assert gradcheck(Wrong.apply, (x,), raise_exception=False) is False
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda a: a, (mytorch.tensor(X),))
    with pytest.raises(NotImplementedError, match="check_batched_grad"):
        gradcheck(lambda a: a, (x,), check_batched_grad=True)
    with pytest.raises(TypeError):
        gradcheck(lambda a: a, (x,), unknown=True)
