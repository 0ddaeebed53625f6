"""Prepare tiny Shakespeare, by characters or with GPT-2's tokens.

python prepare_data/prepare_shakespeare.py --path_to_save data/shakespeare
"""

from urllib.error import URLError
from urllib.request import urlopen

from common import ArgumentParser, fail, make_tokenizer, read_text, write_split

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def download():
    """The text from where it is kept; ends the script without a network."""
    try:
        with urlopen(URL, timeout=30) as answer:
            return answer.read().decode("utf-8")
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        fail(
            f"Tiny Shakespeare could not be downloaded from {URL} ({reason}); check the network, or give a local copy "
            "with --input_file PATH."
        )


def main(folder="data/shakespeare", share=0.1, tokenizer="char"):
    """Run the script; the arguments are its defaults."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path_to_save", default=folder, help="folder for train.bin, val.bin, tokenizer.json")
    parser.add_argument("--test_split_pct", type=float, default=share, help="share of the text that validates")
    parser.add_argument("--input_file", help="a local copy, instead of downloading")
    parser.add_argument("--tokenizer", choices=("char", "gpt2"), default=tokenizer, help="what a token is")
    args = parser.parse_args()
    text = read_text(args.input_file) if args.input_file else download()
    write_split(text, make_tokenizer(args.tokenizer, text), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
