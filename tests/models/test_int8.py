import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.models import GPT2, Llama, int8
from mytorch.ops.int8_linear import int8_linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (1, 7), (3, 7), (2, 3, 7), (0, 7), (9, 7)])
@pytest.mark.parametrize("fused", [None, False])
def test_the_layer_is_the_product_with_the_rounded_weight(rng, shape, bias, fused):
    linear = nn.Linear(7, 10, bias=bias)
    layer = int8.Int8Linear(linear)
    w, q, scale = linear.weight.detach().numpy(), layer.weight.numpy(), layer.scale.numpy()
    assert (q.dtype, abs(q).max()) == (np.int8, 127)
    assert (abs(q * scale[:, None] - w) <= scale[:, None] * 0.5001).all()
    x, g = rng.standard_normal(shape).astype("float32"), rng.standard_normal((*shape[:-1], 10)).astype("float32")
    given = mytorch.tensor(x, requires_grad=True)
    with mytorch.fused(fused):
        out = layer(given)
        out.backward(mytorch.from_numpy(g))
    expected = x @ (q * scale[:, None]).T + (linear.bias.detach().numpy() if bias else 0)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(given.grad.numpy(), g @ (q * scale[:, None]), rtol=1e-4, atol=1e-5)


def test_the_compiled_loop_is_the_reference_at_odd_sizes_and_strides(rng):
    pytest.importorskip("numba")
    for out, into, rows in ((1, 1, 1), (5, 33, 2), (130, 257, 1), (64, 300, 4)):
        weight = rng.integers(-127, 128, (out, into)).astype("int8")
        scale = rng.random(out).astype("float32")
        x = mytorch.from_numpy(rng.standard_normal((into, rows)).astype("float32")).t()
        found = [int8_linear(x, weight=weight, scale=scale, fused=fused).numpy() for fused in (True, False)]
        np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", [GPT2, Llama])
def test_a_rounded_model_says_nearly_the_same_and_survives_its_state_dict(kind):
    shape = {"vocab_size": 31, "context_length": 32, "num_layers": 2, "num_heads": 2, "embed_dim": 16}
    model, x = kind(**shape).eval(), mytorch.randint(0, 31, (2, 9))
    expected = model(x).detach().numpy()
    count = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    int8.quantize(model)
    assert sum(p.numel() * p.element_size() for p in model.state_dict().values()) < count
    np.testing.assert_allclose(model(x).detach().numpy(), expected, rtol=0, atol=0.03 * abs(expected).max())
    again = int8.quantize(kind(**shape))
    again.load_state_dict(model.state_dict())
    assert (again.eval().generate(x, 9, temperature=0) == model.generate(x, 9, temperature=0)).all()
    assert model(x, x).item() == pytest.approx(model.loss(model(x), x).item())


def test_layers_that_are_skipped_stay():
    model = int8.quantize(GPT2(vocab_size=31, num_layers=1, num_heads=1, embed_dim=8), skip=["lm_head", "attn.c_proj"])
    assert type(model.lm_head) is type(model.transformer.h[0].attn.c_proj) is nn.Linear
    assert type(model.transformer.h[0].mlp.c_proj) is int8.Int8Linear
