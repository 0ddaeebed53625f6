import gc
import json

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, GPT2Config


def tiny(**changes):
    options = {"vocab_size": 31, "context_length": 16, "num_layers": 2, "num_heads": 2, "embed_dim": 12}
    return GPT2(GPT2Config(**{**options, **changes}))


def tokens(*shape, high=31):
    return mytorch.randint(0, high, shape)


def test_sizes_have_the_promised_layers_heads_and_width():
    expected = {
        "demo": (4, 4, 128), "small": (6, 6, 384), "base": (12, 12, 768), "medium": (24, 16, 1024), "large": (36, 20, 1280),
        "xl": (48, 25, 1600),
    }  # fmt: skip
    for name, shape in expected.items():
        config = GPT2Config.sized(name)
        assert (config.num_layers, config.num_heads, config.embed_dim) == shape


def test_unknown_size_activation_and_uneven_heads_are_refused():
    with pytest.raises(ValueError, match="expected one of demo, small.*got 'huge'"):
        GPT2Config.sized("huge")
    with pytest.raises(ValueError, match="activation .*got 'relu'"):
        GPT2Config(activation="relu")
    with pytest.raises(ValueError, match="got embed_dim=10 and num_heads=3"):
        GPT2Config(embed_dim=10, num_heads=3)


def test_config_survives_json():
    config = GPT2Config.sized("small", dropout_p=0.1, use_bias=True)
    assert GPT2Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_logits_without_targets_and_a_scalar_loss_with_them():
    model = tiny()
    x = tokens(3, 16)
    assert model(x).shape == (3, 16, 31)
    assert model(x, last_only=True).shape == (3, 1, 31)
    assert model(x, x).shape == ()


def test_targets_of_minus_100_are_not_counted():
    model = tiny().eval()
    x, y = tokens(2, 8), tokens(2, 8)
    masked = y.clone()
    masked[:, 4:] = -100
    assert model(x, masked).item() == pytest.approx(model(x[:, :4], y[:, :4]).item(), rel=1e-5)


def test_longer_input_than_the_context_is_refused():
    with pytest.raises(ValueError, match="expected at most 16 positions .*got 17"):
        tiny()(tokens(1, 17))


def test_head_and_embedding_are_one_parameter():
    model = tiny()
    assert model.lm_head.weight is model.transformer.wte.weight
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == len(set(names))
    assert sum("wte" in n or "lm_head" in n for n in names) == 1
    assert model.num_parameters() - model.num_parameters(embeddings=False) == 16 * 12


def test_only_trainable_leaves_frozen_parameters_out_of_the_count():
    model = tiny()
    model.lm_head.weight.requires_grad_(False)
    frozen = model.num_parameters() - model.num_parameters(only_trainable=True)
    assert frozen == model.lm_head.weight.numel()


def test_initial_weights_have_the_promised_deviations():
    model = GPT2(GPT2Config.sized("demo", vocab_size=500, use_bias=True))
    assert model.transformer.wte.weight.std().item() == pytest.approx(0.02, rel=0.05)
    block = model.transformer.h[0]
    assert block.attn.c_attn.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.05)
    assert block.attn.c_attn.bias.abs().max().item() == 0
    assert model(tokens(2, 50, high=500), tokens(2, 50, high=500)).item() == pytest.approx(np.log(500), rel=0.02)


def test_bias_option_gives_or_leaves_out_every_bias():
    assert not any(name.endswith("bias") for name, _ in tiny(use_bias=False).named_parameters())
    assert sum(name.endswith("bias") for name, _ in tiny(use_bias=True).named_parameters()) == 2 * 6 + 1


def test_a_token_sees_no_later_token():
    model = tiny().eval()
    x = tokens(1, 10)
    changed = x.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 31
    np.testing.assert_array_equal(model(x)[:, :6].detach().numpy(), model(changed)[:, :6].detach().numpy())


