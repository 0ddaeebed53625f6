"""Every layer compared with PyTorch: names, printing, weights from equal seeds, outputs, gradients, both modes."""

import functools
import inspect
import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop

IMAGE, LINE, VOLUME, ROW = (2, 6, 8, 9), (2, 6, 11), (2, 6, 5, 6, 4), (4, 6)

LAYERS = [
    ("Conv1d(6, 4, 3)", LINE), ("Conv1d(6, 8, 3, stride=2, padding=1, groups=2)", LINE), ("Conv1d(6, 4, 3, padding='same', dilation=2)", LINE),
    ("Conv2d(6, 4, 3)", IMAGE), ("Conv2d(6, 9, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=3, bias=False)", IMAGE),
    ("Conv2d(6, 4, 1)", IMAGE), ("Conv2d(6, 6, 3, padding=1, groups=6)", IMAGE), ("Conv2d(6, 4, 3, padding=2, padding_mode='reflect')", IMAGE),
    ("Conv2d(6, 4, 3, padding='same', padding_mode='circular')", IMAGE), ("Conv3d(6, 4, 2, padding=1)", VOLUME),
    ("Conv2d(6, 4, (8, 9))", IMAGE), ("Conv1d(6, 4, 5, padding=2)", (3, 6, 1)), ("ConvTranspose2d(6, 4, (3, 2))", (3, 6, 1, 1)),
    ("ConvTranspose1d(6, 4, 3, stride=2, padding=1, output_padding=1)", LINE), ("ConvTranspose2d(6, 4, 4, stride=2, padding=1)", IMAGE),
    ("ConvTranspose2d(6, 9, 3, groups=3, dilation=2, bias=False)", IMAGE), ("ConvTranspose3d(6, 4, 2, stride=2)", VOLUME),
    ("MaxPool1d(3, 2)", LINE), ("MaxPool2d(2)", IMAGE), ("MaxPool2d(3, stride=2, padding=1)", IMAGE), ("MaxPool2d(3, 2, dilation=2, ceil_mode=True)", IMAGE), ("MaxPool3d(2)", VOLUME),
    ("AvgPool1d(3, 2, padding=1)", LINE), ("AvgPool2d(3, 2, padding=1, count_include_pad=False)", IMAGE), ("AvgPool2d(3, 2, ceil_mode=True)", IMAGE), ("AvgPool3d(2)", VOLUME),
    ("AdaptiveAvgPool1d(4)", LINE), ("AdaptiveAvgPool2d((1, 1))", IMAGE), ("AdaptiveAvgPool2d((3, None))", IMAGE), ("AdaptiveAvgPool2d(4)", IMAGE), ("AdaptiveAvgPool3d(2)", VOLUME),
    ("AdaptiveMaxPool1d(4)", LINE), ("AdaptiveMaxPool2d((3, 3))", IMAGE), ("AdaptiveMaxPool2d(4)", IMAGE), ("LPPool2d(2, 2)", IMAGE), ("LPPool1d(3, 2)", LINE),
    ("BatchNorm1d(6)", ROW), ("BatchNorm1d(6, momentum=0.3)", LINE), ("BatchNorm2d(6)", IMAGE), ("BatchNorm2d(6, affine=False)", IMAGE), ("BatchNorm2d(6, track_running_stats=False)", IMAGE),
    ("BatchNorm2d(6, momentum=None)", IMAGE), ("BatchNorm3d(6, eps=1e-3)", VOLUME), ("GroupNorm(3, 6)", IMAGE), ("GroupNorm(2, 6, affine=False)", LINE),
    ("InstanceNorm1d(6)", LINE), ("InstanceNorm2d(6, affine=True)", IMAGE), ("InstanceNorm2d(6, track_running_stats=True)", IMAGE), ("LayerNorm(9)", IMAGE), ("LayerNorm((8, 9), bias=False)", IMAGE),
    ("LocalResponseNorm(3)", IMAGE), ("RMSNorm(9)", IMAGE),
    ("ZeroPad2d((1, 2, 0, 3))", IMAGE), ("ReflectionPad2d(2)", IMAGE), ("ReplicationPad1d((1, 3))", LINE), ("CircularPad2d(1)", IMAGE), ("ConstantPad2d(1, 2.5)", IMAGE), ("ReflectionPad1d(2)", LINE),
    ("Upsample(scale_factor=2)", IMAGE), ("Upsample(size=(5, 20), mode='bilinear')", IMAGE), ("Upsample(scale_factor=2, mode='bilinear', align_corners=True)", IMAGE),
    ("Upsample(scale_factor=1.5, mode='bicubic')", IMAGE), ("Upsample(size=20, mode='linear')", LINE), ("Upsample(scale_factor=2, mode='trilinear')", VOLUME), ("UpsamplingNearest2d(size=(16, 5))", IMAGE),
    ("PixelShuffle(2)", (2, 8, 3, 4)), ("PixelUnshuffle(2)", (2, 3, 4, 6)), ("ChannelShuffle(3)", IMAGE), ("Unfold(3, padding=1, stride=2)", IMAGE), ("Fold((5, 6), 2)", (2, 12, 20)),
    ("Linear(9, 4)", IMAGE), ("Flatten()", IMAGE), ("Unflatten(1, (2, 3))", IMAGE), ("Identity()", ROW),
    *[(f"{name}()", ROW) for name in (
        "ReLU", "GELU", "Sigmoid", "Tanh", "LeakyReLU", "ELU", "CELU", "SELU", "SiLU", "Mish", "ReLU6", "Hardsigmoid", "Hardswish", "Hardtanh", "Hardshrink", "Softshrink",
        "Tanhshrink", "Softplus", "Softsign", "LogSigmoid", "PReLU", "GLU")],
    ("LeakyReLU(0.2, inplace=True)", ROW), ("ReLU(True)", ROW), ("Threshold(0.1, 20.0)", ROW), ("Softmin(dim=1)", ROW), ("LogSoftmax(dim=-1)", ROW), ("Softmax2d()", IMAGE), ("PReLU(6)", IMAGE), ("ELU(alpha=0.5)", ROW),
    ("Softplus(beta=2, threshold=1)", ROW),
]  # fmt: skip


