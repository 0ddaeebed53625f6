"""RetinaNet. Source: Lin et al., 2017. The base class of detectors without proposals is also in this file."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....engine.mode import no_grad
from ....nn import functional as F
from ....nn.module import Module
from ....ops.creation import zeros_like
from ....ops.movement import cat
from ... import ops
from . import boxes as parts
from .backbone import builder, resnet50_pyramid
from .boxes import AnchorGenerator, BoxCoder, Detector, Target, per_anchor


class DenseDetector(Detector):
    """Base class of detectors that classify a fixed set of boxes.

    Subclasses have the attributes `head`, `anchor_generator` and `coder`, and implement `match`, `losses` and `scores`.
    """

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
        levels = list(features.values())
        outputs, anchors = self.head(levels), self.anchor_generator(shape, levels)
        numbers = self.anchor_generator.num_anchors_per_location()
        counts = [x.shape[-2] * x.shape[-1] * n for x, n in zip(levels, numbers, strict=True)]
        if self.training and targets is not None:
            with no_grad():
                matched = [self.match(target["boxes"].to(anchors.dtype), anchors, counts) for target in targets]
            return [], self.losses(outputs, anchors, targets, matched)
        results = []
        for i, size in enumerate(sizes):
            one = {name: value[i] for name, value in outputs.items()}
            results.append(self.results(one, anchors, counts, size))
        return results, {}

    def match(self, boxes: Tensor, anchors: Tensor, counts: list[int]) -> Tensor:
        """Returns the index of the box of each anchor; it is negative for anchors without a box.

        Args:
            boxes: ground truth of an image.
            anchors: anchors of all levels.
            counts: number of anchors of each level.
        """
        raise NotImplementedError(f"{type(self).__name__}.match")

    def losses(
        self, outputs: dict[str, Tensor], anchors: Tensor, targets: list[Target], matched: list[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the losses.

        Args:
            outputs: results of the head.
            anchors: anchors of all levels.
            targets: ground truth of each image.
            matched: results of `match` for each image.
        """
        raise NotImplementedError(f"{type(self).__name__}.losses")

    def scores(self, outputs: dict[str, Tensor]) -> Tensor:
        """Returns the scores (K, classes) of the anchors of an image.

        Args:
            outputs: results of the head for an image.
        """
        return outputs["cls_logits"].sigmoid()

    def results(self, outputs: dict[str, Tensor], anchors: Tensor, counts: list[int], size: tuple[int, int]) -> Target:
        """Returns the result of an image: the best boxes of each level, after suppression within each class.

        Args:
            outputs: results of the head for an image.
            anchors: anchors of all levels.
            counts: number of anchors of each level.
            size: (height, width) of the image.
        """
        scores, start, chosen = self.scores(outputs), 0, []
        classes = scores.shape[-1]
        for count in counts:
            level = scores[start : start + count].flatten()
            rows = (level > self.score_thresh).nonzero()[:, 0]
            best = level[rows].topk(min(self.topk_candidates, len(rows)))[1]
            chosen.append(rows[best] + start * classes)
            start += count
        index = cat(chosen)
        rows, labels = index // classes, index % classes
        boxes = self.coder.decode(outputs["bbox_regression"][rows], anchors[rows]).reshape(-1, 4)
        return self.suppressed(boxes, scores.flatten()[index], labels, size)

    def suppressed(self, boxes: Tensor, scores: Tensor, labels: Tensor, size: tuple[int, int]) -> Target:
        """Returns the best results of an image, after suppression within each class.

        Args:
            boxes: (K, 4).
            scores: (K,).
            labels: (K,).
            size: (height, width) of the image.
        """
        boxes = ops.clip_boxes_to_image(boxes, size)
        kept = ops.batched_nms(boxes, scores, labels, self.nms_thresh)[: self.detections_per_img]
        return {"boxes": boxes[kept], "scores": scores[kept], "labels": labels[kept]}


