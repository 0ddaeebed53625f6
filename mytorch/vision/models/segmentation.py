"""Semantic segmentation: FCN, DeepLab v3 and LR-ASPP. Sources: Long et al. (2014), Chen et al. (2017) and Howard et al. (2019)."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.movement import cat
from . import mobilenet, resnet
from .common import with_weights
from .layer_getter import IntermediateLayerGetter

__all__ = [
    "ASPP",
    "FCN",
    "LRASPP",
    "DeepLabHead",
    "DeepLabV3",
    "FCNHead",
    "LRASPPHead",
    "deeplabv3_mobilenet_v3_large",
    "deeplabv3_resnet50",
    "deeplabv3_resnet101",
    "fcn_resnet50",
    "fcn_resnet101",
    "lraspp_mobilenet_v3_large",
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


class LRASPPHead(Module):
    """Logits of features of two resolutions; the channels of the coarse features are scaled by a function of their means.

    Args:
        low_channels: number of channels of the fine features.
        high_channels: number of channels of the coarse features.
        num_classes: number of output channels.
        inter_channels: number of inner channels.
    """

    def __init__(self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int) -> None:
        super().__init__()
        self.cbr = nn.Sequential(*_conv(high_channels, inter_channels))
        scale = nn.Conv2d(high_channels, inter_channels, 1, bias=False)
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), scale, nn.Sigmoid())
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: dict[str, Tensor]) -> Tensor:
        """Returns logits (N, num_classes, H, W).

        Args:
            input: {"low": (N, low_channels, H, W), "high": coarse features}.
        """
        low, high = input["low"], input["high"]
        x = self.cbr(high) * self.scale(high)
        x = F.interpolate(x, size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(Module):
    """Lite reduced atrous spatial pyramid pooling.

    Args:
        backbone: module that returns {"low": fine features, "high": coarse features}.
        low_channels: number of channels of the fine features.
        high_channels: number of channels of the coarse features.
        num_classes: number of classes.
        inter_channels: number of inner channels.
    """

    def __init__(
        self, backbone: Module, low_channels: int, high_channels: int, num_classes: int, inter_channels: int = 128
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input: Tensor) -> "OrderedDict[str, Tensor]":
        """Returns {"out": logits (N, num_classes, H, W)}.

        Args:
            input: images (N, 3, H, W).
        """
        logits = self.classifier(self.backbone(input))
        return OrderedDict(out=F.interpolate(logits, size=input.shape[-2:], mode="bilinear", align_corners=False))


def _resnet(name, aux_loss, weights, **kwargs):
    """Return (backbone, channels of the features "out", channels of the features "aux")."""
    network = getattr(resnet, name)(weights=weights, replace_stride_with_dilation=[False, True, True], **kwargs)
    layers = {"layer4": "out"} | ({"layer3": "aux"} if aux_loss else {})
    return IntermediateLayerGetter(network, layers), 2048, 1024


def _mobilenet(aux_loss, weights, high="out", low="aux", **kwargs):
    """Return (backbone, channels of the coarse features, channels of the fine features)."""
    features = mobilenet.mobilenet_v3_large(weights=weights, dilated=True, **kwargs).features
    numbers = mobilenet.stages(features)
    last, early = numbers[-1], numbers[-4]
    layers = {str(last): high} | ({str(early): low} if aux_loss else {})
    return IntermediateLayerGetter(features, layers), features[last].out_channels, features[early].out_channels


def _variant(kind, head, name, text):
    def make(
        *, weights: Any = None, progress: bool = True, num_classes: int = 21, aux_loss: bool | None = None,
        weights_backbone: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        build = partial(_resnet, name) if name.startswith("resnet") else _mobilenet
        backbone, channels, early = build(aux_loss, weights_backbone, **kwargs)
        auxiliary = FCNHead(early, num_classes) if aux_loss else None
        return with_weights(kind(backbone, head(channels, num_classes), auxiliary), weights)

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
deeplabv3_mobilenet_v3_large = _variant(
    DeepLabV3, DeepLabHead, "mobilenet_v3_large", "Builds a DeepLab v3 with a large MobileNet V3."
)


def lraspp_mobilenet_v3_large(
    *, weights: Any = None, progress: bool = True, num_classes: int = 21, weights_backbone: Any = None, **kwargs: Any
) -> LRASPP:
    """Builds an LR-ASPP with a large MobileNet V3.

    Args:
        weights: path of a state dict, or None.
        progress: ignored.
        num_classes: number of classes.
        weights_backbone: path of a state dict of the classification network, or None.
        kwargs: arguments of `mobilenet_v3_large`.

    Raises:
        NotImplementedError: if `aux_loss` is True; the network has no auxiliary classifier.
    """
    if kwargs.pop("aux_loss", False):
        raise NotImplementedError(
            "lraspp_mobilenet_v3_large: expected aux_loss=False, got True. This model does not use auxiliary loss."
        )
    backbone, high, low = _mobilenet(True, weights_backbone, "high", "low", **kwargs)
    return with_weights(LRASPP(backbone, low, high, num_classes), weights)
