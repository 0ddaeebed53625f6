"""Parts of detectors that work on boxes: anchors, encoding, matching, sampling, and the preparation of images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import nn
from ...._tensor import Tensor
from ....base import dtypes
from ....nn import functional as F
from ....nn.module import Module
from ....ops.creation import as_tensor
from ....ops.elementwise import where
from ....ops.movement import cat, stack
from ....ops.random import randperm
from ...ops import box_iou

Target = dict[str, Tensor]


class AnchorGenerator(Module):
    """Generates boxes of fixed sizes at every position of feature maps.

    Args:
        sizes: side lengths in pixels for each feature map.
        aspect_ratios: heights divided by widths for each feature map.
    """

    def __init__(
        self, sizes: Sequence[Sequence[int]] = ((128, 256, 512),),
        aspect_ratios: Sequence[Sequence[float]] = ((0.5, 1.0, 2.0),),
    ) -> None:  # fmt: skip
        super().__init__()
        if len(sizes) != len(aspect_ratios):
            raise ValueError(
                f"AnchorGenerator: expected one tuple in aspect_ratios for each of the {len(sizes)} in sizes, got {len(aspect_ratios)}."
            )
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(s, r) for s, r in zip(sizes, aspect_ratios, strict=True)]

    @staticmethod
    def generate_anchors(scales: Sequence[int], aspect_ratios: Sequence[float]) -> Tensor:
        """Returns boxes around the origin, (ratios * sizes, 4).

        Args:
            scales: side lengths.
            aspect_ratios: heights divided by widths.
        """
        root, size = np.sqrt(np.array(aspect_ratios, np.float32)), np.array(scales, np.float32)
        wide, tall = (1 / root[:, None] * size).reshape(-1), (root[:, None] * size).reshape(-1)
        return as_tensor(np.round(np.stack([-wide, -tall, wide, tall], 1) / 2))

    def num_anchors_per_location(self) -> list[int]:
        """Returns the number of boxes at a position of each feature map."""
        return [len(s) * len(r) for s, r in zip(self.sizes, self.aspect_ratios, strict=True)]

    def forward(self, image_size: tuple[int, int], features: list[Tensor]) -> Tensor:
        """Returns the boxes of all feature maps, (K, 4).

        Args:
            image_size: (height, width) of the batch of images.
            features: feature maps.
        """
        if len(features) != len(self.sizes):
            raise ValueError(
                f"AnchorGenerator: expected {len(self.sizes)} feature maps (number of tuples in sizes), got {len(features)}."
            )
        boxes = []
        for x, cell in zip(features, self.cell_anchors, strict=True):
            height, width = x.shape[-2:]
            rows = np.arange(height, dtype=np.float32) * (image_size[0] // height)
            columns = np.arange(width, dtype=np.float32) * (image_size[1] // width)
            y, x_ = (g.reshape(-1) for g in np.meshgrid(rows, columns, indexing="ij"))
            shifts = as_tensor(np.stack([x_, y, x_, y], 1), dtype=x.dtype, device=x.device)
            boxes.append((shifts[:, None] + cell.to(device=x.device, dtype=x.dtype)).reshape(-1, 4))
        return cat(boxes)


class BoxCoder:
    """Encodes boxes relative to other boxes: differences of the centers and logarithms of the sizes.

    Args:
        weights: factors of the four numbers.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights, self.clip = weights, math.log(1000.0 / 16)

    @staticmethod
    def _centers(boxes):
        sizes = boxes[..., 2:] - boxes[..., :2]
        return boxes[..., :2] + 0.5 * sizes, sizes

    def encode(self, boxes: Tensor, references: Tensor) -> Tensor:
        """Returns the codes (N, 4) of boxes.

        Args:
            boxes: (N, 4).
            references: (N, 4).
        """
        (center, size), (other, scale) = self._centers(boxes), self._centers(references)
        factors = as_tensor(self.weights, dtype=boxes.dtype, device=boxes.device)
        return factors * cat([(center - other) / scale, (size / scale).log()], -1)

    def decode(self, codes: Tensor, references: Tensor) -> Tensor:
        """Returns the boxes (N, C, 4) of codes.

        Args:
            codes: (N, 4 * C).
            references: (N, 4).
        """
        center, size = self._centers(references[:, None])
        factors = as_tensor(self.weights, dtype=codes.dtype, device=codes.device)
        codes = codes.reshape(len(codes), -1, 4) / factors
        middle = codes[..., :2] * size + center
        half = codes[..., 2:].clamp(max=self.clip).exp() * size * 0.5
        return cat([middle - half, middle + half], -1)