def test_matrices_decay_and_vectors_do_not():
    decayed, others = tiny(use_bias=True).parameter_groups(0.1)
    assert decayed["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert all(p.ndim == 1 for p in others["params"])


def test_dropout_acts_in_training_only():
    model = tiny(dropout_p=0.5)
    x = tokens(2, 8)
    assert (model(x) != model(x)).any()
    model.eval()
    assert (model(x) == model(x)).all()


@pytest.mark.cpu_only
def test_gradient_checkpointing_changes_no_gradient_even_with_dropout():
    x, y = tokens(2, 8), tokens(2, 8)
    gradients = []
    for recompute in (False, True):
        mytorch.manual_seed(5)
        model = tiny(dropout_p=0.3, gradient_checkpointing=recompute)
        model(x, y).backward()
        gradients.append([p.grad._array for p in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        np.testing.assert_allclose(recomputed, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("changes", [{}, {"dropout_p": 0.1}, {"gradient_checkpointing": True}])
def test_training_leaves_nothing_to_the_garbage_collector(changes):
    model = tiny(**changes)
    optimizer = mytorch.optim.AdamW(model.parameters())
    x = tokens(2, 8)

    def step():
        model(x, x).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    while gc.collect():  # finalizers of objects of earlier tests (workers of loaders) may create more garbage
        pass
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            step()
        gc.collect()
        left = [f"{type(x).__name__}: {x!r:.80}" for x in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []


def test_fused_is_handed_to_every_layer_that_knows_it():
    model = tiny(fused=False)
    assert all(m.fused is False for m in model.modules() if "fused" in m.__dict__)
    assert sum("fused" in m.__dict__ for m in model.modules()) > 10


# -- Hugging Face's files --------------------------------------------------------------------------


@pytest.fixture
def hugging_face(torch, tmp_path):
    transformers = pytest.importorskip("transformers")

    def make(**changes):
        options = {
            "vocab_size": 61,
            "n_positions": 24,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "bos_token_id": 60,
            "eos_token_id": 60,
            **changes,
        }
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)).eval()
        with torch.no_grad():  # biases and norms that are not just 0 and 1
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.05)
        model.save_pretrained(tmp_path / "theirs")
        return model, tmp_path / "theirs"

    return make


@pytest.mark.parametrize("changes", [{}, {"activation_function": "gelu"}, {"n_inner": 48, "layer_norm_epsilon": 1e-3}])
def test_logits_of_a_hugging_face_model(torch, hugging_face, changes):
    theirs, path = hugging_face(**changes)
    mine = GPT2.from_pretrained(path)
    x = np.random.default_rng(0).integers(0, 61, (2, 24))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).logits.numpy()
    with mytorch.no_grad():
        found = mine(mytorch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_names_without_the_transformer_prefix_and_shards_are_read(torch, hugging_face):
    safetensors = pytest.importorskip("safetensors.numpy")
    _, path = hugging_face()
    expected = GPT2.from_pretrained(path).state_dict()
    weights = safetensors.load_file(path / "model.safetensors")
    plain = {name.removeprefix("transformer."): t for name, t in weights.items()}
    names = sorted(plain)
    (path / "model.safetensors").unlink()
    index = {}
    for shard, part in (("a.safetensors", names[:9]), ("b.safetensors", names[9:])):
        safetensors.save_file({name: plain[name] for name in part}, path / shard)
        index.update(dict.fromkeys(part, shard))
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    found = GPT2.from_pretrained(path).state_dict()
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("use_bias", [False, True])
def test_transformers_reads_the_files_of_save_pretrained(torch, tmp_path, use_bias):
    transformers = pytest.importorskip("transformers")
    model = tiny(use_bias=use_bias, activation="gelu_tanh").eval()
    model.save_pretrained(tmp_path / "mine")
    assert "lm_head.weight" in mytorch.load(tmp_path / "mine" / "model.safetensors")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "mine").eval()
    x = np.random.default_rng(0).integers(0, 31, (2, 16))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).logits.numpy()
    np.testing.assert_allclose(model(mytorch.from_numpy(x)).detach().numpy(), expected, rtol=0, atol=1e-4)
    again = GPT2.from_pretrained(tmp_path / "mine", fused=False)
    assert again.config.use_bias is use_bias
    assert again.config.fused is False
    assert all((again.state_dict()[name] == t).all() for name, t in model.state_dict().items())


def test_other_architectures_and_options_are_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        GPT2.from_pretrained(tmp_path)
    config = {"model_type": "llama", "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="got 'llama'"):
        GPT2.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt2", "activation_function": "relu"}))
    with pytest.raises(ValueError, match="activation_function .*got 'relu'"):
        GPT2.from_pretrained(tmp_path)
    option = {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}
    (tmp_path / "config.json").write_text(json.dumps({**config, **option}))
    with pytest.raises(ValueError, match="expected scale_attn_by_inverse_layer_idx=False, got True"):
        GPT2.from_pretrained(tmp_path)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt2", name: 1.5}))
        with pytest.raises(ValueError, match=f"expected {name} to be a probability between 0 and 1 .*got 1.5"):
            GPT2.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt2", "embd_pdrop": 0.2}))
    with pytest.warns(UserWarning, match="embd_pdrop is 0.2 .*resid_pdrop .0.1."), pytest.raises(FileNotFoundError):
        GPT2.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        GPT2.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../a.safetensors"}}))
    with pytest.raises(ValueError, match="not a file in the same directory"):
        GPT2.from_pretrained(tmp_path)