def drawn(module: Module) -> None:
    """Initializes the convolutions from a normal distribution with standard deviation 0.01, and biases of 0.

    Args:
        module: the module.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class ClassificationHead(Module):
    """Base class of heads that compute the logits of the classes for each anchor.

    Args:
        convolutions: the hidden convolutions.
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_classes: number of classes.
        prior_probability: probability of each class at the start of training.
    """

    def __init__(
        self,
        convolutions: nn.Sequential,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        prior_probability: float,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.conv = convolutions
        drawn(self.conv)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, 3, padding=1)
        drawn(self.cls_logits)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))

    def forward(self, x: list[Tensor]) -> Tensor:
        """Returns logits (N, K, num_classes).

        Args:
            x: features (N, C, H, W) of each level.
        """
        return cat([per_anchor(self.cls_logits(self.conv(level)), self.num_classes) for level in x], 1)


def class_targets(logits: Tensor, labels: Tensor, matched: Tensor) -> Tensor:
    """Returns 1 for the class of each matched anchor, otherwise 0, in the shape of the logits (K, classes).

    Args:
        logits: (K, classes).
        labels: labels of the ground truth of the image.
        matched: index of the ground truth of each anchor, or a negative number.
    """
    wanted, rows = zeros_like(logits), (matched >= 0).nonzero()[:, 0]
    wanted[rows, labels[matched[rows]]] = 1.0
    return wanted


class RetinaNetClassificationHead(ClassificationHead):
    """Convolutions that compute the logits of the classes for each anchor.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_classes: number of classes.
        prior_probability: probability of each class at the start of training.
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, prior_probability: float = 0.01,
        norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        convolutions = _convolutions(in_channels, norm_layer)
        super().__init__(convolutions, in_channels, num_anchors, num_classes, prior_probability)


class RetinaNetRegressionHead(Module):
    """Convolutions that compute a code for each anchor.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    _loss_type = "l1"

    def __init__(self, in_channels: int, num_anchors: int, norm_layer: Callable[..., Module] | None = None) -> None:
        super().__init__()
        self.conv = _convolutions(in_channels, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, 3, padding=1)
        drawn(self.bbox_reg)
        drawn(self.conv)

    def forward(self, x: list[Tensor]) -> Tensor:
        """Returns codes (N, K, 4).

        Args:
            x: features (N, C, H, W) of each level.
        """
        return cat([per_anchor(self.bbox_reg(self.conv(level)), 4) for level in x], 1)


def _convolutions(channels, norm_layer):
    return nn.Sequential(*[ops.Conv2dNormActivation(channels, channels, norm_layer=norm_layer) for _ in range(4)])


class RetinaNetHead(Module):
    """The heads of RetinaNet.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_classes: number of classes.
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, norm_layer: Callable[..., Module] | None = None
    ) -> None:
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(
            in_channels, num_anchors, num_classes, norm_layer=norm_layer
        )
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Returns {"cls_logits": (N, K, num_classes), "bbox_regression": (N, K, 4)}.

        Args:
            x: features (N, C, H, W) of each level.
        """
        return {"cls_logits": self.classification_head(x), "bbox_regression": self.regression_head(x)}


class RetinaNet(DenseDetector):
    """RetinaNet: classifies anchors with the focal loss.

    In training, the model returns a dict of losses. In evaluation, it returns {"boxes": (L, 4), "labels": (L,), "scores": (L,)} for
    each image.

    Args:
        backbone: module that returns features, with the attribute `out_channels`.
        num_classes: number of classes.
        min_size: length of the shorter side of the resized images.
        max_size: maximum length of the longer side.
        image_mean: mean of each channel (default: the mean of ImageNet).
        image_std: standard deviation of each channel (default: the values of ImageNet).
        anchor_generator: an `AnchorGenerator` (default: three sizes for each of five levels).
        head: a `RetinaNetHead`.
        score_thresh: lowest probability of a result.
        nms_thresh: overlap for the suppression of results.
        detections_per_img: maximum number of results of an image.
        fg_iou_thresh: anchors with at least this overlap are objects in training.
        bg_iou_thresh: anchors below this overlap are background in training.
        topk_candidates: maximum number of results of a level before suppression.
        kwargs: `size_divisible` and `fixed_size` of `GeneralizedRCNNTransform`.

    Raises:
        ValueError: if the backbone has no `out_channels`.
    """

    def __init__(
        self, backbone: Module, num_classes: int, min_size: int | Sequence[int] = 800, max_size: int = 1333,
        image_mean: Sequence[float] | None = None, image_std: Sequence[float] | None = None,
        anchor_generator: AnchorGenerator | None = None, head: Module | None = None, score_thresh: float = 0.05,
        nms_thresh: float = 0.5, detections_per_img: int = 300, fg_iou_thresh: float = 0.5, bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        channels = parts.channels_of(backbone, "RetinaNet")
        self.backbone, self.anchor_generator = backbone, anchor_generator or _anchors()
        self.head = head or RetinaNetHead(channels, self.anchor_generator.num_anchors_per_location()[0], num_classes)
        self.transform = parts.imagenet_transform(min_size, max_size, image_mean, image_std, **kwargs)
        self.coder, self.limits = BoxCoder((1.0, 1.0, 1.0, 1.0)), (fg_iou_thresh, bg_iou_thresh)
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def match(self, boxes: Tensor, anchors: Tensor, counts: list[int]) -> Tensor:
        """Returns the index of the box of each anchor; it is negative for anchors without a box.

        Args:
            boxes: ground truth of an image.
            anchors: anchors of all levels.
            counts: number of anchors of each level.
        """
        return parts.match(parts.overlaps(boxes, anchors), *self.limits, keep_best=True)

    def losses(
        self, outputs: dict[str, Tensor], anchors: Tensor, targets: list[Target], matched: list[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the losses "classification" and "bbox_regression".

        Args:
            outputs: results of the head.
            anchors: anchors of all levels.
            targets: ground truth of each image.
            matched: results of `match` for each image.
        """
        kind = getattr(self.head.regression_head, "_loss_type", "l1")
        classes, boxes = [], []
        for i, (target, found) in enumerate(zip(targets, matched, strict=True)):
            logits, rows = outputs["cls_logits"][i], (found >= 0).nonzero()[:, 0]
            wanted = class_targets(logits, target["labels"], found)
            used = (found != parts.BETWEEN).nonzero()[:, 0]
            count = max(1, len(rows))
            classes.append(ops.sigmoid_focal_loss(logits[used], wanted[used], reduction="sum") / count)
            truth = target["boxes"].to(anchors.dtype)[found[rows]]
            boxes.append(self._box_loss(kind, outputs["bbox_regression"][i][rows], truth, anchors[rows]) / count)
        number = max(1, len(targets))
        return {"classification": sum(classes) / number, "bbox_regression": sum(boxes) / number}  # type: ignore[dict-item]

    def _box_loss(self, kind, codes, truth, anchors):
        if kind in ("l1", "smooth_l1"):
            return getattr(F, f"{kind}_loss")(codes, self.coder.encode(truth, anchors), reduction="sum")
        losses = {
            "giou": ops.generalized_box_iou_loss, "diou": ops.distance_box_iou_loss, "ciou": ops.complete_box_iou_loss,
        }  # fmt: skip
        if kind not in losses:
            raise ValueError(f"RetinaNet: expected the loss 'l1', 'smooth_l1', 'giou', 'diou' or 'ciou', got {kind!r}.")
        return losses[kind](self.coder.decode(codes, anchors)[:, 0], truth, reduction="sum")


