"""MNASNet. Source: Tan et al., 2018."""

from functools import partial

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ..ops import Conv2dNormActivation
from .common import drawn, variant
from .mobilenet import make_divisible

# kernel size, stride, expansion, blocks of each stage
_STAGES = ((3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1))
_CHANNELS = (32, 16, 24, 40, 80, 96, 192, 320)
_NORM = partial(nn.BatchNorm2d, momentum=1 - 0.9997)


class _InvertedResidual(Module):
    """A depthwise convolution between two 1 x 1 convolutions, with a residual connection if the shapes are equal."""

    def __init__(self, inside, out, kernel, stride, expansion):
        super().__init__()
        inner, layer = inside * expansion, partial(Conv2dNormActivation, norm_layer=_NORM)
        self.apply_residual = inside == out and stride == 1
        self.layers = nn.Sequential(
            *layer(inside, inner, 1), *layer(inner, inner, kernel, stride, groups=inner),
            *layer(inner, out, 1, activation_layer=None),
        )  # fmt: skip

    def forward(self, input):
        return self.layers(input) + input if self.apply_residual else self.layers(input)


class MNASNet(Module):
    """MNASNet, a network of inverted residuals: (N, 3, H, W) to (N, num_classes).

    Args:
        alpha: factor of the channels.
        num_classes: number of classes.
        dropout: dropout probability of the classifier.

    Raises:
        ValueError: if alpha is not positive.
    """

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        if alpha <= 0:
            raise ValueError(f"alpha should be greater than 0.0 instead of {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        first, inside, *widths = (make_divisible(channels * alpha) for channels in _CHANNELS)
        layer = partial(Conv2dNormActivation, norm_layer=_NORM)
        layers: list[Module] = [
            *layer(3, first, 3, 2), *layer(first, first, groups=first), *layer(first, inside, 1, activation_layer=None),
        ]  # fmt: skip
        for out, (kernel, stride, expansion, blocks) in zip(widths, _STAGES, strict=True):
            stage = [_InvertedResidual(inside, out, kernel, stride, expansion)]
            stage += [_InvertedResidual(out, out, kernel, 1, expansion) for _ in range(1, blocks)]
            layers.append(nn.Sequential(*stage))
            inside = out
        self.layers = nn.Sequential(*layers, *layer(inside, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(1280, num_classes))
        drawn(self, lambda linear: nn.init.kaiming_uniform_(linear.weight, mode="fan_out", nonlinearity="sigmoid"))

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(self.layers(x).mean((2, 3)))


def _variant(size):
    text = f"Builds a MNASNet with {size.replace('_', '.')} times the channels."
    return variant(f"mnasnet{size}", text, MNASNet, partial(MNASNet, float(size.replace("_", "."))))


mnasnet0_5, mnasnet0_75, mnasnet1_0, mnasnet1_3 = map(_variant, ("0_5", "0_75", "1_0", "1_3"))
