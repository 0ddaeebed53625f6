"""Models taken out of the library: into transformers, into llama.cpp, and back."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, Llama, from_pretrained, lora, quantize_, run_files, save_gguf
from mytorch.models.gguf_files import _SPLITS, _characters, _size_label
from mytorch.models.gguf_format import GGUFFile
from mytorch.models.tokenizer import RARE, CharTokenizer, FastTokenizer, GPT2Tokenizer, load_tokenizer, save_tokenizer

TEXT = "The quick brown fox's den, 1999! jumps over\r\n\n the lazy\tdog… naïve 鲸 “yes” 🚀 "
END = "<|endoftext|>"
CONVERTED = json.loads((Path(__file__).with_name("gguf_of_llama_cpp.json")).read_text())


def randomize(model):
    with mytorch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * mytorch.randn(*p.shape))
    return model.eval()


# -- transformers -----------------------------------------------------------------------------------

READ = """
import sys, json, numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[1:]:
    torch.manual_seed(0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    text = open(f"{folder}/text", encoding="utf-8", newline="").read()
    tokens = tokenizer.encode(text)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].numpy()
    ends = [model.generation_config.eos_token_id, tokenizer.eos_token_id]
    json.dump({"tokens": tokens, "text": tokenizer.decode(tokens), "ends": ends}, open(f"{folder}/found.json", "w"))
    np.save(f"{folder}/logits.npy", logits)
