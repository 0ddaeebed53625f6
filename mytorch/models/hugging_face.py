"""GPT-2's config and weights as Hugging Face's files hold them: other names, and "Conv1D" weights, which are transposed."""

import json
import re
from pathlib import Path

from ..ops.creation import zeros
from ..serialization import load_safetensors

# field of GPT2Config: (Hugging Face's name, its value where config.json leaves it out)
_FIELDS = {
    "vocab_size": ("vocab_size", None), "context_length": ("n_positions", 1024), "num_layers": ("n_layer", None),
    "num_heads": ("n_head", None), "embed_dim": ("n_embd", None), "dropout_p": ("resid_pdrop", 0.1),
    "use_bias": ("use_bias", True), "layer_norm_eps": ("layer_norm_epsilon", 1e-5),
}  # fmt: skip
_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_SUPPORTED = {
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
    "tie_word_embeddings": True,
}  # fmt: skip


def read_config(path):
    """The fields of GPT2Config that `config.json` in a directory determines.

    Raises:
        FileNotFoundError: there is none.
        ValueError: another architecture, or options that our GPT2 has not.
    """
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"GPT2.from_pretrained: {file} is missing; expected a Hugging Face model directory.")
    try:
        values = dict(json.loads(file.read_text()))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"GPT2.from_pretrained: {file} is damaged ({error}).") from None
    if values.get("model_type", "gpt2") != "gpt2":
        raise ValueError(f"GPT2.from_pretrained: {file} describes a {values['model_type']!r} model, not a 'gpt2'.")
    activation = values.get("activation_function", "gelu_new")
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"GPT2.from_pretrained: activation_function is {activation!r}; known are {', '.join(_ACTIVATIONS)}."
        )
    for option, usual in _SUPPORTED.items():
        if values.get(option, usual) != usual:
            raise ValueError(f"GPT2.from_pretrained: {option}={values[option]} is not supported; only {usual} is.")
    if lacking := [name for name, default in _FIELDS.values() if default is None and name not in values]:
        raise ValueError(f"GPT2.from_pretrained: {file} does not say {', '.join(lacking)}.")
    known = {
        field: values[name] if default is None else values.get(name, default)
        for field, (name, default) in _FIELDS.items()
    }
    width = known["embed_dim"]
    return {**known, "mlp_ratio": (values.get("n_inner") or 4 * width) / width, "activation": _ACTIVATIONS[activation]}


def config_for(config):
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


def is_weights(name):
    """Whether a file in a model's directory holds weights, in one piece or in shards, or says which shard has which."""
    return re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", name) is not None


def read_weights(path):
    """All tensors of `model.safetensors`, or of the shards that its index names.

    Raises:
        FileNotFoundError: a file is missing. ValueError: the index names one in another directory.
    """
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"GPT2.from_pretrained: {index} is damaged ({type(error).__name__}: {error}).") from None
    weights = {}
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"GPT2.from_pretrained: {index} names {name!r}, which is not a file beside it.")
        if not (path / name).is_file():
            raise FileNotFoundError(f"GPT2.from_pretrained: {path / name} is missing.")
        weights.update(load_safetensors(path / name))
    return weights


def _is_conv1d(name):
    """Whether Hugging Face keeps this weight transposed, as (in, out)."""
    return name.endswith(("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"))


def to_nanogpt(theirs, use_bias):
    """Hugging Face's weights as our state dict."""
    weights = {}
    for name, tensor in theirs.items():
        name = name.removeprefix("transformer.")
        is_mask = name.endswith((".attn.bias", ".attn.masked_bias"))  # the causal mask, kept by old versions
        if is_mask or (name.endswith(".bias") and not use_bias):
            continue
        tensor = tensor.t() if _is_conv1d(name) else tensor
        weights[name if name.startswith("lm_head.") else f"transformer.{name}"] = tensor.contiguous()
    if "transformer.wte.weight" in weights:
        weights.setdefault("lm_head.weight", weights["transformer.wte.weight"])
    return weights


def from_nanogpt(ours, use_bias):
    """Our state dict as Hugging Face's weights, with zeros for biases that the model has not."""
    weights = {}
    for name, tensor in ours.items():
        weights[name] = tensor.t().contiguous() if _is_conv1d(name) else tensor
        if not use_bias and not name.endswith(("wte.weight", "wpe.weight", "lm_head.weight")):
            weights[name.removesuffix("weight") + "bias"] = zeros(tensor.shape[0], dtype=tensor.dtype)
    return weights
