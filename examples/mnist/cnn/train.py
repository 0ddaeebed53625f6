"""Train a convolutional network on digits.

python -m examples.mnist.cnn.train --epochs 5
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # for `python examples/…`

from examples.mnist.cnn.model import ConvNet
from examples.mnist.training import fit, flags
from mytorch.cli.arguments import run_script


def main():
    fit(ConvNet, flags(__doc__.splitlines()[0]).parse_args())


if __name__ == "__main__":
    run_script(main)
