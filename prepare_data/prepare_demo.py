"""Prepare the demo's text: the source of the running Python's own standard library, by characters.

    python prepare_data/prepare_demo.py --path_to_save data/demo

Every machine with Python has it, so nothing is downloaded. Files are taken in the order of their names, up
to about 2 MB; characters that occur less than 50 times are folded to one symbol.
"""

import os
import sysconfig

from common import ArgumentParser, fail, make_tokenizer, write_split


def standard_library(limit):
    """Source files of the standard library, joined, about `limit` characters."""
    folder = sysconfig.get_paths()["stdlib"]
    pieces, total = [], 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.endswith(".py") or not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        pieces.append(text)
        total += len(text)
        if total >= limit:
            break
    if total < 10_000:
        fail(f"The standard library's sources are not in {folder}; use prepare_text.py with a text of your own.")
    return "\n".join(pieces)[:limit]


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path_to_save", default="data/demo", help="folder for train.bin, val.bin, tokenizer.json")
    parser.add_argument("--test_split_pct", type=float, default=0.1, help="share of the text that validates")
    parser.add_argument("--limit", type=int, default=2_000_000, help="characters")
    args = parser.parse_args()
    text = standard_library(args.limit)
    write_split(text, make_tokenizer("char", text, min_count=50), args.path_to_save, args.test_split_pct)


if __name__ == "__main__":
    main()
