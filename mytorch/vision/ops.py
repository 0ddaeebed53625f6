"""Boxes and regions of images, with the names of `torchvision.ops`.

Boxes are tensors (N, 4) of (x1, y1, x2, y2). In PyTorch mode, the package torchvision itself has further operations.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._extensions import lazy
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..ops import regions
from ..ops.creation import as_tensor
from ..ops.dispatch.unwrap import raw_of, to_cpu
from ..ops.elementwise import clamp, maximum, minimum
from ..ops.movement import cat, stack
from ..ops.regions import batched_nms, deform_conv2d, nms

__all__ = [
    "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "deform_conv2d", "distance_box_iou",
    "generalized_box_iou", "masks_to_boxes", "nms", "remove_small_boxes", "roi_align", "roi_pool",
]  # fmt: skip
__path__: list[str] = []  # for the advice about torchvision's `ops.boxes` and `ops.misc`
__getattr__, __dir__ = lazy(__name__)
_FORMS = ("xyxy", "xywh", "cxcywh")


def box_area(boxes: Tensor) -> Tensor:
    """Computes the areas of boxes, (N,).

    Args:
        boxes: (N, 4).
    """
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlaps(boxes1, boxes2):
    """Return (intersections, unions) of boxes (…, 4), which are broadcast."""
    low, high = maximum(boxes1[..., :2], boxes2[..., :2]), minimum(boxes1[..., 2:], boxes2[..., 2:])
    sides = (high - low).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    return inter, box_area(boxes1) + box_area(boxes2) - inter


def _around(boxes1, boxes2):
    """Return the sides (…, 2) of the boxes around two boxes."""
    low, high = minimum(boxes1[..., :2], boxes2[..., :2]), maximum(boxes1[..., 2:], boxes2[..., 2:])
    return (high - low).clamp(min=0)


def _generalized(boxes1, boxes2, eps=0.0):
    inter, union = _overlaps(boxes1, boxes2)
    sides = _around(boxes1, boxes2)
    around = sides[..., 0] * sides[..., 1]
    return inter / (union + eps) - (around - union) / (around + eps)


def _distance(boxes1, boxes2, iou, eps):
    """Return IoU minus the squared distance of the centers, relative to the squared diagonal of the enclosing box."""
    diagonal = (_around(boxes1, boxes2) ** 2).sum(-1) + eps
    first, second = ((boxes[..., :2] + boxes[..., 2:]) / 2 for boxes in (boxes1, boxes2))
    return iou - ((first - second) ** 2).sum(-1) / diagonal


def _shape_term(boxes1, boxes2, iou, eps):
    """Return the penalty of different aspect ratios."""
    first, second = (((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])).atan() for b in (boxes1, boxes2))
    v = (4 / math.pi**2) * (first - second) ** 2
    with no_grad():
        alpha = v / (1 - iou + v + eps)
    return alpha * v


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Computes the intersection over union of every pair of boxes, (N, M).

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).

    Example:
        >>> boxes = tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
        >>> mytorch.vision.ops.box_iou(boxes, boxes)
        tensor([[1.0000, 0.3333],
                [0.3333, 1.0000]])
    """
    inter, union = _overlaps(boxes1[:, None], boxes2)
    return inter / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Computes the generalized intersection over union of every pair of boxes, (N, M). Source: Rezatofighi et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
    """
    return _generalized(boxes1[:, None], boxes2)


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Computes the distance intersection over union of every pair of boxes, (N, M). Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
        eps: number that is added to the squared diagonal of the enclosing box (default: 1e-7).
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    return _distance(boxes1[:, None], boxes2, box_iou(boxes1, boxes2), eps)


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Computes the complete intersection over union of every pair of boxes, (N, M). Source: Zheng et al., 2019.

    Args:
        boxes1: (N, 4).
        boxes2: (M, 4).
        eps: number that is added to the denominators (default: 1e-7).
    """
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    iou, boxes1 = box_iou(boxes1, boxes2), boxes1[:, None]
    return _distance(boxes1, boxes2, iou, eps) - _shape_term(boxes1, boxes2, iou, eps)


