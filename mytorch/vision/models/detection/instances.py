"""Results and losses of masks and keypoints within boxes."""

from ...._tensor import Tensor
from ....nn import functional as F
from ....ops.creation import arange, ones, zeros
from ....ops.movement import cat, stack
from ...ops import roi_align
from .boxes import INT, Target


def add_masks(result: Target, logits: Tensor) -> None:
    """Adds the masks (L, 1, M, M) of the labels to the result of an image.

    Args:
        result: {"labels": (L,), …}.
        logits: (L, classes, M, M).
    """
    rows = arange(len(logits), device=logits.device)
    result["masks"] = logits.sigmoid()[rows, result["labels"]][:, None]


def mask_loss(logits: Tensor, boxes: list[Tensor], targets: list[Target], partners: list[Tensor]) -> Tensor:
    """Computes the binary cross-entropy of the masks within the boxes.

    Args:
        logits: (K, classes, M, M) for the boxes of all images.
        boxes: boxes of each image.
        targets: {"masks": (L, H, W), "labels": (L,)} of each image.
        partners: index of the ground truth of each box.
    """
    labels = cat([target["labels"][i] for target, i in zip(targets, partners, strict=True)]).to(INT)
    if not len(labels):
        return logits.sum() * 0
    size, wanted = logits.shape[-1], []
    for target, box, i in zip(targets, boxes, partners, strict=True):
        rows = cat([i.to(box.dtype)[:, None], box], 1)
        masks = target["masks"][:, None].to(box.dtype)
        wanted.append(roi_align(masks, rows, (size, size), 1.0)[:, 0])
    chosen = logits[arange(len(labels), device=labels.device), labels]
    return F.binary_cross_entropy_with_logits(chosen, cat(wanted))


def add_keypoints(result: Target, maps: Tensor) -> None:
    """Adds the positions (L, K, 3) of the maxima of the maps, and their scores (L, K), to the result of an image.

    Args:
        result: {"boxes": (L, 4), …}.
        maps: (L, K, M, M).
    """
    count, points, scores = maps.shape[1], [], []
    for box, one in zip(result["boxes"], maps, strict=True):
        size = (box[2:] - box[:2]).clamp(min=1)
        width, height = (int(n) for n in size.ceil().tolist())
        large = F.interpolate(one[:, None], size=(height, width), mode="bicubic", align_corners=False)[:, 0].flatten(1)
        best = large.argmax(1)
        at = stack([best % width, best // width], 1).to(box.dtype) + 0.5
        factors = size / size.ceil()
        points.append(cat([at * factors + box[:2], ones(count, 1, dtype=box.dtype, device=box.device)], 1))
        scores.append(large.gather(1, best[:, None])[:, 0])
    like = {"dtype": maps.dtype, "device": maps.device}
    result["keypoints"] = stack(points) if points else zeros(0, count, 3, **like)
    result["keypoints_scores"] = stack(scores) if scores else zeros(0, count, **like)


def keypoint_loss(maps: Tensor, boxes: list[Tensor], targets: list[Target], partners: list[Tensor]) -> Tensor:
    """Computes the cross-entropy of the positions of visible keypoints within the boxes.

    Args:
        maps: logits (B, K, M, M) for the boxes of all images.
        boxes: boxes of each image.
        targets: {"keypoints": (L, K, 3)} of each image: x, y and 1 for a visible keypoint.
        partners: index of the ground truth of each box.
    """
    size, positions, visible = maps.shape[-1], [], []
    for target, box, i in zip(targets, boxes, partners, strict=True):
        points = target["keypoints"][i]
        low, high = box[:, None, :2], box[:, None, 2:]
        at = ((points[..., :2] - low) * (size / (high - low))).floor().to(INT)
        at = at.where(points[..., :2] != high, size - 1)  # the border of the box is in the last row or column
        inside = ((at >= 0) & (at < size)).all(-1) & (points[..., 2] > 0)
        positions.append((at[..., 1] * size + at[..., 0]).flatten())
        visible.append(inside.flatten())
    rows = cat(visible).nonzero()[:, 0]
    if not len(rows):
        return maps.sum() * 0
    return F.cross_entropy(maps.flatten(2).flatten(0, 1)[rows], cat(positions)[rows])