"""


def tiny_gpt2_tokenizer():
    tiktoken = pytest.importorskip("tiktoken")
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    more = [b"he", b"ll", b"hell", b"hello", b" t", "ï".encode(), b"el", b"ello", b" the", b"laz"]
    ranks = {bytes([b]): b for b in range(256)} | {token: 256 + i for i, token in enumerate(more)}
    return GPT2Tokenizer(tiktoken.Encoding("tiny", pat_str=pattern, mergeable_ranks=ranks, special_tokens={END: 266}))


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_transformers_has_the_same_tokens_and_logits(tmp_path, monkeypatch):
    """For each architecture of train_gpt2.py, and for each tokenizer. transformers runs in its own process, once."""
    tokenizers = {"char": CharTokenizer.from_text(TEXT), "rare": CharTokenizer.from_text(TEXT * 2 + "Q", min_count=2)}
    if find_spec("tokenizers"):
        tokenizers["bpe"] = FastTokenizer.train([TEXT * 9], 300, special_tokens=[END])
        tokenizers["gpt2"] = tiny_gpt2_tokenizer() if find_spec("tiktoken") else tokenizers["bpe"]
    kinds = [name for name in run_files.ARCHITECTURES if name != "nanochat"]
    cases = [(kind, "rare") for kind in kinds] + [("gpt2", name) for name in tokenizers] + [("llama", "bpe")]
    expected = {}
    for kind, name in cases:
        if (tokenizer := tokenizers.get(name)) is None:
            continue
        mytorch.manual_seed(0)
        config = run_files.config_of(kind, "demo", 64, vocab_size=320, fused=False)
        model = randomize((GPT2 if kind == "gpt2" else Llama)(config))
        model.tokenizer = tokenizer
        folder = tmp_path / f"{kind}-{name}"
        model.save_pretrained(folder)
        text = (TEXT + ("ßQ" if name != "char" else ""))[:60]
        (folder / "text").write_text(text, encoding="utf-8", newline="")
        tokens = tokenizer.encode(text)[:64]
        again = from_pretrained(folder, fused=False)
        assert again.tokenizer.encode(text) == tokens
        logits = model(mytorch.tensor([tokens]))[0]
        assert mytorch.equal(again(mytorch.tensor([tokens]))[0], logits)
        expected[folder] = tokens, tokenizer.decode(tokens), logits.detach().numpy()
    subprocess.run([sys.executable, "-W", "ignore", "-c", READ, *map(str, expected)], check=True, timeout=500)
    for folder, (tokens, text, logits) in expected.items():
        found = json.loads((folder / "found.json").read_text())
        assert (found["tokens"], found["text"]) == (tokens, text), folder
        end = None if "char" in folder.name or "rare" in folder.name else 0 if "bpe" in folder.name else 266
        assert found["ends"] == [end, end], folder
        np.testing.assert_allclose(np.load(folder / "logits.npy"), logits, rtol=1e-3, atol=2e-5, err_msg=str(folder))


def test_characters_are_read_without_a_package_and_in_the_format_of_earlier_versions(tmp_path):
    path = tmp_path / "tokenizer.json"
    for tokenizer in (CharTokenizer.from_text(TEXT), CharTokenizer(["b", "\n", RARE, "a"]), CharTokenizer([])):
        save_tokenizer(tokenizer, path)
        found = load_tokenizer(path)
        assert (type(found), found.chars) == (CharTokenizer, tokenizer.chars)
        path.write_text(json.dumps({"kind": "char", "vocab_size": found.vocab_size, "chars": found.chars}))
        assert load_tokenizer(path).chars == tokenizer.chars
    data = tmp_path / "data"
    run = tmp_path / "run"
    data.mkdir(), run.mkdir()
    (run / "tokenizer.json").write_text(json.dumps({"kind": "char", "vocab_size": 2, "chars": ["a", "b"]}))
    save_tokenizer(CharTokenizer("ab"), data / "tokenizer.json")
    run_files.check_tokenizer(data, run)
    save_tokenizer(CharTokenizer("ba"), data / "tokenizer.json")
    with pytest.raises(ValueError, match="expected data with the tokenizer of"):
        run_files.check_tokenizer(data, run)


def test_the_package_tokenizers_cuts_texts_into_the_same_characters(rng):
    package = pytest.importorskip("tokenizers")
    for points in (128, 0x800, 0x1F700):
        codes = rng.integers(0, points, 500)
        text = "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)
        for tokenizer in (CharTokenizer.from_text(text), CharTokenizer.from_text(text, min_count=2)):
            theirs = package.Tokenizer.from_str(json.dumps(tokenizer.to_dict()))
            assert theirs.encode(text).ids == tokenizer.encode(text)
            assert theirs.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_tiktokens_ranks_become_merges(rng):
    package = pytest.importorskip("tokenizers")
    tokenizer = tiny_gpt2_tokenizer()
    theirs = package.Tokenizer.from_str(json.dumps(tokenizer.to_hugging_face()))
    for _ in range(50):
        words = rng.choice(
            ["hello", "hell", " the", "he'll", "lazy", "llel", "elhe", " ", "\n", "ï", "鲸", "1999", "the"], 12
        )
        text = "".join(words)
        assert theirs.encode(text).ids == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == text


# -- adapters ---------------------------------------------------------------------------------------


def test_an_adapter_loads_with_its_base_model(tmp_path):
    model = randomize(Llama(vocab_size=20, context_length=16, num_layers=1, num_heads=2, embed_dim=16))
    model.save_pretrained(tmp_path / "base")
    lora.inject(model, rank=2)
    randomize(model)
    lora.save_adapter(model, tmp_path / "adapter", str(tmp_path / "base"))
    tokens = mytorch.arange(9)[None]
    base = lora.load_adapter(from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    found = from_pretrained(tmp_path / "adapter")
    assert mytorch.allclose(found(tokens), base(tokens), atol=1e-5)
    assert not mytorch.allclose(found(tokens), from_pretrained(tmp_path / "base")(tokens), atol=1e-3)
    for base, words in ((None, "base_model_name_or_path"), (str(tmp_path / "adapter"), "to name a base model")):
        lora.save_adapter(model, tmp_path / "adapter", base)
        with pytest.raises(ValueError, match=words):
            from_pretrained(tmp_path / "adapter")


# -- GGUF -------------------------------------------------------------------------------------------

SHAPE = {"vocab_size": 320, "context_length": 64, "num_layers": 1, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
KINDS = {  # options, and how the tokenizer cuts words
    "gpt2": ({}, "gpt-2"),
    "gpt2 with biases": ({"use_bias": True, "activation": "gelu_tanh"}, "gpt-2"),
    "llama": ({}, "gpt-2"),
    "llama 3": ({"rope_scaling": LLAMA3, "rope_theta": 500000.0, "tie_embeddings": True}, "llama-bpe"),
    "llama with biases": ({"qkv_bias": True, "out_bias": True, "head_dim": 32}, "qwen2"),
    "linear positions": ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "gpt-2"),
    "yarn": ({"rope_scaling": YARN}, "gpt-2"),
    "mistral": ({"sliding_window": 64}, "gpt-2"),
    "mixtral": ({"num_experts": 3}, "gpt-2"),
    "qwen 2": ({"qkv_bias": True}, "qwen2"),
    "qwen 3": ({"qk_norm": True, "tie_embeddings": True, "head_dim": 32}, "qwen2"),
    "rows without whole blocks": ({"hidden_dim": 100}, "gpt-2"),
}  # fmt: skip
TYPES = ("F32", "F16", "Q8_0")


def model_of(kind):
    mytorch.manual_seed(0)
    values = {**SHAPE, **KINDS[kind][0]}
    if kind.startswith("gpt2"):
        del values["num_kv_heads"]
    return randomize((GPT2 if kind.startswith("gpt2") else Llama)(**values))


def tokenizer_of(cut):
    """A tokenizer that cuts words like GPT-2, Llama 3 or Qwen 2."""
    data = FastTokenizer.train([TEXT * 20], 300, special_tokens=[END]).to_dict()
    bytes_ = data["pre_tokenizer"]
    if cut != "gpt-2":
        bytes_["use_regex"] = False
        split = {"type": "Split", "pattern": {"Regex": _SPLITS[cut]}, "behavior": "Isolated", "invert": False}
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}
    if cut == "llama-bpe":
        one, a, b = (
            {"SpecialToken": {"id": END, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        )
        special = {END: {"id": END, "ids": [0], "tokens": [END]}}
        data["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [one, a],
            "pair": [one, a, b],
            "special_tokens": special,
        }
        data["model"]["ignore_merges"] = True
    return FastTokenizer(json.dumps(data))


def described(file):
    """Metadata without the tokenizer's lists, and shape and type of each tensor."""
    metadata = {
        k: round(v, 9) if isinstance(v, float) else v
        for k, v in file.metadata.items()
        if not isinstance(v, list) and k != "general.name"
    }
    return metadata, {name: [list(entry.shape), entry.kind] for name, entry in file.tensors.items()}


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gguf_file_is_that_of_llama_cpps_converter_and_loads_with_the_same_logits(tmp_path, kind, type_):
    """gguf_of_llama_cpp.json holds what convert_hf_to_gguf.py has written for the same models."""
    model = model_of(kind)
    save_gguf(model, tmp_path / "m.gguf", type_)
    metadata, tensors = described(GGUFFile(tmp_path / "m.gguf"))
    expected, shapes = CONVERTED[kind]["metadata"], CONVERTED[kind]["tensors"]
    of_tokenizer = {key for key in expected if key.startswith("tokenizer.")}
    vocabulary = {key for key in metadata if key.startswith("tokenizer.") or key.endswith(".vocab_size")}
    assert {k: v for k, v in metadata.items() if k not in vocabulary} == {
        k: v for k, v in {**expected, "general.file_type": {"F32": 0, "F16": 1, "Q8_0": 7}[type_]}.items()
        if k not in of_tokenizer and not k.endswith(".vocab_size")
    }  # fmt: skip
    assert tensors == {name: [shape, types[TYPES.index(type_)]] for name, (shape, types) in shapes.items()}
    tokens = mytorch.randint(0, 320, (2, 50))
    found = from_pretrained(tmp_path / "m.gguf")
    exact = model if getattr(model.config, "activation", "") != "gelu" else None
    if exact is None:  # llama.cpp's GELU is the approximation
        exact = GPT2(**{**model.config.to_dict(), "activation": "gelu_tanh"}).eval()
        exact.load_state_dict(model.state_dict())
    atol = {"F32": 1e-6, "F16": 4e-3, "Q8_0": 4e-2}[type_]
    np.testing.assert_allclose(found(tokens).detach().numpy(), exact(tokens).detach().numpy(), rtol=0, atol=atol)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "llama 3", "qwen 3"])
