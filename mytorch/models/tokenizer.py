"""Tokenizers: text to numbers and back, saved as JSON.

`CharTokenizer` knows the characters of one text; `GPT2Tokenizer` is GPT-2's byte pair encoding through
tiktoken; `FastTokenizer` is trained on a text of one's own, or a Hugging Face model's, through their package tokenizers.
`load_tokenizer` reads any of them from a tokenizer.json.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..base.errors import needed
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
        if self._rare is not None:
            return [self._index.get(c, self._rare) for c in text]
        unknown = sorted(set(text) - set(self._index))
        if unknown:
            raise ValueError(f"the tokenizer's {self.vocab_size} characters don't include {''.join(unknown[:10])!r}.")
        return [self._index[c] for c in text]

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
            package = needed("tiktoken", "the gpt2 tokenizer needs tiktoken: pip install tiktoken.")
            encoding = package.get_encoding("gpt2")
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


class FastTokenizer:
    """Whatever a tokenizer.json of Hugging Face's describes, by their package tokenizers.

    Args:
        json_text: what the file says.

    Raises:
        ImportError: tokenizers is not installed. ValueError: the package can't read it.

    Example:
        >>> tokenizer = FastTokenizer.train(["the cat sat on the mat"] * 9, 270, special_tokens=["<|end|>"])
        >>> tokenizer.decode(tokenizer.encode("the cat")), tokenizer.special["<|end|>"]
        ('the cat', 0)
    """

    kind = "tokenizers"

    def __init__(self, json_text: str):
        try:
            self._tokenizer = _tokenizers().Tokenizer.from_str(json_text)
        except ImportError:
            raise
        except Exception as error:  # the package raises plain Exceptions
            raise ValueError(f"the package tokenizers can't read it: {error}.") from None
        added = json.loads(json_text).get("added_tokens") or []
        self.special = {token["content"]: token["id"] for token in added if token.get("special")}

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, special_tokens: Iterable[str] = (), min_count: int = 2
    ) -> "FastTokenizer":
        """A byte-level byte pair encoding, as GPT-2's, of one's own texts: any text can be encoded.

        Args:
            texts: to learn from.
            vocab_size: of how many tokens at most, the 256 bytes and the special ones among them.
            special_tokens: that never come from a text, see `special`; their numbers are the first.
            min_count: pairs that occur less often are not joined.

        Source: Sennrich et al., 2016; Radford et al., GPT-2, 2019 (bytes).
        """
        package, special = _tokenizers(), list(special_tokens)
        if vocab_size < 256 + len(special):
            raise ValueError(
                f"FastTokenizer.train: vocab_size is {vocab_size}; 256 bytes and {len(special)} special tokens need more."
            )
        made = package.Tokenizer(package.models.BPE())
        made.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = package.decoders.ByteLevel()
        made.train_from_iterator(texts, package.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=special, min_frequency=min_count, show_progress=False,
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        ))  # fmt: skip
        return cls(made.to_str())

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones among them."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, with those that its file puts around it, such as a first one.

        Args:
            text: the text.
            special: whether names of special tokens in it, such as "<|end|>", mean these; else they are text as any other, which
                is what a stranger's text should be, and nothing is put around it.
        """
        self._tokenizer.encode_special_tokens = not special
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones; bytes that are no UTF-8 become replacement characters."""
        return self._tokenizer.decode([int(t) for t in tokens])

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes: Hugging Face's form."""
        return json.loads(self._tokenizer.to_str())


def _tokenizers() -> Any:
    why = "this tokenizer needs Hugging Face's package tokenizers: pip install tokenizers."
    return needed("tokenizers", why)


def save_tokenizer(tokenizer: Any, path: str | os.PathLike) -> None:
    """Write tokenizer.json, under a temporary name first."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    atomic_write(path, json.dumps(tokenizer.to_dict(), ensure_ascii=True).encode())


def load_tokenizer(path: str | os.PathLike) -> "CharTokenizer | GPT2Tokenizer | FastTokenizer":
    """The tokenizer that a tokenizer.json describes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not describe a tokenizer.
        ImportError: the package that it needs is not installed.
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
    if isinstance(data, dict) and isinstance(data.get("model"), dict):
        try:
            return FastTokenizer(json.dumps(data))
        except (ImportError, ValueError) as error:
            raise type(error)(f"{path}: {error}") from None
    raise ValueError(
        f"{path} describes no tokenizer that is known: kind {found!r}; expected 'char', 'gpt2', or Hugging Face's form."
    )
