"""The option `fused=` of each op and layer: True runs the kernel or raises an error with the reason, False does not run it.

Runs over the fake CuPy with Triton's interpreter (started by test_triton.py).
"""

import inspect
import sys
import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.kernels import registry
from mytorch.nn import functional as F
from mytorch.ops.dispatch.record import RECORDS

LAUNCHED = []


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    """The names of the kernels that are launched."""
    for record in RECORDS.values():
        if "cuda" in record.kernels.of:
            record.kernels.of["cuda"].load()
    for name, module in list(sys.modules.items()):
        if name.startswith("mytorch.kernels.triton.") and hasattr(module, "launch"):
            monkeypatch.setattr(module, "launch", _counted(module.launch))
    registry._warned.clear()
    LAUNCHED.clear()


def _counted(launch):
    def counted(kernel, *args, **options):
        if kernel.fn.__name__ != "_add_up":  # with which a plain linear layer sums its bias's gradient
            LAUNCHED.append(kernel.fn.__name__)
        return launch(kernel, *args, **options)

    return counted


def floats(*shape, dtype=mytorch.float32):
    return mytorch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def classes(n, *shape):
    return mytorch.randint(0, n, shape, device="cuda")


def _rotated(fused):
    cos, sin = (t.to("cuda") for t in F.precompute_rotary_cos_sin(6, 5))
    return F.apply_rotary_pos_embed(floats(2, 3, 5, 6), floats(2, 3, 5, 6), cos, sin, fused=fused)[0]


FUNCTIONS = {  # record -> (public function, a call of it)
    "gelu": (F.gelu, lambda fused: F.gelu(floats(3, 5), fused=fused)),
    "silu": (F.silu, lambda fused: F.silu(floats(3, 5), fused=fused)),
    "relu_squared": (F.relu_squared, lambda fused: F.relu_squared(floats(3, 5), fused=fused)),
    "gated": (F.swiglu, lambda fused: F.swiglu(floats(3, 6), fused=fused)),
    "softmax": (F.softmax, lambda fused: F.softmax(floats(3, 5), 0, fused=fused)),
    "log_softmax": (F.log_softmax, lambda fused: F.log_softmax(floats(3, 5), 1, fused=fused)),
    "masked_softmax": (F.masked_softmax, lambda fused: F.masked_softmax(floats(3, 5), causal=True, fused=fused)),
    "layer_norm": (F.layer_norm, lambda fused: F.layer_norm(floats(3, 5), (5,), fused=fused)),
    "rms_norm": (F.rms_norm, lambda fused: F.rms_norm(floats(3, 5), (5,), fused=fused)),
    "add_layer_norm": (F.add_layer_norm, lambda fused: F.add_layer_norm(floats(3, 5), floats(3, 5), (5,), fused=fused)[1]),
    "add_rms_norm": (F.add_rms_norm, lambda fused: F.add_rms_norm(floats(3, 5), floats(3, 5), (5,), fused=fused)[1]),
    "group_norm": (F.group_norm, lambda fused: F.group_norm(floats(3, 4, 5), 2, fused=fused)),
    "cross_entropy": (F.cross_entropy, lambda fused: F.cross_entropy(floats(3, 5), classes(5, 3), fused=fused)),
    "cross_entropy_soft": (F.cross_entropy, lambda fused: F.cross_entropy(floats(3, 5), floats(3, 5).detach(), fused=fused)),
    "linear_cross_entropy": (
        F.linear_cross_entropy, lambda fused: F.linear_cross_entropy(floats(4, 6), floats(5, 6), classes(5, 4), fused=fused)),
    "linear_activation": (F.linear, lambda fused: F.linear(floats(3, 5), floats(4, 5), act_func="gelu", fused=fused)),
    "elementwise_loss": (F.mse_loss, lambda fused: F.mse_loss(floats(3, 5), floats(3, 5), fused=fused)),
    "nll": (F.nll_loss, lambda fused: F.nll_loss(floats(3, 5), classes(5, 3), fused=fused)),
    "gelu_mlp": (
        F.gelu_mlp, lambda fused: F.gelu_mlp(floats(3, 5), floats(7, 5), floats(4, 7), approximate="tanh", fused=fused)),  # 8: in cuBLASLt
    "batch_norm": (F.batch_norm, lambda fused: F.batch_norm(floats(3, 5, 2), None, None, training=True, fused=fused)),
    "channel_affine": (
        F.batch_norm,
        lambda fused: F.batch_norm(floats(3, 2), *(mytorch.ones(2, device="cuda") for _ in "mv"), floats(2), floats(2), fused=fused)),
    "max_pool": (F.max_pool2d, lambda fused: F.max_pool2d(floats(1, 2, 5, 6), 2, fused=fused)),
    "avg_pool": (F.avg_pool2d, lambda fused: F.avg_pool2d(floats(1, 2, 5, 6), 2, fused=fused)),
    "scaled_dot_product_attention": (
        F.scaled_dot_product_attention,
        lambda fused: F.scaled_dot_product_attention(*(floats(1, 2, 5, 8) for _ in "qkv"), is_causal=True, fused=fused)),
    "embedding": (F.embedding, lambda fused: F.embedding(classes(7, 3), floats(7, 4), fused=fused)),
    "dropout": (F.dropout, lambda fused: F.dropout(floats(3, 5), 0.5, fused=fused)),
    "rotary": (F.apply_rotary_pos_embed, _rotated),
    "convolution": (F.conv2d, lambda fused: F.conv2d(floats(2, 3, 5, 6), floats(4, 3, 3, 3), fused=fused)),
    "convolution_input": (F.conv_transpose2d, lambda fused: F.conv_transpose2d(floats(2, 3, 5, 6), floats(3, 2, 3, 3), fused=fused)),
}  # fmt: skip

