"""Train a diffusion model that generates digits. Source: Ho et al., 2020.

python -m examples.diffusion --save digits.png
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import add_data_flags, default_device, digit_tensors
from examples.pictures import save_digits
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F


class Denoiser(nn.Module):
    """Predicts the noise in images (B, pixels), given the noise level (B,) from 0 to 1 and the labels (B,)."""

    def __init__(self, pixels, width=256, depth=3):
        super().__init__()
        self.input, self.output = nn.Linear(pixels, width), nn.Linear(width, pixels)
        self.label, self.level = nn.Embedding(10, width), nn.Linear(32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )

    def forward(self, x, level, labels):
        # sinusoidal features of the noise level, as in position embeddings
        angles = level[:, None] * mytorch.logspace(0, 2, 16, device=x.device)
        condition = self.label(labels) + self.level(mytorch.cat([angles.sin(), angles.cos()], 1))
        x = self.input(x)
        for block in self.blocks:  # residual blocks, each conditioned on label and level
            x = x + block(x + condition)
        return self.output(x)


class Diffusion:
    """Adds noise to images (from time 0 to time `steps`) and removes it.

    At time t, x = sqrt(kept[t]) * image + sqrt(1 - kept[t]) * noise. Source of the cosine schedule: Nichol and Dhariwal, 2021.
    """

    def __init__(self, model, steps, device):
        times = mytorch.arange(steps + 1, device=device) / steps
        self.kept = ((times * 0.98 + 0.01) * (math.pi / 2)).cos() ** 2
        self.model, self.steps = model, steps

    def loss(self, x, labels):
        """Returns the mean squared error of the predicted noise at random times."""
        times = mytorch.randint(1, self.steps + 1, (len(x),), device=x.device)
        kept, noise = self.kept[times][:, None], mytorch.randn_like(x)
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        return F.mse_loss(self.model(noisy, times / self.steps, labels), noise)

    @mytorch.no_grad()
    def sample(self, labels, pixels):
        """Generates images (B, pixels) of the given labels; also returns the images after each tenth of the steps."""
        x, frames = mytorch.randn(len(labels), pixels, device=labels.device), []
        for t in range(self.steps, 0, -1):
            now, prev = self.kept[t], self.kept[t - 1]
            noise = self.model(x, mytorch.full((len(x),), t / self.steps, device=x.device), labels)
            # the estimate of the clean image from the predicted noise
            image = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
            # the mean and the variance of x at time t - 1, given x and the image
            mean = (prev.sqrt() * (1 - now / prev) * image + (now / prev).sqrt() * (1 - prev) * x) / (1 - now)
            variance = (1 - prev) / (1 - now) * (1 - now / prev)
            x = mean + variance.sqrt() * mytorch.randn_like(x) if t > 1 else image
            if (t - 1) % max(self.steps // 10, 1) == 0:
                frames.append(x)
        return x, frames


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--steps", type=count, default=3000, help="number of training steps")
    parser.add_argument("--batch_size", type=count, default=128, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=2e-3, help="learning rate")
    parser.add_argument("--times", type=count, default=100, help="number of denoising steps")
    parser.add_argument("--save", type=new_file, metavar="FILE", help=".png file for generated digits")
    add_data_flags(parser)
    args = parser.parse_args()

    mytorch.manual_seed(0)
    train, _ = digit_tensors(args.data, download=args.download)
    images, labels = (t.to(args.device) for t in train.tensors)
    side = images.shape[-1]
    images = images.flatten(1) * 2 - 1
    model = Denoiser(side * side).to(args.device)
    diffusion = Diffusion(model, args.times, args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    total = 0.0
    for step in range(1, args.steps + 1):
        chosen = mytorch.randint(0, len(images), (args.batch_size,), device=args.device)
        loss = diffusion.loss(images[chosen], labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 500 == 0:
            print(f"step {step}  loss {total / 500:.4f}")
            total = 0.0

    targets = mytorch.arange(80, device=args.device) % 10
    drawn, frames = diffusion.sample(targets, side * side)
    nearest = mytorch.cdist(drawn, images)
    agree = (labels[nearest.argmin(1)] == targets).float().mean().item()
    print(f"fraction of generated digits whose nearest real digit has its label: {agree:.2f}")
    if args.save:
        rows = mytorch.stack(frames)[:, :6].transpose(0, 1).flatten(0, 1)  # six digits at successive times
        columns = len(frames)
        digits = mytorch.cat([rows, drawn[: columns * 4]])
        save_digits((digits.reshape(-1, 1, side, side) + 1) / 2, args.save, nrow=columns)
        print(f"six digits during denoising, from left to right, above further digits: {args.save}")


if __name__ == "__main__":
    run_script(main)
