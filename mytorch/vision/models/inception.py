"""Inception v3. Source: Szegedy et al., 2015."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.movement import cat
from .common import variant

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])
_InceptionOutputs = InceptionOutputs


class BasicConv2d(Module):
    """A convolution without bias, batch normalization and ReLU.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels.
        kwargs: other arguments of `nn.Conv2d`.
    """

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the activations.

        Args:
            x: (N, in_channels, H, W).
        """
        return F.relu(self.bn(self.conv(x)), inplace=True)


def from_imagenet(x: Tensor) -> Tensor:
    """Converts images with ImageNet's normalization to the range (-1, 1).

    Args:
        x: images (N, 3, H, W).
    """
    scales = zip((0.229, 0.224, 0.225), (0.485, 0.456, 0.406), strict=True)
    return cat([x[:, i : i + 1] * (std / 0.5) + (mean - 0.5) / 0.5 for i, (std, mean) in enumerate(scales)], 1)


class _Block(Module):
    """Parallel branches of convolutions, whose results are concatenated.

    `_branches()` returns the branches. A branch is a list of names of layers; a tuple of names are parallel layers at its end.
    """

    def _add(self, block: Callable[..., Module], **layers: Any) -> None:
        for name, sizes in layers.items():
            # (input channels, output channels) and, if they differ from the defaults, kernel size, stride and padding.
            inside, out, kernel, stride, padding = tuple(sizes) + (1, 1, 0)[len(sizes) - 2 :]
            self.add_module(name, block(inside, out, kernel_size=kernel, stride=stride, padding=padding))

    def _run(self, names: Sequence, x: Tensor) -> Tensor:
        for name in names:
            layers = [getattr(self, n) for n in ([name] if isinstance(name, str) else name)]
            x = layers[0](x) if len(layers) == 1 else cat([layer(x) for layer in layers], 1)
        return x

    def _pooled(self, x: Tensor) -> Tensor:
        return self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))

    def _branches(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Returns the concatenated results of the branches.

        Args:
            x: (N, in_channels, H, W).
        """
        return cat(self._branches(x), 1)


class InceptionA(_Block):
    """Branches of 1 x 1, 5 x 5 and two 3 x 3 convolutions, and pooling.

    Args:
        in_channels: number of input channels.
        pool_features: number of output channels of the pooling branch.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, pool_features: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        self._add(
            conv_block or BasicConv2d, branch1x1=(in_channels, 64), branch5x5_1=(in_channels, 48), branch5x5_2=(48, 64, 5, 1, 2),
            branch3x3dbl_1=(in_channels, 64), branch3x3dbl_2=(64, 96, 3, 1, 1), branch3x3dbl_3=(96, 96, 3, 1, 1),
            branch_pool=(in_channels, pool_features),
        )  # fmt: skip

    def _branches(self, x):
        double = self._run(["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"], x)
        return [self.branch1x1(x), self._run(["branch5x5_1", "branch5x5_2"], x), double, self._pooled(x)]


class InceptionB(_Block):
    """Branches with stride 2: a 3 x 3 convolution, two 3 x 3 convolutions, and max pooling.

    Args:
        in_channels: number of input channels.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        self._add(
            conv_block or BasicConv2d, branch3x3=(in_channels, 384, 3, 2), branch3x3dbl_1=(in_channels, 64),
            branch3x3dbl_2=(64, 96, 3, 1, 1), branch3x3dbl_3=(96, 96, 3, 2),
        )  # fmt: skip

    def _branches(self, x):
        double = self._run(["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"], x)
        return [self.branch3x3(x), double, F.max_pool2d(x, kernel_size=3, stride=2)]


class InceptionC(_Block):
    """Branches of 1 x 1 convolutions and of convolutions with 7 x 1 and 1 x 7 kernels, and pooling.

    Args:
        in_channels: number of input channels.
        channels_7x7: number of channels in the branches with 7 x 1 and 1 x 7 kernels.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, channels_7x7: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        c, row, column = channels_7x7, ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        self._add(
            conv_block or BasicConv2d, branch1x1=(in_channels, 192), branch7x7_1=(in_channels, c), branch7x7_2=(c, c, *row),
            branch7x7_3=(c, 192, *column), branch7x7dbl_1=(in_channels, c), branch7x7dbl_2=(c, c, *column),
            branch7x7dbl_3=(c, c, *row), branch7x7dbl_4=(c, c, *column), branch7x7dbl_5=(c, 192, *row),
            branch_pool=(in_channels, 192),
        )  # fmt: skip

    def _branches(self, x):
        single = self._run([f"branch7x7_{i}" for i in range(1, 4)], x)
        return [self.branch1x1(x), single, self._run([f"branch7x7dbl_{i}" for i in range(1, 6)], x), self._pooled(x)]


class InceptionD(_Block):
    """Branches with stride 2: a 3 x 3 convolution, 1 x 7, 7 x 1 and 3 x 3 convolutions, and max pooling.

    Args:
        in_channels: number of input channels.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        self._add(
            conv_block or BasicConv2d, branch3x3_1=(in_channels, 192), branch3x3_2=(192, 320, 3, 2),
            branch7x7x3_1=(in_channels, 192), branch7x7x3_2=(192, 192, (1, 7), 1, (0, 3)),
            branch7x7x3_3=(192, 192, (7, 1), 1, (3, 0)), branch7x7x3_4=(192, 192, 3, 2),
        )  # fmt: skip

    def _branches(self, x):
        deep = self._run([f"branch7x7x3_{i}" for i in range(1, 5)], x)
        return [self._run(["branch3x3_1", "branch3x3_2"], x), deep, F.max_pool2d(x, kernel_size=3, stride=2)]


class InceptionE(_Block):
    """Branches of 1 x 1 convolutions and of parallel 1 x 3 and 3 x 1 convolutions, and pooling.

    Args:
        in_channels: number of input channels.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        row, column = (384, 384, (1, 3), 1, (0, 1)), (384, 384, (3, 1), 1, (1, 0))
        self._add(
            conv_block or BasicConv2d, branch1x1=(in_channels, 320), branch3x3_1=(in_channels, 384), branch3x3_2a=row,
            branch3x3_2b=column, branch3x3dbl_1=(in_channels, 448), branch3x3dbl_2=(448, 384, 3, 1, 1), branch3x3dbl_3a=row,
            branch3x3dbl_3b=column, branch_pool=(in_channels, 192),
        )  # fmt: skip

    def _branches(self, x):
        single = self._run(["branch3x3_1", ("branch3x3_2a", "branch3x3_2b")], x)
        double = self._run(["branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b")], x)
        return [self.branch1x1(x), single, double, self._pooled(x)]


