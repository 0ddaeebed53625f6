"""ConvNeXt. Source: Liu et al., 2022."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.creation import full
from ..ops import Permute, StochasticDepth
from .common import variant


class LayerNorm2d(nn.LayerNorm):
    """Layer normalization over the channels of (N, C, H, W) at each position."""

    def forward(self, input: Tensor, *args: Any, **options: Any) -> Tensor:
        """Returns the normalized input.

        Args:
            input: (N, C, H, W).
            *args: ignored.
            **options: ignored.
        """
        x = F.layer_norm(input.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class CNBlock(Module):
    """A block of ConvNeXt: a depthwise 7 x 7 convolution, two linear layers, a scale, and a residual connection.

    Args:
        dim: number of channels.
        layer_scale: initial value of the scale.
        stochastic_depth_prob: probability of skipping the block in training.
    """

    def __init__(self, dim: int, layer_scale: float, stochastic_depth_prob: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim), Permute([0, 2, 3, 1]), nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), Permute([0, 3, 1, 2]),
        )  # fmt: skip
        self.layer_scale = nn.Parameter(full((dim, 1, 1), layer_scale))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            input: (N, dim, H, W).
        """
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class ConvNeXt(Module):
    """Stages of `CNBlock`s: (N, 3, H, W) to (N, num_classes).

    Args:
        widths: number of channels in each stage.
        depths: number of blocks in each stage.
        stochastic_depth_prob: probability of skipping the last block in training; it grows linearly from 0.
        layer_scale: initial value of the blocks' scales.
        num_classes: number of classes.
    """

    def __init__(
        self, widths: Sequence[int], depths: Sequence[int], stochastic_depth_prob: float = 0.0, layer_scale: float = 1e-6,
        num_classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[Module] = [nn.Sequential(nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0], eps=1e-6))]
        done, last = 0, sum(depths) - 1.0
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if i:
                layers.append(
                    nn.Sequential(LayerNorm2d(widths[i - 1], eps=1e-6), nn.Conv2d(widths[i - 1], width, 2, 2))
                )
            shares = [stochastic_depth_prob * (done + k) / last for k in range(depth)]
            layers.append(nn.Sequential(*[CNBlock(width, layer_scale, share) for share in shares]))
            done += depth
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            LayerNorm2d(widths[-1], eps=1e-6), nn.Flatten(1), nn.Linear(widths[-1], num_classes)
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.classifier(self.avgpool(self.features(x)))


def _variant(size, widths, depths, share):
    build = partial(ConvNeXt, widths, depths, stochastic_depth_prob=share)
    return variant(f"convnext_{size}", f"Builds a ConvNeXt with {sum(depths)} blocks.", ConvNeXt, build)


convnext_tiny = _variant("tiny", (96, 192, 384, 768), (3, 3, 9, 3), 0.1)
convnext_small = _variant("small", (96, 192, 384, 768), (3, 3, 27, 3), 0.4)
convnext_base = _variant("base", (128, 256, 512, 1024), (3, 3, 27, 3), 0.5)
convnext_large = _variant("large", (192, 384, 768, 1536), (3, 3, 27, 3), 0.5)
