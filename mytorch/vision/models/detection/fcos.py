"""FCOS. Source: Tian et al., 2019."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....nn import functional as F
from ....nn.module import Module
from ....ops.creation import full_like
from ....ops.elementwise import where
from ....ops.movement import cat, stack
from ... import ops
from . import boxes as parts
from .backbone import builder
from .boxes import AnchorGenerator, BoxLinearCoder, Target, per_anchor
from .retinanet import ClassificationHead, DenseDetector, class_targets, dense_pyramid, drawn


def _convolutions(channels, count, norm_layer):
    norm = norm_layer or partial(nn.GroupNorm, 32)
    layers: list[Module] = []
    for _ in range(count):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), norm(channels), nn.ReLU()]
    return nn.Sequential(*layers)


class FCOSClassificationHead(ClassificationHead):
    """Convolutions that compute the logits of the classes at each position.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_classes: number of classes.
        num_convs: number of hidden convolutions.
        prior_probability: probability of each class at the start of training.
        norm_layer: function of the number of channels that returns a norm (default: group normalization with 32 groups).
    """

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, num_convs: int = 4, prior_probability: float = 0.01,
        norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        convolutions = _convolutions(in_channels, num_convs, norm_layer)
        super().__init__(convolutions, in_channels, num_anchors, num_classes, prior_probability)


class FCOSRegressionHead(Module):
    """Convolutions that compute the distances of the sides of the box and the centerness at each position.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_convs: number of hidden convolutions.
        norm_layer: function of the number of channels that returns a norm (default: group normalization with 32 groups).
    """

    def __init__(
        self, in_channels: int, num_anchors: int, num_convs: int = 4, norm_layer: Callable[..., Module] | None = None
    ) -> None:
        super().__init__()
        self.conv = _convolutions(in_channels, num_convs, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, 3, padding=1)
        self.bbox_ctrness = nn.Conv2d(in_channels, num_anchors, 3, padding=1)
        for module in (self.bbox_reg, self.bbox_ctrness, self.conv):
            drawn(module)

    def forward(self, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Returns codes (N, K, 4) and logits of the centerness (N, K, 1).

        Args:
            x: features (N, C, H, W) of each level.
        """
        hidden = [self.conv(level) for level in x]
        codes = [per_anchor(self.bbox_reg(level).relu(), 4) for level in hidden]
        return cat(codes, 1), cat([per_anchor(self.bbox_ctrness(level), 1) for level in hidden], 1)


