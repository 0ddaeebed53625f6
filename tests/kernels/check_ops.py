"""Ops with Triton kernels, called on Tensors: the interpreter runs the kernels on the CPU."""

import warnings

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.ops.dispatch.record import RECORDS

from .cases import COMPILE_ONLY, ON_GPU

if COMPILE_ONLY:
    pytest.skip("needs results", allow_module_level=True)

FUSED = {
    name: op.kernels.of["cuda"].path
    for name, op in RECORDS.items()
    if "cuda" in op.kernels.of and op.kernels.of["cuda"].path.startswith("mytorch.kernels.triton")
}


@pytest.fixture(autouse=True)
def attached():
    """Each op's GPU kernel as its kernel for the CPU; on a GPU they are where they belong."""
    if ON_GPU:
        yield
        return
    before = {name: RECORDS[name].kernels.of.get("cpu") for name in FUSED}
    for name, path in FUSED.items():
        RECORDS[name].register_kernel(cpu=path)
    yield
    for name, kernel in before.items():
        if kernel is None:
            del RECORDS[name].kernels.of["cpu"]
        else:
            RECORDS[name].kernels.of["cpu"] = kernel
        RECORDS[name].fused_here = "cpu" in RECORDS[name].kernels.of


def tensor(*shape):
    return mytorch.randn(*shape, device=DEVICE, requires_grad=True)


def _joined(outs):
    return mytorch.cat(list(outs), -1)


