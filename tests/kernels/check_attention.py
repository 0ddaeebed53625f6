"""Flash attention in Triton's interpreter against float64."""

import tempfile

import numpy as np
import pytest

from mytorch.kernels.triton import attention

from .cases import COMPILE_ONLY, DTYPES, ON_GPU, dev, host, near, rand, xp


def reference(q, k, v, g, mask=None, causal=False, window=None, keep=None, scale=None):
    """The output and the gradients of q, k, v and of the scores, in float64."""
    group = q.shape[-3] // k.shape[-3]
    kk, vv = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = q @ kk.swapaxes(-1, -2) * scale
    ahead = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None]
    seen = np.ones_like(ahead, bool)
    if causal:
        seen &= ahead <= 0
    if window is not None:
        seen &= (ahead >= -window[0]) | (window[0] < 0)
        seen &= (ahead <= window[1]) | (window[1] < 0)
    s = np.where(seen, s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    peak = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(peak), 0, peak))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    kept = 1.0 if keep is None else keep
    gp = g @ vv.swapaxes(-1, -2) * kept
    gs = p * (gp - (gp * p).sum(-1, keepdims=True))
    grouped = (*k.shape[:-2], group)
    gk, gv = gs.swapaxes(-1, -2) @ q * scale, (p * kept).swapaxes(-1, -2) @ g
    gk, gv = (x.reshape(*grouped, *x.shape[-2:]).sum(-3) for x in (gk, gv))
    return (p * kept) @ vv, gs @ kk * scale, gk, gv, gs


