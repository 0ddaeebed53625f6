"""Compare training in float32, bfloat16 and float16 with loss scaling. Source: Micikevicius et al., 2017.

python -m examples.mixed_precision --save losses.png
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import accuracy, add_data_flags, default_device, digit_tensors
from examples.pictures import save_curves
from mytorch import nn
from mytorch.amp import GradScaler, autocast
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F


def train(dtype, images, labels, args):
    """Returns (model, losses, final loss scale, seconds)."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 256), nn.ReLU(), nn.Linear(256, 10)).to(
        args.device
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    # float16 rounds numbers below 6e-8 to 0. The scaler multiplies the loss, so that small gradients are not lost.
    scaler = GradScaler(args.device, enabled=dtype == mytorch.float16)
    losses, start = [], time.perf_counter()
    for _ in range(args.steps):
        chosen = mytorch.randint(0, len(images), (args.batch_size,), device=args.device)
        with autocast(args.device, dtype=dtype, enabled=dtype != mytorch.float32):  # matmul in 16 bits
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # skips the step if a gradient is not finite
        scaler.update()  # halves the scale after a skipped step, doubles it after 2000 good steps
        losses.append(loss.item())
    return model, losses, scaler.get_scale(), time.perf_counter() - start


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--steps", type=count, default=200, help="number of training steps")
    parser.add_argument("--batch_size", type=count, default=128, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=1e-3, help="learning rate")
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the loss curves (needs matplotlib)"
    )
    add_data_flags(parser)
    args = parser.parse_args()

    train_set, test = digit_tensors(args.data, download=args.download)
    images, labels = (t.to(args.device) for t in train_set.tensors)
    curves = {}
    for dtype in (mytorch.float32, mytorch.bfloat16, mytorch.float16):
        model, losses, scale, seconds = train(dtype, images, labels, args)
        curves[dtype.name] = losses
        score = accuracy(model, test, args.device)
        print(f"{dtype.name:<9} loss {losses[-1]:.4f}  scale {scale:g}  {seconds:.1f} s  accuracy {score:.4f}")
    if args.save:
        exact = curves.pop("float32")
        differences = {
            f"absolute difference of {name}": [abs(a - b) for a, b in zip(losses, exact, strict=True)]
            for name, losses in curves.items()
        }
        save_curves(args.save, {"loss in float32": exact, **differences}, log=True, smooth=10)


if __name__ == "__main__":
    run_script(main)
