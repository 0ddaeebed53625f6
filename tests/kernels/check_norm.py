"""Softmax and the norms in Triton's interpreter against float64."""

import numpy as np
import pytest

from mytorch.arrays.dtypes import from_numpy as dtype_of
from mytorch.kernels.triton import norm
from mytorch.kernels.triton.norm import add_layer_norm, add_rms_norm, group_norm, layer_norm, rms_norm
from mytorch.kernels.triton.softmax import log_softmax, softmax
from mytorch.kernels.triton.softmax import masked as masked_scores

from .cases import DTYPES, dev, near, rand, xp


def softmax64(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 1), (2, 3, 65), (2, 777), (2, 17001)])
def test_softmax(shape, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    g, g64 = rand(*shape, dtype=dtype)
    p = softmax64(x64)
    out = softmax.forward(xp, x, dim=x.ndim - 1)
    near(out, p)
    near(softmax.vjp(g, out, x.ndim - 1, (x.dtype,), xp)[0], p * (g64 - (g64 * p).sum(-1, keepdims=True)))
    out = log_softmax.forward(xp, x, dim=x.ndim - 1)
    near(out, np.log(p))
    near(
        log_softmax.vjp(g, dev(np.log(p).astype(x.dtype)), x.ndim - 1, (x.dtype,), xp)[0],
        g64 - p * g64.sum(-1, keepdims=True),
        4,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((5, 1), 0),
        ((2, 3, 65), 1),
        ((3, 300, 130), 1),
        ((9001, 3), 0),
        ((2, 3, 4, 5), 2),
        ((5, 7), -1),
        ((4, 3, 9), -2),
    ],
)
def test_softmax_along_another_axis(shape, dim, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    g, g64 = rand(*shape, dtype=dtype)
    e = np.exp(x64 - x64.max(dim, keepdims=True))
    p = e / e.sum(dim, keepdims=True)
    out = softmax.forward(xp, x, dim=dim)
    near(out, p)
    near(softmax.vjp(g, out, dim, (x.dtype,), xp)[0], p * (g64 - (g64 * p).sum(dim, keepdims=True)))
    near(log_softmax.forward(xp, x, dim=dim), np.log(p))
    near(
        log_softmax.vjp(g, dev(np.log(p).astype(x.dtype)), dim, (x.dtype,), xp)[0],
        g64 - p * g64.sum(dim, keepdims=True),
        4,
    )


@pytest.mark.parametrize("width", [7, 20000])
@pytest.mark.parametrize("kind", ["causal", "bool", "add", "both"])
def test_masked_softmax(kind, width):
    x, x64 = rand(2, 2, 3, width)
    mask, masked = None, x64.copy()
    if kind in ("bool", "both"):
        mask = np.random.default_rng(1).random((2, 1, 3, width)) > 0.3
        mask[1, 0, 1] = False
        masked = np.where(mask, masked, -np.inf)
    if kind == "add":
        mask, m64 = rand(3, width)
        masked = masked + m64
    if kind in ("causal", "both"):
        masked = np.where(np.arange(width) <= np.arange(3)[:, None], masked, -np.inf)
    with np.errstate(invalid="ignore"):
        want = np.nan_to_num(softmax64(masked))
    near(masked_scores(xp, x, None if mask is None else dev(mask), causal=kind in ("causal", "both")), want)


SMALL = [(rows, width, dtype) for rows, width in [(7, 5), (33, 65), (3, 768)] for dtype in DTYPES]


@pytest.mark.parametrize(("rows", "width", "dtype"), [*SMALL, (5, 9001, "bf16"), (2, 17003, "fp32")])
def test_norms(rows, width, dtype):
    x, x64 = rand(rows, width, dtype=dtype, shift=2)
    g, g64 = rand(rows, width, dtype=dtype)
    w, w64 = rand(width)
    b, b64 = rand(width)
    mean = x64.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x64.var(-1, keepdims=True) + 1e-5)
    h, u = (x64 - mean) * rstd, g64 * w64
    out, m, r = layer_norm.forward(xp, x, w, b, width=width)
    near(out, h * w64 + b64)
    got = layer_norm.vjp(g, x, w, b, [x.shape, w.shape, b.shape], m, r, width, (True,) * 3, xp)
    near(got[0], rstd * (u - u.mean(-1, keepdims=True) - h * (u * h).mean(-1, keepdims=True)), 2)
    near(got[1], (g64 * h).sum(0))
    near(got[2], g64.sum(0))
    rstd = 1 / np.sqrt((x64**2).mean(-1, keepdims=True) + 1e-5)
    h = x64 * rstd
    out, r = rms_norm.forward(xp, x, w, width=width, eps=1e-5)
    near(out, h * w64)
    got = rms_norm.vjp(g, x, w, [x.shape, w.shape], r, width, (True, True), xp)
    near(got[0], rstd * (u - h * (u * h).mean(-1, keepdims=True)), 2)
    near(got[1], (g64 * h).sum(0))
    assert layer_norm.vjp(g, x, None, None, [x.shape, None, None], m, r, width, (True, False, False), xp)[1:] == (
        None,
        None,
    )


