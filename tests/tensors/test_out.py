"""`out=` of functions that make tensors or indices, against PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

MAKERS = {
    "zeros": lambda t, out: t.zeros(2, 3, out=out),
    "ones": lambda t, out: t.ones((2, 3), out=out),
    "full": lambda t, out: t.full((2, 3), 2.0, out=out),
    "arange": lambda t, out: t.arange(6, out=out),
    "linspace": lambda t, out: t.linspace(0, 1, 6, out=out),
    "eye": lambda t, out: t.eye(2, 3, out=out),
}


@loop
@pytest.mark.filterwarnings("ignore:An output with one or more")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (2, 3), (6,)], ids=str)
@pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
def test_factories(torch, make, shape, dtype):
    outs = [library.zeros(shape, dtype=getattr(library, dtype)) for library in (torch, mytorch)]
    results = [make(library, out) for library, out in zip((torch, mytorch), outs, strict=True)]
    for library, out, result in zip((torch, mytorch), outs, results, strict=True):
        assert result is out
        assert result.dtype is getattr(library, dtype)
    np.testing.assert_allclose(outs[1].numpy(), outs[0].numpy(), rtol=1e-6)


def test_nonzero(torch):
    for library in (torch, mytorch):
        out = library.empty(0, dtype=library.int64)
        assert library.nonzero(library.tensor([0, 3, 0, 4]), out=out) is out
        assert out.tolist() == [[1], [3]]


def test_out_must_be_a_tensor(torch):
    for library in (torch, mytorch):
        with pytest.raises(TypeError):
            library.exp(library.ones(2), out=3)
