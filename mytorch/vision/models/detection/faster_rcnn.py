"""Faster R-CNN. Source: Ren et al., 2015, with a feature pyramid: Lin et al., 2016."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import nn
from ...._tensor import Tensor
from ....engine.mode import no_grad
from ....nn import functional as F
from ....nn.module import Module
from ....ops.creation import as_tensor
from ....ops.elementwise import clamp
from ....ops.movement import cat
from ...ops import (
    Conv2dNormActivation,
    FrozenBatchNorm2d,
    MultiScaleRoIAlign,
    batched_nms,
    clip_boxes_to_image,
    remove_small_boxes,
)
from . import boxes as parts
from .backbone import builder, mobilenet_backbone, resnet50_pyramid
from .boxes import AnchorGenerator, BoxCoder, Detector, Target
from .instances import add_keypoints, add_masks, keypoint_loss, mask_loss


class RPNHead(Module):
    """Convolutions that compute a score and a code for each anchor.

    Args:
        in_channels: number of channels of the features.
        num_anchors: number of anchors at a position.
        conv_depth: number of hidden convolutions.
    """

    def __init__(self, in_channels: int, num_anchors: int, conv_depth: int = 1) -> None:
        super().__init__()
        convs = [Conv2dNormActivation(in_channels, in_channels, 3, norm_layer=None) for _ in range(conv_depth)]
        self.conv = nn.Sequential(*convs)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, 1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Returns (scores, codes) of each level: (N, H * W * anchors) and (N, H * W * anchors, 4).

        Args:
            x: features (N, C, H, W) of each level.
        """
        scores, codes = [], []
        for level in x:
            hidden = self.conv(level)
            scores.append(self.cls_logits(hidden).permute(0, 2, 3, 1).flatten(1))
            codes.append(parts.per_anchor(self.bbox_pred(hidden), 4))
        return scores, codes


