"""flex_attention, compared with PyTorch for score and mask functions of PyTorch's documentation and of papers."""

import importlib
import math

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.cpu_only,
    pytest.mark.filterwarnings("ignore:(flex_attention called without torch.compile|return_lse is deprecated)"),
]
FLEX = {lib: importlib.import_module(f"{lib.__name__}.nn.attention.flex_attention") for lib in (mytorch, torch)}
B, H, L, E = 2, 4, 40, 8  # 40 is not a multiple of the block size 16


def causal(lib, x):
    return lambda b, h, q, kv: q >= kv


def window(lib, x):
    return lambda b, h, q, kv: (q >= kv) & (q - kv <= 7)


def prefix(lib, x):
    return lambda b, h, q, kv: (kv < 11) | (q >= kv)


def document(lib, x):
    owner = lib.tensor(np.repeat(np.arange(5), 8))
    return lambda b, h, q, kv: owner[q] == owner[kv]


MASKS = {
    "causal": causal,
    "sliding window": window,
    "prefix LM": prefix,
    "documents": document,
    "causal documents": lambda lib, x: FLEX[lib].and_masks(causal(lib, x), document(lib, x)),
    "prefix of documents": lambda lib, x: FLEX[lib].or_masks(prefix(lib, x), document(lib, x)),
    "causal window by and_masks": lambda lib, x: FLEX[lib].and_masks(causal(lib, x), lambda b, h, q, kv: q - kv < 5),
    "symmetric window": lambda lib, x: lambda b, h, q, kv: abs(q - kv) <= 3,
    "dilated": lambda lib, x: lambda b, h, q, kv: (q >= kv) & ((q - kv) % 3 == 0),
    "strided (sparse transformer)": lambda lib, x: lambda b, h, q, kv: (q >= kv) & ((q - kv < 6) | (kv % 6 == 5)),
    "global tokens (Longformer)": lambda lib, x: lambda b, h, q, kv: (q < 3) | (kv < 3) | (abs(q - kv) <= 4),
    "attention sink": lambda lib, x: lambda b, h, q, kv: (q >= kv) & ((kv < 4) | (q - kv < 8)),
    "lengths of batches": lambda lib, x: (lambda n: lambda b, h, q, kv: kv < n[b])(lib.tensor([13, 40])),
    "window of heads": lambda lib, x: (lambda n: lambda b, h, q, kv: (q >= kv) & (q - kv < n[h]))(
        lib.tensor([2, 8, 17, 40])
    ),
    "blocks (local)": lambda lib, x: lambda b, h, q, kv: q // 16 == kv // 16,
    "random pairs": lambda lib, x: (lambda m: lambda b, h, q, kv: m[q, kv])(
        lib.tensor(np.random.default_rng(1).random((L, L)) < 0.3)
    ),
    "rows without keys": lambda lib, x: lambda b, h, q, kv: (q % 5 != 0) & (q >= kv),
    "nothing": lambda lib, x: lambda b, h, q, kv: q < 0,
    "everything": lambda lib, x: FLEX[lib].noop_mask,
    "no diagonal": lambda lib, x: lambda b, h, q, kv: q != kv,
}
SCORES = {
    "identity": lambda lib, x: lambda s, b, h, q, kv: s,
    "ALiBi": lambda lib, x: lambda s, b, h, q, kv: s - 2.0 ** (-8 * (h + 1) / H) * (q - kv),
    "soft capping": lambda lib, x: lambda s, b, h, q, kv: 5 * lib.tanh(s / 5),
    "relative position": lambda lib, x: lambda s, b, h, q, kv: s + (q - kv),
    "relative bias (T5)": lambda lib, x: lambda s, b, h, q, kv: s + x[h, q - kv + L],
    "relative bias in two steps": lambda lib, x: lambda s, b, h, q, kv: s + x[h][q - kv + L],
    "scale of heads": lambda lib, x: lambda s, b, h, q, kv: s * x[h, 0],
    "causal scores": lambda lib, x: lambda s, b, h, q, kv: lib.where(q >= kv, s, -float("inf")),
    "temperature of positions": lambda lib, x: lambda s, b, h, q, kv: s * (1 + q / L),
    "square": lambda lib, x: lambda s, b, h, q, kv: s * s * 0.1,
    "distance in log": lambda lib, x: lambda s, b, h, q, kv: s - x[h, 1] * lib.log(1 + abs(q - kv).double()),
    "bias of batch and head": lambda lib, x: lambda s, b, h, q, kv: s + x[b, h] * kv,
    "soft capping and ALiBi": lambda lib, x: lambda s, b, h, q, kv: 3 * lib.tanh((s + 0.1 * (kv - q) * (h + 1)) / 3),
}
PAIRS = [(mask, None) for mask in MASKS] + [(None, score) for score in SCORES]
PAIRS += [("causal", "ALiBi"), ("sliding window", "soft capping")]
BOTH = [
    ("causal documents", "relative bias (T5)", {"heads": 2}),
    ("rows without keys", "scale of heads", {"lengths": (17, 40), "scale": 0.3}),
    ("lengths of batches", "bias of batch and head", {"keys": 1}),
]


