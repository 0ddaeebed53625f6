"""Train a small network on the two-dimensional classification problems of MiniTorch.

python -m examples.toy2d --kind spiral --save spiral.gif
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.pictures import answers, bounds, draw_boundary, panels, pyplot, save_figure
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F
from mytorch.vision.datasets import Toy2D


def letters(model, data, side=20):
    """Returns the predictions as text: `#` for class 1, `.` for class 0, and the points as x or o."""
    low, high = bounds(data.points)
    # shade the square, then draw the points over it
    rows = [["#" if cell > 0.5 else "." for cell in row] for row in answers(model, data.points, side).tolist()]
    cells = ((data.points - low) * (side / (high - low))).long()
    for (column, row), target in zip(cells.tolist(), data.targets.tolist(), strict=True):
        rows[row][column] = "x" if target else "o"
    return "\n".join(" ".join(row) for row in reversed(rows))


def save_training(path, frames, data):
    """Saves the frames (step, loss, answers) of a training: an animation in a .gif, or four images in another format."""
    points, targets = data.points.numpy(), data.targets.numpy()

    def draw(axis, frame):
        step, loss, probabilities = frame
        draw_boundary(axis, probabilities, points, targets, f"step {step}: loss {loss:.3f}")

    if not path.lower().endswith(".gif"):
        figure, axes = panels(4, width=2.8, height=3)
        for axis, i in zip(axes, (0, 1, 2, 3), strict=True):
            draw(axis, frames[i * (len(frames) - 1) // 3])
        return save_figure(figure, path)
    pyplot()
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure, (axis,) = panels(width=2.8, height=3)

    def show(i):
        axis.clear()
        draw(axis, frames[min(i, len(frames) - 1)])

    FuncAnimation(figure, show, frames=len(frames) + 5).save(path, PillowWriter(fps=5))
    pyplot().close(figure)
    print(f"image: {path}")


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=Toy2D.KINDS, default="circle", help="shape of the two classes")
    parser.add_argument("--points", type=count, default=100, help="number of points")
    parser.add_argument("--steps", type=count, default=1500, help="number of training steps")
    parser.add_argument("--hidden", type=count, default=64, help="number of hidden units per layer")
    parser.add_argument("--lr", type=positive, default=0.01, help="learning rate")
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help=".gif or .png file for the training (needs matplotlib)"
    )
    args = parser.parse_args()

    mytorch.manual_seed(0)
    data = Toy2D(args.kind, args.points)
    model = nn.Sequential(
        nn.Linear(2, args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 1)
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    moments = {round(args.steps * (i / 24) ** 2) for i in range(25)} | {1}  # more frames at the beginning
    frames = []
    for step in range(1, args.steps + 1):
        loss = F.binary_cross_entropy_with_logits(model(data.points)[:, 0], data.targets.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in moments and args.save:
            frames.append((step, loss.item(), answers(model, data.points, 80).numpy()))
        if step % max(args.steps // 4, 1) == 0:
            print(f"step {step}  loss {loss.item():.4f}")

    print(letters(model, data))
    if args.save:
        save_training(args.save, frames, data)
    right = (model(data.points)[:, 0] > 0) == (data.targets > 0)
    print(f"accuracy {right.float().mean().item():.2f}")


if __name__ == "__main__":
    run_script(main)
