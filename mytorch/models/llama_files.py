"""The config of Llama and its kin as Hugging Face's files hold it; the weights have the same names, but for experts."""

import re

from .hugging_face import check_options, fields_of

# field of LlamaConfig: (Hugging Face's name, its value where config.json leaves it out, or ... where it must not)
_FIELDS = {
    "vocab_size": ("vocab_size", ...), "context_length": ("max_position_embeddings", 2048),
    "num_layers": ("num_hidden_layers", ...), "num_heads": ("num_attention_heads", ...), "embed_dim": ("hidden_size", ...),
    "num_kv_heads": ("num_key_value_heads", None), "head_dim": ("head_dim", None), "hidden_dim": ("intermediate_size", ...),
    "rope_theta": ("rope_theta", 10000.0), "rms_norm_eps": ("rms_norm_eps", 1e-6), "sliding_window": ("sliding_window", None),
    "tie_embeddings": ("tie_word_embeddings", False), "dropout_p": ("attention_dropout", 0.0),
}  # fmt: skip
_EXPERTS = {
    "num_experts": ("num_local_experts", 8),
    "experts_per_token": ("num_experts_per_tok", 2),
    "balance": ("router_aux_loss_coef", 0.001),
}
_PARTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}  # of an expert
_SUPPORTED = {"router_jitter_noise": 0.0, "mlp_bias": False}
# model_type: …ForCausalLM
_CLASSES = {
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "mixtral": "Mixtral", "nanochat": "NanoChat",
}  # fmt: skip


def _scaling(values):
    """(rope_theta or None, rope_scaling) of a config.json, of versions before and since transformers 5."""
    given = dict(values.get("rope_parameters") or values.get("rope_scaling") or {})
    theta = given.pop("rope_theta", None)
    kind = given.pop("rope_type", given.pop("type", "default"))
    return theta, None if kind == "default" else {"rope_type": kind, **given}


def fields(values, file, who):
    """The fields of LlamaConfig that `config.json` determines.

    Raises:
        ValueError: another architecture, or options that our Llama has not.
    """
    kind = values.get("model_type", "llama")
    if kind not in _CLASSES:
        raise ValueError(f"{who}: {file} describes a {kind!r} model, not one of {', '.join(_CLASSES)}.")
    check_options(values, {**_SUPPORTED, "hidden_act": "relu2" if kind == "nanochat" else "silu"}, who)
    known = fields_of(values, _FIELDS, file, who)
    theta, scaling = _scaling(values)
    known["rope_theta"], known["rope_scaling"] = theta or known["rope_theta"], scaling
    if scaling and scaling["rope_type"] == "dynamic":  # theirs is the context trained for, to be exceeded
        scaling["original_max_position_embeddings"] = known["context_length"]
        known["context_length"] = int(known["context_length"] * scaling.get("factor", 1))
    known["qkv_bias"] = kind == "qwen2" or bool(values.get("attention_bias"))
    known["out_bias"] = kind != "qwen2" and bool(values.get("attention_bias"))
    known["qk_norm"] = kind == "qwen3"
    if kind.startswith("qwen"):
        known["full_layers"] = values.get("max_window_layers", 28)
        if kind == "qwen3":
            known["head_dim"] = values.get("head_dim", 128)
        if not values.get("use_sliding_window"):
            known.update(sliding_window=None, full_layers=0)
    elif kind == "mistral":
        known["sliding_window"] = values.get("sliding_window", 4096)
    elif kind == "mixtral":
        known.update(fields_of(values, _EXPERTS, file, who))
    elif kind == "nanochat":
        cap = values.get("final_logit_softcapping", 15.0)
        known.update(activation="relu2", norm_weights=False, qk_norm=True, logit_softcap=cap, sliding_window=None)
    else:
        known["sliding_window"] = None
    return known


