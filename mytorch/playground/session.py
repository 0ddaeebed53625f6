"""Session: a network that is trained on points in the plane, and the data that the page displays."""

from itertools import pairwise
from typing import Any

from ..autograd.mode import no_grad
from ..nn import Linear, ReLU, Sequential, Sigmoid, Tanh
from ..nn import functional as F
from ..ops.creation import linspace
from ..ops.movement import stack
from ..ops.shapes import meshgrid
from ..optim import SGD, Adam
from ..random import manual_seed
from ..tools.drawing import draw
from ..vision.datasets import Toy2D

ACTIVATIONS: dict[str, Any] = {"tanh": Tanh, "relu": ReLU, "sigmoid": Sigmoid}
OPTIMIZERS: dict[str, Any] = {"adam": Adam, "sgd": SGD}
# settings that a page may select, and the maximum numbers of layers and units
CHOICES: dict[str, Any] = {
    "data": list(Toy2D.KINDS), "activation": list(ACTIVATIONS), "optimizer": list(OPTIMIZERS), "layers": 5, "units": 12,
}  # fmt: skip
MOST_STEPS = 200
SIDE, SMALL = 48, 16  # pixels per side of the decision boundary and of a unit's output

DEFAULTS: dict[str, Any] = {
    "data": "circle", "points": 120, "hidden": [6, 4], "activation": "tanh", "optimizer": "adam", "lr": 0.02, "seed": 0,
}  # fmt: skip


def checked(given: Any) -> dict[str, Any]:
    """Return the settings of a request, completed with defaults.

    Raises:
        ValueError: if a name or a value is invalid.
    """
    if not isinstance(given, dict):
        raise ValueError(f"settings: expected an object, got {type(given).__name__}")
    if unknown := sorted(set(given) - set(DEFAULTS)):
        raise ValueError(f"settings: expected {', '.join(DEFAULTS)}, got {', '.join(unknown)}")
    settings = {**DEFAULTS, **given}
    for name in ("data", "activation", "optimizer"):
        if settings[name] not in CHOICES[name]:
            raise ValueError(f"{name}: expected one of {', '.join(CHOICES[name])}, got {settings[name]!r}")
    hidden = settings["hidden"]
    if not isinstance(hidden, list) or len(hidden) > CHOICES["layers"]:
        raise ValueError(f"hidden: expected a list of at most {CHOICES['layers']} layers, got {hidden!r}")
    for units in hidden:
        _whole("units of a layer", units, 1, CHOICES["units"])
    settings["points"] = _whole("points", settings["points"], 10, 500) // 2 * 2
    _whole("seed", settings["seed"], 0, 2**32 - 1)
    lr = settings["lr"]
    if type(lr) not in (int, float) or not 0 < lr <= 10:
        raise ValueError(f"lr: expected a number above 0 and at most 10, got {lr!r}")
    return settings


def _whole(name, value, least, most):
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}: expected an integer from {least} to {most}, got {value!r}")
    return value


class Session:
    """A network, its data and its optimizer. `train` continues the training, and `state` returns the data to display.

    Args:
        settings: settings of the page; missing settings have defaults.
    """

    def __init__(self, settings: dict[str, Any] | None = None):
        self.settings = checked(settings or {})
        manual_seed(self.settings["seed"])
        self.data = Toy2D(self.settings["data"], self.settings["points"])
        points = self.data.points * 2 - 1
        self.low, self.high = min(-1.0, points.min().item()) - 0.1, max(1.0, points.max().item()) + 0.1
        self.points, self.targets = points, self.data.targets.float()
        sizes, layers = [2, *self.settings["hidden"], 1], []
        for into, out in pairwise(sizes):
            layers += [Linear(into, out), ACTIVATIONS[self.settings["activation"]]()]
        self.model = Sequential(*layers[:-1])
        self.optimizer = OPTIMIZERS[self.settings["optimizer"]](self.model.parameters(), lr=self.settings["lr"])
        self.step, self.losses, self.accuracy = 0, [], 0.0
        across = linspace(self.low, self.high, SIDE)
        self.grid = stack(meshgrid(across, across, indexing="xy"), -1).reshape(-1, 2)

    def loss(self):
        """Returns the loss of all points, with its graph."""
        logits = self.model(self.points)[:, 0]
        self.accuracy = ((logits > 0) == (self.targets > 0)).float().mean().item()
        return F.binary_cross_entropy_with_logits(logits, self.targets)

    def train(self, steps: int) -> None:
        """Takes steps of gradient descent on all points.

        Args:
            steps: number of steps.

        Raises:
            ValueError: if steps is not from 1 to MOST_STEPS.
        """
        for _ in range(_whole("steps", steps, 1, MOST_STEPS)):
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            self.losses.append(loss.item())

    @no_grad()
    def state(self) -> dict[str, Any]:
        """Returns the data of the page: outputs of the network and of each unit, weights, gradients and losses."""
        units, x = [], self.grid
        for layer in self.model:
            x = layer(x)
            if not isinstance(layer, Linear):
                small = x.reshape(SIDE, SIDE, -1)[:: SIDE // SMALL, :: SIDE // SMALL]
                scale = small.abs().max().item() or 1.0
                units.append([_rounded(unit / scale, 2) for unit in small.permute(2, 0, 1).reshape(-1, SMALL * SMALL)])
        linear = [layer for layer in self.model if isinstance(layer, Linear)]
        every = max(1, len(self.losses) // 300)
        return {
            "settings": self.settings,
            "step": self.step,
            "loss": self.losses[-1] if self.losses else None,
            "losses": _rounded(self.losses[::-1][::every][::-1], 4),
            "accuracy": round(self.accuracy, 4),
            "bounds": [self.low, self.high],
            "side": SIDE,
            "small": SMALL,
            "answers": _rounded(x.sigmoid()[:, 0], 3),
            "units": units,
            "weights": [_rounded(layer.weight, 4) for layer in linear],
            "biases": [_rounded(layer.bias, 4) for layer in linear],
            "gradients": [None if layer.weight.grad is None else _rounded(layer.weight.grad, 6) for layer in linear],
        }

    def all_points(self) -> list[list[float]]:
        """Returns [x, y, class] of each point."""
        rows = zip(_rounded(self.points, 4), self.data.targets.tolist(), strict=True)
        return [[*point, target] for point, target in rows]

    def graph(self) -> str:
        """Returns the graph of the loss as SVG, with the gradients of backward. It does not change the network."""
        kept = [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]
        loss = self.loss()
        loss.backward(retain_graph=True)
        svg = draw(loss, params=self.model, fold=None).svg(engine="own")
        for p, grad in zip(self.model.parameters(), kept, strict=True):
            p.grad = grad
        return svg


def _rounded(values, digits):
    """Round the numbers in nested lists."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return [_rounded(v, digits) if isinstance(v, list) else round(v, digits) for v in values]