N = mytorch.ops.normalization
DEVICE = "cuda" if ON_GPU else "cpu"
_target = mytorch.tensor(np.random.default_rng(0).integers(0, 7, 5), device=DEVICE)
_weights = mytorch.linspace(0.5, 1.5, 7, device=DEVICE)._mt_data._array
_table = mytorch.tensor(np.random.default_rng(1).random((5, 6)).astype(np.float32), device=DEVICE)
CALLS = {
    "gelu": (lambda x, fused: F.gelu(x, "tanh", fused=fused), [(3, 5)]),
    "silu": (lambda x, fused: F.silu(x, fused=fused), [(3, 5)]),
    "softmax": (lambda x, fused: F.softmax(x, -1, fused=fused), [(3, 5)]),
    "log_softmax": (lambda x, fused: F.log_softmax(x, -1, fused=fused), [(3, 5)]),
    "layer_norm": (
        lambda x, w, b, fused: F.layer_norm(x, (2, 5), w.reshape(2, 5), b.reshape(2, 5), fused=fused),
        [(4, 2, 5), (10,), (10,)],
    ),
    "rms_norm": (lambda x, w, fused: F.rms_norm(x, (5,), w, fused=fused), [(4, 5), (5,)]),
    "cross_entropy": (
        lambda x, fused: mytorch.ops.loss.cross_entropy(x, _target, label_smoothing=0.1, fused=fused),
        [(5, 7)],
    ),
    "cross_entropy_soft": (
        lambda x, t, fused: mytorch.ops.loss._cross_entropy_soft(
            x, t, weight=_weights, label_smoothing=0.1, fused=fused
        ),
        [(5, 7), (5, 7)],
    ),
    "cross_entropy_soft of each": (
        lambda x, t, fused: mytorch.ops.loss._cross_entropy_soft(x, t, reduction="none", fused=fused),
        [(5, 7), (5, 7)],
    ),
    "scaled_dot_product_attention": (
        lambda q, k, v, m, fused: F.scaled_dot_product_attention(
            q, k, v, m, enable_gqa=True, window=(4, 2), fused=fused
        ),
        [(2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8), (9, 9)],
    ),
    "scaled_dot_product_attention grouped": (
        lambda q, k, v, fused: mytorch.ops.attention._attention(q, k, v, causal=True, scale=0.3, fused=fused),
        [(2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 6)],
    ),
    "softmax across": (lambda x, fused: F.softmax(x, 1, fused=fused), [(3, 5, 4)]),
    "log_softmax across": (lambda x, fused: F.log_softmax(x, 0, fused=fused), [(3, 5)]),
    "masked_softmax": (
        lambda x, m, fused: mytorch.ops.activation._masked_softmax(x, m, causal=True, fused=fused),
        [(2, 3, 5, 7), (3, 1, 7)],
    ),
    "masked_softmax plain": (
        lambda x, fused: mytorch.ops.activation._masked_softmax(x, _table[:, :5] > 0.5, fused=fused),
        [(1, 2, 1, 2, 5, 5)],
    ),
    "add_layer_norm": (
        lambda x, r, w, b, fused: _joined(N._add_layer_norm(x, r, w, b, width=5, fused=fused)),
        [(4, 5), (4, 5), (5,), (5,)],
    ),
    "add_rms_norm": (
        lambda x, r, w, fused: _joined(N._add_rms_norm(x, r, w, width=5, eps=1e-5, fused=fused)),
        [(4, 5), (4, 5), (5,)],
    ),
    "add_rms_norm half used": (
        lambda x, r, fused: N._add_rms_norm(x, r, width=5, eps=1e-5, fused=fused)[1],
        [(4, 5), (4, 5)],
    ),
    "gated": (lambda x, y, fused: mytorch.ops.gated._gated(x, y, gate="silu", fused=fused), [(3, 5), (3, 5)]),
    "gated halves": (lambda x, fused: mytorch.ops.gated._gated(x, gate="gelu_tanh", fused=fused), [(2, 3, 6)]),
    "embedding": (lambda w, fused: F.embedding(_target, w, padding_idx=2, fused=fused), [(7, 3)]),
    "convolution": (
        lambda x, w, b, fused: F.conv2d(x, w, b, stride=2, padding=1, fused=fused),
        [(2, 3, 6, 5), (4, 3, 3, 3), (4,)],
    ),
    "convolution_input": (
        lambda x, w, b, fused: F.conv_transpose2d(
            x, w, b, stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2, dilation=(1, 2), fused=fused
        ),
        [(2, 4, 5, 3), (4, 3, 3, 2), (6,)],
    ),
    "convolution_input 1d": (
        lambda x, w, fused: F.conv_transpose1d(x, w, stride=2, fused=fused),
        [(3, 4, 7), (4, 3, 5)],
    ),
    "convolution in groups": (
        lambda x, w, fused: F.conv1d(x, w, padding="same", dilation=3, groups=3, fused=fused),
        [(2, 6, 11), (9, 2, 4)],
    ),
    "convolution padded": (
        lambda x, w, fused: F.conv2d(F.pad(x, (2, 1, 1, 1), mode="reflect"), w, stride=(1, 3), dilation=2, fused=fused),
        [(1, 3, 7, 9), (5, 3, 2, 3)],
    ),
    "linear_cross_entropy": (
        lambda x, w, b, fused: F.linear_cross_entropy(x, w, _target, linear_bias=b, ignore_index=3, fused=fused),
        [(5, 6), (7, 6), (7,)],
    ),
    "group_norm": (
        lambda x, w, b, fused: mytorch.ops.normalization._group_norm(x, w, b, num_groups=2, fused=fused),
        [(3, 4, 2, 3), (4,), (4,)],
    ),
    **{
        f"batch_norm {shape}": (
            lambda x, w, b, fused: F.batch_norm(x, None, None, w, b, training=True, fused=fused),
            [shape, shape[1:2], shape[1:2]],
        )
        for shape in ((3, 5, 7, 9), (37, 5), (2, 3, 1400))
    },
    "batch_norm without weights": (
        lambda x, fused: F.batch_norm(x, None, None, training=True, fused=fused),
        [(4, 3, 5)],
    ),
    "channel_affine": (
        lambda x, w, b, fused: mytorch.ops.normalization._channel_affine(x, w, b, fused=fused),
        [(3, 5, 7, 9), (5,), (5,)],
    ),
    "max_pool": (lambda x, fused: F.max_pool2d(x, 3, 2, 1, fused=fused), [(2, 3, 7, 9)]),
    "max_pool dilated": (
        lambda x, fused: F.max_pool3d(x, (2, 1, 3), (1, 2, 2), (1, 0, 1), (1, 1, 2), fused=fused),
        [(2, 1, 4, 5, 7)],
    ),
    "avg_pool": (lambda x, fused: F.avg_pool2d(x, (3, 2), 2, 1, fused=fused), [(2, 3, 7, 9)]),
    "avg_pool counted": (
        lambda x, fused: F.avg_pool1d(x, 4, 3, 2, ceil_mode=True, count_include_pad=False, fused=fused),
        [(2, 3, 10)],
    ),
    "relu_squared": (lambda x, fused: mytorch.ops.activation._relu_squared(x, fused=fused), [(3, 5)]),
    "rotary": (
        lambda x, fused: mytorch.ops.rotary.rotary(
            x, cos=_table.cos()._mt_data._array, sin=_table.sin()._mt_data._array, fused=fused
        ),
        [(2, 3, 5, 6)],
    ),
    **{
        f"linear_activation {name}": (
            lambda x, w, b, fused, name=name: mytorch.ops.linear_activation.linear_activation(
                x, w, b, activation=name, fused=fused
            ),
            [(2, 4, 5), (3, 5), (3,)],
        )
        for name in mytorch.ops.linear_activation.ACTIVATIONS
    },
    **{
        f"elementwise_loss {kind}": (
            lambda x, t, fused, kind=kind, loss=loss, into=into: (
                mytorch.ops.loss._elementwise_loss.dispatch(into(x), into(t), kind=kind, beta=0.7, fused=True)
                if fused
                else loss(into(x), into(t))
            ),
            [(3, 7), (3, 7)],
        )
        for kind, loss, into in (
            ("mse", F.mse_loss, mytorch.Tensor.clone),
            ("l1", F.l1_loss, mytorch.Tensor.clone),
            ("smooth_l1", lambda x, t: F.smooth_l1_loss(x, t, beta=0.7), mytorch.Tensor.clone),
            ("huber", lambda x, t: F.huber_loss(x, t, delta=0.7), mytorch.Tensor.clone),
            ("bce", F.binary_cross_entropy, mytorch.sigmoid),
            ("bce_logits", F.binary_cross_entropy_with_logits, mytorch.Tensor.clone),
            ("kl", F.kl_div, mytorch.sigmoid),
            ("kl_log", lambda x, t: F.kl_div(x, t, log_target=True), mytorch.Tensor.clone),
        )
    },
    "nll": (
        lambda x, fused: (
            mytorch.ops.loss._nll.dispatch(
                x.unsqueeze(-1),
                target=_target._mt_data._array.reshape(5, 1),
                weight=_weights,
                ignore_index=3,
                fused=True,
            )
            if fused
            else F.nll_loss(x, _target, mytorch.Tensor._wrap(_weights), ignore_index=3)
        ),
        [(5, 7)],
    ),
    "gelu_mlp": (
        lambda x, v, w, b, c, fused: mytorch.ops.linear_activation.gelu_mlp(x, v, w, b, c, fused=fused),
        [(2, 4, 5), (7, 5), (3, 7), (7,), (3,)],
    ),
    "dropout": (None, []),
}