def model_type(config):
    """Which of Hugging Face's architectures computes what a LlamaConfig says.

    Raises:
        ValueError: none does.
    """
    biases = config.qkv_bias, config.out_bias
    windowed = config.sliding_window is not None
    small = config.activation == "relu2", not config.norm_weights  # nanochat's
    if any(small) or config.logit_softcap is not None:
        if all(small) and config.qk_norm and not (config.num_experts or windowed) and len(set(biases)) == 1:
            return "nanochat"
        raise ValueError(
            "Llama.save_pretrained: nanochat alone has relu2, norms without weights and capped logits; all of them, qk_norm, and "
            "neither windows nor experts."
        )
    if config.num_experts and not (config.qk_norm or any(biases) or config.full_layers):
        return "mixtral"
    if config.num_experts:
        raise ValueError("Llama.save_pretrained: Mixtral's experts go with no qk_norm, biases or full_layers.")
    if config.qk_norm and len(set(biases)) == 1:
        return "qwen3"
    if not config.qk_norm and biases == (True, False):
        return "qwen2"
    if not config.qk_norm and biases == (False, False) and windowed and not config.full_layers:
        return "mistral"
    if not config.qk_norm and len(set(biases)) == 1 and not windowed:
        return "llama"
    raise ValueError(
        f"Llama.save_pretrained: no architecture of Hugging Face has qk_norm={config.qk_norm}, qkv_bias={config.qkv_bias}, "
        f"out_bias={config.out_bias}, sliding_window={config.sliding_window} and full_layers={config.full_layers} together."
    )


def describe(config):
    """What `config.json` says of a LlamaConfig."""
    kind = model_type(config)
    values = {name: getattr(config, field) for field, (name, _) in _FIELDS.items()}
    values.update(num_key_value_heads=config.kv_heads, head_dim=config.head, intermediate_size=config.hidden)
    if kind.startswith("qwen"):
        windowed = config.sliding_window is not None
        values.update(
            use_sliding_window=windowed, max_window_layers=config.full_layers if windowed else config.num_layers
        )
    scaling = config.rope_scaling
    if scaling and scaling["rope_type"] == "dynamic":
        values["max_position_embeddings"] = config.lasting
        scaling = {key: value for key, value in scaling.items() if key != "original_max_position_embeddings"}
    return {
        "architectures": [f"{_CLASSES[kind]}ForCausalLM"],
        "model_type": kind,
        **values,
        **({name: getattr(config, field) for field, (name, _) in _EXPERTS.items()} if kind == "mixtral" else {}),
        "attention_bias": config.qkv_bias,
        "rope_scaling": scaling,
        "hidden_act": "relu2" if kind == "nanochat" else "silu",
        **({"final_logit_softcapping": config.logit_softcap} if kind == "nanochat" else {}),
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }


def _renamed(name, config, pattern, new):
    """A weight's name in the other's words; they differ where there are experts."""
    if not config.num_experts:
        return name
    name = re.sub(*pattern, name)
    return re.sub(r"(experts\.\d+\.)(\w+)", lambda found: found[1] + new.get(found[2], found[2]), name)


def _turned(name, weight, config):
    """Weights of queries and keys whose heads turn the other way, as nanochat's do: halves of heads change places."""
    if config.activation != "relu2" or not name.endswith(
        ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")
    ):
        return weight
    heads = weight.reshape(-1, 2, config.head // 2, *weight.shape[1:])
    return heads.flip(1).reshape(weight.shape).contiguous()


def to_ours(theirs, config):
    """Hugging Face's weights as our state dict."""
    names = (name for name in theirs if not name.endswith("rotary_emb.inv_freq"))
    weights = {
        _renamed(name, config, (r"\.block_sparse_moe\.", ".mlp."), _PARTS): _turned(name, theirs[name], config)
        for name in names
    }
    if config.tie_embeddings and "model.embed_tokens.weight" in weights:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    return weights


def to_theirs(ours, config):
    """Our state dict as Hugging Face's weights: a head that is the embedding is left out."""
    parts, names = {ours: theirs for theirs, ours in _PARTS.items()}, list(ours)
    if config.tie_embeddings:
        names.remove("lm_head.weight")
    return {
        _renamed(name, config, (r"\.mlp\.", ".block_sparse_moe."), parts): _turned(name, ours[name], config)
        for name in names
    }
