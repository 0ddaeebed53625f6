"""EfficientNets. Source: Tan and Le, 2019; version 2: Tan and Le, 2021."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ..ops import Conv2dNormActivation, SqueezeExcitation, StochasticDepth
from .common import Classifier, drawn, variant
from .mobilenet import make_divisible

# expansion, kernel size, stride, input channels, output channels, blocks
_STAGES = (
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
)  # fmt: skip
# width factor, depth factor and dropout probability of each size
_SIZES = ((1.0, 1.0, 0.2), (1.0, 1.1, 0.2), (1.1, 1.2, 0.3), (1.2, 1.4, 0.3), (1.4, 1.8, 0.4), (1.6, 2.2, 0.4), (1.8, 2.6, 0.5),
          (2.0, 3.1, 0.5))  # fmt: skip
# version 2: number of stages of `FusedMBConv`s, dropout probability and stages
_V2 = {
    "s": (3, 0.2, ((1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4), (4, 3, 2, 64, 128, 6),
                   (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15))),
    "m": (3, 0.3, ((1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5), (4, 3, 2, 80, 160, 7),
                   (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5))),
    "l": (3, 0.4, ((1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7), (4, 3, 2, 96, 192, 10),
                   (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7))),
}  # fmt: skip


class MBConv(Module):
    """An inverted residual block with squeeze and excitation, which training skips at random.

    Args:
        expansion: number of inner channels divided by the number of input channels.
        kernel: kernel size of the depthwise convolution.
        stride: stride of the depthwise convolution.
        inside: number of input channels.
        out: number of output channels.
        share: probability of skipping the block in training.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self, expansion: float, kernel: int, stride: int, inside: int, out: int, share: float, norm_layer: Any
    ) -> None:
        super().__init__()
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        self.block = nn.Sequential(
            *self._layers(layer, inside, make_divisible(inside * expansion), out, kernel, stride)
        )
        self.use_res_connect = stride == 1 and inside == out
        self.stochastic_depth, self.out_channels = StochasticDepth(share, "row"), out

    def _layers(self, layer, inside, expanded, out, kernel, stride):
        layers = [layer(inside, expanded, 1)] if expanded != inside else []
        layers.append(layer(expanded, expanded, kernel, stride, groups=expanded))
        layers.append(SqueezeExcitation(expanded, max(1, inside // 4), partial(nn.SiLU, inplace=True)))
        return [*layers, layer(expanded, out, 1, activation_layer=None)]

    def forward(self, input: Tensor) -> Tensor:
        """Converts (N, inside, H, W) to (N, out, H / stride, W / stride).

        Args:
            input: (N, inside, H, W).
        """
        result = self.block(input)
        return self.stochastic_depth(result) + input if self.use_res_connect else result


class FusedMBConv(MBConv):
    """An inverted residual block with one convolution for the expansion and the kernel, which training skips at random.

    Args:
        expansion: number of inner channels divided by the number of input channels.
        kernel: kernel size of the first convolution.
        stride: stride of the first convolution.
        inside: number of input channels.
        out: number of output channels.
        share: probability of skipping the block in training.
        norm_layer: function of the number of channels that returns a norm.
    """

    def _layers(self, layer, inside, expanded, out, kernel, stride):
        if expanded == inside:
            return [layer(inside, out, kernel, stride)]
        return [layer(inside, expanded, kernel, stride), layer(expanded, out, 1, activation_layer=None)]


class EfficientNet(Classifier):
    """Stages of `FusedMBConv`s and `MBConv`s: (N, 3, H, W) to (N, num_classes).

    Args:
        width_mult: factor of the channels.
        depth_mult: factor of the blocks.
        dropout: dropout probability of the classifier.
        stochastic_depth_prob: probability of skipping the last block in training; it grows linearly from 0.
        num_classes: number of classes.
        norm_layer: function of the number of channels that returns a norm (default: batch normalization).
        stages: (expansion, kernel size, stride, input channels, output channels, blocks) of each stage.
        fused: number of stages of `FusedMBConv`s, which are the first stages.
        last_channel: number of channels before the classifier (default: 4 times the channels of the last stage).
    """

    def __init__(
        self, width_mult: float = 1.0, depth_mult: float = 1.0, dropout: float = 0.2, stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000, norm_layer: Any = None, stages: Sequence[Any] = _STAGES, fused: int = 0,
        last_channel: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        stages = [
            (*s[:3], *(make_divisible(c * width_mult) for c in s[3:5]), math.ceil(s[5] * depth_mult)) for s in stages
        ]
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        total, done = sum(s[5] for s in stages), 0
        layers: list[Module] = [layer(3, stages[0][3], stride=2)]
        for number, (expansion, kernel, stride, inside, out, blocks) in enumerate(stages):
            stage: list[Module] = []
            block: Any = FusedMBConv if number < fused else MBConv
            for i in range(blocks):
                share = stochastic_depth_prob * done / total
                first = (stride, inside) if i == 0 else (1, out)
                stage.append(block(expansion, kernel, *first, out, share, norm))
                done += 1
            layers.append(nn.Sequential(*stage))
        last = last_channel or 4 * stages[-1][4]
        layers.append(layer(stages[-1][4], last, 1))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(last, num_classes))
        reach = 1.0 / math.sqrt(num_classes)
        drawn(self, linear=lambda layer: nn.init.uniform_(layer.weight, -reach, reach))


def _variant(size):
    width, depth, dropout = _SIZES[size]
    norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01) if size >= 5 else None
    build = partial(EfficientNet, width, depth, dropout=dropout, norm_layer=norm)
    return variant(f"efficientnet_b{size}", f"Builds an EfficientNet of size B{size}.", EfficientNet, build)


efficientnet_b0, efficientnet_b1, efficientnet_b2, efficientnet_b3 = map(_variant, range(4))
efficientnet_b4, efficientnet_b5, efficientnet_b6, efficientnet_b7 = map(_variant, range(4, 8))


def _variant2(size):
    fused, dropout, stages = _V2[size]
    norm = partial(nn.BatchNorm2d, eps=0.001)
    build = partial(EfficientNet, dropout=dropout, norm_layer=norm, stages=stages, fused=fused, last_channel=1280)
    return variant(f"efficientnet_v2_{size}", f"Builds an EfficientNet V2 of size {size}.", EfficientNet, build)


efficientnet_v2_s, efficientnet_v2_m, efficientnet_v2_l = map(_variant2, "sml")
