import copy
import pickle

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.models import GPT2, Llama, fuse_, lora
from mytorch.models import fusion as home
from mytorch.nn.residual import AddLayerNorm

SHAPE = {"num_layers": 2, "num_heads": 4, "embed_dim": 16, "vocab_size": 33, "context_length": 16}
MODELS = {
    "gpt2": (GPT2, {}),
    "gpt2 with biases, dropout and checkpointing": (
        GPT2, {"use_bias": True, "dropout_p": 0.1, "gradient_checkpointing": True},
    ),
    "llama": (Llama, {"num_kv_heads": 2}),
    "llama with checkpointing": (Llama, {"gradient_checkpointing": True}),
    "nanochat": (Llama, mytorch.models.llama.NANOCHAT),
    "mixture of experts": (Llama, {"num_experts": 4}),
}  # fmt: skip


def loss_and_gradients(model, tokens):
    mytorch.manual_seed(1)
    loss = model(tokens, tokens)
    loss.backward()
    return [loss.item(), *(p.grad.numpy() for p in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_a_fused_model_computes_the_same_numbers_with_the_same_keys(name):
    kind, changes = MODELS[name]
    model = kind(**SHAPE, **changes)
    fused = fuse_(copy.deepcopy(model))
    assert list(fused.state_dict()) == list(model.state_dict())
    assert any(type(m).__module__ == home.__name__ for m in fused.modules())
    again = pickle.loads(pickle.dumps(fused))
    tokens = mytorch.randint(0, 33, (2, 10))
    expected = loss_and_gradients(model, tokens)
    for other in (fused, again):
        for a, b in zip(loss_and_gradients(other, tokens), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    model.eval(), fused.eval()
    for use_cache in (True, False):
        made = [m.generate(tokens, 6, temperature=0, use_cache=use_cache).tolist() for m in (model, fused)]
        assert made[0] == made[1]


def test_fusing_twice_is_fusing_once():
    model = fuse_(GPT2(**SHAPE))
    kinds = [type(m) for m in model.modules()]
    assert fuse_(model) is model
    assert [type(m) for m in model.modules()] == kinds


def test_other_modules_and_changed_blocks_stay_as_they_are():
    class Quiet(nn.Module):
        def forward(self, x, cache=None):
            return x

    other = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    assert [type(m) for m in fuse_(other)] == [nn.Linear, nn.LayerNorm]
    model, tokens = GPT2(**SHAPE), mytorch.randint(0, 33, (2, 10))
    model.transformer.h[1] = Quiet()
    expected = model(tokens).detach().numpy()
    fuse_(model)
    assert not any(isinstance(m, home.FusedBlock) for m in model.modules())
    np.testing.assert_array_equal(model(tokens).detach().numpy(), expected)


def test_layers_that_lora_replaces_are_still_called():
    model = fuse_(GPT2(**SHAPE))
    tokens = mytorch.randint(0, 33, (2, 10))
    expected = model(tokens).detach().numpy()
    lora.inject(model, ["c_attn", "c_fc"], rank=2)
    np.testing.assert_array_equal(model(tokens).detach().numpy(), expected)
    for layer in model.modules():
        if isinstance(layer, lora.LoRALinear):
            nn.init.normal_(layer.lora_B)
    assert not np.array_equal(model(tokens).detach().numpy(), expected)


def test_a_model_whose_norms_are_of_the_fused_class_works_in_plain_blocks():
    """Models were pickled with AddLayerNorm as the class of their norms."""
    model, tokens = GPT2(**SHAPE), mytorch.randint(0, 33, (2, 10))
    expected = model(tokens).detach().numpy()
    for module in model.modules():
        if type(module) is nn.LayerNorm:
            module.__class__ = AddLayerNorm
    np.testing.assert_array_equal(model(tokens).detach().numpy(), expected)
    np.testing.assert_array_equal(fuse_(model)(tokens).detach().numpy(), expected)
