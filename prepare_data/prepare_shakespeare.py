"""Prepare tiny Shakespeare, by characters or with GPT-2's tokens.

python prepare_data/prepare_shakespeare.py --path_to_save data/shakespeare
"""

import argparse

from common import fail, make_tokenizer, read_text, write_split

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def download():
    """The text from where it is kept; ends the script without a network or without requests."""
    local = "give a local copy with --input_file PATH"
    try:
        import requests
    except ImportError:
        fail(f"Downloading needs the requests package (pip install requests); or {local}.")
    try:
        answer = requests.get(URL, timeout=30)
        answer.raise_for_status()
    except requests.RequestException as error:
        fail(f"Tiny Shakespeare could not be downloaded ({type(error).__name__}); check the network, or {local}.")
    return answer.text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--path_to_save", default="data/shakespeare", help="folder for train.bin, val.bin, tokenizer.json"
    )
    parser.add_argument("--test_split_pct", type=float, default=0.1, help="share of the text that validates")
    parser.add_argument("--input_file", help="a local copy, instead of downloading")
    parser.add_argument("--tokenizer", choices=("char", "gpt2"), default="char")
    args = parser.parse_args()
    text = read_text(args.input_file) if args.input_file else download()
    write_split(text, make_tokenizer(args.tokenizer, text), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
