"""Train a vision transformer on digits.

python -m examples.mnist.vit.train --epochs 20 --patch_size 2
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # for `python examples/…`

from examples.mnist.training import fit, flags
from examples.mnist.vit.model import ViT
from mytorch.cli.arguments import count, run_script


def main():
    parser = flags(__doc__.splitlines()[0])
    parser.add_argument("--patch_size", type=count, default=4, help="side of a patch, in pixels")
    parser.add_argument("--embed", type=count, default=128, help="embedding dimension")
    parser.add_argument("--num_heads", type=count, default=2, help="number of attention heads")
    parser.add_argument("--num_layers", type=count, default=1, help="number of layers")
    args = parser.parse_args()
    fit(lambda side: ViT(side, args.patch_size, args.embed, args.num_heads, args.num_layers), args)


if __name__ == "__main__":
    run_script(main)
