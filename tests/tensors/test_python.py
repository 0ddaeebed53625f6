"""Tensors among Python's own objects: numbers, indices, containers, against PyTorch."""

import pytest

import mytorch
from tests.loops import loop

USES = {
    "float of several": lambda t: float(t.tensor([1.0, 2.0])),
    "int of none": lambda t: int(t.tensor([])),
    "index of several": lambda t: [1, 2][t.tensor([0, 1])],
    "index of a fraction": lambda t: [1, 2][t.tensor(1.0)],
    "index": lambda t: [1, 2][t.tensor([1])],
    "bool as index": lambda t: [1, 2][t.tensor(True)],
    "contains a number": lambda t: 2 in t.tensor([1, 2]),
    "contains None": lambda t: None in t.tensor([1, 2]),
    "contains a word": lambda t: "a" in t.tensor([1, 2]),
    "truth of several": lambda t: bool(t.tensor([1, 2])),
    "length of none": lambda t: len(t.tensor(1)),
    "item of several": lambda t: t.tensor([1, 2]).item(),
}


@loop
@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_as_in_pytorch(torch, use):
    try:
        expected = use(torch)
    except Exception as error:  # mytorch must raise the same errors as PyTorch
        with pytest.raises(type(error)):
            use(mytorch)
    else:
        assert use(mytorch) == expected
