"""GPT-2's config and weights as Hugging Face's files hold them: other names, and "Conv1D" weights, which are transposed."""

from ..ops.creation import zeros
from .hugging_face import check_options, fields_of

# field of GPT2Config: (Hugging Face's name, its value where config.json leaves it out, or ... where it must not)
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
    """The fields of GPT2Config that `config.json` determines.

    Raises:
        ValueError: another architecture, or options that our GPT2 has not.
    """
    if values.get("model_type", "gpt2") != "gpt2":
        raise ValueError(f"{who}: {file} describes a {values['model_type']!r} model, not a 'gpt2'.")
    activation = values.get("activation_function", "gelu_new")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{who}: activation_function is {activation!r}; known are {', '.join(_ACTIVATIONS)}.")
    check_options(values, _SUPPORTED, who)
    known = fields_of(values, _FIELDS, file, who)
    width = known["embed_dim"]
    return {**known, "mlp_ratio": (values.get("n_inner") or 4 * width) / width, "activation": _ACTIVATIONS[activation]}


def describe(config):
    """What `config.json` says of a GPT2Config."""
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
    """Whether Hugging Face keeps this weight transposed, as (in, out)."""
    return name.endswith(("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"))


def to_ours(theirs, config):
    """Hugging Face's weights as our state dict."""
    weights = {}
    for name, tensor in theirs.items():
        name = name.removeprefix("transformer.")
        is_mask = name.endswith((".attn.bias", ".attn.masked_bias"))  # the causal mask, kept by old versions
        if is_mask or (name.endswith(".bias") and not config.use_bias):
            continue
        tensor = tensor.t() if _is_conv1d(name) else tensor
        weights[name if name.startswith("lm_head.") else f"transformer.{name}"] = tensor.contiguous()
    if "transformer.wte.weight" in weights:
        weights.setdefault("lm_head.weight", weights["transformer.wte.weight"])
    return weights


def to_theirs(ours, config):
    """Our state dict as Hugging Face's weights, with zeros for biases that the model has not: theirs always has them."""
    weights = {}
    for name, tensor in ours.items():
        weights[name] = tensor.t().contiguous() if _is_conv1d(name) else tensor
        if not config.use_bias and not name.endswith(("wte.weight", "wpe.weight", "lm_head.weight")):
            weights[name.removesuffix("weight") + "bias"] = zeros(tensor.shape[0], dtype=tensor.dtype)
    return weights
