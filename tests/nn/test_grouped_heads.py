"""Attention with fewer key heads or value heads than query heads, compared with PyTorch."""

import itertools

import numpy as np
import pytest

import mytorch

torch = pytest.importorskip("torch")

HEADS = [(q, k, v) for q in (1, 4, 6) for k, v in itertools.product((1, 2, 3, 4, 6), repeat=2) if q % k == q % v == 0]


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_each_of_key_and_value_has_its_number_of_heads(heads):
    draw = np.random.default_rng(sum(heads))
    for queries, causal in itertools.product((1, 3), (False, True)):
        shapes = [(2, heads[0], queries, 5), (2, heads[1], 3, 5), (2, heads[2], 3, 4)]
        arrays = [draw.normal(size=shape) for shape in shapes]
        upstream, found = draw.normal(size=(2, heads[0], queries, 4)), []
        for library in (torch, mytorch):
            inputs = [library.tensor(a, dtype=library.float64, requires_grad=True) for a in arrays]
            attend = library.nn.functional.scaled_dot_product_attention
            out = attend(*inputs, is_causal=causal, enable_gqa=True)
            out.backward(library.tensor(upstream))
            found.append([np.asarray(out.detach()), *(np.asarray(x.grad) for x in inputs)])
        for theirs, mine in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("heads", [(4, 3, 4), (4, 4, 3), (2, 4, 2), (2, 2, 4), (3, 2, 2)], ids=str)
def test_other_numbers_of_heads_raise(heads):
    inputs = [mytorch.ones(1, n, 3, 4) for n in heads]
    with pytest.raises(RuntimeError, match="multiple of the number of (key|value) heads"):
        mytorch.nn.functional.scaled_dot_product_attention(*inputs, enable_gqa=True)
