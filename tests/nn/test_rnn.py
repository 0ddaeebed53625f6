"""Recurrent layers, packed sequences and the Transformer against PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

T, N, I, H = 6, 3, 5, 4


def pair(torch, build):
    mytorch.manual_seed(4)
    torch.manual_seed(4)
    mine, theirs = build(mytorch.nn), build(torch.nn)
    for (a, p), (b, q) in zip(mine.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert a == b
        np.testing.assert_allclose(p.numpy(), q.numpy(), atol=2e-6, err_msg=a)
    mine.double()
    theirs.double()
    mine.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return mine, theirs


def flatten(out):
    if isinstance(out, (tuple, list)):
        return [t for o in out for t in flatten(o)]
    return [] if out is None else [out]


def compare(mine, theirs, torch, call, *arrays, tol=1e-9):
    results = []
    for lib, layer in ((mytorch, mine), (torch, theirs)):
        leaves = [lib.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        layer.zero_grad()
        outs = [o for o in flatten(call(lib, layer, *leaves)) if o.dtype in (mytorch.float64, torch.float64)]
        loss = sum(
            (o * lib.tensor(np.random.default_rng(i).standard_normal(tuple(o.shape)))).sum() for i, o in enumerate(outs)
        )
        loss.backward()
        grads = [np.asarray(t.grad) for t in leaves if t.grad is not None]
        results.append(
            [
                *(o.detach().numpy() for o in outs),
                *grads,
                *(np.asarray(p.grad) for p in layer.parameters() if p.grad is not None),
            ]
        )
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=tol)


OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True, "bias": False},
    {"num_layers": 2, "dropout": 0.0},
]


@loop
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layers(name, options, torch):
    mine, theirs = pair(torch, lambda nn: getattr(nn, name)(I, H, **options))
    assert repr(mine) == repr(theirs)
    x = np.random.randn(T, N, I)
    compare(mine, theirs, torch, lambda lib, layer, a: layer(a), x)
    d = mine.num_layers * (2 if mine.bidirectional else 1)
    batch = T if mine.batch_first else N
    h = np.random.randn(d, batch, H)
    if name == "LSTM":
        compare(mine, theirs, torch, lambda lib, layer, a, b, c: layer(a, (b, c)), x, h, h * 0.5)
    else:
        compare(mine, theirs, torch, lambda lib, layer, a, b: layer(a, b), x, h)
    compare(mine, theirs, torch, lambda lib, layer, a: layer(a), x[:, 0])


def test_relu_and_projection(torch):
    x = np.random.randn(T, N, I)
    compare(*pair(torch, lambda nn: nn.RNN(I, H, nonlinearity="relu")), torch, lambda lib, layer, a: layer(a), x)
    compare(
        *pair(torch, lambda nn: nn.LSTM(I, H, proj_size=2, num_layers=2, bidirectional=True)),
        torch,
        lambda lib, layer, a: layer(a),
        x,
    )


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_packed(name, torch):
    mine, theirs = pair(torch, lambda nn: getattr(nn, name)(I, H, bidirectional=True))
    x = np.random.randn(T, N, I)

    def call(lib, layer, a):
        packed = lib.nn.utils.rnn.pack_padded_sequence(a, lib.tensor([4, 6, 2]), enforce_sorted=False)
        out, state = layer(packed)
        padded, lengths = lib.nn.utils.rnn.pad_packed_sequence(out)
        assert lengths.tolist() == [4, 6, 2]
        return padded, state

    compare(mine, theirs, torch, call, x)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(name, torch):
    mine, theirs = pair(torch, lambda nn: getattr(nn, name)(I, H))
    compare(mine, theirs, torch, lambda lib, layer, a: layer(a), np.random.randn(N, I))


def test_pad_sequence(torch):
    rows = [np.random.randn(n, 2) for n in (3, 1, 4)]
    for options in ({}, {"batch_first": True, "padding_value": -1.0}):
        a = mytorch.nn.utils.rnn.pad_sequence([mytorch.tensor(r) for r in rows], **options)
        b = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], **options)
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@loop
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "bias": False, "num_layers": 2}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sequences_in_place_equal_the_reference(name, options, compiled, dtype, monkeypatch):
    if not compiled:
        monkeypatch.setattr("mytorch.kernels.rnn._loops", lambda: None)
    dtype, shape = getattr(mytorch, dtype), (7, 5, 33)
    layer = getattr(mytorch.nn, name)(33, 19, **options).to(dtype)
    x = mytorch.randn(*shape, dtype=dtype)
    packed_ends, ends = ([], []), ([], [])
    for fused in (True, False):
        for lengths, results in (((7, 6, 6, 3, 1), packed_ends), (None, ends)):
            a = x.clone().requires_grad_()
            inputs = a if lengths is None else mytorch.nn.utils.rnn.pack_padded_sequence(a, list(lengths))
            layer.zero_grad()
            with mytorch.fused(fused):
                out, state = layer(inputs)
                state = state if isinstance(state, tuple) else (state,)
                tensors = [out if lengths is None else out.data, *state]
                mytorch.manual_seed(0)
                sum((t * mytorch.randn_like(t)).sum() for t in tensors).backward()
            results[fused].extend([*(t.detach() for t in tensors), a.grad, *(p.grad for p in layer.parameters())])
    for quick, plain in zip(packed_ends[1] + ends[1], packed_ends[0] + ends[0], strict=True):
        np.testing.assert_allclose(
            quick.numpy(), plain.numpy(), rtol=1e-5, atol=2e-5 if dtype is mytorch.float32 else 1e-12
        )


def test_second_derivative_through_an_lstm():
    from mytorch.autograd import gradgradcheck

    layer = mytorch.nn.LSTM(2, 3).double()
    x = mytorch.randn(3, 2, 2, dtype=mytorch.float64, requires_grad=True)
    assert gradgradcheck(lambda x: layer(x)[0].tanh(), (x,), fast_mode=True)


def test_multihead_attention(torch):
    q, k, v = np.random.randn(5, 2, 8), np.random.randn(7, 2, 8), np.random.randn(7, 2, 8)
    mask = np.random.rand(5, 7) < 0.3
    padding = np.array([[False] * 7, [False] * 5 + [True] * 2])
    for options in ({}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}):
        mine, theirs = pair(torch, lambda nn, o=options: nn.MultiheadAttention(8, 2, **o))
        for need in (True, False):
            compare(mine, theirs, torch, lambda lib, layer, a, b, c, n=need: layer(a, b, c, need_weights=n), q, k, v)
            compare(
                mine, theirs, torch,
                lambda lib, layer, a, b, c, n=need: layer(a, b, c, lib.tensor(padding), n, lib.tensor(mask), False), q, k, v,
            )  # fmt: skip
    mine, theirs = pair(torch, lambda nn: nn.MultiheadAttention(8, 4, kdim=6, vdim=3, batch_first=True))
    compare(
        mine,
        theirs,
        torch,
        lambda lib, layer, a, b, c: layer(a, b, c),
        np.random.randn(2, 5, 8),
        np.random.randn(2, 7, 6),
        np.random.randn(2, 7, 3),
    )


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer(norm_first, activation, torch):
    def build(nn):
        return nn.Transformer(
            8, 2, 2, 2, 16, dropout=0.0, activation=activation, norm_first=norm_first, batch_first=True
        )

    mine, theirs = pair(torch, build)
    src, tgt = np.random.randn(2, 6, 8), np.random.randn(2, 5, 8)

    def call(lib, layer, a, b):
        mask = lib.nn.Transformer.generate_square_subsequent_mask(5).double()
        return layer(a, b, tgt_mask=mask)

    compare(mine, theirs, torch, call, src, tgt, tol=1e-8)


def test_transformer_encoder_with_padding(torch):
    def build(nn):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    mine, theirs = pair(torch, build)
    padding = np.array([[False] * 4 + [True] * 2, [False] * 6])
    compare(
        mine,
        theirs,
        torch,
        lambda lib, layer, a: layer(a, src_key_padding_mask=lib.tensor(padding)),
        np.random.randn(2, 6, 8),
        tol=1e-8,
    )


@loop
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_dropout_of_packed_sequences_draws_the_same_numbers(torch, kind, layers, bidirectional, batch_first):
    options = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first}
    options["dropout"] = 0.3 if layers > 1 else 0.0
    mine, theirs = pair(torch, lambda nn: getattr(nn, kind)(I, H, **options))
    x = np.random.randn(*((N, T, I) if batch_first else (T, N, I)))
    for lengths, is_sorted in (([T, 4, 1], True), ([2, T, 3], False), ([T] * N, True)):

        def call(lib, layer, a, lengths=lengths, is_sorted=is_sorted):
            lib.manual_seed(5)
            packed = lib.nn.utils.rnn.pack_padded_sequence(
                a, lengths, batch_first=batch_first, enforce_sorted=is_sorted
            )
            out, state = layer(packed)
            after = lib.rand(1)
            return out.data, state, after

        compare(mine, theirs, torch, call, x)
