"""Prepare the demo's text: Melville's Moby-Dick, which lies in examples/, by characters.

    python prepare_data/prepare_demo.py --path_to_save data/demo

Nothing is downloaded; examples/README.md says where the text is from.
"""

from common import ArgumentParser, make_tokenizer, write_split

from examples.data import read_text


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path_to_save", default="data/demo", help="folder for train.bin, val.bin, tokenizer.json")
    parser.add_argument("--test_split_pct", type=float, default=0.1, help="share of the text that validates")
    args = parser.parse_args()
    text = read_text()
    write_split(text, make_tokenizer("char", text), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
