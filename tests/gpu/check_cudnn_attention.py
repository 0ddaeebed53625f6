"""Attention by cuDNN compared with float64: on a GPU, or over a fake CuPy and a fake cuDNN frontend.

The fake frontend (`tests/gpu/fake_cudnn.py`) checks its arguments and computes with the data at the given addresses. It therefore
tests shapes, strides, the order of calls and the arguments of backward without a GPU.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.cases import DTYPES, NEAR, ON_GPU

if ON_GPU:
    library = None
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_cublaslt
    import fake_cudnn
    import fake_cupy

    fake_cupy.install()
    fake_cublaslt.install()
    library = fake_cudnn.install()

import mytorch
from mytorch.arrays import cupy_ns
from mytorch.kernels import registry
from mytorch.kernels.cudnn import attention
from mytorch.nn import functional as F
from mytorch.ops.dispatch.record import RECORDS

xp = cupy_ns()
rng = np.random.default_rng(0)
attention.FEW = 2
HERE = registry.CUDNN_ATTENTION.of["cuda"].load() is not None and attention._here() in (9, 10)
SIZES = [  # B, H, heads of keys, L, S, D, Dv, causal
    (2, 3, 3, 37, 37, 64, 64, True), (1, 4, 2, 37, 37, 40, 40, True), (2, 4, 1, 19, 53, 40, 24, False), (1, 2, 2, 53, 19, 16, 16, True),
    (3, 2, 2, 19, 53, 8, 8, True), (1, 1, 1, 2, 2, 8, 128, False), (1, 2, 1, 130, 130, 128, 128, True),
]  # fmt: skip


def rand(*shape, dtype="bf16"):
    """Returns normal numbers on the GPU and, rounded to dtype, as a float64 NumPy array."""
    x = rng.standard_normal(shape).astype(DTYPES[dtype])
    return xp.asarray(x), x.astype(np.float64)


def truth(q, k, v, g, causal, scale):
    """The output and the gradients of q, k, v in float64."""
    group = q.shape[1] // k.shape[1]
    kk, vv = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ kk.swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.tri(*s.shape[2:], dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(3, keepdims=True))
    p /= p.sum(3, keepdims=True)
    gp = g @ vv.swapaxes(2, 3)
    gs = p * (gp - (gp * p).sum(3, keepdims=True)) * scale

    def gathered(x):
        return x.reshape(k.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    return p @ vv, gs @ kk, gathered(gs.swapaxes(2, 3) @ q), gathered(p.swapaxes(2, 3) @ g)


def near(got, want, factor=1.0):
    """Check a Tensor or array against float64, to the precision of its dtype."""
    raw = getattr(got, "_mt_data", got)._array
    bound = NEAR[raw.dtype.name] * factor * max(np.abs(want).max(initial=0.0), 0.1)
    found = xp.asnumpy(xp.ascontiguousarray(raw)).astype(np.float64)
    assert found.shape == want.shape, f"shape {found.shape}, wanted {want.shape}"
    error = np.abs(found - want).max(initial=0.0)
    assert error <= bound, f"error {error:.3g} above {bound:.3g}"


def tensor(raw):
    """A leaf over a raw array."""
    return mytorch.Tensor._wrap(raw).requires_grad_()


def taken(*tensors, causal):
    """Returns True if the cuDNN kernel runs."""
    raws = [x._mt_data._array for x in tensors]
    options = {"keep": None, "causal": causal, "window": None, "scale": 0.5}
    kernel = RECORDS["scaled_dot_product_attention"].kernels.find("cuda", None, raws, options)
    return getattr(kernel, "library", None) is attention


@pytest.mark.parametrize("dtype", ["bf16", "fp16"] if HERE else [])
@pytest.mark.parametrize("sizes", SIZES)
def test_forward_and_backward(dtype, sizes):
    batch, heads, key_heads, length, keys, width, wide, causal = sizes
    shapes = (batch, heads, length, width), (batch, key_heads, keys, width), (batch, key_heads, keys, wide)
    (q, q64), (k, k64), (v, v64) = (rand(*s, dtype=dtype) for s in shapes)
    g, g64 = rand(batch, heads, length, wide, dtype=dtype)
    leaves = [tensor(x) for x in (q, k, v)]
    assert taken(*leaves, causal=causal)
    before = library and dict(library.counts)
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True, scale=0.3)
    out.backward(mytorch.Tensor._wrap(g))
    wants = truth(q64, k64, v64, g64, causal, 0.3)
    for got, want in zip((out, *[x.grad for x in leaves]), wants, strict=True):
        near(got, want, 3.0)
    if library:
        assert library.counts["executed"] == before["executed"] + 2
        assert library.counts["backward"] == before["backward"] + 1


@pytest.mark.parametrize("causal", [True, False] if HERE else [])
def test_heads_of_one_linear_layer_are_read_where_they_lie(causal):
    """Slices of (B, L, 3 H D), as in GPT-2; their gradients are slices of one array, too."""
    batch, length, heads, width = 2, 21, 3, 16
    raw, x64 = rand(batch, length, 3 * heads * width)
    whole = tensor(raw)
    parts = whole.view(batch, length, 3, heads, width)
    q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
    assert taken(q, k, v, causal=causal)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    g, g64 = rand(batch, length, heads * width)
    out.transpose(1, 2).reshape(batch, length, heads * width).backward(mytorch.Tensor._wrap(g))
    q64, k64, v64 = (x64.reshape(batch, length, 3, heads, width)[:, :, i].swapaxes(1, 2) for i in range(3))
    g64 = g64.reshape(batch, length, heads, width).swapaxes(1, 2)
    wants = truth(q64, k64, v64, g64, causal, width**-0.5)
    near(out, wants[0], 3.0)
    joined = np.stack([w.swapaxes(1, 2) for w in wants[1:]], 2).reshape(x64.shape)
    near(whole.grad, joined, 3.0)


@pytest.mark.parametrize("which", [0, 1, 2] if HERE else [])
def test_a_gradient_of_one_alone_from_a_sum(which):
    """The gradient of a sum has stride 0, which cuDNN does not support. Two inputs require no gradient."""
    found = [rand(2, 2, 9, 16) for _ in range(3)]
    inputs = [mytorch.Tensor._wrap(x) for x, _ in found]
    inputs[which].requires_grad_()
    F.scaled_dot_product_attention(*inputs, is_causal=True).sum().backward()
    wants = truth(*[x for _, x in found], np.ones((2, 2, 9, 16)), True, 0.25)
    near(inputs[which].grad, wants[1 + which], 3.0)
    assert all(inputs[i].grad is None for i in range(3) if i != which)
