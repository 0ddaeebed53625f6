"""Losses of elements and of classes in Triton's interpreter against float64."""

import numpy as np
import pytest

from mytorch.kernels.triton import losses

from .cases import COMPILE_ONLY, DTYPES, dev, host, near, rand, xp


def _term(kind, x, t, beta):
    d = np.abs(x - t)
    smooth = np.where(d < beta, d * d / (2 * beta), d - beta / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "mse": lambda: d * d, "l1": lambda: d, "smooth_l1": lambda: smooth, "huber": lambda: smooth * beta,
            "bce": lambda: -(t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log1p(-x), -100)),
            "bce_logits": lambda: np.logaddexp(0, x) - x * t,
            "kl": lambda: np.where(t == 0, 0, t * np.log(t)) - t * x, "kl_log": lambda: np.exp(t) * (t - x),
        }[kind]()  # fmt: skip


def _slopes(kind, x, t, beta):
    d = x - t
    near_ = np.clip(d / beta, -1, 1)
    by_input = {
        "mse": 2 * d, "l1": np.sign(d), "smooth_l1": near_, "huber": near_ * beta, "bce": d / np.where(kind == "bce", x * (1 - x), 1),
        "bce_logits": 1 / (1 + np.exp(-x)) - t, "kl": -t, "kl_log": -np.exp(t),
    }[kind]  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        by_target = {
            "bce": lambda: np.log1p(-x) - np.log(x), "bce_logits": lambda: -x, "kl": lambda: np.log(t) + 1 - x,
            "kl_log": lambda: np.exp(t) * (t - x + 1),
        }.get(kind, lambda: -by_input)()  # fmt: skip
    return by_input, by_target


def _pair(kind, shape, dtype):
    """Numbers that the loss is defined for, not at its corners."""
    pairs = [rand(*shape, dtype=dtype) for _ in "xt"]
    kind_of = DTYPES[dtype]
    for i, ((_, x64), inside) in enumerate(
        zip(pairs, (kind == "bce", kind in ("bce", "bce_logits", "kl")), strict=True)
    ):
        if inside:
            x = (0.05 + 0.9 / (1 + np.exp(-x64))).astype(kind_of)
            pairs[i] = dev(x), x.astype(np.float64)
    return pairs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "reduction"), [((3, 7), "mean"), ((1,), "sum"), ((5, 13), "none"), ((2, 4099), "mean"), ((9001,), "sum")]
)
@pytest.mark.parametrize("kind", losses.KINDS)
def test_elements(kind, shape, reduction, dtype):
    (x, x64), (t, t64) = _pair(kind, shape, dtype)
    beta = 0.75 if kind in ("smooth_l1", "huber") else 1.0
    g, g64 = rand(*(shape if reduction == "none" else ()), dtype=dtype)
    want = _term(kind, x64, t64, beta)
    want = {"mean": want.mean, "sum": want.sum, "none": lambda: want}[reduction]()
    out = losses.forward(xp, x, t, kind=kind, reduction=reduction, beta=beta)
    near(out, np.asarray(want))
    scale = g64 / (x64.size if reduction == "mean" else 1)
    for needs in ((True, True), (True, False), (False, True)) if len(shape) == 2 else ((True, True),):
        found = losses.vjp(g, x, t, kind, reduction, beta, needs, xp)
        for got, slope, wanted in zip(found, _slopes(kind, x64, t64, beta), needs, strict=True):
            assert (got is not None) == wanted
            if wanted:
                near(got, slope * scale)


def test_binary_cross_entropy_of_saturated_probabilities():
    """The gradient of input is finite at probabilities of 0 and 1."""
    corners = np.array([0, 1, 0, 1, 1e-20], np.float32), np.array([0, 1, 1, 0, 0.5], np.float32)
    x, t = (dev(a) for a in corners)
    out = losses.forward(xp, x, t, kind="bce", reduction="none")
    gx, gt = losses.vjp(dev(np.full(5, 2, np.float32)), x, t, "bce", "none", 1.0, (True, True), xp)
    if COMPILE_ONLY:
        return
    np.testing.assert_allclose(host(out), [0, 0, 100, 100, 10 * np.log(10)], rtol=1e-5)
    np.testing.assert_allclose(host(gx), [0, 0, -2e12, 2e12, -1e12], rtol=1e-5)
    np.testing.assert_allclose(host(gt), [np.inf, -np.inf, np.inf, -np.inf, 40 * np.log(10)], rtol=1e-5)


@pytest.mark.parametrize("kind", losses.KINDS)
def test_other_devices_and_nan(kind):
    """Strided inputs; a NaN anywhere is a NaN in the loss and in its element's gradient."""
    (x, x64), (t, t64) = _pair(kind, (6, 10), "fp32")
    near(
        losses.forward(xp, x.T[1:9:2], t.T[1:9:2], kind=kind),
        np.asarray(_term(kind, x64.T[1:9:2], t64.T[1:9:2], 1.0).mean()),
    )
    x[2, 3] = np.nan
    out = losses.forward(xp, x, t, kind=kind, reduction="none")
    gx, _ = losses.vjp(xp.ones((6, 10), "float32"), x, t, kind, "none", 1.0, (True, True), xp)
    if COMPILE_ONLY:
        return
    wrong, slope = (np.isnan(host(a)) for a in (out, gx))
    assert wrong.sum() == 1
    assert wrong[2, 3]
    assert slope[2, 3] == (not kind.startswith("kl"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "weighted", "reduction"), [
    ((5, 7, 1), False, "mean"), ((3, 5, 11), True, "mean"), ((2, 3, 1029), True, "sum"), ((4, 3, 5), True, "none"), ((1, 1, 1), False, "none"),
])  # fmt: skip
def test_classes(shape, weighted, reduction, dtype):
    x, x64 = rand(*shape, dtype=dtype)
    r = np.random.default_rng(3)
    target = r.integers(0, shape[1], (shape[0], shape[2]))
    if target.size > 1:
        target[0, -1] = -7
    w = r.random(shape[1]).astype(np.float32) + 0.5
    kept = target != -7
    safe = np.where(kept, target, 0)
    weights = (w[safe] if weighted else 1.0) * kept
    want = -np.take_along_axis(x64, safe[:, None], 1)[:, 0] * weights
    total = weights.sum() if reduction == "mean" else 1.0
    g, g64 = rand(*(target.shape if reduction == "none" else ()), dtype=dtype)
    slope = np.zeros(shape)
    np.put_along_axis(slope, safe[:, None], (-weights * g64 / total)[:, None], 1)
    options = {
        "target": dev(target),
        "weight": dev(w) if weighted else None,
        "ignore_index": -7,
        "reduction": reduction,
    }
    out, kept_total = losses.nll.forward(xp, x, **options)
    near(out, want if reduction == "none" else np.asarray(want.sum() / total))
    (gx,) = losses.nll.vjp(g, options["target"], options["weight"], kept_total, -7, reduction, shape, xp)
    near(gx, slope)