def _anchors():
    sizes = [(n, int(n * 2 ** (1 / 3)), int(n * 2 ** (2 / 3))) for n in (32, 64, 128, 256, 512)]
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


def dense_pyramid(weights: Any, layers: int, frozen: bool = False, channels: int = 256) -> Module:
    """Builds a ResNet of 50 layers with a feature pyramid of five levels.

    Args:
        weights: path of a state dict of the ResNet, or None.
        layers: number of stages that training changes.
        frozen: use `FrozenBatchNorm2d`, otherwise batch normalization.
        channels: number of channels that the sixth level is computed from: 256 for the pyramid, 2048 for the ResNet.
    """
    extra = ops.LastLevelP6P7(channels, 256)
    return resnet50_pyramid(weights, layers, frozen, returned_layers=[2, 3, 4], extra_blocks=extra)


def _resnet(num_classes, weights, layers, trained, **kwargs):
    return RetinaNet(dense_pyramid(weights, layers, trained), num_classes, **kwargs)


def _resnet_v2(num_classes, weights, layers, trained, **kwargs):
    backbone = dense_pyramid(weights, layers, channels=2048)
    head = RetinaNetHead(256, 9, num_classes, norm_layer=partial(nn.GroupNorm, 32))
    head.regression_head._loss_type = "giou"
    return RetinaNet(backbone, num_classes, **{"head": head, **kwargs})


retinanet_resnet50_fpn = builder(
    "retinanet_resnet50_fpn", "Builds a RetinaNet with a ResNet of 50 layers and a feature pyramid.", RetinaNet, _resnet
)
retinanet_resnet50_fpn_v2 = builder(
    "retinanet_resnet50_fpn_v2", "Builds a RetinaNet with group normalization and the generalized overlap as loss.",
    RetinaNet, _resnet_v2,
)  # fmt: skip
