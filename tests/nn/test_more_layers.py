"""Less common layers and functions, compared with PyTorch."""

import collections
import copy
import inspect
import itertools
import pickle
import threading

import numpy as np
import pytest

import mytorch
from mytorch.nn import sync_batch_norm
from mytorch.nn.parallel.scatter_gather import scatter
from tests.loops import loop

RNG = np.random.default_rng(0)


def both(torch, *arrays):
    """Converts the arrays to tensors of each library; floating-point tensors require grad."""
    return [
        [lib.tensor(a, requires_grad=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a for a in arrays]
        for lib in (mytorch, torch)
    ]


def same(mine, theirs, **tolerance):
    np.testing.assert_allclose(
        mine.numpy(force=True), theirs.detach().numpy(), **{"rtol": 1e-8, "atol": 1e-10, **tolerance}
    )


def same_gradients(outs, inputs, modules=()):
    """Equal outputs, and equal gradients of inputs and parameters for a random upstream gradient."""
    mine, theirs = outs
    same(mine, theirs)
    up = np.random.default_rng(5).standard_normal(tuple(theirs.shape))
    for out in outs:
        out.backward(out.new_tensor(up))
    pairs = [*zip(*inputs, strict=True)]
    if modules:
        pairs += list(zip(modules[0].parameters(), modules[1].parameters(), strict=True))
    for a, b in pairs:
        if hasattr(b, "grad") and b.requires_grad and b.grad is not None:
            np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), rtol=1e-7, atol=1e-9)


# -- EmbeddingBag -----------------------------------------------------------------------------------------------

INDEX = np.array([1, 4, 4, 2, 0, 3, 1, 1, 5])
BAGS = [
    ({}, INDEX.reshape(3, 3), None, False), ({}, INDEX, [0, 2, 2, 5], False), ({"padding_idx": 1}, INDEX, [0, 1, 4, 6], False),
    ({"include_last_offset": True}, INDEX, [0, 2, 5, 9], False), ({"include_last_offset": True}, INDEX, [0, 2, 5], False),
    ({"padding_idx": -2}, INDEX.reshape(3, 3), None, False), ({}, INDEX[:0], [0, 0], False),
]  # fmt: skip


@loop
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
@pytest.mark.parametrize(("options", "index", "offsets", "_"), BAGS)
def test_embedding_bag(mode, options, index, offsets, _, torch):
    weighted = mode == "weighted"
    options = {"mode": "sum" if weighted else mode, **options}
    mytorch.manual_seed(0)
    torch.manual_seed(0)
    modules = [lib.nn.EmbeddingBag(6, 4, dtype=lib.float64, **options) for lib in (mytorch, torch)]
    assert repr(modules[0]) == repr(modules[1])
    same(modules[0].weight, modules[1].weight)
    factors = RNG.standard_normal(index.shape) if weighted else None
    inputs = both(torch, index, None if offsets is None else np.array(offsets), factors)
    outs = [m(*given) for m, given in zip(modules, inputs, strict=True)]
    same_gradients(outs, inputs, modules)


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0, "mode": "max"}])
def test_embedding_bag_options(options, torch):
    inputs = both(torch, INDEX.reshape(3, 3))
    modules = [lib.nn.EmbeddingBag(6, 4, dtype=lib.float64, **options) for lib in (mytorch, torch)]
    modules[0].load_state_dict({"weight": modules[1].weight.detach().numpy()})
    assert repr(modules[0]) == repr(modules[1])
    same_gradients([m(*given) for m, given in zip(modules, inputs, strict=True)], inputs, modules)
    same(*(m.weight for m in modules))


def test_embedding_bag_scales_by_frequency(torch):
    """Compares with PyTorch's embedding, because its embedding_bag uses the counts of the wrong rows."""
    inputs = both(torch, INDEX.reshape(3, 3), RNG.standard_normal((6, 4)))
    mine = mytorch.nn.functional.embedding_bag(*inputs[0], mode="sum", scale_grad_by_freq=True)
    theirs = torch.nn.functional.embedding(*inputs[1], scale_grad_by_freq=True).sum(1)
    same_gradients([mine, theirs], inputs)


def test_embedding_bag_refuses(torch):
    table = RNG.standard_normal((6, 4))
    for lib in (mytorch, torch):
        bag = lib.nn.EmbeddingBag.from_pretrained(lib.tensor(table), mode="mean")
        assert not bag.weight.requires_grad
        index = lib.tensor(INDEX)
        with pytest.raises(ValueError, match="offsets has to be a 1D Tensor but got None"):
            bag(index)
        with pytest.raises(ValueError, match="then offsets has to be None"):
            bag(index.reshape(3, 3), lib.tensor([0]))
        with pytest.raises(NotImplementedError, match="only supported for mode='sum'"):
            bag(index, lib.tensor([0]), lib.ones(9, dtype=lib.float64))
        with pytest.raises(ValueError, match="mode has to be one of"):
            lib.nn.functional.embedding_bag(index, bag.weight, lib.tensor([0]), mode="other")
        with pytest.raises(RuntimeError, match="has to be 0"):
            bag(index, lib.tensor([1]))