def dense(q, k, v, score_mod, block_mask, scale=None):
    """Attention over all pairs with PyTorch's vmap, since PyTorch's flex_attention has no gradient on a CPU."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    scores = (q @ k.mT).to(wide) * (scale or q.shape[-1] ** -0.5)
    indices = [torch.arange(n) for n in scores.shape]
    dims = [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)]
    if score_mod is not None:
        for d in dims:
            score_mod = torch.vmap(score_mod, in_dims=(0, *d))
        scores = score_mod(scores, *indices)
    if block_mask is not None:
        mask_mod = block_mask.mask_mod
        for d in dims:
            mask_mod = torch.vmap(mask_mod, in_dims=d)
        scores = scores.masked_fill(~mask_mod(*indices), -math.inf)
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return weights.to(q.dtype) @ v, scores.logsumexp(-1)


def run(lib, mask, score, dtype="float64", heads=H, lengths=(L, L), keys=B, **options):
    """Returns the result, the lse and all gradients as NumPy arrays."""
    flex, rng = FLEX[lib], np.random.default_rng(0)
    arrays = [
        rng.standard_normal(s)
        for s in ((B, H, lengths[0], E), (keys, heads, lengths[1], E), (keys, heads, lengths[1], E + 1))
    ]
    arrays.append(rng.standard_normal((H, 2 * L + 1)))
    q, k, v, bias = (lib.tensor(a, dtype=getattr(lib, dtype), requires_grad=True) for a in arrays)
    block_mask = None
    if mask is not None:
        sizes = (B if "batch" in mask else None, H if "heads" in mask else None)
        block_mask = flex.create_block_mask(MASKS[mask](lib, bias), *sizes, *lengths, device="cpu", BLOCK_SIZE=16)
    score_mod = None if score is None else SCORES[score](lib, bias)
    if lib is torch:
        with torch.no_grad():
            exact = flex.flex_attention(
                q.detach(),
                k.detach(),
                v.detach(),
                score_mod,
                block_mask,
                enable_gqa=heads != H,
                return_lse=True,
                **options,
            )
        out, lse = dense(q, k, v, score_mod, block_mask, **options)
    else:
        out, lse = exact = flex.flex_attention(
            q, k, v, score_mod, block_mask, enable_gqa=heads != H, return_lse=True, **options
        )
    up = rng.standard_normal(tuple(out.shape))
    lse_up = rng.standard_normal(tuple(lse.shape))
    loss = (out * lib.tensor(up, dtype=out.dtype)).sum()
    if mask not in ("rows without keys", "nothing"):
        loss = loss + (lse * lib.tensor(lse_up, dtype=lse.dtype)).sum() * 0.1
    if loss.requires_grad:
        loss.backward()
    grads = [t.grad for t in (q, k, v, bias)]
    return [np.asarray(x.detach().to(lib.float64)) for x in exact] + [
        None if g is None else np.asarray(g.to(lib.float64)) for g in grads
    ], block_mask


def compare(ours, theirs, rough=1e-9):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a is None or b is None:
            assert all(x is None or not x.any() for x in (a, b)), i
        else:
            np.testing.assert_allclose(a, b, rtol=rough, atol=rough, err_msg=str(i))


@loop
@pytest.mark.parametrize(("mask", "score"), PAIRS)
def test_functions_of_scores_and_masks(mask, score):
    agrees(mask, score)


@loop
@pytest.mark.parametrize(("mask", "score", "options"), BOTH)
def test_masks_with_scores(mask, score, options):
    agrees(mask, score, **options)


def agrees(mask, score, **options):
    ours, mine = run(mytorch, mask, score, **options)
    theirs, yours = run(torch, mask, score, **options)
    compare(ours, theirs)
    if mask is not None:
        assert mine.shape == yours.shape
        assert mine.sparsity() == pytest.approx(yours.sparsity())
        assert str(mine) == str(yours)
        np.testing.assert_array_equal(np.asarray(mine.to_dense()), np.asarray(yours.to_dense()))
        for name in mine._TENSORS:
            np.testing.assert_array_equal(
                np.asarray(getattr(mine, name)), np.asarray(getattr(yours, name)), err_msg=name
            )


@pytest.mark.parametrize(
    "options", [{"heads": 2}, {"heads": 1}, {"lengths": (17, 40)}, {"lengths": (40, 5)}, {"scale": 0.3}]
)
def test_grouped_queries_lengths_and_scale(options):
    for mask, score in (("causal", "ALiBi"), (None, "soft capping"), ("sliding window", None)):
        if options.get("lengths") == (40, 5) and mask == "sliding window":
            continue  # PyTorch has no gradient of lse for rows without keys
        compare(run(mytorch, mask, score, **options)[0], run(torch, mask, score, **options)[0])


@pytest.mark.parametrize(("dtype", "rough"), [("float32", 2e-5), ("bfloat16", 6e-2), ("float16", 1e-2)])
def test_dtypes(dtype, rough):
    for mask, score in (("causal", None), (None, "soft capping")):
        ours, theirs = run(mytorch, mask, score, dtype)[0], run(torch, mask, score, dtype)[0]
        for a, b in zip(ours[:2], theirs[:2], strict=True):
            np.testing.assert_allclose(a, b, rtol=rough, atol=rough)
        for a, b in zip(ours[2:5], theirs[2:5], strict=True):
            np.testing.assert_allclose(a, b, rtol=5 * rough, atol=5 * rough)


def test_masks_and_lists():
    for lib in (mytorch, torch):
        flex = FLEX[lib]
        mask = flex.create_block_mask(causal(lib, None), 2, 3, 64, 64, device="cpu", BLOCK_SIZE=(16, 32))
        assert mask.shape == (2, 3, 64, 64)
        assert mask.BLOCK_SIZE == (16, 32)
        assert mask.numel() == 2 * 3 * 64 * 64
        part = mask[1, 0:2]
        assert part.kv_num_blocks.shape == (1, 2, 4)
        assert part.kv_indices.shape == (1, 2, 4, 2)
        assert mask.to("cpu").shape == mask.shape
        dense = flex.create_mask(causal(lib, None), 1, 1, 5, 5, device="cpu")
        assert dense.dtype == lib.bool
        assert np.asarray(dense[0, 0]).tolist() == np.tri(5, dtype=bool).tolist()
        scores = flex.create_mask(lambda s, b, h, q, kv: lib.where(q >= kv, s, -float("inf")), 1, 1, 2, 3, device="cpu")
        assert np.asarray(scores[0, 0]).tolist() == [[True, False, False], [True, True, False]]
        joined = flex.create_block_mask(
            causal(lib, None), 1, 1, 64, 64, device="cpu", BLOCK_SIZE=16, separate_full_blocks=False
        )
        assert joined.full_kv_indices is None
        assert joined.sparsity() == 37.5


def test_empty_lengths():
    flex = FLEX[mytorch]
    q, k = mytorch.ones(1, 1, 0, 4), mytorch.ones(1, 1, 3, 4)
    assert flex.flex_attention(q, k, k).shape == (1, 1, 0, 4)
    assert flex.flex_attention(k, q, q).tolist() == mytorch.zeros(1, 1, 3, 4).tolist()
    out, aux = flex.flex_attention(k, k, k, return_aux=flex.AuxRequest(lse=True, max_scores=True))
    assert aux.lse.shape == aux.max_scores.shape == (1, 1, 3)
    assert aux.lse[0, 0, 0].item() == pytest.approx(2 + math.log(3))


def test_errors():
    flex, x = FLEX[mytorch], mytorch.ones(1, 2, 3, 4)
    mask = flex.create_block_mask(causal(mytorch, None), None, None, 5, 5)
    for call, text in (
        (lambda: flex.flex_attention(x[0], x, x), "4 dimensions"),
        (lambda: flex.flex_attention(x, x.double(), x), "same dtype"),
        (lambda: flex.flex_attention(x, x[:, :1], x[:, :1]), "enable_gqa"),
        (lambda: flex.flex_attention(x, x, x[..., :2, :]), "expected query"),
        (lambda: flex.flex_attention(x, x, x, block_mask=mask), "create a new block mask"),
        (lambda: flex.flex_attention(x, x, x, block_mask=x), "create_block_mask"),
        (lambda: flex.create_block_mask(lambda s, b, h, q, kv: s, None, None, 5, 5), "4 parameters"),
        (lambda: flex.create_mask(lambda q, kv: q, None, None, 5, 5), "got 2"),
        (lambda: flex.and_masks(3), "callable"),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError), match=text):
            call()
