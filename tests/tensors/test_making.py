"""Tensors from Python and NumPy numbers: dtypes and overflow, compared with PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

DATA = [
    "1", "1.5", "True", "2j", "[1, 2.5]", "[True, 2]", "[[1, 2], [3, 4.5]]", "[]", "[[], []]", "(1, 2)", "range(4)",
    "[np.float32(2)]", "[np.float64(1), 2]", "[np.float32(1), np.float64(2)]", "[1, np.float64(2)]", "[np.bool_(True)]",
    "[t.tensor(1.0), t.tensor(2)]", "[t.tensor(1), 2.5]", "[[t.tensor(1.0)], [2]]", "[t.tensor(True), t.tensor(2j)]",
    "np.int16(3)", "np.ones(2, 'uint16')", "[np.array([1.0, 2]), np.array([3, 4])]",
    "2**63", "[2**63]", "2j, dtype=t.float64", "2j, dtype=t.int32", "2**40, dtype=t.int32", "300, dtype=t.int8",
    "-1, dtype=t.uint8", "-300, dtype=t.uint8", "1.7, dtype=t.int64", "[1, 0, 2], dtype=t.bool", "2j, dtype=t.bool",
]  # fmt: skip


@loop
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("data", DATA)
def test_tensor(torch, data):
    make = f"t.tensor({data})"
    try:
        theirs = eval(make, {"t": torch, "np": np})
    except (RuntimeError, TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            eval(make, {"t": mytorch, "np": np})
        return
    ours = eval(make, {"t": mytorch, "np": np})
    assert ours.dtype.name == str(theirs.dtype).split(".")[1]
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_python_types_are_dtypes(torch, kind):
    theirs, ours = torch.ones(2, dtype=kind), mytorch.ones(2, dtype=kind)
    assert ours.dtype.name == str(theirs.dtype).split(".")[1]
    assert mytorch.ones(2).to(kind).dtype is ours.dtype