def check(shape_q, shape_k, dtype="fp32", width_v=None, mask=None, add=None, factor=1.0, **options):
    q, q64 = rand(*shape_q, dtype=dtype)
    k, k64 = rand(*shape_k, dtype=dtype)
    v, v64 = rand(*shape_k[:-1], width_v or shape_k[-1], dtype=dtype)
    g, g64 = rand(*shape_q[:-1], v.shape[-1], dtype=dtype)
    m64 = mask
    mask = None if mask is None else dev(mask)
    if add is not None:
        mask, m64 = rand(*add)
    keep = options.pop("keep", None)
    out, lse = attention.run_forward(xp, q, k, v, mask, **options)
    got = attention.run_backward(xp, g, q, k, v, out, lse, mask, **options)
    options.pop("dropout", None)
    want = reference(q64, k64, v64, g64, m64, keep=keep, **options)
    near(out, want[0], factor)
    for have, should in zip(got, want[1:4], strict=False):
        near(have, should, 2 * factor)
    if add is not None:
        near(got[3], want[4], 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_plain(causal, dtype):
    check((2, 2, 133, 20), (2, 2, 133, 20), dtype, causal=causal)


@pytest.mark.parametrize("width", [16, 40, 64, 80, 96, 256])
def test_head_width(width):
    check((1, 1, 70, width), (1, 1, 70, width), "fp32", causal=True)
    check((1, 1, 70, width), (1, 1, 70, width), "bf16" if width in (40, 96) else "fp16", causal=True, factor=2)


def test_values_of_another_width():
    check((1, 2, 33, 24), (1, 2, 65, 24), width_v=40)


@pytest.mark.parametrize(
    ("lengths", "causal"),
    [((5, 200), False), ((200, 5), False), ((140, 70), True), ((70, 140), True), ((1, 130), False)],
)
def test_other_key_length(lengths, causal):
    check((1, 2, lengths[0], 16), (1, 2, lengths[1], 16), "fp16", causal=causal, scale=0.3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("window", "causal"), [((40, 0), True), ((3, 2), False), ((-1, 70), False), ((90, -1), False), ((0, 0), False)]
)
def test_window(window, causal, dtype):
    check((1, 1, 205, 16), (1, 1, 205, 16), dtype, window=window, causal=causal)
    check((1, 1, 300, 16), (1, 1, 40, 16), dtype, window=window, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries(causal):
    check((2, 6, 67, 16), (2, 2, 67, 16), causal=causal)


@pytest.mark.parametrize("shape", [(67, 75), (2, 1, 67, 75), (2, 2, 67, 75), (1, 2, 1, 75)])
def test_masks(shape):
    mask = np.random.default_rng(3).random(shape) > 0.3
    mask[..., 0, :] = False  # these rows see nothing
    check((2, 2, 67, 16), (2, 2, 75, 16), mask=mask)
    check((2, 2, 67, 16), (2, 2, 75, 16), "bf16", mask=mask)
    check((2, 2, 67, 16), (2, 2, 75, 16), add=shape)
    check((2, 2, 67, 16), (2, 2, 75, 16), add=shape, causal=True)


def test_other_numbers_of_axes():
    q, q64 = rand(67, 16)
    out, _ = attention.run_forward(xp, q, q, q, causal=True)
    want = reference(q64[None], q64[None], q64[None], q64[None], causal=True)[0][0]
    near(out, want)
    check((3, 2, 2, 33, 16), (3, 2, 2, 33, 16), mask=np.random.default_rng(0).random((3, 1, 2, 33, 33)) > 0.2)


def test_strided():
    x, x64 = rand(2, 35, 3, 3, 16)  # (B, T, 3, H, D), as one linear layer leaves q, k and v
    q, k, v = (x[:, :, i].swapaxes(1, 2) for i in range(3))
    q64, k64, v64 = (x64[:, :, i].swapaxes(1, 2) for i in range(3))
    g, g64 = rand(2, 35, 3, 16)
    g, g64 = g.swapaxes(1, 2), g64.swapaxes(1, 2)
    out, lse = attention.run_forward(xp, q, k, v, causal=True)
    assert out.swapaxes(1, 2).flags.c_contiguous
    want = reference(q64, k64, v64, g64, causal=True)
    near(out, want[0])
    got = attention.run_backward(xp, g, q, k, v, out, lse, causal=True)
    for have, should in zip(got[:3], want[1:], strict=False):
        near(have, should)
    assert all(x.strides == y.strides for x, y in zip(got, (q, k, v), strict=False))  # one array again
    assert got[0].base is got[1].base is got[2].base


def test_only_some_gradients():
    x = [rand(1, 2, 70, 16) for _ in range(4)]
    (q, k, v, g), wide = [a for a, _ in x], [b for _, b in x]
    out, lse = attention.run_forward(xp, q, k, v, causal=True)
    want = reference(*wide, causal=True)[1:4]
    for needs in ((True, False, False, False), (False, True, False, False), (False, True, True, False)):
        got = attention.run_backward(xp, g, q, k, v, out, lse, causal=True, needs=needs)
        assert (got[0] is None) is (not needs[0])
        for i, wanted in enumerate(needs[:3]):
            if wanted:
                near(got[i], want[i], 2)


@pytest.mark.parametrize("far", ["heads", "rows"])
def test_strides_that_need_64_bits(far):
    """The index of a head or a row, multiplied by its stride, may exceed 2^31 elements."""
    if COMPILE_ONLY or ON_GPU:
        return
    shape, step = ((1, 4, 5, 16), 1 << 30) if far == "heads" else ((1, 1, 4, 16), 1 << 30)
    strides = (0, step, 16, 1) if far == "heads" else (0, 0, step, 1)
    size = 3 * step + 5 * 16
    near_ones = [rand(*shape, dtype="fp16") for _ in range(4)]
    for place in range(4):  # of q, k, v and g one at a time, in a file that is nearly all hole
        with tempfile.TemporaryFile() as file:
            memory = np.memmap(file, np.float16, "w+", shape=(size,))
        spread = np.lib.stride_tricks.as_strided(np.asarray(memory), shape, [2 * s for s in strides])
        spread[...] = near_ones[place][0]
        q, k, v, g = (spread if i == place else x for i, (x, _) in enumerate(near_ones))
        want = reference(*(x64 for _, x64 in near_ones), causal=True)
        out, lse = attention.run_forward(xp, q, k, v, causal=True)
        near(out, want[0])
        got = attention.run_backward(xp, g, q, k, v, out, lse, causal=True)
        only = attention.run_backward(xp, g, q, k, v, out, lse, causal=True, needs=(False, True, True, False))
        for have, again, should in zip(got[:3], (None, *only[1:3]), want[1:4], strict=True):
            near(have, should, 2)
            assert again is None or (host(again) == host(have)).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("heads", "causal"), [(2, False), (4, True)])
def test_dropout(heads, causal, dtype):
    shape, length, p = (2, 2, 77, 16), 77, 0.3
    dropout = (p, dev(np.array([99, 3], np.int64)), 5)
    if COMPILE_ONLY:
        keep = None
    else:  # the mask itself: uniform attention to one-hot values shows the kept positions
        eye = np.zeros((2, 2, length, 128), np.float32)
        eye[..., :length] = np.eye(length)
        eye, zeros = dev(eye), dev(np.zeros((2, heads, length, 128), np.float32))
        shown, _ = attention.run_forward(xp, zeros, eye * 0, eye, dropout=dropout)
        keep = host(shown)[..., :length].astype(np.float64) * length
        kept = keep > 0.5
        assert abs(kept.mean() - 0.7) < 0.01
        keep = kept / 0.7
        assert abs(np.corrcoef(kept[0, 0].ravel(), kept[0, 1].ravel())[0, 1]) < 0.05
        other, _ = attention.run_forward(xp, zeros, eye * 0, eye, dropout=(p, dev(np.array([99, 4], np.int64)), 5))
        assert 0.4 < ((host(other)[..., :length] > 0) == kept).mean() < 0.75
    check((2, heads, 77, 16), shape, dtype, causal=causal, dropout=dropout, keep=keep)
