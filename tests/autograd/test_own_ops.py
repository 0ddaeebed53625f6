"""Mistakes in ops that a user defines: errors keep their class and point at the user's line, or name the op and what to change.

The cases are generated: mistakes x forms of an op (one to four inputs, attributes, several outputs, a kernel), since every form is
called by a separate path.
"""

import sys
import traceback
from types import ModuleType

import numpy as np
import pytest

import mytorch
from mytorch.ops.dispatch.op import op


class OwnError(Exception):
    pass


def compute(xp, work, *inputs):
    """Calls the function of a case with an array."""
    return work(xp, inputs[0])


def unary(work, **rules):
    @op(**rules)
    def own(xp, input):
        return compute(xp, work, input)

    return own, 1


def attributes(work, **rules):
    @op(**rules)
    def own(xp, input, *, beta=1.0):
        return compute(xp, work, input)

    return own, 1


def binary(work, **rules):
    @op(**rules)
    def own(xp, input, other):
        return compute(xp, work, input, other)

    return own, 2


def ternary(work, **rules):
    @op(**rules)
    def own(xp, input, weight, bias):
        return compute(xp, work, input, weight, bias)

    return own, 3


def general(work, **rules):
    @op(**rules)
    def own(xp, x, a, b, c):
        return compute(xp, work, x, a, b, c)

    return own, 4


def kernel(work, **rules):
    """An op whose kernel has the mistake."""

    @op(**rules)
    def own(xp, input):
        return input + 1

    module = ModuleType("mytorch_test_kernel")
    module.accepts = lambda input: True
    module.forward = lambda xp, input: compute(xp, work, input)
    sys.modules[module.__name__] = module
    own.register_kernel(cpu=module.__name__, cuda=module.__name__)
    module.why_not = lambda: None
    return (lambda *inputs: own(*inputs, fused=True)), 1


FORMS = unary, attributes, binary, ternary, general, kernel
forms = pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])


def inputs_of(count, requires_grad=False, dtype="float32"):
    return [
        mytorch.ones(200, dtype=getattr(mytorch, dtype)).requires_grad_(requires_grad) for _ in range(count)
    ]  # more elements than the smallest size for a kernel