class RegionProposalNetwork(Module):
    """Finds boxes that may contain objects.

    Args:
        anchor_generator: an `AnchorGenerator`.
        head: an `RPNHead`.
        fg_iou_thresh: anchors with at least this overlap are objects in training.
        bg_iou_thresh: anchors below this overlap are background in training.
        batch_size_per_image: number of anchors in the loss of an image.
        positive_fraction: maximum share of objects among these anchors.
        pre_nms_top_n: {"training": …, "testing": …}, number of boxes of a level before suppression.
        post_nms_top_n: number of boxes after suppression, in the same form.
        nms_thresh: overlap for the suppression.
        score_thresh: lowest probability of a box.
    """

    def __init__(
        self, anchor_generator: AnchorGenerator, head: Module, fg_iou_thresh: float, bg_iou_thresh: float,
        batch_size_per_image: int, positive_fraction: float, pre_nms_top_n: dict[str, int], post_nms_top_n: dict[str, int],
        nms_thresh: float, score_thresh: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.anchor_generator, self.head, self.coder = anchor_generator, head, BoxCoder((1.0, 1.0, 1.0, 1.0))
        self.limits = fg_iou_thresh, bg_iou_thresh
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction
        self.pre_nms, self.post_nms = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def forward(
        self, image_size: tuple[int, int], sizes: Sequence[tuple[int, int]], features: list[Tensor],
        targets: list[Target] | None = None,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:  # fmt: skip
        """Returns (boxes of each image, losses in training).

        Args:
            image_size: (height, width) of the batch.
            sizes: (height, width) of each image.
            features: features of each level.
            targets: ground truth of each image, or None.
        """
        scores, codes = self.head(features)
        anchors = self.anchor_generator(image_size, features)
        counts = [level.shape[1] for level in scores]
        all_scores, all_codes = cat(scores, 1), cat(codes, 1)
        with no_grad():
            proposals = [
                self._filtered(s, self.coder.decode(c, anchors)[:, 0], counts, size)
                for s, c, size in zip(all_scores.detach(), all_codes.detach(), sizes, strict=True)
            ]
        losses = {}
        if self.training and targets is not None:
            losses = self._losses(all_scores, all_codes, anchors, targets)
        return proposals, losses

    def _filtered(self, scores, boxes, counts, size):
        """Return the best boxes of an image: the best of each level, after suppression within each level."""
        mode = "training" if self.training else "testing"
        chosen, levels, start = [], [], 0
        for level, count in enumerate(counts):
            best = scores[start : start + count].topk(min(self.pre_nms[mode], count))[1] + start
            chosen.append(best)
            levels.append(np.full(len(best), level))
            start += count
        index = cat(chosen)
        level = as_tensor(np.concatenate(levels), device=boxes.device)
        probability, boxes = scores[index].sigmoid(), clip_boxes_to_image(boxes[index], size)
        kept = remove_small_boxes(boxes, self.min_size)
        kept = kept[probability[kept] >= self.score_thresh]
        boxes, probability, level = boxes[kept], probability[kept], level[kept]
        return boxes[batched_nms(boxes, probability, level, self.nms_thresh)[: self.post_nms[mode]]]

    def _losses(self, scores, codes, anchors, targets):
        rows, wanted, signs, total = [], [], [], 0
        chosen_scores = []
        for i, target in enumerate(targets):
            overlap = parts.overlaps(target["boxes"], anchors)
            found = parts.match(overlap, *self.limits, keep_best=True)
            labels = (found >= 0).to(parts.INT) - (found == parts.BETWEEN).to(parts.INT)
            positive, negative = parts.sample(labels, self.batch_size_per_image, self.positive_fraction)
            both = cat([positive, negative])
            total += len(both)
            chosen_scores.append(scores[i][both])
            signs.append(labels[both].to(scores.dtype))
            if len(positive):
                rows.append(codes[i][positive])
                boxes = target["boxes"].to(anchors.dtype)[found[positive]]
                wanted.append(self.coder.encode(boxes, anchors[positive]))
        objectness = F.binary_cross_entropy_with_logits(cat(chosen_scores), cat(signs))
        box = parts.smooth_l1(cat(rows), cat(wanted), 1 / 9) / max(total, 1) if rows else codes.sum() * 0
        return {"loss_objectness": objectness, "loss_rpn_box_reg": box}


class TwoMLPHead(Module):
    """Two linear layers for the features of a region.

    Args:
        in_channels: number of features of a region.
        representation_size: number of outputs.
    """

    def __init__(self, in_channels: int, representation_size: int) -> None:
        super().__init__()
        self.fc6, self.fc7 = nn.Linear(in_channels, representation_size), nn.Linear(representation_size, representation_size)  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns (K, representation_size).

        Args:
            x: regions (K, C, H, W).
        """
        return self.fc7(self.fc6(x.flatten(1)).relu()).relu()


class FastRCNNConvFCHead(nn.Sequential):
    """3 x 3 convolutions and linear layers for the features of a region.

    Args:
        input_size: (channels, height, width) of a region.
        conv_layers: number of output channels of each convolution.
        fc_layers: number of outputs of each linear layer.
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    def __init__(
        self, input_size: tuple[int, int, int], conv_layers: Sequence[int], fc_layers: Sequence[int],
        norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        channels, height, width = input_size
        layers: list[Module] = []
        for out in conv_layers:
            layers.append(Conv2dNormActivation(channels, out, norm_layer=norm_layer))
            channels = out
        layers.append(nn.Flatten())
        channels *= height * width
        for out in fc_layers:
            layers += [nn.Linear(channels, out), nn.ReLU(inplace=True)]
            channels = out
        super().__init__(*layers)
        parts.fan_out(self)


class FastRCNNPredictor(Module):
    """Linear layers for the classes and the codes of the boxes.

    Args:
        in_channels: number of inputs.
        num_classes: number of classes with the background.
    """

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.cls_score, self.bbox_pred = nn.Linear(in_channels, num_classes), nn.Linear(in_channels, num_classes * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns logits (K, num_classes) and codes (K, num_classes * 4).

        Args:
            x: (K, in_channels).
        """
        x = x.flatten(1)
        return self.cls_score(x), self.bbox_pred(x)


class RoIHeads(Module):
    """Classifies the proposed boxes and corrects their positions.

    Args:
        box_roi_pool: a `MultiScaleRoIAlign`.
        box_head: module from regions to features.
        box_predictor: module from features to logits and codes.
        fg_iou_thresh: boxes with at least this overlap are objects in training.
        bg_iou_thresh: boxes below this overlap are background in training.
        batch_size_per_image: number of boxes in the loss of an image.
        positive_fraction: maximum share of objects among these boxes.
        bbox_reg_weights: factors of the codes (default: (10, 10, 5, 5)).
        score_thresh: lowest probability of a result.
        nms_thresh: overlap for the suppression.
        detections_per_img: maximum number of results of an image.

    Subclasses of `FasterRCNN` set the attributes `mask_roi_pool`, `mask_head` and `mask_predictor`, or the same attributes with
    `keypoint`.
    """

    def __init__(
        self, box_roi_pool: Module, box_head: Module, box_predictor: Module, fg_iou_thresh: float, bg_iou_thresh: float,
        batch_size_per_image: int, positive_fraction: float, bbox_reg_weights: Sequence[float] | None, score_thresh: float,
        nms_thresh: float, detections_per_img: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.coder, self.limits = BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0)), (fg_iou_thresh, bg_iou_thresh)
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.mask_roi_pool: Module | None = None
        self.mask_head: Module | None = None
        self.mask_predictor: Module | None = None
        self.keypoint_roi_pool: Module | None = None
        self.keypoint_head: Module | None = None
        self.keypoint_predictor: Module | None = None

    def forward(
        self, features: dict[str, Tensor], proposals: list[Tensor], sizes: list[tuple[int, int]],
        targets: list[Target] | None = None,
    ) -> tuple[list[Target], dict[str, Tensor]]:  # fmt: skip
        """Returns (results of each image in evaluation, losses in training).

        Args:
            features: {name: features}.
            proposals: boxes of each image.
            sizes: (height, width) of each image.
            targets: ground truth of each image, or None.
        """
        chosen = None
        if self.training and targets is not None:
            chosen = [self._chosen(boxes, target) for boxes, target in zip(proposals, targets, strict=True)]
            proposals = [boxes for boxes, *_ in chosen]
        regions = self.box_roi_pool(features, proposals, sizes)
        logits, codes = self.box_predictor(self.box_head(regions))
        if chosen is not None and targets is not None:
            losses = self._losses(logits, codes, cat([c[1] for c in chosen]), cat([c[2] for c in chosen]))
            positive = [(labels > 0).nonzero()[:, 0] for _, labels, _, _ in chosen]
            objects = [c[0][i] for c, i in zip(chosen, positive, strict=True)]
            partners = [c[3][i] for c, i in zip(chosen, positive, strict=True)]
            for name, (_, loss) in self._others.items():
                if (maps := self._run(name, features, objects, sizes)) is not None:
                    losses[f"loss_{name}"] = loss(maps, objects, targets, partners)
            return [], losses
        results, start = [], 0
        for boxes, size in zip(proposals, sizes, strict=True):
            rows = slice(start, start + len(boxes))
            results.append(self._results(logits[rows].softmax(-1), codes[rows], boxes, size))
            start += len(boxes)
        for name, (complete, _) in self._others.items():
            maps = self._run(name, features, [r["boxes"] for r in results], sizes)
            if maps is not None:
                for result, part in zip(results, maps.split([len(r["boxes"]) for r in results]), strict=True):
                    complete(result, part)
        return results, {}

    _others = {"mask": (add_masks, mask_loss), "keypoint": (add_keypoints, keypoint_loss)}

    def _run(self, name, features, boxes, sizes):
        """Return the results of the masks or keypoints for boxes, or None without this part."""
        layers = [getattr(self, f"{name}_{part}") for part in ("roi_pool", "head", "predictor")]
        if None in layers:
            return None
        pool, head, predictor = layers
        return predictor(head(pool(features, boxes, sizes)))

    def _chosen(self, boxes, target):
        """Return (boxes, labels, codes and indices of the ground truth) of random boxes of an image."""
        with no_grad():
            truth = target["boxes"].to(boxes.dtype).reshape(-1, 4)
            boxes = cat([boxes, truth])
            found = parts.match(parts.overlaps(truth, boxes), *self.limits, keep_best=False)
            partner = clamp(found, min=0)
            labels = found * 0
            if len(truth):
                labels = target["labels"].to(parts.INT)[partner]
                labels = labels * (found >= 0) - (found == parts.BETWEEN).to(parts.INT)
            index = cat(list(parts.sample(labels, self.batch_size_per_image, self.positive_fraction))).sort()[0]
            boxes = boxes[index]
            codes = self.coder.encode(truth[partner[index]], boxes) if len(truth) else boxes * 0
            return boxes, labels[index], codes, partner[index]

    def _losses(self, logits, codes, labels, wanted):
        positive = (labels > 0).nonzero()[:, 0]
        predicted = codes.reshape(len(codes), codes.shape[-1] // 4, 4)[positive, labels[positive]]
        box = parts.smooth_l1(predicted, wanted[positive], 1 / 9) / max(labels.numel(), 1)
        return {"loss_classifier": F.cross_entropy(logits, labels), "loss_box_reg": box}

    def _results(self, probability, codes, proposals, size):
        boxes = clip_boxes_to_image(self.coder.decode(codes, proposals), size)[:, 1:]  # without the background
        count, classes = boxes.shape[:2]
        labels = as_tensor(np.tile(np.arange(1, classes + 1), (count, 1)), device=boxes.device)
        boxes, scores, labels = boxes.reshape(-1, 4), probability[:, 1:].reshape(-1), labels.reshape(-1)
        kept = (scores > self.score_thresh).nonzero()[:, 0]
        kept = kept[remove_small_boxes(boxes[kept], 1e-2)]
        best = batched_nms(boxes[kept], scores[kept], labels[kept], self.nms_thresh)[: self.detections_per_img]
        kept = kept[best]
        return {"boxes": boxes[kept], "labels": labels[kept], "scores": scores[kept]}


class FasterRCNN(Detector):
    """Faster R-CNN: proposes regions, classifies the regions and corrects their boxes.

    In training, the model returns a dict of losses. In evaluation, it returns {"boxes": (L, 4), "labels": (L,), "scores": (L,)} for
    each image. Label 0 is the background.

    Args:
        backbone: module that returns features, with the attribute `out_channels`.
        num_classes: number of classes with the background; None if `box_predictor` is given.
        min_size: length of the shorter side of the resized images.
        max_size: maximum length of the longer side.
        image_mean: mean of each channel (default: the mean of ImageNet).
        image_std: standard deviation of each channel (default: the values of ImageNet).
        rpn_anchor_generator: an `AnchorGenerator` (default: sizes from 32 to 512).
        rpn_head: an `RPNHead`.
        rpn_pre_nms_top_n_train: number of boxes of a level before suppression in training.
        rpn_pre_nms_top_n_test: the same in evaluation.
        rpn_post_nms_top_n_train: number of boxes after suppression in training.
        rpn_post_nms_top_n_test: the same in evaluation.
        rpn_nms_thresh: overlap for the suppression of proposals.
        rpn_fg_iou_thresh: overlap of objects among the anchors.
        rpn_bg_iou_thresh: overlap of background among the anchors.
        rpn_batch_size_per_image: number of anchors in the loss of an image.
        rpn_positive_fraction: maximum share of objects among these anchors.
        rpn_score_thresh: lowest probability of a proposal.
        box_roi_pool: a `MultiScaleRoIAlign`.
        box_head: module from regions to features.
        box_predictor: module from features to logits and codes.
        box_score_thresh: lowest probability of a result.
        box_nms_thresh: overlap for the suppression of results.
        box_detections_per_img: maximum number of results of an image.
        box_fg_iou_thresh: overlap of objects among the proposals.
        box_bg_iou_thresh: overlap of background among the proposals.
        box_batch_size_per_image: number of proposals in the loss of an image.
        box_positive_fraction: maximum share of objects among these proposals.
        bbox_reg_weights: factors of the codes.

    Raises:
        ValueError: if the backbone has no `out_channels`, or not exactly one of num_classes and box_predictor is given.
    """

    def __init__(
        self, backbone: Module, num_classes: int | None = None, min_size: int | Sequence[int] = 800, max_size: int = 1333,
        image_mean: Sequence[float] | None = None, image_std: Sequence[float] | None = None,
        rpn_anchor_generator: AnchorGenerator | None = None, rpn_head: Module | None = None,
        rpn_pre_nms_top_n_train: int = 2000, rpn_pre_nms_top_n_test: int = 1000, rpn_post_nms_top_n_train: int = 2000,
        rpn_post_nms_top_n_test: int = 1000, rpn_nms_thresh: float = 0.7, rpn_fg_iou_thresh: float = 0.7,
        rpn_bg_iou_thresh: float = 0.3, rpn_batch_size_per_image: int = 256, rpn_positive_fraction: float = 0.5,
        rpn_score_thresh: float = 0.0, box_roi_pool: Module | None = None, box_head: Module | None = None,
        box_predictor: Module | None = None, box_score_thresh: float = 0.05, box_nms_thresh: float = 0.5,
        box_detections_per_img: int = 100, box_fg_iou_thresh: float = 0.5, box_bg_iou_thresh: float = 0.5,
        box_batch_size_per_image: int = 512, box_positive_fraction: float = 0.25,
        bbox_reg_weights: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        channels = parts.channels_of(backbone, type(self).__name__)
        if (num_classes is None) == (box_predictor is None):
            raise ValueError("FasterRCNN: expected exactly one of num_classes and box_predictor, got none or both.")
        anchors = rpn_anchor_generator or _anchors(((32,), (64,), (128,), (256,), (512,)))
        head = rpn_head or RPNHead(channels, anchors.num_anchors_per_location()[0])
        before = {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test}
        after = {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test}
        pool = box_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)
        if box_head is None:
            height, width = pool.output_size  # type: ignore[misc]
            box_head = TwoMLPHead(channels * height * width, 1024)
        predictor = box_predictor or FastRCNNPredictor(1024, num_classes)  # type: ignore[arg-type]
        self.transform = parts.imagenet_transform(min_size, max_size, image_mean, image_std)
        self.backbone = backbone
        self.rpn = RegionProposalNetwork(
            anchors, head, rpn_fg_iou_thresh, rpn_bg_iou_thresh, rpn_batch_size_per_image, rpn_positive_fraction, before,
            after, rpn_nms_thresh, rpn_score_thresh,
        )  # fmt: skip
        self.roi_heads = RoIHeads(
            pool, box_head, predictor, box_fg_iou_thresh, box_bg_iou_thresh, box_batch_size_per_image,
            box_positive_fraction, bbox_reg_weights, box_score_thresh, box_nms_thresh, box_detections_per_img,
        )  # fmt: skip

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
        proposals, losses = self.rpn(shape, sizes, list(features.values()), targets)
        results, others = self.roi_heads(features, proposals, sizes, targets)
        return results, {**others, **losses}


def _anchors(sizes):
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


def improved(weights: Any, layers: int) -> tuple[Module, dict[str, Any]]:
    """Returns (backbone, arguments of `FasterRCNN`) with more convolutions and norms. Source: Li et al., 2021.

    Args:
        weights: path of a state dict of the backbone, or None.
        layers: number of stages of the backbone that training changes.
    """
    backbone = resnet50_pyramid(weights, layers, pyramid_norm=nn.BatchNorm2d)
    head = RPNHead(256, 3, conv_depth=2)
    box = FastRCNNConvFCHead((256, 7, 7), [256] * 4, [1024], norm_layer=nn.BatchNorm2d)
    return backbone, {"rpn_head": head, "box_head": box}


def _resnet(num_classes, weights, layers, trained, **kwargs):
    return FasterRCNN(resnet50_pyramid(weights, layers, trained), num_classes, **kwargs)


def _resnet_v2(num_classes, weights, layers, trained, **kwargs):
    backbone, options = improved(weights, layers)
    return FasterRCNN(backbone, num_classes, **{**options, **kwargs})


def _mobilenet(num_classes, weights, layers, trained, **kwargs):
    norm = FrozenBatchNorm2d if trained else nn.BatchNorm2d
    backbone = mobilenet_backbone(
        backbone_name="mobilenet_v3_large", weights=weights, norm_layer=norm, trainable_layers=layers
    )
    anchors = _anchors(((32, 64, 128, 256, 512),) * 3)
    options = {"rpn_anchor_generator": anchors, "rpn_score_thresh": 0.05, **kwargs}
    return FasterRCNN(backbone, num_classes, **options)


def _mobilenet_320(*args, **kwargs):
    small = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150}
    return _mobilenet(*args, **{**small, **kwargs})


_MOBILE: dict[str, Any] = {"network": "MobileNet", "stages": 6}
fasterrcnn_resnet50_fpn = builder(
    "fasterrcnn_resnet50_fpn",
    "Builds a Faster R-CNN with a ResNet of 50 layers and a feature pyramid.",
    FasterRCNN,
    _resnet,
)
fasterrcnn_resnet50_fpn_v2 = builder(
    "fasterrcnn_resnet50_fpn_v2", "Builds a Faster R-CNN with more convolutions and norms.", FasterRCNN, _resnet_v2
)
fasterrcnn_mobilenet_v3_large_fpn = builder(
    "fasterrcnn_mobilenet_v3_large_fpn",
    "Builds a Faster R-CNN with a large MobileNet V3.",
    FasterRCNN,
    _mobilenet,
    **_MOBILE,
)
fasterrcnn_mobilenet_v3_large_320_fpn = builder(
    "fasterrcnn_mobilenet_v3_large_320_fpn", "Builds a Faster R-CNN with a large MobileNet V3 for images of 320 pixels.",
    FasterRCNN, _mobilenet_320, **_MOBILE,
)  # fmt: skip
