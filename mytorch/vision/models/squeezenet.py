"""SqueezeNet. Source: Iandola et al., 2016."""

from functools import partial

from ... import nn
from ..._tensor import Tensor
from ...ops.movement import cat
from .common import variant


class Fire(nn.Module):
    """A 1 x 1 convolution, followed by 1 x 1 and 3 x 3 convolutions with joined channels.

    Args:
        inplanes: number of input channels.
        squeeze_planes: number of channels of the first convolution.
        expand1x1_planes: number of channels of the 1 x 1 convolution.
        expand3x3_planes: number of channels of the 3 x 3 convolution.
    """

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, inplanes, H, W) to (N, expand1x1_planes + expand3x3_planes, H, W).

        Args:
            x: (N, inplanes, H, W).
        """
        x = self.squeeze_activation(self.squeeze(x))
        return cat([self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1)


# version -> (channels and kernel size of the first convolution; for each fire module its squeeze and expand channels, or "pool")
_LAYERS: dict[str, tuple[tuple[int, int], list]] = {
    "1_0": ((96, 7), [(16, 64), (16, 64), (32, 128), "pool", (32, 128), (48, 192), (48, 192), (64, 256), "pool", (64, 256)]),
    "1_1": ((64, 3), [(16, 64), (16, 64), "pool", (32, 128), (32, 128), "pool", (48, 192), (48, 192), (64, 256), (64, 256)]),
}  # fmt: skip


class SqueezeNet(nn.Module):
    """SqueezeNet: fire modules and a convolution as the classifier, (N, 3, H, W) to (N, num_classes).

    Args:
        version: "1_0", or "1_1" with fewer operations.
        num_classes: number of classes.
        dropout: dropout probability before the last convolution.
    """

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        if version not in _LAYERS:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.num_classes = num_classes
        (channels, kernel), fires = _LAYERS[version]
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, kernel, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        ]
        for fire in fires:
            if isinstance(fire, str):
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            else:
                layers.append(Fire(channels, fire[0], fire[1], fire[1]))
                channels = 2 * fire[1]
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, mean=0.0, std=0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(self.features(x)).flatten(1)


def _variant(version):
    text = f"Builds a SqueezeNet {version.replace('_', '.')}."
    return variant(f"squeezenet{version}", text, SqueezeNet, partial(SqueezeNet, version))


squeezenet1_0, squeezenet1_1 = _variant("1_0"), _variant("1_1")
