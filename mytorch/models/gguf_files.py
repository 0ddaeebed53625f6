"""Models and tokenizers in llama.cpp's GGUF files: Llama, Mistral, Mixtral, Qwen 2 and 3, and GPT-2."""

import contextlib
import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.errors import warn
from ..ops.creation import from_numpy
from . import gpt2_files, llama_files
from .gguf_format import GGUFFile, Planned, write
from .gpt2 import GPT2, GPT2Config
from .hugging_face import MOST_WEIGHTS, check_shapes
from .llama import Llama, LlamaConfig
from .rotary import frequencies, trained_length
from .tokenizer import CharTokenizer, FastTokenizer, GPT2Tokenizer, byte_names, ends, from_byte_name

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
_YARN = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_ext_factor": 1.0,
}
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
        for key, usual in _YARN.items():
            if said.number(f"rope.scaling.{key}", usual) != usual:
                said.refuse(f"expected rope.scaling.{key} of {usual}, got another value")
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


def read_tokenizer(file: GGUFFile) -> FastTokenizer | CharTokenizer | None:
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
    if kind == "gpt2" and (chars := _characters(tokens, types, said.get("merges"))) is not None:
        return CharTokenizer(chars)
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


def _characters(tokens, types, merges):
    """Return the characters of a CharTokenizer that `save_gguf` has written, or None for other tokens."""
    count = types.index(_UNUSED) if _UNUSED in types else len(tokens)
    chars = [from_byte_name(token) for token in tokens[:count]]
    if count == 0 or any(char is None or len(char) != 1 for char in chars) or len(set(chars)) != count:
        return None
    return chars if merges == _merges_of_characters(tokens[:count]) else None


def _merges_of_characters(names):
    """Return the merges that join the bytes of each character, and never the bytes of two characters."""
    return list(dict.fromkeys(f"{name[:i]} {name[i]}" for name in names for i in range(1, len(name))))


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


# -- writing ------------------------------------------------------------------------------------------

_CODES = {"F32": 0, "F16": 1, "Q8_0": 7}  # values of general.file_type
_PLAIN = ("ffn_gate_inp.weight", "position_embd.weight", "_norm.weight")  # in float32 in every file
_UNUSED, _ADDED = 5, 4  # values of tokenizer.ggml.token_type


def _refuse(why):
    raise ValueError(f"save_gguf: {why}.")


def save_gguf(model: Any, path: str | Path, kind: str = "F16") -> None:
    """Writes a model and its tokenizer to a GGUF file, which llama.cpp and programs built on it load.

    The file has the names, shapes and metadata of llama.cpp's own converter. llama.cpp computes in its own precision, so logits differ
    slightly: it approximates GELU with tanh, and has no sliding windows for these architectures, so the context in the file is no longer
    than a window. A file of characters has tokens that llama.cpp joins from the bytes of each character. llama.cpp leaves out characters
    that the model doesn't know.

    Args:
        model: a GPT2, or a Llama with the options of Llama, Mistral, Mixtral, Qwen 2 or Qwen 3, with the weights of training. Its tokenizer
            must be a byte-level encoding (`--tokenizer bpe` or `gpt2`) or characters. Without a tokenizer, the file accepts tokens only.
        path: path of the file, which usually ends in ".gguf".
        kind: type of the matrices: "F32", "F16", or "Q8_0", blocks of 8-bit numbers with a scale, a quarter of float32. Vectors and
            matrices that can't be divided into blocks of 32 numbers per row have more bits.

    Raises:
        ValueError: if llama.cpp has no equal model or tokenizer; the message says what is different.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/model.gguf"
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=32, vocab_size=16)
        >>> mytorch.models.save_gguf(model, path, kind="Q8_0")
        >>> mytorch.models.from_pretrained(path).config.embed_dim
        32
    """
    if kind not in _CODES:
        _refuse(f"expected kind to be one of {', '.join(_CODES)}, got {kind!r}")
    if not isinstance(model, (GPT2, Llama)):
        _refuse(f"expected a GPT2 or Llama, got {type(model).__name__}")
    config = model.config
    is_gpt2 = isinstance(model, GPT2)
    arch = "gpt2" if is_gpt2 else _architecture(config)
    model.check_trained("save_gguf")
    weights = {name: w for name, w in model.state_dict().items() if name != "lm_head.weight" or not _tied(config)}
    tensors = _gpt2_tensors(weights, config) if is_gpt2 else _llama_tensors(weights, config, arch)
    metadata = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": Path(path).stem,
        "general.size_label": _size_label({name: shape for name, (shape, _) in tensors.items()}),
        "general.file_type": _CODES[kind],
        "general.quantization_version": 2,
        **{f"{arch}.{key}": value for key, value in (_gpt2_values if is_gpt2 else _llama_values)(config, arch).items()},
        **_tokenizer_values(model.tokenizer, config.vocab_size, arch),
    }
    write(path, metadata, {name: _planned(name, shape, get, kind) for name, (shape, get) in tensors.items()})


