"""The config of Llama models in Hugging Face's files. The weights have the same names, except for experts."""

import re

from .hugging_face import check_options, fields_of, is_number, value_of

# field of LlamaConfig: (Hugging Face's name, default in config.json, or ... for a required value)
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
# numbers in rope_scaling
_NUMBERS = {
    "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "attention_factor",
    "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
}  # fmt: skip
_PARTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}  # weights of an expert
_SUPPORTED = {"router_jitter_noise": 0.0, "mlp_bias": False}
# model_type: prefix of "ForCausalLM"
_CLASSES = {
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "mixtral": "Mixtral", "nanochat": "NanoChat",
}  # fmt: skip


def _scaling(values, file, who):
    """Return (rope_theta or None, rope_scaling) of a config.json, in the formats before and since transformers 5."""
    name = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
    given = values.get(name) or {}
    if not isinstance(given, dict):
        raise ValueError(f"{who}: expected {name} to be an object in {file}, got {given!r:.60}.")
    for key, value in given.items():
        if key in _NUMBERS and value is not None and not (is_number(value) and value > 0):
            raise ValueError(f"{who}: expected {name}.{key} to be a positive number in {file}, got {value!r:.60}.")
    given = dict(given)
    theta = given.pop("rope_theta", None)
    kind = given.pop("rope_type", given.pop("type", "default"))
    if not isinstance(kind, str):
        raise ValueError(f"{who}: expected {name}.rope_type to be a string in {file}, got {kind!r:.60}.")
    return theta, None if kind == "default" else {"rope_type": kind, **given}


def fields(values, file, who):
    """Return the fields of LlamaConfig for the values of `config.json`.

    Raises:
        ValueError: if the architecture is different, or an option is not supported.
    """
    kind = values.get("model_type", "llama")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise ValueError(f"{who}: expected a model_type in {', '.join(_CLASSES)}, got {kind!r} in {file}.")
    check_options(values, {**_SUPPORTED, "hidden_act": "relu2" if kind == "nanochat" else "silu"}, who)
    known = fields_of(values, _FIELDS, file, who)
    theta, scaling = _scaling(values, file, who)
    known["rope_theta"], known["rope_scaling"] = theta or known["rope_theta"], scaling
    if not known["rope_theta"] > 0:
        raise ValueError(f"{who}: expected rope_theta to be a positive number in {file}, got {known['rope_theta']!r}.")
    if scaling and scaling["rope_type"] == "dynamic":  # Hugging Face's value is the trained length
        scaling["original_max_position_embeddings"] = known["context_length"]
        known["context_length"] = int(known["context_length"] * (scaling.get("factor") or 1))
    known["qkv_bias"] = kind == "qwen2" or bool(values.get("attention_bias"))
    known["out_bias"] = kind != "qwen2" and bool(values.get("attention_bias"))
    known["qk_norm"] = kind == "qwen3"
    if kind.startswith("qwen"):
        known["full_layers"] = value_of(values, "max_window_layers", 28, file, who, least=0)
        if kind == "qwen3":
            known["head_dim"] = value_of(values, "head_dim", 128, file, who)
        if not values.get("use_sliding_window"):
            known.update(sliding_window=None, full_layers=0)
    elif kind == "mistral":
        known["sliding_window"] = value_of(
            values, "sliding_window", None if "sliding_window" in values else 4096, file, who
        )
    elif kind == "mixtral":
        known.update(fields_of(values, _EXPERTS, file, who))
    elif kind == "nanochat":
        cap = value_of(values, "final_logit_softcapping", 15.0, file, who)
        known.update(activation="relu2", norm_weights=False, qk_norm=True, logit_softcap=cap, sliding_window=None)
    else:
        known["sliding_window"] = None
    return known


