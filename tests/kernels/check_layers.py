"""Batch norm and pooling in Triton's interpreter against float64."""

import numpy as np
import pytest

from mytorch.kernels.triton import kv_cache
from mytorch.kernels.triton.batch_norm import batch_norm, channel_affine
from mytorch.kernels.triton.pool import avg_pool, max_pool

from .cases import COMPILE_ONLY, DTYPES, channels_last, dev, host, near, rand, xp

SHAPES = [(3, 5, 7, 9), (37, 5), (2, 3, 1400), (5, 40, 1), (2, 1, 2, 3, 4)]


def channels(p, ndim):
    return p.reshape(1, -1, *(1,) * (ndim - 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(shape, dtype):
    (x, x64), (g, g64) = rand(*shape, dtype=dtype, shift=3.0), rand(*shape, dtype=dtype)
    (w, w64), (b, b64) = rand(shape[1], dtype=dtype), rand(shape[1])
    axes, n = (0, *range(2, len(shape))), x.size / shape[1]
    mean, var = x64.mean(axes, keepdims=True), x64.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(var + 1e-5)
    h = (x64 - mean) * rstd
    out, m, r = batch_norm.forward(xp, x, w, b, eps=1e-5)
    near(m, mean.reshape(-1))
    near(r, rstd.reshape(-1), 2)
    near(out, h * channels(w64, x.ndim) + channels(b64, x.ndim), 2)
    grads = batch_norm.vjp(g, x, w, b, [x.shape, w.shape, b.shape], m, r, (True, True, True), xp)
    sums = [a.sum(axes, keepdims=True) for a in (g64, g64 * h)]
    near(grads[0], (g64 - sums[0] / n - h * sums[1] / n) * rstd * channels(w64, x.ndim), 3)
    near(grads[1], sums[1].reshape(-1), 4)
    near(grads[2], sums[0].reshape(-1), 4)


@pytest.mark.parametrize("which", [(True, True), (True, False), (False, True)])
def test_channels_last(which):
    """Results have the layout of the input, for gradients of both layouts, and equal those of other layouts."""
    (x, _), (g, _), (w, _) = rand(3, 5, 7, 9), rand(3, 5, 7, 9), rand(5)
    laid, up = (channels_last(a) if last else a for a, last in zip((x, g), which, strict=True))
    for kernel, rest, options in ((batch_norm, (w, w), {"eps": 1e-5}), (channel_affine, (w, w), {})):
        results = [kernel.forward(xp, a, *rest, **options) for a in (x, laid)]
        if kernel is batch_norm:
            (want, *stats), (out, *_) = results
        else:
            (want, out), stats = results, []
        near(out, host(want))
        shapes = [x.shape, w.shape, w.shape]
        grads = [kernel.vjp(up_, a, *rest, shapes, *stats, (True,) * 3, xp) for up_, a in ((g, x), (up, laid))]
        for a, b in zip(*grads, strict=True):
            near(b, host(a))
        assert out.strides == laid.strides
        assert kernel is channel_affine or grads[1][0].strides == laid.strides


def test_the_variance_of_numbers_far_from_zero():
    x, x64 = rand(9, 2, 301, scale=0.1, shift=1000.0)
    mean, var = batch_norm.statistics(x)
    near(mean, x64.mean((0, 2)))
    near(var, x64.var((0, 2)), 20)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_channel_affine(shape, dtype):
    (x, x64), (g, g64) = rand(*shape, dtype=dtype), rand(*shape, dtype=dtype)
    (w, w64), (b, b64) = rand(shape[1]), rand(shape[1])
    axes = (0, *range(2, len(shape)))
    near(channel_affine.forward(xp, x, w, b), x64 * channels(w64, x.ndim) + channels(b64, x.ndim), 2)
    gx, gw, gb = channel_affine.vjp(g, x, w, b, None, (True, True, True), xp)
    near(gx, g64 * channels(w64, x.ndim), 2)
    near(gw, (g64 * x64).sum(axes), 4)
    near(gb, g64.sum(axes), 4)


WINDOWS = [  # input, window, stride, padding, dilation
    ((2, 3, 11), (3,), (2,), (1,), (1,)),
    ((1, 2, 7, 9), (3, 2), (2, 1), (1, 0), (1, 2)),
    ((2, 1, 4, 5, 6), (2, 3, 2), (2, 2, 1), (0, 1, 1), (2, 1, 1)),
    ((1, 1, 5, 5), (5, 5), (5, 5), (0, 0), (1, 1)),
]


def windows(x, kernel, stride, padding, dilation, fill):
    """Computes (planes, outputs, taps) of x64 with plain loops; returns them, their positions in the padded x, and the output shape."""
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=fill)
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    at = np.array(
        [
            [np.ravel_multi_index([o * s + t * d for o, t, s, d in zip(place, tap, stride, dilation, strict=True)], wide.shape[2:])
             for tap in np.ndindex(*kernel)]
            for place in np.ndindex(*out)
        ]
    )  # fmt: skip
    return wide, wide.reshape(*x.shape[:2], -1)[:, :, at], at, out


def spread(g, wide, at, weights, padding):
    """Adds the gradients of the windows; returns the gradient of x."""
    gx = np.zeros(wide.shape)
    flat = gx.reshape(*wide.shape[:2], -1)
    for plane in np.ndindex(*wide.shape[:2]):
        np.add.at(flat[plane], at, g[plane].reshape(-1, 1) * weights[plane])
    inner = tuple(slice(p, n - p) for p, n in zip(padding, wide.shape[2:], strict=True))
    return gx[(slice(None), slice(None), *inner)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation"), WINDOWS)
def test_max_pool(shape, kernel, stride, padding, dilation, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    wide, seen, at, out_size = windows(x64, kernel, stride, padding, dilation, -np.inf)
    geometry = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    out, chosen = max_pool.forward(xp, x, out_size=tuple(out_size), **geometry)
    near(out, seen.max(-1).reshape(out.shape))
    if not COMPILE_ONLY:
        assert (host(chosen).reshape(seen.shape[:-1]) == seen.argmax(-1)).all()
    g, g64 = rand(*out.shape, dtype=dtype)
    (gx,) = max_pool.vjp(g, chosen, x.shape, **geometry, xp=xp)
    picked = np.arange(seen.shape[-1]) == seen.argmax(-1)[..., None]
    near(gx, spread(g64, wide, at, picked, padding), 2)


def test_max_pool_keeps_nan_and_minus_infinity():
    if COMPILE_ONLY:
        return
    x = np.full((1, 1, 8), -np.inf, np.float32)
    x[0, 0, 5] = np.nan
    out, chosen = max_pool.forward(xp, dev(x), out_size=(4,), kernel=(2,), stride=(2,), padding=(0,), dilation=(1,))
    np.testing.assert_array_equal(host(out)[0, 0], [-np.inf, -np.inf, np.nan, -np.inf])
    np.testing.assert_array_equal(host(chosen)[0, 0], [0, 0, 1, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation"), [w for w in WINDOWS if max(w[4]) == 1])
def test_avg_pool(shape, kernel, stride, padding, dilation, each, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    wide, seen, at, out_size = windows(x64, kernel, stride, padding, dilation, 0.0)
    scale = np.linspace(0.1, 0.9, len(at)).reshape(out_size) if each else 0.3
    geometry = {"kernel": kernel, "stride": stride, "padding": padding, "scale": dev(scale) if each else scale}
    out = avg_pool.forward(xp, x, out_size=tuple(out_size), **geometry)
    near(out, seen.sum(-1).reshape(out.shape) * scale, 2)
    g, g64 = rand(*out.shape, dtype=dtype)
    (gx,) = avg_pool.vjp(g, x.shape, **geometry, xp=xp)
    near(gx, spread(g64 * scale, wide, at, np.ones(seen.shape), padding), 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("T", "D", "E"), [(1, 64, 64), (5, 7, 12), (33, 80, 16)])
def test_append_to_a_cache(T, D, E, dtype):
    both, _ = rand(2, T, 3, D + E, dtype=dtype)
    k, v = (part.transpose(0, 2, 1, 3) for part in (both[..., :D], both[..., D:]))
    keys, values = (xp.zeros((2, 3, 40, n), DTYPES[dtype]) for n in (D, E))
    assert kv_cache.accepts(k, v, keys, values)
    kv_cache.append(k, v, keys, values, 4)
    if COMPILE_ONLY:
        return
    for store, new in ((keys, k), (values, v)):
        want = np.zeros(store.shape, store.dtype)
        want[:, :, 4 : 4 + T] = host(new)
        assert (host(store) == want).all()


def test_a_cache_rejects_arrays_that_are_not_in_rows():
    k, _ = rand(2, 3, 8, 5)
    keys = xp.zeros((2, 3, 40, 8), "float32")
    assert not kv_cache.accepts(k.transpose(0, 1, 3, 2), k.transpose(0, 1, 3, 2), keys, keys)
    assert not kv_cache.accepts(k.astype("float16"), k, keys, keys)
