"""Half precision is computed in float32 and rounded once, as PyTorch does: forwards, gradients, and Python numbers that half can't hold."""

import itertools

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cpu_only  # where PyTorch computes so; a GPU rounds as CuPy does
NUMBERS = (0.1, -3.3, 7, 1e5, 3e-6)
BINARY = {
    "x * s": lambda L, x, s: x * s,
    "s * x": lambda L, x, s: s * x,
    "x / s": lambda L, x, s: x / s,
    "x + s": lambda L, x, s: x + s,
    "s - x": lambda L, x, s: s - x,
    "x * 0-d": lambda L, x, s: x * L.tensor(float(s)),
    "x / 0-d": lambda L, x, s: x / L.tensor(float(s)),
    "leaky_relu": lambda L, x, s: L.nn.functional.leaky_relu(x, s),
    "elu": lambda L, x, s: L.nn.functional.elu(x, s),
    "softshrink": lambda L, x, s: L.nn.functional.softshrink(x, min(abs(s), 100)),
    "softplus": lambda L, x, s: L.nn.functional.softplus(x, abs(s)),
}
UNARY = ("silu", "mish", "hardswish", "hardsigmoid", "selu", "tanh")


def both(run, raw, dtype):
    """Result and gradient of `run(library, x)` in each library, as float64."""
    found = []
    for L in (torch, mytorch):
        x = L.tensor(raw).to(getattr(L, dtype)).requires_grad_()
        out = run(L, x)
        assert str(out.dtype).endswith(dtype)
        out.backward(L.tensor(np.sin(raw) + 0.5).to(getattr(L, dtype)))
        found.append([t.detach().double().numpy() for t in (out, x.grad)])
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BINARY)
def test_numbers_meet_half_precision_as_in_pytorch(name, dtype):
    raw = np.random.default_rng(0).standard_normal((7, 11)).astype(np.float32) * 2
    for number in NUMBERS:
        (out, grad), (mine, my_grad) = both(lambda L, x, s=number: BINARY[name](L, x, s), raw, dtype)
        np.testing.assert_array_equal(mine, out, err_msg=f"{number}")
        np.testing.assert_allclose(my_grad, grad, rtol=2e-2 if dtype == "bfloat16" else 2e-3, err_msg=f"{number}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
def test_activations_of_half_precision_are_rounded_once(name, dtype):
    raw = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32) * 2
    run = lambda L, x: getattr(L.nn.functional, name)(x)  # noqa: E731
    mine, _ = both(run, raw, dtype)[1]
    half = torch.tensor(raw).to(getattr(torch, dtype))
    exact = getattr(torch.nn.functional, name)(half.double())
    error = np.abs(mine - exact.numpy()) / np.maximum(np.abs(exact.numpy()), 1e-2)
    assert error.max() <= {"float16": 2**-11, "bfloat16": 2**-8}[dtype] * 1.01


def test_a_product_of_half_precision_with_a_number_beyond_it():
    x = mytorch.tensor([1e-5, 100.0], dtype=mytorch.float16)
    ref = torch.tensor([1e-5, 100.0], dtype=torch.float16)
    assert (x * 1e5).tolist() == (ref * 1e5).tolist()
    assert (x / 1e5).tolist() == (ref / 1e5).tolist()


def test_several_dtypes_are_promoted():
    for kinds in itertools.product(("bfloat16", "float32"), repeat=3):
        ours, theirs = ([lib.ones(3, dtype=getattr(lib, kind)) for kind in kinds] for lib in (mytorch, torch))
        for name in ("addcmul", "addcdiv"):
            out, want = getattr(mytorch, name)(*ours), getattr(torch, name)(*theirs)
            assert str(out.dtype).split(".")[1] == str(want.dtype).split(".")[1], (name, kinds)


IN_PLACE = (
    "__imul__",
    "__itruediv__",
    "__ifloordiv__",
    "__iadd__",
    "__isub__",
    "mul_",
    "div_",
    "floor_divide_",
    "add_",
)
WITH_NUMBER = {
    **{
        name: lambda L, x, s, name=name: getattr(x.clone(), name)(s) for name in (*IN_PLACE, "mul", "div", "add", "sub")
    },
    "x // s": lambda L, x, s: x // s,
    "s // x": lambda L, x, s: s // x,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_beyond_half_precision_in_any_form_of_an_op(dtype):
    names = np.random.default_rng(2).permutation(list(WITH_NUMBER)).tolist()
    for name, s, size in itertools.product(names, (0.1, 1e5, 1e-9, -7.3, 70000, 1e39), ((), (4,))):
        values = np.array([1e-5, 0.3, 100.0, -6e4], np.float32)
        mine, want = (
            WITH_NUMBER[name](L, L.tensor(values if size else values[0]).to(getattr(L, dtype)), s).double().numpy()
            for L in (mytorch, torch)
        )
        np.testing.assert_array_equal(mine, want, err_msg=f"{name} {s} {size}")


def test_a_factor_beyond_half_precision_is_an_error():
    for name, L in itertools.product(("add", "sub"), (torch, mytorch)):
        x = L.ones(2, dtype=L.float16)
        with pytest.raises(RuntimeError, match="without overflow"):
            getattr(L, name)(x, x, alpha=1e5)