def error_of(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any class
        call()
    return caught.value


def raised(error):
    def work(xp, x):
        raise error

    return work


UNCHANGED = [
    (lambda xp, x: undefined_name + x, NameError),  # noqa: F821
    (lambda xp, x: x.no_such_method(), AttributeError),
    (lambda xp, x: {}["k"], KeyError),
    (lambda xp, x: [][1], IndexError),
    (lambda xp, x: x * (1 // 0), ZeroDivisionError),
    (lambda xp, x: x * int("one"), ValueError),
    (lambda xp, x: len(3), TypeError),
    (lambda xp, x: compute(), TypeError),
    (lambda xp, x: __import__("no_such_module"), ModuleNotFoundError),
    (raised(ValueError("shape mismatch: beta must be positive")), ValueError),
    (raised(TypeError("ufunc of mine")), TypeError),
    (raised(IndexError("index 1 is out of bounds")), IndexError),
    (raised(RuntimeError("mine")), RuntimeError),
    (raised(OwnError("mine")), OwnError),
]


@forms
def test_an_error_of_the_forward_function_keeps_its_class_and_line(form):
    for work, cls in UNCHANGED:
        own, count = form(work)
        error = error_of(lambda: own(*inputs_of(count)))  # noqa: B023 - called at once
        assert type(error) is cls, error
        assert error.__cause__ is None
        assert not error.__suppress_context__
        frames = traceback.extract_tb(error.__traceback__)
        assert any(frame.filename == __file__ and frame.name in ("<lambda>", "work") for frame in frames[2:])


# Errors of NumPy about shapes, indices and dtypes, most of them from its C code.
OF_NUMPY = {
    "add": lambda xp, x: x + xp.ones(7),
    "ufunc": lambda xp, x: xp.maximum(x, xp.ones((3, 7))),
    "matmul": lambda xp, x: x @ xp.ones((3, 4)),
    "matmul of numbers": lambda xp, x: x @ xp.ones(()),
    "dot": lambda xp, x: xp.dot(xp.ones((2, 3)), xp.ones((2, 3))),
    "reshape": lambda xp, x: x.reshape(7),
    "reshape function": lambda xp, x: xp.reshape(x, (3, -1)),
    "transpose": lambda xp, x: x.transpose(0, 1),
    "axis": lambda xp, x: x.sum(axis=5),
    "axis function": lambda xp, x: xp.sum(x, axis=5),
    "duplicate axis": lambda xp, x: xp.ones((2, 2)).sum(axis=(0, 0)),
    "concatenate": lambda xp, x: xp.concatenate([x, xp.ones((2, 2))]),
    "concatenate sizes": lambda xp, x: xp.concatenate([xp.ones((2, 3)), xp.ones((2, 4))]),
    "stack": lambda xp, x: xp.stack([x, xp.ones(2)]),
    "index": lambda xp, x: x[1000],
    "indices": lambda xp, x: x[0, 0],
    "index array": lambda xp, x: x[xp.asarray([1000])],
    "float index": lambda xp, x: x[1.5],
    "mask": lambda xp, x: x[xp.ones(3, dtype=bool)],
    "assignment": lambda xp, x: x.copy().__setitem__(slice(0, 3), xp.ones(2)),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (3,)),
    "squeeze": lambda xp, x: x.squeeze(0),
    "empty": lambda xp, x: x[:0].max(),
    "argmax": lambda xp, x: x[:0].argmax(),
    "einsum": lambda xp, x: xp.einsum("ij,j", x, x),
    "where": lambda xp, x: xp.where(x > 0, x, xp.ones(3)),
    "swapaxes": lambda xp, x: x.swapaxes(0, 3),
    "split": lambda xp, x: xp.split(x, 3),
    "dtype": lambda xp, x: x.astype("no_such_dtype"),
    "zeros": lambda xp, x: xp.zeros((-1,)),
    "cast": lambda xp, x: xp.add(x, x, out=xp.zeros(200, dtype="int32")),
    "output": lambda xp, x: xp.add(x, x, out=xp.zeros(3)),
    "bits": lambda xp, x: xp.bitwise_and(x, x),
    "text": lambda xp, x: np.sqrt(np.asarray("text")),
    "take": lambda xp, x: xp.take(x, xp.asarray([1000])),
    "repeat": lambda xp, x: xp.repeat(x, xp.asarray([1, 2])),
}


@forms
def test_an_error_of_numpy_is_translated_and_stays_the_cause(form):
    for name, work in OF_NUMPY.items():
        if name in ("dot", "einsum") and mytorch.get_default_device().type != "cpu":
            continue  # the library's own products
        own, count = form(work)
        error = error_of(lambda: own(*inputs_of(count)))  # noqa: B023 - called at once
        assert type(error) in (RuntimeError, IndexError, NotImplementedError), (name, error)
        assert isinstance(error.__cause__, (ValueError, TypeError, IndexError)), (name, error)
        assert "own" in str(error) or "size of tensor" in str(error)
        assert any(frame.name == "compute" for frame in traceback.extract_tb(error.__cause__.__traceback__))


@forms
@pytest.mark.parametrize("got", ["None", "list", "tuple", "str", "set", "object"])
def test_a_forward_function_returns_one_array(form, got):
    if form is kernel and got == "None":
        pytest.skip("a kernel that returns None does not support the input, and the reference runs")
    values = {"None": None, "list": [1.0, 2.0], "tuple": (np.ones(2), np.ones(2)), "str": "text", "set": {1}}
    own, count = form(lambda xp, x: np.asarray([None]) if got == "object" else values[got])
    error = error_of(lambda: own(*inputs_of(count)))
    assert type(error) is TypeError
    assert str(error).startswith("own: expected forward to return an array")
    assert got in str(error)


def test_a_forward_function_returns_its_outputs_and_residuals():
    for rules, names in (
        ({"outputs": ("first", "second")}, 2),
        ({"residuals": ("mean",)}, 2),
        ({"outputs": ("first", "second"), "residuals": ("mean",)}, 3),
    ):
        for work in (lambda xp, x: x + 1, lambda xp, x: (x + 1,), lambda xp, x: None, lambda xp, x: (x,) * 5):
            own, _ = unary(work, **rules)
            with pytest.raises(TypeError, match="own: expected forward to return a tuple"):
                own(*inputs_of(1))
        own, _ = unary(lambda xp, x: tuple(x + i for i in range(names)), **rules)  # noqa: B023 - called at once
        out = own(*inputs_of(1))
        assert (out[1] if "outputs" in rules else out).shape == (200,)


def test_a_forward_function_may_return_numbers_and_views():
    for value in (2.0, 3, True, 1j, np.float32(2)):
        assert unary(lambda xp, x: value)[0](*inputs_of(1)).item() == value  # noqa: B023 - called at once
    for work in (lambda xp, x: x, lambda xp, x: x[:5]):
        (x,) = inputs_of(1)
        own, _ = unary(work)
        for _ in range(2):  # the first call and later ones
            own(x).add_(1)
            assert x.sum().item() == 200
        viewing, _ = unary(work, view=True)
        for i in range(2):
            viewing(x).add_(1)
            assert x[0].item() == 2 + i


CHANGES = {
    "+=": lambda xp, x: x.__iadd__(1),
    "out": lambda xp, x: xp.multiply(x, 2, out=x),
    "item": lambda xp, x: x.__setitem__(0, 5) or x,
    "sort": lambda xp, x: x.sort() or x,
}


@pytest.mark.cpu_only
@pytest.mark.parametrize("form", FORMS[:-1], ids=lambda f: f.__name__)
def test_a_change_of_an_input_in_place_is_an_error(form, request):
    if request.config.getoption("--device") != "cpu":
        pytest.skip("arrays of a GPU have no flag that forbids writing")
    for work in CHANGES.values():
        own, count = form(work)
        inputs = inputs_of(count)
        error = error_of(lambda: own(*inputs))  # noqa: B023 - called at once
        assert type(error) is RuntimeError
        assert "own: expected forward to leave its inputs unchanged" in str(error)
        assert inputs[0].sum().item() == 200
    broadcast, count = form(lambda xp, x: xp.broadcast_to(x, (2, 200)).__setitem__(0, 1))
    assert "own: expected forward to leave" not in str(error_of(lambda: broadcast(*inputs_of(count))))


@pytest.mark.parametrize("form", FORMS[:-1], ids=lambda f: f.__name__)
@dtypes
def test_an_op_without_a_gradient_raises_in_backward(form, dtype):
    own, count = form(lambda xp, x: x + x)
    inputs = inputs_of(count, True, dtype)
    out = own(*inputs)
    assert out.requires_grad
    assert not own(*inputs_of(count, False, dtype)).requires_grad
    with mytorch.no_grad():
        assert not own(*inputs).requires_grad
    match = "derivative of 'own' is not implemented"
    for create_graph in (False, True):
        with pytest.raises(NotImplementedError, match=match):
            mytorch.autograd.grad(own(*inputs).abs().sum(), inputs, create_graph=create_graph)
    other = mytorch.ones(200).requires_grad_()
    (out.detach().abs() * other).sum().backward()  # another branch of the graph
    (grad,) = mytorch.autograd.grad((own(*inputs).abs() + other).sum(), other)  # backward does not reach the op
    assert grad.sum().item() == 200

    declared, _ = form(lambda xp, x: x + x, differentiable=0)
    assert not declared(*inputs).requires_grad
    for result in (lambda xp, x: x.real < 0, lambda xp, x: (x.real > 0).astype("int64")):
        assert not form(result)[0](*inputs).requires_grad
    with pytest.raises(TypeError, match="own"):
        unary(lambda xp, x: x, differentiable=0)[0].grad(input=lambda g: g)
    with pytest.raises(TypeError, match="own"):
        unary(lambda xp, x: x, differentiable=0)[0].vjp(lambda g: (g,))


def test_transforms_of_an_op_without_a_gradient_raise():
    own, _ = unary(lambda xp, x: x + x)
    x = mytorch.ones(3, 4)
    func = mytorch.func
    for call in (
        lambda: func.grad(lambda v: own(v).sum())(x),
        lambda: func.jvp(own, (x,), (x,)),
        lambda: func.vmap(func.grad(lambda v: own(v).sum()))(x),
        lambda: func.jacrev(own)(x),
        lambda: func.jacfwd(own)(x),
    ):
        with pytest.raises(NotImplementedError, match="derivative of 'own' is not implemented"):
            call()
    assert func.vmap(own)(x).sum().item() == 24
    assert func.vmap(func.jacrev(unary(lambda xp, x: x + x, differentiable=0)[0]))(x).abs().sum().item() == 0


def test_a_gradient_that_is_set_after_a_call_counts():
    for form in FORMS[:-1]:
        own, count = form(lambda xp, x: x + x)
        own(*inputs_of(count, True))  # prepares a plan
        name = own.inputs[0]
        own.grad(**{name: lambda g: g * 2})
        x, *others = inputs_of(count, True)
        own(x, *others).sum().backward()
        assert x.grad.tolist() == [2.0] * 200
        own.vjp(lambda g: (g * 3,) + (None,) * (count - 1))  # noqa: B023 - called at once
        x.grad = None
        own(x, *others).sum().backward()
        assert x.grad.tolist() == [3.0] * 200


WRONG = {
    "too short": lambda g: g[:2],
    "transposed": lambda g: g.reshape(50, 4),
    "fewer axes": lambda g: g.sum(),
    "another axis": lambda g: g[:, 0],
}


@pytest.mark.parametrize("form", FORMS[:-1], ids=lambda f: f.__name__)
def test_a_gradient_of_a_wrong_shape_names_the_op_and_the_input(form):
    for formula in WRONG.values():
        for by_vjp in (False, True):
            own, count = form(lambda xp, x: x + x)
            last, name = count - 1, own.inputs[count - 1]
            if by_vjp:
                own.vjp(lambda g: (*[g] * last, formula(g)))  # noqa: B023 - called at once
            else:
                own.grad(**{name: formula})
            x = [mytorch.ones(4, 50).requires_grad_() for _ in range(count)]
            for inputs in (x, x[:1] * count):  # also the same tensor for all inputs
                for create_graph in (False, True):
                    with pytest.raises(RuntimeError) as caught:
                        mytorch.autograd.grad(own(*inputs).sum(), inputs, create_graph=create_graph)
                    text = str(caught.value)
                    assert (
                        f"Function OwnBackward (own, input '{name}') returned an invalid gradient at index {last}"
                        in text
                    )
                    assert text.endswith("expected shape compatible with [4, 50]")


def test_a_gradient_that_is_no_array_is_an_error():
    own, _ = unary(lambda xp, x: x + x)
    (x,) = inputs_of(1, True)
    for value in (2.0, [1.0], "text"):
        own.grad(input=lambda g: value)  # noqa: B023 - called at once
        with pytest.raises(TypeError, match=r"own, input 'input'.*expected an array as gradient"):
            own(x).sum().backward()
    own.vjp(lambda g: g * 2)
    for create_graph in (False, True):
        with pytest.raises(TypeError, match="own: expected its vjp to return a tuple"):
            mytorch.autograd.grad(own(x).sum(), x, create_graph=create_graph)


def test_a_gradient_may_have_the_shape_of_the_result():
    own, _ = binary(lambda xp, x: x + x)
    own.grad(other=lambda g: g * 2)
    for shape in ((1,), (4, 1), (1, 50), (4, 50)):
        y = mytorch.ones(shape).requires_grad_()
        own(mytorch.ones(4, 50), y).sum().backward()
        assert y.grad.shape == shape
        assert y.grad.sum().item() == 400


def test_a_forward_function_without_parameters_is_refused():
    with pytest.raises(TypeError, match=r"expected a forward function with the parameters \(xp, input"):

        @op()
        def own():
            return 1


def _scaled(x, factor=3.0, shift=1.0):
    return x * factor + shift


@pytest.mark.parametrize("form", ["custom_op", "define", "Library"])
@pytest.mark.parametrize("arguments", [(), (2.0,), (2.0, 0.5)])
def test_operators_of_torch_library(form, arguments, torch, request):
    """The three ways to define one give PyTorch's results, gradients and shapes on the meta device."""
    name = f"{form.lower()}_{len(arguments)}"

    def run(L):
        tensor, qualified = L.Tensor, f"mt_own_ops::{name}"
        schema = "(Tensor x, float factor=3.0, float shift=1.0) -> Tensor"

        def scaled(x, factor=3.0, shift=1.0):
            return _scaled(x, factor, shift)

        def backward(ctx, grad):
            return grad * ctx.factor, None, None

        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]

        if form == "custom_op":
            scaled.__annotations__ = {"x": tensor, "factor": float, "shift": float, "return": tensor}
            L.library.custom_op(qualified, scaled, mutates_args=())
        elif form == "define":
            L.library.define(qualified, schema)
            L.library.impl(qualified, "cpu", scaled)
        else:
            library = L.library.Library("mt_own_ops", "FRAGMENT")
            request.addfinalizer(library._destroy)
            library.define(name + schema)
            library.impl(name, scaled, "CPU")
        L.library.register_fake(qualified, lambda x, factor=3.0, shift=1.0: L.empty_like(x))
        L.library.register_autograd(qualified, backward, setup_context=setup_context)
        op = getattr(L.ops.mt_own_ops, name)
        x = L.arange(6.0).reshape(2, 3).requires_grad_()
        result = op(x, *arguments)
        result.sum().backward()
        far = op(L.empty(4, 0, 3, device="meta"), *arguments)
        again = op.default(x.detach(), *arguments)
        return result.tolist(), x.grad.tolist(), again.tolist(), again.requires_grad, tuple(far.shape), far.device.type

    assert run(mytorch) == run(torch)


CALLS_BY_SCHEMA = {
    "defaults of the function": lambda op, x: op(x),
    "positions": lambda op, x: op(x, 2),
    "names": lambda op, x: op(x, k=2, s=1.0),
    "a list": lambda op, x: op(x, q=[5]),
    "too many": lambda op, x: op(x, 2, 3.0),
    "missing": lambda op, x: op(k=2),
    "unknown": lambda op, x: op(x, other=2),
    "twice": lambda op, x: op(x, x=x),
}


@pytest.mark.parametrize("call", CALLS_BY_SCHEMA)
def test_schemas_of_operators(call, torch):
    """The arguments of a call are those of the schema."""

    def run(L):
        name = f"mt_schemas::f{list(CALLS_BY_SCHEMA).index(call)}"
        L.library.define(name, "(Tensor x, int k=3, *, float s=2.5, str m='a,b', int[] q=[1, 2]) -> Tensor")
        L.library.impl(name, "cpu", lambda x, k=3, *, s=2.5, m="a,b", q=(1, 2): x * k * s + len(m) + sum(q))
        try:
            return CALLS_BY_SCHEMA[call](getattr(L.ops.mt_schemas, name[12:]), L.arange(3.0)).tolist()
        except RuntimeError as error:
            return type(error).__name__

    assert run(mytorch) == run(torch)


@pytest.mark.cpu_only
def test_operators_for_some_devices_and_for_batches(torch):
    """`device_types`, `register_vmap`, and a gradient that is registered before the implementation."""

    def run(L):
        results = []
        typed = {"x": L.Tensor, "return": L.Tensor}

        def far(x):
            return x + 1

        def near(x):
            return L.from_numpy(x.detach().numpy() * 2)

        far.__annotations__ = near.__annotations__ = typed
        on_gpu = L.library.custom_op("mt_devices::far", far, mutates_args=(), device_types="cuda")
        with pytest.raises(NotImplementedError):
            on_gpu(L.ones(2))
        on_gpu.register_kernel("cpu")(lambda x: x + 2)
        results.append(on_gpu(L.ones(2)).tolist())

        doubled = L.library.custom_op("mt_devices::near", near, mutates_args=())
        L.library.register_vmap(
            doubled, lambda info, dims, x: (L.from_numpy(x.detach().numpy() * info.batch_size), dims[0])
        )
        x = L.arange(6.0).reshape(2, 3)
        results += [L.func.vmap(doubled)(x).tolist(), L.func.vmap(doubled, 1, 1)(x).tolist(), doubled(x).tolist()]

        L.library.define("mt_devices::late", "(Tensor x) -> Tensor")
        L.library.register_autograd("mt_devices::late", lambda ctx, g: g * 3)
        L.library.impl("mt_devices::late", "cpu", lambda x: x.clone() * 2)
        y = L.arange(3.0).requires_grad_()
        L.ops.mt_devices.late(y).sum().backward()
        return [*results, y.grad.tolist()]

    assert run(mytorch) == run(torch)


def test_rules_for_one_class_are_refused():
    """A rule that would never be called is an error, not ignored."""
    double = mytorch.library.custom_op("rules::double", mutates_args=())(lambda x: x * 2)
    with pytest.raises(NotImplementedError, match="__torch_dispatch__"):
        double.register_torch_dispatch(object, lambda *args: None)
    with pytest.raises(NotImplementedError, match="__torch_dispatch__"):
        mytorch.library.register_torch_dispatch("rules::double", object)
