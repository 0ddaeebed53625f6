"""Models and tokenizers in GGUF files, as llama.cpp's converter writes them: Llama, Mistral, Mixtral, Qwen 2 and 3, GPT-2."""

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ops.creation import from_numpy
from .gguf import GGUFFile
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .rotary import frequencies
from .tokenizer import FastTokenizer

# of a block, in GGUF's words and ours
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
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2")  # Mistral and Mixtral call themselves llama


class _Said:
    """What the metadata says of the architecture, by short keys."""

    def __init__(self, file: GGUFFile):
        self.file, self.kind = file, file.metadata.get("general.architecture")
        if self.kind not in ARCHITECTURES:
            self.refuse(f"it holds a {self.kind!r}; known are {', '.join(ARCHITECTURES)}")

    def __call__(self, key: str, default: Any = None, kind: type = int) -> Any:
        value = self.file.metadata.get(f"{self.kind}.{key}", default)
        if value is None:
            self.refuse(f"it does not say {self.kind}.{key}")
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 31):
            self.refuse(f"its {self.kind}.{key} is {value!r}")
        return value

    def check(self, shapes: dict[str, tuple]) -> None:
        """Refuse metadata that speak of other shapes than the tensors have, before a model is made of them."""
        for name, shape in shapes.items():
            entry = self.file.tensors.get(name)
            if entry is None or entry.shape != shape:
                had = "not there" if entry is None else f"of shape {entry.shape}"
                self.refuse(f"by its metadata there is a {name} of shape {shape}, which is {had}")

    def refuse(self, why: str):
        raise ValueError(f"from_pretrained: {self.file.path}: {why}.")


def read_model(path: str | Path, **changes: Any) -> Any:
    """The Llama or GPT2 in a GGUF file, its weights as float32, with its tokenizer where the package for it is there.

    Args:
        path: the file.
        **changes: fields of the config to change, such as `fused`.

    Raises:
        FileNotFoundError: there is none. ValueError: it is damaged, or of an architecture, or a kind of tensor, that is not known.
        RuntimeError: weights are missing, or of other shapes than the metadata says.
    """
    file = GGUFFile(path)
    said = _Said(file)
    model: Any
    if said.kind == "gpt2":
        model = GPT2(_gpt2_config(said), **changes)
    else:
        model = Llama(_llama_config(said), **changes)
    weights = {}
    for name in file.tensors:
        if name != "rope_freqs.weight":
            weights.update(_renamed(name, file.read(name), said, model.config))
    if "lm_head.weight" not in weights:  # the embedding is the head
        outside = _OUTSIDE["gpt2" if said.kind == "gpt2" else "llama"]
        weights["lm_head.weight"] = weights.get(f"{outside['token_embd']}.weight")
    model.load_state_dict({name: from_numpy(w) for name, w in weights.items() if w is not None})
    with contextlib.suppress(ImportError):  # without the package there are still tokens
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
        layer_norm_eps=said("attention.layer_norm_epsilon", 1e-5, float),
    )


