"""Autocast of a GPU over the fake CuPy: the precision of each op, the casts of weights, and the kernels.

The table comes from PyTorch (https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior and ATen/autocast_mode.h).
It is also compared with PyTorch's dispatcher, whose fake tensors run CUDA's autocast without a GPU.
"""

import contextlib

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.ops.dispatch.record import RECORDS

HALVES = ("float16", "bfloat16")


def of(name, *options, **named):
    """A call of nn.functional's function of this name with x and y."""
    return lambda L, x, y: getattr(L.nn.functional, name)(x, y, *options, **named)


def one(name, *options, **named):
    """Calls the function with x only."""
    return lambda L, x, y: getattr(L.nn.functional, name)(x, *options, **named)


def plain(*names):
    """Returns functions of the library with the single argument x."""
    return {name: lambda L, x, y, name=name: getattr(L, name)(x) for name in names}


def classes(L):
    return L.tensor([0, 1, 2, 3], device="cuda")


def places(L):
    return L.zeros(4, 4, dtype=L.int64, device="cuda")


HALF = {
    "@": lambda L, x, y: x @ y,
    "matmul": lambda L, x, y: L.matmul(x, y),
    "mm": lambda L, x, y: L.mm(x, y),
    "mv": lambda L, x, y: L.mv(x, y.select(0, 0)),
    "bmm": lambda L, x, y: L.bmm(x.unsqueeze(0), y.unsqueeze(0)),
    "addmm": lambda L, x, y: L.addmm(x, x, y),
    "addmv": lambda L, x, y: L.addmv(x.select(0, 0), x, y.select(0, 0)),
    "addr": lambda L, x, y: L.addr(x, x.select(0, 0), y.select(0, 0)),
    "baddbmm": lambda L, x, y: L.baddbmm(x.unsqueeze(0), x.unsqueeze(0), y.unsqueeze(0)),
    "addbmm": lambda L, x, y: L.addbmm(x, x.unsqueeze(0), y.unsqueeze(0)),
    "chain_matmul": lambda L, x, y: L.chain_matmul(x, y, x),
    "multi_dot": lambda L, x, y: L.linalg.multi_dot([x, y, x]),
    "einsum": lambda L, x, y: L.einsum("ij,jk->ik", x, y),
    "vecdot": lambda L, x, y: L.linalg.vecdot(x, y),
    "matrix_power": lambda L, x, y: L.linalg.matrix_power(x, 2),
    "linear": of("linear"),
    "linear with bias": lambda L, x, y: L.nn.functional.linear(x, y, y.select(0, 0)),
    "prelu": lambda L, x, y: L.nn.functional.prelu(x, y.select(0, 0)),
    "conv_tbc": lambda L, x, y: L.nn.functional.conv_tbc(x.reshape(4, 1, 4), y.unsqueeze(0), y.select(0, 0)),
    **{
        f"conv{how}{d}d": lambda L, x, y, how=how, d=d: getattr(L.nn.functional, f"conv{how}{d}d")(
            x.reshape(1, 4, 4, *(1,) * (d - 1)), y.reshape(4, 4, *(1,) * d)
        )
        for how in ("", "_transpose")
        for d in (1, 2, 3)
    },
    "attention": lambda L, x, y: L.nn.functional.scaled_dot_product_attention(
        *(t.reshape(1, 1, 4, 4) for t in (x, y, y))
    ),
    "LSTMCell": lambda L, x, y: L.nn.LSTMCell(4, 4, device="cuda")(x)[1],
    "GRUCell": lambda L, x, y: L.nn.GRUCell(4, 4, device="cuda")(x),
    "RNNCell": lambda L, x, y: L.nn.RNNCell(4, 4, device="cuda")(x),
    "LSTM": lambda L, x, y: L.nn.LSTM(4, 4, device="cuda")(x)[0],
    "GRU": lambda L, x, y: L.nn.GRU(4, 4, device="cuda")(x)[0],
    "RNN": lambda L, x, y: L.nn.RNN(4, 4, device="cuda")(x)[0],
    "MultiheadAttention": lambda L, x, y: L.nn.MultiheadAttention(4, 2, device="cuda")(x, x, x, need_weights=False)[0],
}

