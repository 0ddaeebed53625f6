"""Train an autoencoder of digits with convolutions and transposed convolutions.

python -m examples.conv_autoencoder --code 16 --save digits.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

from examples.autoencoder import fit, flags
from mytorch import nn
from mytorch.cli.arguments import run_script


class ConvAutoencoder(nn.Module):
    """Encodes images with two strided convolutions and decodes them with two transposed convolutions."""

    def __init__(self, side, code, width=16):
        super().__init__()
        small = side // 4  # side after two convolutions with stride 2
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * small * small, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 2 * width * small * small),
            nn.ReLU(),
            nn.Unflatten(1, (2 * width, small, small)),
            nn.ConvTranspose2d(2 * width, width, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, kernel_size=4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    args = flags(__doc__.splitlines()[0]).parse_args()
    fit(lambda side: ConvAutoencoder(side, args.code), args)


if __name__ == "__main__":
    run_script(main)