def test_the_tokenizer_in_a_gguf_file(tmp_path, kind):
    pytest.importorskip("tokenizers")
    model, cut = model_of(kind), KINDS[kind][1]
    model.tokenizer = tokenizer_of(cut)
    save_gguf(model, tmp_path / "m.gguf", "F16")
    file = GGUFFile(tmp_path / "m.gguf")
    assert described(file)[0] == {**CONVERTED[kind]["metadata"], "general.file_type": 1}
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 320
    for text in (TEXT, "x 12345\n\n  y", END, ""):
        assert from_pretrained(tmp_path / "m.gguf").tokenizer.encode(text) == model.tokenizer.encode(text)


def test_blocks_of_8_bits_are_those_of_ggml(rng, tmp_path):
    model = model_of("llama")
    weight = model.model.layers[0].mlp.up_proj.weight
    values = rng.standard_normal(weight.shape).astype("float32") * 10.0 ** rng.integers(-2, 4, weight.shape[0])[:, None]
    values[0, :32] = 0
    values[1, :32] = np.arange(32) - 16.5  # ties
    with mytorch.no_grad():
        weight.copy_(mytorch.from_numpy(values.astype("float32")))
    save_gguf(model, tmp_path / "m.gguf", "Q8_0")
    found = GGUFFile(tmp_path / "m.gguf").read("blk.0.ffn_up.weight").reshape(-1, 32)
    blocks = weight.detach().numpy().reshape(-1, 32)
    scale = abs(blocks).max(1, keepdims=True) / np.float32(127)
    assert (abs(found - blocks) <= 0.5 * scale + abs(blocks) * 2.0**-10).all()  # half a step, and the scale in float16
    assert found[0].tolist() == [0.0] * 32
    if find_spec("gguf"):
        from gguf import GGUFReader, quants

        tensor = next(t for t in GGUFReader(str(tmp_path / "m.gguf")).tensors if t.name == "blk.0.ffn_up.weight")
        expected = quants.quantize(weight.detach().numpy(), tensor.tensor_type)
        assert np.array_equal(tensor.data, expected)


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama-cpp-python")
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_has_the_same_tokens_and_logits(tmp_path, kind, type_):
    llama_cpp = pytest.importorskip("llama_cpp")
    model = model_of(kind)
    model.tokenizer = tokenizer_of(KINDS[kind][1])
    save_gguf(model, tmp_path / "m.gguf", type_)
    theirs = llama_cpp.Llama(str(tmp_path / "m.gguf"), n_ctx=64, logits_all=True, verbose=False, n_threads=1)
    text = "The lazy dog's den — naïve 1999 jumps  over"
    tokens = theirs.tokenize(text.encode(), add_bos=True)
    assert tokens == model.tokenizer.encode(text)
    theirs.eval(tokens)
    ours = from_pretrained(tmp_path / "m.gguf")(mytorch.tensor([tokens]))[0].detach().numpy()
    # llama.cpp keeps keys and values in float16, and quantizes the inputs of quantized matrices.
    atol = 3e-2 if type_ == "Q8_0" else 3e-3
    np.testing.assert_allclose(np.array(theirs.scores[: len(tokens)]), ours, rtol=0, atol=atol)
    theirs.close()