def _vocab_size(said):
    entry = said.file.tensors.get("token_embd.weight")
    if entry is None or len(entry.shape) != 2:
        said.refuse("it has no token_embd.weight, the table of tokens")
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
        scaling = {"rope_type": kind, "factor": said("rope.scaling.factor", kind=float)}
    elif kind != "none":
        said.refuse(f"its rope.scaling.type is {kind!r}; linear and yarn are known")
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = said("rope.scaling.original_context_length")
    config = LlamaConfig(
        vocab_size=vocab_size,
        context_length=said("context_length"),
        num_layers=layers,
        num_heads=heads,
        embed_dim=width,
        num_kv_heads=kv_heads,
        head_dim=head,
        hidden_dim=hidden,
        rope_theta=said("rope.freq_base", 10000.0, float),
        rope_scaling=scaling,
        rms_norm_eps=said("attention.layer_norm_rms_epsilon", kind=float),
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
    """Llama 3.1's file has no words for its scaling, but what each frequency is divided by: find the words that say the same."""
    factors = said.file.read("rope_freqs.weight")
    plain = frequencies(config).numpy()
    scaling = {"rope_type": "llama3", "factor": float(factors.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    scaled = replace(config, rope_scaling=scaling)
    if factors.shape != plain.shape or not np.allclose(plain / frequencies(scaled).numpy(), factors, rtol=1e-3):
        said.refuse("its rope_freqs are not Llama 3's")
    return scaled


def _paired(weight, heads):
    """Rows of queries or keys, which llama.cpp turns in neighbouring pairs, in the order in which halves are turned."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _renamed(name, weight, said, config):
    """Our names, and what they hold, for a tensor of the file: several for one that has all experts."""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+?)(_exps)?\.(weight|bias)", name)
    if found is None:
        stem, _, last = name.rpartition(".")
        outside = _OUTSIDE["gpt2" if said.kind == "gpt2" else "llama"]
        if stem not in outside:
            said.refuse(f"it has a tensor {name}, which the model has not")
        return {f"{outside[stem]}.{last}": weight}
    layer, stem, experts, last = found.groups()
    if said.kind == "gpt2":
        inside, block = _GPT2, f"transformer.h.{layer}"
    else:
        inside, block = _LLAMA, f"model.layers.{layer}"
    if stem not in (_EXPERTS if experts else inside):
        said.refuse(f"it has a tensor {name}, which the model has not")
    if experts:
        return {f"{block}.mlp.experts.{i}.{_EXPERTS[stem]}.{last}": w for i, w in enumerate(weight)}
    if said.kind == "llama" and stem in ("attn_q", "attn_k"):
        weight = _paired(weight, config.num_heads if stem == "attn_q" else config.kv_heads)
    return {f"{block}.{inside[stem]}.{last}": weight}


# -- tokenizers -------------------------------------------------------------------------------------

_CONTROL = 3  # of tokenizer.ggml.token_type
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _WORDS.replace("DIGITS", r"\p{N}{1,3}"), "qwen2": _WORDS.replace("DIGITS", r"\p{N}")}
_SPLITS["llama3"] = _SPLITS["llama-v3"] = _SPLITS["llama-bpe"]


def read_tokenizer(file: GGUFFile) -> FastTokenizer | None:
    """The tokenizer that a GGUF file's metadata describes, or None if it is of a kind that is not known.

    Raises:
        ImportError: the package tokenizers is not installed. ValueError: it is damaged.
    """
    said = {key.removeprefix("tokenizer.ggml."): v for key, v in file.metadata.items() if key.startswith("tokenizer.")}
    tokens, kind = said.get("tokens"), said.get("model")
    if not isinstance(tokens, list) or kind not in ("gpt2", "llama"):
        return None
    types = said.get("token_type") or [1] * len(tokens)
    special = [i for i, t in enumerate(types[: len(tokens)]) if t == _CONTROL]
    described = _byte_level(said, tokens) if kind == "gpt2" else _sentence_piece(said, tokens)
    if described is None:
        return None
    begin = said.get("bos_token_id")
    if said.get("add_bos_token", kind == "llama") and isinstance(begin, int) and begin < len(tokens):
        one = {"SpecialToken": {"id": tokens[begin], "type_id": 0}}
        described["post_processor"] = {
            "type": "TemplateProcessing", "single": [one, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [one, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {tokens[begin]: {"id": tokens[begin], "ids": [begin], "tokens": [tokens[begin]]}},
        }  # fmt: skip
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": tokens[i], **plain} for i in special]
    return FastTokenizer(
        json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **described})
    )


def _byte_level(said, tokens):
    """GPT-2's bytes, in words as GPT-2, Llama 3 or Qwen 2 cuts them."""
    merges, cut = said.get("merges"), said.get("pre", "default")
    if not isinstance(merges, list) or cut not in ("default", "gpt-2", *_SPLITS):
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


def _sentence_piece(said, tokens):
    """SentencePiece's pairs: two pieces are joined if what they give is a piece, those with the best score first."""
    scores = said.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        return None
    numbers, found = {t: i for i, t in enumerate(tokens)}, []
    for token, score in zip(tokens, scores, strict=True):
        parts = [(token[:i], token[i:]) for i in range(1, len(token))]
        parts = [(a, b) for a, b in parts if a in numbers and b in numbers]
        found += [(-score, numbers[a], numbers[b], a, b) for a, b in parts]
    merges = [[a, b] for *_, a, b in sorted(found)]
    space, unknown = "▁", said.get("unknown_token_id", 0)
    first = [{"type": "Prepend", "prepend": space}] if said.get("add_space_prefix", True) else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": space}
    back = {"type": "Replace", "pattern": {"String": space}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if first else []
    unknown = tokens[unknown] if isinstance(unknown, int) and unknown < len(tokens) else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*first, replace]}, "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": _bpe(numbers, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }  # fmt: skip


def _bpe(vocab, merges, **options):
    usual = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}  # fmt: skip
    return {"type": "BPE", **usual, **options, "vocab": vocab, "merges": merges}