@pytest.mark.parametrize("width", [65, 9001, 17003])
def test_residual_norm(width):
    x, x64 = rand(3, width)
    r, r64 = rand(3, width)
    g, g64 = rand(3, width)
    more, more64 = rand(3, width)
    out, added, mean, rstd = norm.forward(xp, x, width=width, eps=1e-5, residual=r)
    s = x64 + r64
    scale = 1 / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
    h = (s - s.mean(-1, keepdims=True)) * scale
    near(added, s)
    near(out, h)
    gx, _, _ = norm.backward(xp, g, added, None, mean, rstd, width=width, more=more, needs=(True, False, False))
    near(gx, scale * (g64 - g64.mean(-1, keepdims=True) - h * (g64 * h).mean(-1, keepdims=True)) + more64)


@pytest.mark.parametrize("width", [65, 768, 9001])
@pytest.mark.parametrize(
    ("dtype", "stream", "out"),
    [("bf16", "fp32", "bf16"), ("fp16", "fp32", "fp16"), ("fp32", "fp32", "fp32"), ("bf16", "fp16", "fp32")],
)
def test_a_branch_added_to_a_stream(dtype, stream, out, width):
    x, x64 = rand(7, width, dtype=dtype)
    r, r64 = rand(7, width, dtype=stream, shift=1)
    w, w64 = rand(width)
    b, b64 = rand(width)
    g, g64 = rand(7, width, dtype=out)
    more, more64 = rand(7, width)
    s64 = x64 + r64
    wanted, dtypes = dtype_of(DTYPES[out]), (x.dtype, r.dtype)
    shapes = [x.shape, r.shape, w.shape, b.shape]
    d = s64 - s64.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    h, u = d * rstd, g64 * w64
    total, normed, mean, scale = add_layer_norm.forward(xp, x, r, w, b, width=width, dtype=wanted)
    assert (total.dtype, normed.dtype) == (np.float32, DTYPES[out])
    near(total, s64)
    near(normed, h * w64 + b64)
    for up, up64 in ((more, more64), (None, 0.0)):
        got = add_layer_norm.vjp((up, g), total, w, b, shapes, dtypes, mean, scale, width, (True,) * 4, xp)
        gx = rstd * (u - u.mean(-1, keepdims=True) - h * (u * h).mean(-1, keepdims=True)) + up64
        for have, one in zip(got, (gx, gx, (g64 * h).sum(0), g64.sum(0)), strict=True):
            near(have, one, 2)
    assert got[0].dtype == x.dtype or stream == "fp16"
    alone = add_layer_norm.vjp(
        (more, None), total, w, b, shapes, dtypes, mean, scale, width, (True,) * 4, xp
    )  # the norm was not used
    near(alone[0], more64)
    assert alone[2:] == (None, None)
    rstd = 1 / np.sqrt((s64 * s64).mean(-1, keepdims=True) + 1e-5)
    h = s64 * rstd
    total, normed, scale = add_rms_norm.forward(xp, x, r, w, width=width, eps=1e-5, dtype=wanted)
    near(normed, h * w64)
    got = add_rms_norm.vjp((more, g), total, w, shapes[:3], dtypes, scale, width, (True,) * 3, xp)
    gx = rstd * (u - h * (u * h).mean(-1, keepdims=True)) + more64
    for have, one in zip(got, (gx, gx, (g64 * h).sum(0)), strict=True):
        near(have, one, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "groups"), [((3, 6, 5, 7), 2), ((2, 4), 4), ((2, 8, 4100), 2)])
def test_group_norm(shape, groups, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    if len(shape) == 2:
        shape, groups = (2, 4), 2
    g, g64 = rand(*shape, dtype=dtype)
    w, w64 = rand(shape[1])
    b, b64 = rand(shape[1])
    rows = x64.reshape(shape[0], groups, -1)
    mean, rstd = rows.mean(-1, keepdims=True), 1 / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    h = ((rows - mean) * rstd).reshape(shape)
    per = (1, -1) + (1,) * (len(shape) - 2)
    out, m, r = group_norm.forward(xp, x, w, b, num_groups=groups)
    near(out, h * w64.reshape(per) + b64.reshape(per))
    gx, gw, gb = group_norm.vjp(g, x, w, b, m, r, groups, (True,) * 3, xp)
    u, h3 = (g64 * w64.reshape(per)).reshape(rows.shape), h.reshape(rows.shape)
    near(gx, (rstd * (u - u.mean(-1, keepdims=True) - h3 * (u * h3).mean(-1, keepdims=True))).reshape(shape), 2)
    axes = (0, *range(2, len(shape)))
    near(gw, (g64 * h).sum(axes))
    near(gb, g64.sum(axes))


@pytest.mark.parametrize("rows", [1, 511, 1300])
def test_adding_up(rows):
    x, x64 = rand(rows, 70, dtype="bf16")
    near(norm.add_up(xp, x, "float32"), x64.sum(0))
    near(norm.add_up(xp, dev(np.zeros((0, 70), np.float32)), "float32"), np.zeros(70))
