"""Tokenizers, which convert text to tokens and back, saved as JSON.

`CharTokenizer` has one token per character of a text. `GPT2Tokenizer` is GPT-2's byte pair encoding and requires the
package `tiktoken`. `FastTokenizer` is trained on a text or loaded from Hugging Face's file, and requires the package
`tokenizers`. `load_tokenizer` reads all of them from a tokenizer.json.
"""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..arrays.errors import needed
from ..files.limits import check_regular
from ..files.writing import atomic_write

RARE = "\ufffd"  # token of every character outside the vocabulary
_EACH_CHARACTER = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
# Each byte as a printable character, as GPT-2 writes them: itself if it is printable, otherwise a character from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [b for b in range(256) if b not in _PRINTABLE]
_BYTES = [chr(b) if b in _PRINTABLE else chr(256 + _OTHERS.index(b)) for b in range(256)]
_BYTE_OF = {name: byte for byte, name in enumerate(_BYTES)}
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|assistant_end|>")  # names of tokens that end a text


def byte_names(text: str | bytes) -> str:
    """Returns the bytes of a text as printable characters, as byte-level encodings write them.

    Args:
        text: the text, or its bytes.
    """
    return "".join(map(_BYTES.__getitem__, text.encode() if isinstance(text, str) else text))


def from_byte_name(name: str) -> str | None:
    """Returns the text that `byte_names` has written, or None if the bytes are not a text.

    Args:
        name: printable characters, one for each byte.
    """
    try:
        return bytes(map(_BYTE_OF.__getitem__, name)).decode()
    except (KeyError, UnicodeDecodeError):
        return None


class CharTokenizer:
    """A tokenizer with one token per character.

    Args:
        chars: characters in the order of their tokens. If RARE is included, it represents all other characters; otherwise an
            unknown character is an error.
    """

    kind = "char"

    def __init__(self, chars: Iterable[str]):
        self.chars = list(chars)
        if longer := [c for c in self.chars if len(c) != 1]:
            raise ValueError(f"CharTokenizer: expected single characters, got {longer[0][:20]!r}.")
        self._index = {c: i for i, c in enumerate(self.chars)}
        if len(self._index) != len(self.chars):
            raise ValueError("CharTokenizer: expected different characters, got a repeated one.")
        self._rare = self._index.get(RARE)

    @classmethod
    def from_text(cls, text: str, min_count: int = 1) -> "CharTokenizer":
        """Returns a tokenizer with the characters of a text, sorted.

        Args:
            min_count: characters that occur less often become RARE.
        """
        counts = Counter(text)
        kept = sorted(c for c, n in counts.items() if n >= min_count and c != RARE)
        if len(kept) < len(counts):
            kept.append(RARE)
        return cls(kept)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.chars)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text.

        Raises:
            ValueError: if a character is unknown and RARE is not included.
        """
        if self._rare is not None:
            return [self._index.get(c, self._rare) for c in text]
        unknown = sorted(set(text) - set(self._index))
        if unknown:
            raise ValueError(
                f"CharTokenizer.encode: expected the {self.vocab_size} characters of the vocabulary, got {''.join(unknown[:10])!r}."
            )
        return [self._index[c] for c in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens."""
        return "".join(self.chars[int(t)] for t in tokens)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of tokenizer.json, in Hugging Face's format: a split into single characters and a list of words."""
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": _EACH_CHARACTER, "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": self._index, "unk_token": RARE},
        }  # fmt: skip


