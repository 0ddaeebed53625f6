"""Train a conditional variational autoencoder on digits. Source: Kingma and Welling, 2013.

python -m examples.vae --save digits.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import add_data_flags, default_device, digit_tensors
from examples.pictures import save_digits
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.distributions import Normal, kl_divergence
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader


class VAE(nn.Module):
    """Encodes images to normal distributions of codes and decodes codes to images, both given the label."""

    def __init__(self, pixels, code, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels + 10, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code + 10, width), nn.ReLU(), nn.Linear(width, pixels))

    def decode(self, codes, labels):
        """Returns the logits of the pixels."""
        return self.decoder(mytorch.cat([codes, F.one_hot(labels, 10).float()], -1))

    def forward(self, x, labels):
        """Returns the reconstruction loss and the KL divergence of each image, in nats. Their sum is a bound of -log p(x)."""
        mean, log_std = self.encoder(mytorch.cat([x, F.one_hot(labels, 10).float()], -1)).chunk(2, dim=-1)
        codes = Normal(mean, log_std.exp())
        logits = self.decode(codes.rsample(), labels)  # rsample: the gradient reaches mean and log_std
        drawing = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
        prior = Normal(mytorch.zeros_like(mean), mytorch.ones_like(mean))
        return drawing, kl_divergence(codes, prior).sum(-1)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--epochs", type=count, default=40, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=64, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=2e-3, help="learning rate")
    parser.add_argument("--code", type=count, default=8, help="size of the code")
    add_data_flags(parser)
    parser.add_argument("--save", type=new_file, metavar="FILE", help=".png file for generated digits")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    train, test = digit_tensors(args.data, download=args.download)
    side = train.tensors[0].shape[-1]
    model = VAE(side * side, args.code).to(args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for x, y in DataLoader(train, args.batch_size, shuffle=True):
            drawing, code = model(x.flatten(1).to(args.device), y.to(args.device))
            loss = (drawing + code).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        if epoch % 4 == 0:
            print(f"epoch {epoch}  loss {total / len(train):.3f}")

    with mytorch.no_grad():
        x, y = (t.to(args.device) for t in test.tensors)
        drawing, code = (part.mean().item() for part in model(x.flatten(1), y))
        print(f"test loss {drawing + code:.3f} = reconstruction {drawing:.3f} + KL divergence {code:.3f}")
        if args.save:
            labels = mytorch.arange(10, device=args.device).repeat(8)
            # new images: decode codes from the prior
            new = model.decode(mytorch.randn(80, args.code, device=args.device), labels).sigmoid()
            save_digits(new.reshape(-1, 1, side, side), args.save, nrow=10)
            print(f"generated digits, one column per label: {args.save}")


if __name__ == "__main__":
    run_script(main)
