"""Convolutions by cuDNN compared with float64: on a GPU, or over a fake CuPy and a fake cuDNN frontend."""

import numpy as np
import pytest
from check_cudnn_attention import library, near, rand, tensor, xp  # installs the fake libraries

import mytorch
from mytorch.kernels import registry
from mytorch.kernels.cudnn import convolution
from mytorch.nn import functional as F
from tests.kernels.cases import channels_last

HERE = registry.CUDNN_CONVOLUTIONS.of["cuda"].load() is not None
operations = convolution.convolutions
FACTOR = {"bf16": 3.0, "fp16": 3.0, "fp32": 5.0}  # in float32, cuDNN may use transforms (Winograd), which round more
SIZES = [  # input, weight, stride, padding, dilation, groups
    ((2, 3, 9, 7), (8, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1), ((3, 16, 8, 8), (8, 16, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((1, 8, 11, 6), (16, 4, 2, 3), (2, 1), (0, 2), (1, 2), 2), ((2, 8, 5, 5), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 8),
    ((2, 16, 6, 6), (8, 16, 1, 1), (2, 2), (0, 0), (1, 1), 1), ((2, 8, 21), (16, 8, 5), (2,), (2,), (1,), 1),
    ((1, 4, 13), (4, 1, 3), (1,), (4,), (2,), 4),
]  # fmt: skip


def truth(x, w, g, stride, padding, dilation, groups):
    """The output and the gradients of x and w in float64, one tap of the windows after the other."""
    samples, channels, *size = x.shape
    outs, each, *kernel = w.shape
    padded = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]]).reshape(samples, groups, each, *[
        n + 2 * p for n, p in zip(size, padding, strict=True)
    ])  # fmt: skip
    w = w.reshape(groups, outs // groups, each, *kernel)
    g = g.reshape(samples, groups, outs // groups, *g.shape[2:])
    out, gx, gw = np.zeros_like(g), np.zeros_like(padded), np.zeros_like(w)
    for tap in np.ndindex(*kernel):
        parts = zip(tap, dilation, stride, g.shape[3:], strict=True)
        window = (..., *[slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in parts])
        out += np.einsum("ngc...,goc->ngo...", padded[window], w[(..., *tap)])
        gx[window] += np.einsum("ngo...,goc->ngc...", g, w[(..., *tap)])
        gw[(..., *tap)] += np.einsum("ngop,ngcp->goc", *[a.reshape(*a.shape[:3], -1) for a in (g, padded[window])])
    inside = gx[(..., *[slice(p, p + n) for n, p in zip(size, padding, strict=True)])]
    return out.reshape(samples, outs, *g.shape[3:]), inside.reshape(x.shape), gw.reshape(outs, each, *kernel)


def outputs(x_shape, w_shape, stride, padding, dilation):
    sides = zip(x_shape[2:], w_shape[2:], stride, padding, dilation, strict=True)
    return (x_shape[0], w_shape[0], *[(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides])


def placed(raw, layout):
    """Returns a raw array in row-major order, with its channels last, or with gaps."""
    if layout == "channels last" and raw.ndim == 4:
        return channels_last(raw)
    if layout == "gaps":
        wide = xp.zeros((*raw.shape[:-1], 2 * raw.shape[-1]), raw.dtype)
        wide[..., ::2] = raw
        return wide[..., ::2]
    return raw


@pytest.fixture(autouse=True)
def fresh():
    """cuDNN must compute, also where another check has caused an error."""
    for table in (operations.plans, operations.errors, operations.warned):
        table.clear()


@pytest.mark.parametrize("layout", ["rows", "channels last", "gaps"] if HERE else [])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("sizes", SIZES)
def test_forward_and_backward(sizes, dtype, layout):
    x_shape, w_shape, *geometry, groups = sizes
    (x, x64), (w, w64) = rand(*x_shape, dtype=dtype), rand(*w_shape, dtype=dtype)
    bias, bias64 = rand(w_shape[0], dtype=dtype)
    g, g64 = rand(*outputs(x_shape, w_shape, *geometry), dtype=dtype)
    leaves = [tensor(placed(x, layout)), tensor(placed(w, layout)), tensor(bias)]
    before = library and library.counts["executed"]
    call = F.conv1d if len(x_shape) == 3 else F.conv2d
    out = call(*leaves, *geometry, groups)
    out.backward(mytorch.Tensor._wrap(placed(g, layout)))
    assert not operations.warned
    want, gx, gw = truth(x64, w64, g64, *geometry, groups)
    want += bias64.reshape(-1, *(1,) * (want.ndim - 2))
    summed = g64.sum((0, *range(2, g64.ndim)))
    near(out, want, FACTOR[dtype])
    for leaf, expected in zip(leaves, (gx, gw, summed), strict=True):
        near(leaf.grad, expected, FACTOR[dtype])
    assert library is None or library.counts["executed"] == before + 3
    if layout == "channels last" and len(x_shape) == 4 and x_shape[1] > 1:
        assert out.is_contiguous(memory_format=mytorch.channels_last)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"] if HERE else [])
@pytest.mark.parametrize("sizes", [s for s in SIZES if any(k > 1 for k in s[1][2:])])
def test_transposed(sizes, dtype):
    """A transposed convolution is the gradient of a convolution's input."""
    x_shape, w_shape, stride, padding, dilation, groups = sizes
    out_shape = outputs(x_shape, w_shape, stride, padding, dilation)
    (y, y64), (w, w64), (g, g64) = (rand(*shape, dtype=dtype) for shape in (out_shape, w_shape, x_shape))
    sides = zip(x_shape[2:], out_shape[2:], w_shape[2:], stride, padding, dilation, strict=True)
    extra = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in sides]
    leaves = tensor(y), tensor(w)
    call = F.conv_transpose1d if len(x_shape) == 3 else F.conv_transpose2d
    out = call(*leaves, None, stride, padding, extra, groups, dilation)
    out.backward(mytorch.Tensor._wrap(g))
    geometry = stride, padding, dilation, groups
    near(out, truth(np.zeros(x_shape), w64, y64, *geometry)[1], FACTOR[dtype])
    gy, _, gw = truth(g64, w64, y64, *geometry)
    near(leaves[0].grad, gy, FACTOR[dtype])
    near(leaves[1].grad, gw, FACTOR[dtype])


@pytest.mark.parametrize("empty", ["samples", "none"] if HERE else [])
def test_empty_arrays(empty):
    x, w = tensor(rand(0 if empty == "samples" else 2, 4, 5, 5)[0]), tensor(rand(8, 4, 3, 3)[0])
    out = F.conv2d(x, w)
    out.sum().backward()
    assert out.shape == (0 if empty == "samples" else 2, 8, 3, 3)
    assert x.grad.shape == x.shape
    assert w.grad.shape == w.shape


@pytest.mark.parametrize("allowed", [False] if HERE else [])
def test_full_float32(allowed):
    settings = mytorch.backends.cudnn
    (x, x64), (w, w64) = rand(2, 32, 12, 12, dtype="fp32"), rand(16, 32, 3, 3, dtype="fp32")
    with settings.flags(enabled=True, allow_tf32=allowed):
        out = F.conv2d(tensor(x), tensor(w))
    want = truth(x64, w64, np.zeros((2, 16, 10, 10)), (1, 1), (0, 0), (1, 1), 1)[0]
    error = np.abs(xp.asnumpy(out._mt_data._array) - want).max()
    assert error < 5e-5 * np.abs(want).max()  # TF32 gives 1e-3
