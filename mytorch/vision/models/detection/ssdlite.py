"""SSDLite: SSD with depthwise convolutions. Source: Sandler et al., 2018; Howard et al., 2019."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....nn.module import Module
from ...ops import Conv2dNormActivation
from .. import mobilenet
from .backbone import builder, freeze
from .boxes import DefaultBoxGenerator
from .ssd import SSD, SSDHead, SSDScoringHead, level_channels, refuse_size


def _normal(module):
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.03)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class _Predictions(SSDScoringHead):
    """A depthwise and a 1 x 1 convolution for each level."""

    def __init__(self, in_channels, num_anchors, columns, norm_layer):
        layers = nn.ModuleList()
        for inside, count in zip(in_channels, num_anchors, strict=True):
            depthwise = Conv2dNormActivation(
                inside, inside, 3, groups=inside, norm_layer=norm_layer, activation_layer=nn.ReLU6
            )
            layers.append(nn.Sequential(depthwise, nn.Conv2d(inside, columns * count, 1)))
        _normal(layers)
        super().__init__(layers, columns)


class SSDLiteClassificationHead(_Predictions):
    """Depthwise convolutions that compute the logits of the classes for each anchor.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
        num_classes: number of classes with the background.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_anchors: Sequence[int],
        num_classes: int,
        norm_layer: Callable[..., Module],
    ) -> None:
        super().__init__(in_channels, num_anchors, num_classes, norm_layer)


class SSDLiteRegressionHead(_Predictions):
    """Depthwise convolutions that compute a code for each anchor.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self, in_channels: Sequence[int], num_anchors: Sequence[int], norm_layer: Callable[..., Module]
    ) -> None:
        super().__init__(in_channels, num_anchors, 4, norm_layer)


class SSDLiteHead(SSDHead):
    """The heads of SSDLite.

    Args:
        in_channels: number of channels of each level.
        num_anchors: number of anchors at a position of each level.
        num_classes: number of classes with the background.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_anchors: Sequence[int],
        num_classes: int,
        norm_layer: Callable[..., Module],
    ) -> None:
        Module.__init__(self)
        self.classification_head = SSDLiteClassificationHead(in_channels, num_anchors, num_classes, norm_layer)
        self.regression_head = SSDLiteRegressionHead(in_channels, num_anchors, norm_layer)


class SSDLiteFeatureExtractorMobileNet(Module):
    """Layers of a MobileNet V3, and depthwise convolutions of lower resolution.

    Args:
        backbone: the attribute `features` of a MobileNet V3.
        c4_pos: number of the block; the first level is computed by its first convolution.
        norm_layer: function of the number of channels that returns a norm.
        width_mult: factor of the channels of the added levels.
        min_depth: lowest number of channels of the added levels.

    Raises:
        ValueError: if the block has a residual connection.
    """

    def __init__(
        self, backbone: nn.Sequential, c4_pos: int, norm_layer: Callable[..., Module], width_mult: float = 1.0,
        min_depth: int = 16,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[Any] = list(backbone)
        block = layers[c4_pos]
        if block.use_res_connect:
            raise ValueError("backbone[c4_pos].use_res_connect should be False")
        self.features = nn.Sequential(
            nn.Sequential(*layers[:c4_pos], block.block[0]), nn.Sequential(block.block[1:], *layers[c4_pos + 1 :])
        )
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
        self.extra, inside = nn.ModuleList(), layers[-1].out_channels
        for channels in (512, 256, 256, 128):
            out = max(min_depth, int(channels * width_mult))
            inner = out // 2
            blocks = layer(inside, inner, 1), layer(inner, inner, 3, 2, groups=inner), layer(inner, out, 1)
            self.extra.append(nn.Sequential(*blocks))
            inside = out
        _normal(self.extra)

    def forward(self, x: Tensor) -> "OrderedDict[str, Tensor]":
        """Returns {number of the level: features}.

        Args:
            x: images (N, 3, H, W).
        """
        results = []
        for block in (*self.features, *self.extra):
            x = block(x)
            results.append(x)
        return OrderedDict((str(i), level) for i, level in enumerate(results))


def _mobilenet(num_classes, weights, layers, trained, norm_layer=None, **kwargs):
    refuse_size(kwargs, "ssdlite320_mobilenet_v3_large", 320)
    norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    # Without trained weights, the last blocks have half of the channels.
    network = mobilenet.mobilenet_v3_large(weights=weights, norm_layer=norm, reduced_tail=weights is None)
    if weights is None:
        _normal(network)
    stages = freeze(network.features, mobilenet.stages(network.features), layers)
    backbone = SSDLiteFeatureExtractorMobileNet(network.features, stages[-2], norm)
    anchors = DefaultBoxGenerator([[2, 3]] * 6, min_ratio=0.2, max_ratio=0.95)
    channels, counts = level_channels(backbone, (320, 320)), anchors.num_anchors_per_location()
    options = {
        "head": SSDLiteHead(channels, counts, num_classes, norm), "score_thresh": 0.001, "nms_thresh": 0.55,
        "detections_per_img": 300, "topk_candidates": 300, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, **kwargs,
    }  # fmt: skip
    return SSD(backbone, anchors, (320, 320), num_classes, **options)


ssdlite320_mobilenet_v3_large = builder(
    "ssdlite320_mobilenet_v3_large", "Builds an SSDLite with a large MobileNet V3 for images of 320 pixels.", SSD, _mobilenet,
    "MobileNet", trainable=6, stages=6,
)  # fmt: skip
