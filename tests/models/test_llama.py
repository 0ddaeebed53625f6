import json
import math
import sys
import types

import numpy as np
import pytest

import mytorch
from mytorch.models import Llama, LlamaConfig, from_pretrained, llama_files
from mytorch.models.llama import NANOCHAT

LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

KINDS = {  # fields of the config: one set for each architecture, and one more for each option
    "llama2": {},
    "llama3": {"num_kv_heads": 2, "rope_theta": 500.0, "rope_scaling": LLAMA3},
    "linear": {"num_kv_heads": 1, "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "tie_embeddings": True},
    "dynamic": {
        "num_kv_heads": 2,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "yarn": {
        "num_kv_heads": 2,
        "rope_theta": 500.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 8, "original_max_position_embeddings": 64},
    },
    "biases": {"qkv_bias": True, "out_bias": True},
    "qwen2": {"num_kv_heads": 2, "qkv_bias": True, "tie_embeddings": True},
    "qwen3": {"num_kv_heads": 2, "qk_norm": True, "head_dim": 12},
    "mistral": {"num_kv_heads": 2, "sliding_window": 7},
    "mixtral": {"num_kv_heads": 2, "num_experts": 4, "sliding_window": 20},
    "nanochat": {
        "num_kv_heads": 2,
        "logit_softcap": 0.4,
        **{k: v for k, v in NANOCHAT.items() if k != "logit_softcap"},
    },
    "qwen2-window": {"qkv_bias": True, "sliding_window": 5, "full_layers": 1},
}


def tiny(**changes):
    options = {
        "vocab_size": 61,
        "context_length": 96,
        "num_layers": 3,
        "num_heads": 4,
        "embed_dim": 32,
        "hidden_dim": 40,
    }
    model = Llama(LlamaConfig(**{**options, **changes})).eval()
    with mytorch.no_grad():  # livelier than fresh weights
        for p in model.parameters():
            p.copy_(p * (4 if p.ndim > 1 else 1) + mytorch.randn(p.shape) * 0.05)
    return model


def tokens(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 61, shape)


def plain(torch, model, x):
    """The logits of a Llama, by its formulas in float64."""
    c = model.config
    w = {name: torch.tensor(t.numpy()).double() for name, t in model.state_dict().items()}
    (B, T), D = x.shape, c.head

    def norm(h, name):
        return h / (h.square().mean(-1, keepdim=True) + c.rms_norm_eps).sqrt() * w.get(name + ".weight", 1.0)

    def linear(h, name):
        return h @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)

    angles = []
    for i in range(D // 2):
        turn, scaling = c.rope_theta ** (-2 * i / D), c.rope_scaling or {"rope_type": "linear", "factor": 1.0}
        factor = 1.0 if scaling["rope_type"] == "dynamic" else scaling["factor"]  # which begins beyond 64 positions
        if scaling["rope_type"] == "yarn":
            low, high = (D * math.log(64 / (n * 2 * math.pi)) / (2 * math.log(c.rope_theta)) for n in (8, 1))
            share = min(max((i - max(math.floor(low), 0)) / (math.ceil(high) - max(math.floor(low), 0)), 0), 1)
            factor = 1 / (1 - share + share / 4)
        if scaling["rope_type"] == "llama3":
            wave, old = 2 * math.pi / turn, scaling["original_max_position_embeddings"]
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            smooth = (old / wave - low) / (high - low)
            factor = 8.0 if wave > old / low else 1.0 if wave < old / high else 1 / ((1 - smooth) / 8.0 + smooth)
        angles.append(torch.arange(T).double() * turn / factor)
    angles = torch.stack(angles, -1)
    size = 0.1 * math.log(4) + 1 if scaling["rope_type"] == "yarn" else 1.0

    def turned(h):
        a, b = (size * h).chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def hidden_layer(n, at):
        if c.activation == "relu2":
            return linear(torch.relu(linear(n, at + "fc1")) ** 2, at + "fc2")
        return linear(
            torch.nn.functional.silu(linear(n, at + "gate_proj")) * linear(n, at + "up_proj"), at + "down_proj"
        )

    def mixed(token, at):
        """Applies the two most probable experts to one token (C,), weighted by their normalized probabilities."""
        score = linear(token, at + "gate").tolist()
        best = sorted(range(len(score)), key=lambda i: -score[i])[: c.experts_per_token]
        total = sum(math.exp(score[i]) for i in best)
        return sum(math.exp(score[i]) / total * hidden_layer(token, f"{at}experts.{i}.") for i in best)

    h = w["model.embed_tokens.weight"][torch.from_numpy(x)]
    h = h if c.norm_weights else norm(h, "")
    distance = torch.arange(T)[:, None] - torch.arange(T)
    for i in range(c.num_layers):
        at = f"model.layers.{i}."
        n = norm(h, at + "input_layernorm")
        q, k, v = (linear(n, f"{at}self_attn.{p}_proj").view(B, T, -1, D) for p in "qkv")
        if c.qk_norm:
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        q, k = turned(q.transpose(1, 2)), turned(k.transpose(1, 2))
        k, v = (t.repeat_interleave(c.num_heads // c.kv_heads, 1) for t in (k, v.transpose(1, 2)))
        hidden = distance < 0
        if c.sliding_window and i >= c.full_layers:
            hidden = hidden | (distance >= c.sliding_window)
        p = (q @ k.transpose(2, 3) / D**0.5).masked_fill(hidden, -math.inf).softmax(-1)
        h = h + linear((p @ v).transpose(1, 2).reshape(B, T, -1), at + "self_attn.o_proj")
        n, mlp = norm(h, at + "post_attention_layernorm"), at + "mlp."
        if c.num_experts:
            h = h + torch.stack([mixed(row, mlp) for row in n.flatten(0, 1)]).view_as(h)
        else:
            h = h + hidden_layer(n, mlp)
    logits, cap = linear(norm(h, "model.norm"), "lm_head"), c.logit_softcap
    return logits if cap is None else cap * torch.tanh(logits / cap)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_formulas(torch, kind):
    model, x = tiny(**KINDS[kind]), tokens(2, 40)
    with mytorch.no_grad():
        found = model(mytorch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, plain(torch, model, x).numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("scaling", [
    {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16}, {"rope_type": "yarn", "factor": 2.0},
    {"rope_type": "yarn", "factor": 8.0, "mscale": 0.7, "mscale_all_dim": 0.4, "truncate": False, "beta_slow": 2},
    {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.3, "original_max_position_embeddings": 20},
])  # fmt: skip
def test_stretched_positions_are_those_of_transformers(torch, scaling):
    transformers = pytest.importorskip("transformers")
    model = tiny(rope_scaling=scaling, num_layers=1)
    values = llama_files.describe(model.config)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).eval()
    theirs.load_state_dict({name: torch.tensor(t.numpy()) for name, t in model.state_dict().items()})
    for length in (12, 40, 70, 90):
        x = tokens(1, length)
        with mytorch.no_grad(), torch.no_grad():
            expected = theirs(torch.from_numpy(x), use_cache=False).logits.numpy()
            np.testing.assert_allclose(model(mytorch.from_numpy(x)).numpy(), expected, rtol=0, atol=1e-4)


def test_dynamic_positions_go_through_no_cache_beyond_the_context_trained_for():
    model = tiny(rope_scaling={"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16})
    x, cache = mytorch.from_numpy(tokens(1, 9)), model.new_cache()
    text = model.generate(x, 30, temperature=0)
    assert text.tolist() == model.generate(x, 30, temperature=0, use_cache=False).tolist()
    assert text.tolist() == model.generate([x[0].tolist(), [1, 2]], 30, temperature=0)[0][None].tolist()
    with mytorch.no_grad(), pytest.raises(ValueError, match="at most 16 cached positions"):
        model(x, cache=cache), model(x, cache=cache)
    with pytest.raises(ValueError, match="at most 16 tokens"):
        model.generate(x, 30, draft=model)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_changes_no_logit(kind):
    model, x = tiny(**KINDS[kind]), mytorch.from_numpy(tokens(2, 40))
    with mytorch.no_grad():
        whole = model(x).numpy()
        cache = model.new_cache(length=40)
        cuts = [0, 3, 4, 5, 12, 13, 14, 15, 16, 17, 38, 39, 40]  # of one, fewer and more tokens than a window
        parts = [model(x[:, a:b], cache=cache).numpy() for a, b in zip(cuts, cuts[1:], strict=False)]
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=0, atol=1e-4)


def test_a_layer_with_a_window_keeps_two_windows():
    model = tiny(sliding_window=4, full_layers=1)
    cache = model.new_cache()
    with mytorch.no_grad():
        for _ in range(5):
            model(mytorch.from_numpy(tokens(1, 9)), cache=cache)
    assert [layer.k.shape[2] for layer in cache.layers] == [96, 8, 8]
    with pytest.raises(ValueError, match="cannot go back from 45 positions to 3"):
        cache.rewind(3)


@pytest.mark.parametrize("kind", ["llama3", "qwen3", "qwen2-window"])
def test_gradients_are_those_of_the_formulas_and_checkpointing_changes_none(torch, kind):
    model, x = tiny(num_layers=2, **KINDS[kind]), tokens(2, 11)
    y = tokens(2, 11, seed=1)
    grads = []
    for recompute in (False, True):
        copy = Llama(model.config, gradient_checkpointing=recompute)
        copy.load_state_dict(model.state_dict())
        copy(mytorch.from_numpy(x), mytorch.from_numpy(y)).backward()
        grads.append({name: p.grad.numpy() for name, p in copy.named_parameters()})
    for name in grads[0]:
        np.testing.assert_allclose(grads[0][name], grads[1][name], rtol=1e-5, atol=1e-6)
    probe = "model.layers.0.self_attn.k_proj.weight"
    step = np.random.default_rng(2).standard_normal(grads[0][probe].shape).astype("float32")
    losses = []
    for sign in (1, -1):
        state = model.state_dict()
        moved = {**state, probe: state[probe] + mytorch.from_numpy(step) * (sign * 1e-3)}
        copy.load_state_dict(moved)
        logits = plain(torch, copy, x)
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y.flatten())).item())
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx((grads[0][probe] * step).sum(), rel=2e-3, abs=1e-4)


def test_options_that_do_not_fit_are_refused():
    for options, message in (
        ({"embed_dim": 10, "num_heads": 3}, "got embed_dim=10 and num_heads=3"),
        ({"num_heads": 4, "num_kv_heads": 3}, "got num_heads=4 and num_kv_heads=3"),
        ({"num_heads": 4, "embed_dim": 12}, "got 3"),
        ({"sliding_window": 0}, "got 0"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "got 'longrope'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'yarn' lacks factor"),
    ):
        with pytest.raises(ValueError, match=message):
            LlamaConfig(**options)
    with pytest.raises(ValueError, match="expected at most 96 positions .*got 97"):
        tiny()(mytorch.from_numpy(tokens(1, 97)))


def test_config_survives_json_and_sizes_are_gpt2s():
    config = LlamaConfig.sized("medium", rope_scaling=LLAMA3)
    assert LlamaConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert (config.num_layers, config.num_heads, config.embed_dim) == (24, 16, 1024)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_written_and_read(tmp_path, kind):
    model, x = tiny(**KINDS[kind]), mytorch.from_numpy(tokens(1, 30))
    model.save_pretrained(tmp_path / "m", max_shard_size=20_000)
    files = sorted(p.name for p in (tmp_path / "m").iterdir())
    assert files[:2] == ["config.json", f"model-00001-of-{len(files) - 2:05}.safetensors"]
    assert all((tmp_path / "m" / name).stat().st_size < 25_000 for name in files)
    again = Llama.from_pretrained(tmp_path / "m")
    assert (again(x) == model(x)).all()
    model.save_pretrained(tmp_path / "m")  # over the shards
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]
    assert (Llama.from_pretrained(tmp_path / "m")(x) == again(x)).all()


