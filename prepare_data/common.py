"""What the preparation scripts share: splitting a text, writing it, and failing in one sentence."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np

from mytorch.cli.arguments import ArgumentParser as ArgumentParser
from mytorch.models.tokenizer import CharTokenizer, FastTokenizer, GPT2Tokenizer, load_tokenizer, save_tokenizer
from mytorch.utils.data.tokens import write_tokens


def fail(sentence):
    """End the script with one sentence and exit code 1."""
    print(sentence, file=sys.stderr)
    raise SystemExit(1)


def read_text(path):
    """The text of a file, UTF-8.

    Ends the script if it can't be read or is empty.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        fail(f"There is no file {path}.")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} can't be read as UTF-8 text: {error}.")
    if not text.strip():
        fail(f"{path} holds no text.")
    return text


def make_tokenizer(kind, text, min_count=1, vocab_size=4096):
    """The tokenizer of a kind for a text; ends the script where its package or its file is missing."""
    if os.path.isdir(kind):
        kind = os.path.join(kind, "tokenizer.json")
    if kind == "char":
        return CharTokenizer.from_text(text, min_count)
    try:
        if kind not in ("bpe", "gpt2"):
            return load_tokenizer(kind)
        return FastTokenizer.train([text], vocab_size) if kind == "bpe" else GPT2Tokenizer()
    except (ImportError, ValueError, FileNotFoundError) as error:
        fail(f"{error}")
    except Exception as error:  # tiktoken downloads its table on first use
        fail(f"tiktoken could not load GPT-2's encoding ({type(error).__name__}); it needs the network once.")


def write_split(text, tokenizer, folder, test_split_pct):
    """Write train.bin, val.bin and tokenizer.json; the last share of the text validates.

    Ends the script if a split would be empty.
    """
    if not 0.0 < test_split_pct < 1.0:
        fail(f"--test_split_pct is {test_split_pct}; it must lie between 0 and 1, such as 0.1 for a tenth.")
    tokens = np.asarray(tokenizer.encode(text), np.uint32)
    cut = int(len(tokens) * (1.0 - test_split_pct))
    if cut == 0 or cut == len(tokens):
        fail(f"A text of {len(tokens)} tokens can't be split with --test_split_pct {test_split_pct}.")
    print(f"Loaded {len(text):,} Characters of Data")
    if isinstance(tokenizer, CharTokenizer):
        print("all the unique characters:", repr("".join(tokenizer.chars)))
    print(f"vocab size: {tokenizer.vocab_size:,}")
    write_tokens(os.path.join(folder, "train.bin"), tokens[:cut], tokenizer.vocab_size)
    write_tokens(os.path.join(folder, "val.bin"), tokens[cut:], tokenizer.vocab_size)
    save_tokenizer(tokenizer, os.path.join(folder, "tokenizer.json"))
    print(f"train has {cut:,} tokens")
    print(f"val has {len(tokens) - cut:,} tokens")