def test_every_kernel_has_a_call():
    assert set(FUSED) == {name.split()[0] for name in CALLS}


@pytest.mark.parametrize("name", [n for n, (call, _) in CALLS.items() if call])
def test_kernel_equals_reference(name):
    call, shapes = CALLS[name]
    inputs = [tensor(*s) for s in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        outs = [call(*inputs, fused=fused) for fused in (True, False)]
    g = mytorch.randn(*outs[0].shape, device=DEVICE)
    firsts = [mytorch.autograd.grad(out, inputs, g, retain_graph=True) for out in outs]  # the kernel's own backward
    for a, b in zip(*firsts, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=2e-4, atol=1e-5)
    grads = [mytorch.autograd.grad(out, inputs, g, create_graph=True) for out in outs]
    np.testing.assert_allclose(outs[0].detach().cpu().numpy(), outs[1].detach().cpu().numpy(), rtol=2e-5, atol=2e-6)
    seconds = []
    for found in grads:
        total = sum((grad * grad.detach().cos()).sum() for grad in found)
        seconds.append(mytorch.autograd.grad(total, inputs, allow_unused=True) if total.requires_grad else [None])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=2e-4, atol=1e-5)
    for a, b in zip(*seconds, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=2e-3, atol=1e-4)


def test_dropout_makes_its_mask_again():
    x = tensor(40, 50)
    out = F.dropout(x, 0.25)
    out.backward(mytorch.ones(40, 50, device=DEVICE))
    kept = out.detach().cpu().numpy() != 0
    assert 0.7 < kept.mean() < 0.8
    np.testing.assert_allclose(x.grad.cpu().numpy(), kept / 0.75, rtol=1e-6)
    mytorch.manual_seed(0)
    first = F.dropout(x, 0.25).detach().cpu().numpy()
    second = F.dropout(x, 0.25).detach().cpu().numpy()
    mytorch.manual_seed(0)
    assert (F.dropout(x, 0.25).detach().cpu().numpy() == first).all()
    assert (first != second).any()
    mytorch.manual_seed(0)
    generator = mytorch.ops.random.generator_for(x.device)
    generator.advance()
    generator._subsequence = 0
    assert (F.dropout(x, 0.25).detach().cpu().numpy() != first).any()


def test_a_checkpoint_drops_the_same_elements_again():
    x = tensor(30, 40)
    out = mytorch.utils.checkpoint.checkpoint(lambda x: F.dropout(x, 0.5), x)
    F.dropout(x, 0.5)
    out.backward(mytorch.ones(30, 40, device=DEVICE))
    np.testing.assert_allclose(x.grad.cpu().numpy(), (out.detach().cpu().numpy() != 0) * 2.0)


def test_attention_with_dropout_and_its_second_derivative():
    q, k, v = tensor(1, 2, 7, 8), tensor(1, 2, 7, 8), tensor(1, 2, 7, 8)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)
    (gq,) = mytorch.autograd.grad(out.sum(), [q], create_graph=True)
    mytorch.autograd.grad(gq.square().sum(), [k])
    draw = mytorch.ops.attention.dropout_mask(mytorch.ops.attention._attention, q, (1, 2, 7, 7), 0.3)
    mask = mytorch.ops.dropout.materialize(draw, (1, 2, 7, 7), np.dtype(np.float32))
    options = {"causal": True, "scale": 0.3}
    a = mytorch.ops.attention._attention(q, k, v, keep=draw, fused=True, **options)
    b = mytorch.ops.attention._attention(q, k, v, keep=mask, fused=False, **options)
    np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-5, atol=1e-6)