# -- lazy layers ------------------------------------------------------------------------------------------------

LAZY = [
    ("LazyLinear(5)", (2, 3, 4)), ("LazyLinear(5, bias=False)", (3, 4)), ("LazyConv1d(4, 3, padding=1)", (2, 6, 7)), ("LazyConv2d(4, 3, groups=2)", (2, 6, 7, 7)),
    ("LazyConv3d(4, 2, bias=False)", (2, 3, 4, 4, 4)), ("LazyConvTranspose1d(4, 3, stride=2, output_padding=1)", (2, 6, 7)), ("LazyConvTranspose2d(4, 3, groups=2)", (2, 6, 5, 5)),
    ("LazyConvTranspose3d(4, 2)", (2, 3, 4, 4, 4)), ("LazyBatchNorm1d()", (4, 6)), ("LazyBatchNorm2d(affine=False)", (2, 3, 4, 4)), ("LazyBatchNorm3d(track_running_stats=False)", (2, 3, 4, 4, 2)),
    ("LazyInstanceNorm1d()", (2, 3, 6)), ("LazyInstanceNorm2d(affine=False, track_running_stats=False)", (2, 3, 5, 5)), ("LazyInstanceNorm3d(eps=1e-3)", (2, 3, 4, 4, 2)),
]  # fmt: skip


def _made(text, torch):
    modules = []
    for lib in (mytorch, torch):
        lib.manual_seed(4)
        modules.append(eval(f"nn.{text}", {"nn": lib.nn}))
    return modules


@loop
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match:UserWarning")
@pytest.mark.parametrize(("text", "shape"), LAZY)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_lazy(text, shape, torch):
    modules = _made(text, torch)
    assert repr(modules[0]) == repr(modules[1])
    assert list(modules[0].state_dict()) == list(modules[1].state_dict())
    assert [mytorch.nn.parameter.is_lazy(p) for p in modules[0].parameters()] == [
        torch.nn.parameter.is_lazy(p) for p in modules[1].parameters()
    ]
    x = RNG.standard_normal(shape).astype(np.float32)
    copies = [copy.deepcopy(modules[0]), pickle.loads(pickle.dumps(modules[0]))]
    inputs = both(torch, x)
    outs = [m(*given) for m, given in zip(modules, inputs, strict=True)]
    assert type(modules[0]).__name__ == type(modules[1]).__name__ == text.partition("(")[0][4:]
    assert repr(modules[0]) == repr(modules[1])
    same(*outs, rtol=1e-4, atol=1e-5)
    for name, value in modules[1].state_dict().items():
        same(modules[0].state_dict()[name], value, rtol=1e-5, atol=1e-6)
    for module, given in zip(modules, inputs, strict=True):
        module(*given)  # running statistics of two passes in both
    for twin in copies:
        assert type(twin).__name__.startswith("Lazy")
        twin.load_state_dict(modules[0].state_dict())
        twin.eval()
        modules[0].eval()
        same(twin(inputs[0][0]), modules[1].eval()(inputs[1][0]), rtol=1e-4, atol=1e-5)
        assert type(twin) is type(modules[0])


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_lazy_dtype_and_errors(torch):
    layer = mytorch.nn.LazyLinear(3).double()
    assert layer(mytorch.ones(2, 4, dtype=mytorch.float64)).dtype is mytorch.float64
    for lib in (mytorch, torch):
        with pytest.raises(RuntimeError, match="shape of an uninitialized"):
            lib.nn.LazyLinear(3).weight.shape  # noqa: B018
        with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
            lib.nn.LazyConv2d(3, 2)(lib.ones(2, 2))
        with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
            lib.nn.LazyConv2d(4, 2, groups=2)(lib.ones(1, 3, 4, 4))


# -- others -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"div_value": 2.0, "head_bias": True}])
def test_adaptive_log_softmax(options, torch):
    modules = []
    for lib in (mytorch, torch):
        lib.manual_seed(4)
        modules.append(lib.nn.AdaptiveLogSoftmaxWithLoss(64, 20, [5, 10, 15], dtype=lib.float64, **options))
    assert repr(modules[0]) == repr(modules[1])
    for name, value in modules[1].state_dict().items():
        same(modules[0].state_dict()[name], value)
    inputs = both(torch, RNG.standard_normal((7, 64)) * 3, np.array([0, 19, 3, 7, 12, 12, 4]))
    outs = [m(*given) for m, given in zip(modules, inputs, strict=True)]
    same(outs[0].loss, outs[1].loss)
    same_gradients([o.output for o in outs], inputs, modules)
    same(*(m.log_prob(given[0]) for m, given in zip(modules, inputs, strict=True)))
    assert modules[0].predict(inputs[0][0]).tolist() == modules[1].predict(inputs[1][0]).tolist()
    single = [m(given[0][1], given[1][1]) for m, given in zip(modules, inputs, strict=True)]
    same(single[0].output, single[1].output)
    for lib, module in zip((mytorch, torch), modules, strict=True):
        with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 19\]"):
            module(lib.zeros(1, 64, dtype=lib.float64), lib.tensor([20]))
        with pytest.raises(ValueError, match="cutoffs should be a sequence of unique"):
            lib.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 5])