def _size_label(shapes):
    """Return the number of parameters as llama.cpp writes it, such as "124M", or "8x7.2B" for experts and the rest of the model."""
    of_experts = {name: shape for name, shape in shapes.items() if "_exps." in name}
    count = sum(math.prod(shape) for name, shape in shapes.items() if name not in of_experts)
    count += sum(math.prod(shape[1:]) for shape in of_experts.values())  # one expert of each kind
    unit, name = next((u, n) for u, n in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")) if count > u or n == "K")
    number = count / unit
    digits = max(2 - len(str(round(number)).lstrip("0")), 0)
    experts = f"{next(iter(of_experts.values()))[0]}x" if of_experts else ""
    return f"{experts}{number:.{digits}f}{name}"


def _tied(config):
    return getattr(config, "tie_embeddings", True)


def _planned(name, shape, get, kind):
    """Return a tensor with its type: vectors, norms, positions and routers in float32; rows without whole blocks in float16."""
    if len(shape) < 2 or name.endswith(_PLAIN):
        kind = "F32"
    elif kind == "Q8_0" and shape[-1] % 32:
        kind = "F16"
    return Planned(tuple(shape), kind, get)


def _array(weight):
    return weight.detach().float().cpu().numpy()


def _architecture(config):
    try:
        kind = llama_files.model_type(config)
    except ValueError as error:
        _refuse(str(error).partition(": ")[2].removesuffix("."))
    if kind not in ("llama", "mistral", "mixtral", "qwen2", "qwen3"):
        _refuse(
            f"expected Llama, Mistral, Mixtral, Qwen 2, Qwen 3 or GPT-2, got the options of {kind}, which llama.cpp doesn't have"
        )
    return kind if kind.startswith("qwen") else "llama"


def _gpt2_values(config, arch):
    return {
        "block_count": config.num_layers, "context_length": config.context_length, "embedding_length": config.embed_dim,
        "feed_forward_length": int(config.mlp_ratio * config.embed_dim), "attention.head_count": config.num_heads,
        "attention.layer_norm_epsilon": float(config.layer_norm_eps),
    }  # fmt: skip


def _llama_values(config, arch):
    context, window = config.context_length, config.sliding_window
    if window is not None and window < context:
        warn(
            f"save_gguf: llama.cpp has no sliding window for this architecture, so the context in the file is the window of {window} tokens, "
            f"not {context}."
        )
        context = window
    values = {
        "block_count": config.num_layers, "context_length": context, "embedding_length": config.embed_dim,
        "feed_forward_length": config.hidden, "attention.head_count": config.num_heads, "attention.head_count_kv": config.kv_heads,
        "rope.freq_base": float(config.rope_theta), "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "attention.key_length": config.head, "attention.value_length": config.head,
    }  # fmt: skip
    if arch == "llama":
        values.update({"vocab_size": config.vocab_size, "rope.dimension_count": config.head})
    if config.num_experts:
        values.update({"expert_count": config.num_experts, "expert_used_count": config.experts_per_token})
    scaling = config.rope_scaling or {}
    kind = scaling.get("rope_type")
    if kind in ("linear", "yarn"):
        if others := set(scaling) - {"rope_type", "factor", "original_max_position_embeddings"}:
            _refuse(f"expected rope_scaling with a factor and the trained length only, got {min(others)}")
        values.update({"rope.scaling.type": kind, "rope.scaling.factor": float(scaling["factor"])})
    elif kind not in (None, "llama3"):
        _refuse(f"expected rope_scaling of type linear, yarn or llama3, got {kind}, which llama.cpp doesn't have")
    if kind == "yarn":
        values["rope.scaling.original_context_length"] = trained_length(config)
    return values


def _gpt2_tensors(weights, config):
    """Return shape and reader of each tensor. Missing biases become zeros, because llama.cpp requires them."""
    to = {ours: theirs for theirs, ours in (_GPT2 | _OUTSIDE["gpt2"]).items()}
    tensors = {}
    for name, weight in weights.items():
        stem, _, last = name.rpartition(".")
        found = re.fullmatch(r"transformer\.h\.(\d+)\.(.+)", stem)
        theirs = f"blk.{found[1]}.{to[found[2]]}" if found else to[stem]
        tensors[f"{theirs}.{last}"] = weight.shape, partial(_array, weight)
        if not config.use_bias and not theirs.endswith("_embd"):
            tensors[f"{theirs}.bias"] = weight.shape[:1], partial(np.zeros, weight.shape[0], "float32")
    return tensors


def _llama_tensors(weights, config, arch):
    """Return shape and reader of each tensor: experts in one tensor, and queries and keys in llama.cpp's order."""
    to = {ours: theirs for theirs, ours in (_LLAMA | _OUTSIDE["llama"]).items()}
    tensors, experts = {}, {}
    for name, weight in weights.items():
        stem, _, last = name.rpartition(".")
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(?:\.experts\.(\d+)\.(.+))?", stem)
        if found and found[3]:
            theirs = f"blk.{found[1]}.{to[f'mlp.{found[4]}']}_exps.{last}"
            experts.setdefault(theirs, []).append(weight)
            continue
        theirs = f"blk.{found[1]}.{to[found[2]]}" if found else to[stem]
        heads = {"attn_q": config.num_heads, "attn_k": config.kv_heads}.get(theirs.rpartition(".")[2])
        get = partial(_array, weight) if arch != "llama" or heads is None else partial(_halved, weight, heads)
        tensors[f"{theirs}.{last}"] = weight.shape, get
    for theirs, each in experts.items():
        tensors[theirs] = (len(each), *each[0].shape), partial(_stacked, each)
    if (config.rope_scaling or {}).get("rope_type") == "llama3":
        factors = frequencies(replace(config, rope_scaling=None)).numpy() / frequencies(config).numpy()
        tensors["rope_freqs.weight"] = factors.shape, lambda: factors
    return tensors


def _halved(weight, heads):
    """Reorder rows of queries or keys: the opposite of `_paired`."""
    x = _array(weight)
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _stacked(weights):
    return np.stack([_array(weight) for weight in weights])


def _tokenizer_values(tokenizer, size, arch):
    """Return the metadata of a byte-level tokenizer, or of none.

    Raises:
        ValueError: if llama.cpp would cut texts into other tokens.
    """
    if tokenizer is None:
        return {"tokenizer.ggml.model": "none", f"{arch}.vocab_size": size}
    if isinstance(tokenizer, CharTokenizer):
        return _values_of_characters(tokenizer, size)
    if not isinstance(tokenizer, (FastTokenizer, GPT2Tokenizer)):
        _refuse(
            f"expected a byte-level tokenizer or characters, got {type(tokenizer).__name__}, which llama.cpp doesn't have. Prepare the text with "
            "--tokenizer bpe and train again, or set model.tokenizer = None for a file that accepts tokens only"
        )
    data = tokenizer.to_hugging_face() if isinstance(tokenizer, GPT2Tokenizer) else tokenizer.to_dict()
    cut = _cut(data)
    words, added = data["model"]["vocab"], {token["id"]: token for token in data.get("added_tokens") or []}
    numbered = {i: token for token, i in words.items()} | {i: token["content"] for i, token in added.items()}
    if max(numbered) >= size:
        _refuse(f"expected a tokenizer with at most the {size} tokens of the model, got {max(numbered) + 1}")
    tokens = [numbered.get(i, f"[PAD{i}]") for i in range(size)]
    types = [1 if i in numbered else _UNUSED for i in range(size)]
    for i, token in added.items():
        special = token.get("special") or re.fullmatch(r"<\|.*\|>", token["content"])
        types[i] = _CONTROL if special else _ADDED
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    values = {"model": "gpt2", "pre": cut, "tokens": tokens, "token_type": types, "merges": merges}
    marks = ends(tokenizer)
    values.update({f"{key}_token_id": number for key, (_, number) in marks.items()})
    after = data.get("post_processor")
    parts = [] if after is None else after.get("processors", [after])
    for part in parts:
        if part["type"] == "TemplateProcessing":
            usual = [["SpecialToken", "Sequence"], ["Sequence"]]
            if (found := [next(iter(item)) for item in part["single"]]) not in usual:
                _refuse(f"expected a tokenizer that adds a token at most at the start of a text, got {' '.join(found)}")
            values["add_bos_token"] = len(found) == 2
        elif part["type"] == "ByteLevel":
            values.setdefault("add_bos_token", False)
            values.setdefault("add_eos_token", False)
        else:
            _refuse(
                f"expected a post_processor of type ByteLevel or TemplateProcessing in the tokenizer, got {part['type']}"
            )
    if cut == "llama-bpe":
        values.setdefault("add_bos_token", False)  # otherwise llama.cpp adds it
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def _values_of_characters(tokenizer, size):
    """Return the metadata of a byte-level tokenizer whose tokens are characters, because llama.cpp has none of characters."""
    names = [byte_names(char) for char in tokenizer.chars]
    if not 0 < len(names) <= size:
        _refuse(f"expected a tokenizer with 1 to {size} tokens, the tokens of the model, got {len(names)}")
    # llama.cpp ends a text at one token, number 11 by default. Here it is a number without a character, or the last character, which
    # is the rarest one if characters are sorted: RARE, or the one with the highest code.
    end = len(names) if len(names) < size else size - 1
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": names + [f"[PAD{i}]" for i in range(len(names), size)],
        "tokenizer.ggml.token_type": [1] * len(names) + [_UNUSED] * (size - len(names)),
        "tokenizer.ggml.merges": _merges_of_characters(names),
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
    }


def _cut(data):
    """Return llama.cpp's name for how a tokenizer cuts a text into words."""
    model, before, normalizer = data["model"], data.get("pre_tokenizer") or {}, data.get("normalizer")
    parts = before.get("pretokenizers", [before])
    bytes_ = parts[-1]
    cut = "gpt-2" if bytes_.get("use_regex", True) else None
    if len(parts) == 2 and cut is None and parts[0].get("type") == "Split":
        pattern = (parts[0].get("pattern") or {}).get("Regex")
        cut = next((name for name, known in _SPLITS.items() if known == pattern), None)
    elif len(parts) != 1:
        cut = None
    plain = (
        model.get("type") == "BPE" and bytes_.get("type") == "ByteLevel" and not bytes_.get("add_prefix_space", True)
    )
    if not plain or cut is None or model.get("ignore_merges", False) != (cut == "llama-bpe"):
        _refuse("expected a byte-level tokenizer that cuts words like GPT-2, Llama 3 or Qwen 2, got another one")
    if normalizer is not None and not (cut == "qwen2" and normalizer.get("type") == "NFC"):
        _refuse(f"expected a tokenizer without a normalizer, got {normalizer.get('type')}")
    return cut
