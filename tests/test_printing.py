"""Printing of tensors: the native layout by default, PyTorch's layout on request."""

import numpy as np
import pytest

import mytorch


@pytest.fixture
def torch_layout():
    mytorch.set_printoptions(layout="torch")
    yield
    mytorch.set_printoptions(layout="mytorch", profile="default")
    mytorch.set_printoptions(layout="mytorch")


def test_own_layout():
    x = mytorch.tensor([[-0.88644, -1.72318]], requires_grad=True, device="cpu")
    assert repr(x) == "tensor([[-0.88644 -1.72318]], requires_grad=True)"
    assert repr(x.data) == "Array([[-0.88644 -1.72318]], dtype=float32)"
    assert repr(x**2).endswith("grad_fn=<PowBackward>)")
    assert repr(mytorch.tensor([1, 2], device="cpu")) == "tensor([1 2])"
    assert repr(mytorch.randn(2, 2)).splitlines()[1].startswith(" " * 8)


RNG = np.random.default_rng(0)
SAMPLES = [
    RNG.standard_normal((2, 3)).astype("f4"), RNG.standard_normal(3), np.arange(5), np.array([1.0, 2.0], "f4"), np.array([1e-6, 1.0], "f4"), np.array([True, False]),
    np.zeros((0, 3), "f4"), np.array(3.5, "f4"), RNG.standard_normal((2, 2, 3)).astype("f4"), np.arange(2000.0, dtype="f4"), np.array([np.inf, np.nan, 1.5], "f4"),
    np.array([1e10, 1.0], "f4"), np.array([np.inf, 1.0], "f4"), RNG.standard_normal((40, 40)).astype("f4"), np.arange(3, dtype="i4"), np.arange(30), np.zeros(3, "f4"),
]  # fmt: skip


@pytest.mark.parametrize("value", SAMPLES, ids=range(len(SAMPLES)))
def test_torch_layout(value, torch, torch_layout):
    assert repr(mytorch.tensor(value, device="cpu")) == repr(torch.tensor(value)).replace("torch.", "mytorch.")


def test_options_switch_to_torch_layout(torch, torch_layout):
    mytorch.set_printoptions(precision=2, sci_mode=False)
    torch.set_printoptions(precision=2, sci_mode=False)
    try:
        x = np.array([1.23456, 1000.5, 1e-5])
        assert repr(mytorch.tensor(x, device="cpu")) == repr(torch.tensor(x)).replace("torch.", "mytorch.")
    finally:
        torch.set_printoptions(profile="default")