def build(lib, text):
    return eval(f"nn.{text}", {"nn": lib.nn})


@loop
@pytest.mark.parametrize(("text", "shape"), LAYERS, ids=[t for t, _ in LAYERS])
def test_layer(text, shape, torch):
    mytorch.manual_seed(11)
    torch.manual_seed(11)
    mine, theirs = build(mytorch, text), build(torch, text)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for name, p in theirs.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[name].numpy(), p.numpy(), atol=1e-6, err_msg=f"initial {name}")
    mine.double()
    theirs.double()
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    rng = np.random.default_rng(3)
    for training in (True, True, False):
        mine.train(training)
        theirs.train(training)
        x = rng.standard_normal(shape)
        a, b = mytorch.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        if "inplace" in text or text == "ReLU(True)":
            out, ref = mine(a * 1), theirs(b * 1)
        else:
            out, ref = mine(a), theirs(b)
        np.testing.assert_allclose(out.numpy(force=True), ref.detach().numpy(), rtol=1e-8, atol=1e-9, err_msg="output")
        up = rng.standard_normal(tuple(ref.shape))
        mine.zero_grad()
        theirs.zero_grad()
        out.backward(mytorch.tensor(up))
        ref.backward(torch.tensor(up))
        np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), rtol=1e-7, atol=1e-8, err_msg="input gradient")
        for (name, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
            np.testing.assert_allclose(np.asarray(p.grad), q.grad.numpy(), rtol=1e-7, atol=1e-8, err_msg=name)
        for (name, p), (_, q) in zip(mine.named_buffers(), theirs.named_buffers(), strict=True):
            np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-9, err_msg=name)


