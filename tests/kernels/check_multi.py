"""Optimizer steps over many tensors, their norm, clipping and unscaling, in Triton's interpreter against float64."""

import numpy as np
import pytest

from mytorch.kernels.triton import multi

from .cases import COMPILE_ONLY, DTYPES, channels_last, dev, host, near, rand, xp

SIZES = [(1,), (17, 3), (5000,), (4096,), (2, 4097)]


def columns(*dtypes):
    """Returns arrays of each dtype, and their values in float64."""
    made = [[rand(*s, dtype=d) for s in SIZES] for d in dtypes]
    return [[a for a, _ in column] for column in made], [[b.copy() for _, b in column] for column in made]


@pytest.mark.parametrize("dtypes", [("fp32", "fp32"), ("fp32", "bf16"), ("fp16", "fp16")])
@pytest.mark.parametrize("options", [{}, {"decoupled": False, "amsgrad": True}, {"maximize": True}])
def test_adamw(options, dtypes):
    (p, g), (p64, g64) = columns(*dtypes)
    moments = [[dev(np.zeros(s, np.float32)) for s in SIZES] for _ in range(3 if options.get("amsgrad") else 2)]
    table = multi.table_of(xp, p, g, *moments)
    assert multi.table_of(xp, p, g, *moments) is table
    assert multi.table_of(xp, p, g, *moments[:1]) is not table
    m64, v64, top64 = ([np.zeros(s) for s in SIZES] for _ in range(3))
    state = multi.new_state(xp, lr=0.01)
    state[multi.CLIP] = 0.5
    for step in (1, 2, 3):
        state[multi.STEP] = step
        multi.adamw(table, state, (0.9, 0.99), 1e-8, 0.1, **options)
        lr = 0.01
        for i in range(len(SIZES)):
            d = g64[i] * (-0.5 if options.get("maximize") else 0.5)
            if options.get("decoupled", True):
                p64[i] = p64[i] * (1 - lr * 0.1)
            else:
                d = d + 0.1 * p64[i]
            m64[i] = 0.9 * m64[i] + 0.1 * d
            v64[i] = 0.99 * v64[i] + 0.01 * d * d
            top64[i] = np.maximum(top64[i], v64[i]) if options.get("amsgrad") else v64[i]
            p64[i] = p64[i] - lr / (1 - 0.9**step) * m64[i] / (np.sqrt(top64[i] / (1 - 0.99**step)) + 1e-8)
    for i in range(len(SIZES)):
        near(p[i], p64[i])
        near(moments[0][i], m64[i], 1 if dtypes[0] == "fp32" else 100)
    before = [a.copy() for a in p]
    state[multi.FOUND_INF] = 1.0
    multi.adamw(table, state, **options)
    assert COMPILE_ONLY or all((a == b).all() for a, b in zip(p, before, strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.3}]
)
def test_sgd(options):
    (p, g), (p64, g64) = columns("fp32", "fp32")
    buffers = [dev(np.zeros(s, np.float32)) for s in SIZES]
    table = multi.Table(xp, p, g, *([buffers] if options else []))
    b64 = [None] * len(SIZES)
    state = multi.new_state(xp, lr=0.1)
    mu, damp = options.get("momentum", 0.0), 1 - options.get("dampening", 0.0)
    for step in (1, 2):
        state[multi.STEP] = step
        multi.sgd(table, state, weight_decay=0.01, **options)
        for i in range(len(SIZES)):
            d = g64[i] + 0.01 * p64[i]
            if mu:
                b64[i] = d if b64[i] is None else mu * b64[i] + damp * d
                d = d + mu * b64[i] if options.get("nesterov") else b64[i]
            p64[i] = p64[i] - 0.1 * d
    for a, b in zip(p, p64, strict=True):
        near(a, b)


