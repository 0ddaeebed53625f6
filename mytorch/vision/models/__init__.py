"""`torchvision.models`: image classification networks with torchvision's names and state dict keys.

No weights are included. The argument `weights` is the path of a state dict, or None.
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from ...nn.module import Module
from . import detection, layer_getter, segmentation
from .alex import AlexNet, alexnet
from .convnext import ConvNeXt, convnext_base, convnext_large, convnext_small, convnext_tiny
from .densenet import DenseNet, densenet121, densenet161, densenet169, densenet201
from .efficientnet import (
    EfficientNet,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
    efficientnet_v2_l,
    efficientnet_v2_m,
    efficientnet_v2_s,
)
from .google import GoogLeNet, GoogLeNetOutputs, googlenet
from .inception import Inception3, InceptionOutputs, inception_v3
from .maxvit import MaxVit, maxvit_t
from .mnasnet import MNASNet, mnasnet0_5, mnasnet0_75, mnasnet1_0, mnasnet1_3
from .mobilenet import MobileNetV2, MobileNetV3, mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small
from .regnet import (
    RegNet,
    regnet_x_1_6gf,
    regnet_x_3_2gf,
    regnet_x_8gf,
    regnet_x_16gf,
    regnet_x_32gf,
    regnet_x_400mf,
    regnet_x_800mf,
    regnet_y_1_6gf,
    regnet_y_3_2gf,
    regnet_y_8gf,
    regnet_y_16gf,
    regnet_y_32gf,
    regnet_y_128gf,
    regnet_y_400mf,
    regnet_y_800mf,
)
from .resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    resnext101_64x4d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from .shufflenetv2 import ShuffleNetV2, shufflenet_v2_x0_5, shufflenet_v2_x1_0, shufflenet_v2_x1_5, shufflenet_v2_x2_0
from .squeezenet import SqueezeNet, squeezenet1_0, squeezenet1_1
from .swin_transformer import SwinTransformer, swin_b, swin_s, swin_t, swin_v2_b, swin_v2_s, swin_v2_t
from .vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from .vision_transformer import VisionTransformer, vit_b_16, vit_b_32, vit_h_14, vit_l_16, vit_l_32

__all__ = [
    "AlexNet", "SqueezeNet", "detection", "layer_getter", "segmentation", "alexnet", "get_model", "get_model_builder", "list_models", "squeezenet1_0", "squeezenet1_1", "ConvNeXt", "DenseNet", "EfficientNet", "Inception3", "inception_v3", "MobileNetV2", "MobileNetV3", "VisionTransformer", "convnext_base", "convnext_large",
    "convnext_small", "convnext_tiny", "densenet121", "densenet161", "densenet169", "densenet201", "efficientnet_b0",
    "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5", "efficientnet_b6",
    "efficientnet_b7", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16",
    "vit_l_32", "VGG", "BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "resnext50_32x4d", "resnext101_32x8d", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
    "vgg19_bn", "wide_resnet50_2", "wide_resnet101_2", "resnext101_64x4d", "GoogLeNet", "GoogLeNetOutputs",
    "InceptionOutputs", "googlenet", "MNASNet", "mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3", "MaxVit", "maxvit_t",
    "RegNet", "regnet_x_1_6gf", "regnet_x_3_2gf", "regnet_x_8gf", "regnet_x_16gf", "regnet_x_32gf", "regnet_x_400mf",
    "regnet_x_800mf", "regnet_y_1_6gf", "regnet_y_3_2gf", "regnet_y_8gf", "regnet_y_16gf", "regnet_y_32gf", "regnet_y_128gf",
    "regnet_y_400mf", "regnet_y_800mf", "ShuffleNetV2", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5",
    "shufflenet_v2_x2_0", "SwinTransformer", "swin_b", "swin_s", "swin_t", "swin_v2_b", "swin_v2_s", "swin_v2_t",
    "efficientnet_v2_l", "efficientnet_v2_m", "efficientnet_v2_s",
]  # fmt: skip


def list_models(
    module: Any = None, include: Iterable[str] | str | None = None, exclude: Iterable[str] | str | None = None
) -> list[str]:
    """Returns the sorted names of the networks.

    Args:
        module: must be None or this module.
        include: patterns such as "resnet*"; a name must match one of them (default: all names).
        exclude: patterns; a name must not match any of them (default: none).

    Example:
        >>> mytorch.vision.models.list_models(include="squeeze*")
        ['squeezenet1_0', 'squeezenet1_1']
    """
    if module is not None and getattr(module, "__name__", "") != __name__:
        raise ValueError(
            f"list_models: expected module=None, got {module!r}. Only networks for classification are available."
        )
    names = sorted(_builders())

    def matches(name, patterns):
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    kept = [name for name in names if include is None or matches(name, include)]
    return [name for name in kept if exclude is None or not matches(name, exclude)]


def _builders() -> dict[str, Callable[..., Module]]:
    """Returns {name: function that builds a network}."""
    found = {name: globals()[name] for name in __all__ if name[0].islower() and not name.startswith(("get_", "list_"))}
    for part in (detection, segmentation):
        found |= {name: getattr(part, name) for name in part.__all__ if name[0].islower() and "backbone" not in name}
    return {name: build for name, build in found.items() if callable(build)}


def get_model_builder(name: str) -> Callable[..., Module]:
    """Returns the function that builds a network.

    Args:
        name: its name, such as "resnet18".

    Raises:
        ValueError: the name is unknown.
    """
    name = name.lower()
    if name not in (builders := _builders()):
        raise ValueError(f"Unknown model {name}")
    return builders[name]


def get_model(name: str, **config: Any) -> Module:
    """Builds a network.

    Args:
        name: its name, such as "resnet18".
        config: arguments of the function of this name.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> model = mytorch.vision.models.get_model("squeezenet1_1", num_classes=10)
        >>> model.eval()(mytorch.zeros(1, 3, 64, 64)).shape
        mytorch.Size([1, 10])
    """
    return get_model_builder(name)(**config)


def __getattr__(name: str) -> type:
    """Accepts names of weights such as `ResNet18_Weights`, without downloads."""
    if not name.endswith("_Weights"):
        raise AttributeError(f"module 'mytorch.vision.models' has no attribute '{name}'")
    return type(name, (), {word: f"{name}.{word}" for word in ("DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2")})
