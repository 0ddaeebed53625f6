"""Tables of models: compared with manual counts."""

import pytest

import mytorch
from mytorch import nn
from mytorch.utils import summary


def test_a_summary_has_the_same_counts_as_pytorch(torch):
    def build(L):
        return L.nn.Sequential(
            L.nn.Conv2d(1, 3, 3), L.nn.BatchNorm2d(3), L.nn.Sequential(L.nn.Flatten(), L.nn.Linear(3 * 5 * 3, 2))
        )

    model, theirs = build(mytorch), build(torch)
    model[0].weight.requires_grad_(False)
    mean = model[1].running_mean.clone()
    model[1].train(False)
    found = summary(model, (4, 1, 7, 5))
    assert found.parameters == sum(p.numel() for p in theirs.parameters())
    assert found.trainable == found.parameters - 27
    assert found.parameter_bytes == 4 * found.parameters
    assert [(depth, name, kind, shapes) for depth, name, kind, shapes, _ in found.rows] == [
        (0, "", "Sequential", [(4, 2)]),
        (1, "0", "Conv2d", [(4, 3, 5, 3)]),
        (1, "1", "BatchNorm2d", [(4, 3, 5, 3)]),
        (1, "2", "Sequential", [(4, 2)]),
        (2, "0", "Flatten", [(4, 45)]),
        (2, "1", "Linear", [(4, 2)]),
    ]
    assert sum(row[-1] for row in found.rows) == found.parameters
    assert found.output_bytes == 4 * (180 + 180 + 180 + 8)
    assert "1: Linear" in str(found)
    assert "92" in str(found)
    assert [m.training for m in model.modules()] == [True, True, False, True, True, True]
    assert mytorch.equal(model[1].running_mean, mean)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_summary_of_several_inputs_tokens_and_shared_layers():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, a, b):
            return {"sum": self.layer(a) + self.layer(b), "all": (a, b)}

    found = summary(Two(), [(2, 3), (1, 3)])
    assert found.parameters == 12
    assert [row[3] for row in found.rows] == [[(2, 3), (2, 3), (1, 3)], [(2, 3)], [(1, 3)]]
    tokens = summary(nn.Embedding(5, 4), input_data=mytorch.tensor([[1, 2, 3]]))
    assert tokens.rows == [(0, "", "Embedding", [(1, 3, 4)], 20)]
    for given in ({}, {"input_size": (1,), "input_data": mytorch.ones(1)}):
        with pytest.raises(ValueError, match="expected either input_size"):
            summary(nn.Flatten(), **given)