BELOW, BETWEEN = -1, -2  # results of `match` for boxes without a partner


def match(overlap: Tensor, high: float, low: float, keep_best: bool) -> Tensor:
    """Returns the number of the ground truth box of each box, or BELOW or BETWEEN (the thresholds).

    Args:
        overlap: intersection over union (ground truth boxes, boxes).
        high: lowest overlap of a match.
        low: boxes below this overlap are background.
        keep_best: also match the boxes that overlap most with a ground truth box.
    """
    if not overlap.shape[0]:
        return as_tensor(np.full(overlap.shape[1], BELOW, np.int64), device=overlap.device)
    values, best = overlap.max(0)
    found = where(values < low, BELOW, where(values < high, BETWEEN, best))
    if keep_best:
        top = overlap.amax(1, keepdim=True)
        found = where((overlap == top).any(0), best, found)
    return found


def sample(labels: Tensor, count: int, share: float) -> tuple[Tensor, Tensor]:
    """Returns the indices of random positive (label >= 1) and negative (label 0) boxes.

    Args:
        labels: label of each box; negative labels are ignored.
        count: number of boxes.
        share: maximum share of positive boxes.
    """
    positive, negative = (labels >= 1).nonzero()[:, 0], (labels == 0).nonzero()[:, 0]
    several = min(len(positive), int(count * share))
    others = min(len(negative), count - several)
    chosen = [x[randperm(len(x), device=x.device)[:n]] for x, n in ((positive, several), (negative, others))]
    return chosen[0], chosen[1]


def overlaps(targets: Tensor, boxes: Tensor) -> Tensor:
    """Returns the intersection over union (targets, boxes), also without targets.

    Args:
        targets: ground truth boxes.
        boxes: boxes.
    """
    return box_iou(targets.to(boxes.dtype).reshape(-1, 4), boxes)


