"""Digits out of noise: a network learns to take away a little of it, many times over. Source: Ho et al., 2020.

python -m examples.diffusion --save digits.png
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.data import add_data_flags, default_device, digit_tensors
from examples.pictures import save_digits
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F


class Denoiser(nn.Module):
    """Noisy pixels (B, pixels), the noise's level (B,), from 0 to 1, and labels (B,), to the noise in them."""

    def __init__(self, pixels, width=256, depth=3):
        super().__init__()
        self.input, self.output = nn.Linear(pixels, width), nn.Linear(width, pixels)
        self.label, self.level = nn.Embedding(10, width), nn.Linear(32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )

    def forward(self, x, level, labels):
        angles = level[:, None] * mytorch.logspace(0, 2, 16, device=x.device)
        condition = self.label(labels) + self.level(mytorch.cat([angles.sin(), angles.cos()], 1))
        x = self.input(x)
        for block in self.blocks:
            x = x + block(x + condition)
        return self.output(x)


class Diffusion:
    """From pictures (time 0) to noise (time `steps`) and back.

    At time t, x = sqrt(kept[t]) * picture + sqrt(1 - kept[t]) * noise. Source of the cosine: Nichol and Dhariwal, 2021.
    """

    def __init__(self, model, steps, device):
        times = mytorch.arange(steps + 1, device=device) / steps
        self.kept = ((times * 0.98 + 0.01) * (math.pi / 2)).cos() ** 2
        self.model, self.steps = model, steps

    def loss(self, x, labels):
        """The mean squared error of the noise that the model sees in pictures at random times."""
        times = mytorch.randint(1, self.steps + 1, (len(x),), device=x.device)
        kept, noise = self.kept[times][:, None], mytorch.randn_like(x)
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        return F.mse_loss(self.model(noisy, times / self.steps, labels), noise)

    @mytorch.no_grad()
    def sample(self, labels, pixels):
        """Digits of the given labels, (B, pixels), and what they were at each tenth of the way."""
        x, film = mytorch.randn(len(labels), pixels, device=labels.device), []
        for t in range(self.steps, 0, -1):
            now, before = self.kept[t], self.kept[t - 1]
            noise = self.model(x, mytorch.full((len(x),), t / self.steps, device=x.device), labels)
            picture = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
            # the mean and the variance of x at time t - 1, given x and the picture
            mean = (before.sqrt() * (1 - now / before) * picture + (now / before).sqrt() * (1 - before) * x) / (1 - now)
            variance = (1 - before) / (1 - now) * (1 - now / before)
            x = mean + variance.sqrt() * mytorch.randn_like(x) if t > 1 else picture
            if (t - 1) % max(self.steps // 10, 1) == 0:
                film.append(x)
        return x, film


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device())
    parser.add_argument("--steps", type=count, default=3000, help="of training")
    parser.add_argument("--batch_size", type=count, default=128)
    parser.add_argument("--lr", type=positive, default=2e-3)
    parser.add_argument("--times", type=count, default=100, help="in how many steps noise becomes a digit")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a .png to draw new digits into")
    add_data_flags(parser)
    args = parser.parse_args()

    mytorch.manual_seed(0)
    train, _ = digit_tensors(args.data, download=args.download)
    pictures, labels = (t.to(args.device) for t in train.tensors)
    side = pictures.shape[-1]
    pictures = pictures.flatten(1) * 2 - 1
    model = Denoiser(side * side).to(args.device)
    diffusion = Diffusion(model, args.times, args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    total = 0.0
    for step in range(1, args.steps + 1):
        chosen = mytorch.randint(0, len(pictures), (args.batch_size,), device=args.device)
        loss = diffusion.loss(pictures[chosen], labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 500 == 0:
            print(f"step {step}  loss {total / 500:.4f}")
            total = 0.0

    wanted = mytorch.arange(80, device=args.device) % 10
    drawn, film = diffusion.sample(wanted, side * side)
    nearest = mytorch.cdist(drawn, pictures)
    agree = (labels[nearest.argmin(1)] == wanted).float().mean().item()
    print(f"the real digit nearest to a drawn one has its label: {agree:.2f}")
    if args.save:
        rows = mytorch.stack(film)[:, :6].transpose(0, 1).flatten(0, 1)  # six digits on their way
        columns = len(film)
        digits = mytorch.cat([rows, drawn[: columns * 4]])
        save_digits((digits.reshape(-1, 1, side, side) + 1) / 2, args.save, nrow=columns)
        print(f"six digits out of noise, from left to right, and below them more: {args.save}")


if __name__ == "__main__":
    run_script(main)