@loop
@pytest.mark.parametrize(("d", "shape", "options"), [
    (2, (2, 3, 9, 11), {"kernel_size": 2, "output_size": (4, 5)}), (2, (3, 9, 11), {"kernel_size": (3, 2), "output_ratio": (0.5, 0.6)}),
    (3, (2, 3, 7, 8, 9), {"kernel_size": 2, "output_size": 3}), (3, (2, 6, 7, 8), {"kernel_size": (2, 3, 1), "output_ratio": 0.5}), (2, (2, 1, 5, 5), {"kernel_size": 3, "output_size": 1}),
])  # fmt: skip
@pytest.mark.parametrize("drawn", [False, True])
def test_fractional_max_pool(d, shape, options, drawn, torch):
    n, c = (1, shape[0]) if len(shape) == d + 1 else shape[:2]
    samples = None if drawn else RNG.random((n, c, d))
    inputs = both(torch, RNG.standard_normal(shape))
    outs = []
    for lib, given in zip((mytorch, torch), inputs, strict=True):
        lib.manual_seed(3)
        kind = getattr(lib.nn, f"FractionalMaxPool{d}d")
        module = kind(return_indices=True, _random_samples=None if drawn else lib.tensor(samples), **options)
        outs.append(module(given[0]))
    same(outs[0][1], outs[1][1])
    same_gradients([o[0] for o in outs], inputs)
    for lib in (mytorch, torch):
        with pytest.raises(ValueError, match="only one of output_size and output_ratio"):
            getattr(lib.nn, f"FractionalMaxPool{d}d")(2, 2, 0.5)


def test_linear_cross_entropy(torch):
    x, w, b, t = RNG.standard_normal((9, 4)), RNG.standard_normal((6, 4)), RNG.standard_normal(6), RNG.integers(0, 6, 9)
    factors = RNG.random(6)
    for reduction in ("mean", "sum", "none"):
        for options in (
            None,
            {},
            {"batch_chunk_size": 4, "chunking_method": None},
            {"chunking_method": "aspect_ratio:2"},
        ):
            for more in ({}, {"ignore_index": int(t[0])}, {"weight": factors}):
                inputs = both(torch, x, w, b, t)
                outs = []
                for lib, (xx, ww, bb, tt) in zip((mytorch, torch), inputs, strict=True):
                    made = None if options is None else lib.nn.LinearCrossEntropyOptions(**options)
                    extra = {k: lib.tensor(v) if k == "weight" else v for k, v in more.items()}
                    outs.append(
                        lib.nn.functional.linear_cross_entropy(
                            xx, ww, tt, linear_bias=bb, reduction=reduction, options=made, **extra
                        )
                    )
                same_gradients(outs, inputs)
    for made in ({}, {"out_features": (2, 3), "bias": True, "label_smoothing": 0.1}):
        modules = []
        for lib in (mytorch, torch):
            lib.manual_seed(1)
            modules.append(lib.nn.LinearCrossEntropyLoss(4, 6, dtype=lib.float64, **made))
        assert repr(modules[0]) == repr(modules[1])
        outs = made.get("out_features", ())
        inputs = both(torch, x, RNG.integers(0, 6, (9, *outs)))
        same_gradients([m(*given) for m, given in zip(modules, inputs, strict=True)], inputs, modules)
    with pytest.raises(RuntimeError, match="expected equal input and linear_weight last dimensions"):
        mytorch.nn.functional.linear_cross_entropy(mytorch.ones(2, 3), mytorch.ones(4, 5), mytorch.tensor([0, 1]))