def test_a_name_on_the_hub_is_brought_by_its_client(tmp_path, monkeypatch):
    model, asked = tiny(), []
    model.save_pretrained(tmp_path / "cache")
    hub = types.SimpleNamespace(snapshot_download=lambda name, allow_patterns: asked.append(name) or tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    for load in (from_pretrained, Llama.from_pretrained):
        assert (load("someone/tiny-1.5").lm_head.weight == model.lm_head.weight).all()
    assert asked == ["someone/tiny-1.5"] * 2
    with pytest.raises(FileNotFoundError, match="config.json is missing"):
        from_pretrained(tmp_path / "nowhere")  # a path is not looked for elsewhere

    def offline(name, allow_patterns):
        raise OSError("no network")

    hub.snapshot_download = offline
    with pytest.raises(FileNotFoundError, match="someone/tiny is not a directory, and .* no network"):
        from_pretrained("someone/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError, match="pip install huggingface_hub"):
        from_pretrained("someone/tiny")


def test_options_missing_in_either_library_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="no Hugging Face architecture has qk_norm=True, qkv_bias=True"):
        tiny(qk_norm=True, qkv_bias=True).save_pretrained(tmp_path / "m")
    tiny().save_pretrained(tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    values = json.loads(file.read_text())
    for change, message in (
        ({"model_type": "falcon"}, "got 'falcon'"),
        ({"hidden_act": "gelu"}, "expected hidden_act=silu, got gelu"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "got 'longrope'"),
    ):
        file.write_text(json.dumps({**values, **change}))
        with pytest.raises(ValueError, match=message):
            Llama.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_the_files_with_the_same_logits(torch, tmp_path, kind):
    transformers = pytest.importorskip("transformers")
    model, x = tiny(context_length=256, **KINDS[kind]), tokens(2, 40)
    model.save_pretrained(tmp_path / "mine", max_shard_size=30_000)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "mine").eval()
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).logits.numpy()
        start = torch.from_numpy(x[:1, :9])
        options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        count = 200
        if kind == "dynamic":  # theirs keeps keys of other positions, and without a cache takes long
            count, options["use_cache"] = 60, False
        text = theirs.generate(start, max_new_tokens=count, attention_mask=torch.ones_like(start), **options).numpy()
    with mytorch.no_grad():
        np.testing.assert_allclose(model(mytorch.from_numpy(x)).numpy(), expected, rtol=0, atol=1e-4)
    assert model.generate(mytorch.from_numpy(x[:1, :9]), count, temperature=0).tolist() == text.tolist()
    theirs.save_pretrained(tmp_path / "theirs")  # with key names that depend on the version of transformers
    again = Llama.from_pretrained(tmp_path / "theirs")
    assert llama_files.describe(again.config) == llama_files.describe(model.config)
    assert all((again.state_dict()[name] == t).all() for name, t in model.state_dict().items())
