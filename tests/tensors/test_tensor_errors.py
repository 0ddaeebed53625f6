"""Frequent mistakes raise the same errors as in PyTorch, and the message contains the values."""

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


KINDS = {
    "half a size": lambda t: t.zeros(5 / 2),
    "half a size among others": lambda t: t.zeros(2, 2.0),
    "a word for a size": lambda t: t.zeros("a"),
    "half a view": lambda t: t.ones(4).view(2.0, 2),
    "half an axis": lambda t: t.ones(2, 3).sum(1.5),
    "a word for an axis": lambda t: t.ones(2, 3).sum("a"),
    "half an axis to swap": lambda t: t.ones(2, 3).transpose(0, 0.5),
    "half an axis to add": lambda t: t.ones(2, 3).unsqueeze(0.5),
}


@pytest.mark.parametrize("mistake", KINDS.values(), ids=list(KINDS))
def test_kinds(torch, mistake):
    for library in (torch, mytorch):
        with pytest.raises(TypeError):
            mistake(library)


NO_TENSORS = {
    "sum": lambda t: t.sum([1, 2]),
    "mean": lambda t: t.mean([1.0, 2.0]),
    "cat": lambda t: t.cat([t.ones(2), 1]),
    "stack": lambda t: t.stack([1, 2]),
    "matmul": lambda t: t.matmul(t.ones(2), 3),
    "addmm": lambda t: t.addmm(1, 2, 3),
}


@pytest.mark.parametrize("mistake", NO_TENSORS.values(), ids=list(NO_TENSORS))
def test_no_tensors(torch, mistake):
    for library in (torch, mytorch):
        with pytest.raises(TypeError):
            mistake(library)


def test_pooling_to_nothing_has_no_gradient():
    for d in (1, 2, 3):
        for kind in ("avg", "max"):
            x = mytorch.ones(2, 3, *(4,) * d, requires_grad=True)
            out = getattr(mytorch.nn.functional, f"adaptive_{kind}_pool{d}d")(x, 0)
            assert tuple(out.shape) == (2, 3) + (0,) * d
            with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
                out.sum().backward()


def test_meshgrid_requires_one_device():
    with pytest.raises(RuntimeError, match="same device"):
        mytorch.meshgrid(mytorch.tensor([1]), mytorch.tensor([2], device="meta"), indexing="ij")
