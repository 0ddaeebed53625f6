"""Points in the plane with two classes: problems whose answers can be drawn."""

import numpy as np

from ..._tensor import Tensor
from ...ops.creation import as_tensor
from ...ops.random import Generator, rand
from ...utils.data import Dataset


def _spiral(n):
    """Two spirals that wind around (0.5, 0.5), n // 2 points each."""
    half = n // 2
    t = 10.0 * np.arange(5, 5 + half) / half
    arm = np.stack([t * np.cos(t), t * np.sin(t)], axis=1) / 20.0
    points = np.concatenate([arm, arm[:, ::-1] * (1, -1)]) + 0.5
    return points, np.repeat([0, 1], half)


_RULES = {  # which points of the unit square are of class 1
    "simple": lambda x, y: x < 0.5,
    "diag": lambda x, y: x + y < 0.5,
    "split": lambda x, y: (x < 0.2) | (x > 0.8),
    "xor": lambda x, y: (x < 0.5) != (y < 0.5),
    "circle": lambda x, y: (x - 0.5) ** 2 + (y - 0.5) ** 2 > 0.1,
}


class Toy2D(Dataset):
    """MiniTorch's two-dimensional problems: points, and which of two classes each is in.

    Args:
        kind: "simple" (left or right), "diag" (a corner cut off), "split" (both sides or the middle), "xor",
            "circle" (outside or inside) or "spiral" (one arm or the other; nothing is drawn at random).
        size: how many points; even for "spiral".
        generator: what the points are drawn from, uniform in the unit square.

    Attributes:
        points: float32 tensor (size, 2).
        targets: int64 tensor (size,), 0 or 1.

    Raises:
        ValueError: another kind, or an odd number of points on two arms.
    """

    KINDS = (*_RULES, "spiral")

    def __init__(self, kind: str, size: int = 100, generator: Generator | None = None):
        if kind not in self.KINDS:
            raise ValueError(f"Toy2D: kind is {kind!r}; expected one of {', '.join(self.KINDS)}.")
        if kind == "spiral" and size % 2:
            raise ValueError(f"Toy2D: a spiral has two equal arms; size is {size}, expected an even number.")
        self.kind = kind
        if kind == "spiral":
            points, targets = _spiral(size)
        else:
            points = rand(size, 2, generator=generator, device="cpu").numpy()
            targets = _RULES[kind](points[:, 0], points[:, 1])
        self.points = as_tensor(points.astype(np.float32), device="cpu")
        self.targets = as_tensor(targets.astype(np.int64), device="cpu")

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.points[index], self.targets[index]

    def __len__(self) -> int:
        return len(self.points)
