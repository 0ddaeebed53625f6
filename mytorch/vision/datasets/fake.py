"""Noise with labels, for trying out a pipeline."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.random import Generator, randint, randn
from .base import Change, VisionDataset, as_picture


class FakeData(VisionDataset):
    """Random pictures with random labels, the same for an index each time, and the same as torchvision's.

    Args:
        size: how many.
        image_size: (C, H, W), with 1 or 3 channels.
        num_classes: labels lie in [0, num_classes).
        random_offset: added to an index to give its seed.

    Items are (picture, int): a PIL image, or a uint8 array (H, W) or (H, W, 3) without Pillow.

    Raises:
        ValueError: another number of channels.
    """

    def __init__(
        self, size: int = 1000, image_size: Sequence[int] = (3, 224, 224), num_classes: int = 10,
        transform: Change | None = None, target_transform: Change | None = None, random_offset: int = 0,
    ):  # fmt: skip
        super().__init__(transform=transform, target_transform=target_transform)
        if len(image_size) != 3 or image_size[0] not in (1, 3):
            raise ValueError(f"FakeData: image_size is {tuple(image_size)}; expected (1, H, W) or (3, H, W).")
        self.size = size
        self.image_size = tuple(image_size)
        self.num_classes = num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = Generator().manual_seed(index + self.random_offset)
        noise = randn(self.image_size, generator=generator, device="cpu").numpy()
        target = int(randint(0, self.num_classes, (1,), generator=generator, device="cpu")[0])
        pixels = (noise * np.float32(255)).astype(np.int64).astype(np.uint8)  # what is outside wraps around
        pixels = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
        return self._changed(as_picture(pixels), target)

    def __len__(self) -> int:
        return self.size