@loop
@pytest.mark.parametrize("text", ["Conv2d(6, 4, 3, stride=2, padding=1)", "BatchNorm2d(6)", "GroupNorm(3, 6)", "ConvTranspose2d(6, 4, 3, stride=2)", "AvgPool2d(2)", "MaxPool2d(2)", "InstanceNorm2d(6)"])  # fmt: skip
def test_gradient_penalty(text, torch):
    """The gradient of the norm of a gradient, through layer and tanh."""
    torch.manual_seed(2)
    mine, theirs = build(mytorch, text).double(), build(torch, text).double()
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(5).standard_normal((2, 6, 6, 6))
    results = []
    for lib, layer in ((mytorch, mine), (torch, theirs)):
        a = lib.tensor(x, requires_grad=True)
        (g,) = lib.autograd.grad((layer(a).tanh() * 2).sum(), a, create_graph=True)
        (g * g).sum().backward()
        results.append([np.asarray(a.grad), *(np.asarray(p.grad) for p in layer.parameters())])
    for p, q in zip(*results, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-6, atol=1e-8)


N, C = 5, 4
LOSSES = [
    ("NLLLoss()", "logp", "class"), ("NLLLoss(ignore_index=1, reduction='sum')", "logp", "class"), ("MSELoss()", "x", "x"), ("MSELoss(reduction='none')", "x", "x"), ("L1Loss()", "x", "x"),
    ("SmoothL1Loss(beta=0.5)", "x", "x"), ("HuberLoss(delta=0.7)", "x", "x"), ("BCELoss()", "p", "p"), ("BCEWithLogitsLoss(reduction='sum')", "x", "p"), ("KLDivLoss(reduction='batchmean')", "logp", "p"),
    ("KLDivLoss(log_target=True, reduction='sum')", "logp", "logp"), ("PoissonNLLLoss(full=True)", "x", "count"), ("PoissonNLLLoss(log_input=False)", "p", "count"), ("HingeEmbeddingLoss()", "x", "sign"),
    ("SoftMarginLoss()", "x", "sign"), ("MultiLabelSoftMarginLoss()", "x", "bits"), ("MultiMarginLoss()", "x", "class"), ("MultiMarginLoss(p=2, margin=0.5)", "x", "class"),
    ("CrossEntropyLoss(label_smoothing=0.2)", "x", "class"), ("CrossEntropyLoss()", "x", "p"), ("MultiLabelMarginLoss()", "x", "labels"),
]  # fmt: skip


def _sample(kind, rng):
    if kind == "class":
        return rng.integers(0, C, N)
    if kind == "sign":
        return rng.choice([-1.0, 1.0], (N, C))
    if kind == "bits":
        return rng.integers(0, 2, (N, C)).astype(float)
    if kind == "count":
        return rng.integers(0, 5, (N, C)).astype(float)
    if kind == "labels":
        return np.array([[0, 2, -1, 1], [3, -1, 0, 1], [1, 2, 3, 0], [2, -1, -1, -1], [-1, 0, 1, 2]])
    x = rng.standard_normal((N, C))
    e = np.exp(x)
    return {"x": x, "p": e / e.sum(-1, keepdims=True), "logp": np.log(e / e.sum(-1, keepdims=True))}[kind]


@loop
@pytest.mark.parametrize(("text", "first", "second"), LOSSES, ids=[t for t, *_ in LOSSES])
def test_loss(text, first, second, torch):
    rng = np.random.default_rng(7)
    a, b = _sample(first, rng), _sample(second, rng)
    results = []
    for lib in (mytorch, torch):
        x = lib.tensor(a, requires_grad=True)
        out = build(lib, text)(x, lib.tensor(b))
        (out * lib.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)))).sum().backward()
        results.append((out.detach().numpy(), np.asarray(x.grad)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-9)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-8, atol=1e-10)


