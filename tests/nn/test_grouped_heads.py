"""Attention with fewer key heads or value heads than query heads, compared with PyTorch."""

import itertools

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

HEADS = [(q, k, v) for q in (1, 4, 6) for k, v in itertools.product((1, 2, 3, 4, 6), repeat=2) if q % k == q % v == 0]


@loop
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


LEADING = [(), (1,), (4,), (1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (2, 4), (3, 1, 2)]


@pytest.mark.parametrize("enable_gqa", [False, True])
@pytest.mark.parametrize("lead", LEADING)
def test_batches_and_heads_are_broadcast_or_refused(lead, enable_gqa):
    """Queries with one shape of batches and heads, and keys and values with each other shape."""
    draw = np.random.default_rng(len(lead)).standard_normal
    for keys in LEADING:
        for values in {keys, lead, (1,) * len(keys)}:
            if enable_gqa and min(len(lead), len(keys), len(values)) == 0:
                continue  # PyTorch ignores the option without heads
            arrays = [draw((*shape, n, 8)) for shape, n in ((lead, 3), (keys, 6), (values, 6))]

            def run(L, arrays=arrays):
                inputs = [L.tensor(x, requires_grad=True) for x in arrays]
                out = L.nn.functional.scaled_dot_product_attention(*inputs, enable_gqa=enable_gqa)
                upstream = np.random.default_rng(0).standard_normal(tuple(out.shape))
                return [x.detach().numpy() for x in (out, *L.autograd.grad(out, inputs, L.tensor(upstream)))]

            try:
                expected = run(torch)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    run(mytorch)
                continue
            for mine, theirs in zip(run(mytorch), expected, strict=True):
                assert mine.shape == theirs.shape, (lead, keys, values)
                np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("shapes", [((1, 3, 8), (4, 6, 8)), ((2, 1, 3, 8), (2, 4, 6, 8)), ((4, 3, 8), (1, 6, 8))])
def test_dropout_of_attention_with_broadcast_heads(shapes):
    attend = mytorch.nn.functional.scaled_dot_product_attention
    q, k = (mytorch.tensor(np.random.default_rng(0).standard_normal(shape)) for shape in shapes)
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    found = []
    for query, key in ((q, k), (q.expand(*lead, 3, 8).contiguous(), k.expand(*lead, 6, 8).contiguous())):
        mytorch.manual_seed(3)
        found.append(attend(query, key, key, dropout_p=0.5).numpy())
    np.testing.assert_allclose(*found, atol=1e-12)


MASKS = [
    (7,),
    (1, 7),
    ("L", 7),
    (1, 1, 7),
    (4, 1, 7),
    (4, "L", 7),
    (2, 1, 1, 7),
    (1, 4, "L", 7),
    (2, 4, 1, 7),
    (2, 4, "L", 7),
]


@loop
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", ["bool", "float64"])
@pytest.mark.parametrize("shape", MASKS)
def test_masks_of_every_shape(queries, heads, dtype, shape, rng):
    """One query takes another path than several, and a mask that differs between heads another than one that does not."""
    torch = pytest.importorskip("torch")
    shapes = ((2, 4, queries, 6), (2, heads, 7, 6), (2, heads, 7, 5))
    arrays = [rng.standard_normal(s) for s in shapes]
    mask = rng.standard_normal([queries if n == "L" else n for n in shape])
    if dtype == "bool":
        mask = mask > 0
        mask[..., 2] = True
    up, found = rng.standard_normal((2, 4, queries, 5)), []
    for L in (mytorch, torch):
        inputs = [L.tensor(a, requires_grad=True) for a in arrays] + [L.tensor(mask, requires_grad=dtype != "bool")]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = L.nn.functional.scaled_dot_product_attention(*inputs, enable_gqa=True)
        out.backward(L.tensor(up))
        found.append([out.detach(), *(t.grad for t in inputs if t.requires_grad)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-7, atol=1e-9)
