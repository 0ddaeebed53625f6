"""Tokenizers that the package tokenizers makes and reads."""

import json
import sys

import pytest

import mytorch
from mytorch.models import Llama, from_pretrained
from mytorch.models.tokenizer import FastTokenizer, load_tokenizer, save_tokenizer

TEXT = "It was the best of times, it was the worst of times; naïve 🐳 whales.\n\n  Twice. " * 20


@pytest.fixture(scope="module")
def trained():
    pytest.importorskip("tokenizers")
    return FastTokenizer.train([TEXT], 300, special_tokens=["<|begin|>", "<|end|>"])


def test_a_byte_pair_encoding_is_learned_and_decodes_any_text(trained):
    assert trained.vocab_size == 300
    assert trained.special == {"<|begin|>": 0, "<|end|>": 1}
    for text in (TEXT, "", " ", "unseen: 鲸 \x00 \t", "no<|end|>where"):
        tokens = trained.encode(text, special=False)
        assert trained.decode(tokens) == text
        assert all(1 < t < 300 for t in tokens)
    assert len(trained.encode(TEXT)) < len(TEXT) / 2


def test_special_tokens_are_read_only_where_they_are_meant(trained):
    assert trained.encode("a<|end|>")[-1] == 1
    assert 1 not in trained.encode("a<|end|>", special=False)
    assert trained.decode([0, *trained.encode("a"), 1]) == "a"


@pytest.mark.cpu_only  # transformers reads the version of each package
def test_a_file_survives_and_is_hugging_faces(trained, tmp_path):
    save_tokenizer(trained, tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert again.encode(TEXT) == trained.encode(TEXT)
    assert again.special == trained.special
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert theirs(TEXT)["input_ids"] == trained.encode(TEXT)


def test_invalid_files_raise_errors(trained, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "Unheard"}}))
    with pytest.raises(ValueError, match=r"tokenizer.json: the package tokenizers cannot read it"):
        load_tokenizer(path)
    with pytest.raises(ValueError, match="256 bytes and 1 special"):
        FastTokenizer.train(["a"], 256, ["<|end|>"])
    save_tokenizer(trained, path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install tokenizers"):
        load_tokenizer(path)


def test_a_model_saves_its_tokenizer_and_continues_text(trained, tmp_path):
    model = Llama(vocab_size=300, context_length=32, num_layers=1, num_heads=2, embed_dim=8)
    model.tokenizer = trained
    model.save_pretrained(tmp_path / "model")
    again = from_pretrained(tmp_path / "model")
    made = again.generate("It was", 9, temperature=0)
    tokens = model.generate(mytorch.tensor([trained.encode("It was")]), 9, temperature=0)[0].tolist()
    assert made == "It was" + trained.decode(tokens[-9:])
    assert "".join(again.stream("It was", 9, temperature=0)) == made[len("It was") :]
