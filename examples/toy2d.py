"""MiniTorch's two-dimensional problems: a small network draws the border between two classes.

python -m examples.toy2d --kind spiral --plot spiral.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F
from mytorch.vision.datasets import Toy2D


def bounds(data):
    """(low, high) of the square that all points lie in, the unit square at least."""
    return min(0.0, data.points.min().item() - 0.02), max(1.0, data.points.max().item() + 0.02)


@mytorch.no_grad()
def answers(model, data, side):
    """The model's probability of class 1 in each cell of that square, (side, side), the lowest row first."""
    low, high = bounds(data)
    cells = low + (mytorch.arange(side).float() + 0.5) * ((high - low) / side)
    points = mytorch.stack(mytorch.meshgrid(cells, cells, indexing="xy"), -1)
    return model(points.reshape(-1, 2)).sigmoid().reshape(side, side)


def letters(model, data, side=20):
    """The square in letters: `#` where the model says class 1, and the points, x or o."""
    low, high = bounds(data)
    rows = [["#" if cell > 0.5 else "." for cell in row] for row in answers(model, data, side).tolist()]
    places = ((data.points - low) * (side / (high - low))).long()
    for (column, row), target in zip(places.tolist(), data.targets.tolist(), strict=True):
        rows[row][column] = "x" if target else "o"
    return "\n".join(" ".join(row) for row in reversed(rows))


def plot(path, pictures, data, losses):
    """Draw the model's answers at several steps, and the loss, into a file."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(pictures) + 1, figsize=(3 * len(pictures) + 3, 3), layout="constrained")
    for axis, (step, picture) in zip(axes, pictures, strict=False):
        axis.imshow(
            picture, extent=(*bounds(data), *bounds(data)), origin="lower", cmap="coolwarm", vmin=0, vmax=1, alpha=0.6
        )
        axis.scatter(*data.points.numpy().T, c=data.targets.numpy(), cmap="coolwarm", edgecolors="black", s=15)
        axis.set(title=f"step {step}", xticks=[], yticks=[])
    axes[-1].plot(losses)
    axes[-1].set(title="loss", yscale="log")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=Toy2D.KINDS, default="circle")
    parser.add_argument("--points", type=count, default=100)
    parser.add_argument("--steps", type=count, default=1500)
    parser.add_argument("--hidden", type=count, default=64)
    parser.add_argument("--lr", type=positive, default=0.02)
    parser.add_argument(
        "--plot", type=new_file, metavar="FILE", help="a file to draw the training into (needs matplotlib)"
    )
    args = parser.parse_args()

    mytorch.manual_seed(0)
    data = Toy2D(args.kind, args.points)
    model = nn.Sequential(
        nn.Linear(2, args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 1)
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    losses, pictures = [], []
    for step in range(1, args.steps + 1):
        loss = F.binary_cross_entropy_with_logits(model(data.points)[:, 0], data.targets.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % max(args.steps // 4, 1) == 0:
            print(f"step {step}  loss {loss.item():.4f}")
            pictures.append((step, answers(model, data, 60).numpy()))

    print(letters(model, data))
    if args.plot:
        plot(args.plot, pictures, data, losses)
        print(f"the training in pictures: {args.plot}")
    right = (model(data.points)[:, 0] > 0) == (data.targets > 0)
    print(f"accuracy {right.float().mean().item():.2f}")


if __name__ == "__main__":
    run_script(main)
