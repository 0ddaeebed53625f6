"""Prepare the tiny Shakespeare text, with one token for each character or with GPT-2's tokenizer.

python prepare_data/prepare_shakespeare.py --path_to_save data/shakespeare
"""

from urllib.error import URLError
from urllib.request import urlopen

from common import SAVE_HELP, SPLIT_HELP, ArgumentParser, fail, make_tokenizer, read_text, write_split

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def download():
    """Downloads and returns the text. Ends the script if the download fails."""
    try:
        with urlopen(URL, timeout=30) as response:
            return response.read().decode("utf-8")
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        fail(f"download of {URL} failed ({reason}). Check the network, or use a local copy with --input_file PATH.")


def main(folder="data/shakespeare", fraction=0.1, tokenizer="char"):
    """Runs the script. The arguments are the defaults of its flags."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path_to_save", default=folder, help=SAVE_HELP)
    parser.add_argument("--test_split_pct", type=float, default=fraction, help=SPLIT_HELP)
    parser.add_argument("--input_file", help="local copy of the text (default: download)")
    parser.add_argument(
        "--tokenizer",
        choices=("char", "gpt2"),
        default=tokenizer,
        help="tokenizer: characters, or GPT-2's byte-pair encoding",
    )
    args = parser.parse_args()
    text = read_text(args.input_file) if args.input_file else download()
    write_split(text, make_tokenizer(args.tokenizer, text), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