@loop
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("options", [
    {}, {"need_weights": False}, {"average_attn_weights": False}, {"bias_kv": True, "add_zero_attn": True}, {"mask": "float"}, {"mask": "bool", "padding": True},
    {"mask": "heads", "padding": True, "add_zero_attn": True}, {"separate": True}, {"static": True},
])  # fmt: skip
def test_multi_head_attention_forward(batched, options, torch):
    L, S, N, E, H = 4, 5, 3 if batched else 1, 8, 2
    options = dict(options)
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, N, E)) for n in (L, S, S))
    w, b, o, ob = (rng.standard_normal(s) * 0.5 for s in ((3 * E, E), 3 * E, (E, E), E))
    biases = [rng.standard_normal((1, 1, E)) for _ in "kv"] if options.pop("bias_kv", False) else [None, None]
    kind = options.pop("mask", None)
    mask = {
        None: None,
        "float": rng.standard_normal((L, S)),
        "bool": np.arange(S) > np.arange(L)[:, None] + 1,
        "heads": rng.standard_normal((N * H, L, S)),
    }[kind]
    padding = rng.standard_normal((N, S)) if kind == "heads" else np.arange(S) >= np.array([5, 4, 3])[:N, None]
    padding = padding if options.pop("padding", False) else None
    separate = options.pop("separate", False)
    static = [rng.standard_normal((N * H, S, E // H)) for _ in "kv"] if options.pop("static", False) else [None, None]
    zero = options.pop("add_zero_attn", False)
    if not batched:
        q, k, v = q[:, 0], k[:, 0], v[:, 0]
        padding = None if padding is None else padding[0]
    arrays = both(torch, q, k, v, w, b, *biases, o, ob, mask, padding, *static)
    outs, ws = [], []
    for lib, (qq, kk, vv, ww, bb, bk, bv, oo, oob, m, p, sk, sv) in zip((mytorch, torch), arrays, strict=True):
        parts = (
            dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), ww.chunk(3), strict=True)) if separate else {}
        )
        out, weights = lib.nn.functional.multi_head_attention_forward(
            qq, kk, vv, E, H, None if separate else ww, bb, bk, bv, zero, 0.0, oo, oob, attn_mask=m, key_padding_mask=p,
            use_separate_proj_weight=separate, static_k=sk, static_v=sv, **parts, **options,
        )  # fmt: skip
        outs.append(out)
        ws.append(weights)
    if options.get("need_weights", True):
        same(*ws)
    else:
        assert ws[0] is None
    same_gradients(outs, arrays)


CALLS = {
    "pdist": lambda F, x: F.pdist(x[:, :, 0]), "pdist p=1": lambda F, x: F.pdist(x[:, :, 0], 1.0), "pdist inf": lambda F, x: F.pdist(x[:, :, 0], float("inf")),
    "relu_": lambda F, x: F.relu_(x * 1), "elu_": lambda F, x: F.elu_(x * 1, 0.5), "celu_": lambda F, x: F.celu_(x * 1, 0.7), "selu_": lambda F, x: F.selu_(x * 1),
    "leaky_relu_": lambda F, x: F.leaky_relu_(x * 1, 0.2), "rrelu_": lambda F, x: F.rrelu_(x * 1), "threshold_": lambda F, x: F.threshold_(x * 1, 0.1, 3.0), "hardtanh_": lambda F, x: F.hardtanh_(x * 1, -0.3, 0.4),
    "upsample_nearest": lambda F, x: F.upsample_nearest(x[None], scale_factor=2), "upsample_bilinear": lambda F, x: F.upsample_bilinear(x[None], (7, 9)),
    "conv_tbc": lambda F, x: F.conv_tbc(x, x[:2].permute(0, 2, 1), x[0, 0, :1].sum() * x[0, :, 0], 1),
    "max_pool2d_with_indices": lambda F, x: F.max_pool2d_with_indices(x, 2)[0], "max_pool1d_with_indices": lambda F, x: F.max_pool1d_with_indices(x, 2, 1)[0],
    "max_pool3d_with_indices": lambda F, x: F.max_pool3d_with_indices(x[None], 2)[0], "adaptive_max_pool2d_with_indices": lambda F, x: F.adaptive_max_pool2d_with_indices(x, 2)[0],
    "adaptive_max_pool1d_with_indices": lambda F, x: F.adaptive_max_pool1d_with_indices(x, 2)[0], "adaptive_max_pool3d_with_indices": lambda F, x: F.adaptive_max_pool3d_with_indices(x[None], 2)[0],
}  # fmt: skip


@loop
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.*nn.functional.upsample.*deprecated:UserWarning")
def test_function(name, torch):
    inputs = both(torch, RNG.standard_normal((4, 6, 5)))
    same_gradients(
        [CALLS[name](lib.nn.functional, given[0]) for lib, given in zip((mytorch, torch), inputs, strict=True)], inputs
    )


def test_constant_pad_nd(torch):
    x = RNG.standard_normal((3, 4))
    for widths in ((1, 2), (1, -1, 0, 2)):
        same(
            mytorch.constant_pad_nd(mytorch.tensor(x), widths, 1.5), torch.constant_pad_nd(torch.tensor(x), widths, 1.5)
        )


