"""Operators between tensors of every dtype, 0-d tensors and numbers, against PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")
OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "&": lambda a, b: a & b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "==": lambda a, b: a == b, "<": lambda a, b: a < b,
}  # fmt: skip


def values(x):
    if "bfloat16" in str(x.dtype):
        x = x.float()
    return x.numpy()


def same(theirs, ours, exactly=True):
    assert str(theirs.dtype).split(".")[1] == ours.dtype.name
    np.testing.assert_allclose(values(ours), values(theirs), rtol=1e-6 if exactly else 1e-2)


@loop
@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("number", [2, 2.5, True, 3j, -1, 0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_number_on_either_side(torch, symbol, number, dtype):
    run = OPERATORS[symbol]
    for order in ((lambda x: run(x, number)), (lambda x: run(number, x))):
        try:
            theirs = order(torch.tensor([1, 2, 1]).to(getattr(torch, dtype)))
        except (RuntimeError, TypeError):
            continue  # PyTorch raises an error
        if theirs.dtype is torch.complex32:  # which NumPy has not
            continue
        same(theirs, order(mytorch.tensor([1, 2, 1]).to(getattr(mytorch, dtype))), exactly="float16" not in dtype)


@loop
@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("symbol", OPERATORS)
def test_every_pair_of_dtypes(torch, symbol, first, second):
    run = OPERATORS[symbol]
    for other in ([1, 1, 1], 1):
        try:
            theirs = run(
                torch.tensor([1, 2, 1]).to(getattr(torch, first)), torch.tensor(other).to(getattr(torch, second))
            )
        except (RuntimeError, TypeError):
            continue
        if theirs.dtype is torch.complex32:
            continue
        ours = run(
            mytorch.tensor([1, 2, 1]).to(getattr(mytorch, first)), mytorch.tensor(other).to(getattr(mytorch, second))
        )
        same(theirs, ours, exactly="16" not in first + second)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "bfloat16", "float32"])
def test_xlogy_of_a_number_keeps_the_dtype(torch, dtype):
    theirs = torch.xlogy(torch.tensor([1, 2, 0]).to(getattr(torch, dtype)), 2)
    same(theirs, mytorch.xlogy(mytorch.tensor([1, 2, 0]).to(getattr(mytorch, dtype)), 2), exactly="16" not in dtype)


def test_xlog1py_keeps_the_digits_of_small_numbers(torch, rng):
    values = np.float32(10.0) ** rng.uniform(-12, 2, 64).astype(np.float32) * rng.choice([-1, 1], 64).astype(np.float32)
    values[:4], factors = [-1, 0, np.nan, np.inf], rng.standard_normal(64).astype(np.float32)
    factors[:8] = 0

    def call(lib):
        x, y = (lib.tensor(a, requires_grad=True) for a in (factors, values))
        out = lib.special.xlog1py(x, y)
        out.backward(lib.tensor(factors[::-1].copy()))
        return out.detach(), x.grad, y.grad

    for theirs, mine in zip(call(torch), call(mytorch), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_integers_to_negative_powers(torch):
    base, power = [0, 1, -1, -1, 2, 3], [-1, -2, -3, -4, -1, 2]
    same(torch.tensor(base) ** torch.tensor(power), mytorch.tensor(base) ** mytorch.tensor(power))
    with pytest.raises(RuntimeError, match="negative integer powers"):
        mytorch.tensor(base) ** -1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_signbit_of_a_single_number(dtype):
    assert mytorch.signbit(mytorch.tensor(-1.0).to(getattr(mytorch, dtype))).item() is True


@pytest.mark.cpu_only  # a GPU returns numbers, because a check for zeros would wait for the GPU
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integers_by_zero(torch, name):
    for library in (torch, mytorch):
        for divisor in (0, library.tensor([1, 0, 2])):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                getattr(library, name)(library.tensor([1, 2, 3]), divisor)
        assert getattr(library, name)(library.tensor([], dtype=library.int64), 0).numel() == 0


@loop
@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_left_shift", "gcd", "floor_divide", "remainder", "fmod", "sub"]
)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_operations_that_a_dtype_lacks(torch, name, dtype):
    try:
        getattr(torch, name)(*[torch.ones(2, dtype=getattr(torch, dtype))] * 2)
    except RuntimeError as error:
        if dtype != "bool" or name == "sub":  # NumPy takes bools for small integers
            with pytest.raises(
                RuntimeError, match="Subtraction" if "Subtraction" in str(error) else f'"{name}".*{dtype}'
            ):
                getattr(mytorch, name)(*[mytorch.ones(2, dtype=getattr(mytorch, dtype))] * 2)
