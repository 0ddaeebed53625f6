"""VGG networks. Source: Simonyan and Zisserman, 2014."""

from functools import partial

from ... import nn
from ...nn.module import Module
from .common import Classifier, variant

_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _cfg(stages):
    """Return the layers in torchvision's format: widths of convolutions, and "M" for pooling."""
    widths = zip((64, 128, 256, 512, 512), stages, strict=True)
    return [entry for width, count in widths for entry in (*[width] * count, "M")]


cfgs = {letter: _cfg(stages) for letter, stages in zip("ABDE", _STAGES.values(), strict=True)}


class VGG(Classifier):
    """VGG: 3 x 3 convolutions with pooling and three linear layers, (N, 3, H, W) to (N, num_classes).

    Args:
        features: the convolutions.
        num_classes: number of classes.
        init_weights: initialize the weights as in torchvision.
        dropout: dropout probability of the classifier.
    """

    def __init__(
        self, features: Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, num_classes),
        )  # fmt: skip
        for module in self.modules() if init_weights else ():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.constant_(module.bias, 0)


def make_layers(cfg: list, batch_norm: bool = False) -> Module:
    """Builds the convolutions of a VGG.

    Args:
        cfg: widths of the convolutions, and "M" for pooling.
        batch_norm: add batch normalization.
    """
    layers: list[Module] = []
    inside = 3
    for out in cfg:
        if out == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(inside, out, 3, padding=1), *([nn.BatchNorm2d(out)] if batch_norm else []), nn.ReLU(True)]
        inside = out
    return nn.Sequential(*layers)


def _variant(depth, batch_norm):
    text = f"Builds a VGG with {depth} layers{' and batch normalization' * batch_norm}."
    features = partial(make_layers, _cfg(_STAGES[depth]), batch_norm)
    return variant(f"vgg{depth}" + "_bn" * batch_norm, text, VGG, lambda **kwargs: VGG(features(), **kwargs))


vgg11, vgg13, vgg16, vgg19 = (_variant(depth, False) for depth in _STAGES)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_variant(depth, True) for depth in _STAGES)