def test_grouped_mm():
    F = mytorch.nn.functional
    a, b = (mytorch.tensor(RNG.standard_normal(s)) for s in ((6, 4), (3, 4, 5)))
    offs = mytorch.tensor([1, 3, 6])
    out = F.grouped_mm(a, b, offs=offs)
    same(out[1:3], (a[1:3] @ b[1]))
    assert tuple(out.shape) == (6, 5)
    same(F.grouped_mm(a.T, a, offs=offs)[2], a[3:].T @ a[3:])
    same(F.grouped_mm(b, b.transpose(1, 2)), b @ b.transpose(1, 2))
    same(F.grouped_mm(b.transpose(1, 2), a.T, offs=offs)[:, 3:], b[2].T @ a[3:].T)
    with pytest.raises(RuntimeError, match="Have to provide offsets"):
        F.grouped_mm(a, b)


def test_older_names(torch):
    for lib in (mytorch, torch):
        with pytest.warns(FutureWarning, match="`NLLLoss2d` has been deprecated"):
            loss = lib.nn.NLLLoss2d(reduction="sum")
        assert isinstance(loss, lib.nn.NLLLoss)
        with pytest.warns(FutureWarning, match="`nn.Container` is deprecated"):
            holder = lib.nn.Container(a=lib.nn.Linear(2, 2))
        assert list(holder.state_dict()) == ["a.weight", "a.bias"]
        with pytest.warns(FutureWarning, match="`nn.init.normal` is now deprecated in favor of `nn.init.normal_`"):
            lib.nn.init.normal(lib.empty(2))


