"""Networks with a feature pyramid, the backbones of detectors, and functions that build detectors."""

from collections.abc import Callable, Sequence
from typing import Any

from .... import nn
from ...._tensor import Tensor
from ....nn.module import Module
from ...ops import FeaturePyramidNetwork, FrozenBatchNorm2d, LastLevelMaxPool
from .. import mobilenet, resnet
from ..common import with_weights
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
    pyramid_norm: Callable[..., Module] | None = None,
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
        pyramid_norm: function of the number of channels that returns a norm of the pyramid, or None.

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
    names = {f"layer{i}": str(n) for n, i in enumerate(stages)}
    return BackboneWithFPN(network, names, channels, 256, extra_blocks, pyramid_norm)


def mobilenet_backbone(
    *, backbone_name: str, weights: Any = None, fpn: bool = True, norm_layer: Callable[..., Module] = FrozenBatchNorm2d,
    trainable_layers: int = 2, returned_layers: Sequence[int] | None = None, extra_blocks: Module | None = None,
) -> Module:  # fmt: skip
    """Builds a MobileNet with a feature pyramid or a convolution.

    Args:
        backbone_name: name of the network, such as "mobilenet_v3_large".
        weights: path of a state dict of the network, or None.
        fpn: add a feature pyramid, otherwise a 1 x 1 convolution.
        norm_layer: function of the number of channels that returns a norm.
        trainable_layers: number of stages that training changes.
        returned_layers: numbers of the stages that the pyramid reads (default: the last two).
        extra_blocks: module that adds levels (default: `LastLevelMaxPool`).

    Raises:
        ValueError: if a number is out of range.
    """
    features = getattr(mobilenet, backbone_name)(weights=weights, norm_layer=norm_layer).features
    stages = freeze(features, mobilenet.stages(features), trainable_layers)
    if not fpn:
        backbone = nn.Sequential(features, nn.Conv2d(features[-1].out_channels, 256, 1))
        backbone.out_channels = 256
        return backbone
    numbers = list(returned_layers or (len(stages) - 2, len(stages) - 1))
    if min(numbers) < 0 or max(numbers) >= len(stages):
        raise ValueError(f"Each returned layer should be in the range [0,{len(stages) - 1}], got {numbers}")
    channels = [features[stages[i]].out_channels for i in numbers]
    return BackboneWithFPN(
        features, {str(stages[i]): str(n) for n, i in enumerate(numbers)}, channels, 256, extra_blocks
    )


def freeze(features: Module, stages: list[int], trainable_layers: int) -> list[int]:
    """Sets `requires_grad` of the parameters before the last stages to False, and returns the stages.

    Args:
        features: layers of the network.
        stages: number of the first layer of each stage.
        trainable_layers: number of stages that training changes.

    Raises:
        ValueError: if trainable_layers is out of range.
    """
    if not 0 <= trainable_layers <= len(stages):
        raise ValueError(f"Trainable layers should be in the range [0,{len(stages)}], got {trainable_layers}")
    layers = list(features.children())
    for layer in layers[: stages[-trainable_layers] if trainable_layers else len(layers)]:
        layer.requires_grad_(False)
    return stages


def builder(
    name: str, text: str, kind: type[Module], build: Callable[..., Module], network: str = "ResNet", classes: int = 91,
    trainable: int = 3, stages: int = 5,
) -> Callable[..., Any]:  # fmt: skip
    """Returns a function with the given name that builds a detector.

    Args:
        name: name of the function.
        text: first line of its docstring.
        kind: class of the detector.
        build: function of (num_classes, weights_backbone, trainable stages, True with weights, **kwargs).
        network: name of the backbone, for the docstring.
        classes: default number of classes.
        trainable: default number of trainable stages with weights.
        stages: number of stages, all of which are trainable without weights.
    """

    def make(
        *, weights: Any = None, progress: bool = True, num_classes: int | None = None, weights_backbone: Any = None,
        trainable_backbone_layers: int | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        trained, layers = weights is not None or weights_backbone is not None, trainable_backbone_layers
        layers = (trainable if trained else stages) if layers is None else layers
        number = classes if num_classes is None else num_classes
        return with_weights(build(number, weights_backbone, layers, trained, **kwargs), weights)

    make.__name__ = make.__qualname__ = name
    make.__module__, make.__annotations__["return"] = build.__module__, kind
    make.__doc__ = f"""{text}

    Args:
        weights: path of a state dict, or None.
        progress: ignored.
        num_classes: number of classes with the background (default: {classes}).
        weights_backbone: path of a state dict of the classification network, or None.
        trainable_backbone_layers: number of stages of the {network} that training changes, from 0 to {stages} (default:
            {trainable} with weights, otherwise {stages}).
        kwargs: arguments of `{kind.__name__}`.
    """
    return make


def resnet50_pyramid(weights: Any, layers: int, frozen: bool = False, **options: Any) -> BackboneWithFPN:
    """Builds a ResNet of 50 layers with a feature pyramid.

    Args:
        weights: path of a state dict of the ResNet, or None.
        layers: number of stages that training changes.
        frozen: use `FrozenBatchNorm2d`, otherwise batch normalization.
        options: other arguments of `resnet_fpn_backbone`.
    """
    return resnet_fpn_backbone(
        backbone_name="resnet50", weights=weights, trainable_layers=layers, frozen_norm=frozen, **options
    )