class GPT2Tokenizer:
    """GPT-2's byte pair encoding with 50257 tokens, from the package tiktoken.

    Args:
        encoding: an encoding of tiktoken (default: "gpt2").

    Raises:
        ImportError: if tiktoken is not installed.
    """

    kind = "gpt2"
    vocab_size = 50257
    end_of_text = 50256

    def __init__(self, encoding: Any = None):
        if encoding is None:
            package = needed("tiktoken", "GPT2Tokenizer requires the package tiktoken. Run `pip install tiktoken`.")
            encoding = package.get_encoding("gpt2")
        self._encoding = encoding

    @property
    def special(self) -> dict[str, int]:
        """The numbers of the special tokens by name."""
        return dict(self._encoding._special_tokens)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text; special tokens are read as plain text."""
        return self._encoding.encode_ordinary(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens; invalid UTF-8 bytes become replacement characters."""
        return self._encoding.decode([int(t) for t in tokens])

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of tokenizer.json."""
        return {"kind": self.kind, "vocab_size": self.vocab_size}

    def to_hugging_face(self) -> dict[str, Any]:
        """Returns the JSON object of tokenizer.json in Hugging Face's format, which writes bytes as printable characters."""
        ranks = self._encoding._mergeable_ranks
        # tiktoken merges any two neighbors that form a token, in the order of the tokens. So every such pair is a merge.
        merges = []
        for token in sorted(ranks, key=ranks.__getitem__):
            pairs = [(a, b) for i in range(1, len(token)) if (a := token[:i]) in ranks and (b := token[i:]) in ranks]
            merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        names = {token: byte_names(token) for token in ranks}
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        return {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": bytes_,
            "added_tokens": [{"id": i, "content": t, **added} for t, i in self.special.items()],
            "post_processor": None, "decoder": bytes_,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                "vocab": {names[token]: rank for token, rank in ranks.items()} | self.special,
                "merges": [[names[a], names[b]] for a, b in merges],
            },
        }  # fmt: skip