@loop
@pytest.mark.parametrize(
    "options",
    [{}, {"std": 0.02}, {"mean": 1.0, "std": 2.0, "a": 0.0, "b": 3.0}, {"a": 2.0, "b": 3.0}, {"a": -0.1, "b": 0.1}],
)
@pytest.mark.parametrize("shape", [(5,), (40, 30)])
def test_trunc_normal_draws_as_pytorch(options, shape, torch):
    results = []
    for lib in (mytorch, torch):
        lib.manual_seed(6)
        t = lib.nn.init.trunc_normal_(lib.empty(*shape), **options)
        results.append((t.numpy(), lib.rand(1).item()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    assert results[0][1] == results[1][1]


LOSS_CALLS = {
    "HingeEmbeddingLoss(2.0)": "xs", "MarginRankingLoss(0.3)": "xxs", "CosineEmbeddingLoss(0.2)": "xxr", "TripletMarginLoss(0.5, 1.0)": "xxx", "HuberLoss('sum', 0.5)": "xx",
    "KLDivLoss(None, None, 'sum', True)": "xx", "SmoothL1Loss(None, None, 'sum', 0.5)": "xx", "PoissonNLLLoss(True, True)": "xp", "MultiMarginLoss(2, 0.5)": "xc", "GaussianNLLLoss(full=True)": "xxp",
    "TripletMarginWithDistanceLoss(margin=0.7)": "xxx",
}  # fmt: skip


@loop
@pytest.mark.parametrize("text", LOSS_CALLS)
def test_loss_by_position_and_name(text, torch):
    rng = np.random.default_rng(2)
    kinds = {
        "x": rng.standard_normal((4, 3)),
        "s": rng.choice([-1.0, 1.0], (4, 3)),
        "r": rng.choice([-1.0, 1.0], 4),
        "c": rng.integers(0, 3, 4),
        "p": rng.random((4, 3)) + 0.1,
    }
    arrays = [kinds[k] + (0 if k != "x" else 0.1 * i) for i, k in enumerate(LOSS_CALLS[text])]
    inputs = both(torch, *arrays)
    losses = [eval(f"nn.{text}", {"nn": lib.nn}) for lib in (mytorch, torch)]
    names = list(inspect.signature(type(losses[1]).forward).parameters)[1:]
    assert names == list(inspect.signature(type(losses[0]).forward).parameters)[1:]
    own, others = ([*inspect.signature(type(loss)).parameters] for loss in losses)
    assert [n for n in own if n not in ("auto", "fused")] == others
    same(*(loss(*given) for loss, given in zip(losses, inputs, strict=True)))
    same(*(loss(**dict(zip(names, given, strict=True))) for loss, given in zip(losses, inputs, strict=True)))
    with pytest.raises(TypeError):
        losses[0](other=1)


def test_methods_that_subclasses_override(torch):
    """Weight standardization through _conv_forward, a block of a transformer layer, a norm of any shape."""
    results = []
    for lib in (mytorch, torch):

        class Standardised(lib.nn.Conv2d):
            def forward(self, input):
                w = self.weight
                return self._conv_forward(input, w - w.mean((1, 2, 3), keepdim=True), self.bias)

        class Plain(lib.nn.TransformerEncoderLayer):
            def _ff_block(self, x):
                return x * 2

            def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
                return x + 1

        class AnyNorm(lib.nn.modules.batchnorm._BatchNorm):
            def _check_input_dim(self, input):
                return

        lib.manual_seed(0)
        x = lib.tensor(RNG.standard_normal((2, 3, 5, 5)) * 0 + 1, dtype=lib.float32).cumsum(-1)
        results.append(
            [
                Standardised(3, 4, 3, padding=1, padding_mode="circular")(x),
                Plain(5, 1, 8)(x[0]),
                AnyNorm(3)(x[..., None]),
            ]
        )
    for mine, theirs in zip(*results, strict=True):
        same(mine, theirs, rtol=1e-4, atol=1e-5)


def test_embedding_bag_in_its_older_order(torch):
    table, index = RNG.standard_normal((6, 4)), INDEX.reshape(3, 3)
    outs = []
    for lib in (mytorch, torch):
        with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
            outs.append(lib.nn.functional.embedding_bag(lib.tensor(table), lib.tensor(index)))
    same(*outs)


def test_embedding_bag_of_nothing():
    out = mytorch.nn.functional.embedding_bag(mytorch.tensor(INDEX.reshape(3, 3)[:, :0]), mytorch.ones(6, 4))
    assert out.tolist() == [[0.0] * 4] * 3


EMPTY = {
    "BatchNorm2d": (lambda n: n.BatchNorm2d(3), (0, 3, 2, 2)),
    "AdaptiveMaxPool1d": (lambda n: n.AdaptiveMaxPool1d(3), (0, 4, 7)),
    "AdaptiveMaxPool2d": (lambda n: n.AdaptiveMaxPool2d((3, 4)), (0, 4, 7, 7)),
    "Conv2d": (lambda n: n.Conv2d(4, 8, 2), (0, 4, 5, 5)),
    "ConvTranspose1d": (lambda n: n.ConvTranspose1d(4, 8, 2, groups=2), (0, 4, 5)),
    "no samples": (lambda n: n.TransformerEncoderLayer(8, 2, 16, batch_first=True), (0, 3, 8)),
    "no positions": (lambda n: n.TransformerEncoderLayer(8, 2, 16), (0, 3, 8)),
}


@loop
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", EMPTY)
def test_layers_take_and_differentiate_empty_inputs(torch, name):
    make, shape = EMPTY[name]
    found = []
    for L in (mytorch, torch):
        layer, x = make(L.nn), L.zeros(shape, requires_grad=True)
        out = layer(x)
        out.sum().backward()
        found.append(
            [tuple(out.shape), tuple(x.grad.shape), *[np.abs(np.asarray(p.grad)).sum() for p in layer.parameters()]]
        )
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_norms_of_empty_inputs_keep_the_dtype_and_differentiate_the_parameters(torch, dtype):
    def described(L, make, shape, train):
        layer, x = make(L.nn).train(train), L.zeros(shape, dtype=getattr(L, dtype), requires_grad=True)
        out = layer(x)
        out.sum().backward()
        grads = [x.grad, *[p.grad for p in layer.parameters()]]
        return [str(out.dtype)[-8:], *[(str(g.dtype)[-7:], tuple(g.shape)) for g in grads]]

    makes = [
        lambda n: n.LayerNorm(3), lambda n: n.GroupNorm(1, 3), lambda n: n.BatchNorm1d(3), lambda n: n.BatchNorm2d(3), lambda n: n.RMSNorm(3),
        lambda n: n.BatchNorm1d(3, track_running_stats=False), lambda n: n.InstanceNorm1d(3, affine=True), lambda n: n.InstanceNorm2d(3, affine=True),
    ]  # fmt: skip
    for make in makes:
        for shape in [(0, 3), (0, 3, 3), (2, 3, 0), (0, 3, 2, 2), (2, 3, 0, 2)]:
            for train in (True, False):
                try:
                    wanted = described(torch, make, shape, train)
                except (RuntimeError, ValueError, IndexError):
                    continue
                assert described(mytorch, make, shape, train) == wanted, (make(mytorch.nn), shape, train)


def test_losses_of_no_samples_are_empty_and_no_classes_are_refused(torch):
    for L in (mytorch, torch):
        for name, shape in (("multi_margin_loss", (0,)), ("multilabel_margin_loss", (0, 4))):
            loss = getattr(L.nn.functional, name)
            x = L.zeros(0, 4, requires_grad=True)
            loss(x, L.ones(shape, dtype=L.int64)).sum().backward()
            assert tuple(x.grad.shape) == (0, 4)
            with pytest.raises(RuntimeError, match="Expected"):
                loss(L.zeros(3, 0), L.ones(3, 0, dtype=L.int64))
        assert tuple(
            L.nn.functional.grid_sample(L.ones(0, 1, 3, 3), L.ones(0, 2, 2, 2), align_corners=False).shape
        ) == (0, 1, 2, 2)


@loop
@pytest.mark.parametrize("call", [
    lambda L: L.nn.GroupNorm(4, 4)(L.ones(1, 4, 1)),
    lambda L: L.nn.functional.ctc_loss(L.zeros(5, 2, 3), L.ones(2, 4, dtype=L.int32), [5, 5], [5, 4]),
    lambda L: L.nn.functional.ctc_loss(L.zeros(5, 2, 3), L.ones(2, 4, dtype=L.int32), [5, -1], [4, 4]),
    lambda L: L.nn.functional.pad(L.ones(3, 0, 10), (1, 1), mode="reflect"),
    lambda L: L.nn.functional.adaptive_max_pool2d(L.ones(1, 4, 4, dtype=L.int64), 2),
    lambda L: L.nn.functional.adaptive_avg_pool2d(L.ones(1, 4, 4, dtype=L.uint8), 3),
    lambda L: L.nn.functional.fractional_max_pool2d(L.ones(1, 7, 7), (), output_size=(3, 3)),
    lambda L: L.nn.functional.fractional_max_pool2d(L.ones(1, 7, 7), 2, output_size=(3,)),
    lambda L: L.nn.functional.adaptive_max_pool2d(L.ones(1, 0, 4, 4), 2),
    lambda L: L.nn.functional.interpolate(L.ones(1, 1, 4, 4, dtype=L.int64), (2, 2), mode="bilinear"),
    lambda L: L.nn.functional.interpolate(L.ones(1, 1, 4, 4, dtype=L.int32), (2, 2)),
    lambda L: L.nn.utils.rnn.pad_sequence(5),
])  # fmt: skip
def test_layers_reject_the_same_arguments_as_pytorch(torch, call):
    with pytest.raises(Exception) as theirs:
        call(torch)
    with pytest.raises(RuntimeError if isinstance(theirs.value, RuntimeError) else type(theirs.value)):
        call(mytorch)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_bytes_are_resized_to_the_nearest_byte(torch, mode):
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 9, 140)).astype(np.uint8)
    mine, theirs = (np.asarray(L.nn.functional.interpolate(L.tensor(x), (13, 61), mode=mode)) for L in (mytorch, torch))
    assert mine.dtype == np.uint8
    assert np.abs(mine.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_never_gives_a_view(mode):
    x = mytorch.zeros(1, 3, 4, 4)
    for widths in ((0, 0, 0, 0), (0, 0, -1, -1)):
        mytorch.nn.functional.pad(x, widths, mode=mode).fill_(4)
        assert not x.any()


@loop
@pytest.mark.parametrize("call", [
    lambda F, x: F.max_pool2d(x, 2),
    lambda F, x: F.max_pool2d(x, 2, return_indices=True)[1],
    lambda F, x: F.adaptive_max_pool2d(x, (3, 4)),
    lambda F, x: F.interpolate(x, (7, 9)),
    lambda F, x: F.interpolate(x, (7, 9), mode="bicubic", antialias=True),
    lambda F, x: F.pad(x, (1, 1, 1, 1)),
    lambda F, x: F.pixel_shuffle(x, 2),
])  # fmt: skip
@pytest.mark.parametrize("format", ["channels_last", "contiguous_format"])
def test_channels_that_come_last_stay_last(torch, call, format):
    values, strides = [], []
    x = np.random.default_rng(0).normal(size=(2, 8, 6, 6)).astype(np.float32)
    for L in (mytorch, torch):
        out = call(L.nn.functional, L.tensor(x).contiguous(memory_format=getattr(L, format)))
        values.append(np.asarray(out))
        strides.append(tuple(out.stride()))
    np.testing.assert_allclose(*values, atol=1e-5)
    assert strides[0] == strides[1]


def test_gradients_are_clipped_by_how_many_parameters_have_any(torch):
    norms = []
    for L in (mytorch, torch):
        given = [L.ones(2, requires_grad=True) for _ in range(3)]
        for p, g in zip(given, ([0.0, 2.0], [0.0, 0.0], [1.0, 3.0]), strict=True):
            p.grad = L.tensor(g)
        norms.append(float(L.nn.utils.clip_grad_norm_(given, 1.0, norm_type=0.0)))
        with L.no_grad():
            assert given[0].numpy().tolist() == [1, 1]
    assert norms[0] == norms[1]


@loop
@pytest.mark.cpu_only
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(8, 5), (8, 5, 3), (8, 5, 3, 2)])
def test_synchronized_batch_norm_is_that_of_the_whole_batch(shape, affine, rng, monkeypatch):
    """Two threads with three and five samples take the place of two processes."""
    sums, barrier = {}, threading.Barrier(2, timeout=60)

    def sum_over_ranks(raw, group):
        sums[threading.get_ident()] = raw
        barrier.wait()
        total = sum(sums.values())
        barrier.wait()
        return total

    monkeypatch.setattr(sync_batch_norm, "_sum_over_ranks", sum_over_ranks)
    x, g = rng.normal(2, 3, shape), rng.normal(size=shape)
    layers = [mytorch.nn.SyncBatchNorm(5, affine=affine, momentum=0.3).double() for _ in range(3)]
    state = {"weight": mytorch.tensor(rng.normal(size=5)), "bias": mytorch.tensor(rng.normal(size=5))} if affine else {}
    for layer in layers:
        layer.load_state_dict(state, strict=False)
    whole, *parts = layers
    inputs = [mytorch.tensor(a, requires_grad=True) for a in (x, x[:3], x[3:])]
    outs = [whole(inputs[0]), None, None]
    outs[0].backward(mytorch.tensor(g))

    def rank(i):
        layer, part = parts[i - 1], g[:3] if i == 1 else g[3:]
        running = layer.running_mean, layer.running_var, layer.momentum
        outs[i] = sync_batch_norm.SyncBatchNormFunction.apply(
            inputs[i], layer.weight, layer.bias, *running, layer.eps, None
        )
        outs[i].backward(mytorch.tensor(part))

    ranks = [threading.Thread(target=rank, args=(i,)) for i in (1, 2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    for of in (lambda i: outs[i].detach(), lambda i: inputs[i].grad):
        np.testing.assert_allclose(mytorch.cat([of(1), of(2)]).numpy(), of(0).numpy(), rtol=1e-10, atol=1e-12)
    for name in ("running_mean", "running_var"):
        for part in parts:
            np.testing.assert_allclose(getattr(part, name).numpy(), getattr(whole, name).numpy(), rtol=1e-12)
    for p, *others in zip(*(layer.parameters() for layer in layers), strict=True):
        np.testing.assert_allclose(sum(q.grad.numpy() for q in others), p.grad.numpy(), rtol=1e-10, atol=1e-12)


@loop
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolutions_have_the_size_that_is_asked_for(dims, torch):
    """Each size that a stride makes possible, in all dimensions, and the sizes next to these, which are errors."""
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 3, 2)[: 2 + dims])
    options = {"kernel_size": (3, 2, 4)[:dims], "stride": (3, 2, 1)[:dims], "padding": (1, 0, 1)[:dims], "dilation": 2}
    layers = [getattr(lib.nn, f"ConvTranspose{dims}d")(2, 3, **options).to(lib.float64) for lib in (mytorch, torch)]
    layers[0].load_state_dict({name: mytorch.tensor(w.numpy()) for name, w in layers[1].state_dict().items()})
    least = layers[1](torch.tensor(x)).shape[2:]
    steps = [range(-1, stride + 1) for stride in options["stride"]]
    for extra in itertools.product(*steps):
        size = [n + e for n, e in zip(least, extra, strict=True)]
        inputs = both(torch, x)
        if all(0 <= e < stride for e, stride in zip(extra, options["stride"], strict=True)):
            outs = [layer(*data, output_size=size) for layer, data in zip(layers, inputs, strict=True)]
            same_gradients(outs, inputs, layers)
            same(layers[0](inputs[0][0], output_size=(2, 3, *size)), outs[1])
        else:
            for layer, data in zip(layers, inputs, strict=True):
                with pytest.raises(ValueError, match="requested an output size"):
                    layer(*data, output_size=size)