SINGLE = {
    "** 2": lambda L, x, y: x**2,
    "2 **": lambda L, x, y: 2**x,
    "2 /": lambda L, x, y: 2 / x,
    "pow": lambda L, x, y: L.pow(x, y),
    **plain(
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh", "square",
        "tan", "sum", "prod", "norm",
    ),
    "cumsum": lambda L, x, y: x.cumsum(0),
    "cumprod": lambda L, x, y: x.cumprod(0),
    "prod along an axis": lambda L, x, y: x.prod(0),
    "norm along an axis": lambda L, x, y: L.norm(x, dim=0),
    "vector_norm": lambda L, x, y: L.linalg.vector_norm(x),
    "matrix_norm": lambda L, x, y: L.linalg.matrix_norm(x),
    "dist": lambda L, x, y: L.dist(x, y),
    "cdist": lambda L, x, y: L.cdist(x, y),
    "renorm": lambda L, x, y: L.renorm(x, 2, 0, 1.0),
    "logsumexp": lambda L, x, y: L.logsumexp(x, 0),
    "pdist": one("pdist"),
    "normalize": one("normalize"),
    "cosine_similarity": of("cosine_similarity"),
    "softmax": one("softmax", 1),
    "softmin": one("softmin", 1),
    "log_softmax": one("log_softmax", 1),
    "gumbel_softmax": one("gumbel_softmax", dim=1),
    "softplus": one("softplus"),
    "layer_norm": one("layer_norm", (4,)),
    "layer_norm with weight": lambda L, x, y: L.nn.functional.layer_norm(x, (4,), y.select(0, 0), y.select(0, 0)),
    "rms_norm": one("rms_norm", (4,)),
    "group_norm": one("group_norm", 2),
    "group_norm with weight": lambda L, x, y: L.nn.functional.group_norm(x, 2, y.select(0, 0), y.select(0, 0)),
    "local_response_norm": lambda L, x, y: L.nn.functional.local_response_norm(x.unsqueeze(0), 2),
    "lp_pool1d": lambda L, x, y: L.nn.functional.lp_pool1d(x.unsqueeze(0), 2, 2),
    "cross_entropy": lambda L, x, y: L.nn.functional.cross_entropy(x, classes(L)),
    "cross_entropy of each": lambda L, x, y: L.nn.functional.cross_entropy(x, classes(L), reduction="none"),
    "cross_entropy of probabilities": lambda L, x, y: L.nn.functional.cross_entropy(x, y.softmax(1)),
    "nll_loss": lambda L, x, y: L.nn.functional.nll_loss(x, classes(L)),
    "multi_margin_loss": lambda L, x, y: L.nn.functional.multi_margin_loss(x, classes(L)),
    "multilabel_margin_loss": lambda L, x, y: L.nn.functional.multilabel_margin_loss(x, places(L)),
    "cosine_embedding_loss": lambda L, x, y: L.nn.functional.cosine_embedding_loss(x, y, classes(L)),
    "margin_ranking_loss": lambda L, x, y: L.nn.functional.margin_ranking_loss(x, y, y),
    "triplet_margin_loss": lambda L, x, y: L.nn.functional.triplet_margin_loss(x, y, x),
    **{
        name: of(name)
        for name in (
            "binary_cross_entropy_with_logits", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss",
            "multilabel_soft_margin_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
        )
    },
    **{
        f"interpolate {mode}": lambda L, x, y, mode=mode: L.nn.functional.interpolate(
            x.reshape(1, 4, 4) if mode == "linear" else x.reshape(1, 1, 4, 4), scale_factor=2, mode=mode
        )
        for mode in ("nearest", "linear", "bilinear", "bicubic")
    },
}  # fmt: skip

