"""GoogLeNet. Source: Szegedy et al., 2014."""

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.movement import cat
from .common import variant
from .inception import BasicConv2d, from_imagenet

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
_GoogLeNetOutputs = GoogLeNetOutputs

# arguments of each block
_BLOCKS = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64), "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64), "4c": (512, 128, 128, 256, 24, 64, 64), "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128), "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}  # fmt: skip


class Inception(Module):
    """Parallel branches of convolutions: 1 x 1, two branches of 1 x 1 and 3 x 3, and max pooling with 1 x 1.

    Args:
        in_channels: number of input channels.
        ch1x1: number of output channels of the first branch.
        ch3x3red: number of inner channels of the second branch.
        ch3x3: number of output channels of the second branch.
        ch5x5red: number of inner channels of the third branch.
        ch5x5: number of output channels of the third branch, which has 3 x 3 kernels as in torchvision.
        pool_proj: number of output channels of the pooling branch.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(
        self, in_channels: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int, pool_proj: int,
        conv_block: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        conv = conv_block or BasicConv2d
        point, wide = partial(conv, kernel_size=1), partial(conv, kernel_size=3, padding=1)
        self.branch1 = point(in_channels, ch1x1)
        self.branch2 = nn.Sequential(point(in_channels, ch3x3red), wide(ch3x3red, ch3x3))
        self.branch3 = nn.Sequential(point(in_channels, ch5x5red), wide(ch5x5red, ch5x5))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), point(in_channels, pool_proj))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the concatenated results of the branches.

        Args:
            x: (N, in_channels, H, W).
        """
        return cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(Module):
    """An auxiliary classifier, which is used in training.

    Args:
        in_channels: number of input channels.
        num_classes: number of classes.
        conv_block: class of the convolution, or None for `BasicConv2d`.
        dropout: dropout probability.
    """

    def __init__(
        self, in_channels: int, num_classes: int, conv_block: Callable[..., Module] | None = None, dropout: float = 0.7
    ) -> None:
        super().__init__()
        self.conv = (conv_block or BasicConv2d)(in_channels, 128, kernel_size=1)
        self.fc1, self.fc2 = nn.Linear(2048, 1024), nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes).

        Args:
            x: (N, in_channels, H, W).
        """
        x = self.conv(F.adaptive_avg_pool2d(x, (4, 4))).flatten(1)
        return self.fc2(self.dropout(F.relu(self.fc1(x))))


class GoogLeNet(Module):
    """GoogLeNet, (N, 3, H, W) to (N, num_classes).

    Args:
        num_classes: number of classes.
        aux_logits: add two auxiliary classifiers; in training, the result is then a `GoogLeNetOutputs`.
        transform_input: convert images with ImageNet's normalization to the range (-1, 1).
        init_weights: initialize the weights from a truncated normal distribution (default: None, which is True).
        blocks: classes of convolutions, blocks and auxiliary classifiers, or None for the classes of this module.
        dropout: dropout probability.
        dropout_aux: dropout probability of the auxiliary classifiers.
    """

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        init_weights: bool | None = None, blocks: list[Callable[..., Module]] | None = None, dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:  # fmt: skip
        super().__init__()
        blocks = blocks or [BasicConv2d, Inception, InceptionAux]
        if len(blocks) != 3:
            raise ValueError(f"blocks length should be 3 instead of {len(blocks)}")
        conv, block, auxiliary = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        pool = partial(nn.MaxPool2d, stride=2, ceil_mode=True)
        self.conv1, self.maxpool1 = conv(3, 64, kernel_size=7, stride=2, padding=3), pool(3)
        self.conv2, self.conv3 = conv(64, 64, kernel_size=1), conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = pool(3)
        for name, channels in _BLOCKS.items():
            if name in ("4a", "5a"):
                self.add_module(*(("maxpool3", pool(3)) if name == "4a" else ("maxpool4", pool(2))))
            self.add_module(f"inception{name}", block(*channels))
        self.aux1 = auxiliary(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = auxiliary(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool, self.dropout = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        for module in self.modules() if init_weights in (None, True) else ():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.01)

    def forward(self, x: Tensor) -> Any:
        """Returns logits, or a `GoogLeNetOutputs` in training with `aux_logits`.

        Args:
            x: images (N, 3, H, W).
        """
        if self.transform_input:
            x = from_imagenet(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        auxiliary: dict[str, Any] = {"4b": self.aux1, "4e": self.aux2} if self.training and self.aux_logits else {}
        pools, logits = {"4a": self.maxpool3, "5a": self.maxpool4}, []
        for name in _BLOCKS:
            if name in auxiliary:
                logits.append(auxiliary[name](x))
            x = getattr(self, f"inception{name}")(pools[name](x) if name in pools else x)
        x = self.fc(self.dropout(self.avgpool(x).flatten(1)))
        return GoogLeNetOutputs(x, logits[1], logits[0]) if logits else x


googlenet = variant("googlenet", "Builds a GoogLeNet.", GoogLeNet, GoogLeNet)
