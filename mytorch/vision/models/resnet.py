"""Residual networks. Source: He et al., 2015. ResNeXt: Xie et al., 2017. Wide ResNet: Zagoruyko and Komodakis, 2016."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from ... import nn
from ...arrays.tensor import Tensor
from ...files.serialization import load
from ...nn.module import Module


def _conv3x3(inside, out, stride=1, groups=1, dilation=1):
    return nn.Conv2d(inside, out, 3, stride, dilation, dilation, groups, bias=False)


class BasicBlock(Module):
    """Two 3 x 3 convolutions with a residual connection.

    Args:
        inplanes: number of input channels.
        planes: number of output channels.
        stride: stride of the first convolution.
        downsample: module for the residual connection, if the shapes differ.
        groups: must be 1.
        base_width: must be 64.
        dilation: must be 1.
        norm_layer: function of the number of channels that returns a norm.
    """

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Module | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[..., Module] = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups != 1 or base_width != 64 or dilation > 1:
            raise ValueError("BasicBlock only supports groups=1, base_width=64 and dilation=1")
        self.conv1, self.bn1 = _conv3x3(inplanes, planes, stride), norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = _conv3x3(planes, planes), norm_layer(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, inplanes, H, W) to (N, planes, H / stride, W / stride).

        Args:
            x: (N, inplanes, H, W).
        """
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(Module):
    """A 3 x 3 convolution between two 1 x 1 convolutions, with a residual connection.

    Args:
        inplanes: number of input channels.
        planes: number of output channels divided by 4.
        stride: stride of the 3 x 3 convolution.
        downsample: module for the residual connection, if the shapes differ.
        groups: groups of the 3 x 3 convolution.
        base_width: width of a group for planes=64.
        dilation: dilation of the 3 x 3 convolution.
        norm_layer: function of the number of channels that returns a norm.
    """

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Module | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[..., Module] = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = nn.Conv2d(inplanes, width, 1, bias=False), norm_layer(width)
        self.conv2, self.bn2 = _conv3x3(width, width, stride, groups, dilation), norm_layer(width)
        self.conv3, self.bn3 = nn.Conv2d(width, planes * 4, 1, bias=False), norm_layer(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, inplanes, H, W) to (N, 4 planes, H / stride, W / stride).

        Args:
            x: (N, inplanes, H, W).
        """
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(Module):
    """ResNet: four stages of residual blocks and a linear classifier, (N, 3, H, W) to (N, num_classes).

    Args:
        block: `BasicBlock` or `Bottleneck`.
        layers: number of blocks in each stage.
        num_classes: number of classes.
        zero_init_residual: initialize the last norm of each block with 0, so that the block starts as the identity.
        groups: groups of the 3 x 3 convolutions.
        width_per_group: number of channels per group of the 3 x 3 convolutions in the first stage.
        replace_stride_with_dilation: replacement of strides by dilation in the last three stages.
        norm_layer: function of the number of channels that returns a norm (default: batch normalization).
    """

    def __init__(
        self, block: type[BasicBlock | Bottleneck], layers: Sequence[int], num_classes: int = 1000,
        zero_init_residual: bool = False, groups: int = 1, width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None, norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        dilate = replace_stride_with_dilation or (False, False, False)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu = self._norm_layer(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0], 1, False)
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
            if zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                last: Any = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.constant_(last.weight, 0)

    def _make_layer(self, block, planes, blocks, stride, dilate):
        before, out = self.dilation, planes * block.expansion
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        downsample = None
        if stride != 1 or self.inplanes != out:
            downsample = nn.Sequential(nn.Conv2d(self.inplanes, out, 1, stride, bias=False), self._norm_layer(out))
        options = (self.groups, self.base_width)
        stage = [block(self.inplanes, planes, stride, downsample, *options, before, self._norm_layer)]
        self.inplanes = out
        stage += [block(out, planes, 1, None, *options, self.dilation, self._norm_layer) for _ in range(1, blocks)]
        return nn.Sequential(*stage)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _variant(name, block, layers, **fixed):
    """Returns the function `name` that builds a network."""

    def make(*, weights: Any = None, **kwargs: Any) -> ResNet:
        model = ResNet(block, layers, **fixed, **kwargs)
        if weights is not None:
            if not isinstance(weights, (str, os.PathLike)) or not os.path.exists(weights):
                raise ValueError(
                    f"weights: expected the path of a state dict or None, got {weights!r}. Weights are not downloaded."
                )
            model.load_state_dict(load(weights))
        return model

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Builds a ResNet with {layers} blocks ({block.__name__}).

    Args:
        weights: path of a state dict, or None.
        kwargs: arguments of `ResNet`.
    """
    return make


resnet18 = _variant("resnet18", BasicBlock, [2, 2, 2, 2])
resnet34 = _variant("resnet34", BasicBlock, [3, 4, 6, 3])
resnet50 = _variant("resnet50", Bottleneck, [3, 4, 6, 3])
resnet101 = _variant("resnet101", Bottleneck, [3, 4, 23, 3])
resnet152 = _variant("resnet152", Bottleneck, [3, 8, 36, 3])
resnext50_32x4d = _variant("resnext50_32x4d", Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4)
resnext101_32x8d = _variant("resnext101_32x8d", Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=8)
resnext101_64x4d = _variant("resnext101_64x4d", Bottleneck, [3, 4, 23, 3], groups=64, width_per_group=4)
wide_resnet50_2 = _variant("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], width_per_group=128)
wide_resnet101_2 = _variant("wide_resnet101_2", Bottleneck, [3, 4, 23, 3], width_per_group=128)
