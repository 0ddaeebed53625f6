"""Two-dimensional points with two classes, to draw decision boundaries."""

import numpy as np

from ...arrays.tensor import Tensor
from ...ops.creation import as_tensor
from ...ops.random import Generator, rand
from ...utils.data import Dataset


def _spiral(n):
    """Return two spirals around (0.5, 0.5) with n // 2 points each."""
    half = n // 2
    t = 10.0 * np.arange(5, 5 + half) / half
    arm = np.stack([t * np.cos(t), t * np.sin(t)], axis=1) / 20.0
    points = np.concatenate([arm, arm[:, ::-1] * (1, -1)]) + 0.5
    return points, np.repeat([0, 1], half)


_RULES = {  # True for points of class 1, in the unit square
    "simple": lambda x, y: x < 0.5,
    "diag": lambda x, y: x + y < 0.5,
    "split": lambda x, y: (x < 0.2) | (x > 0.8),
    "xor": lambda x, y: (x < 0.5) != (y < 0.5),
    "circle": lambda x, y: (x - 0.5) ** 2 + (y - 0.5) ** 2 > 0.1,
}


class Toy2D(Dataset):
    """MiniTorch's two-dimensional classification problems with two classes.

    Args:
        kind: "simple" (left or right), "diag" (a corner), "split" (both sides or the middle), "xor", "circle" (outside or
            inside) or "spiral" (two arms, without random numbers).
        size: number of points; even for "spiral".
        generator: source of the random points, which are uniform in the unit square.

    Attributes:
        points: float32 tensor (size, 2).
        targets: int64 tensor (size,) of 0 and 1.

    Raises:
        ValueError: if kind is unknown, or size is odd for "spiral".

    Example:
        >>> points = mytorch.vision.datasets.Toy2D("xor", size=4)
        >>> points.points.shape, points.targets.dtype
        (mytorch.Size([4, 2]), mytorch.int64)
    """

    KINDS = (*_RULES, "spiral")

    def __init__(self, kind: str, size: int = 100, generator: Generator | None = None):
        if kind not in self.KINDS:
            raise ValueError(f"Toy2D: expected kind to be one of {', '.join(self.KINDS)}, got {kind!r}.")
        if kind == "spiral" and size % 2:
            raise ValueError(f"Toy2D: expected an even size for a spiral with two arms, got {size}.")
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
