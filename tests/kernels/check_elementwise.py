"""Activations, dropout, embedding and rotary embedding in Triton's interpreter against float64."""

import math

import numpy as np
import pytest

from mytorch.arrays import config
from mytorch.kernels.triton import activation, dropout, embedding, rotary
from mytorch.kernels.triton.activation import gelu, silu

from .cases import COMPILE_ONLY, DTYPES, dev, host, near, rand, xp

_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _tanh_gelu(x):
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


FORMULAS = {
    "gelu": lambda x: x * (_erf(x * math.sqrt(0.5)) * 0.5 + 0.5),
    "gelu_tanh": _tanh_gelu,
    "silu": lambda x: x * _sigmoid(x),
    "relu": lambda x: np.maximum(x, 0),
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
}


def _slope(f, x, h=1e-5):
    if f is FORMULAS["relu"]:  # which has no derivative at 0
        return (x > 0).astype(np.float64)
    return (f(x + h) - f(x - h)) / (2 * h)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", FORMULAS)
def test_activation(kind, dtype):
    f = FORMULAS[kind]
    x, x64 = rand(3, 777, dtype=dtype, scale=2)
    g, g64 = rand(3, 777, dtype=dtype)
    near(activation.apply(xp, x, kind), f(x64))
    near(activation.apply_backward(xp, g, x, kind), g64 * _slope(f, x64))
    b, b64 = rand(3, 777, dtype=dtype)
    near(activation.gated(xp, x, b, kind=kind), f(x64) * b64)
    ga, gb = activation.gated_backward(xp, g, x, b, kind=kind)
    near(ga, g64 * b64 * _slope(f, x64))
    near(gb, g64 * f(x64))
    both, both64 = rand(2, 5, 70, dtype=dtype)
    g, g64 = rand(2, 5, 35, dtype=dtype)
    a64, b64 = both64[..., :35], both64[..., 35:]
    near(activation.gated(xp, both, kind=kind), f(a64) * b64)
    near(
        activation.gated_backward(xp, g, both, kind=kind),
        np.concatenate([g64 * b64 * _slope(f, a64), g64 * f(a64)], -1),
    )


def test_ops_of_activation():
    x, x64 = rand(2, 5)
    near(gelu.forward(xp, x, approximate="tanh"), FORMULAS["gelu_tanh"](x64))
    near(gelu.vjp(x, x, "none", xp)[0], x64 * _slope(FORMULAS["gelu"], x64))
    near(silu.vjp(x, x, xp)[0], x64 * _slope(FORMULAS["silu"], x64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout(dtype):
    state = dev(np.array([1234, 5], np.int64))
    x = dev(np.ones((33, 999), DTYPES[dtype]))
    out = host(dropout.apply(xp, x, 0.3, state, 7))
    if COMPILE_ONLY:
        return
    kept = out != 0
    assert abs(kept.mean() - 0.7) < 0.01
    near(out, kept / 0.7)
    assert abs(np.corrcoef(kept[:, :-1].ravel(), kept[:, 1:].ravel())[0, 1]) < 0.02
    g, g64 = rand(33, 999, dtype=dtype)
    near(dropout.apply(xp, g, 0.3, state, 7), g64 * kept / 0.7)
    for seed, offset, call in ((1234, 5, 8), (1234, 6, 7), (1235, 5, 7)):
        other = host(dropout.apply(xp, x, 0.3, dev(np.array([seed, offset], np.int64)), call))
        assert 0.3 < ((other != 0) == kept).mean() < 0.7  # 0.58 where they are independent
    assert not dropout.apply(xp, x, 1.0, state, 0).any()
    near(dropout.apply(xp, x, 0.0, state, 0), np.ones(x.shape))


@pytest.mark.parametrize("fixed_order", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "kind"), [(5, np.int64), (300, np.int32), (2100, np.int64)])
def test_embedding(width, kind, dtype, fixed_order):
    weight, w64 = rand(11, width, dtype=dtype)
    index = np.random.default_rng(0).integers(0, 11, (3, 4)).astype(kind)
    index[0, :3] = 4
    near(embedding.forward(xp, weight, dev(index)), w64[index])
    g, g64 = rand(3, 4, width, dtype=dtype)
    config.deterministic = fixed_order
    for padding, by_freq in ((None, False), (4, False), (None, True)):
        want = np.zeros((11, width))
        share = np.bincount(index.ravel(), minlength=11)[index][..., None] if by_freq else 1
        np.add.at(want, index, g64 / share)
        if padding is not None:
            want[padding] = 0
        near(embedding.vjp(g, dev(index), padding, by_freq, weight.shape, None, xp)[0], want)
    config.deterministic = False


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary(dtype):
    x, x64 = rand(2, 7, 3, 10, dtype=dtype)
    x, x64 = x.swapaxes(1, 2), x64.swapaxes(1, 2)  # (B, H, T, D) over (B, T, H, D)
    angle = np.arange(9)[:, None] * 0.5 ** np.arange(5)
    cos, sin = dev(np.cos(angle).astype(np.float32)), dev(np.sin(angle).astype(np.float32))
    c, s, a, b = np.cos(angle)[:7], np.sin(angle)[:7], x64[..., :5], x64[..., 5:]
    out = rotary.rotate(xp, x, cos, sin)
    near(out, np.concatenate([a * c - b * s, b * c + a * s], -1))
    near(rotary.rotate(xp, out, cos, sin, back=True), x64)
    with pytest.raises(ValueError, match="don't fit"):
        rotary.rotate(xp, x, cos[:5], sin[:5])