CHARACTERS = {  # of one to four bytes, that share bytes, with RARE, and with more numbers than characters
    "text": (CharTokenizer.from_text(TEXT + "é–—’“"), 0),
    "rare": (CharTokenizer.from_text(TEXT * 2 + "é", min_count=2), 0),
    "ascii": (CharTokenizer("b\na ?"), 0),
    "padded": (CharTokenizer.from_text(TEXT), 7),
}


def model_of_characters(name, kind):
    mytorch.manual_seed(0)
    tokenizer, more = CHARACTERS[name]
    size = {"vocab_size": tokenizer.vocab_size + more, "context_length": 128}
    model = randomize(kind(**size, num_layers=1, num_heads=2, embed_dim=32))
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("kind", [GPT2, Llama])
@pytest.mark.parametrize("name", CHARACTERS)
def test_characters_in_a_gguf_file_are_read_without_a_package(tmp_path, monkeypatch, name, kind):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    model = model_of_characters(name, kind)
    save_gguf(model, tmp_path / "m.gguf", "F32")
    found = from_pretrained(tmp_path / "m.gguf").tokenizer
    assert (type(found), found.chars) == (CharTokenizer, model.tokenizer.chars)
    metadata = GGUFFile(tmp_path / "m.gguf").metadata
    end = metadata["tokenizer.ggml.eos_token_id"]
    assert end == min(found.vocab_size, model.config.vocab_size - 1)
    assert len(metadata["tokenizer.ggml.tokens"]) == model.config.vocab_size