def _as_float(boxes):
    return boxes if boxes.is_floating_point() else boxes.float()


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Converts boxes to another format.

    Args:
        boxes: (N, 4).
        in_fmt: format of the input: "xyxy", "xywh" (corner and size) or "cxcywh" (center and size).
        out_fmt: format of the result.

    Raises:
        ValueError: if a format is unknown.
    """
    if in_fmt not in _FORMS or out_fmt not in _FORMS:
        raise ValueError(f"box_convert: expected formats in {', '.join(_FORMS)}, got {in_fmt!r} and {out_fmt!r}.")
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == "cxcywh":
        first = first - second / 2
    low, high = (first, second) if in_fmt == "xyxy" else (first, first + second)
    if out_fmt == "xyxy":
        return cat([low, high], -1)
    return cat([low if out_fmt == "xywh" else (low + high) / 2, high - low], -1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Clips boxes at the borders of an image.

    Args:
        boxes: (…, 4).
        size: (height, width) of the image.
    """
    height, width = size
    x, y = clamp(boxes[..., 0::2], 0, width), clamp(boxes[..., 1::2], 0, height)
    return stack([x, y], -1).reshape(boxes.shape)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Returns the indices of the boxes whose width and height are at least min_size.

    Args:
        boxes: (N, 4).
        min_size: minimum width and height.
    """
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return ((width >= min_size) & (height >= min_size)).nonzero(as_tuple=True)[0]


def masks_to_boxes(masks: Tensor) -> Tensor:
    """Computes the bounding boxes of masks, (N, 4).

    Args:
        masks: (N, H, W).
    """
    raw = to_cpu(raw_of(masks))
    boxes = np.zeros((len(raw), 4), np.float32)
    for box, mask in zip(boxes, raw, strict=True):
        y, x = np.nonzero(mask)
        box[:] = x.min(), y.min(), x.max(), y.max()
    return as_tensor(boxes, device=masks.device)


def _numbered(boxes):
    """Returns boxes (K, 5) with the number of the image first, from a tensor of this shape or a list of boxes (L, 4)."""
    if isinstance(boxes, Tensor):
        return boxes
    return cat([cat([b.new_full((len(b), 1), i), b], 1) for i, b in enumerate(boxes)])


def _two(size):
    return (size, size) if isinstance(size, int) else tuple(size)


def roi_align(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Any, spatial_scale: float = 1.0,
    sampling_ratio: int = -1, aligned: bool = False,
) -> Tensor:  # fmt: skip
    """Extracts regions of images by averaging bilinear samples over a grid: (K, C, *output_size). Source: He et al., 2017.

    Args:
        input: images or feature maps (N, C, H, W).
        boxes: (K, 5), with the number of the image first, or a list of boxes (L, 4) for each image.
        output_size: (height, width), or one number for both.
        spatial_scale: size of the input divided by the size of the image, which the boxes refer to.
        sampling_ratio: number of samples per bin and axis; if not positive, the number of pixels in the bin.
        aligned: shift the boxes by half a pixel, for correct alignment.

    Example:
        >>> image = mytorch.arange(16.0).reshape(1, 1, 4, 4)
        >>> mytorch.vision.ops.roi_align(image, [tensor([[0.0, 0.0, 4.0, 4.0]])], 1, aligned=True).item()
        7.5
    """
    height, width = _two(output_size)
    return regions.roi_align(input, _numbered(boxes), spatial_scale, height, width, sampling_ratio, aligned)


def roi_pool(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Any, spatial_scale: float = 1.0
) -> Tensor:  # fmt: skip
    """Extracts regions of images by the maximum of each bin: (K, C, *output_size). Source: Girshick, 2015.

    Args:
        input: images or feature maps (N, C, H, W).
        boxes: see `roi_align`.
        output_size: see `roi_align`.
        spatial_scale: see `roi_align`.
    """
    return regions.roi_pool(input, _numbered(boxes), spatial_scale, *_two(output_size))[0]