WIDEST = {
    "addcdiv": lambda L, x, y: L.addcdiv(x, y, y),
    "addcmul": lambda L, x, y: L.addcmul(x, y, y),
    "atan2": lambda L, x, y: L.atan2(x, y),
    "bilinear": lambda L, x, y: L.nn.functional.bilinear(x, y, y.unsqueeze(0)),
    "cross": lambda L, x, y: L.cross(x.narrow(1, 0, 3), y.narrow(1, 0, 3), dim=1),
    "dot": lambda L, x, y: L.dot(x.select(0, 0), y.select(0, 0)),
    "vdot": lambda L, x, y: L.vdot(x.select(0, 0), y.select(0, 0)),
    "inner": lambda L, x, y: L.inner(x, y),
    "tensordot": lambda L, x, y: L.tensordot(x, y, 1),
    "grid_sample": lambda L, x, y: L.nn.functional.grid_sample(
        x.reshape(1, 1, 4, 4), y.reshape(1, 2, 4, 2), align_corners=False
    ),
    "index_put": lambda L, x, y: x.index_put((classes(L),), y),
    "scatter_add": lambda L, x, y: L.scatter_add(x, 0, places(L), y),
    "cat": lambda L, x, y: L.cat([x, y]),
    "stack": lambda L, x, y: L.stack([x, y]),
    "+": lambda L, x, y: x + y,
    "*": lambda L, x, y: x * y,
    "/": lambda L, x, y: x / y,
    "where": lambda L, x, y: L.where(x > 0, x, y),
}

AS_GIVEN = {
    **plain(
        "mean",
        "std",
        "amax",
        "sqrt",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "exp2",
        "erf",
        "relu",
        "logit",
        "nansum",
        "trace",
    ),
    **{name: one(name) for name in ("gelu", "silu", "elu", "mish", "glu", "logsigmoid", "hardswish", "dropout")},
    "logcumsumexp": lambda L, x, y: L.logcumsumexp(x, 0),
    "batch_norm": one("batch_norm", None, None, training=True),
    "instance_norm": lambda L, x, y: L.nn.functional.instance_norm(x.unsqueeze(0)),
    "avg_pool1d": lambda L, x, y: L.nn.functional.avg_pool1d(x.unsqueeze(0), 2),
    "adaptive_avg_pool1d": lambda L, x, y: L.nn.functional.adaptive_avg_pool1d(x.unsqueeze(0), 3),
    "interpolate area": lambda L, x, y: L.nn.functional.interpolate(x.reshape(1, 1, 4, 4), scale_factor=2, mode="area"),
    "embedding": lambda L, x, y: L.nn.functional.embedding(classes(L), x),
}

TABLE = [
    (kind, name)
    for kind, calls in (("half", HALF), ("single", SINGLE), ("widest", WIDEST), ("given", AS_GIVEN))
    for name in calls
]
CALLS = {"half": HALF, "single": SINGLE, "widest": WIDEST, "given": AS_GIVEN}
GIVEN = [(True, True), (False, False), (True, False), (False, True)]  # True if x and y are in half precision


def wanted(kind, x, y, half):
    """The dtype of a result by the table."""
    if kind in ("half", "single"):
        return half if kind == "half" else "float32"
    return half if x and (y or kind == "given") else "float32"


def name_of(dtype):
    return str(dtype).split(".")[-1]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("kind", "name"), TABLE)
def test_precision(kind, name, half):
    call = CALLS[kind][name]
    for x, y in GIVEN:
        a, b = (mytorch.rand(4, 4, device="cuda").to(half if h else "float32") for h in (x, y))
        with mytorch.autocast("cuda", getattr(mytorch, half)):
            out = call(mytorch, a, b)
        assert name_of(out.dtype) == wanted(kind, x, y, half), f"{x=}, {y=}"


@contextlib.contextmanager
def pytorch_autocast(torch, half):
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", getattr(torch, half))
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()


WITHOUT_A_GPU = {
    "LSTMCell",
    "GRUCell",
    "RNNCell",
    "LSTM",
    "GRU",
    "RNN",
    "MultiheadAttention",
    "grid_sample",
}  # PyTorch can't


