"""Matrix products by cuBLASLt compared with float64: on a GPU, or over a fake CuPy and a fake cuBLASLt.

The fake library (`tests/gpu/fake_cublaslt.py`) checks its arguments and multiplies the data at the given addresses. It therefore
tests layouts, batches and epilogues without a GPU.
"""

import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from tests.kernels.cases import DTYPES, NEAR, ON_GPU

if ON_GPU:
    library = None
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_cublaslt
    import fake_cupy

    fake_cupy.install()
    library = fake_cublaslt.install()

import mytorch
from mytorch.arrays import cupy_ns
from mytorch.arrays.einsum import einsum
from mytorch.kernels import cublas
from mytorch.nn import functional as F

xp = cupy_ns()
ALL = {**DTYPES, "fp64": np.dtype(np.float64)}
rng = np.random.default_rng(0)


def rand(*shape, dtype="fp32"):
    """Returns normal numbers on the GPU and, rounded to dtype, as a float64 NumPy array."""
    x = np.asarray(rng.standard_normal(shape)).astype(ALL[dtype])
    return xp.asarray(x), x.astype(np.float64)


def near(got, want, factor=1.0):
    """Check got against float64 `want`, to the precision of got's dtype."""
    if library is not None:
        assert library.why is None, library.why
    bound = {"float64": 1e-12, **NEAR}[got.dtype.name] * factor * max(np.abs(want).max(initial=0.0), 0.1)
    got = xp.asnumpy(got).astype(np.float64)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    error = np.abs(got - want).max(initial=0.0)
    assert error <= bound, f"error {error:.3g} above {bound:.3g}"


def flipped(x, axes=(-1, -2)):
    """x with two of its axes exchanged in memory."""
    return xp.swapaxes(xp.ascontiguousarray(xp.swapaxes(x, *axes)), *axes)


SIZES = [(1, 1, 1), (1, 8, 5), (7, 1, 3), (4, 6, 1), (33, 65, 17), (64, 48, 80)]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("size", SIZES)
def test_layouts(size, dtype):
    m, n, k = size
    a, a64 = rand(m, k, dtype=dtype)
    b, b64 = rand(k, n, dtype=dtype)
    for left in (a, flipped(a)):
        for right in (b, flipped(b)):
            near(cublas.matmul(left, right), a64 @ b64)
            new = xp.empty((m, n), a.dtype)
            for out in (new, flipped(new), xp.empty((m, n + 3), a.dtype)[:, 2:-1], xp.empty((2 * m, n), a.dtype)[::2]):
                assert cublas.matmul(left, right, out) is out
                near(out, a64 @ b64)


@pytest.mark.parametrize("dtype", ALL)
def test_views(dtype):
    """Parts of larger arrays, every second column, backwards, one number everywhere: with a leading dimension or a copy."""
    x, x64 = rand(40, 48, dtype=dtype)
    near(cublas.matmul(x[3:20, 5:16], x[1:12, 7:30]), x64[3:20, 5:16] @ x64[1:12, 7:30])
    near(cublas.matmul(x[3:20, 5:16].T, x[3:20, 1:9]), x64[3:20, 5:16].T @ x64[3:20, 1:9])
    near(cublas.matmul(x[:, ::2], x[:24]), x64[:, ::2] @ x64[:24])
    near(cublas.matmul(x[::-1, :40], x), x64[::-1, :40] @ x64)
    wide, wide64 = xp.broadcast_to(x[:1], (40, 48)), np.broadcast_to(x64[:1], (40, 48))
    near(cublas.matmul(wide.T, x), wide64.T @ x64)
    out = xp.zeros((80, 80), x.dtype)[::2, ::2]
    cublas.matmul(x, x.T, out)
    near(out, x64 @ x64.T)


