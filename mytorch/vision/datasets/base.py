"""Base classes of the image datasets."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.creation import as_tensor
from ...utils.data import Dataset

Change = Callable[[Any], Any]


class StandardTransform:
    """A function of (image, target) that transforms each with its own function.

    Args:
        transform: function of the image, or None.
        target_transform: function of the target, or None.
    """

    def __init__(self, transform: Change | None = None, target_transform: Change | None = None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self):
        lines = [type(self).__name__]
        for head, function in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if function is not None:
                first, *others = repr(function).splitlines()
                lines += [head + first, *(" " * len(head) + line for line in others)]
        return "\n".join(lines)


class VisionDataset(Dataset):
    """A dataset of (image, target) pairs with optional transforms.

    Args:
        root: folder of the dataset.
        transforms: function of (image, target) that returns both.
        transform: function of the image, instead of `transforms`.
        target_transform: function of the target, instead of `transforms`.

    Raises:
        ValueError: if `transforms` is combined with one of the other two.
    """

    def __init__(
        self, root: str | os.PathLike | None = None, transforms: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        transform: Change | None = None, target_transform: Change | None = None,
    ):  # fmt: skip
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform = transform
        self.target_transform = target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def __len__(self) -> int:
        raise NotImplementedError("Subclasses of VisionDataset should implement __len__.")

    def _changed(self, picture, target):
        """Apply the transforms to a pair."""
        if self.transforms is not None and not isinstance(self.transforms, StandardTransform):
            return self.transforms(picture, target)
        return StandardTransform(self.transform, self.target_transform)(picture, target)  # programs may set `transform`

    def __repr__(self):
        lines = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        if self.transforms is not None:
            lines.append(repr(self.transforms))
        return "\n    ".join([f"Dataset {type(self).__name__}", *lines])

    def extra_repr(self) -> str:
        """Returns additional lines for `print`."""
        return ""


class SplitInMemory(VisionDataset):
    """uint8 images `data` and targets `targets` in memory, of the training set (`train`) or the test set."""

    train: bool

    def _hold(self, pictures, targets):
        """Store them as tensors."""
        self.data = as_tensor(np.ascontiguousarray(pictures, np.uint8), device="cpu")
        self.targets = as_tensor(np.ascontiguousarray(targets, np.int64), device="cpu")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._changed(as_picture(np.asarray(self.data[index])), int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        """Returns the name of the split."""
        return f"Split: {'Train' if self.train else 'Test'}"


def as_picture(array):
    """Convert a uint8 array (H, W) or (H, W, 3) to a PIL image; without Pillow, return the array itself.

    The transforms accept both.
    """
    try:
        from PIL import Image
    except ImportError:
        return array
    return Image.fromarray(np.ascontiguousarray(array))
