"""Data sets of the examples: digits and a text. Both are available offline."""

import gzip
import os
import sys
from pathlib import Path

import mytorch
from mytorch.utils.data import DataLoader, TensorDataset
from mytorch.vision import datasets


def default_device():
    """Returns "cuda" if a GPU is available, otherwise "cpu"."""
    return "cuda" if mytorch.cuda.is_available() else "cpu"


def add_data_flags(parser):
    """Adds the options that select the digits."""
    parser.add_argument("--data", help="folder that contains MNIST/raw (default: see examples/README.md)")
    parser.add_argument(
        "--download", action="store_true", help="download MNIST into the folder of --data, or into `data`"
    )


def digit_sets(root=None, transform=None, log=print, download=False):
    """Returns (training set, test set) and prints their name.

    Reads MNIST from the folder `root`. Without `root`, uses the first available of these data sets: MNIST in the folder
    `data`, the digits of scikit-learn, synthetic digits. Ends the program if MNIST is not in `root`.
    """
    if root is None and (download or os.path.isdir("data/MNIST")):
        root = "data"
    if root is not None:
        try:
            return [datasets.MNIST(root, train, transform, download=download) for train in (True, False)]
        except RuntimeError:
            sys.exit(
                f"--data {root}: MNIST is not in {os.path.join(root, 'MNIST', 'raw')}. Add --download, or omit --data to use other digits."
            )
    try:
        sets, name = [datasets.Digits(train, transform) for train in (True, False)], "scikit-learn's digits"
    except ImportError:
        sets = [datasets.SyntheticDigits(train, transform=transform) for train in (True, False)]
        name = "synthetic digits"
    log(
        f"data: {name}, {len(sets[0])} training and {len(sets[1])} test images (for MNIST: --data FOLDER or --download)"
    )
    return sets


def digit_tensors(root=None, truncate_train=None, truncate_test=None, log=print, download=False):
    """Returns (training set, test set): TensorDatasets of images (N, 1, H, W) from 0 to 1, and labels (N,)."""
    sets = digit_sets(root, log=log, download=download)
    return [
        TensorDataset(s.data[:n].unsqueeze(1).float() / 255, s.targets[:n])
        for s, n in zip(sets, (truncate_train, truncate_test), strict=True)
    ]


def accuracy(model, dataset, device):
    """Returns the fraction of the images that a classifier labels correctly."""
    model.eval()
    correct = 0
    with mytorch.no_grad():
        for x, y in DataLoader(dataset, batch_size=500):
            correct += (model(x.to(device)).argmax(-1) == y.to(device)).sum().item()
    model.train()
    return correct / len(dataset)


def read_text(path=None):
    """Returns the content of a text file, by default Moby-Dick.

    Ends the program if the file cannot be read as text.
    """
    if path is None:
        text = gzip.decompress((Path(__file__).parent / "moby_dick.txt.gz").read_bytes()).decode()
        print(f"text: Melville's Moby-Dick, {len(text):,} characters (for another text: --text FILE)")
        return text
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"--text {path}: cannot read the file as UTF-8 text: {error}.")


def text_batches(tokens, batch_size, length, steps):
    """Yields `steps` batches (inputs, targets), both (batch_size, length), of random pieces of a token sequence.

    Raises:
        ValueError: if the sequence has at most `length` tokens.
    """
    if len(tokens) <= length:
        raise ValueError(f"text_batches: expected more than {length} tokens, got {len(tokens)}. Use a longer text.")
    for _ in range(steps):
        starts = mytorch.randint(0, len(tokens) - length, (batch_size, 1))
        pieces = tokens[starts + mytorch.arange(length + 1)]
        yield pieces[:, :-1], pieces[:, 1:]
