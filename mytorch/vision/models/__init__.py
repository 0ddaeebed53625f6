"""`torchvision.models`: image classification networks with torchvision's names and state dict keys.

No weights are included. The argument `weights` is the path of a state dict, or None.
"""

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
)
from .inception import Inception3, inception_v3
from .mobilenet import MobileNetV2, MobileNetV3, mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small
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
    wide_resnet50_2,
    wide_resnet101_2,
)
from .vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from .vision_transformer import VisionTransformer, vit_b_16, vit_b_32, vit_h_14, vit_l_16, vit_l_32

__all__ = [
    "ConvNeXt", "DenseNet", "EfficientNet", "Inception3", "inception_v3", "MobileNetV2", "MobileNetV3", "VisionTransformer", "convnext_base", "convnext_large",
    "convnext_small", "convnext_tiny", "densenet121", "densenet161", "densenet169", "densenet201", "efficientnet_b0",
    "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5", "efficientnet_b6",
    "efficientnet_b7", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16",
    "vit_l_32", "VGG", "BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "resnext50_32x4d", "resnext101_32x8d", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
    "vgg19_bn", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip


def __getattr__(name: str) -> type:
    """Accepts names of weights such as `ResNet18_Weights`, without downloads."""
    if not name.endswith("_Weights"):
        raise AttributeError(f"module 'mytorch.vision.models' has no attribute '{name}'")
    return type(name, (), {word: f"{name}.{word}" for word in ("DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2")})