def test_a_small_gpt2_trains():
    from mytorch.models import GPT2, GPT2Config, fuse_

    config = GPT2Config(vocab_size=33, context_length=16, num_layers=1, num_heads=2, embed_dim=16, dropout_p=0.1)
    model = fuse_(GPT2(config)).to(DEVICE)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    x = mytorch.randint(0, 33, (2, 16), device=DEVICE)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(x, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.fixture
def together(monkeypatch):
    """Runs the multi-tensor kernels on the CPU."""
    from mytorch.kernels import registry
    from mytorch.optim import fused as home

    if not ON_GPU:
        monkeypatch.setattr(registry, "device_type", lambda raw: "cuda")
    return home


OPTIMIZERS = {
    "AdamW": lambda p, fused: mytorch.optim.AdamW(p, lr=0.1, fused=fused),
    "Adam": lambda p, fused: mytorch.optim.Adam(p, lr=0.1, weight_decay=0.1, amsgrad=True, maximize=True, fused=fused),
    "SGD": lambda p, fused: mytorch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, fused=fused),
    "Lion": lambda p, fused: mytorch.optim.Lion(p, lr=0.1, weight_decay=0.1, fused=fused),
    "counting on the GPU": lambda p, fused: mytorch.optim.AdamW(p, lr=0.1, capturable=True, fused=fused),
    "plain SGD": lambda p, fused: mytorch.optim.SGD(p, lr=0.1, fused=fused),
}


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if ON_GPU or name != "counting on the GPU"])
def test_one_launch_equals_one_by_one(name, together):
    shapes = [(3, 5), (4100,), (1,)]
    start = [mytorch.randn(*s, device=DEVICE) for s in shapes]
    grads = [[mytorch.randn(*s, device=DEVICE) for s in shapes] for _ in range(3)]
    ends = []
    for fused in (None, False):
        params = [mytorch.nn.Parameter(t.clone()) for t in start]
        optimizer = OPTIMIZERS[name](params, fused)
        for step, row in enumerate(grads):
            for i, (p, g) in enumerate(zip(params, row, strict=True)):
                p.grad = None if step == 0 and i == 2 else g.clone()  # the last one starts a step later
            assert (together.FusedGroup.of(optimizer, optimizer.param_groups[0]) is None) == (fused is False)
            optimizer.step()
        ends.append(params)
    for a, b in zip(*ends, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-5, atol=1e-6)


def test_clipping_and_unscaling_together(together):
    params = [mytorch.nn.Parameter(mytorch.randn(*s, device=DEVICE)) for s in [(3, 5), (4100,)]]
    for p in params:
        p.grad = mytorch.randn(*p.shape, device=DEVICE)
    before = [p.grad.cpu().numpy().astype(np.float64) for p in params]
    norm = np.sqrt(sum((g * g).sum() for g in before))
    got = mytorch.nn.utils.clip_grad_norm_(params, 2.0)
    assert abs(got.item() - norm) < 1e-4 * norm
    for p, g in zip(params, before, strict=True):
        np.testing.assert_allclose(p.grad.cpu().numpy(), g * 2 / norm, rtol=1e-5)
    scaler = mytorch.amp.GradScaler(DEVICE, init_scale=8.0)
    optimizer = mytorch.optim.SGD(params, lr=0.1)
    scaler.unscale_(optimizer)
    np.testing.assert_allclose(params[1].grad.cpu().numpy(), before[1] / norm / 4, rtol=1e-5)
    assert not scaler.found_inf(optimizer)
    scaler.update()
    params[1].grad[4099] = float("inf")
    scaler.unscale_(optimizer)
    assert scaler.found_inf(optimizer)


def test_the_last_layer_in_half_precision():
    x, w = (
        mytorch.randn(40, 16, device=DEVICE, requires_grad=True),
        mytorch.randn(33, 16, device=DEVICE, requires_grad=True),
    )
    target = mytorch.randint(0, 33, (40,), device=DEVICE)
    results = []
    for fused in (None, False):
        with mytorch.amp.autocast(DEVICE, mytorch.bfloat16):
            loss = F.linear_cross_entropy(x, w, target, fused=fused)
        assert loss.dtype == mytorch.float32
        results.append((loss, *mytorch.autograd.grad(loss * 1000, [x, w])))
    for a, b in zip(*results, strict=True):
        a, b = a.detach().cpu().numpy(), b.detach().cpu().numpy()
        np.testing.assert_allclose(a, b, atol=0.03 * np.abs(b).max())