def _strided(draw, shape):
    """Returns an array with random strides (permuted, with gaps, step 2 or reversed), and the same as a NumPy array."""
    order = draw.permutation(len(shape))
    steps = draw.choice([1, 1, 1, 1, 2, -1], len(shape))
    x = np.asarray(draw.standard_normal([shape[i] * 2 + 1 for i in order])).astype(np.float32)
    cut = tuple(
        {1: slice(1, n + 1), 2: slice(1, 2 * n + 1, 2), -1: slice(n, 0, -1)}[int(s)]
        for n, s in zip(shape, steps, strict=True)
    )
    back = tuple(np.argsort(order))
    return xp.asarray(x).transpose(back)[cut], x.transpose(back)[cut].astype(np.float64)


@pytest.mark.parametrize("seed", range(4))
def test_any_strides(seed):
    draw = np.random.default_rng(seed)
    for _ in range(100):
        batch = list(draw.choice([1, 2, 3], draw.integers(0, 4)))
        m, n, k = draw.choice([1, 2, 5, 8], 3)
        shapes = [
            [1 if draw.random() < 0.25 else b for b in batch][
                draw.integers(0, len(batch) + 1) * (draw.random() < 0.3) :
            ]
            for _ in range(2)
        ]
        (a, a64), (b, b64) = _strided(draw, [*shapes[0], m, k]), _strided(draw, [*shapes[1], k, n])
        want = a64 @ b64
        near(cublas.matmul(a, b), want)
        out, before = _strided(draw, want.shape)
        cublas.matmul(a, b, out, accumulate=True)
        near(out, want + before)


def _heads(*shape, dtype="fp32"):
    """(B, T, H, D) seen as (B, H, T, D)."""
    x, x64 = rand(*shape, dtype=dtype)
    return xp.swapaxes(x, 1, 2), x64.swapaxes(1, 2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shapes", [
    ((3, 5, 6), (3, 6, 4)), ((3, 5, 6), (6, 4)), ((5, 6), (3, 6, 4)), ((1, 5, 6), (3, 6, 4)), ((2, 3, 5, 6), (2, 3, 6, 4)),
    ((2, 3, 5, 6), (3, 6, 4)), ((2, 1, 5, 6), (3, 6, 4)), ((2, 1, 5, 6), (1, 3, 6, 4)), ((3, 1, 6), (6, 4)), ((2, 3, 1, 6), (2, 1, 6, 1)),
    ((20, 1, 3, 4), (20, 4, 2)), ((2, 3, 2, 5, 6), (2, 1, 2, 6, 4)),
])  # fmt: skip
def test_batches(shapes, dtype):
    (a, a64), (b, b64) = (rand(*shape, dtype=dtype) for shape in shapes)
    want = a64 @ b64
    near(cublas.matmul(a, b), want, 2)
    near(cublas.matmul(flipped(a), flipped(b)), want, 2)
    out = flipped(xp.empty(want.shape, a.dtype))
    near(cublas.matmul(a, b, out), want, 2)
    if a.ndim > 2:
        near(cublas.matmul(flipped(a, (0, 1)), b), want, 2)
        near(cublas.matmul(a, b, flipped(xp.empty(want.shape, a.dtype), (0, 1))), want, 2)
    if a.ndim > 3:
        near(
            cublas.matmul(flipped(a, (1, 2)), flipped(b, (0, 1)), flipped(xp.empty(want.shape, a.dtype), (1, 2))),
            want,
            2,
        )


@pytest.mark.parametrize("batch", [(2, 3), (20, 18)])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_heads(dtype, batch):
    b, h = batch
    q, q64 = _heads(b, 5, h, 8, dtype=dtype)
    k, k64 = _heads(b, 7, h, 8, dtype=dtype)
    v, v64 = _heads(b, 7, h, 8, dtype=dtype)
    scores = cublas.matmul(q, xp.swapaxes(k, -1, -2))
    near(scores, q64 @ k64.swapaxes(-1, -2))
    p64 = xp.asnumpy(scores).astype(np.float64)
    near(cublas.matmul(scores, v), p64 @ v64, 2)
    out = xp.swapaxes(xp.empty((b, 5, h, 8), q.dtype), 1, 2)
    near(cublas.matmul(scores, v, out), p64 @ v64, 2)


