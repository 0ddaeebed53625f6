"""The data that the examples share: digits, and a text, that are there without a network."""

import gzip
import os
import sys
from pathlib import Path

import mytorch
from mytorch.utils.data import DataLoader, TensorDataset
from mytorch.vision import datasets


def default_device():
    """A GPU if there is one."""
    return "cuda" if mytorch.cuda.is_available() else "cpu"


def add_data_flags(parser):
    """Add the flags that say which digits are read."""
    parser.add_argument("--data", help="a folder that MNIST/raw lies in; examples/README.md says what is used without")
    parser.add_argument("--download", action="store_true", help="get MNIST into that folder (by default `data`) first")


def digit_sets(root=None, transform=None, say=print, download=False):
    """(train, test): MNIST from the folder `root`, or what there is without one; says which.

    Without a root it is MNIST if it lies in `data`, else scikit-learn's digits, else digits drawn by rule. Ends the program
    if MNIST is not in the root.
    """
    if root is None and (download or os.path.isdir("data/MNIST")):
        root = "data"
    if root is not None:
        try:
            return [datasets.MNIST(root, train, transform, download=download) for train in (True, False)]
        except RuntimeError:
            sys.exit(
                f"--data {root}: MNIST is not in {os.path.join(root, 'MNIST', 'raw')}; --download gets it, without --data other digits do."
            )
    try:
        sets, name = [datasets.Digits(train, transform) for train in (True, False)], "scikit-learn's digits"
    except ImportError:
        sets = [datasets.SyntheticDigits(train, transform=transform) for train in (True, False)]
        name = "synthetic digits"
    say(f"data: {name}, {len(sets[0])} to train, {len(sets[1])} to test; --data FOLDER reads MNIST, --download gets it")
    return sets


def digit_tensors(root=None, truncate_train=None, truncate_test=None, say=print, download=False):
    """(train, test) as TensorDatasets of pictures (N, 1, H, W), from 0 to 1, and labels (N,)."""
    sets = digit_sets(root, say=say, download=download)
    return [
        TensorDataset(s.data[:n].unsqueeze(1).float() / 255, s.targets[:n])
        for s, n in zip(sets, (truncate_train, truncate_test), strict=True)
    ]


def accuracy(model, dataset, device):
    """The share of a dataset's pictures that a classifier names rightly."""
    model.eval()
    right = 0
    with mytorch.no_grad():
        for x, y in DataLoader(dataset, batch_size=500):
            right += (model(x.to(device)).argmax(-1) == y.to(device)).sum().item()
    model.train()
    return right / len(dataset)


def read_text(path=None):
    """The text in a file, or, without one, Moby-Dick, which lies beside this file.

    Ends the program if the file can't be read as text.
    """
    if path is None:
        text = gzip.decompress((Path(__file__).parent / "moby_dick.txt.gz").read_bytes()).decode()
        print(f"text: Melville's Moby-Dick, {len(text):,} characters; --text FILE reads another")
        return text
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"--text {path}: it can't be read as UTF-8 text: {error}.")


def text_batches(tokens, batch_size, length, steps):
    """`steps` times (inputs, targets), both (batch_size, length): random pieces of a sequence of tokens.

    Raises:
        ValueError: it is too short.
    """
    if len(tokens) <= length:
        raise ValueError(f"{len(tokens)} letters are too few for pieces of {length}; give a longer text.")
    for _ in range(steps):
        starts = mytorch.randint(0, len(tokens) - length, (batch_size, 1))
        pieces = tokens[starts + mytorch.arange(length + 1)]
        yield pieces[:, :-1], pieces[:, 1:]
