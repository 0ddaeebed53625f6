"""Prepare OpenWebText, or local files of documents, with GPT-2's tokenizer.

    python prepare_data/prepare_owt.py --num_proc 8 --path_to_save data/openwebtext

The `datasets` library stores its downloads in HF_HOME. `--dataset_path` names local files instead: JSON lines,
Parquet or plain text, with the documents in a column "text".
"""

import glob
import os

from common import SAVE_HELP, ArgumentParser, fail, make_tokenizer

HUB_NAME = "Skylion007/openwebtext"
BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".txt": "text"}


def load_documents(path, num_proc):
    """Returns the dataset of documents. Ends the script if the dataset is not available."""
    try:
        import datasets
    except ImportError:
        fail("the datasets library is missing. Install it: pip install datasets.")
    if path is None:
        try:
            return datasets.load_dataset(HUB_NAME, split="train", num_proc=num_proc)
        except Exception as error:  # the library raises many kinds without a network
            fail(
                f"download of OpenWebText failed ({type(error).__name__}). Check the network, or use local files with "
                "--dataset_path."
            )
    files = sorted(glob.glob(os.path.join(path, "*"))) if os.path.isdir(path) else sorted(glob.glob(path))
    files = [f for f in files if os.path.splitext(f)[1] in BUILDERS]
    if not files:
        fail(f"--dataset_path: expected {', '.join(BUILDERS)} files, got {path}, which has none.")
    kinds = {BUILDERS[os.path.splitext(f)[1]] for f in files}
    if len(kinds) > 1:
        fail(f"--dataset_path: expected files of one format, got {', '.join(sorted(kinds))} in {path}.")
    try:
        documents = datasets.load_dataset(kinds.pop(), data_files=files, split="train")
    except Exception as error:  # malformed files raise many kinds
        fail(f"--dataset_path: expected files that datasets can load, got {path}: {error}.")
    if "text" not in documents.column_names:
        fail(f'--dataset_path: expected a column "text", got the columns {documents.column_names} in {path}.')
    return documents


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_proc", type=int, default=8, help="number of tokenizing processes")
    parser.add_argument("--path_to_save", default="data/openwebtext", help=SAVE_HELP)
    parser.add_argument("--dataset_path", help="local file, folder or pattern of files (default: download OpenWebText)")
    split = "fraction of the documents used for validation, between 0 and 1"
    parser.add_argument("--test_split_pct", type=float, default=0.0005, help=split)
    args = parser.parse_args()
    if args.num_proc < 1:
        fail(f"--num_proc: expected at least 1 process, got {args.num_proc}.")

    from mytorch.models.tokenizer import save_tokenizer
    from mytorch.utils.data.tokens import TokenWriter

    tokenizer = make_tokenizer("gpt2", "")
    documents = load_documents(args.dataset_path, args.num_proc)
    if len(documents) < 2:
        fail(f"--dataset_path: expected at least 2 documents, got {len(documents)}.")
    split = documents.train_test_split(test_size=args.test_split_pct, seed=2357, shuffle=True)

    def tokenize(document):
        return {"tokens": [*tokenizer.encode(document["text"]), tokenizer.end_of_text]}

    for name, part in (("train", split["train"]), ("val", split["test"])):
        workers = min(args.num_proc, len(part))
        tokens = part.map(
            tokenize,
            remove_columns=part.column_names,
            num_proc=workers if workers > 1 else None,
            desc=f"tokenizing {name}",
        )
        with TokenWriter(os.path.join(args.path_to_save, f"{name}.bin"), tokenizer.vocab_size) as writer:
            for start in range(0, len(tokens), 1000):
                for row in tokens[start : start + 1000]["tokens"]:
                    writer.write(row)
        print(f"{name} has {writer.count:,} tokens")
    save_tokenizer(tokenizer, os.path.join(args.path_to_save, "tokenizer.json"))


if __name__ == "__main__":
    main()