def test_few_calls():
    """The number of cuBLASLt calls is minimal, also for batches that need several calls."""
    if library is None:
        return
    for shapes, most in (
        (((4, 8, 16), (16, 24)), 1), (((4, 2, 8, 16), (4, 2, 16, 24)), 1), (((4, 2, 8, 16), (4, 1, 16, 24)), 4), (((40, 1, 8, 16), (1, 30, 16, 24)), 1),
    ):  # fmt: skip
        a, b = (rand(*shape)[0] for shape in shapes)
        before = len(library.calls)
        cublas.matmul(a, b)
        assert len(library.calls) - before <= most, shapes
    q, _ = _heads(32, 5, 12, 8)
    before = len(library.calls)
    cublas.matmul(q, xp.swapaxes(q, -1, -2))
    assert len(library.calls) - before == 12


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_accumulate_and_dtype(dtype):
    a, a64 = rand(40, 9, dtype=dtype)
    b, b64 = rand(40, 12, dtype=dtype)
    wide = cublas.matmul(a.T, b, dtype=np.float32)
    assert wide.dtype == np.float32
    near(wide, a64.T @ b64)
    cublas.matmul(a.T, b, wide, accumulate=True)
    near(wide, 2 * (a64.T @ b64))
    odd = xp.ones((9, 24), np.float32)[:, ::2]
    cublas.matmul(a.T, b, odd, accumulate=True)
    near(odd, 1 + a64.T @ b64)
    own = cupy_ns()
    own.add_matmul(wide, a.T, b)
    near(wide, 3 * (a64.T @ b64))
    half = wide.astype(a.dtype)
    own.add_matmul(half, a.T, b)
    near(half, 4 * (a64.T @ b64), 2)
    whole = xp.ones((9, 12), np.int64)
    own.add_matmul(whole, xp.ones((9, 2), np.int64), xp.ones((2, 12), np.int64))
    assert whole.sum() == 3 * 9 * 12
    many = xp.ones((2, 9, 12), a.dtype)
    cublas.matmul(xp.stack([a.T, a.T]), b, many, accumulate=True)
    near(many, np.stack([1 + a64.T @ b64] * 2), 2)


def test_vectors():
    a, a64 = rand(6, 5, 7)
    v, v64 = rand(7)
    w, w64 = rand(5)
    near(cublas.matmul(a, v), a64 @ v64)
    near(cublas.matmul(w, a), w64 @ a64)
    near(cublas.matmul(v, v), np.asarray(v64 @ v64))
    near(cublas.matmul(w, a[0]), w64 @ a64[0])
    near(cublas.matmul(a[0], v[::-1]), a64[0] @ v64[::-1])
    out = xp.zeros(5, np.float32)
    cublas.matmul(a[0], v, out)
    near(out, a64[0] @ v64)


def test_empty():
    for shapes in (((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 2)), ((4, 2, 0), (4, 0, 3))):
        a, b = (xp.ones(shape, np.float32) for shape in shapes)
        near(cublas.matmul(a, b), np.ones(shapes[0]) @ np.ones(shapes[1]))
    out = xp.ones((2, 3), np.float32)
    cublas.matmul(xp.ones((2, 0), np.float32), xp.ones((0, 3), np.float32), out, accumulate=True)
    near(out, np.ones((2, 3)))


