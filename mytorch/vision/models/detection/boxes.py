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
from ....ops.random import rand, randperm
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


class DefaultBoxGenerator(Module):
    """Generates boxes of fixed sizes and aspect ratios at every position of feature maps, for SSD.

    Args:
        aspect_ratios: widths divided by heights for each feature map; the ratio 1 and the inverse ratios are added.
        min_ratio: size of the boxes of the first feature map, relative to the image.
        max_ratio: size of the boxes of the last feature map.
        scales: sizes for each feature map, and one more (default: from min_ratio to max_ratio, and 1).
        steps: distance of the positions in pixels for each feature map (default: the size of the image divided by the size of
            the feature map).
        clip: limit the sides to the size of the image.

    Raises:
        ValueError: if the lengths of the lists differ.
    """

    def __init__(
        self, aspect_ratios: Sequence[Sequence[int]], min_ratio: float = 0.15, max_ratio: float = 0.9,
        scales: Sequence[float] | None = None, steps: Sequence[int] | None = None, clip: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if steps is not None and len(aspect_ratios) != len(steps):
            raise ValueError(
                f"aspect_ratios and steps should have the same length, got {len(aspect_ratios)} and {len(steps)}."
            )
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        if scales is None:
            last = max(len(aspect_ratios) - 1.0, 1.0)
            scales = [min_ratio + (max_ratio - min_ratio) * k / last for k in range(len(aspect_ratios))]
            scales.append(1.0 if len(aspect_ratios) > 1 else max_ratio)
        self.scales = list(scales)

    def num_anchors_per_location(self) -> list[int]:
        """Returns the number of boxes at a position of each feature map."""
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def _sides(self, k):
        """Return the (width, height) of the boxes of a feature map, relative to the image."""
        scale = self.scales[k]
        between = math.sqrt(scale * self.scales[k + 1])
        sides = [(scale, scale), (between, between)]
        for ratio in self.aspect_ratios[k]:
            long, short = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            sides += [(long, short), (short, long)]
        array = np.array(sides, np.float32)
        return array.clip(0, 1) if self.clip else array

    def forward(self, image_size: tuple[int, int], features: list[Tensor]) -> Tensor:
        """Returns the boxes of all feature maps, (K, 4).

        Args:
            image_size: (height, width) of the batch of images.
            features: feature maps.
        """
        parts, size = [], np.array([image_size[1], image_size[0]], np.float32)
        for k, x in enumerate(features):
            counts = np.array([x.shape[-1], x.shape[-2]], np.float32) if self.steps is None else size / self.steps[k]
            rows, columns = (np.arange(n, dtype=np.float32) + np.float32(0.5) for n in x.shape[-2:])
            grid = np.stack(np.meshgrid(columns / counts[0], rows / counts[1]), -1).reshape(-1, 1, 2)
            half = self._sides(k) * np.float32(0.5)
            parts.append(np.concatenate([(grid - half) * size, (grid + half) * size], -1).reshape(-1, 4))
        return as_tensor(np.concatenate(parts), dtype=features[0].dtype, device=features[0].device)


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
        codes = codes.reshape(len(codes), codes.shape[-1] // 4, 4) / factors
        middle = codes[..., :2] * size + center
        half = codes[..., 2:].clamp(max=self.clip).exp() * size * 0.5
        return cat([middle - half, middle + half], -1)


class BoxLinearCoder:
    """Encodes boxes as the distances of the sides from the centers of other boxes, for FCOS.

    Args:
        normalize_by_size: divide the distances by the sizes of the other boxes.
    """

    def __init__(self, normalize_by_size: bool = True) -> None:
        self.normalize_by_size = normalize_by_size

    def _centers(self, references):
        size = references[..., 2:] - references[..., :2]
        return (references[..., :2] + references[..., 2:]) * 0.5, size if self.normalize_by_size else 1.0

    def encode(self, references: Tensor, boxes: Tensor) -> Tensor:
        """Returns the codes (…, 4) of boxes.

        Args:
            references: (…, 4).
            boxes: (…, 4).
        """
        center, size = self._centers(references)
        return cat([(center - boxes[..., :2]) / size, (boxes[..., 2:] - center) / size], -1)

    def decode(self, codes: Tensor, references: Tensor) -> Tensor:
        """Returns the boxes (…, 4) of codes.

        Args:
            codes: (…, 4).
            references: (…, 4).
        """
        center, size = self._centers(references.to(codes.dtype))
        return cat([center - codes[..., :2] * size, center + codes[..., 2:] * size], -1)


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
        fixed_size: (width, height) of the resized images, which replaces min_size and max_size, or None.
    """

    def __init__(
        self, min_size: int | Sequence[int], max_size: int, image_mean: Sequence[float], image_std: Sequence[float],
        size_divisible: int = 32, fixed_size: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.min_size = (min_size,) if isinstance(min_size, int) else tuple(min_size)
        self.max_size, self.image_mean, self.image_std = max_size, image_mean, image_std
        self.size_divisible, self.fixed_size = size_divisible, fixed_size

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[Tensor, list[tuple[int, int]], list[Target] | None]:
        """Returns (batch (N, C, H, W), size of each image in the batch, resized targets).

        Args:
            images: images (C, H, W) with values from 0 to 1.
            targets: {"boxes": (L, 4), …} of each image, or None; "masks" (L, H, W) and "keypoints" (L, K, 3) are resized too.
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
            scale = self._scale(image)
            x = F.interpolate(((image - mean) / std)[None], mode="bilinear", align_corners=False, **scale)[0]
            results.append(x)
            sizes.append((x.shape[-2], x.shape[-1]))
            if targets is not None:
                target = resize_targets(targets[i], image.shape[-2:], sizes[-1])
                if "masks" in target:
                    target["masks"] = _resize_masks(target["masks"], scale, sizes[-1])
                resized.append(target)
        step = self.size_divisible
        height, width = (-(-max(size[axis] for size in sizes) // step) * step for axis in (0, 1))
        batch = stack([F.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2])) for x in results])
        return batch, sizes, None if targets is None else resized

    def _scale(self, image):
        """Return the arguments of `interpolate` for an image."""
        if self.fixed_size is not None:
            return {"size": (self.fixed_size[1], self.fixed_size[0])}
        short = self.min_size[-1]
        if self.training:
            short = self.min_size[int(rand(1) * len(self.min_size))]
        low, high = min(image.shape[-2:]), max(image.shape[-2:])
        return {"scale_factor": min(short / low, self.max_size / high), "recompute_scale_factor": True}

    def postprocess(
        self, result: list[Target], sizes: Sequence[tuple[int, int]], original: Sequence[tuple[int, int]]
    ) -> list[Target]:
        """Returns the results with boxes, masks and keypoints in the coordinates of the original images.

        Args:
            result: {"boxes": (L, 4), …} of each image; "masks" (L, 1, M, M) are values within the boxes.
            sizes: (height, width) of each image in the batch.
            original: (height, width) of each original image.
        """
        results = []
        for one, size, first in zip(result, sizes, original, strict=True):
            one = resize_targets(one, size, first)
            if "masks" in one:
                one["masks"] = paste_masks(one["masks"], one["boxes"], first)
            results.append(one)
        return results


def _resize_masks(masks, scale, size):
    if not len(masks):
        return masks.new_zeros((0, *size), dtype=dtypes.uint8)
    return F.interpolate(masks[:, None].float(), **scale)[:, 0].to(dtypes.uint8)


def paste_masks(masks: Tensor, boxes: Tensor, size: Sequence[int]) -> Tensor:
    """Returns the masks of whole images (L, 1, *size) for masks within boxes.

    Args:
        masks: (L, 1, M, M).
        boxes: (L, 4).
        size: (height, width) of the image.
    """
    height, width = size
    results = masks.new_zeros((len(masks), 1, height, width))
    # One pixel of zeros around the mask, and a box that is larger by the same factor.
    padded, side = F.pad(masks, (1, 1, 1, 1)), masks.shape[-1]
    center, half = (boxes[:, 2:] + boxes[:, :2]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5 * ((side + 2) / side)
    corners = cat([center - half, center + half], -1).to(INT).tolist()
    for i, (x1, y1, x2, y2) in enumerate(corners):
        shape = (max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1))
        mask = F.interpolate(padded[i][None], size=shape, mode="bilinear", align_corners=False)[0, 0]
        left, top, right, bottom = max(x1, 0), max(y1, 0), min(x2 + 1, width), min(y2 + 1, height)
        if right > left and bottom > top:
            results[i, 0, top:bottom, left:right] = mask[top - y1 : bottom - y1, left - x1 : right - x1]
    return results


def resize_targets(target: Target, original_size: Any, new_size: Any) -> Target:
    """Returns boxes and keypoints of an image of another size, and the other values.

    Args:
        target: {"boxes": (L, 4), …}.
        original_size: (height, width) of the image.
        new_size: (height, width) of the resized image.
    """
    target = {**target, "boxes": resize_boxes(target["boxes"], original_size, new_size)}
    if "keypoints" in target:
        points = target["keypoints"]
        down, across = _ratios(original_size, new_size)
        factors = as_tensor([across, down] + [1.0] * (points.shape[-1] - 2), dtype=points.dtype, device=points.device)
        target["keypoints"] = points * factors
    return target


def _ratios(original_size, new_size):
    return [float(np.float32(new) / np.float32(old)) for new, old in zip(new_size, original_size, strict=True)]


def resize_boxes(boxes: Tensor, original_size: Any, new_size: Any) -> Tensor:
    """Returns boxes of an image of another size.

    Args:
        boxes: (N, 4).
        original_size: (height, width) of the image.
        new_size: (height, width) of the resized image.
    """
    down, across = _ratios(original_size, new_size)
    return boxes * as_tensor([across, down, across, down], dtype=boxes.dtype, device=boxes.device)


def check_targets(images: list[Tensor], targets: list[Target] | None, name: str, keys: Sequence[str] = ()) -> None:
    """Raises an error if the targets of a training step are not valid.

    Args:
        images: the images.
        targets: {"boxes": (L, 4), "labels": (L,)} of each image.
        name: name of the model, for messages.
        keys: keys of other tensors (L, …) that the targets must have.

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
        for key in ("boxes", "labels", *keys):
            if key not in target:
                wanted = "', '".join(("boxes", "labels", *keys)[:-1]) + f"' and '{('labels', *keys)[-1]}"
                raise ValueError(f"{name}: expected the keys '{wanted}' in each target, got {sorted(target)}.")
        boxes = target["boxes"]
        if boxes.ndim != 2 or boxes.shape[-1] != 4:
            raise ValueError(f"{name}: expected target boxes to be a tensor of shape [N, 4], got {list(boxes.shape)}.")
        for key in ("labels", *keys):
            if len(target[key]) != len(boxes):
                raise ValueError(f"{name}: expected {len(boxes)} {key} for image {number}, got {len(target[key])}.")
        bad = (boxes[:, 2:] <= boxes[:, :2]).any(1)
        if bool(bad.any()):
            raise ValueError(
                f"{name}: All bounding boxes should have positive height and width. Found invalid box "
                f"{boxes[bad][0].tolist()} for target at index {number}."
            )


class Detector(Module):
    """Base class of detectors: prepares the images and computes the features.

    Subclasses have the attributes `transform` and `backbone`, and implement `detect`.
    """

    keys: tuple[str, ...] = ()  # keys of the targets in addition to "boxes" and "labels"

    def detect(
        self, shape: tuple[int, int], sizes: list[tuple[int, int]], features: dict[str, Tensor],
        targets: list[Target] | None,
    ) -> tuple[list[Target], dict[str, Tensor]]:  # fmt: skip
        """Returns (results of each image in evaluation, losses in training).

        Args:
            shape: (height, width) of the batch.
            sizes: (height, width) of each image in the batch.
            features: {name: features (N, C, H, W)}.
            targets: targets of each resized image, or None.
        """
        raise NotImplementedError(f"{type(self).__name__}.detect")

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        """Returns a dict of losses in training, and a list of results in evaluation.

        Args:
            images: images (C, H, W) with values from 0 to 1.
            targets: {"boxes": (L, 4), "labels": (L,), …} of each image, in training.

        Raises:
            ValueError: if the targets are missing or invalid in training.
        """
        if self.training:
            check_targets(images, targets, type(self).__name__, self.keys)
        original = [(x.shape[-2], x.shape[-1]) for x in images]
        batch, sizes, targets = self.transform(images, targets)
        features = self.backbone(batch)
        features = {"0": features} if isinstance(features, Tensor) else features
        results, losses = self.detect((batch.shape[-2], batch.shape[-1]), sizes, features, targets)
        return losses if self.training else self.transform.postprocess(results, sizes, original)


def channels_of(backbone: Module, name: str) -> int:
    """Returns the attribute `out_channels` of a backbone.

    Args:
        backbone: the backbone.
        name: name of the detector, for the message.

    Raises:
        ValueError: if the backbone does not have the attribute.
    """
    if not hasattr(backbone, "out_channels"):
        raise ValueError(
            f"{name}: backbone should contain an attribute out_channels specifying the number of output channels."
        )
    return backbone.out_channels


def imagenet_transform(
    min_size: Any, max_size: int, image_mean: Any, image_std: Any, **options: Any
) -> GeneralizedRCNNTransform:
    """Returns the transform of images; the defaults of image_mean and image_std are the values of ImageNet.

    Args:
        min_size: length of the shorter side.
        max_size: maximum length of the longer side.
        image_mean: mean of each channel, or None.
        image_std: standard deviation of each channel, or None.
        options: other arguments of `GeneralizedRCNNTransform`.
    """
    mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
    return GeneralizedRCNNTransform(min_size, max_size, mean, std, **options)


def fan_out(module: Module) -> None:
    """Initializes the convolutions of a module by fan-out, with biases of 0.

    Args:
        module: the module.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def per_anchor(x: Tensor, size: int) -> Tensor:
    """Converts (N, anchors * size, H, W) to (N, H * W * anchors, size).

    Args:
        x: results of a convolution.
        size: number of values of an anchor.
    """
    count, _, height, width = x.shape
    return x.reshape(count, -1, size, height, width).permute(0, 3, 4, 1, 2).reshape(count, -1, size)


def smooth_l1(x: Tensor, y: Tensor, beta: float) -> Tensor:
    """Returns the sum of the smooth L1 losses.

    Args:
        x: predictions.
        y: targets.
        beta: limit between squares and absolute values.
    """
    return nn.functional.smooth_l1_loss(x, y, beta=beta, reduction="sum")


INT = dtypes.int64