@pytest.mark.parametrize("change", ["merges", "tokens", "repeated"])
def test_other_tokens_are_not_characters(change):
    tokens, merges = ["a", "b", "âĢĶ"], ["â Ģ", "âĢ Ķ"]
    assert _characters(tokens, [1, 1, 1], merges) == ["a", "b", "—"]
    changed = {"merges": (tokens, ["a b"]), "tokens": (["a", "b", "ab"], []), "repeated": (["a", "a"], [])}[change]
    assert _characters(changed[0], [], changed[1]) is None


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama-cpp-python")
@pytest.mark.parametrize("kind", [GPT2, Llama])
@pytest.mark.parametrize("name", CHARACTERS)
def test_llama_cpp_cuts_texts_into_characters(tmp_path, rng, name, kind):
    llama_cpp = pytest.importorskip("llama_cpp")
    model = model_of_characters(name, kind)
    save_gguf(model, tmp_path / "m.gguf", "F32")
    theirs = llama_cpp.Llama(str(tmp_path / "m.gguf"), n_ctx=128, logits_all=True, verbose=False, n_threads=1)
    known = [c for c in model.tokenizer.chars if c != RARE]
    for text in ("".join(rng.choice(known, 100)), "".join(known)[:100]):
        tokens = theirs.tokenize(text.encode(), add_bos=True)
        assert tokens == model.tokenizer.encode(text)
        assert theirs.detokenize(tokens).decode() == text
        theirs.reset()
        theirs.eval(tokens)
        ours = from_pretrained(tmp_path / "m.gguf")(mytorch.tensor([tokens]))[0].detach().numpy()
        np.testing.assert_allclose(np.array(theirs.scores[: len(tokens)]), ours, rtol=0, atol=3e-3)
    unknown = "żQ‘龜𝛼"
    assert theirs.tokenize(unknown.encode(), add_bos=True) == [
        model.tokenizer.chars.index(c) for c in unknown if c in known
    ]
    theirs.close()


def test_the_number_of_parameters_is_written_as_llama_cpp_writes_it():
    for count, text in (
        (124439808, "124M"),
        (805760, "806K"),
        (950, "0.9K"),
        (1_000_000, "1000K"),
        (7_241_732_096, "7.2B"),
    ):
        assert _size_label({"a": (count,)}) == text
    assert _size_label({"a": (1_000_000,), "blk.0.ffn_up_exps.weight": (8, 1000, 1000)}) == "8x2.0M"
    if find_spec("gguf"):
        from gguf import size_label

        for count in np.unique(np.geomspace(1, 3e12, 200).astype("int64")).tolist():
            assert _size_label({"a": (count,)}) == size_label(count, count, 0, 0)


def test_what_llama_cpp_does_not_have_is_refused(tmp_path):
    path = tmp_path / "m.gguf"

    def refused(words, model=None, **options):
        model = model or Llama(**{**SHAPE, **options})
        with pytest.raises(ValueError, match=words):
            save_gguf(model, path)
        assert not path.exists()

    refused("got the options of nanochat", vocab_size=32, **run_files.NANOCHAT)
    refused("type linear, yarn or llama3, got dynamic", rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    refused("got beta_fast", rope_scaling={**YARN, "beta_fast": 16})
    refused("no Hugging Face architecture has", qk_norm=True, qkv_bias=True)
    refused("Merge LoRA matrices", lora.inject(Llama(**SHAPE), rank=2))
    refused("export before", quantize_(Llama(**SHAPE)))
    for model in (quantize_(Llama(**SHAPE)), quantize_(GPT2(num_layers=1, num_heads=2, embed_dim=32, vocab_size=16))):
        with pytest.raises(ValueError, match="save_pretrained: .* export before"):
            model.save_pretrained(tmp_path / "directory")
        assert not (tmp_path / "directory").exists()
    refused("expected a GPT2 or Llama, got Linear", mytorch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="expected kind to be one of F32, F16, Q8_0, got 'Q4_0'"):
        save_gguf(Llama(**SHAPE), path, "Q4_0")
    model = Llama(**{**SHAPE, "vocab_size": 2})
    model.tokenizer = CharTokenizer("abc")
    refused("with 1 to 2 tokens, the tokens of the model, got 3", model)
    model = Llama(**SHAPE)
    model.lm_head.weight.data[3, 5] = 1e6
    refused("range of float16, got others in output.weight", model)
    save_gguf(model, path, "F32")
    path.unlink()
    with pytest.warns(UserWarning, match="the context in the file is the window of 16 tokens, not 64"):
        save_gguf(Llama(**SHAPE, sliding_window=16), path)
    assert from_pretrained(path).config.context_length == 16
    path.unlink()
    if find_spec("tokenizers"):
        model = Llama(**{**SHAPE, "vocab_size": 280})
        model.tokenizer = tokenizer_of("gpt-2")
        refused("at most the 280 tokens of the model", model)
        data = tokenizer_of("gpt-2").to_dict()
        for change, words in (
            ({"normalizer": {"type": "Lowercase"}}, "without a normalizer, got Lowercase"),
            ({"pre_tokenizer": {"type": "Whitespace"}}, "cuts words like GPT-2"),
            ({"pre_tokenizer": {**data["pre_tokenizer"], "add_prefix_space": True}}, "cuts words like GPT-2"),
        ):
            model = Llama(**SHAPE)
            model.tokenizer = FastTokenizer(json.dumps({**data, **change}))
            refused(words, model)