@pytest.mark.parametrize(("kind", "name"), [row for row in TABLE if row[1] not in WITHOUT_A_GPU])
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_pytorchs(torch, kind, name):
    tensors = pytest.importorskip("torch._subclasses.fake_tensor")
    if name == "rms_norm" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        pytest.skip("older versions of PyTorch have another rule for RMS norm")
    for x, y in GIVEN:
        with tensors.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            a, b = (torch.empty(4, 4, device="cuda", dtype=torch.float16 if h else torch.float32) for h in (x, y))
            with pytorch_autocast(torch, "float16"):
                out = CALLS[kind][name](torch, a, b)
        assert name_of(out.dtype) == wanted(kind, x, y, "float16"), f"{x=}, {y=}"


# -- casts of weights ----------------------------------------------------------------------------------------------------


@pytest.fixture
def casts(monkeypatch):
    """Returns the shapes of the inputs of `to_dtype`."""
    seen = []
    record = RECORDS["to_dtype"]
    forward = record.reference.forward

    def counted(xp, input, *, dtype):
        seen.append((tuple(input.shape), name_of(dtype.name)))
        return forward(xp, input, dtype=dtype)

    monkeypatch.setattr(record, "forward", counted)
    monkeypatch.setattr(record.reference, "forward", counted)
    return seen


def autocast(dtype=mytorch.bfloat16, **options):
    return mytorch.autocast("cuda", dtype, **options)


def test_a_weight_is_cast_once_in_a_block_and_gets_one_gradient(casts):
    layer = nn.Linear(5, 5, bias=False, device="cuda")
    x = mytorch.randn(3, 5, device="cuda")
    with autocast():
        h = layer(x)
        out = layer(h)
    assert casts.count(((5, 5), "bfloat16")) == 1
    out.float().sum().backward()
    assert layer.weight.grad.dtype is mytorch.float32
    casts.clear()
    with autocast(cache_enabled=False):
        layer(layer(x))
    assert casts.count(((5, 5), "bfloat16")) == 2

    def half(t):
        return t.bfloat16().double().cpu().detach().numpy()

    g = np.ones((3, 5))
    below = half(mytorch.tensor(g @ half(layer.weight)))
    parts = g.T @ half(h), below.T @ half(x)  # each is rounded to half precision at most, their float32 sum no more
    error = np.abs(layer.weight.grad.cpu().numpy() - sum(parts))
    assert (error <= 2**-9 * sum(map(np.abs, parts)) + 1e-6).all()


def test_a_step_between_or_inside_blocks_gives_fresh_casts():
    layer = nn.Linear(4, 4, bias=False, device="cuda")
    optimizer = mytorch.optim.AdamW(layer.parameters(), lr=0.5)
    x = mytorch.randn(2, 4, device="cuda")

    def fresh(out):
        expected = F.linear(x.bfloat16(), layer.weight.detach().bfloat16())
        np.testing.assert_array_equal(out.detach().float().cpu().numpy(), expected.float().cpu().numpy())

    with autocast():
        for _ in range(3):
            out = layer(x)
            fresh(out)
            optimizer.zero_grad()
            out.float().square().sum().backward()
            optimizer.step()
    with autocast():
        fresh(layer(x))
        with mytorch.no_grad():
            layer.weight.mul_(2.0)
        fresh(layer(x))


def test_backward_twice_in_one_block():
    layer = nn.Linear(4, 4, device="cuda")
    x = mytorch.randn(2, 4, device="cuda")
    grads = []
    with autocast():
        for _ in range(2):
            layer.zero_grad()
            layer(x).float().sum().backward()
            grads.append(layer.weight.grad.cpu().numpy().copy())
    np.testing.assert_array_equal(*grads)


def test_nested_blocks_and_no_grad(casts):
    layer = nn.Linear(4, 4, bias=False, device="cuda")
    x = mytorch.randn(2, 4, device="cuda")
    with autocast():
        with mytorch.no_grad():
            assert not layer(x).requires_grad
        out = layer(x)
        assert out.requires_grad  # the cast made without a graph is not taken
        with autocast():
            layer(x)
        assert casts.count(((4, 4), "bfloat16")) == 2
        with autocast(mytorch.float16):
            assert layer(x).dtype is mytorch.float16
        with autocast(enabled=False):
            assert layer(x).dtype is mytorch.float32
        assert layer(x).dtype is mytorch.bfloat16
        assert casts.count(((4, 4), "bfloat16")) == 2
    out.float().sum().backward()
    assert layer.weight.grad is not None


