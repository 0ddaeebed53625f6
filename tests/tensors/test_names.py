"""Keyword arguments with the names of PyTorch."""

import numpy as np
import pytest

import mytorch

CALLS = {
    "pow": lambda t, x: t.pow(x, exponent=2),
    "pow method": lambda t, x: x.pow(exponent=2),
    "pow_": lambda t, x: x.clone().pow_(exponent=2),
    "det": lambda t, x: t.linalg.det(A=x),
    "inv": lambda t, x: t.linalg.inv(A=x),
    "swapaxes": lambda t, x: t.swapaxes(x, axis0=0, axis1=1),
    "squeeze": lambda t, x: x[None].squeeze(axis=0),
    "sort": lambda t, x: x.sort(axis=0).values,
    "searchsorted": lambda t, x: t.searchsorted(sorted_sequence=t.tensor([1.0, 2.0]), input=x),
    "sections": lambda t, x: x.tensor_split(sections=2, dim=0)[1],
    "indices": lambda t, x: x.tensor_split(indices=(1,))[1],
    "copy_": lambda t, x: t.zeros(2, 2).copy_(other=x),
    "asarray": lambda t, x: t.asarray(obj=[1, 2]),
    "arange": lambda t, x: t.arange(end=3),
    "random_": lambda t, x: x.clone().random_(**{"from": 3, "to": 4}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_argument_names(torch, rng, call):
    x = rng.standard_normal((2, 2))
    theirs = call(torch, torch.tensor(x)).numpy()
    np.testing.assert_allclose(call(mytorch, mytorch.tensor(x)).numpy(), theirs, rtol=1e-6)
