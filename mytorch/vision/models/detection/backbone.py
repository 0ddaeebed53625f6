"""A residual network with a feature pyramid, the backbone of detectors."""

from collections.abc import Callable, Sequence
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....nn.module import Module
from ...ops import FeaturePyramidNetwork, FrozenBatchNorm2d, LastLevelMaxPool
from .. import resnet
from ..layer_getter import IntermediateLayerGetter


class BackboneWithFPN(Module):
    """A feature pyramid on intermediate results of a network.

    Args:
        backbone: network that runs its submodules in order.
        return_layers: {name of a submodule: name of its level}.
        in_channels_list: number of channels of each level.
        out_channels: number of channels of the results.
        extra_blocks: module that adds levels (default: `LastLevelMaxPool`).
        norm_layer: function of the number of channels that returns a norm, or None.
    """

    def __init__(
        self, backbone: Module, return_layers: dict[str, str], in_channels_list: Sequence[int], out_channels: int,
        extra_blocks: Module | None = None, norm_layer: Callable[..., Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers)
        extra = extra_blocks or LastLevelMaxPool()
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra, norm_layer)
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Returns {name: features (N, out_channels, H, W)}.

        Args:
            x: images (N, 3, H, W).
        """
        return self.fpn(self.body(x))


def resnet_fpn_backbone(
    *, backbone_name: str, weights: Any = None, norm_layer: Callable[..., Module] | None = None, trainable_layers: int = 3,
    returned_layers: Sequence[int] | None = None, extra_blocks: Module | None = None, frozen_norm: bool = True,
) -> BackboneWithFPN:  # fmt: skip
    """Builds a residual network with a feature pyramid.

    Args:
        backbone_name: name of the network, such as "resnet50".
        weights: path of a state dict of the network, or None.
        norm_layer: function of the number of channels that returns a norm.
        trainable_layers: number of stages that training changes, from 0 to 5.
        returned_layers: numbers of the stages that the pyramid reads (default: 1 to 4).
        extra_blocks: module that adds levels (default: `LastLevelMaxPool`).
        frozen_norm: the default of norm_layer is `FrozenBatchNorm2d`, otherwise batch normalization.

    Raises:
        ValueError: if a number is out of range.
    """
    if not 0 <= trainable_layers <= 5:
        raise ValueError(f"Trainable layers should be in the range [0,5], got {trainable_layers}")
    stages = list(returned_layers or (1, 2, 3, 4))
    if min(stages) < 1 or max(stages) > 4:
        raise ValueError(f"Each returned layer should be in the range [1,4]. Got {stages}")
    norm = norm_layer or (FrozenBatchNorm2d if frozen_norm else nn.BatchNorm2d)
    network = getattr(resnet, backbone_name)(weights=weights, norm_layer=norm)
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers] + ["bn1"] * (trainable_layers == 5)
    for name, parameter in network.named_parameters():
        if not name.startswith(tuple(trained)):
            parameter.requires_grad_(False)
    width = network.inplanes // 8
    channels = [width * 2 ** (i - 1) for i in stages]
    return BackboneWithFPN(network, {f"layer{i}": str(n) for n, i in enumerate(stages)}, channels, 256, extra_blocks)
