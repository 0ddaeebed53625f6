"""Numbers that do not fit the dtype of a tensor: PyTorch converts some and refuses the others, and so do we."""

import math

import pytest

import mytorch
from tests.loops import loop

NUMBERS = [
    300, -200, -1, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 1.5, -1.5, 7e4, 1e39, -1e300, math.nan, math.inf, True, 2 + 3j,
    255, 256, 127, 128, -128, -129, -255, -256,
]  # fmt: skip
DTYPES = ["int8", "uint8", "bool", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
CALLS = {
    "full": lambda L, x, v: L.full((2,), v, dtype=x.dtype),
    "full_like": lambda L, x, v: L.full_like(x, v),
    "new_full": lambda L, x, v: x.new_full((2,), v),
    "fill_": lambda L, x, v: x.fill_(v),
    "masked_fill": lambda L, x, v: x.masked_fill(mask(L), v),
    "index_fill": lambda L, x, v: x.index_fill(0, L.tensor([0, 2]), v),
    "setitem": lambda L, x, v: x.__setitem__(slice(1, 3), v) or x,
    "where": lambda L, x, v: L.where(mask(L), x, v),
    "where, first": lambda L, x, v: L.where(mask(L), v, x),
    "clamp": lambda L, x, v: x.clamp(min=v),
    "clamp_max": lambda L, x, v: x.clamp(max=v),
    "add": lambda L, x, v: x + v,
    "add_": lambda L, x, v: x.add_(v),
    "eq": lambda L, x, v: x == v,
    "alpha": lambda L, x, v: x.add(x, alpha=v),
    "index_add": lambda L, x, v: x.index_add(0, L.tensor([0, 2]), x[:2], alpha=v),
    "scatter": lambda L, x, v: x.scatter(0, L.tensor([0, 2]), v),
    "tensor": lambda L, x, v: L.tensor([1, v], dtype=x.dtype),
    "addcmul": lambda L, x, v: L.addcmul(x, x, x, value=v),
}
FILLS = {"full", "full_like", "new_full", "fill_", "masked_fill", "index_fill"}
ARITHMETIC = {"clamp", "clamp_max", "add", "add_", "eq", "alpha", "addcmul", "where", "where, first"}
DIFFERENT = {  # functions that PyTorch does not implement for bool or complex numbers, and float16 with complex32
    ("clamp", "bool"), ("clamp", "complex64"), ("clamp_max", "bool"), ("clamp_max", "complex64"), ("addcmul", "bool"),
    ("alpha", "bool"), ("index_add", "bool"),
}  # fmt: skip


def mask(L):
    return L.tensor([True, False, True])


def result(L, call, dtype, number):
    """Returns (dtype, elements), or True for an error."""
    try:
        out = call(L, L.tensor([0, 1, 2]).to(getattr(L, dtype)), number)
    except (RuntimeError, OverflowError, TypeError, ValueError):
        return True
    return str(out.dtype).split(".")[1], str(out.tolist())


@loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_pytorch_converts_the_same_numbers(torch, name, dtype):
    if (name, dtype) in DIFFERENT:
        pytest.skip("PyTorch does not implement it")
    for number in NUMBERS:
        if name in ARITHMETIC and not abs(number) < 6e4 and ("float" in dtype or "complex" in dtype):
            continue  # infinity here, which PyTorch refuses for some
        if isinstance(number, complex) and (name in ("clamp", "clamp_max") or dtype == "float16"):
            continue
        if number in (2**63, 10**30, -(10**30)) and name not in FILLS:
            continue  # ints of more than 64 bits, for which PyTorch's errors depend on the function
        want, got = (result(L, CALLS[name], dtype, number) for L in (torch, mytorch))
        assert got == want, number


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bool", "float16"])
def test_draws_of_integers_fit_the_dtype(torch, dtype):
    for low, high in [
        (0, 300),
        (-200, 3),
        (0, 256),
        (0, 257),
        (-128, 128),
        (0, 2),
        (-1, 1),
        (0, 2**40),
        (2**40, 2**41),
    ]:
        outcomes = []
        for L in (torch, mytorch):
            try:
                L.manual_seed(0)
                outcomes.append(L.randint(low, high, (4,), dtype=getattr(L, dtype)).tolist())
            except RuntimeError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1], (low, high)
