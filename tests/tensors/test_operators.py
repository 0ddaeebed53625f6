"""Operators between tensors and other objects: Python calls the reflected method, as with PyTorch."""

import operator

import pytest

import mytorch
from tests.loops import loop

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.ge,
]  # fmt: skip


class Answers:
    """Has every reflected operator."""

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = lambda self, other: "asked"
    __rmatmul__ = __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __gt__ = __le__ = __radd__


@loop
@pytest.mark.parametrize("run", OPERATORS, ids=lambda f: f.__name__)
def test_the_other_side_is_asked(torch, run):
    for library in (torch, mytorch):
        assert run(library.tensor([1, 2]), Answers()) == "asked"


@loop
@pytest.mark.parametrize("other", ["a", [1, 2], None, {}], ids=repr)
@pytest.mark.parametrize("run", OPERATORS, ids=lambda f: f.__name__)
def test_no_operand(torch, run, other):
    for library in (torch, mytorch):
        with pytest.raises(TypeError):
            run(library.tensor([1.0, 2.0]), other)


@pytest.mark.parametrize("other", ["a", [1, 2], None, (1, 2), {}], ids=repr)
def test_equal_to_no_operand(torch, other):
    for library in (torch, mytorch):
        x = library.tensor([1, 2])
        assert (x == other) is False
        assert (x != other) is True
        assert (other == x) is False


def test_a_sequence_times_a_single_number(torch):
    for library in (torch, mytorch):
        assert (1, 2) * library.tensor(2) == (1, 2, 1, 2)
