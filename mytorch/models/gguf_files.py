"""Models and tokenizers in llama.cpp's GGUF files: Llama, Mistral, Mixtral, Qwen 2 and 3, and GPT-2."""

import contextlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ops.creation import from_numpy
from . import gpt2_files, llama_files
from .gguf import GGUFFile
from .gpt2 import GPT2, GPT2Config
from .hugging_face import MOST_WEIGHTS, check_shapes
from .llama import Llama, LlamaConfig
from .rotary import frequencies
from .tokenizer import FastTokenizer

# names of a block's weights: GGUF and mytorch
_LLAMA = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}  # fmt: skip
_EXPERTS = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
_GPT2 = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}  # fmt: skip
_OUTSIDE = {
    "llama": {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
    "gpt2": {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f", "output": "lm_head"},
}  # fmt: skip
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2")  # Mistral and Mixtral also have the name "llama"


class _Said:
    """The metadata of the architecture, by short keys."""

    def __init__(self, file: GGUFFile):
        self.file, self.kind = file, file.metadata.get("general.architecture")
        if self.kind not in ARCHITECTURES:
            self.refuse(f"expected an architecture in {', '.join(ARCHITECTURES)}, got {self.kind!r}")

    def __call__(self, key: str, default: Any = None, kind: type = int) -> Any:
        value = self.file.metadata.get(f"{self.kind}.{key}", default)
        if value is None:
            self.refuse(f"the metadata has no {self.kind}.{key}")
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 31):
            self.refuse(f"the metadata has an invalid {self.kind}.{key}, {value!r}")
        return value

    def number(self, key: str, default: Any = None, *, zero: bool = False) -> float:
        """Return a finite float, positive or, with `zero`, not negative."""
        value = self(key, default, float)
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            rule = "a finite number that is not negative" if zero else "a finite positive number"
            self.refuse(f"expected {self.kind}.{key} to be {rule}, got {value}")
        return value

    def check(self, shapes: dict[str, tuple]) -> None:
        """Check that the metadata and the tensors have the same shapes, before the model is created."""
        for name, shape in shapes.items():
            entry = self.file.tensors.get(name)
            if entry is None or entry.shape != shape:
                had = "none in the file" if entry is None else f"of shape {entry.shape}"
                self.refuse(f"expected {name} of shape {shape} by the metadata, got {had}")

    def refuse(self, why: str):
        raise ValueError(f"from_pretrained: {self.file.path}: {why}.")


def read_model(path: str | Path, **changes: Any) -> Any:
    """Return the Llama or GPT2 in a GGUF file in float32, with its tokenizer if the package `tokenizers` is installed.

    Args:
        path: path of the file.
        **changes: fields of the config to change, such as `fused`.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is damaged, or has an unsupported architecture or tensor type.
        RuntimeError: if weights are missing or have other shapes than the metadata.
    """
    file = GGUFFile(path)
    said = _Said(file)
    model: Any
    config = replace((_gpt2_config if said.kind == "gpt2" else _llama_config)(said), **changes)
    tensors = [name for name in file.tensors if name != "rope_freqs.weight"]
    # Compare names and shapes before the model is created and before a tensor is read.
    actual: dict[str, Any] = {}
    for name in tensors:
        shape = file.tensors[name].shape
        names = _names(name, shape, said, MOST_WEIGHTS - len(actual))
        actual.update(dict.fromkeys(names, shape[1:] if "_exps." in name else shape))
    embedding = _OUTSIDE["gpt2" if said.kind == "gpt2" else "llama"]["token_embd"]
    tied = "lm_head.weight" not in actual  # the head is the token embedding
    if tied:
        actual["lm_head.weight"] = actual[f"{embedding}.weight"]
    files: Any = gpt2_files if said.kind == "gpt2" else llama_files
    check_shapes(files.shapes(config), actual, "from_pretrained", file.path)
    model = (GPT2 if said.kind == "gpt2" else Llama)(config)
    weights = {}
    for name in tensors:
        weights.update(_renamed(name, file.read(name), said, config))
    if tied:
        weights["lm_head.weight"] = weights[f"{embedding}.weight"]
    model.load_state_dict({name: from_numpy(w) for name, w in weights.items()})
    with contextlib.suppress(ImportError):  # without the package, the model still accepts tokens
        model.tokenizer = read_tokenizer(file)
    return model.eval()


def _gpt2_config(said):
    width, layers, context = said("embedding_length"), said("block_count"), said("context_length")
    hidden = said("feed_forward_length", 4 * width)
    said.check({"position_embd.weight": (context, width), f"blk.{layers - 1}.ffn_up.weight": (hidden, width)})
    return GPT2Config(
        vocab_size=_vocab_size(said),
        context_length=context,
        num_layers=layers,
        num_heads=max(1, said("attention.head_count")),
        embed_dim=width,
        mlp_ratio=hidden / width,
        use_bias="blk.0.attn_qkv.bias" in said.file.tensors,
        activation="gelu_tanh",
        layer_norm_eps=said.number("attention.layer_norm_epsilon", 1e-5, zero=True),
    )


def _vocab_size(said):
    entry = said.file.tensors.get("token_embd.weight")
    if entry is None or len(entry.shape) != 2:
        said.refuse("it has no token_embd.weight (token embedding)")
    return entry.shape[0]


def _llama_config(said):
    tensors, heads, width = said.file.tensors, max(1, said("attention.head_count")), said("embedding_length")
    layers, hidden, experts = said("block_count"), said("feed_forward_length"), said("expert_count", 0)
    head, kv_heads = said("attention.key_length", width // heads), max(1, said("attention.head_count_kv", heads))
    last, vocab_size = f"blk.{layers - 1}", _vocab_size(said)
    gate, each = ("ffn_gate_exps", (experts,)) if experts else ("ffn_gate", ())
    said.check({
        "token_embd.weight": (vocab_size, width), f"{last}.attn_q.weight": (heads * head, width),
        f"{last}.attn_k.weight": (kv_heads * head, width),
        f"{last}.{gate}.weight": (*each, hidden, width),
    })  # fmt: skip
    scaling, kind = None, said("rope.scaling.type", "none", str)
    if kind in ("linear", "yarn"):
        scaling = {"rope_type": kind, "factor": said.number("rope.scaling.factor")}
    elif kind != "none":
        said.refuse(f"expected rope.scaling.type linear or yarn, got {kind!r}")
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = max(1, said("rope.scaling.original_context_length"))
    config = LlamaConfig(
        vocab_size=vocab_size,
        context_length=said("context_length"),
        num_layers=layers,
        num_heads=heads,
        embed_dim=width,
        num_kv_heads=kv_heads,
        head_dim=head,
        hidden_dim=hidden,
        rope_theta=said.number("rope.freq_base", 10000.0),
        rope_scaling=scaling,
        rms_norm_eps=said.number("attention.layer_norm_rms_epsilon", zero=True),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        out_bias="blk.0.attn_output.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        sliding_window=said("attention.sliding_window", 0) or None,
        num_experts=experts,
        experts_per_token=said("expert_used_count", 2),
        tie_embeddings="output.weight" not in tensors,
    )
    return _with_llama3_scaling(config, said) if "rope_freqs.weight" in tensors else config


def _with_llama3_scaling(config, said):
    """Find the rope_scaling of Llama 3.1. Its file contains a divisor for each frequency instead of the options."""
    plain = frequencies(config).numpy()
    if said.file.tensors["rope_freqs.weight"].shape != plain.shape:
        said.refuse("rope_freqs do not match Llama 3")
    factors = said.file.read("rope_freqs.weight")
    if not (np.isfinite(factors).all() and factors.min() > 0):
        said.refuse("expected positive numbers in rope_freqs")
    scaling = {"rope_type": "llama3", "factor": float(factors.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    scaled = replace(config, rope_scaling=scaling)
    if not np.allclose(plain / frequencies(scaled).numpy(), factors, rtol=1e-3):
        said.refuse("rope_freqs do not match Llama 3")
    return scaled


def _paired(weight, heads):
    """Reorder rows of queries or keys: llama.cpp rotates neighboring pairs, and Llama here rotates halves of a head."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _names(name, shape, said, most):
    """Return the names of the weights of the model for a tensor of the file, several for a tensor with all experts."""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+?)(_exps)?\.(weight|bias)", name)
    if found is None:
        stem, _, last = name.rpartition(".")
        outside = _OUTSIDE["gpt2" if said.kind == "gpt2" else "llama"]
        if stem not in outside:
            said.refuse(f"the model has no weight for the tensor {name}")
        return [f"{outside[stem]}.{last}"]
    layer, stem, experts, last = found.groups()
    if said.kind == "gpt2":
        inside, block = _GPT2, f"transformer.h.{layer}"
    else:
        inside, block = _LLAMA, f"model.layers.{layer}"
    if stem not in (_EXPERTS if experts else inside):
        said.refuse(f"the model has no weight for the tensor {name}")
    if experts:
        if shape[0] > most:
            said.refuse(f"expected at most {MOST_WEIGHTS:,} weights, got more: {name} has {shape[0]:,} experts")
        return [f"{block}.mlp.experts.{i}.{_EXPERTS[stem]}.{last}" for i in range(shape[0])]
    return [f"{block}.{inside[stem]}.{last}"]


def _renamed(name, weight, said, config):
    """Return the weights of the model for a tensor of the file: names and arrays."""
    names = _names(name, weight.shape, said, MOST_WEIGHTS)
    if "_exps." in name:
        return dict(zip(names, weight, strict=True))
    stem = name.split(".")[-2]
    if said.kind == "llama" and stem in ("attn_q", "attn_k"):
        weight = _paired(weight, config.num_heads if stem == "attn_q" else config.kv_heads)
    return {names[0]: weight}


# -- tokenizers -------------------------------------------------------------------------------------

_CONTROL = 3  # value of tokenizer.ggml.token_type
_NO_TOKEN = (-1, (1 << 32) - 1)  # ids for "no such token"
LONGEST_TOKEN = 512  # characters of a SentencePiece token: the search for its parts takes quadratic time
MOST_MERGES = 2_000_000  # Gemma 3 has 515,000
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _WORDS.replace("DIGITS", r"\p{N}{1,3}"), "qwen2": _WORDS.replace("DIGITS", r"\p{N}")}
_SPLITS["llama3"] = _SPLITS["llama-v3"] = _SPLITS["llama-bpe"]


def read_tokenizer(file: GGUFFile) -> FastTokenizer | None:
    """Return the tokenizer in a GGUF file's metadata, or None if its kind is unknown.

    Raises:
        ImportError: if the package tokenizers is not installed.
        ValueError: if the metadata is damaged.
    """
    said = {key.removeprefix("tokenizer.ggml."): v for key, v in file.metadata.items() if key.startswith("tokenizer.")}
    tokens, kind = said.get("tokens"), said.get("model")
    if tokens is None or kind not in ("gpt2", "llama"):
        return None
    _check_tokenizer(said, file.path)
    types = said.get("token_type") or []
    special = [i for i, t in enumerate(types[: len(tokens)]) if t == _CONTROL]
    described = _byte_level(said, tokens) if kind == "gpt2" else _sentence_piece(said, tokens, file.path)
    if described is None:
        return None
    begin = said.get("bos_token_id")
    if said.get("add_bos_token", kind == "llama") and begin not in (None, *_NO_TOKEN):
        one = {"SpecialToken": {"id": tokens[begin], "type_id": 0}}
        described["post_processor"] = {
            "type": "TemplateProcessing", "single": [one, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [one, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {tokens[begin]: {"id": tokens[begin], "ids": [begin], "tokens": [tokens[begin]]}},
        }  # fmt: skip
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": tokens[i], **plain} for i in special]
    text = json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **described})
    try:
        return FastTokenizer(text)
    except ValueError as error:
        raise ValueError(f"from_pretrained: {file.path}: {error}") from None


def _check_tokenizer(said, path):
    """Check the types of the metadata of a tokenizer.

    Raises:
        ValueError: naming the file and the key.
    """

    def check(key, valid, rule):
        if key in said and not valid(said[key]):
            raise ValueError(
                f"from_pretrained: {path}: expected tokenizer.ggml.{key} to be {rule}, got {said[key]!r:.60}."
            )

    def list_of(*types):
        return lambda value: isinstance(value, list) and all(type(item) in types for item in value)

    check("tokens", list_of(str), "a list of strings")
    count = len(said["tokens"])
    check("token_type", list_of(int), "a list of integers")
    check("scores", list_of(int, float), "a list of numbers")
    check("scores", lambda scores: not any(map(math.isnan, scores)), "a list of numbers without NaN")
    check("merges", list_of(str), "a list of strings")
    check("pre", lambda pre: isinstance(pre, str), "a string")
    for key in ("add_bos_token", "add_space_prefix"):
        check(key, lambda value: isinstance(value, bool), "a boolean")
    for key in ("bos_token_id", "unknown_token_id"):
        check(key, lambda i: type(i) is int and (0 <= i < count or i in _NO_TOKEN), f"an id below {count}")


def _byte_level(said, tokens):
    """Return a byte-level tokenizer, with the word boundaries of GPT-2, Llama 3 or Qwen 2."""
    merges, cut = said.get("merges"), said.get("pre", "default")
    if merges is None or cut not in ("default", "gpt-2", *_SPLITS):
        return None
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": cut not in _SPLITS}
    before = bytes_
    if cut in _SPLITS:
        split = {"type": "Split", "pattern": {"Regex": _SPLITS[cut]}, "behavior": "Isolated", "invert": False}
        before = {"type": "Sequence", "pretokenizers": [split, bytes_]}
    return {
        "normalizer": None, "pre_tokenizer": before, "post_processor": None, "decoder": bytes_,
        "model": _bpe({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=cut in ("llama-bpe", "llama3", "llama-v3")),
    }  # fmt: skip


def _sentence_piece(said, tokens, path):
    """Return a SentencePiece tokenizer: two pieces merge if their concatenation is a piece, in order of scores."""
    scores = said.get("scores")
    if scores is None or len(scores) != len(tokens):
        return None
    numbers, found = {t: i for i, t in enumerate(tokens)}, []
    for token, score in zip(tokens, scores, strict=True):
        if len(token) > LONGEST_TOKEN:
            raise ValueError(
                f"from_pretrained: {path}: expected at most {LONGEST_TOKEN} characters in each of tokenizer.ggml.tokens, got "
                f"{len(token):,} in token {numbers[token]}."
            )
        for i in range(1, len(token)):
            if (a := numbers.get(token[:i])) is not None and (b := numbers.get(token[i:])) is not None:
                found.append((-score, a, b))
        if len(found) > MOST_MERGES:
            raise ValueError(
                f"from_pretrained: {path}: expected at most {MOST_MERGES:,} pairs of tokens that are a token, got more."
            )
    merges = [[tokens[a], tokens[b]] for _, a, b in sorted(found)]
    space, unknown = "▁", said.get("unknown_token_id", 0)
    first = [{"type": "Prepend", "prepend": space}] if said.get("add_space_prefix", True) else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": space}
    back = {"type": "Replace", "pattern": {"String": space}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if first else []
    unknown = tokens[unknown] if unknown not in _NO_TOKEN and tokens else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*first, replace]}, "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": _bpe(numbers, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }  # fmt: skip


def _bpe(vocab, merges, **options):
    usual = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}  # fmt: skip
    return {"type": "BPE", **usual, **options, "vocab": vocab, "merges": merges}
