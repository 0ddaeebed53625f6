"""Functions that the preparation scripts share: read and split a text, write token files, end with an error."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np

from mytorch.cli.arguments import ArgumentParser as ArgumentParser
from mytorch.models.tokenizer import CharTokenizer, FastTokenizer, GPT2Tokenizer, load_tokenizer, save_tokenizer
from mytorch.utils.data.tokens import write_tokens

SPLIT_HELP = "fraction of the text used for validation, between 0 and 1"
ENCODING_HELP = "encoding of the text file, such as latin-1 or utf-16"
SAVE_HELP = "folder for train.bin, val.bin and tokenizer.json"


def fail(message):
    """Prints an error message and ends the script with exit code 1."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    raise SystemExit(1)


def read_text(path, encoding="utf-8"):
    """Returns the text of a file, without a byte order mark. Ends the script if the file can't be read or is empty."""
    try:
        with open(path, encoding=encoding) as file:
            text = file.read().removeprefix("\ufeff")
    except FileNotFoundError:
        fail(f"--input_file: expected a file, got {path}, which does not exist.")
    except LookupError:
        fail(f"--encoding: expected an encoding that Python knows, such as latin-1 or utf-16, got {encoding}.")
    except UnicodeError as error:
        fail(
            f"--input_file: expected a {encoding} text file, got {path}: {error}. Name its encoding, such as --encoding latin-1 or "
            "--encoding utf-16."
        )
    except OSError as error:
        fail(f"--input_file: expected a readable text file, got {path}: {error}.")
    if not text.strip():
        fail(f"--input_file: expected a text, got {path}, which is empty.")
    return text


def make_tokenizer(kind, text, min_count=1, vocab_size=4096):
    """Returns a tokenizer for a text. Ends the script if the tokenizer's package or file is missing."""
    if os.path.isdir(kind):
        kind = os.path.join(kind, "tokenizer.json")
    if kind == "char":
        return CharTokenizer.from_text(text, min_count)
    try:
        if kind not in ("bpe", "gpt2"):
            return load_tokenizer(kind)
        return FastTokenizer.train([text], vocab_size) if kind == "bpe" else GPT2Tokenizer()
    except FileNotFoundError:
        fail(f"--tokenizer: expected char, bpe, gpt2, or the path of a tokenizer.json or of its directory, got {kind}.")
    except (ImportError, ValueError) as error:
        fail(f"{error}")
    except Exception as error:  # tiktoken downloads its table on first use
        fail(
            f"--tokenizer: tiktoken could not download GPT-2's encoding ({type(error).__name__}). Check the network; "
            "the download is needed once."
        )


def write_split(text, tokenizer, folder, test_split_pct):
    """Writes train.bin, val.bin and tokenizer.json. Ends the script if a split would be empty.

    Args:
        text: the text.
        tokenizer: encodes the text.
        folder: the folder for the files.
        test_split_pct: fraction of the text, at its end, that val.bin contains.
    """
    if not 0.0 < test_split_pct < 1.0:
        fail(f"--test_split_pct: expected a fraction between 0 and 1, such as 0.1, got {test_split_pct}.")
    tokens = np.asarray(tokenizer.encode(text), np.uint32)
    cut = int(len(tokens) * (1.0 - test_split_pct))
    if cut == 0 or cut == len(tokens):
        fail(
            f"--test_split_pct: expected a fraction that leaves tokens in both splits of {len(tokens)} tokens, got "
            f"{test_split_pct}."
        )
    print(f"Loaded {len(text):,} Characters of Data")
    if isinstance(tokenizer, CharTokenizer):
        print("all the unique characters:", repr("".join(tokenizer.chars)))
    print(f"vocab size: {tokenizer.vocab_size:,}")
    write_tokens(os.path.join(folder, "train.bin"), tokens[:cut], tokenizer.vocab_size)
    write_tokens(os.path.join(folder, "val.bin"), tokens[cut:], tokenizer.vocab_size)
    save_tokenizer(tokenizer, os.path.join(folder, "tokenizer.json"))
    print(f"train has {cut:,} tokens")
    print(f"val has {len(tokens) - cut:,} tokens")
