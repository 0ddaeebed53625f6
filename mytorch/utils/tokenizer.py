"""Tokenizers: text to numbers and back, saved as JSON.

`CharTokenizer` knows the characters of one text; `GPT2Tokenizer` is GPT-2's byte pair encoding through
tiktoken. `load_tokenizer` reads either from a tokenizer.json.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..files.writing import atomic_write

RARE = "\ufffd"  # stands for every character that the vocabulary leaves out


class CharTokenizer:
    """One token a character.

    Args:
        chars: the characters, in the order of their tokens. If RARE is among them, it stands for all
            others; else an unknown character is an error.
    """

    kind = "char"

    def __init__(self, chars: Iterable[str]):
        self.chars = list(chars)
        self._index = {c: i for i, c in enumerate(self.chars)}
        if len(self._index) != len(self.chars):
            raise ValueError("CharTokenizer: a character occurs twice in the vocabulary.")
        self._rare = self._index.get(RARE)

    @classmethod
    def from_text(cls, text: str, min_count: int = 1) -> "CharTokenizer":
        """The characters of a text, sorted; those that occur less than min_count times become RARE."""
        counts = Counter(text)
        kept = sorted(c for c, n in counts.items() if n >= min_count and c != RARE)
        if len(kept) < len(counts):
            kept.append(RARE)
        return cls(kept)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return len(self.chars)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, a list of ints.

        Raises:
            ValueError: a character that the vocabulary does not have, and no RARE to stand for it.
        """
        if self._rare is None:
            unknown = sorted(set(text) - set(self._index))
            if unknown:
                raise ValueError(
                    f"the tokenizer's {self.vocab_size} characters don't include {''.join(unknown[:10])!r}."
                )
        return [self._index.get(c, self._rare) for c in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return "".join(self.chars[int(t)] for t in tokens)

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {"kind": self.kind, "vocab_size": self.vocab_size, "chars": self.chars}


class GPT2Tokenizer:
    """GPT-2's byte pair encoding, 50257 tokens, by tiktoken.

    Raises:
        ImportError: tiktoken is not installed.
    """

    kind = "gpt2"
    vocab_size = 50257
    end_of_text = 50256

    def __init__(self, encoding: Any = None):
        if encoding is None:
            try:
                import tiktoken
            except ImportError:
                raise ImportError("the gpt2 tokenizer needs tiktoken: pip install tiktoken.") from None
            encoding = tiktoken.get_encoding("gpt2")
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; special tokens are read as plain text."""
        return self._encoding.encode_ordinary(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become replacement characters."""
        return self._encoding.decode([int(t) for t in tokens])

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {"kind": self.kind, "vocab_size": self.vocab_size}


def save_tokenizer(tokenizer: "CharTokenizer | GPT2Tokenizer", path: str | os.PathLike) -> None:
    """Write tokenizer.json, under a temporary name first."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    atomic_write(path, json.dumps(tokenizer.to_dict(), ensure_ascii=True).encode())


def load_tokenizer(path: str | os.PathLike) -> "CharTokenizer | GPT2Tokenizer":
    """The tokenizer that a tokenizer.json describes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not describe a tokenizer.
    """
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}.") from None
    found = data.get("kind") if isinstance(data, dict) else None
    if found == "char" and isinstance(data.get("chars"), list):
        return CharTokenizer(data["chars"])
    if found == "gpt2":
        return GPT2Tokenizer()
    raise ValueError(f"{path} describes no tokenizer that is known: kind {found!r}; expected 'char' or 'gpt2'.")
