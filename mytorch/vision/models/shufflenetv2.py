"""ShuffleNet V2. Source: Ma et al., 2018."""

from collections.abc import Callable, Sequence
from functools import partial

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ...ops.movement import cat
from ..ops import Conv2dNormActivation
from .common import variant


class InvertedResidual(Module):
    """Two branches of convolutions with shuffled channels; with stride 1, the first branch is the identity.

    Args:
        inp: number of input channels.
        oup: number of output channels.
        stride: stride of the depthwise convolutions, from 1 to 3.

    Raises:
        ValueError: if the stride is out of range, or the numbers of channels do not fit.
    """

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError(f"illegal stride value: expected 1, 2 or 3, got {stride}.")
        half = oup // 2
        if stride == 1 and inp != 2 * half:
            raise ValueError(
                f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. If stride == 1 then inp should be "
                "equal to oup // 2 << 1."
            )
        self.stride, first = stride, inp if stride > 1 else half

        def depthwise(channels):
            return Conv2dNormActivation(channels, channels, 3, stride, groups=channels, activation_layer=None)

        def pointwise(inside):
            return Conv2dNormActivation(inside, half, 1)

        self.branch1 = nn.Sequential(*depthwise(inp), *pointwise(inp)) if stride > 1 else nn.Sequential()
        self.branch2 = nn.Sequential(*pointwise(first), *depthwise(half), *pointwise(half))

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, inp, H, W) to (N, oup, H / stride, W / stride).

        Args:
            x: (N, inp, H, W).
        """
        kept, changed = x.chunk(2, 1) if self.stride == 1 else (self.branch1(x), x)
        return nn.functional.channel_shuffle(cat([kept, self.branch2(changed)], 1), 2)


class ShuffleNetV2(Module):
    """ShuffleNet V2: (N, 3, H, W) to (N, num_classes).

    Args:
        stages_repeats: number of blocks in each of three stages.
        stages_out_channels: number of channels after the first convolution, the stages and the last convolution.
        num_classes: number of classes.
        inverted_residual: class of the blocks.

    Raises:
        ValueError: if a list has another length.
    """

    def __init__(
        self, stages_repeats: Sequence[int], stages_out_channels: Sequence[int], num_classes: int = 1000,
        inverted_residual: Callable[..., Module] = InvertedResidual,
    ) -> None:  # fmt: skip
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError(f"expected stages_repeats as list of 3 positive ints, got {stages_repeats}.")
        if len(stages_out_channels) != 5:
            raise ValueError(f"expected stages_out_channels as list of 5 positive ints, got {stages_out_channels}.")
        inside, *widths, last = stages_out_channels
        self.conv1 = nn.Sequential(*Conv2dNormActivation(3, inside, 3, 2))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for i, (repeats, width) in enumerate(zip(stages_repeats, widths, strict=True)):
            blocks = [inverted_residual(inside, width, 2)]
            blocks += [inverted_residual(width, width, 1) for _ in range(repeats - 1)]
            self.add_module(f"stage{i + 2}", nn.Sequential(*blocks))
            inside = width
        self.conv5 = nn.Sequential(*Conv2dNormActivation(inside, last, 1))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean((2, 3)))


def _variant(size, channels):
    text = f"Builds a ShuffleNet V2 with {size.replace('_', '.')} times the channels."
    return variant(f"shufflenet_v2_x{size}", text, ShuffleNetV2, partial(ShuffleNetV2, (4, 8, 4), channels))


shufflenet_v2_x0_5 = _variant("0_5", (24, 48, 96, 192, 1024))
shufflenet_v2_x1_0 = _variant("1_0", (24, 116, 232, 464, 1024))
shufflenet_v2_x1_5 = _variant("1_5", (24, 176, 352, 704, 1024))
shufflenet_v2_x2_0 = _variant("2_0", (24, 244, 488, 976, 2048))
