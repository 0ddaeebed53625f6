"""RegNet. Source: Radosavovic et al., 2020."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ..ops import Conv2dNormActivation, SqueezeExcitation
from .common import variant
from .mobilenet import make_divisible

# initial width, slope of the widths, factor of the widths, width of a group, blocks
_SIZES = {
    "y_400mf": (48, 27.89, 2.09, 8, 16), "y_800mf": (56, 38.84, 2.4, 16, 14), "y_1_6gf": (48, 20.71, 2.65, 24, 27),
    "y_3_2gf": (80, 42.63, 2.66, 24, 21), "y_8gf": (192, 76.82, 2.19, 56, 17), "y_16gf": (200, 106.23, 2.48, 112, 18),
    "y_32gf": (232, 115.89, 2.53, 232, 20), "y_128gf": (456, 160.83, 2.52, 264, 27), "x_400mf": (24, 24.48, 2.54, 16, 22),
    "x_800mf": (56, 35.73, 2.28, 16, 16), "x_1_6gf": (80, 34.01, 2.25, 24, 18), "x_3_2gf": (88, 26.31, 2.25, 48, 25),
    "x_8gf": (80, 49.56, 2.88, 120, 23), "x_16gf": (216, 55.59, 2.1, 128, 22), "x_32gf": (320, 69.86, 2.0, 168, 23),
}  # fmt: skip


class BlockParams:
    """Sizes of the stages of a RegNet.

    Args:
        depths: number of blocks in each stage.
        widths: number of channels in each stage.
        group_widths: number of channels in a group of the convolutions, for each stage.
        bottleneck_multipliers: number of inner channels divided by the number of channels, for each stage.
        strides: stride of the first block in each stage.
        se_ratio: channels of the squeeze and excitation divided by the input channels of the block, or None.
    """

    def __init__(
        self, depths: Sequence[int], widths: Sequence[int], group_widths: Sequence[int],
        bottleneck_multipliers: Sequence[float], strides: Sequence[int], se_ratio: float | None = None,
    ) -> None:  # fmt: skip
        self.depths, self.widths, self.group_widths = list(depths), list(widths), list(group_widths)
        self.bottleneck_multipliers, self.strides = list(bottleneck_multipliers), list(strides)
        self.se_ratio = se_ratio

    @classmethod
    def from_init_params(
        cls, depth: int, w_0: int, w_a: float, w_m: float, group_width: int, bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> "BlockParams":  # fmt: skip
        """Computes the sizes from a linear function.

        The width of block i is w_0 + w_a * i, rounded to w_0 times a power of w_m and to a multiple of 8. Blocks of equal width
        are a stage.

        Args:
            depth: number of blocks.
            w_0: initial width, a multiple of 8.
            w_a: slope of the widths.
            w_m: factor between the widths of two stages, greater than 1.
            group_width: maximum number of channels in a group of the convolutions.
            bottleneck_multiplier: number of inner channels divided by the number of channels.
            se_ratio: channels of the squeeze and excitation divided by the input channels of the block, or None.

        Raises:
            ValueError: if a number is out of range.

        Example:
            >>> params = mytorch.vision.models.regnet.BlockParams.from_init_params(16, 48, 27.89, 2.09, 8)
            >>> params.widths, params.depths
            ([48, 104, 208, 440], [1, 3, 6, 6])
        """
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8:
            raise ValueError(
                f"Invalid RegNet settings: expected w_a >= 0, w_m > 1 and w_0 a positive multiple of 8, got {w_a=}, {w_m=}, {w_0=}."
            )
        steps = np.round(np.log((np.arange(depth) * w_a + w_0) / w_0) / math.log(w_m))
        rounded, depths = np.unique(np.round(w_0 * w_m**steps / 8) * 8, return_counts=True)
        inner = [int(width * bottleneck_multiplier) for width in rounded]
        groups = [min(group_width, width) for width in inner]
        inner = [make_divisible(width, group) for width, group in zip(inner, groups, strict=True)]
        widths, stages = [int(width / bottleneck_multiplier) for width in inner], len(inner)
        return cls(depths.tolist(), widths, groups, [bottleneck_multiplier] * stages, [2] * stages, se_ratio)


class ResBottleneckBlock(Module):
    """A 3 x 3 convolution with groups between two 1 x 1 convolutions, and a residual connection.

    Args:
        width_in: number of input channels.
        width_out: number of output channels.
        stride: stride of the 3 x 3 convolution.
        norm_layer: function of the number of channels that returns a norm.
        activation_layer: class of the activation.
        group_width: number of channels in a group.
        bottleneck_multiplier: number of inner channels divided by width_out.
        se_ratio: channels of the squeeze and excitation divided by width_in, or None.
    """

    def __init__(
        self, width_in: int, width_out: int, stride: int, norm_layer: Callable[..., Module],
        activation_layer: Callable[..., Module], group_width: int = 1, bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        inner = round(width_out * bottleneck_multiplier)
        self.proj = None
        if width_in != width_out or stride != 1:
            self.proj = layer(width_in, width_out, 1, stride, activation_layer=None)
        layers: list[tuple[str, Module]] = [
            ("a", layer(width_in, inner, 1)),
            ("b", layer(inner, inner, 3, stride, groups=inner // group_width)),
        ]
        if se_ratio:
            layers.append(("se", SqueezeExcitation(inner, round(se_ratio * width_in), activation_layer)))
        self.f = nn.Sequential(OrderedDict([*layers, ("c", layer(inner, width_out, 1, activation_layer=None))]))
        self.activation = activation_layer(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, width_in, H, W) to (N, width_out, H / stride, W / stride).

        Args:
            x: (N, width_in, H, W).
        """
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class RegNet(Module):
    """Stages of residual blocks of regular widths: (N, 3, H, W) to (N, num_classes).

    Args:
        block_params: widths and numbers of blocks, a `BlockParams`.
        num_classes: number of classes.
        stem_width: number of channels after the first convolution.
        stem_type: class of the first convolution (default: `Conv2dNormActivation` with stride 2).
        block_type: class of the blocks (default: `ResBottleneckBlock`).
        norm_layer: function of the number of channels that returns a norm (default: batch normalization).
        activation: class of the activations (default: ReLU).
    """

    def __init__(
        self, block_params: BlockParams, num_classes: int = 1000, stem_width: int = 32,
        stem_type: Callable[..., Module] | None = None, block_type: Callable[..., Module] | None = None,
        norm_layer: Callable[..., Module] | None = None, activation: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        block: Callable[..., Module] = block_type or ResBottleneckBlock
        layers = (norm_layer or nn.BatchNorm2d, activation or nn.ReLU)
        if stem_type is None:
            self.stem: Module = Conv2dNormActivation(
                3, stem_width, 3, 2, norm_layer=layers[0], activation_layer=layers[1]
            )
        else:
            self.stem = stem_type(3, stem_width, *layers)
        stages: OrderedDict[str, Module] = OrderedDict()
        inside, p = stem_width, block_params
        sizes = zip(p.widths, p.depths, p.strides, p.group_widths, p.bottleneck_multipliers, strict=True)
        for number, (out, depth, stride, *options) in enumerate(sizes, 1):
            stage: OrderedDict[str, Module] = OrderedDict()
            for i in range(depth):
                first = (inside, out, stride) if i == 0 else (out, out, 1)
                stage[f"block{number}-{i}"] = block(*first, *layers, *options, p.se_ratio)
            stages[f"block{number}"] = nn.Sequential(stage)
            inside = out
        self.trunk_output = nn.Sequential(stages)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inside, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, std=math.sqrt(2.0 / fan_out))
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(1))


def _variant(name):
    w_0, w_a, w_m, group_width, depth = _SIZES[name]
    params = BlockParams.from_init_params(depth, w_0, w_a, w_m, group_width, se_ratio=0.25 if name[0] == "y" else None)
    return variant(f"regnet_{name}", f"Builds a RegNet with {depth} blocks.", RegNet, partial(RegNet, params))


regnet_y_400mf, regnet_y_800mf, regnet_y_1_6gf, regnet_y_3_2gf = map(_variant, list(_SIZES)[:4])
regnet_y_8gf, regnet_y_16gf, regnet_y_32gf, regnet_y_128gf = map(_variant, list(_SIZES)[4:8])
regnet_x_400mf, regnet_x_800mf, regnet_x_1_6gf, regnet_x_3_2gf = map(_variant, list(_SIZES)[8:12])
regnet_x_8gf, regnet_x_16gf, regnet_x_32gf = map(_variant, list(_SIZES)[12:])