def test_misaligned():
    """Addresses that are multiples of 2 bytes only."""
    store, store64 = rand(4000, dtype="bf16")
    a, b = store[1 : 1 + 33 * 20].reshape(33, 20), store[701 : 701 + 20 * 17].reshape(20, 17)
    near(cublas.matmul(a, b), store64[1 : 1 + 33 * 20].reshape(33, 20) @ store64[701 : 701 + 20 * 17].reshape(20, 17))
    a, b = (store[: 3 * 35].reshape(3, 5, 7), store[: 3 * 21].reshape(3, 7, 3))  # batch strides of 70 and 42 bytes
    near(cublas.matmul(a, b), store64[: 3 * 35].reshape(3, 5, 7) @ store64[: 3 * 21].reshape(3, 7, 3), 2)


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _gelu_slope(x):
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [24, 45])
@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
def test_linear(activation, width, dtype):
    f = {None: lambda v: v, "relu": lambda v: np.maximum(v, 0), "gelu_tanh": _gelu}[activation]
    x, x64 = rand(2, 21, 33, dtype=dtype)
    w, w64 = rand(width, 33, dtype=dtype)
    b, b64 = rand(width, dtype=dtype)
    near(cublas.linear(x, w, activation=activation), f(x64 @ w64.T), 2)
    near(cublas.linear(x, w, b, activation=activation), f(x64 @ w64.T + b64), 2)
    apart = xp.zeros(2 * width, b.dtype)[1::2]
    apart[...] = b
    near(cublas.linear(x, w, apart, activation=activation), f(x64 @ w64.T + b64), 2)
    near(cublas.linear(x[..., :0], w[:, :0], b, activation=activation), np.broadcast_to(f(b64), (2, 21, width)), 2)
    assert cublas.linear(x[:0], w, b, activation=activation).shape == (0, 21, width)
    if activation == "gelu_tanh":
        out, inner = cublas.linear(x, w, b, activation=activation, before=True)
        near(inner, x64 @ w64.T + b64, 2)
        near(out, f(x64 @ w64.T + b64), 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 21])
def test_gelu_gradients(rows, bias, dtype):
    (g, g64), (w, w64), (before, before64) = (rand(*s, dtype=dtype) for s in ((rows, 33), (33, 24), (rows, 40)))
    for x, x64, v, v64 in (
        (before[:, :24], before64[:, :24], w, w64),
        (xp.ascontiguousarray(before[:, 8:32]), before64[:, 8:32], flipped(w), w64),
    ):
        wanted = (g64 @ v64) * _gelu_slope(x64)
        out, total = cublas.gelu_gradients(g, v, x, bias)
        near(out, wanted, 2)
        assert (total is None) != bias
        if bias:
            near(total, wanted.sum(0), 2)
    assert cublas.gelu_gradients(g[:0], w, before[:0, :24], bias)[0].shape == (0, 24)
    near(cublas.gelu_gradients(g[:, :0], w[:0], before[:, :24], bias)[0], np.zeros((rows, 24)))
    for apart in (before[:, 1:25], xp.zeros((rows + 1, 25), g.dtype)[1:, :24]):  # rows that no epilogue reads
        with pytest.raises(ValueError, match="in rows of 16 bytes"):
            cublas.gelu_gradients(g, w, apart)
    with pytest.raises(TypeError, match="one float dtype"):
        cublas.gelu_gradients(g, w, before[:, :24].astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [24, 45])
@pytest.mark.parametrize("biases", [False, True])
def test_gelu_mlp(biases, hidden, dtype):
    """Both linear layers with GELU between them and their gradients, by epilogues where the hidden width allows them."""
    pytest.importorskip("triton")  # it has the kernel's other half
    shapes = (3, 5, 16), (hidden, 16), (12, hidden), *([(hidden,), (12,)] if biases else [])
    given, (g, g64) = [rand(*shape, dtype=dtype) for shape in shapes], rand(3, 5, 12, dtype=dtype)
    leaves = [mytorch.tensor(a).requires_grad_() for a, _ in given]
    twins = [mytorch.tensor(a64, device="cpu").requires_grad_() for _, a64 in given]
    count = 0 if library is None else len(library.calls)
    out, want = (F.gelu_mlp(*these, approximate="tanh") for these in (leaves, twins))
    assert out.grad_fn.label == "GeluMlpBackward"
    out.backward(mytorch.tensor(g))
    want.backward(mytorch.tensor(g64, device="cpu"))
    assert library is None or len(library.calls) - count == 6, library.calls
    near(out.detach()._mt_data._array, want.detach().numpy(), 3)
    for leaf, twin in zip(leaves, twins, strict=True):
        near(leaf.grad._array, twin.grad.numpy(), 4)