def test_scatter_splits_the_tensors_of_nested_arguments():
    point, x = collections.namedtuple("Point", "a b"), mytorch.arange(6).reshape(3, 2)
    inputs = [x, (1, x), {"x": x, "name": "n"}, point(x, None), [], {}, ()]
    parts = scatter(inputs, ["cpu", "cpu"])
    for part, rows in zip(parts, (x[:2], x[2:]), strict=True):
        first, second, third, fourth, *empty = part
        assert type(part) is list
        assert [type(p) for p in part] == [mytorch.Tensor, tuple, dict, point, list, dict, tuple]
        assert second[0] == 1
        assert third["name"] == "n"
        assert fourth.b is None
        assert empty == [[], {}, ()]
        assert all(t.tolist() == rows.tolist() for t in (first, second[1], third["x"], fourth.a))
    (left,), (right,) = scatter((x,), ["cpu", "cpu"], dim=1)
    assert left.tolist() == x[:, :1].tolist()
    assert right.tolist() == x[:, 1:].tolist()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_circular_padding_accepts_pytorchs_dimensions(dims, torch):
    accepted = []
    for lib in (mytorch, torch):
        layer, found = getattr(lib.nn, f"CircularPad{dims}d")(1), []
        for ndim in range(1, 7):
            x = lib.arange(2.0**ndim).reshape([2] * ndim)
            try:
                found.append(layer(x).tolist())
            except (ValueError, NotImplementedError) as error:
                found.append(type(error))
        accepted.append(found)
    assert accepted[0] == accepted[1]
