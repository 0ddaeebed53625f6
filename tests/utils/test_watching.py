"""Tables of models, and histograms of their weights and gradients: compared with manual counts and NumPy."""

import json

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.accelerate.tracking import JSONLinesTracker
from mytorch.tools.watching import histogram
from mytorch.utils import summary, watch


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


def test_histograms_are_numpys(rng):
    values = rng.standard_normal((7, 5)).astype(np.float32)
    found = histogram(mytorch.tensor(values), bins=6)
    assert found["counts"] == np.histogram(values, 6)[0].tolist()
    np.testing.assert_allclose([found["mean"], found["std"]], [values.mean(), values.std()], rtol=1e-5)
    values[0, :2] = np.nan, np.inf
    found = histogram(mytorch.tensor(values))
    assert (found["not_finite"], sum(found["counts"])) == (2, 33)
    assert sum(histogram(mytorch.full((3,), 2.0))["counts"]) == 3
    assert histogram(mytorch.empty(0))["counts"] == [0] * 32


def test_watch_writes_to_each_kind_of_writer(tmp_path):
    model = nn.Linear(3, 2)
    model(mytorch.randn(4, 3)).sum().backward()
    tracker = JSONLinesTracker("log", directory=tmp_path)
    watched = watch(model, tracker, every=2)
    assert [watched.log(step) for step in (10, 11, 12)] == [True, False, True]
    tracker.finish()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 12]
    assert sum(lines[0]["gradients/weight"]["counts"]) == 6
    seen = []

    class Writer:
        def add_histogram(self, name, values, step):
            seen.append((name, tuple(values.shape), step))

    watch(model, Writer(), gradients=False).log(3)
    assert seen == [("weights/weight", (2, 3), 3), ("weights/bias", (2,), 3)]
    with pytest.raises(ValueError, match="got 0"):
        watch(model, print, every=0)
    with pytest.raises(TypeError, match="got int"):
        watch(model, 3)
