"""Digits by a vision transformer. Source: Dosovitskiy et al., 2020.

python -m examples.mnist.vit.train --epochs 20 --embed 64 --num_heads 4 --num_layers 4
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # to run as a script, too

import mytorch
from examples.mnist.training import fit, flags
from mytorch import nn


class ViT(nn.Module):
    """The picture cut into patches, which look at each other; a class token gathers the answer."""

    def __init__(self, side, patch_size, embed, num_heads, num_layers):
        super().__init__()
        if side % patch_size:
            raise SystemExit(f"--patch_size {patch_size} does not divide the side of the pictures, {side}.")
        self.patches = nn.Conv2d(1, embed, kernel_size=patch_size, stride=patch_size)  # a linear layer for each patch
        self.token = nn.Parameter(mytorch.zeros(1, 1, embed))
        self.positions = nn.Parameter(mytorch.randn(1, 1 + (side // patch_size) ** 2, embed) * 0.02)
        layer = nn.TransformerEncoderLayer(
            embed, num_heads, 4 * embed, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, norm=nn.LayerNorm(embed), enable_nested_tensor=False)
        self.head = nn.Linear(embed, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)  # (B, patches, embed)
        x = mytorch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])  # (B, 10)


def main():
    parser = flags(__doc__.splitlines()[0], epochs=20)
    parser.add_argument("--patch_size", type=int, help="side of a patch; by default a quarter of the picture's")
    parser.add_argument("--embed", type=int, default=64, help="width")
    parser.add_argument("--num_heads", type=int, default=4)
    parser.add_argument("--num_layers", type=int, default=4)
    args = parser.parse_args()
    fit(lambda side: ViT(side, args.patch_size or side // 4, args.embed, args.num_heads, args.num_layers), args)


if __name__ == "__main__":
    main()