class FastTokenizer:
    """A tokenizer in Hugging Face's tokenizer.json format, with the package `tokenizers`.

    Args:
        json_text: contents of the file.

    Raises:
        ImportError: if tokenizers is not installed.
        ValueError: if the package cannot read the contents.

    Example:
        >>> tokenizer = FastTokenizer.train(["the cat sat on the mat"] * 9, 270, special_tokens=["<|end|>"])
        >>> tokenizer.decode(tokenizer.encode("the cat")), tokenizer.special["<|end|>"]
        ('the cat', 0)
    """

    kind = "tokenizers"

    def __init__(self, json_text: str):
        package = _tokenizers()
        with _package_errors("the package tokenizers cannot read it"):
            self._tokenizer = package.Tokenizer.from_str(json_text)
        data = json.loads(json_text)
        _check_growth(data)
        self._json = json_text
        added = data.get("added_tokens") or []
        self.special: dict[str, int] = {token["content"]: token["id"] for token in added if token.get("special")}

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, special_tokens: Iterable[str] = (), min_count: int = 2
    ) -> "FastTokenizer":
        """Trains a byte-level byte pair encoding like GPT-2's encoding. It can encode any text.

        Args:
            texts: training texts.
            vocab_size: maximum number of tokens, including 256 bytes and the special tokens.
            special_tokens: names of special tokens, which get the first numbers; see `special`.
            min_count: pairs that occur less often are not merged.

        Source: Sennrich et al., 2016; Radford et al., GPT-2, 2019 (bytes).
        """
        package, special = _tokenizers(), list(special_tokens)
        if vocab_size < 256 + len(special):
            raise ValueError(
                f"FastTokenizer.train: expected vocab_size of at least {256 + len(special)} (256 bytes and {len(special)} special "
                f"tokens), got {vocab_size}."
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
        """The number of tokens, including added ones."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text.

        Args:
            special: if True, convert names of special tokens in the text, such as "<|end|>", and add the file's first and last
                tokens. If False, treat the whole text as plain text; use False for untrusted text.
        """
        self._tokenizer.encode_special_tokens = not special
        with _package_errors("FastTokenizer.encode"):
            return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens without special tokens; invalid UTF-8 bytes become replacement characters."""
        with _package_errors("FastTokenizer.decode"):
            return self._tokenizer.decode([int(t) for t in tokens])

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of tokenizer.json, in Hugging Face's format."""
        # Not `self._tokenizer.to_str()`, which needs memory proportional to the largest token number in the file.
        return json.loads(self._json)


def ends(tokenizer: Any) -> dict[str, tuple[str, int]]:
    """Returns name and number of the tokens that begin and end a text, with the keys "bos" and "eos" of those that exist.

    Args:
        tokenizer: the tokenizer. Only a FastTokenizer and a GPT2Tokenizer can have these tokens.
    """
    special = getattr(tokenizer, "special", {})
    last = next((name for name in _ENDS if name in special), None)
    found = {} if last is None else {"eos": (last, special[last])}
    after = (tokenizer.to_dict().get("post_processor") if isinstance(tokenizer, FastTokenizer) else None) or {}
    for part in after.get("processors", [after]):
        first = (
            (part.get("single") or [{}])[0].get("SpecialToken") if part.get("type") == "TemplateProcessing" else None
        )
        if first is not None and first["id"] in special:
            found["bos"] = first["id"], special[first["id"]]
    return found


@contextlib.contextmanager
def _package_errors(prefix):
    """Raise errors of the package tokenizers as ValueErrors."""
    try:
        yield
    except BaseException as error:
        # The package raises plain Exceptions, and PanicException, which is not an Exception, for a failure in Rust.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{prefix}: {error}.") from None


LONGEST_PADDING = 2**20  # tokens
LARGEST_GROWTH = 1000  # of a text by replacements, and tokens for a special token of a template


def _check_growth(data):
    """Check that a short text cannot become a huge text or a huge list of tokens.

    Raises:
        ValueError: if the padding, a replacement or a template of the tokenizer.json exceeds a limit.
    """
    padding = data.get("padding") or {}
    fixed = padding.get("strategy")
    lengths = [padding.get("pad_to_multiple_of") or 0, fixed.get("Fixed", 0) if isinstance(fixed, dict) else 0]
    if max(lengths) > LONGEST_PADDING:
        raise ValueError(f"expected padding to at most {LONGEST_PADDING:,} tokens, got {max(lengths):,}.")
    for part in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        growth, nested = 1, [data.get(part)]
        while nested:
            item = nested.pop()
            nested.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(item, dict) and item.get("type") == "Replace":
                growth *= max(1, len(item["content"]))
            if isinstance(item, dict) and isinstance(item.get("ids"), list):
                growth = max(growth, len(item["ids"]))
        if growth > LARGEST_GROWTH:
            raise ValueError(f"expected a {part} that lengthens text by at most {LARGEST_GROWTH:,}, got {growth:,}.")


def _tokenizers() -> Any:
    why = "this tokenizer requires the package tokenizers. Run `pip install tokenizers`."
    return needed("tokenizers", why)


def save_tokenizer(tokenizer: Any, path: str | os.PathLike) -> None:
    """Writes a tokenizer to tokenizer.json, atomically.

    Args:
        path: path of the file.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    atomic_write(path, json.dumps(tokenizer.to_dict(), ensure_ascii=True).encode())


def characters(data: Any) -> list[str] | None:
    """Returns the characters of a CharTokenizer, or None for another tokenizer. It doesn't need the package `tokenizers`.

    Args:
        data: contents of a tokenizer.json, in Hugging Face's format or in the format of earlier versions.
    """
    if not isinstance(data, dict):
        return None
    if data.get("kind") == "char":
        return data["chars"] if isinstance(data.get("chars"), list) else None
    model = data.get("model")
    if data.get("pre_tokenizer") != _EACH_CHARACTER or not isinstance(model, dict) or model.get("type") != "WordLevel":
        return None
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or data.get("normalizer") or data.get("added_tokens") or data.get("post_processor"):
        return None
    chars = list(vocab)
    return chars if list(vocab.values()) == list(range(len(chars))) and all(len(c) == 1 for c in chars) else None


def load_tokenizer(path: str | os.PathLike) -> "CharTokenizer | GPT2Tokenizer | FastTokenizer":
    """Loads the tokenizer in a tokenizer.json.

    Args:
        path: path of the file.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file does not describe a tokenizer.
        ImportError: if a required package is not installed.
    """
    check_regular(path, "load_tokenizer")
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}.") from None
    found = data.get("kind") if isinstance(data, dict) else None
    if (chars := characters(data)) is not None:
        if not all(isinstance(c, str) for c in chars):
            raise ValueError(f"load_tokenizer: expected chars to be a list of strings in {path}.")
        return CharTokenizer(chars)
    if found == "gpt2":
        return GPT2Tokenizer()
    if isinstance(data, dict) and isinstance(data.get("model"), dict):
        try:
            return FastTokenizer(json.dumps(data))
        except (ImportError, ValueError) as error:
            raise type(error)(f"{path}: {error}") from None
    raise ValueError(
        f"load_tokenizer: expected kind 'char', 'gpt2' or Hugging Face's format, got kind {found!r} in {path}."
    )