# -- the kernels under autocast --------------------------------------------------------------------------------------------

WEIGHT, BIAS = (mytorch.randn(6, device="cuda") for _ in "wb")
CHANCES = mytorch.softmax(mytorch.randn(5, 6, device="cuda"), 1, fused=False)
FOLDED = {
    "layer_norm": lambda x, fused: F.layer_norm(x, (6,), WEIGHT, BIAS, fused=fused),
    "rms_norm": lambda x, fused: F.rms_norm(x, (6,), WEIGHT, 1e-5, fused=fused),
    "group_norm": lambda x, fused: F.group_norm(x, 3, WEIGHT, BIAS, fused=fused),
    "add_layer_norm": lambda x, fused: F.add_layer_norm(x, x * 2, (6,), WEIGHT, BIAS, fused=fused)[1],
    "add_rms_norm": lambda x, fused: F.add_rms_norm(x, x * 2, (6,), WEIGHT, 1e-5, fused=fused)[1],
    "softmax": lambda x, fused: F.softmax(x, -1, fused=fused),
    "softmax across": lambda x, fused: F.softmax(x, 0, fused=fused),
    "log_softmax": lambda x, fused: F.log_softmax(x, 1, fused=fused),
    "masked_softmax": lambda x, fused: F.masked_softmax(x, causal=True, fused=fused),
    "cross_entropy": lambda x, fused: F.cross_entropy(x, mytorch.tensor([0, 5, 2, 1, 3], device="cuda"), fused=fused),
    "cross_entropy of probabilities": lambda x, fused: F.cross_entropy(x, CHANCES, fused=fused),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FOLDED)
def test_a_kernel_reads_half_precision_and_writes_float32(name, half, casts):
    dtype = getattr(mytorch, half)
    results = []
    for fused in (True, False):
        x = (
            mytorch.tensor(np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32), device="cuda")
            .to(dtype)
            .requires_grad_()
        )
        casts.clear()
        with autocast(dtype):
            out = FOLDED[name](x, fused)
        assert out.dtype is mytorch.float32
        assert not casts
        g = mytorch.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)).astype(np.float32), device="cuda")
        out.backward(g)
        assert x.grad.dtype is dtype
        results.append((out.detach().cpu().numpy(), x.grad.float().cpu().numpy()))
    upcast = x.detach().float().requires_grad_()
    exact = FOLDED[name](upcast, False)
    exact.backward(g)
    for out, grad in results:
        tolerance = (
            {"atol": 2e-2, "rtol": 2e-2} if name.startswith("add") else {"atol": 2e-6, "rtol": 2e-6}
        )  # whose sum is in half
        np.testing.assert_allclose(out, exact.detach().cpu().numpy(), **tolerance)
        np.testing.assert_allclose(
            grad, upcast.grad.cpu().numpy(), atol=0.04 if half == "bfloat16" else 0.005, rtol=0.02
        )


@pytest.mark.parametrize("half", HALVES)
def test_gpt2_under_autocast_casts_weights_alone(half, casts):
    from mytorch.models import GPT2, GPT2Config, fuse_

    mytorch.manual_seed(0)
    config = GPT2Config(vocab_size=40, context_length=8, num_layers=2, num_heads=2, embed_dim=16)
    model = fuse_(GPT2(config)).to("cuda")
    x = mytorch.tensor(np.random.default_rng(0).integers(0, 40, (2, 8)), device="cuda")
    results = []
    for policy in (None, False):
        model.zero_grad()
        casts.clear()
        with mytorch.fused(policy), autocast(getattr(mytorch, half)):
            loss = model(x, x)
        assert loss.dtype is mytorch.float32
        if policy is None:
            shapes = [shape for shape, _ in casts]
            assert sorted(shapes) == sorted(
                tuple(p.shape) for n, p in model.named_parameters() if p.ndim == 2 and "wpe" not in n
            )
        with mytorch.fused(policy):
            loss.backward()
        assert all(p.grad.dtype is mytorch.float32 for p in model.parameters())
        results.append([loss.item(), *(p.grad.cpu().numpy() for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=0.04 * np.abs(b).max())
