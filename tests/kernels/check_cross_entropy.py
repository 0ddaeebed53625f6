"""Cross-entropy, with and without the last layer, in Triton's interpreter, compared with float64."""

import numpy as np
import pytest

from mytorch.kernels.triton import cross_entropy, cross_entropy_soft, linear_cross_entropy

from .cases import DTYPES, dev, near, rand, xp


def reference(x, target, weight, ignore_index, s, reduction, g=1.0):
    """The loss and the gradient of logits in float64."""
    n, classes = x.shape
    w = np.ones(classes) if weight is None else weight
    kept = target != ignore_index
    t = np.where(kept, target, 0)
    lse = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
    losses = ((1 - s) * w[t] * (lse - x[np.arange(n), t]) + s / classes * (w * (lse[:, None] - x)).sum(1)) * kept
    total = (w[t] * kept).sum() if reduction == "mean" else 1.0
    p = np.exp(x - lse[:, None])
    hot = np.eye(classes)[t]
    gx = ((1 - s) * w[t][:, None] * (p - hot) + s / classes * (p * w.sum() - w)) * kept[:, None]
    gx = gx * (np.asarray(g).reshape(-1, 1) if reduction == "none" else g / total)
    return losses if reduction == "none" else losses.sum() / total, gx


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "classes", "weighted", "smoothing", "reduction"), [
    (5, 7, False, 0.0, "mean"), (3, 10001, False, 0.0, "mean"), (7, 65, True, 0.0, "sum"),
    (6, 4097, True, 0.1, "mean"), (5, 33, False, 0.3, "none"),
])  # fmt: skip
def test_cross_entropy(rows, classes, weighted, smoothing, reduction, dtype):
    x, x64 = rand(rows, classes, dtype=dtype, scale=3)
    r = np.random.default_rng(2)
    target = r.integers(0, classes, rows)
    target[1] = -100
    w = w64 = None
    if weighted:
        w = r.random(classes).astype(np.float32)
        w64 = w.astype(np.float64)
    g, g64 = rand(*((rows,) if reduction == "none" else ()), dtype=dtype)
    loss, gx = reference(x64, target, w64, -100, smoothing, reduction, g64)
    target, w = dev(target), None if w is None else dev(w)
    options = {"weight": w, "ignore_index": -100, "label_smoothing": smoothing, "reduction": reduction}
    out, lse, total = cross_entropy.forward(xp, x, target=target, **options)
    near(out, loss)
    near(cross_entropy.vjp(g, x, target, w, -100, smoothing, reduction, lse, total, xp)[0], gx)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "classes", "weighted", "smoothing", "reduction"), [
    (5, 7, False, 0.0, "mean"), (3, 9001, True, 0.2, "sum"), (6, 129, True, 0.1, "none"),
])  # fmt: skip
def test_probabilities_as_targets(rows, classes, weighted, smoothing, reduction, dtype):
    x, x64 = rand(rows, classes, dtype=dtype, scale=3)
    r = np.random.default_rng(2)
    target = (r.random((rows, classes)) * 2 / classes).astype(DTYPES[dtype])
    t64 = target.astype(np.float64)
    w = r.random(classes).astype(np.float32) if weighted else None
    w64 = 1.0 if w is None else w.astype(np.float64)
    g, g64 = rand(*((rows,) if reduction == "none" else ()), dtype=dtype)
    lse = np.log(np.exp(x64 - x64.max(1, keepdims=True)).sum(1, keepdims=True)) + x64.max(1, keepdims=True)
    u = w64 * (t64 * (1 - smoothing) + smoothing / classes)
    losses = (u * (lse - x64)).sum(1)
    scale = g64.reshape(-1, 1) if reduction == "none" else g64 / (rows if reduction == "mean" else 1)
    target, w = dev(target), None if w is None else dev(w)
    out, kept, mass = cross_entropy_soft.forward(
        xp, x, target, weight=w, label_smoothing=smoothing, reduction=reduction
    )
    near(out, losses if reduction == "none" else np.asarray(losses.sum() / (rows if reduction == "mean" else 1)))
    gx, gt = cross_entropy_soft.vjp(g, x, target, w, smoothing, reduction, kept, mass, (True, True), xp)
    near(gx, (np.exp(x64 - lse) * u.sum(1, keepdims=True) - u) * scale)
    near(gt, (lse - x64) * (1 - smoothing) * w64 * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_in_the_place_of_the_logits(dtype):
    x, x64 = rand(5, 130, dtype=dtype)
    target = np.array([3, -100, 129, 0, 3])
    _, gx = reference(x64, target, None, -100, 0.0, "sum")
    target = dev(target)
    losses, one = xp.empty(5, "float32"), xp.ones((), "float32")
    lse = cross_entropy.rows_forward(xp, x, target, None, -100, 0.0, 0.0, losses)
    out = cross_entropy.rows_backward(xp, one, x, target, None, lse, one, -100, 0.0, 0.0, "sum", into=x)
    assert out is x
    near(x, gx)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("reduction", "smoothing", "softcap", "weighted"), [("mean", 0.0, None, False), ("sum", 0.1, 5.0, True)]
)
def test_linear_cross_entropy(reduction, smoothing, softcap, weighted, dtype):
    x, x64 = rand(37, 19, dtype=dtype)
    w, w64 = rand(53, 19, dtype=dtype)
    b, b64 = rand(53, dtype=dtype)
    target = np.random.default_rng(2).integers(0, 53, 37)
    target[3] = 7
    class_weight = np.linspace(0.5, 1.5, 53, dtype=np.float32) if weighted else None
    logits = x64 @ w64.T + b64
    capped = logits if softcap is None else np.tanh(logits / softcap) * softcap
    loss, g = reference(capped, target, class_weight, 7, smoothing, reduction)
    if softcap is not None:
        g = g * (1 - (capped / softcap) ** 2)
    loss64, total, *got = linear_cross_entropy.run(
        xp, x, w, b, target=dev(target), class_weight=None if class_weight is None else dev(class_weight), ignore_index=7, label_smoothing=smoothing, reduction=reduction,
        softcap=softcap, chunk=10,
    )  # fmt: skip
    factor = 1 if dtype == "fp32" else 3
    near(loss64, np.asarray(loss), factor if dtype == "fp32" else 1000)
    count = (target != 7).sum() if reduction == "mean" else 1.0
    if not weighted:
        near(total, np.asarray(float(count)))
    for have, want in zip(got, (g @ w64, g.T @ x64, g.sum(0)), strict=True):
        near(have, want * count, factor * (1 if have.dtype == x.dtype else 1000))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scaling_the_gradients_kept(dtype):
    x, x64 = rand(37, 53, dtype=dtype)
    near(linear_cross_entropy.scaled(xp, x, dev(np.asarray(0.5, np.float32))), x64 * 0.5)