def test_losses_of_several_tensors(torch):
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((3, 6, 4))
    sign = rng.choice([-1.0, 1.0], 6)
    var = rng.random((6, 4)) + 0.1

    def run(lib):
        a, b, c = (lib.tensor(v, requires_grad=True) for v in (x, y, z))
        f, s = lib.nn.functional, lib.tensor(sign)
        total = (
            f.cosine_embedding_loss(a, b, s, margin=0.1)
            + f.margin_ranking_loss(a[:, 0], b[:, 0], s, margin=0.2)
            + f.triplet_margin_loss(a, b, c, swap=True)
            + f.gaussian_nll_loss(a, b, lib.tensor(var), full=True)
            + f.cosine_similarity(a, b, dim=-1).sum()
            + f.pairwise_distance(a, c).sum()
            + f.normalize(a, dim=1).sum()
            + f.binary_cross_entropy_with_logits(
                a, lib.tensor(var).clamp(max=1), pos_weight=lib.tensor([1.0, 2.0, 3.0, 4.0]).double()
            )
        )
        total.backward()
        return [total.item(), *(np.asarray(t.grad) for t in (a, b, c))]

    for p, q in zip(run(mytorch), run(torch), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ctc_of_many_steps_compared_with_float64(torch, dtype, fused):
    """Odd lengths, repeated labels, impossible and empty ones, a random gradient for each loss."""
    rng = np.random.default_rng(0)
    x, up = rng.standard_normal((57, 5, 9)) * 3, rng.standard_normal(5)
    labels = rng.integers(1, 9, (5, 11))
    labels[1] = 4
    lengths = [57, 40, 1, 13, 31], [11, 11, 1, 9, 0]
    results = []
    for lib, own in ((mytorch, dtype), (torch, "float64")):
        a = lib.tensor(x, dtype=getattr(lib, own)).log_softmax(-1).detach().requires_grad_()
        with mytorch.fused(fused):
            loss = lib.nn.functional.ctc_loss(
                a.log_softmax(-1), lib.tensor(labels), *lengths, reduction="none", zero_infinity=True
            )
            loss.backward(lib.tensor(up, dtype=getattr(lib, own)))
        results.append((loss.detach().numpy(), np.asarray(a.grad)))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5 if dtype == "float32" else 1e-9, atol=1e-5)


def test_ctc(torch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 3, 6))
    targets = np.array([[1, 2, 2, 0], [3, 3, 4, 5], [5, 0, 0, 0]])
    for reduction in ("mean", "sum", "none"):
        results = []
        for lib in (mytorch, torch):
            a = lib.tensor(x, requires_grad=True)
            loss = lib.nn.functional.ctc_loss(
                a.log_softmax(-1),
                lib.tensor(targets),
                lib.tensor([12, 10, 7]),
                lib.tensor([3, 4, 1]),
                reduction=reduction,
            )
            loss.sum().backward()
            results.append((loss.detach().numpy(), np.asarray(a.grad)))
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-8)
        np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-8)


@loop
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic", "volume"])
@pytest.mark.parametrize("fused", [None, False])
def test_grid_sample(torch, padding, mode, fused):
    rng = np.random.default_rng(0)
    sizes, d = ((5, 6), 2) if mode != "volume" else ((5, 3, 6), 3)
    x, grid = rng.standard_normal((2, 3, *sizes)), rng.uniform(-1.3, 1.3, (2, *(4, 7, 3)[:d], d))
    up, how = rng.standard_normal((2, 3, *(4, 7, 3)[:d])), mode.replace("volume", "bilinear")
    for align in (True, False):
        for dtype, tolerance in (("float64", 1e-8), ("float32", 1e-4)):
            results = []
            for lib in (mytorch, torch):
                own = getattr(lib, dtype)
                a, g = (lib.tensor(v, dtype=own, requires_grad=True) for v in (x, grid.swapaxes(1, 2)))
                with mytorch.fused(fused):
                    out = lib.nn.functional.grid_sample(a, g.transpose(1, 2), how, padding, align)
                    out.backward(lib.tensor(up, dtype=own))
                results.append((out.detach().numpy(), np.asarray(a.grad), np.asarray(g.grad)))
            for ours, theirs in zip(*results, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=tolerance)


