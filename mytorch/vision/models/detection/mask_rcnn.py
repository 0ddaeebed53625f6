"""Mask R-CNN. Source: He et al., 2017."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from .... import nn
from ....nn.module import Module
from ...ops import Conv2dNormActivation, MultiScaleRoIAlign
from . import boxes as parts
from .backbone import builder, resnet50_pyramid
from .faster_rcnn import FasterRCNN, improved


class MaskRCNNHeads(nn.Sequential):
    """3 x 3 convolutions for the features of a region.

    Args:
        in_channels: number of input channels.
        layers: number of output channels of each convolution.
        dilation: dilation of the convolutions.
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    def __init__(
        self, in_channels: int, layers: Sequence[int], dilation: int, norm_layer: Callable[..., Module] | None = None
    ) -> None:
        sizes = zip([in_channels, *layers], layers, strict=False)
        options: Any = {"dilation": dilation, "norm_layer": norm_layer}
        super().__init__(*[Conv2dNormActivation(inside, out, 3, **options) for inside, out in sizes])
        parts.fan_out(self)


class MaskRCNNPredictor(nn.Sequential):
    """A transposed convolution that doubles the resolution, and a 1 x 1 convolution.

    Args:
        in_channels: number of input channels.
        dim_reduced: number of inner channels.
        num_classes: number of output channels.
    """

    def __init__(self, in_channels: int, dim_reduced: int, num_classes: int) -> None:
        layers = OrderedDict(
            conv5_mask=nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2),
            relu=nn.ReLU(inplace=True),
            mask_fcn_logits=nn.Conv2d(dim_reduced, num_classes, 1),
        )
        super().__init__(layers)
        for layer in (self.conv5_mask, self.mask_fcn_logits):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


class MaskRCNN(FasterRCNN):
    """Mask R-CNN: a `FasterRCNN` that also computes a mask for each box.

    The targets have the key "masks" (L, H, W) with values 0 and 1. In evaluation, the results have the key "masks" (L, 1, H, W) with
    probabilities.

    Args:
        backbone: module that returns features, with the attribute `out_channels`.
        num_classes: number of classes with the background; None with `box_predictor` and `mask_predictor`.
        args: other arguments of `FasterRCNN`.
        mask_roi_pool: a `MultiScaleRoIAlign`.
        mask_head: module from regions to features.
        mask_predictor: module from features to logits (K, num_classes, M, M).
        kwargs: other arguments of `FasterRCNN`.

    Raises:
        ValueError: if not exactly one of num_classes and mask_predictor is given.
    """

    keys = ("masks",)

    def __init__(
        self, backbone: Module, num_classes: int | None = None, *args: Any, mask_roi_pool: Module | None = None,
        mask_head: Module | None = None, mask_predictor: Module | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if (num_classes is None) == (mask_predictor is None):
            raise ValueError("MaskRCNN: expected exactly one of num_classes and mask_predictor, got none or both.")
        super().__init__(backbone, num_classes, *args, **kwargs)
        heads = self.roi_heads
        heads.mask_roi_pool = mask_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, 2)
        heads.mask_head = mask_head or MaskRCNNHeads(backbone.out_channels, (256,) * 4, 1)
        heads.mask_predictor = mask_predictor or MaskRCNNPredictor(256, 256, num_classes)  # type: ignore[arg-type]


def _resnet(num_classes, weights, layers, trained, **kwargs):
    return MaskRCNN(resnet50_pyramid(weights, layers, trained), num_classes, **kwargs)


def _resnet_v2(num_classes, weights, layers, trained, **kwargs):
    backbone, options = improved(weights, layers)
    head = MaskRCNNHeads(256, [256] * 4, 1, norm_layer=nn.BatchNorm2d)
    return MaskRCNN(backbone, num_classes, **{**options, "mask_head": head, **kwargs})


maskrcnn_resnet50_fpn = builder(
    "maskrcnn_resnet50_fpn", "Builds a Mask R-CNN with a ResNet of 50 layers and a feature pyramid.", MaskRCNN, _resnet
)
maskrcnn_resnet50_fpn_v2 = builder(
    "maskrcnn_resnet50_fpn_v2", "Builds a Mask R-CNN with more convolutions and norms.", MaskRCNN, _resnet_v2
)
