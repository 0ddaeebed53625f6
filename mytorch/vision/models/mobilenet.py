"""MobileNets. Source: Sandler et al., 2018 (version 2) and Howard et al., 2019 (version 3)."""

from functools import partial
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ..ops import Conv2dNormActivation, SqueezeExcitation
from .common import Classifier, drawn, variant

_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# kernel size, expanded channels, output channels, squeeze and excitation, hard swish, stride
_LARGE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
    (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip
_SMALL = (
    (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
    (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
    (5, 576, 96, 1, 1, 1),
)  # fmt: skip


def make_divisible(v: float, divisor: int = 8, min_value: int | None = None) -> int:
    """Returns the nearest multiple of a divisor that is at least 90 % of a number.

    Args:
        v: the number.
        divisor: the divisor.
        min_value: minimum result (default: divisor).
    """
    found = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return found + divisor if found < 0.9 * v else found


class InvertedResidual(Module):
    """A depthwise convolution between two 1 x 1 convolutions, with a residual connection if the shapes are equal.

    Args:
        inp: number of input channels.
        oup: number of output channels.
        stride: stride of the depthwise convolution.
        expand_ratio: number of inner channels divided by the number of input channels.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: float, norm_layer: Any = nn.BatchNorm2d) -> None:
        super().__init__()
        inside, layer = round(inp * expand_ratio), partial(Conv2dNormActivation, norm_layer=norm_layer)
        layers = [layer(inp, inside, 1, activation_layer=nn.ReLU6)] if expand_ratio != 1 else []
        layers.append(layer(inside, inside, stride=stride, groups=inside, activation_layer=nn.ReLU6))
        self.conv = nn.Sequential(*layers, nn.Conv2d(inside, oup, 1, bias=False), norm_layer(oup))
        self.use_res_connect, self.out_channels = stride == 1 and inp == oup, oup
        self.reduces = stride > 1

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, inp, H, W) to (N, oup, H / stride, W / stride).

        Args:
            x: (N, inp, H, W).
        """
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(Module):
    """MobileNet V2, a network of inverted residuals: (N, 3, H, W) to (N, num_classes).

    Args:
        num_classes: number of classes.
        width_mult: factor of the channels.
        inverted_residual_setting: (expansion, channels, blocks, stride) of each stage.
        round_nearest: divisor of the numbers of channels.
        dropout: dropout probability of the classifier.
        norm_layer: function of the number of channels that returns a norm (default: batch normalization).
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, inverted_residual_setting: Any = None, round_nearest: int = 8,
        dropout: float = 0.2, norm_layer: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.ReLU6)
        inside = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        layers: list[Module] = [layer(3, inside, stride=2)]
        for expansion, channels, blocks, stride in inverted_residual_setting or _V2:
            out = make_divisible(channels * width_mult, round_nearest)
            for i in range(blocks):
                layers.append(InvertedResidual(inside, out, stride if i == 0 else 1, expansion, norm))
                inside = out
        layers.append(layer(inside, self.last_channel, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        drawn(self, linear=lambda layer: nn.init.normal_(layer.weight, 0, 0.01))

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(self.features(x).mean((2, 3)))


class _Block(Module):
    """An inverted residual of MobileNet V3."""

    def __init__(self, inside, kernel, expanded, out, excite, swish, stride, norm_layer, dilation=1):
        super().__init__()
        layer = partial(
            Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.Hardswish if swish else nn.ReLU
        )
        layers = [layer(inside, expanded, 1)] if expanded != inside else []
        step = 1 if dilation > 1 else stride
        layers.append(layer(expanded, expanded, kernel, step, groups=expanded, dilation=dilation))
        if excite:
            layers.append(SqueezeExcitation(expanded, make_divisible(expanded // 4), scale_activation=nn.Hardsigmoid))
        layers.append(layer(expanded, out, 1, activation_layer=None))
        self.block, self.use_res_connect = nn.Sequential(*layers), stride == 1 and inside == out
        self.out_channels, self.reduces = out, stride > 1

    def forward(self, x):
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(Classifier):
    """MobileNet V3, a network of inverted residuals with squeeze and excitation: (N, 3, H, W) to (N, num_classes).

    Args:
        settings: (kernel, expanded, out, squeeze-excitation, hard swish, stride) of each block, and optionally the dilation,
            which replaces the stride.
        last_channel: number of channels between the layers of the classifier.
        num_classes: number of classes.
        dropout: dropout probability of the classifier.
        width_mult: factor of the channels.
        norm_layer: function of the number of channels that returns a norm (default: batch normalization).
    """

    def __init__(
        self, settings: Any, last_channel: int, num_classes: int = 1000, dropout: float = 0.2, width_mult: float = 1.0,
        norm_layer: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        inside = make_divisible(settings[0][1] * width_mult)
        layers: list[Module] = [
            Conv2dNormActivation(3, inside, stride=2, norm_layer=norm, activation_layer=nn.Hardswish)
        ]
        for kernel, expanded, out, excite, swish, stride, *dilation in settings:
            expanded, out = make_divisible(expanded * width_mult), make_divisible(out * width_mult)
            layers.append(_Block(inside, kernel, expanded, out, excite, swish, stride, norm, *dilation))
            inside = out
        layers.append(Conv2dNormActivation(inside, 6 * inside, 1, norm_layer=norm, activation_layer=nn.Hardswish))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * inside, last_channel), nn.Hardswish(inplace=True), nn.Dropout(dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )  # fmt: skip
        drawn(self, linear=lambda layer: nn.init.normal_(layer.weight, 0, 0.01))


def _v3(size, settings, last):
    def build(reduced_tail=False, dilated=False, **kwargs):
        rows, divisor = list(settings), 2 if reduced_tail else 1
        # The last three blocks; the input of the first one has as many channels as before.
        for i in (-3, -2, -1):
            kernel, expanded, out, excite, swish, stride = rows[i]
            expanded = expanded if i == -3 else expanded // divisor
            rows[i] = (kernel, expanded, out // divisor, excite, swish, stride, 2 if dilated else 1)
        return MobileNetV3(rows, make_divisible(last // divisor * kwargs.get("width_mult", 1.0)), **kwargs)

    return variant(f"mobilenet_v3_{size}", f"Builds a {size} MobileNet V3.", MobileNetV3, build)


def stages(features: Module) -> list[int]:
    """Returns the numbers of the layers that reduce the resolution, with the first and the last layer.

    Args:
        features: the attribute `features` of a MobileNet.
    """
    layers = list(features.children())
    return [0, *(i for i, layer in enumerate(layers) if getattr(layer, "reduces", False)), len(layers) - 1]


mobilenet_v2 = variant("mobilenet_v2", "Builds a MobileNet V2.", MobileNetV2, MobileNetV2)
mobilenet_v3_large, mobilenet_v3_small = _v3("large", _LARGE, 1280), _v3("small", _SMALL, 1024)
