"""Frequent mistakes raise what they raise in PyTorch, and the message names the numbers."""

import re

import pytest

import mytorch

SHAPES = {
    "add": lambda t: t.ones(2, 3) + t.ones(4),
    "mul": lambda t: t.ones(2, 3) * t.ones(3, 2),
    "where": lambda t: t.where(t.tensor([True, False]), t.ones(3), t.ones(3)),
    "masked_fill": lambda t: t.ones(2, 3).masked_fill(t.tensor([True, False]), 1),
    "lerp": lambda t: t.ones(2, 3).lerp(t.ones(2, 3), t.ones(4)),
    "addcmul": lambda t: t.ones(2, 3).addcmul(t.ones(2, 3), t.ones(4)),
    "mse_loss": lambda t: t.nn.functional.l1_loss(t.ones(2, 3), t.ones(2, 5)),
    "add_": lambda t: t.ones(2, 3).add_(t.ones(4, 1, 3)),
    "matmul": lambda t: t.ones(2, 3) @ t.ones(2, 3),
    "view": lambda t: t.ones(2, 3).view(4),
    "cat": lambda t: t.cat([t.ones(2, 3), t.ones(2, 4)]),
    "stack": lambda t: t.stack([t.ones(2, 3), t.ones(2, 4)]),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("mistake", SHAPES.values(), ids=list(SHAPES))
def test_shapes(torch, mistake):
    with pytest.raises(RuntimeError) as theirs:
        mistake(torch)
    with pytest.raises(RuntimeError) as ours:
        mistake(mytorch)
    assert set(re.findall(r"\d+", str(theirs.value))) <= set(re.findall(r"\d+", str(ours.value)))
