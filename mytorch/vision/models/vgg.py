"""VGG networks. Source: Simonyan and Zisserman, 2014."""

from functools import partial

from ... import nn
from ...nn.module import Module
from .common import Classifier, variant

_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _cfg(stages):
    """The layers of a network as torchvision lists them: widths of convolutions, "M" for pooling."""
    widths = zip((64, 128, 256, 512, 512), stages, strict=True)
    return [entry for width, count in widths for entry in (*[width] * count, "M")]


cfgs = {letter: _cfg(stages) for letter, stages in zip("ABDE", _STAGES.values(), strict=True)}


class VGG(Classifier):
    """Convolutions of 3 x 3 with pooling in between, and three linear layers: (N, 3, H, W) to (N, num_classes).

    Args:
        features: the convolutions.
        num_classes: logits.
        init_weights: draw them as torchvision does.
        dropout: share that the classifier drops.
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
    """The convolutions of a network: widths, with "M" where it pools."""
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
    text = f"A VGG of {depth} layers{', with batch normalisation' * batch_norm}."
    features = partial(make_layers, _cfg(_STAGES[depth]), batch_norm)
    return variant(f"vgg{depth}" + "_bn" * batch_norm, text, VGG, lambda **kwargs: VGG(features(), **kwargs))


vgg11, vgg13, vgg16, vgg19 = (_variant(depth, False) for depth in _STAGES)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_variant(depth, True) for depth in _STAGES)
