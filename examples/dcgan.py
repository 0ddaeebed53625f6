"""Train a conditional DCGAN on digits. Source: Radford et al., 2015.

python -m examples.dcgan --save digits.png
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


class Generator(nn.Module):
    """Maps noise (B, noise) and labels (B,) to images (B, 1, side, side) from -1 to 1."""

    def __init__(self, side, noise, width=32):
        super().__init__()
        self.start = nn.Sequential(
            nn.Linear(noise + 10, 2 * width * (side // 4) ** 2), nn.Unflatten(1, (2 * width, side // 4, side // 4))
        )
        self.layers = nn.Sequential(
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, kernel_size=4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, kernel_size=4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, noise, labels):
        return self.layers(self.start(mytorch.cat([noise, F.one_hot(labels, 10).float()], 1)))


class Discriminator(nn.Module):
    """Maps images and labels to logits (B,) for real images of this label."""

    def __init__(self, side, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, kernel_size=4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * (side // 4) ** 2, 64),
        )
        self.score, self.label = nn.Linear(64, 1), nn.Embedding(10, 64)

    def forward(self, x, labels):
        features = self.layers(x)
        # projection discriminator: an unconditional score plus the match of features and label
        return self.score(features)[:, 0] + (features * self.label(labels)).sum(1) / 8  # Miyato and Koyama, 2018


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--epochs", type=count, default=30, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=64, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=1e-3, help="learning rate")
    parser.add_argument("--noise", type=count, default=32, help="size of the noise vector")
    parser.add_argument("--save", type=new_file, metavar="FILE", help=".png file for generated digits")
    add_data_flags(parser)
    args = parser.parse_args()

    mytorch.manual_seed(0)
    train, _ = digit_tensors(args.data, download=args.download)
    side = train.tensors[0].shape[-1]
    generator = Generator(side, args.noise).to(args.device)
    discriminator = Discriminator(side).to(args.device)
    g_optimizer = mytorch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.999))
    d_optimizer = mytorch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0.5, 0.999))

    def draw(labels):
        return generator(mytorch.randn(len(labels), args.noise, device=args.device), labels)

    def loss_of(logits, target):
        return F.binary_cross_entropy_with_logits(logits, mytorch.full_like(logits, target))

    for epoch in range(1, args.epochs + 1):
        d_total = g_total = 0.0
        loader = DataLoader(train, args.batch_size, shuffle=True)
        for x, y in loader:
            real, y = x.to(args.device) * 2 - 1, y.to(args.device)
            fake = draw(y)
            # discriminator step: detach() stops the gradient at the generator; 0.9 is label smoothing
            d_loss = loss_of(discriminator(real, y), 0.9) + loss_of(discriminator(fake.detach(), y), 0.0)
            d_optimizer.zero_grad()
            d_loss.backward()
            d_optimizer.step()

            # generator step
            g_loss = loss_of(discriminator(fake, y), 1.0)  # low if the discriminator accepts the fake images
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()
            d_total, g_total = d_total + d_loss.item(), g_total + g_loss.item()
        if epoch % 5 == 0 or epoch == args.epochs:
            n = len(loader)
            print(f"epoch {epoch}  discriminator loss {d_total / n:.3f}  generator loss {g_total / n:.3f}")

    generator.eval()
    with mytorch.no_grad():
        fake = draw(mytorch.arange(500, device=args.device) % 10)
        drawn, real = fake.flatten(1), train.tensors[0][:1000].flatten(1).to(args.device) * 2 - 1
        nearest = mytorch.cdist(drawn, real).amin(1).mean().item()
        between_real = mytorch.cdist(real[:500], real[500:]).amin(1).mean().item()
    print(
        f"mean distance from generated to real digits: {nearest:.2f} (from real to other real digits: {between_real:.2f})"
    )
    if args.save:
        save_digits((fake[:80] + 1) / 2, args.save, nrow=10)
        print(f"generated digits, one column per label: {args.save}")


if __name__ == "__main__":
    run_script(main)
