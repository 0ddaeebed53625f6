"""Prepare OpenWebText (or local files of documents) with GPT-2's tokens.

    python prepare_data/prepare_owt.py --num_proc 8 --path_to_save data/openwebtext

The `datasets` library keeps its downloads under HF_HOME. `--dataset_path` takes local files instead: JSON
lines, Parquet or plain text, with the documents in a column "text".
"""

import glob
import os

from common import ArgumentParser, fail, make_tokenizer

HUB_NAME = "Skylion007/openwebtext"
BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".txt": "text"}


def load_documents(path, num_proc):
    """The dataset of documents; ends the script where it can't be had."""
    try:
        import datasets
    except ImportError:
        fail("Preparing OpenWebText needs the datasets library: pip install datasets.")
    if path is None:
        try:
            return datasets.load_dataset(HUB_NAME, split="train", num_proc=num_proc)
        except Exception as error:  # the library raises many kinds without a network
            fail(
                f"OpenWebText could not be downloaded ({type(error).__name__}); check the network, or give local files with --dataset_path."
            )
    files = sorted(glob.glob(os.path.join(path, "*"))) if os.path.isdir(path) else sorted(glob.glob(path))
    files = [f for f in files if os.path.splitext(f)[1] in BUILDERS]
    if not files:
        fail(f"There are no {', '.join(BUILDERS)} files at {path}.")
    kinds = {BUILDERS[os.path.splitext(f)[1]] for f in files}
    if len(kinds) > 1:
        fail(f"{path} mixes files of the kinds {', '.join(sorted(kinds))}; give one kind.")
    try:
        documents = datasets.load_dataset(kinds.pop(), data_files=files, split="train")
    except Exception as error:  # malformed files raise many kinds
        fail(f"The files at {path} could not be loaded: {error}.")
    if "text" not in documents.column_names:
        fail(f'The files at {path} have the columns {documents.column_names}; a column "text" is wanted.')
    return documents


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_proc", type=int, default=8, help="processes that tokenise")
    parser.add_argument(
        "--path_to_save", default="data/openwebtext", help="folder for train.bin, val.bin, tokenizer.json"
    )
    parser.add_argument("--dataset_path", help="local files, or a folder of them, instead of downloading")
    parser.add_argument("--test_split_pct", type=float, default=0.0005, help="share of the documents that validates")
    args = parser.parse_args()
    if args.num_proc < 1:
        fail(f"--num_proc is {args.num_proc}; at least one process is needed.")

    from mytorch.models.tokenizer import save_tokenizer
    from mytorch.utils.data.tokens import TokenWriter

    tokenizer = make_tokenizer("gpt2", "")
    documents = load_documents(args.dataset_path, args.num_proc)
    if len(documents) < 2:
        fail(f"{len(documents)} documents can't be split into training and validation.")
    split = documents.train_test_split(test_size=args.test_split_pct, seed=2357, shuffle=True)

    def tokenise(document):
        return {"tokens": [*tokenizer.encode(document["text"]), tokenizer.end_of_text]}

    for name, part in (("train", split["train"]), ("val", split["test"])):
        workers = min(args.num_proc, len(part))
        tokens = part.map(
            tokenise,
            remove_columns=part.column_names,
            num_proc=workers if workers > 1 else None,
            desc=f"tokenising {name}",
        )
        with TokenWriter(os.path.join(args.path_to_save, f"{name}.bin"), tokenizer.vocab_size) as writer:
            for start in range(0, len(tokens), 1000):
                for row in tokens[start : start + 1000]["tokens"]:
                    writer.write(row)
        print(f"{name} has {writer.count:,} tokens")
    save_tokenizer(tokenizer, os.path.join(args.path_to_save, "tokenizer.json"))


if __name__ == "__main__":
    main()