class GeneralizedRCNNTransform(Module):
    """Normalizes and resizes images and boxes, and combines the images to one batch.

    Args:
        min_size: length of the shorter side; several lengths are chosen at random in training.
        max_size: maximum length of the longer side.
        image_mean: mean of each channel.
        image_std: standard deviation of each channel.
        size_divisible: divisor of the sides of the batch.
    """

    def __init__(
        self, min_size: int | Sequence[int], max_size: int, image_mean: Sequence[float], image_std: Sequence[float],
        size_divisible: int = 32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.min_size = (min_size,) if isinstance(min_size, int) else tuple(min_size)
        self.max_size, self.image_mean, self.image_std = max_size, image_mean, image_std
        self.size_divisible = size_divisible

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[Tensor, list[tuple[int, int]], list[Target] | None]:
        """Returns (batch (N, C, H, W), size of each image in the batch, resized targets).

        Args:
            images: images (C, H, W) with values from 0 to 1.
            targets: {"boxes": (L, 4), …} of each image, or None.
        """
        results, sizes, resized = [], [], []
        for i, image in enumerate(images):
            if image.ndim != 3:
                raise ValueError(f"images: expected a list of images (C, H, W), got shape {tuple(image.shape)}.")
            if not image.is_floating_point():
                raise TypeError(
                    f"images: expected float images with values from 0 to 1, got {image.dtype}. Use convert_image_dtype."
                )
            like = {"dtype": image.dtype, "device": image.device}
            mean, std = (as_tensor(v, **like)[:, None, None] for v in (self.image_mean, self.image_std))
            x = self._resized((image - mean) / std)
            results.append(x)
            sizes.append((x.shape[-2], x.shape[-1]))
            if targets is not None:
                boxes = resize_boxes(targets[i]["boxes"], image.shape[-2:], sizes[-1])
                resized.append({**targets[i], "boxes": boxes})
        step = self.size_divisible
        height, width = (-(-max(size[axis] for size in sizes) // step) * step for axis in (0, 1))
        batch = stack([F.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2])) for x in results])
        return batch, sizes, None if targets is None else resized

    def _resized(self, x):
        short = self.min_size[-1]
        if self.training:
            short = self.min_size[int(randperm(len(self.min_size), device="cpu")[0])]
        low, high = min(x.shape[-2:]), max(x.shape[-2:])
        factor = min(short / low, self.max_size / high)
        return F.interpolate(
            x[None], scale_factor=factor, mode="bilinear", align_corners=False, recompute_scale_factor=True
        )[0]  # fmt: skip

    def postprocess(
        self, result: list[Target], sizes: Sequence[tuple[int, int]], original: Sequence[tuple[int, int]]
    ) -> list[Target]:
        """Returns the results with boxes in the coordinates of the original images.

        Args:
            result: {"boxes": (L, 4), …} of each image.
            sizes: (height, width) of each image in the batch.
            original: (height, width) of each original image.
        """
        pairs = zip(result, sizes, original, strict=True)
        return [{**r, "boxes": resize_boxes(r["boxes"], size, first)} for r, size, first in pairs]


def resize_boxes(boxes: Tensor, original_size: Any, new_size: Any) -> Tensor:
    """Returns boxes of an image of another size.

    Args:
        boxes: (N, 4).
        original_size: (height, width) of the image.
        new_size: (height, width) of the resized image.
    """
    down, across = (float(np.float32(new) / np.float32(old)) for new, old in zip(new_size, original_size, strict=True))
    return boxes * as_tensor([across, down, across, down], dtype=boxes.dtype, device=boxes.device)


def check_targets(images: list[Tensor], targets: list[Target] | None, name: str) -> None:
    """Raises an error if the targets of a training step are not valid.

    Args:
        images: the images.
        targets: {"boxes": (L, 4), "labels": (L,)} of each image.
        name: name of the model, for messages.

    Raises:
        ValueError: the targets are missing, or a box has no area.
    """
    if targets is None:
        raise ValueError(
            f"{name}: targets should not be None when in training mode. Pass a list with one dict per image."
        )
    if len(targets) != len(images):
        raise ValueError(f"{name}: expected one target for each of the {len(images)} images, got {len(targets)}.")
    for number, target in enumerate(targets):
        for key in ("boxes", "labels"):
            if key not in target:
                raise ValueError(
                    f"{name}: expected the keys 'boxes' and 'labels' in each target, got {sorted(target)}."
                )
        boxes = target["boxes"]
        if boxes.ndim != 2 or boxes.shape[-1] != 4:
            raise ValueError(f"{name}: expected target boxes to be a tensor of shape [N, 4], got {list(boxes.shape)}.")
        if len(target["labels"]) != len(boxes):
            raise ValueError(f"{name}: expected {len(boxes)} labels for image {number}, got {len(target['labels'])}.")
        bad = (boxes[:, 2:] <= boxes[:, :2]).any(1)
        if bool(bad.any()):
            raise ValueError(
                f"{name}: All bounding boxes should have positive height and width. Found invalid box "
                f"{boxes[bad][0].tolist()} for target at index {number}."
            )


def smooth_l1(x: Tensor, y: Tensor, beta: float) -> Tensor:
    """Returns the sum of the smooth L1 losses.

    Args:
        x: predictions.
        y: targets.
        beta: limit between squares and absolute values.
    """
    return nn.functional.smooth_l1_loss(x, y, beta=beta, reduction="sum")


INT = dtypes.int64
