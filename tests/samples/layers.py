"""Rows for nn.functional: activations, normalization, attention, losses."""

from . import case

# PyTorch has no second derivative of its CPU attention; tests/autograd/test_function.py checks ours.

F = "nn.functional."
case(
    "gelu", [(3, 4)], torch=F + "gelu", ours=F + "gelu", approximate=["none", "tanh"], also=[[(40, 50)], [()], [(0, 2)]]
)
case("silu", [(3, 4)], torch=F + "silu", ours=F + "silu")
case("softmax", [(3, 4)], dim=[0, 1, -1], also=[[(20, 70)]])
case("log_softmax", [(3, 4)], dim=[0, 1, -1])
case(
    "layer_norm",
    [(3, 4, 5), (4, 5), (4, 5)],
    torch=F + "layer_norm",
    ours=F + "layer_norm",
    normalized_shape=[(4, 5)],
    half=False,
)
case("layer_norm", [(30, 40)], torch=F + "layer_norm", ours=F + "layer_norm", normalized_shape=[(40,)])
case(
    "rms_norm",
    [(3, 5)],
    torch=F + "rms_norm",
    ours=F + "rms_norm",
    normalized_shape=[(5,)],
    eps=[None],
    domain=(-1e-3, 1e-3),
    grad=False,
)
case("rms_norm", [(3, 5)], torch=F + "rms_norm", ours=F + "rms_norm", normalized_shape=[(5,)], half=False)


def _add_norm(name):
    def composed(L, input, shape, residual, *rest, **options):
        total = input + residual
        return total, getattr(L.nn.functional, name)(total, shape, *rest, **options)

    def ours(L, input, shape, residual, *rest, **options):
        return getattr(L.nn.functional, f"add_{name}")(input, residual, shape, *rest, **options)

    return {"torch": composed, "ours": ours}


def _gated(L, activation, input, other=None, **options):
    a, b = input.chunk(2, -1) if other is None else (input, other)
    return getattr(L.nn.functional, activation)(a, **options) * b


def _masked_softmax(L, input, mask=None, causal=False, dim=-1):
    if mask is not None:
        input = input.masked_fill(~mask, -float("inf")) if mask.dtype is L.bool else input + mask
    if causal:
        input = input.masked_fill(~L.ones(input.shape[-2:], dtype=L.bool).tril(), -float("inf"))
    out = L.softmax(input, dim)
    return L.where(out.isnan(), L.zeros_like(out), out)


case(
    "add_layer_norm",
    [(3, 4, 5), (3, 4, 5), (4, 5), (4, 5)],
    normalized_shape=[(4, 5)],
    half=False,
    **_add_norm("layer_norm"),
)
case("add_layer_norm", [(30, 40), (30, 40)], normalized_shape=[(40,)], **_add_norm("layer_norm"))
case(
    "add_rms_norm",
    [(3, 5), (3, 5), (5,)],
    normalized_shape=[(5,)],
    eps=[1e-5, None],
    half=False,
    **_add_norm("rms_norm"),
)
case("swiglu", [(3, 5), (3, 5)], ours=F + "swiglu", torch=lambda L, *x: _gated(L, "silu", *x), also=[[(3, 4)]])
case(
    "geglu",
    [(3, 5), (3, 5)],
    ours=F + "geglu",
    torch=lambda L, *x, **o: _gated(L, "gelu", *x, **o),
    also=[[(2, 3, 4)]],
    approximate=["none", "tanh"],
)
case("reglu", [(3, 5), (3, 5)], ours=F + "reglu", torch=lambda L, *x: _gated(L, "relu", *x), also=[[(3, 4)]])
case(
    "masked_softmax",
    [(2, 3, 4, 5)],
    ours=F + "masked_softmax",
    torch=_masked_softmax,
    causal=[False, True],
    also=[[(2, 3, 4, 5), (4, 5)]],
)
case("masked_softmax", [(3, 4), (3, 4)], ours=F + "masked_softmax", torch=_masked_softmax, bools=(1,), dim=[-1, 0])
case(
    "linear",
    [(3, 4), (5, 4), (5,)],
    torch=F + "linear",
    ours=F + "linear",
    also=[[(2, 3, 4), (5, 4)], [(4,), (5, 4), (5,)], [(0, 4), (5, 4), (5,)]],
)
case("scaled_dot_product_attention", [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], torch=F + "scaled_dot_product_attention",
     ours=F + "scaled_dot_product_attention", half=False, also=[[(2, 3, 20, 8), (2, 3, 20, 8), (2, 3, 20, 8)]])  # fmt: skip
case("scaled_dot_product_attention", [(2, 20, 8), (2, 20, 8), (2, 20, 8)], torch=F + "scaled_dot_product_attention",
     ours=F + "scaled_dot_product_attention", is_causal=[True], scale=[None, 0.3], half=False)  # fmt: skip
case("scaled_dot_product_attention", [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], ours=F + "scaled_dot_product_attention", softcap=[0.7],
     torch=lambda L, q, k, v, softcap: (((q @ k.mT / 2 / softcap).tanh() * softcap).softmax(-1) @ v), half=False)  # fmt: skip
case("scaled_dot_product_attention", [(2, 3, 4), (2, 5, 4), (2, 5, 6), (2, 3, 5)], ours=F + "scaled_dot_product_attention", softcap=[0.7],
     torch=lambda L, q, k, v, bias, softcap: (((q @ k.mT / 2 / softcap).tanh() * softcap + bias).softmax(-1) @ v), half=False)  # fmt: skip
case("cross_entropy", [(6, 5), (6,)], torch=F + "cross_entropy", ours=F + "cross_entropy", integer={1: 5},
     reduction=["mean", "sum", "none"], label_smoothing=[0.0, 0.1], half=False)  # fmt: skip
case(
    "cross_entropy",
    [(2, 5, 3), (2, 3)],
    torch=F + "cross_entropy",
    ours=F + "cross_entropy",
    integer={1: 5},
    ignore_index=[-100, 2],
    half=False,
)
case(
    "cross_entropy",
    [(60, 50), (60,)],
    torch=F + "cross_entropy",
    ours=F + "cross_entropy",
    integer={1: 50},
    ignore_index=[-100, 2],
    half=False,
)
case("embedding", [(3, 4), (7, 5)], torch=F + "embedding", ours=F + "embedding", integer={0: 7}, half=False)
