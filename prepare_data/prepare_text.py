"""Prepare any text file for training.

python prepare_data/prepare_text.py --input_file book.txt --tokenizer char --path_to_save data/book
"""

import os

from common import ArgumentParser, make_tokenizer, read_text, write_split


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="a UTF-8 text file")
    parser.add_argument(
        "--tokenizer",
        default="char",
        help="what a token is: char; bpe, learnt from the text; gpt2; or a tokenizer.json, or the directory of one",
    )
    parser.add_argument(
        "--path_to_save", help="folder for train.bin, val.bin, tokenizer.json (default: data/<file's name>)"
    )
    parser.add_argument("--test_split_pct", type=float, default=0.1, help="share of the text that validates")
    parser.add_argument("--min_count", type=int, default=1, help="char: rarer characters are folded to one symbol")
    parser.add_argument("--vocab_size", type=int, default=4096, help="bpe: tokens at most")
    args = parser.parse_args()
    folder = args.path_to_save or os.path.join("data", os.path.splitext(os.path.basename(args.input_file))[0])
    text = read_text(args.input_file)
    write_split(
        text, make_tokenizer(args.tokenizer, text, args.min_count, args.vocab_size), folder, args.test_split_pct
    )


if __name__ == "__main__":
    main()