def model_type(config):
    """Return Hugging Face's architecture for a LlamaConfig.

    Raises:
        ValueError: if there is none.
    """
    biases = config.qkv_bias, config.out_bias
    windowed = config.sliding_window is not None
    small = config.activation == "relu2", not config.norm_weights  # as in nanochat
    if any(small) or config.logit_softcap is not None:
        if all(small) and config.qk_norm and not (config.num_experts or windowed) and len(set(biases)) == 1:
            return "nanochat"
        raise ValueError(
            "Llama.save_pretrained: relu2, norms without weights and capped logits are only supported together, with qk_norm and "
            "without windows and experts (nanochat)."
        )
    if config.num_experts and not (config.qk_norm or any(biases) or config.full_layers):
        return "mixtral"
    if config.num_experts:
        raise ValueError(
            "Llama.save_pretrained: experts are not supported with qk_norm, biases or full_layers (Mixtral)."
        )
    if config.qk_norm and len(set(biases)) == 1:
        return "qwen3"
    if not config.qk_norm and biases == (True, False):
        return "qwen2"
    if not config.qk_norm and biases == (False, False) and windowed and not config.full_layers:
        return "mistral"
    if not config.qk_norm and len(set(biases)) == 1 and not windowed:
        return "llama"
    raise ValueError(
        f"Llama.save_pretrained: no Hugging Face architecture has qk_norm={config.qk_norm}, qkv_bias={config.qkv_bias}, "
        f"out_bias={config.out_bias}, sliding_window={config.sliding_window} and full_layers={config.full_layers}."
    )


def describe(config):
    """Return the values of `config.json` for a LlamaConfig."""
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
    """Translate the name of an expert's weight; other names are equal."""
    if not config.num_experts:
        return name
    name = re.sub(*pattern, name)
    return re.sub(r"(experts\.\d+\.)(\w+)", lambda found: found[1] + new.get(found[2], found[2]), name)


def _turned(name, weight, config):
    """Convert queries' and keys' weights of nanochat, which rotates in the other direction, by swapping halves of heads."""
    if config.activation != "relu2" or not name.endswith(
        ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")
    ):
        return weight
    if not config.head or weight.shape[0] % config.head:  # the comparison with the config reports it
        return weight
    heads = weight.reshape(-1, 2, config.head // 2, *weight.shape[1:])
    return heads.flip(1).reshape(weight.shape).contiguous()


def shapes(config):
    """Yield the name and shape of each weight of a Llama, layer by layer."""
    C, hidden, D = config.embed_dim, config.hidden, config.head
    yield "model.embed_tokens.weight", (config.vocab_size, C)
    yield "lm_head.weight", (config.vocab_size, C)
    if config.norm_weights:
        yield "model.norm.weight", (C,)
    for i in range(config.num_layers):
        block = f"model.layers.{i}"
        for part, heads in (("q", config.num_heads), ("k", config.kv_heads), ("v", config.kv_heads)):
            yield f"{block}.self_attn.{part}_proj.weight", (heads * D, C)
            if config.qkv_bias:
                yield f"{block}.self_attn.{part}_proj.bias", (heads * D,)
            if config.qk_norm and config.norm_weights and part != "v":
                yield f"{block}.self_attn.{part}_norm.weight", (D,)
        yield f"{block}.self_attn.o_proj.weight", (C, config.num_heads * D)
        if config.out_bias:
            yield f"{block}.self_attn.o_proj.bias", (C,)
        if config.norm_weights:
            yield f"{block}.input_layernorm.weight", (C,)
            yield f"{block}.post_attention_layernorm.weight", (C,)
        if config.num_experts:
            yield f"{block}.mlp.gate.weight", (config.num_experts, C)
        for e in range(config.num_experts or 1):
            mlp = f"{block}.mlp.experts.{e}" if config.num_experts else f"{block}.mlp"
            ways = {"fc1": (hidden, C), "fc2": (C, hidden)} if config.activation == "relu2" else {
                "gate_proj": (hidden, C), "up_proj": (hidden, C), "down_proj": (C, hidden),
            }  # fmt: skip
            for name, shape in ways.items():
                yield f"{mlp}.{name}.weight", shape


def to_ours(theirs, config):
    """Convert Hugging Face's weights to a state dict of Llama."""
    names = (name for name in theirs if not name.endswith("rotary_emb.inv_freq"))
    weights = {
        _renamed(name, config, (r"\.block_sparse_moe\.", ".mlp."), _PARTS): _turned(name, theirs[name], config)
        for name in names
    }
    if config.tie_embeddings and "model.embed_tokens.weight" in weights:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    return weights


def to_theirs(ours, config):
    """Convert a state dict of Llama to Hugging Face's weights, without a head that shares the embedding."""
    parts, names = {ours: theirs for theirs, ours in _PARTS.items()}, list(ours)
    if config.tie_embeddings:
        names.remove("lm_head.weight")
    return {
        _renamed(name, config, (r"\.mlp\.", ".block_sparse_moe."), parts): _turned(name, ours[name], config)
        for name in names
    }
