"""DenseNets. Source: Huang et al., 2016."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.movement import cat
from .common import variant


class _DenseLayer(Module):
    def __init__(self, inside, growth_rate, bn_size, drop_rate):
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inside), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inside, bn_size * growth_rate, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bn_size * growth_rate), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = float(drop_rate)

    def forward(self, input):
        x = cat(list(input), 1) if isinstance(input, (list, tuple)) else input
        x = self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))
        return F.dropout(x, self.drop_rate, self.training) if self.drop_rate else x


class _DenseBlock(nn.ModuleDict):
    def __init__(self, count, inside, bn_size, growth_rate, drop_rate):
        super().__init__()
        for i in range(count):
            self[f"denselayer{i + 1}"] = _DenseLayer(inside + i * growth_rate, growth_rate, bn_size, drop_rate)

    def forward(self, x):
        found = [x]
        for layer in self.values():
            found.append(layer(found))
        return cat(found, 1)


class _Transition(nn.Sequential):
    def __init__(self, inside, out):
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(inside), nn.ReLU(inplace=True)
        self.conv, self.pool = nn.Conv2d(inside, out, 1, bias=False), nn.AvgPool2d(2, 2)


class DenseNet(Module):
    """Blocks with connections from all earlier layers to every layer: (N, 3, H, W) to (N, num_classes).

    Args:
        growth_rate: number of channels that each layer adds.
        block_config: number of layers in each block.
        num_init_features: number of channels of the first convolution.
        bn_size: number of channels inside a layer divided by growth_rate.
        drop_rate: dropout probability of each layer.
        num_classes: number of classes.
        memory_efficient: ignored.
    """

    def __init__(
        self, growth_rate: int = 32, block_config: Sequence[int] = (6, 12, 24, 16), num_init_features: int = 64,
        bn_size: int = 4, drop_rate: float = 0, num_classes: int = 1000, memory_efficient: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        width = num_init_features
        layers: list[tuple[str, Module]] = [
            ("conv0", nn.Conv2d(3, width, 7, 2, 3, bias=False)), ("norm0", nn.BatchNorm2d(width)),
            ("relu0", nn.ReLU(inplace=True)), ("pool0", nn.MaxPool2d(3, 2, 1)),
        ]  # fmt: skip
        for i, count in enumerate(block_config, 1):
            layers.append((f"denseblock{i}", _DenseBlock(count, width, bn_size, growth_rate, drop_rate)))
            width += count * growth_rate
            if i < len(block_config):
                layers.append((f"transition{i}", _Transition(width, width // 2)))
                width //= 2
        layers.append(("norm5", nn.BatchNorm2d(width)))
        self.features, self.classifier = nn.Sequential(OrderedDict(layers)), nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.constant_(self.classifier.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(F.adaptive_avg_pool2d(F.relu(self.features(x)), 1).flatten(1))


def _variant(depth, growth_rate, blocks, first):
    build = partial(DenseNet, growth_rate, blocks, first)
    return variant(f"densenet{depth}", f"Builds a DenseNet with {depth} layers.", DenseNet, build)


densenet121, densenet161 = _variant(121, 32, (6, 12, 24, 16), 64), _variant(161, 48, (6, 12, 36, 24), 96)
densenet169, densenet201 = _variant(169, 32, (6, 12, 32, 32), 64), _variant(201, 32, (6, 12, 48, 32), 64)