LAYERS = [
    (lambda fused: nn.GELU(fused=fused), (3, 5)),
    (lambda fused: nn.SiLU(fused=fused), (3, 5)),
    (lambda fused: nn.ReLUSquared(fused=fused), (3, 5)),
    (lambda fused: nn.SwiGLU(fused=fused), (3, 6)),
    (lambda fused: nn.GEGLU("tanh", fused=fused), (3, 6)),
    (lambda fused: nn.ReGLU(fused=fused), (3, 6)),
    (lambda fused: nn.Softmax(-1, fused=fused), (3, 5)),
    (lambda fused: nn.Softmax2d(fused=fused), (2, 3, 4, 5)),
    (lambda fused: nn.Softmin(-1, fused=fused), (3, 5)),
    (lambda fused: nn.LogSoftmax(-1, fused=fused), (3, 5)),
    (lambda fused: nn.LayerNorm(5, fused=fused), (3, 5)),
    (lambda fused: nn.RMSNorm(5, fused=fused), (3, 5)),
    (lambda fused: nn.GroupNorm(2, 4, fused=fused), (3, 4, 5)),
    (lambda fused: nn.InstanceNorm1d(4, affine=True, fused=fused), (3, 4, 5)),
    (lambda fused: nn.Dropout(0.3, fused=fused), (3, 5)),
    (lambda fused: nn.Linear(5, 4, act_func="silu", fused=fused), (3, 5)),
    (lambda fused: nn.Conv1d(4, 6, 3, groups=2, fused=fused), (3, 4, 5)),
    (lambda fused: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular", fused=fused), (3, 4, 5, 6)),
    (lambda fused: nn.ConvTranspose1d(4, 6, 3, stride=2, fused=fused), (3, 4, 5)),
    (lambda fused: nn.ConvTranspose2d(4, 6, 3, stride=2, fused=fused), (3, 4, 5, 6)),
    (lambda fused: _AttentionAlone(fused), (2, 5, 8)),
    (lambda fused: nn.TransformerEncoderLayer(8, 2, 12, 0.1, "gelu", fused=fused), (2, 5, 8)),
]  # fmt: skip


class _AttentionAlone(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, fused=fused)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def kernels():
    """The records that have a Triton kernel."""
    return {name for name, record in RECORDS.items() if "triton" in getattr(record.kernels.of.get("cuda"), "path", "")}


def test_every_kernel_has_a_public_function_that_takes_fused():
    assert kernels() == set(FUNCTIONS)
    for function, _ in FUNCTIONS.values():
        assert inspect.signature(function).parameters["fused"].default is None, function.__name__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_runs_its_kernel_when_asked(name):
    call = FUNCTIONS[name][1]
    call(False).sum().backward()
    assert not LAUNCHED
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "fused=True")
        out = call(True)
        count = len(LAUNCHED)
        assert count
        out.sum().backward()
    assert len(LAUNCHED) > count or name == "linear_cross_entropy"


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_a_layer_passes_fused_on(make, shape):
    make(False).to("cuda")(floats(*shape)).sum().backward()
    assert not LAUNCHED
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "fused=True")
        make(True).to("cuda")(floats(*shape)).sum().backward()
    assert LAUNCHED


