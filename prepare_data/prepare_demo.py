"""Prepare the text of the demo, Moby-Dick by Herman Melville, with one token for each character.

    python prepare_data/prepare_demo.py --path_to_save data/demo

Downloads nothing: the text is in examples/, and examples/README.md names its source.
"""

from common import SAVE_HELP, SPLIT_HELP, ArgumentParser, make_tokenizer, write_split

from examples.data import read_text


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path_to_save", default="data/demo", help=SAVE_HELP)
    parser.add_argument("--test_split_pct", type=float, default=0.1, help=SPLIT_HELP)
    args = parser.parse_args()
    text = read_text()
    write_split(text, make_tokenizer("char", text), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
