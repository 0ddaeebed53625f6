"""SSD. Source: Liu et al., 2015."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....engine.mode import no_grad
from ....nn import functional as F
from ....nn.module import Module
from ....ops.creation import arange, full_like, ones, zeros
from ....ops.movement import cat, stack
from .. import vgg
from . import boxes as parts
from .backbone import builder, freeze
from .boxes import BoxCoder, DefaultBoxGenerator, Target, per_anchor
from .retinanet import DenseDetector


def _xavier(module):
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class SSDScoringHead(Module):
    """A module for each level, for results of each anchor.

    Args:
        module_list: modules from features (N, C, H, W) to results (N, anchors * num_columns, H, W).
        num_columns: number of results of an anchor.
    """

    def __init__(self, module_list: nn.ModuleList, num_columns: int) -> None:
        super().__init__()
        self.module_list, self.num_columns = module_list, num_columns

    def forward(self, x: list[Tensor]) -> Tensor:
        """Returns results (N, K, num_columns).

        Args:
            x: features (N, C, H, W) of each level.
        """
        return cat([per_anchor(m(level), self.num_columns) for m, level in zip(self.module_list, x, strict=True)], 1)


class _Convolutions(SSDScoringHead):
    def __init__(self, in_channels, num_anchors, columns):
        pairs = zip(in_channels, num_anchors, strict=True)
        layers = nn.ModuleList(nn.Conv2d(inside, columns * count, 3, padding=1) for inside, count in pairs)
        _xavier(layers)
        super().__init__(layers, columns)


class SSDClassificationHead(_Convolutions):
    """Convolutions that compute the logits of the classes for each anchor.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
        num_classes: number of classes with the background.
    """

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int) -> None:
        super().__init__(in_channels, num_anchors, num_classes)


class SSDRegressionHead(_Convolutions):
    """Convolutions that compute a code for each anchor.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
    """

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int]) -> None:
        super().__init__(in_channels, num_anchors, 4)


class SSDHead(Module):
    """The heads of SSD.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
        num_classes: number of classes with the background.
    """

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.classification_head: Module = SSDClassificationHead(in_channels, num_anchors, num_classes)
        self.regression_head: Module = SSDRegressionHead(in_channels, num_anchors)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Returns {"bbox_regression": (N, K, 4), "cls_logits": (N, K, num_classes)}.

        Args:
            x: features (N, C, H, W) of each level.
        """
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSD(DenseDetector):
    """SSD: classifies default boxes in images of a fixed size.

    In training, the model returns a dict of losses. In evaluation, it returns {"boxes": (L, 4), "labels": (L,), "scores": (L,)} for
    each image. Label 0 is the background.

    Args:
        backbone: module that returns features; its attribute `out_channels` is the list of channels of the levels, if it exists.
        anchor_generator: a `DefaultBoxGenerator`.
        size: (width, height) of the resized images.
        num_classes: number of classes with the background.
        image_mean: mean of each channel (default: the mean of ImageNet).
        image_std: standard deviation of each channel (default: the values of ImageNet).
        head: an `SSDHead`.
        score_thresh: lowest probability of a result.
        nms_thresh: overlap for the suppression of results.
        detections_per_img: maximum number of results of an image.
        iou_thresh: default boxes with at least this overlap are objects in training.
        topk_candidates: maximum number of results of a class before suppression.
        positive_fraction: share of objects among the default boxes in the loss.
        kwargs: other arguments of `GeneralizedRCNNTransform`.

    Raises:
        ValueError: if the numbers of levels of the backbone and the default boxes differ.
    """

    def __init__(
        self, backbone: Module, anchor_generator: DefaultBoxGenerator, size: tuple[int, int], num_classes: int,
        image_mean: Sequence[float] | None = None, image_std: Sequence[float] | None = None, head: Module | None = None,
        score_thresh: float = 0.01, nms_thresh: float = 0.45, detections_per_img: int = 200, iou_thresh: float = 0.5,
        topk_candidates: int = 400, positive_fraction: float = 0.25, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.backbone, self.anchor_generator = backbone, anchor_generator
        if head is None:
            channels = getattr(backbone, "out_channels", None) or level_channels(backbone, size)
            counts = anchor_generator.num_anchors_per_location()
            if len(channels) != len(counts):
                raise ValueError(
                    f"SSD: expected a backbone with {len(counts)} levels (number of lists in aspect_ratios), got {len(channels)}."
                )
            head = SSDHead(channels, counts, num_classes)
        self.head, self.coder = head, BoxCoder((10.0, 10.0, 5.0, 5.0))
        options = {"size_divisible": 1, "fixed_size": size, **kwargs}
        self.transform = parts.imagenet_transform(min(size), max(size), image_mean, image_std, **options)
        self.iou_thresh, self.score_thresh, self.nms_thresh = iou_thresh, score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates
        self.neg_to_pos_ratio = (1.0 - positive_fraction) / positive_fraction

    def match(self, boxes: Tensor, anchors: Tensor, counts: list[int]) -> Tensor:
        """Returns the index of the box of each default box; it is negative for default boxes without a box.

        Args:
            boxes: ground truth of an image.
            anchors: default boxes of all levels.
            counts: number of default boxes of each level.
        """
        overlap = parts.overlaps(boxes, anchors)
        found = parts.match(overlap, self.iou_thresh, self.iou_thresh, keep_best=False)
        if len(boxes):
            found[overlap.argmax(1)] = arange(len(boxes), device=found.device)
        return found

    def losses(
        self, outputs: dict[str, Tensor], anchors: Tensor, targets: list[Target], matched: list[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the losses "bbox_regression" and "classification", which includes only the background with the largest losses.

        Args:
            outputs: results of the head.
            anchors: default boxes of all levels.
            targets: ground truth of each image.
            matched: results of `match` for each image.
        """
        logits, boxes, labels, total = outputs["cls_logits"], [], [], 0
        for i, (target, found) in enumerate(zip(targets, matched, strict=True)):
            rows = (found >= 0).nonzero()[:, 0]
            total += len(rows)
            truth = self.coder.encode(target["boxes"].to(anchors.dtype).reshape(-1, 4)[found[rows]], anchors[rows])
            boxes.append(parts.smooth_l1(outputs["bbox_regression"][i][rows], truth, 1.0))
            label = full_like(found, 0)
            label[rows] = target["labels"].to(parts.INT)[found[rows]]
            labels.append(label)
        label = stack(labels)
        loss = F.cross_entropy(logits.flatten(0, 1), label.flatten(), reduction="none").reshape(label.shape)
        positive = label > 0
        with no_grad():
            count = self.neg_to_pos_ratio * positive.sum(1, keepdim=True)
            order = loss.detach().masked_fill(positive, -float("inf")).argsort(1, descending=True)
            negative = order.argsort(1) < count
        chosen = loss[positive].sum() + loss[negative].sum()
        number = max(1, total)
        return {"bbox_regression": stack(boxes).sum() / number, "classification": chosen / number}

    def results(self, outputs: dict[str, Tensor], anchors: Tensor, counts: list[int], size: tuple[int, int]) -> Target:
        """Returns the result of an image: the best boxes of each class, after suppression within each class.

        Args:
            outputs: results of the head for an image.
            anchors: default boxes of all levels.
            counts: number of default boxes of each level.
            size: (height, width) of the image.
        """
        boxes, scores = self.coder.decode(outputs["bbox_regression"], anchors)[:, 0], outputs["cls_logits"].softmax(-1)
        rows, values, labels = [], [], []
        for label in range(1, scores.shape[-1]):
            score = scores[:, label]
            kept = (score > self.score_thresh).nonzero()[:, 0]
            value, best = score[kept].topk(min(self.topk_candidates, len(kept)))
            rows.append(kept[best])
            values.append(value)
            labels.append(full_like(best, label))
        return self.suppressed(boxes[cat(rows)], cat(values), cat(labels), size)


def level_channels(backbone: Module, size: tuple[int, int]) -> list[int]:
    """Returns the number of channels of each level of a backbone.

    Args:
        backbone: the backbone.
        size: (width, height) of the images.
    """
    training = backbone.training
    backbone.eval()
    with no_grad():
        features = backbone(zeros(1, 3, size[1], size[0]))
    backbone.train(training)
    return [x.shape[1] for x in ([features] if isinstance(features, Tensor) else features.values())]


class SSDFeatureExtractorVGG(Module):
    """Layers of a VGG network, and convolutions of lower resolution.

    Args:
        backbone: the attribute `features` of a VGG network.
        highres: add a level for images of 512 pixels.
    """

    def __init__(self, backbone: nn.Sequential, highres: bool) -> None:
        super().__init__()
        layers = list(backbone)
        pools = [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
        layers[pools[2]].ceil_mode = True
        self.scale_weight = nn.Parameter(ones(512) * 20)
        self.features = nn.Sequential(*layers[: pools[3]])
        # inner channels, input channels, output channels, kernel size, stride and padding of the second convolution
        sizes = [
            (1024, 256, 512, 3, 2, 1),
            (512, 128, 256, 3, 2, 1),
            (256, 128, 256, 3, 1, 0),
            (256, 128, 256, 3, 1, 0),
        ]
        sizes += [(256, 128, 256, 4, 1, 0)] * highres
        extra = nn.ModuleList()
        for inside, inner, out, kernel, stride, padding in sizes:
            last = nn.Conv2d(inner, out, kernel, stride, padding)
            extra.append(nn.Sequential(nn.Conv2d(inside, inner, 1), nn.ReLU(inplace=True), last, nn.ReLU(inplace=True)))
        _xavier(extra)
        fc = nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.Conv2d(512, 1024, 3, padding=6, dilation=6), nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, 1), nn.ReLU(inplace=True),
        )  # fmt: skip
        _xavier(fc)
        self.extra = nn.ModuleList([nn.Sequential(*layers[pools[3] : -1], fc), *extra])

    def forward(self, x: Tensor) -> "OrderedDict[str, Tensor]":
        """Returns {number of the level: features}.

        Args:
            x: images (N, 3, H, W).
        """
        x = self.features(x)
        results = [self.scale_weight.reshape(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            results.append(x)
        return OrderedDict((str(i), level) for i, level in enumerate(results))


def refuse_size(kwargs: dict[str, Any], name: str, size: int) -> None:
    """Raises an error for the argument `size` of a detector of fixed size.

    Args:
        kwargs: arguments of the detector.
        name: name of the function.
        size: size of the detector.

    Raises:
        ValueError: if kwargs has the key "size".
    """
    if "size" in kwargs:
        raise ValueError(
            f"{name}: expected no argument size, got {kwargs['size']}. The size is {size} pixels; use SSD."
        )


def _vgg(num_classes, weights, layers, trained, **kwargs):
    refuse_size(kwargs, "ssd300_vgg16", 300)
    features = vgg.vgg16(weights=weights).features
    pools = [i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)]
    freeze(features, [0, *pools[:-1]], layers)
    anchors = DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]], scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
        steps=[8, 16, 32, 64, 100, 300],
    )  # fmt: skip
    # The VGG network was trained with pixel values from 0 to 255, without division by the standard deviation.
    options = {"image_mean": [0.48235, 0.45882, 0.40784], "image_std": [1 / 255] * 3, **kwargs}
    return SSD(SSDFeatureExtractorVGG(features, False), anchors, (300, 300), num_classes, **options)


ssd300_vgg16: Callable[..., SSD] = builder(
    "ssd300_vgg16", "Builds an SSD with a VGG network of 16 layers for images of 300 pixels.", SSD, _vgg, "VGG network",
    trainable=4,
)  # fmt: skip