def test_layers_of_indices_and_targets_pass_fused_on():
    target = classes(5, 3)
    for fused in (False, True):
        for layer in (nn.Embedding(7, 4, fused=fused), nn.EmbeddingBag(7, 4, mode="sum", fused=fused)):
            LAUNCHED.clear()
            layer.to("cuda")(classes(7, 3, 2)).sum().backward()
            assert bool(LAUNCHED) == fused
        LAUNCHED.clear()
        nn.LinearCrossEntropyLoss(4, 5, fused=fused).to("cuda")(floats(3, 4), target).backward()
        assert bool(LAUNCHED) == fused
        LAUNCHED.clear()
        nn.CrossEntropyLoss(label_smoothing=0.1, fused=fused)(floats(3, 5), target).backward()
        nn.NLLLoss(fused=fused)(floats(3, 5), target).backward()
        nn.CrossEntropyLoss(fused=fused)(floats(3, 5), F.softmax(floats(3, 5), -1, fused=False).detach()).backward()
        assert bool(LAUNCHED) == fused


LOSSES = [  # elementwise losses of PyTorch: options, True if inputs and targets are probabilities, invalid inputs
    (nn.MSELoss, {}, False), (nn.L1Loss, {}, False), (nn.SmoothL1Loss, {"beta": 0.3}, False), (nn.HuberLoss, {"delta": 0.3}, False),
    (nn.BCELoss, {}, True), (nn.BCEWithLogitsLoss, {}, False), (nn.KLDivLoss, {"log_target": True}, False), (nn.KLDivLoss, {}, True),
]  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("layer", "options", "probabilities"), LOSSES)
def test_losses_of_elements(layer, options, probabilities, reduction):
    """Loss, gradients and second derivatives of the kernel are equal to the composed ops."""
    x, t = (floats(3, 7).detach() for _ in "xt")
    if probabilities:
        x, t = x.sigmoid(), t.sigmoid()
    found = []
    for fused in (True, False):
        leaves = [a.detach().requires_grad_() for a in (x, t)]
        LAUNCHED.clear()
        out = layer(reduction=reduction, fused=fused, **options)(*leaves)
        assert bool(LAUNCHED) == fused
        upstream = mytorch.linspace(0.5, 2.0, out.numel(), device="cuda").reshape(out.shape)
        grads = mytorch.autograd.grad(out, leaves, upstream, create_graph=True)
        twice = mytorch.autograd.grad(sum(g.square().sum() for g in grads), leaves)
        found.append([a.detach().cpu().numpy() for a in (out, *grads, *twice)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_losses_that_a_kernel_leaves_to_ops():
    """Weights, inputs of two shapes or dtypes, and none at all."""
    x, t = floats(3, 7), floats(3, 7).detach()
    LAUNCHED.clear()
    for call in (
        lambda L, x, t: L.mse_loss(x, t, weight=t.abs()), lambda L, x, t: L.mse_loss(x, t.double()), lambda L, x, t: L.l1_loss(x[:0], t[:0]),
        lambda L, x, t: L.binary_cross_entropy_with_logits(x, t.sigmoid(), pos_weight=t[0].abs()),
    ):  # fmt: skip
        got, want = call(F, x, t), call(F, x.detach().cpu(), t.cpu())
        np.testing.assert_allclose(got.detach().cpu().numpy(), want.numpy(), rtol=1e-5)
    assert not LAUNCHED


UNABLE = {
    "dtype": lambda: F.gelu(floats(3, 5, dtype=mytorch.float64), fused=True),
    "shape": lambda: F.conv3d(floats(1, 2, 3, 3, 3), floats(2, 2, 2, 2, 2), fused=True),
    "heads": lambda: F.scaled_dot_product_attention(*(floats(1, 2, 3, 300) for _ in "qkv"), fused=True),
    "no kernel": lambda: F.relu(floats(3), fused=True),
    "in place": lambda: nn.ReLU(inplace=True, fused=True)(floats(3).detach()),
    "the last layer": lambda: F.linear_cross_entropy(
        floats(4, 6), floats(5, 6), classes(5, 4), reduction="none", fused=True
    ),
}


@pytest.mark.parametrize("name", UNABLE)
def test_missing_kernels_warn_once(name):
    with pytest.warns(
        UserWarning,
        match=r"fused=True: \w+ uses the reference because (there is no kernel for a GPU|the kernel (does not support|supports only)|\w+ is not supported)",
    ):
        UNABLE[name]()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "fused=True")
        UNABLE[name]()


def test_the_cpu_warns_about_missing_kernels():
    x = mytorch.randn(3, 6, device="cpu")
    cpu = {
        "relu_squared": lambda: F.relu_squared(x, fused=True),
        "masked_softmax": lambda: F.masked_softmax(x, fused=True), "rms_norm": lambda: F.rms_norm(x, (6,), fused=True),
        "dropout": lambda: F.dropout(x, 0.5, fused=True),
        "linear_cross_entropy": lambda: F.linear_cross_entropy(x, x, mytorch.tensor([0, 1, 2], device="cpu"), fused=True),
    }  # fmt: skip
    for name, call in cpu.items():
        registry._warned.clear()
        with pytest.warns(
            UserWarning, match="fused=True: .* uses the reference because there is no kernel for the CPU"
        ) as found:
            call()
        assert len([w for w in found if "numba is not installed" not in str(w.message)]) == 1, name
    assert not LAUNCHED


def test_the_policy_applies_without_the_fused_option():
    with mytorch.fused(False):
        F.gelu(floats(3, 5))
    assert not LAUNCHED
    F.gelu(floats(3, 5))
    assert LAUNCHED == ["_forward"]
    np.testing.assert_allclose(F.gelu(floats(0, 5)).detach().cpu().numpy(), np.zeros((0, 5)))


def test_a_fused_mlp_of_plain_layers_is_one_op():
    """The gradients equal the gradients of separate layers, which run if one of them has a hook or is replaced."""
    from mytorch.models import fuse_
    from mytorch.models.gpt2 import MLP, GPT2Config

    config = GPT2Config(embed_dim=6, mlp_ratio=4 / 3, activation="gelu_tanh", use_bias=True, num_heads=2)
    mlp = fuse_(MLP(config)).to("cuda")
    x, seen = floats(2, 3, 6), []

    def run():
        out = mlp(x)
        grads = mytorch.autograd.grad(out.square().sum(), [x, *mlp.parameters()])
        return out.grad_fn.label, [t.detach().cpu().numpy() for t in (out, *grads)]

    label, one = run()
    assert label == "GeluMlpBackward"
    handle = mlp.c_fc.register_forward_hook(lambda *given: seen.append(given))
    label, many = run()
    assert label == "LinearBackward"
    assert len(seen) == 1
    for a, b in zip(one, many, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    handle.remove()
    mlp.c_proj.forward = lambda h: nn.Linear.forward(mlp.c_proj, h)
    assert run()[0] == "LinearBackward"


def test_a_tied_weight_gets_both_gradients_in_one_array(monkeypatch):
    """The gradient of the embedding is added to the gradient of the last layer, unless a hook needs them separately."""
    from mytorch.kernels.triton import embedding

    arrays = []
    counted = embedding.launch
    monkeypatch.setattr(
        embedding, "launch", lambda *args, **options: (arrays.append(args[5]), counted(*args, **options))
    )
    weight, tokens, target = floats(7, 4), classes(7, 5), classes(7, 5)

    def run(fused, hook=False, twice=False, wanted=False):
        weight.grad = None
        h = F.embedding(tokens, weight, fused=fused)
        if hook:
            h.grad_fn.register_hook(lambda given, upstream: seen.append(given[0]))
        loss = F.linear_cross_entropy(h, weight, target, fused=fused)
        if wanted:
            return mytorch.autograd.grad(loss, [weight])[0].cpu().numpy()
        loss.backward(retain_graph=twice)
        if twice:
            loss.backward()
        return weight.grad.cpu().numpy()

    for options in ({}, {"hook": True}, {"twice": True}, {"wanted": True}):
        seen = []
        want = run(False, **options)
        arrays.clear()
        np.testing.assert_allclose(run(True, **options), want, rtol=1e-4, atol=1e-6)
        if not options:
            assert arrays[-1] is weight.grad._array
        assert len(seen) == 2 * bool(options.get("hook"))
        assert not options.get("hook") or seen[1] is not None


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_before_a_step(max_norm):
    """Norm, gradients and parameters equal PyTorch's sequence of calls, with and without clipping."""
    torch = pytest.importorskip("torch")
    values = [np.random.default_rng(i).standard_normal(n).astype(np.float32) for i, n in enumerate((5, 4099, 33))]
    found = []
    for library, device in ((mytorch, "cuda"), (torch, "cpu")):
        leaves = [library.tensor(v).to(device).requires_grad_() for v in values]
        optimizer = library.optim.AdamW(leaves, lr=0.1, weight_decay=0.1)
        for _ in range(3):
            sum((p.sin() * p).sum() for p in leaves).backward()
            norm = library.nn.utils.clip_grad_norm_(leaves, max_norm)
            optimizer.step()
            found.append([norm.item(), *(a.detach().cpu().numpy().copy() for p in leaves for a in (p.grad, p))])
            optimizer.zero_grad()
    for got, want in zip(found[:3], found[3:], strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
