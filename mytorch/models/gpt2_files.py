"""GPT-2 in Hugging Face's files: other names, and transposed "Conv1D" weights."""

from ..arrays.errors import warn
from ..ops.creation import zeros
from .hugging_face import check_options, fields_of, value_of

# field of GPT2Config: (Hugging Face's name, default in config.json, or ... for a required value)
_FIELDS = {
    "vocab_size": ("vocab_size", ...), "context_length": ("n_positions", 1024), "num_layers": ("n_layer", ...),
    "num_heads": ("n_head", ...), "embed_dim": ("n_embd", ...), "dropout_p": ("resid_pdrop", 0.1),
    "use_bias": ("use_bias", True), "layer_norm_eps": ("layer_norm_epsilon", 1e-5),
}  # fmt: skip
_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_SUPPORTED = {
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
    "tie_word_embeddings": True,
}  # fmt: skip


def fields(values, file, who):
    """Return the fields of GPT2Config for the values of `config.json`.

    Raises:
        ValueError: if the architecture is different, or an option is not supported.
    """
    if values.get("model_type", "gpt2") != "gpt2":
        raise ValueError(f"{who}: expected a 'gpt2' model in {file}, got {values['model_type']!r}.")
    activation = values.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ValueError(
            f"{who}: expected activation_function to be one of {', '.join(_ACTIVATIONS)}, got {activation!r} in {file}."
        )
    check_options(values, _SUPPORTED, who)
    known = fields_of(values, _FIELDS, file, who)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        p, used = value_of(values, name, known["dropout_p"], file, who), known["dropout_p"]
        if p > 1:
            raise ValueError(f"{who}: expected {name} to be a probability between 0 and 1 in {file}, got {p}.")
        if p != used:
            warn(f"{who}: {name} is {p} in {file}. The model uses resid_pdrop ({used}) for all dropout probabilities.")
    width = known["embed_dim"]
    hidden = value_of(values, "n_inner", None, file, who) or 4 * width
    return {**known, "mlp_ratio": hidden / width, "activation": _ACTIVATIONS[activation]}


def describe(config):
    """Return the values of `config.json` for a GPT2Config."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{name: getattr(config, field) for field, (name, _) in _FIELDS.items()},
        "n_ctx": config.context_length,
        "n_inner": int(config.mlp_ratio * config.embed_dim),
        "activation_function": "gelu" if config.activation == "gelu" else "gelu_new",
        "embd_pdrop": config.dropout_p,
        "attn_pdrop": config.dropout_p,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def _is_conv1d(name):
    """Return True for a weight that Hugging Face stores transposed, as (in, out)."""
    return name.endswith(("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"))


def shapes(config):
    """Yield the name and shape of each weight of a GPT2, layer by layer."""
    C, hidden = config.embed_dim, int(config.mlp_ratio * config.embed_dim)
    yield "transformer.wte.weight", (config.vocab_size, C)
    yield "transformer.wpe.weight", (config.context_length, C)
    yield "lm_head.weight", (config.vocab_size, C)
    inner = {
        "ln_1": (C,), "attn.c_attn": (3 * C, C), "attn.c_proj": (C, C), "ln_2": (C,), "mlp.c_fc": (hidden, C),
        "mlp.c_proj": (C, hidden),
    }  # fmt: skip
    blocks = ((f"h.{i}.{name}", shape) for i in range(config.num_layers) for name, shape in inner.items())
    yield from _layer("ln_f", (C,), config)
    for name, shape in blocks:
        yield from _layer(name, shape, config)


def _layer(name, shape, config):
    yield f"transformer.{name}.weight", shape
    if config.use_bias:
        yield f"transformer.{name}.bias", shape[:1]


def to_ours(theirs, config):
    """Convert Hugging Face's weights to a state dict of GPT2."""
    weights = {}
    for name, tensor in theirs.items():
        name = name.removeprefix("transformer.")
        is_mask = name.endswith((".attn.bias", ".attn.masked_bias"))  # the causal mask of old versions
        if is_mask or (name.endswith(".bias") and not config.use_bias):
            continue
        tensor = tensor.t() if _is_conv1d(name) else tensor
        weights[name if name.startswith("lm_head.") else f"transformer.{name}"] = tensor.contiguous()
    if "transformer.wte.weight" in weights:
        weights.setdefault("lm_head.weight", weights["transformer.wte.weight"])
    return weights


def to_theirs(ours, config):
    """Convert a state dict of GPT2 to Hugging Face's weights, which always have biases: missing ones become zeros."""
    weights = {}
    for name, tensor in ours.items():
        weights[name] = tensor.t().contiguous() if _is_conv1d(name) else tensor
        if not config.use_bias and not name.endswith(("wte.weight", "wpe.weight", "lm_head.weight")):
            weights[name.removesuffix("weight") + "bias"] = zeros(tensor.shape[0], dtype=tensor.dtype)
    return weights