def test_lion():
    (p, g), (p64, g64) = columns("fp32", "bf16")
    m = [rand(*s) for s in SIZES]
    table = multi.Table(xp, p, g, [a for a, _ in m])
    m64 = [b.copy() for _, b in m]
    multi.lion(table, multi.new_state(xp, lr=0.1), (0.9, 0.95), 0.2)
    for i in range(len(SIZES)):
        way = 0.9 * m64[i] + 0.1 * g64[i]
        close = np.abs(way) < 1e-5
        want = p64[i] * (1 - 0.1 * 0.2) - 0.1 * np.sign(way)
        near(np.where(close, 0, host(p[i])).astype(np.float32), np.where(close, 0, want))
        near(m[i][0], 0.95 * m64[i] + 0.05 * g64[i])


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_clip_and_unscale(dtype):
    (g,), (g64,) = columns(dtype)
    table = multi.Table(xp, g)
    state = multi.new_state(xp, scale=4.0)
    norm = np.sqrt(sum((a * a).sum() for a in g64))
    multi.norm(table, state, 3.0, which=0)
    near(host(state)[[multi.NORM, multi.CLIP]], np.array([norm, 3.0 / (norm + 1e-6)]))
    multi.clip(table, state, which=0)
    for a, b in zip(g, g64, strict=True):
        near(a, b * 3.0 / (norm + 1e-6))
    multi.norm(table, state, 1e9, which=0)
    assert COMPILE_ONLY or state[multi.CLIP] == 1.0
    before = [host(a).astype(np.float64) for a in g]
    multi.clip(table, state, which=0)
    for a, b in zip(g, before, strict=True):
        assert (host(a) == b).all()
    multi.unscale(table, state, which=0)
    assert state[multi.FOUND_INF] == 0.0
    for a, b in zip(g, before, strict=True):
        near(a, b / 4)
    for value in (np.inf, -np.inf, np.nan):
        state[multi.FOUND_INF] = 0.0
        g[4].reshape(-1)[-1] = value
        multi.unscale(table, state, which=0)
        assert COMPILE_ONLY or state[multi.FOUND_INF] == 1.0
    multi.norm(table, state, 3.0, which=0)  # the norm is NaN, and clipping makes all gradients NaN, as in PyTorch
    multi.clip(table, state, which=0)
    assert COMPILE_ONLY or all(np.isnan(host(a)).all() for a in g)


LAYOUTS = {"channels last": channels_last, "columns": lambda a: a.transpose(3, 2, 1, 0).copy().transpose(3, 2, 1, 0)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_without_gaps(layout):
    """Elements are paired by their place in memory, so all arrays of a tensor must have one layout."""
    place = LAYOUTS[layout]
    (p, p64), (g, g64) = rand(3, 5, 4, 2), rand(3, 5, 4, 2)
    p, g = place(p), place(g)
    assert multi.accepts([p, g])
    multi.sgd(multi.table_of(xp, [p], [g]), multi.new_state(xp, lr=0.1))
    near(p, p64 - 0.1 * g64)
    state = multi.new_state(xp)
    multi.norm(multi.table_of(xp, [g]), state, 1.0, which=0)
    near(host(state)[[multi.NORM]], np.sqrt([(g64 * g64).sum()]))
    flat = g.ravel("K")
    for other in (g.copy("C"), flat.reshape(g.shape), flat, g[::-1]):
        assert not multi.match(other, p)
        with pytest.raises(ValueError, match="with strides"):
            multi.Table(xp, [p], [other])


def test_arrays_that_do_not_fit():
    a, b = dev(np.zeros((4, 4), np.float32)), dev(np.zeros(7, np.float32))
    for other in (a.T[:, :2].T[:, ::2], a[::-1]):
        assert not multi.accepts([other])
        with pytest.raises(ValueError, match="with strides"):
            multi.Table(xp, [other])
    with pytest.raises(ValueError, match=r"like \(4, 4\)"):
        multi.Table(xp, [a], [b])
