"""Functions that save images: grids of digits (without matplotlib) and plots (with matplotlib)."""

import mytorch
from mytorch.nn import functional as F
from mytorch.vision.utils import save_image


def save_digits(images, path, side=48, **options):
    """Saves images (N, 1, H, W) from 0 to 1 as a grid, each image resized to `side` pixels.

    Args:
        images: the images.
        path: the .png file.
        side: side of a resized image, in pixels.
        **options: passed to `save_image`.
    """
    large = F.interpolate(images.detach().cpu(), size=(side, side), mode="bicubic", align_corners=False)
    save_image(1 - large.clamp(0, 1), path, pad_value=0.75, **options)  # dark digits on a light background


def pyplot():
    """Returns matplotlib.pyplot, set up for files. Ends the program if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--save needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True, "figure.dpi": 80})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    return plt


def panels(count=1, width=4.2, height=3.2, **options):
    """Returns (figure, list of `count` axes in one row)."""
    figure, axes = pyplot().subplots(
        1, count, figsize=(width * count, height), layout="constrained", squeeze=False, **options
    )
    return figure, list(axes[0])


def save_figure(figure, path):
    """Saves a figure of `panels` to a file and closes it."""
    figure.savefig(path)
    pyplot().close(figure)
    print(f"image: {path}")


def save_curves(path, curves, xlabel="step", ylabel="loss", log=False, smooth=1):
    """Saves a plot of curves.

    Args:
        path: the image file.
        curves: {name: values} or {name: (steps, values)}.
        xlabel, ylabel: labels of the axes.
        log: True for a logarithmic y axis, "both" for two logarithmic axes.
        smooth: number of values that each point averages.
    """
    figure, (axis,) = panels(width=5.6)
    for name, values in curves.items():
        steps, values = values if isinstance(values, tuple) else (range(1, len(values) + 1), values)
        values = [
            sum(part) / len(part) for i in range(len(values)) for part in [values[max(0, i + 1 - smooth) : i + 1]]
        ]
        axis.plot(steps, values, label=name, marker="o" if len(values) < 30 else None, markersize=4)
    axis.set(
        xlabel=xlabel, ylabel=ylabel, xscale="log" if log == "both" else "linear", yscale="log" if log else "linear"
    )
    if log != "both":
        axis.xaxis.get_major_locator().set_params(integer=True)  # integer ticks only
    axis.legend()
    save_figure(figure, path)


def bounds(points):
    """Returns (low, high) of a square that contains all points and the unit square."""
    return min(0.0, points.min().item() - 0.05), max(1.0, points.max().item() + 0.05)


@mytorch.no_grad()
def answers(model, points, side):
    """Computes the probability of class 1 in each cell of the square of `bounds`, (side, side), from the lowest row."""
    low, high = bounds(points)
    cells = low + (mytorch.arange(side).float() + 0.5) * ((high - low) / side)
    grid = mytorch.stack(mytorch.meshgrid(cells, cells, indexing="xy"), -1)
    return model(grid.reshape(-1, 2)).sigmoid().reshape(side, side)


def draw_boundary(axis, probabilities, points, targets, title):
    """Draws the probabilities of `answers`, the decision boundary in black, and the points."""
    low, high = bounds(points)
    side = len(probabilities)
    cells = [low + (i + 0.5) * (high - low) / side for i in range(side)]
    axis.contourf(
        cells, cells, probabilities, levels=[i / 10 for i in range(11)], cmap="coolwarm", alpha=0.7, extend="both"
    )
    axis.contour(cells, cells, probabilities, levels=[0.5], colors="black", linewidths=1.2)
    axis.scatter(*points.T, c=targets, cmap="coolwarm", edgecolors="black", linewidths=0.6, s=18)
    axis.set(title=title, xlim=(low, high), ylim=(low, high), xticks=[], yticks=[])
    axis.grid(False)


@mytorch.no_grad()
def save_answers(model, dataset, path, count=24):
    """Saves test digits with their predictions. Wrong predictions come first, in red, with the correct label."""
    model.eval()
    items = [dataset[i] for i in range(len(dataset))]
    x, y = mytorch.stack([x for x, _ in items]), mytorch.tensor([int(y) for _, y in items])
    guesses = model(x.to(next(model.parameters()).device)).argmax(-1).cpu()
    # wrong predictions first
    order = (guesses == y).long().argsort(stable=True)[:count].tolist()
    plt = pyplot()
    figure, axes = plt.subplots(3, count // 3, figsize=(count / 3, 4.2), layout="constrained")
    for axis, i in zip(axes.flat, order, strict=False):
        guess, label = guesses[i].item(), y[i].item()
        axis.imshow(x[i, 0].numpy(), cmap="gray_r", interpolation="bicubic")
        axis.set_title(
            f"{guess}" if guess == label else f"{guess}, label {label}", color="black" if guess == label else "red"
        )
    for axis in axes.flat:
        axis.axis("off")
    save_figure(figure, path)