def test_gelu_mlp_of_constants():
    """Only the gradients that are wanted, and products only for those."""
    given = [rand(*shape) for shape in ((5, 16), (24, 16), (12, 24), (24,), (12,))]
    (g, g64) = rand(5, 12)
    for wanted in ([0], [1], [2], [3], [4], [1, 4]):
        leaves = [mytorch.tensor(a).requires_grad_(i in wanted) for i, (a, _) in enumerate(given)]
        twins = [mytorch.tensor(a64, device="cpu").requires_grad_(i in wanted) for i, (_, a64) in enumerate(given)]
        F.gelu_mlp(*leaves, approximate="tanh").backward(mytorch.tensor(g))
        F.gelu_mlp(*twins, approximate="tanh").backward(mytorch.tensor(g64, device="cpu"))
        for leaf, twin in zip(leaves, twins, strict=True):
            assert (leaf.grad is None) == (twin.grad is None)
            if twin.grad is not None:
                near(leaf.grad._array, twin.grad.numpy(), 3)


@pytest.mark.parametrize("dtype", DTYPES)  # there are no epilogues of float64
def test_weight_gradients(dtype):
    g, g64 = rand(40, 24, dtype=dtype)
    x, x64 = rand(40, 16, dtype=dtype)
    gw, gb = cublas.weight_gradients(g, x)
    near(gw, g64.T @ x64, 2)
    near(gb, g64.sum(0), 2)
    try:
        gw, gb = cublas.weight_gradients(flipped(g), x[:, 3:12])
    except cublas.Unsupported:  # cuBLASLt itself has no kernel with a sum for columns that are not aligned
        assert ON_GPU
    else:
        near(gw, g64.T @ x64[:, 3:12], 2)
        near(gb, g64.sum(0), 2)
    gw, gb = cublas.weight_gradients(g[:0], x[:0])
    near(gw, np.zeros((24, 16)))
    near(gb, np.zeros(24))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_layer(bias, dtype):
    """nn.functional.linear forward and backward."""
    (x, x64), (w, w64), (b, b64), (g, g64) = (
        rand(*shape, dtype=dtype) for shape in ((3, 5, 16), (24, 16), (24,), (3, 5, 24))
    )
    leaves = [mytorch.tensor(a).requires_grad_() for a in ((x, w, b) if bias else (x, w))]
    out = F.linear(*leaves, fused=True)
    out.backward(mytorch.tensor(g))
    near(out.detach()._mt_data._array, x64 @ w64.T + (b64 if bias else 0), 2)
    wanted = (g64 @ w64, np.einsum("bto,bti->oi", g64, x64), g64.sum((0, 1)))
    for leaf, want in zip(leaves, wanted, strict=False):
        near(leaf.grad._array, want, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["relu", "relu_squared", "silu", "gelu"])
def test_layer_with_activation(activation, dtype):
    (x, x64), (w, w64), (b, b64), (g, g64) = (
        rand(*shape, dtype=dtype) for shape in ((3, 5, 16), (24, 16), (24,), (3, 5, 24))
    )
    leaves = [mytorch.tensor(a).requires_grad_() for a in (x, w, b)]
    twins = [mytorch.tensor(a, device="cpu").requires_grad_() for a in (x64, w64, b64)]
    out, want = (
        F.linear(*these, act_func=activation, fused=fused) for these, fused in ((leaves, True), (twins, False))
    )
    out.backward(mytorch.tensor(g))
    want.backward(mytorch.tensor(g64, device="cpu"))
    near(out.detach()._mt_data._array, want.detach().numpy(), 2)
    for leaf, twin in zip(leaves, twins, strict=True):
        near(leaf.grad._array, twin.grad.numpy(), 3)


def aligned(shape, kind):
    """Returns a new array at a multiple of 512 bytes, with the alignment of CuPy's pool."""
    kind = np.dtype(kind)
    size = int(np.prod(shape)) * kind.itemsize
    block = xp.empty(size + 512, np.uint8)
    begin = -block.data.ptr % 512
    return block[begin : begin + size].view(kind).reshape(shape)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@mock.patch.object(cublas, "_empty", cublas._empty if library is None else aligned)
