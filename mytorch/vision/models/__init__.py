"""`torchvision.models`: networks for pictures, with torchvision's names and keys of the state dict.

There are no weights here: `weights` takes a path of a state dict, or None.
"""

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

__all__ = [
    "VGG", "BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "resnext50_32x4d", "resnext101_32x8d", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
    "vgg19_bn", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip


def __getattr__(name: str) -> type:
    """Names of weights such as `ResNet18_Weights`, which can be mentioned; nothing is downloaded."""
    if not name.endswith("_Weights"):
        raise AttributeError(f"module 'mytorch.vision.models' has no attribute '{name}'")
    return type(name, (), {word: f"{name}.{word}" for word in ("DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2")})
