"""Views that custom functions return, hooks on the last operation of modules, anomaly mode and deep backward passes."""

import pytest

import mytorch
from mytorch import nn
from mytorch.autograd import Function
from tests.loops import loop

torch = pytest.importorskip("torch")


class AsItIs(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 10


class View(AsItIs):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)


class Part(AsItIs):
    @staticmethod
    def forward(ctx, x):
        return x[0]

    @staticmethod
    def backward(ctx, g):
        return mytorch.stack([g, g])


@loop
@pytest.mark.parametrize("function", [AsItIs, View, Part])
@pytest.mark.parametrize("recorded", [True, False])
def test_views_of_custom_functions_refuse_recorded_changes(function, recorded):
    x = mytorch.randn(2, 3, requires_grad=recorded) * 1
    out = function.apply(x)
    if recorded or function is not AsItIs:
        with pytest.raises(RuntimeError, match="view"):
            out += mytorch.ones(3, requires_grad=True)
    x = mytorch.randn(2, 3, requires_grad=recorded) * 1
    out = function.apply(x)
    if recorded:
        x *= 2
        with pytest.raises(RuntimeError, match="view"):
            _ = out * 1
    else:
        out *= 2  # nothing is recorded


def test_setup_context_receives_default_arguments():
    class Power(Function):
        @staticmethod
        def forward(x, exponent=3):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.exponent = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.exponent * x ** (ctx.exponent - 1), None

    for args, expected in (((), 12.0), ((2,), 4.0)):
        x = mytorch.tensor(2.0, requires_grad=True)
        Power.apply(x, *args).backward()
        assert x.grad.item() == expected


def test_backward_inside_backward_is_deep():
    class Deep(Function):
        @staticmethod
        def forward(ctx, x):
            with mytorch.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x < 0:
                return g
            with mytorch.enable_grad():
                Deep.apply(ctx.x).sum().backward()
            return g

    x = mytorch.tensor(300.0, requires_grad=True)
    Deep.apply(x).sum().backward()
    assert x.grad.item() == 1


@pytest.mark.parametrize("check_nan", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_anomaly_mode_finds_nan_of_custom_functions(check_nan):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, g * float("nan")

    x = mytorch.ones(2, requires_grad=True)
    out = Wrong.apply(x * 1, x * 2).sum()
    with mytorch.autograd.detect_anomaly(check_nan):
        if check_nan:
            with pytest.raises(RuntimeError, match="WrongBackward' returned nan values in its 1th output"):
                out.backward()
        else:
            out.backward()
            assert x.grad.isnan().all()


@pytest.mark.parametrize("inputs", [1, 2])
def test_backward_hooks_on_the_last_operation(inputs):
    found = []
    for library in (torch, mytorch):

        class Two(library.nn.Module):
            def forward(self, *values):
                return sum(values).exp() * 3

        calls = []
        module = Two()
        handle = module.register_backward_hook(
            lambda m, gi, go, calls=calls: calls.append(
                ([None if g is None else g.tolist() for g in gi], [g.tolist() for g in go])
            )
        )
        values = [library.tensor([0.5, -1.0]).requires_grad_() for _ in range(inputs)]
        with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
            module(*values).sum().backward()
        handle.remove()
        module(*values).sum().backward()
        found.append(calls)
    for (gi, go), (ours_in, ours_out) in zip(*found, strict=True):
        assert go == ours_out
        assert ours_in[0] == pytest.approx(gi[0])
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *args: None)
    with pytest.raises(RuntimeError, match="both regular backward hooks"):
        layer.register_backward_hook(lambda *args: None)


def test_node_hooks_return_as_many_gradients_as_they_receive():
    for result in ((), (mytorch.ones(2), mytorch.ones(2))):
        x = mytorch.ones(2, requires_grad=True)
        y = x.exp()
        y.grad_fn.register_hook(lambda inputs, outputs, result=result: result)
        with pytest.raises(RuntimeError, match=f"got {len(result)}, but expected 1"):
            y.sum().backward()


def test_powers_of_negative_numbers_with_complex_exponents():
    for base in (-1, -2.5, 3):
        exponent = mytorch.randn(2, dtype=mytorch.complex128, requires_grad=True)
        assert mytorch.autograd.gradcheck(lambda e, base=base: mytorch.pow(base, e), (exponent,))
