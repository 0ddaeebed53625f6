"""Semantic segmentation: FCN and DeepLab v3 with a ResNet. Source: Long et al., 2014; Chen et al., 2017."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.movement import cat
from . import resnet
from .common import with_weights
from .layer_getter import IntermediateLayerGetter

__all__ = [
    "ASPP",
    "FCN",
    "DeepLabHead",
    "DeepLabV3",
    "FCNHead",
    "deeplabv3_resnet50",
    "deeplabv3_resnet101",
    "fcn_resnet50",
    "fcn_resnet101",
]  # fmt: skip


class _Segmentation(Module):
    """Base class: a backbone, a classifier of its last features, and an auxiliary classifier of earlier features.

    Args:
        backbone: module that returns {"out": features, "aux": features}.
        classifier: module from features to logits.
        aux_classifier: module from the features "aux" to logits, or None.
    """

    def __init__(self, backbone: Module, classifier: Module, aux_classifier: Module | None = None) -> None:
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x: Tensor) -> "OrderedDict[str, Tensor]":
        """Returns {"out": logits (N, num_classes, H, W)}, and "aux" with an auxiliary classifier.

        Args:
            x: images (N, 3, H, W).
        """
        size, features = x.shape[-2:], self.backbone(x)
        out: OrderedDict[str, Tensor] = OrderedDict()
        for name, classifier in (("out", self.classifier), ("aux", self.aux_classifier)):
            if classifier is not None:
                out[name] = F.interpolate(classifier(features[name]), size=size, mode="bilinear", align_corners=False)
        return out


class FCN(_Segmentation):
    """Fully convolutional network.

    Args:
        backbone: module that returns {"out": features, "aux": features}.
        classifier: module from features to logits.
        aux_classifier: module from the features "aux" to logits, or None.
    """


class DeepLabV3(_Segmentation):
    """DeepLab v3.

    Args:
        backbone: module that returns {"out": features, "aux": features}.
        classifier: module from features to logits.
        aux_classifier: module from the features "aux" to logits, or None.
    """


class FCNHead(nn.Sequential):
    """A 3 x 3 convolution, dropout and a 1 x 1 convolution.

    Args:
        in_channels: number of input channels.
        channels: number of output channels.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        inner = in_channels // 4
        super().__init__(*_conv(in_channels, inner, 3), nn.Dropout(0.1), nn.Conv2d(inner, channels, 1))


def _conv(inside, out, kernel=1, dilation=1):
    """Return a convolution that preserves the size, batch normalization and ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inside, out, kernel, padding=padding, dilation=dilation, bias=False)
    return conv, nn.BatchNorm2d(out), nn.ReLU()


class _Pooling(nn.Sequential):
    """The mean over the image, through a convolution, at every position."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns features of the size of x.

        Args:
            x: (N, C, H, W).
        """
        return F.interpolate(super().forward(x), size=x.shape[-2:], mode="bilinear", align_corners=False)


class ASPP(Module):
    """Atrous spatial pyramid pooling: parallel convolutions of several dilations.

    Args:
        in_channels: number of input channels.
        atrous_rates: dilations of the 3 x 3 convolutions.
        out_channels: number of output channels.
    """

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256) -> None:
        super().__init__()
        branches: list[Module] = [nn.Sequential(*_conv(in_channels, out_channels))]
        branches += [nn.Sequential(*_conv(in_channels, out_channels, 3, rate)) for rate in atrous_rates]
        branches.append(_Pooling(nn.AdaptiveAvgPool2d(1), *_conv(in_channels, out_channels)))
        self.convs = nn.ModuleList(branches)
        self.project = nn.Sequential(*_conv(len(branches) * out_channels, out_channels), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Returns features (N, out_channels, H, W).

        Args:
            x: (N, in_channels, H, W).
        """
        return self.project(cat([conv(x) for conv in self.convs], 1))


class DeepLabHead(nn.Sequential):
    """`ASPP`, a 3 x 3 convolution and a 1 x 1 convolution.

    Args:
        in_channels: number of input channels.
        num_classes: number of output channels.
        atrous_rates: dilations of the 3 x 3 convolutions.
    """

    def __init__(self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)) -> None:
        super().__init__(ASPP(in_channels, atrous_rates), *_conv(256, 256, 3), nn.Conv2d(256, num_classes, 1))


def _variant(kind, head, name, text):
    def make(
        *, weights: Any = None, progress: bool = True, num_classes: int = 21, aux_loss: bool | None = None,
        weights_backbone: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        network = getattr(resnet, name)(
            weights=weights_backbone, replace_stride_with_dilation=[False, True, True], **kwargs
        )
        layers = {"layer4": "out"} | ({"layer3": "aux"} if aux_loss else {})
        backbone = IntermediateLayerGetter(network, layers)
        return with_weights(
            kind(backbone, head(2048, num_classes), FCNHead(1024, num_classes) if aux_loss else None), weights
        )

    make.__name__ = make.__qualname__ = f"{kind.__name__.lower()}_{name}"
    make.__module__, make.__annotations__["return"] = __name__, kind
    make.__doc__ = f"""{text}

    Args:
        weights: path of a state dict, or None.
        progress: ignored.
        num_classes: number of classes.
        aux_loss: add an auxiliary classifier.
        weights_backbone: path of a state dict of the classification network, or None.
        kwargs: arguments of `{name}`.
    """
    return make


fcn_resnet50 = _variant(FCN, FCNHead, "resnet50", "Builds an FCN with a ResNet of 50 layers.")
fcn_resnet101 = _variant(FCN, FCNHead, "resnet101", "Builds an FCN with a ResNet of 101 layers.")
deeplabv3_resnet50 = _variant(DeepLabV3, DeepLabHead, "resnet50", "Builds a DeepLab v3 with a ResNet of 50 layers.")
deeplabv3_resnet101 = _variant(DeepLabV3, DeepLabHead, "resnet101", "Builds a DeepLab v3 with a ResNet of 101 layers.")
