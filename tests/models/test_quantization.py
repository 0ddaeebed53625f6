import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.models import GPT2, Llama, QuantizedLinear, quantize_
from mytorch.models.quantization import linears
from mytorch.ops.quantized_linear import dequantize, pack, quantized_linear, unpack
from tests.loops import loop

KINDS = {"int8": {"bits": 8}, "int4": {"bits": 4, "group_size": 32}, "odd": {"bits": 4, "group_size": 6},
         "zero points": {"bits": 4, "group_size": 32, "zero_points": True}}  # fmt: skip


def floats_of(layer, inputs):
    offset = None if layer.offset is None else layer.offset.numpy()
    return dequantize(np, layer.weight.numpy(), layer.scale.numpy(), offset, layer.group_size, inputs)


@loop
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(7,), (1, 70), (3, 7), (2, 3, 33), (0, 7), (9, 70)])
@pytest.mark.parametrize("fused", [None, False])
def test_the_layer_is_the_product_with_the_rounded_weight(rng, shape, kind, fused):
    linear = nn.Linear(shape[-1], 10, bias=len(shape) != 2)
    layer = QuantizedLinear(linear, **KINDS[kind])
    w, rounded = linear.weight.detach().numpy(), floats_of(layer, shape[-1])
    scale = abs(layer.scale.numpy())
    scale = scale[:, None] if kind == "int8" else scale.repeat(layer.group_size, 1)[:, : shape[-1]]
    reach = 0.5001 if kind in ("int8", "zero points") else 1.0001  # 7, where 8 would be nearest
    assert (abs(rounded - w) <= scale * reach).all()
    assert (abs(rounded - w) <= scale * 0.5001).mean() > 0.8
    x, g = rng.standard_normal(shape).astype("float32"), rng.standard_normal((*shape[:-1], 10)).astype("float32")
    given = mytorch.tensor(x, requires_grad=True)
    with mytorch.fused(fused):
        out = layer(given)
        out.backward(mytorch.from_numpy(g))
    expected = x @ rounded.T + (0 if linear.bias is None else linear.bias.detach().numpy())
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(given.grad.numpy(), g @ rounded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_several_layers_of_one_input_are_the_layers_one_by_one(rng, kind, rows, threads):
    before = mytorch.get_num_threads()
    linears_of = [nn.Linear(300, out, bias=out != 33) for out in (200, 33, 1)]
    layers = [QuantizedLinear(linear, **KINDS[kind]) for linear in linears_of]
    x = mytorch.from_numpy(rng.standard_normal((2, rows, 300)).astype("float32")).requires_grad_()
    try:
        mytorch.set_num_threads(threads)
        together, one_by_one = linears(x, *layers), [layer(x) for layer in layers]
        weights = [mytorch.randn(*out.shape) for out in together]
        grads = [
            mytorch.autograd.grad(sum((out * w).sum() for out, w in zip(outs, weights, strict=True)), x)[0]
            for outs in (together, one_by_one)
        ]
    finally:
        mytorch.set_num_threads(before)
    assert all((a == b).all() for a, b in zip(together, one_by_one, strict=True))
    np.testing.assert_allclose(*[g.numpy() for g in grads], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("size", [1e-30, 1e-7, 1e-5, 1e-3, 1.0, 1e5, 1e7])
def test_scales_of_groups_are_float16_where_it_represents_them(rng, size, zero_points):
    linear = nn.Linear(70, 9, bias=False)
    weight = size * rng.uniform(0.5, 1, (9, 70)).astype("float32") * rng.choice([-1, 1], (9, 70)).astype("float32")
    weight[2], weight[3, :32], weight[4] = 0, 0, size  # groups whose numbers are all 0 or all the same
    linear.weight.data = mytorch.from_numpy(weight)
    layer = QuantizedLinear(linear, 4, 32, zero_points)
    assert size == 1e-5 or layer.scale.dtype == (mytorch.float16 if 1e-5 < size < 1e6 else mytorch.float32)
    scale = abs(layer.scale.numpy().astype("float32")).repeat(32, 1)[:, :70]
    rounded = 0.5 if size == 1e-5 else 0.005  # 16 errors of a scale, in scales: 1e-5 has scales with few bits
    reach = np.where(weight == 0, 0, scale * (rounded + (0.5 if zero_points else 1)))
    assert (abs(floats_of(layer, 70) - weight) <= reach + 1e-6 * abs(weight)).all()
    for again in (QuantizedLinear(nn.Linear(70, 9, bias=False), 4, 32, zero_points), layer.double().float()):
        again.load_state_dict(layer.state_dict())
        assert all((a == b).all() for a, b in zip(again.buffers(), layer.buffers(), strict=True))


def test_weights_of_q4_0_do_not_change(rng):
    scale = rng.uniform(2e-4, 1, (9, 4)).astype("float16").astype("float32")
    codes = rng.integers(-8, 8, (9, 4, 32)).astype("float32")
    codes[:, :, 5] = -8
    linear = nn.Linear(128, 9)
    linear.weight.data = mytorch.from_numpy((codes * scale[:, :, None]).reshape(9, 128))
    assert (floats_of(QuantizedLinear(linear, 4, 32), 128) == linear.weight.detach().numpy()).all()


def test_layers_that_do_more_than_a_product_are_called():
    layers, calls, x = [QuantizedLinear(nn.Linear(64, 8), 4, 32) for _ in range(2)], [], mytorch.randn(1, 64)
    layers[1].register_forward_hook(lambda *_: calls.append(1))
    mixed = [layers[0], nn.Linear(64, 8), QuantizedLinear(nn.Linear(64, 8))]
    for several in (layers, mixed):
        for out, layer in zip(linears(x, *several), several, strict=True):
            assert (out == layer(x)).all()
    assert len(calls) == 2


@pytest.fixture(params=["integers", "floats"])
def loops(request, monkeypatch):
    """Both loops for 4-bit weights: with the integer dot products of the processor, if it has them, and without."""
    module = pytest.importorskip("mytorch.kernels.numba.fixed_point", exc_type=ImportError)
    if request.param == "floats":
        monkeypatch.setattr(module, "AVAILABLE", False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("loops")
def test_the_compiled_loops_are_the_reference_at_odd_sizes_and_strides(kind):
    for out, into, rows in ((1, 1, 1), (5, 33, 2), (130, 257, 1), (66, 300, 4), (37, 130, 20), (5, 90, 70)):
        layer = QuantizedLinear(nn.Linear(into, out, bias=False), **KINDS[kind])
        x = mytorch.randn(into, rows).t()
        options = {name: getattr(layer, name) for name in ("weight", "scale", "offset")}
        options = {f"{name}s": [t if t is None else t.numpy()] for name, t in options.items()}
        found = [
            quantized_linear(x, **options, group_size=layer.group_size, fused=fused)[0].numpy()
            for fused in (True, False)
        ]
        np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("group_size", [64, 96, 128])
@pytest.mark.usefixtures("loops")
def test_groups_of_all_lengths_are_summed_as_they_are_scaled(group_size):
    layer, x = QuantizedLinear(nn.Linear(300, 21, bias=False), 4, group_size), mytorch.randn(3, 300)
    np.testing.assert_allclose(layer(x).numpy(), x.numpy() @ floats_of(layer, 300).T, rtol=1e-4, atol=1e-4)


def test_a_wide_weight_is_made_floats_a_piece_at_a_time(monkeypatch):
    kernel = pytest.importorskip("mytorch.kernels.numba.quantized_linear", exc_type=ImportError)
    monkeypatch.setattr(kernel.fixed_point, "AVAILABLE", False)
    monkeypatch.setattr(kernel, "TILE", 300)  # of 130 inputs: 16 rows of the weight, thrice
    for rows in (20, 70):
        layer, x = QuantizedLinear(nn.Linear(130, 41), 4, 32, True), mytorch.randn(rows, 130)
        expected = x.numpy() @ floats_of(layer, 130).T + layer.bias.detach().numpy()
        np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def fixed_point(monkeypatch):
    module = pytest.importorskip("mytorch.kernels.numba.fixed_point", exc_type=ImportError)
    if not module.AVAILABLE:
        pytest.skip("the processor has no integer dot products")
    monkeypatch.setattr(module, "MOST", np.inf)
    return module


def product(rng, x, rows, group_size, scales=None):
    """Returns the kernel's product of x with a random 4-bit weight, the product in float64, and the bound of its error."""
    groups = -(-x.shape[1] // group_size)
    weight = rng.integers(0, 256, (rows, groups * group_size // 2), dtype=np.uint8)
    scale = rng.standard_normal((rows, groups)).astype("float32") if scales is None else scales
    options = {"weights": [weight], "scales": [scale], "offsets": [None], "group_size": group_size}
    out = quantized_linear(mytorch.from_numpy(x), **options, fused=True)[0].numpy()
    floats = dequantize(np, weight, scale.astype("float64"), None, group_size, x.shape[1])
    # A number is rounded to 2^-22 of the largest one in its group; the sum of each group, and of all groups, as in float32.
    padded = np.pad(abs(x), ((0, 0), (0, groups * group_size - x.shape[1]))).reshape(len(x), groups, group_size)
    reach = np.broadcast_to(padded.max(2, keepdims=True), padded.shape).reshape(len(x), -1)[:, : x.shape[1]]
    with np.errstate(invalid="ignore"):
        return out, x.astype("float64") @ floats.T, reach.astype("float64") @ abs(floats).T * 2.0**-21


@pytest.mark.parametrize("group_size", [32, 64, 96, 128, 160, 192, 256, 512])
@pytest.mark.parametrize("spread", [0, 1, 4])
def test_integer_dot_products_are_as_exact_as_their_integers(rng, fixed_point, group_size, spread):
    for rows, inputs, count in (
        (1, 1, 1),
        (3, group_size, 2),
        (4, 3 * group_size + 5, 8),
        (130, 7 * group_size, 1),
        (37, 700, 3),
        (33, 5 * group_size, 17),
        (70, 130, 70),
        (31, 97, 33),
    ):
        x = rng.standard_normal((count, inputs)) * np.exp(spread * rng.standard_normal((count, inputs)))
        for laid_out in (np.ascontiguousarray, np.asfortranarray):
            out, exact, bound = product(rng, laid_out(x.astype("float32")), rows, group_size)
            assert (abs(out - exact) <= bound + 1e-30).all()


@pytest.mark.parametrize("count", [2, 20])
def test_integer_dot_products_of_small_integers_are_exact(rng, fixed_point, count):
    x = rng.integers(-1000, 1000, (count, 2048)).astype("float32")
    out, exact, _ = product(rng, x, 33, 32, np.ones((33, 64), "float32"))
    assert (out == exact).all()


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-38, 1e-20, 1e20, 1e34, np.inf, np.nan])
@pytest.mark.parametrize("count", [2, 20])
def test_numbers_of_all_sizes_have_the_product_of_floats(rng, fixed_point, size, count):
    x = rng.standard_normal((count, 128)).astype("float32")
    x[:, 32:64] *= np.float32(size)
    with np.errstate(all="ignore"):
        out, exact, bound = product(rng, x, 19, 32)
    finite = np.isfinite(exact)
    assert (np.isfinite(out) == finite).all()
    assert (abs(out - exact) <= bound + 1e-37)[finite].all()


@pytest.mark.parametrize("rows", [3, 40])
def test_threads_divide_the_outputs_of_integer_dot_products(rng, fixed_point, rows):
    threads, found = mytorch.get_num_threads(), []
    x = rng.standard_normal((rows, 1024)).astype("float32")
    try:
        for count in (1, 3):
            mytorch.set_num_threads(count)
            found.append(product(np.random.default_rng(0), x, 1001, 32)[0])
    finally:
        mytorch.set_num_threads(threads)
    assert (found[0] == found[1]).all()


def test_four_bits_are_packed_two_a_byte_and_come_back(rng):
    codes = rng.integers(-8, 8, (5, 24)).astype("int8")
    packed = pack(codes, 8)
    assert (packed.dtype, packed.shape) == (np.uint8, (5, 12))
    assert packed[0, 0] == (int(codes[0, 0]) & 15) + 16 * (int(codes[0, 4]) & 15)
    assert (unpack(np, packed, 8) == codes).all()


@pytest.mark.parametrize(
    ("model", "kind", "error"), [(GPT2, "int8", 0.03), (Llama, "int8", 0.03), (Llama, "int4", 0.4)]
)
def test_a_quantized_model_has_similar_logits_and_a_state_dict(model, kind, error):
    shape = {"vocab_size": 31, "context_length": 32, "num_layers": 2, "num_heads": 2, "embed_dim": 16}
    build, model, x = model, model(**shape).eval(), mytorch.randint(0, 31, (2, 9))
    expected = model(x).detach().numpy()
    count = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    quantize_(model, kind, group_size=16)
    assert sum(p.numel() * p.element_size() for p in model.state_dict().values()) < count
    np.testing.assert_allclose(model(x).detach().numpy(), expected, rtol=0, atol=error * abs(expected).max())
    again = quantize_(build(**shape), kind, group_size=16)
    again.load_state_dict(model.state_dict())
    assert (again.eval().generate(x, 9, temperature=0) == model.generate(x, 9, temperature=0)).all()
    assert model(x, x).item() == pytest.approx(model.loss(model(x), x).item())


def test_skipped_layers_stay_and_unknown_options_are_rejected():
    model = quantize_(GPT2(vocab_size=31, num_layers=1, num_heads=1, embed_dim=8), skip=["lm_head", "attn.c_proj"])
    assert type(model.lm_head) is type(model.transformer.h[0].attn.c_proj) is nn.Linear
    assert type(model.transformer.h[0].mlp.c_proj) is QuantizedLinear
    with pytest.raises(ValueError, match="got 'int3'"):
        quantize_(model, "int3")
    with pytest.raises(ValueError, match="group_size .*got 5"):
        quantize_(model, "int4", group_size=5)
