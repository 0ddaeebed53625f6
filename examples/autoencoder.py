"""Train an autoencoder of digits with linear layers.

python -m examples.autoencoder --code 16 --save digits.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import add_data_flags, default_device, digit_tensors
from examples.pictures import save_digits
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader


class Autoencoder(nn.Module):
    """Encodes images to `code` numbers and decodes these numbers to images."""

    def __init__(self, side, code, width=128):
        super().__init__()
        # (B, 1, side, side) -> (B, code)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(side * side, width), nn.ReLU(), nn.Linear(width, code))
        # (B, code) -> (B, 1, side, side); the sigmoid limits the pixels to 0 … 1
        self.decoder = nn.Sequential(
            nn.Linear(code, width),
            nn.ReLU(),
            nn.Linear(width, side * side),
            nn.Sigmoid(),
            nn.Unflatten(1, (1, side, side)),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def fit(build, args):
    """Trains the model returned by `build(side of the images)` to reproduce its input, and prints the test error."""
    mytorch.manual_seed(0)
    train, test = digit_tensors(args.data, download=args.download)
    unseen = test.tensors[0][:1000].to(args.device)
    mean = train.tensors[0].mean(0).to(args.device)
    model = build(unseen.shape[-1]).to(args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        total, loader = 0.0, DataLoader(train, args.batch_size, shuffle=True)
        for x, _ in loader:
            x = x.to(args.device)
            loss = F.mse_loss(model(x), x)  # the target is the input
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}  loss {total / len(loader):.4f}")
    model.eval()
    with mytorch.no_grad():
        drawn = model(unseen)
        # baseline: the same image for every input
        error, error_of_mean = F.mse_loss(drawn, unseen).item(), ((unseen - mean) ** 2).mean().item()
    print(f"test loss {error:.4f} (baseline that always returns the mean image: {error_of_mean:.4f})")
    if args.save:
        rows = [part for i in (0, 12, 24) for part in (unseen[i : i + 12], drawn[i : i + 12])]
        save_digits(mytorch.cat(rows), args.save, nrow=12)
        print(f"rows of test digits, each above its reconstructions: {args.save}")


def flags(description):
    """Returns a parser with the options of both autoencoders."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--epochs", type=count, default=20, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=64, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=2e-3, help="learning rate")
    parser.add_argument("--code", type=count, default=16, help="size of the code, in numbers per digit")
    add_data_flags(parser)
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help=".png file for test digits and their reconstructions"
    )
    return parser


def main():
    args = flags(__doc__.splitlines()[0]).parse_args()
    fit(lambda side: Autoencoder(side, args.code), args)


if __name__ == "__main__":
    run_script(main)