def test_capture(dtype):
    """After a warm-up on the same stream, each replay multiplies the current content of the operands."""
    a, a64 = rand(24, 16, dtype=dtype)
    b, b64 = rand(40, 16, dtype=dtype)
    bias, bias64 = rand(40, dtype=dtype)
    second, second64 = rand(40, dtype=dtype)
    total = xp.zeros((24, 40), np.float32)
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.wait_event(xp.cuda.Stream.null.record())

        def step():
            cublas.matmul(a, b.T, total, accumulate=True)
            hidden, before = cublas.linear(a, b, bias, activation="gelu_tanh", before=True)
            slopes = cublas.gelu_gradients(a, b.T, before, True)[1]
            return cublas.linear(a, b, bias), cublas.linear(a, b, second, activation="relu"), hidden, slopes

        step()
        total.fill(0)
        made = None if library is None else library.made
        stream.begin_capture()
        out, other, hidden, slopes = step()
        graph = stream.end_capture()
        assert library is None or library.made == made
        graph.launch(stream)
        a *= 2
        graph.launch(stream)
        stream.synchronize()
    near(total, 3 * (a64 @ b64.T))
    near(out, 2 * a64 @ b64.T + bias64, 2)
    near(other, np.maximum(2 * a64 @ b64.T + second64, 0), 2)
    before = 2 * a64 @ b64.T + bias64
    near(hidden, _gelu(before), 2)
    near(slopes, (2 * a64 @ b64.T * _gelu_slope(before)).sum(0), 4)


def test_refusals():
    a, _ = rand(3, 4)
    with pytest.raises(ValueError, match="inner sizes are 4 and 3"):
        cublas.matmul(a, a)
    with pytest.raises(ValueError, match="broadcast"):
        cublas.matmul(xp.ones((2, 3, 4), np.float32), xp.ones((3, 4, 5), np.float32))
    with pytest.raises(TypeError, match="expected two arrays of float16"):
        cublas.matmul(a, a.T.astype(np.int32))
    with pytest.raises(TypeError, match="can't be written as float16"):
        cublas.matmul(a, a.T, dtype=np.float16)
    with pytest.raises(ValueError, match=r"out is float32 \(2, 2\), and the product float32 \(3, 3\)"):
        cublas.matmul(a, a.T, xp.empty((2, 2), np.float32))
    with pytest.raises(ValueError, match="was not given"):
        cublas.matmul(a, a.T, accumulate=True)
    with pytest.raises(ValueError, match="no epilogue"):
        cublas.linear(a, a, activation="silu")
    with pytest.raises(ValueError, match=r"got float32 \(3, 4\), float32 \(3, 4\), float32 \(4,\)"):
        cublas.linear(a, a, a[0])
    twice = xp.lib.stride_tricks.as_strided(xp.empty((3, 3), np.float32), (2, 3, 3), (0, 12, 4))
    with pytest.raises(ValueError, match="without overlapping elements"):
        cublas.matmul(xp.stack([a, a]), a.T, twice)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("spec", [
    "ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "bthd,bshd->bhts", "bhts,bshd->bthd", "ij,ij->", "i,j->ij", "ij->ji", "ii->i", "ij,j->i",
    "bij,jk->bik", "ijk,ilm,njm,nlk,abc->", "ij,jk,kl->il", "aij,ajk->ik", "iij,jk->ik", "ab,cd->", "abc,cd->db", "ij,ij->ij", "i,i->i",
])  # fmt: skip
def test_einsum(spec, dtype):
    sizes = dict(zip("abcdhijklmnst", (2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5, 3), strict=True))
    pairs = [rand(*(sizes[c] for c in term), dtype=dtype) for term in spec.split("->")[0].split(",")]
    near(einsum(xp, spec, *(abs(a) for a, _ in pairs)), np.einsum(spec, *(abs(b) for _, b in pairs)), 3)
