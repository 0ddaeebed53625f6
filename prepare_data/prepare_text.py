"""Prepare any text file for training.

python prepare_data/prepare_text.py --input_file book.txt --tokenizer char --path_to_save data/book
"""

import os

from common import ENCODING_HELP, SAVE_HELP, SPLIT_HELP, ArgumentParser, make_tokenizer, read_text, write_split


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="text file to prepare")
    parser.add_argument("--encoding", default="utf-8", help=ENCODING_HELP)
    parser.add_argument(
        "--tokenizer",
        default="char",
        help="char (one token for each character), bpe (byte-pair encoding trained on the text), gpt2, or the path of a "
        "tokenizer.json or of its directory. bpe requires the package tokenizers: pip install '.[tokenizers]'",
    )
    parser.add_argument("--path_to_save", help=f"{SAVE_HELP} (default: data/ and the name of the text file)")
    parser.add_argument("--test_split_pct", type=float, default=0.1, help=SPLIT_HELP)
    parser.add_argument(
        "--min_count",
        type=int,
        default=1,
        help="minimum count of a character; all rarer characters share one token (--tokenizer char)",
    )
    parser.add_argument(
        "--vocab_size", type=int, default=4096, help="maximum number of tokens in the vocabulary (--tokenizer bpe)"
    )
    args = parser.parse_args()
    folder = args.path_to_save or os.path.join("data", os.path.splitext(os.path.basename(args.input_file))[0])
    text = read_text(args.input_file, args.encoding)
    write_split(
        text, make_tokenizer(args.tokenizer, text, args.min_count, args.vocab_size), folder, args.test_split_pct
    )


if __name__ == "__main__":
    main()