@pytest.mark.slow
def test_grid_sample_has_second_derivatives_and_takes_nothing_and_nan():
    x, grid = mytorch.randn(2, 2, 3, 4, dtype=mytorch.float64), mytorch.rand(2, 2, 3, 2, dtype=mytorch.float64) - 0.4
    sample = functools.partial(mytorch.nn.functional.grid_sample, align_corners=False)
    assert mytorch.autograd.gradcheck(sample, (x.requires_grad_(), grid.requires_grad_()))
    assert mytorch.autograd.gradgradcheck(sample, (x, grid))
    assert sample(mytorch.ones(0, 2, 3, 3), mytorch.ones(0, 4, 5, 2)).shape == (0, 2, 4, 5)
    assert sample(mytorch.ones(2, 0, 3, 3), mytorch.ones(2, 4, 5, 2)).shape == (2, 0, 4, 5)
    lost = mytorch.full((1, 1, 2, 2), float("nan"))
    assert sample(mytorch.ones(1, 1, 3, 3), lost, mode="nearest").tolist() == [[[[0.0, 0.0]]]]


def test_affine_grid(torch):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((2, 2, 3))
    for align in (True, False):
        a = mytorch.nn.functional.affine_grid(mytorch.tensor(theta), (2, 3, 4, 5), align)
        b = torch.nn.functional.affine_grid(torch.tensor(theta), (2, 3, 4, 5), align)
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)


def test_unpooling(torch):
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 8))
    results = []
    for lib in (mytorch, torch):
        values, places = lib.nn.MaxPool2d(2, return_indices=True)(lib.tensor(x))
        results.append(lib.nn.MaxUnpool2d(2)(values, places).numpy())
    np.testing.assert_array_equal(*results)


def test_channel_dropout_drops_whole_channels():
    y = mytorch.nn.Dropout2d(0.5)(mytorch.ones(8, 16, 3, 3)).numpy()
    assert set(np.unique(y.reshape(128, 9).std(1))) == {0.0}
    assert 0 < (y == 0).mean() < 1


def test_refusals():
    nn = mytorch.nn
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.Conv2d(5, 4, 3, groups=2)
    with pytest.raises(RuntimeError, match="expected input"):
        nn.Conv2d(3, 4, 3)(mytorch.ones(1, 2, 5, 5))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        nn.Conv2d(3, 4, 7)(mytorch.ones(1, 3, 5, 5))
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(3)(mytorch.ones(2, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(mytorch.ones(1, 3))


def test_declared_options_make_the_constructor():
    nn = mytorch.nn
    assert str(inspect.signature(nn.SiLU)) == "(inplace=False, *, auto=False, fused=None)"
    assert str(inspect.signature(nn.Threshold)) == "(threshold, value, inplace=False, *, auto=False, fused=None)"
    for call, message in (
        (lambda: nn.Threshold(1.0), "missing required argument: 'value'"),
        (lambda: nn.ELU(1.0, alpha=2.0), "multiple values for argument 'alpha'"),
        (lambda: nn.ELU(beta=2.0), "unexpected keyword argument 'beta'"),
        (lambda: nn.SiLU(False, True), "takes 1 arguments, got 2"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert pickle.loads(pickle.dumps(nn.ELU(2.0))).alpha == 2.0


def test_a_subclass_of_a_declared_layer_may_have_its_own_constructor():
    class Steep(mytorch.nn.LeakyReLU):
        def __init__(self, factor):
            super().__init__(0.1 * factor)

    assert list(inspect.signature(Steep).parameters) == ["factor"]
    assert repr(Steep(2)) == "Steep(negative_slope=0.2)"
    assert Steep(2)(mytorch.tensor([-1.0])).item() == pytest.approx(-0.2)


@pytest.mark.parametrize("name", ["silu", "softplus", "logsigmoid", "sigmoid"])
def test_second_derivatives_of_saturated_activations(name, torch):
    """exp(-x) overflows in float32 for x below -88."""
    points = [-1e4, -300.0, -90.0, -89.0, -20.0, 0.0, 20.0, 89.0, 300.0, 1e4]
    up = np.random.default_rng(0).standard_normal((2, len(points))).astype("float32")
    results = []
    for lib in (mytorch, torch):
        x = lib.tensor(points, requires_grad=True)
        out = getattr(lib.nn.functional, name)(x)
        (first,) = lib.autograd.grad(out, x, lib.tensor(up[0]), create_graph=True)
        (second,) = lib.autograd.grad(first, x, lib.tensor(up[1]))
        results.append([a.detach().numpy() for a in (out, first, second)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
