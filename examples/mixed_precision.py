"""The same training in float32, in bfloat16 and in float16 with scaled losses. Source: Micikevicius et al., 2017.

python -m examples.mixed_precision --save losses.png
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.data import accuracy, add_data_flags, default_device, digit_tensors
from examples.pictures import save_curves
from mytorch import nn
from mytorch.amp import GradScaler, autocast
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.nn import functional as F


def train(dtype, pictures, labels, args):
    """(model, losses, scale of the losses at the end, seconds)."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(pictures[0].numel(), 256), nn.ReLU(), nn.Linear(256, 10)).to(
        args.device
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    # float16 holds nothing below 6e-8: the loss is multiplied by a scale, so that small gradients are not lost
    scaler = GradScaler(args.device, enabled=dtype == mytorch.float16)
    losses, start = [], time.perf_counter()
    for _ in range(args.steps):
        chosen = mytorch.randint(0, len(pictures), (args.batch_size,), device=args.device)
        with autocast(args.device, dtype=dtype, enabled=dtype != mytorch.float32):  # products in half, sums in float32
            loss = F.cross_entropy(model(pictures[chosen]), labels[chosen])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # not if a gradient is infinite
        scaler.update()  # halves the scale then; doubles it when all has gone well for long
        losses.append(loss.item())
    return model, losses, scaler.get_scale(), time.perf_counter() - start


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device())
    parser.add_argument("--steps", type=count, default=200)
    parser.add_argument("--batch_size", type=count, default=128)
    parser.add_argument("--lr", type=positive, default=1e-3)
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a picture of the losses (needs matplotlib)")
    add_data_flags(parser)
    args = parser.parse_args()

    train_set, test = digit_tensors(args.data, download=args.download)
    pictures, labels = (t.to(args.device) for t in train_set.tensors)
    curves = {}
    for dtype in (mytorch.float32, mytorch.bfloat16, mytorch.float16):
        model, losses, scale, seconds = train(dtype, pictures, labels, args)
        curves[dtype.name] = losses
        score = accuracy(model, test, args.device)
        print(f"{dtype.name:<9} loss {losses[-1]:.4f}  scale {scale:g}  {seconds:.1f} s  accuracy {score:.4f}")
    if args.save:
        exact = curves.pop("float32")
        apart = {
            f"{name}'s distance from it": [abs(a - b) for a, b in zip(losses, exact, strict=True)]
            for name, losses in curves.items()
        }
        save_curves(args.save, {"float32's loss": exact, **apart}, log=True, smooth=10)


if __name__ == "__main__":
    run_script(main)
