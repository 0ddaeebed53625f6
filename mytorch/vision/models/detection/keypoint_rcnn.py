"""Keypoint R-CNN. Source: He et al., 2017."""

from collections.abc import Sequence
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....nn import functional as F
from ....nn.module import Module
from ...ops import MultiScaleRoIAlign
from . import boxes as parts
from .backbone import builder, resnet50_pyramid
from .faster_rcnn import FasterRCNN


class KeypointRCNNHeads(nn.Sequential):
    """3 x 3 convolutions for the features of a region.

    Args:
        in_channels: number of input channels.
        layers: number of output channels of each convolution.
    """

    def __init__(self, in_channels: int, layers: Sequence[int]) -> None:
        modules: list[Module] = []
        for inside, out in zip([in_channels, *layers], layers, strict=False):
            modules += [nn.Conv2d(inside, out, 3, padding=1), nn.ReLU(inplace=True)]
        super().__init__(*modules)
        parts.fan_out(self)


class KeypointRCNNPredictor(Module):
    """A transposed convolution and interpolation, which multiply the resolution by 4.

    Args:
        in_channels: number of input channels.
        num_keypoints: number of output channels.
    """

    def __init__(self, in_channels: int, num_keypoints: int) -> None:
        super().__init__()
        self.kps_score_lowres = nn.ConvTranspose2d(in_channels, num_keypoints, 4, 2, 1)
        nn.init.kaiming_normal_(self.kps_score_lowres.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.kps_score_lowres.bias)
        self.up_scale, self.out_channels = 2, num_keypoints

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (K, num_keypoints, 4 H, 4 W).

        Args:
            x: (K, in_channels, H, W).
        """
        x = self.kps_score_lowres(x)
        return F.interpolate(x, scale_factor=float(self.up_scale), mode="bilinear", align_corners=False)


class KeypointRCNN(FasterRCNN):
    """Keypoint R-CNN: a `FasterRCNN` that also finds keypoints in each box.

    The targets have the key "keypoints" (L, num_keypoints, 3) with x, y and 1 for a visible keypoint, otherwise 0. In evaluation, the
    results have the keys "keypoints" of the same form and "keypoints_scores" (L, num_keypoints).

    Args:
        backbone: module that returns features, with the attribute `out_channels`.
        num_classes: number of classes with the background; None with `box_predictor`.
        min_size: lengths of the shorter side of the resized images (default: from 640 to 800).
        args: other arguments of `FasterRCNN`.
        keypoint_roi_pool: a `MultiScaleRoIAlign`.
        keypoint_head: module from regions to features.
        keypoint_predictor: module from features to logits (K, num_keypoints, M, M).
        num_keypoints: number of keypoints (default: 17); None with `keypoint_predictor`.
        kwargs: other arguments of `FasterRCNN`.

    Raises:
        ValueError: if both num_keypoints and keypoint_predictor are given.
    """

    keys = ("keypoints",)

    def __init__(
        self, backbone: Module, num_classes: int | None = None, min_size: int | Sequence[int] | None = None, *args: Any,
        keypoint_roi_pool: Module | None = None, keypoint_head: Module | None = None,
        keypoint_predictor: Module | None = None, num_keypoints: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if num_keypoints is not None and keypoint_predictor is not None:
            raise ValueError("KeypointRCNN: num_keypoints should be None when keypoint_predictor is specified.")
        sizes = (640, 672, 704, 736, 768, 800) if min_size is None else min_size
        super().__init__(backbone, num_classes, sizes, *args, **kwargs)
        heads = self.roi_heads
        heads.keypoint_roi_pool = keypoint_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, 2)
        heads.keypoint_head = keypoint_head or KeypointRCNNHeads(backbone.out_channels, (512,) * 8)
        heads.keypoint_predictor = keypoint_predictor or KeypointRCNNPredictor(512, num_keypoints or 17)


def _resnet(num_classes, weights, layers, trained, **kwargs):
    return KeypointRCNN(resnet50_pyramid(weights, layers, trained), num_classes, **kwargs)


keypointrcnn_resnet50_fpn = builder(
    "keypointrcnn_resnet50_fpn", "Builds a Keypoint R-CNN with a ResNet of 50 layers and a feature pyramid.", KeypointRCNN,
    _resnet, classes=2,
)  # fmt: skip
