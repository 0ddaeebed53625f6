"""Random images with labels, for testing a pipeline."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.random import Generator, randint, randn
from .base import Change, VisionDataset, as_picture


class FakeData(VisionDataset):
    """Random images with random labels. An index always gives the same item, which equals torchvision's item.

    Args:
        size: number of images.
        image_size: (C, H, W), with 1 or 3 channels.
        num_classes: number of classes; labels are from 0 to num_classes - 1.
        transform: function of the image.
        target_transform: function of the target.
        random_offset: number to add to an index for its seed.

    Items are (image, int). The image is a PIL image, or a uint8 array (H, W) or (H, W, 3) without Pillow.

    Raises:
        ValueError: if the number of channels is not 1 or 3.
    """

    def __init__(
        self, size: int = 1000, image_size: Sequence[int] = (3, 224, 224), num_classes: int = 10,
        transform: Change | None = None, target_transform: Change | None = None, random_offset: int = 0,
    ):  # fmt: skip
        super().__init__(transform=transform, target_transform=target_transform)
        if len(image_size) != 3 or image_size[0] not in (1, 3):
            raise ValueError(f"FakeData: expected image_size to be (1, H, W) or (3, H, W), got {tuple(image_size)}.")
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
        pixels = (noise * np.float32(255)).astype(np.int64).astype(np.uint8)  # values outside the range wrap around
        pixels = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
        return self._changed(as_picture(pixels), target)

    def __len__(self) -> int:
        return self.size