class FCOSHead(Module):
    """The heads of FCOS.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        num_classes: number of classes.
        num_convs: number of hidden convolutions.
    """

    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, num_convs: int = 4) -> None:
        super().__init__()
        self.classification_head = FCOSClassificationHead(in_channels, num_anchors, num_classes, num_convs)
        self.regression_head = FCOSRegressionHead(in_channels, num_anchors, num_convs)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Returns {"cls_logits": (N, K, num_classes), "bbox_regression": (N, K, 4), "bbox_ctrness": (N, K, 1)}.

        Args:
            x: features (N, C, H, W) of each level.
        """
        logits, (codes, centerness) = self.classification_head(x), self.regression_head(x)
        return {"cls_logits": logits, "bbox_regression": codes, "bbox_ctrness": centerness}


class FCOS(DenseDetector):
    """FCOS: classifies positions instead of anchors.

    In training, the model returns a dict of losses. In evaluation, it returns {"boxes": (L, 4), "labels": (L,), "scores": (L,)} for
    each image.

    Args:
        backbone: module that returns features, with the attribute `out_channels`.
        num_classes: number of classes.
        min_size: length of the shorter side of the resized images.
        max_size: maximum length of the longer side.
        image_mean: mean of each channel (default: the mean of ImageNet).
        image_std: standard deviation of each channel (default: the values of ImageNet).
        anchor_generator: an `AnchorGenerator` with one anchor at a position, which has the size of the position's step in pixels.
        head: an `FCOSHead`.
        center_sampling_radius: largest distance of a position from the center of its box, in steps.
        score_thresh: lowest score of a result.
        nms_thresh: overlap for the suppression of results.
        detections_per_img: maximum number of results of an image.
        topk_candidates: maximum number of results of a level before suppression.
        kwargs: `size_divisible` and `fixed_size` of `GeneralizedRCNNTransform`.

    Raises:
        ValueError: if the backbone has no `out_channels`, or there are several anchors at a position.
    """

    def __init__(
        self, backbone: Module, num_classes: int, min_size: int | Sequence[int] = 800, max_size: int = 1333,
        image_mean: Sequence[float] | None = None, image_std: Sequence[float] | None = None,
        anchor_generator: AnchorGenerator | None = None, head: Module | None = None, center_sampling_radius: float = 1.5,
        score_thresh: float = 0.2, nms_thresh: float = 0.6, detections_per_img: int = 100, topk_candidates: int = 1000,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        channels = parts.channels_of(backbone, "FCOS")
        anchors = anchor_generator or AnchorGenerator(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)
        if anchors.num_anchors_per_location()[0] != 1:
            raise ValueError(
                f"anchor_generator.num_anchors_per_location()[0] should be 1 instead of {anchors.num_anchors_per_location()[0]}"
            )
        self.backbone, self.anchor_generator, self.coder = backbone, anchors, BoxLinearCoder()
        self.head = head or FCOSHead(channels, 1, num_classes)
        self.transform = parts.imagenet_transform(min_size, max_size, image_mean, image_std, **kwargs)
        self.center_sampling_radius, self.score_thresh, self.nms_thresh = (
            center_sampling_radius,
            score_thresh,
            nms_thresh,
        )
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def match(self, boxes: Tensor, anchors: Tensor, counts: list[int]) -> Tensor:
        """Returns the index of the smallest box that contains each position; it is -1 for positions without a box.

        A position must be near the center of the box, and the size of the box must fit the level.

        Args:
            boxes: ground truth of an image.
            anchors: anchors of all levels.
            counts: number of anchors of each level.
        """
        if not len(boxes):
            return full_like(anchors[:, 0], -1, dtype=parts.INT)
        center, size = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2] - anchors[:, 0]
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        near = (center[:, None] - middle).abs().amax(-1) < self.center_sampling_radius * size[:, None]
        distances = cat([center[:, None] - boxes[:, :2], boxes[:, 2:] - center[:, None]], -1)
        low, high = size * 4, size * 8
        low[: counts[0]], high[len(high) - counts[-1] :] = 0, float("inf")
        longest = distances.amax(-1)
        fits = near & (distances.amin(-1) > 0) & (longest > low[:, None]) & (longest < high[:, None])
        best, index = (fits.to(boxes.dtype) * (1e8 - ops.box_area(boxes))).max(1)
        return where(best < 1e-5, -1, index)

    def losses(
        self, outputs: dict[str, Tensor], anchors: Tensor, targets: list[Target], matched: list[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the losses "classification", "bbox_regression" and "bbox_ctrness".

        Args:
            outputs: results of the head.
            anchors: anchors of all levels.
            targets: ground truth of each image.
            matched: results of `match` for each image.
        """
        logits, codes, centerness, truth, places, wanted = outputs["cls_logits"], [], [], [], [], []
        for i, (target, found) in enumerate(zip(targets, matched, strict=True)):
            rows = (found >= 0).nonzero()[:, 0]
            wanted.append(class_targets(logits[i], target["labels"], found))
            codes.append(outputs["bbox_regression"][i][rows])
            centerness.append(outputs["bbox_ctrness"][i][rows, 0])
            truth.append(target["boxes"].to(anchors.dtype).reshape(-1, 4)[found[rows]])
            places.append(anchors[rows])
        boxes, references = cat(truth), cat(places)
        count = max(1, len(boxes))
        sides = self.coder.encode(references, boxes).reshape(-1, 2, 2)  # (left, top), (right, bottom)
        ratio = (sides.amin(1) / sides.amax(1)).prod(-1).sqrt()
        losses = {
            "classification": ops.sigmoid_focal_loss(logits, stack(wanted), reduction="sum"),
            "bbox_regression": ops.generalized_box_iou_loss(
                self.coder.decode(cat(codes), references), boxes, reduction="sum"
            ),
            "bbox_ctrness": F.binary_cross_entropy_with_logits(cat(centerness), ratio, reduction="sum"),
        }
        return {name: loss / count for name, loss in losses.items()}

    def scores(self, outputs: dict[str, Tensor]) -> Tensor:
        """Returns the scores (K, classes) of the positions of an image.

        Args:
            outputs: results of the head for an image.
        """
        return (outputs["cls_logits"].sigmoid() * outputs["bbox_ctrness"].sigmoid()).sqrt()


def _resnet(num_classes, weights, layers, trained, **kwargs):
    return FCOS(dense_pyramid(weights, layers, trained), num_classes, **kwargs)


fcos_resnet50_fpn = builder(
    "fcos_resnet50_fpn", "Builds an FCOS with a ResNet of 50 layers and a feature pyramid.", FCOS, _resnet
)