class InceptionAux(Module):
    """The auxiliary classifier, which is used in training.

    Args:
        in_channels: number of input channels.
        num_classes: number of classes.
        conv_block: class of the convolutions, or None for `BasicConv2d`.
    """

    def __init__(self, in_channels: int, num_classes: int, conv_block: Callable[..., Module] | None = None) -> None:
        super().__init__()
        block = conv_block or BasicConv2d
        self.conv0, self.conv1 = block(in_channels, 128, kernel_size=1), block(128, 768, kernel_size=5)
        self.fc = nn.Linear(768, num_classes)
        self.conv1.stddev, self.fc.stddev = 0.01, 0.001

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes).

        Args:
            x: (N, in_channels, 17, 17).
        """
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Inception3(Module):
    """Inception v3, (N, 3, 299, 299) to (N, num_classes). Other sizes from 75 x 75 pixels are possible without `aux_logits`.

    Args:
        num_classes: number of classes.
        aux_logits: add an auxiliary classifier; in training, the result is then an `InceptionOutputs`.
        transform_input: convert images with ImageNet's normalization to the range (-1, 1).
        inception_blocks: seven classes of blocks, or None for the classes of this module.
        init_weights: initialize the weights from a truncated normal distribution (default: None, which is True).
        dropout: dropout probability.
    """

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        inception_blocks: list[Callable[..., Module]] | None = None, init_weights: bool | None = None, dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        blocks = inception_blocks or [
            BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE, InceptionAux,
        ]  # fmt: skip
        if len(blocks) != 7:
            raise ValueError(f"length of inception_blocks should be 7 instead of {len(blocks)}")
        conv, a, b, c, d, e, aux = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = conv(64, 80, kernel_size=1), conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = a(192, 32), a(256, 64), a(288, 64)
        self.Mixed_6a = b(288)
        for letter, width in zip("bcde", (128, 160, 160, 192), strict=True):
            self.add_module(f"Mixed_6{letter}", c(768, channels_7x7=width))
        self.AuxLogits = aux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = d(768), e(1280), e(2048)
        self.avgpool, self.dropout = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        for module in self.modules() if init_weights in (None, True) else ():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, mean=0.0, std=float(getattr(module, "stddev", 0.1)), a=-2, b=2)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Any:
        """Returns logits, or an `InceptionOutputs` in training with `aux_logits`.

        Args:
            x: images (N, 3, H, W).
        """
        if self.transform_input:
            x = from_imagenet(x)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        aux = None
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
            x = getattr(self, f"Mixed_{name}")(x)
            if name == "6e" and self.AuxLogits is not None and self.training:
                aux = self.AuxLogits(x)
        x = self.fc(self.dropout(self.avgpool(x)).flatten(1))
        return InceptionOutputs(x, aux) if self.training and self.aux_logits else x


inception_v3 = variant("inception_v3", "Builds an Inception v3.", Inception3, Inception3)
