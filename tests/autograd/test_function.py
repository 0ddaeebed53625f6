"""Function, checkpointing, second derivatives, functional derivatives."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import mytorch
import mytorch.nn.functional as F
from mytorch.autograd import Function, functional, gradcheck, gradgradcheck, once_differentiable
from mytorch.utils.checkpoint import checkpoint
from tests.loops import loop


def leaf(*shape, low=None):
    x = mytorch.randn(*shape, dtype=mytorch.float64)
    return (x.abs() + low if low else x).detach().requires_grad_()


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class ProductAndExp(Function):
    @staticmethod
    def forward(ctx, x, y, scale):
        e = x.exp()
        ctx.save_for_backward(x, y, e)
        ctx.scale = scale
        return x * y * scale, e

    @staticmethod
    def backward(ctx, g, h):
        x, y, e = ctx.saved_tensors
        return g * y * ctx.scale + h * e, g * x * ctx.scale, None


def test_function_first_and_second_derivative():
    x, y = leaf(3), leaf(3)
    assert gradcheck(Cube.apply, (x,))
    assert gradgradcheck(Cube.apply, (x,))
    assert gradcheck(lambda x, y: ProductAndExp.apply(x, y, 2.0), (x, y))
    assert gradgradcheck(lambda x, y: ProductAndExp.apply(x, y, 2.0), (x, y))


def test_function_frees_without_gc():
    gc.collect()
    gc.disable()
    try:
        y = ProductAndExp.apply(leaf(3), leaf(3), 1.0)[1]
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_needs_input_grad_and_wrong_number_of_gradients():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x, y):
            assert ctx.needs_input_grad == (True, False)
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Bad.apply(leaf(2), mytorch.ones(2)).sum().backward()


def test_setup_context_style():
    class Double(Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    assert gradcheck(Double.apply, (leaf(3),))


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2

    x = leaf(3)
    Once.apply(x).sum().backward()
    (g,) = mytorch.autograd.grad(Once.apply(x * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_a_function_that_is_differentiable_once_is_not_left_out_of_second_derivatives():
    """The gradient depends on the input, which forward did not save, and on no tensor that requires gradients."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x, saves):
            ctx.x = x.detach()
            if saves:
                ctx.save_for_backward(ctx.x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.x, None

    for saves in (False, True):
        for inner in (lambda x: x, lambda x: x * 2):
            x = leaf(3)
            y = Square.apply(inner(x), saves) + x**3
            (g,) = mytorch.autograd.grad(y, x, mytorch.ones_like(x), create_graph=True)
            with pytest.raises(RuntimeError, match="once_differentiable"):
                g.sum().backward()


def test_straight_through():
    class Sign(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(4)
    up = mytorch.randn(4, dtype=mytorch.float64)
    Sign.apply(x).backward(up)
    np.testing.assert_array_equal(np.asarray(x.grad), up.numpy())


@pytest.mark.cpu_only
def test_checkpoint_repeats_dropout():
    model = mytorch.nn.Sequential(mytorch.nn.Linear(3, 8), mytorch.nn.Dropout(0.5), mytorch.nn.Linear(8, 2)).double()
    x = leaf(5, 3)
    results = []
    for run in (model, lambda t: checkpoint(model, t)):
        mytorch.manual_seed(7)
        x.grad = None
        model.zero_grad()
        run(x).square().sum().backward()
        results.append([np.asarray(x.grad).copy(), *(np.asarray(p.grad).copy() for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_checkpoint_of_a_constant_input_still_trains():
    layer = mytorch.nn.Linear(3, 2)
    checkpoint(layer, mytorch.randn(4, 3)).sum().backward()
    assert layer.weight.grad is not None


SECOND = {
    "softmax": (lambda z: F.softmax(z, -1), (3, 5)),
    "log_softmax": (lambda z: F.log_softmax(z, -1), (3, 5)),
    "gelu": (F.gelu, (3, 5)),
    "silu": (F.silu, (3, 5)),
    "layer_norm": (lambda z: F.layer_norm(z, (5,)), (3, 5)),
    "rms_norm": (lambda z: F.rms_norm(z, (5,)), (3, 5)),
    "cross_entropy": (lambda z: F.cross_entropy(z, mytorch.tensor([0, 2, 4]), label_smoothing=0.1), (3, 5)),
    "attention": (lambda z: F.scaled_dot_product_attention(z, z * 2, z + 1, is_causal=True), (4, 5)),
    "embedding": (lambda z: F.embedding(mytorch.tensor([[0, 1], [2, 0]]), z), (3, 5)),
    "norm": (lambda z: z.norm(dim=1), (3, 5)),
    "max": (lambda z: z.max(1).values, (3, 5)),
    "index": (lambda z: z[[0, 1, 0]], (3, 5)),
    "matmul": (lambda z: z @ z.T, (3, 5)),
    "chunk": (lambda z: z.chunk(2)[0] * z.chunk(2)[1], (4, 5)),
}


@loop
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name):
    function, shape = SECOND[name]
    assert gradgradcheck(function, (leaf(*shape),))


def test_second_derivative_through_kernels(torch):
    """float32 ops that ran by a compiled kernel are differentiated twice by their reference."""
    x = np.random.randn(40, 64).astype(np.float32)
    w = np.random.randn(64).astype(np.float32)
    results = []
    for lib in (mytorch, torch):
        a, b = lib.tensor(x, requires_grad=True), lib.tensor(w, requires_grad=True)
        f = lib.nn.functional
        out = f.gelu(f.layer_norm(a, (64,), b)).softmax(-1)
        (g,) = lib.autograd.grad((out * out).sum(), a, create_graph=True)
        (g * g).sum().backward()
        results.append((np.asarray(a.grad), np.asarray(b.grad)))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=1e-4 * np.abs(theirs).max())


def test_functional(torch):
    x = np.random.randn(3)

    def f(lib):
        return lambda t: (t**3).sum() * t

    for name in ("jacobian",):
        mine = getattr(functional, name)(f(mytorch), mytorch.tensor(x))
        theirs = getattr(torch.autograd.functional, name)(f(torch), torch.tensor(x))
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-10)
    mine = functional.hessian(lambda t: (t**4).sum() * t[0], mytorch.tensor(x))
    theirs = torch.autograd.functional.hessian(lambda t: (t**4).sum() * t[0], torch.tensor(x))
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-10)
    v = np.random.randn(3)
    for name in ("vjp", "jvp"):
        mine = getattr(functional, name)(f(mytorch), mytorch.tensor(x), mytorch.tensor(v))
        theirs = getattr(torch.autograd.functional, name)(f(torch), torch.tensor(x), torch.tensor(v))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_mark_dirty_errors(torch):
    """An input marked as dirty must be returned. If it is a view, it must be the only output. Both libraries agree."""

    def outcome(L, forward, of_view=False):
        class Changed(L.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                return forward(ctx, a, b)

            @staticmethod
            def backward(ctx, *grads):
                return grads[0], grads[0]

        a = L.ones(2, requires_grad=True).clone()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                Changed.apply(a.view_as(a) if of_view else a, L.ones(2, requires_grad=True))
            except RuntimeError:
                return "refused"
        return len(seen)

    def not_returned(ctx, a, b):
        ctx.mark_dirty(a.add_(b))
        return a.clone()

    def no_input(ctx, a, b):
        c = a * b
        ctx.mark_dirty(c)
        return c

    def two(ctx, a, b):
        ctx.mark_dirty(a.add_(b))
        return a, a + b

    for case in ((not_returned,), (no_input,), (two,), (two, True)):
        assert outcome(mytorch, *case) == outcome(torch, *case)


def test_gradient_of_an_output_that_has_none_is_not_made_up():
    """Tests `_materialize_non_diff_grads`. The node shows the content of its context, and its class is specific to the function."""

    class Two(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx._materialize_non_diff_grads, ctx.word = False, "kept"
            first, second = x.clone(), x.clone()
            ctx.mark_non_differentiable(second)
            return first, second

        @staticmethod
        def backward(ctx, g, none):
            assert none is None
            return g

    out = Two.apply(mytorch.ones(2, requires_grad=True))[0]
    assert out.grad_fn.word == "kept"
    assert type(out.grad_fn) is Two._backward_cls
    out.sum().backward()


def test_a_node_can_be_called():
    y = mytorch.full((2,), 3.0, requires_grad=True) ** 2
    assert y.grad_fn(mytorch.ones(2)).tolist() == [6.0, 6.0]
    with pytest.raises(TypeError, match=r"expected 1 arguments, got 2 instead"):
        y.grad_fn(mytorch.ones(2), mytorch.ones(2))


def test_materialized_gradients_can_be_differentiated():
    x, a = (mytorch.tensor(v, requires_grad=True) for v in (0.5, 1.0))
    first = mytorch.autograd.grad(x * a, x, create_graph=True)
    second = mytorch.autograd.grad(first, x, create_graph=True, materialize_grads=True)
    assert mytorch.autograd.grad(second, x, materialize_grads=True)[0].item() == 0.0
    with pytest.raises(RuntimeError, match="floating point"):
        x.data = mytorch.tensor(3)


def test_checkpoint_lists_its_ops_with_debug():
    calls = []

    def varying(x):
        calls.append(x)
        return x.sin().exp() if len(calls) == 1 else x.sin() * mytorch.ones(2)

    out = checkpoint(varying, leaf(1), use_reentrant=False, debug=True)
    with pytest.raises(
        RuntimeError, match=r"(?s)different metadata.*passed `debug=True`.*forward:\n  sin\(\(1,\)\)\n  exp.*again:"
    ):
        out.sum().backward()
    calls.clear()
    with mytorch.utils.checkpoint.set_checkpoint_debug_enabled(False):
        out = checkpoint(varying, leaf(1), use_reentrant=False, debug=True)
    with pytest.raises(RuntimeError, match="different metadata") as error:
        out.sum().backward()
    assert "debug" not in str(error.value)


def test_a_target_behind_which_nothing_is_wanted_does_not_run():
    a = leaf(2)
    b = a * 2
    counts = []
    b.grad_fn.register_hook(lambda *args: counts.append(1))
    mytorch.autograd.grad((b * 3).sum(), b, retain_graph=True)
    assert not counts
    mytorch.autograd.grad((b * 3).sum(), (a, b))
    assert counts == [1]
