"""Layers that change the resolution or rearrange pixels. Each layer calls a function in `nn.functional`."""

from typing import Any

from . import functional as F
from .layer import Layer

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]  # fmt: skip


class Upsample(
    Layer, function=F.interpolate, size=None, scale_factor=None, mode="nearest", align_corners=None,
    recompute_scale_factor=None,
):  # fmt: skip
    """Resizes the spatial dimensions by interpolation.

    Use it to enlarge feature maps without parameters, usually before a convolution.

    Shape:
        Input: (N, C, L), (N, C, H, W) or (N, C, D, H, W).
        Output: (N, C, L_out), (N, C, H_out, W_out) or (N, C, D_out, H_out, W_out).

    Example:
        >>> nn.Upsample(scale_factor=2)(tensor([[[1.0, 2.0]]])).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]

    See also: `nn.functional.interpolate`.
    """

    def __post_init__(self) -> None:
        self.name = type(self).__name__
        factor = self.scale_factor
        self.scale_factor: Any = (
            tuple(map(float, factor)) if isinstance(factor, tuple) else float(factor) if factor else None
        )

    def extra_repr(self) -> str:
        what = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images by nearest neighbor interpolation.

    Shape:
        Input: (N, C, H, W).
        Output: (N, C, H_out, W_out).

    Example:
        >>> nn.UpsamplingNearest2d(scale_factor=2)(tensor([[[[1.0, 2.0]]]])).tolist()
        [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]

    See also: `nn.Upsample`, `nn.functional.interpolate`.
    """

    def __init__(self, size: int | tuple[int, int] | None = None, scale_factor: float | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images by bilinear interpolation with aligned corners.

    Shape:
        Input: (N, C, H, W).
        Output: (N, C, H_out, W_out).

    Example:
        >>> nn.UpsamplingBilinear2d(size=(1, 3))(tensor([[[[1.0, 2.0]]]])).tolist()
        [[[[1.0, 1.5, 2.0]]]]

    See also: `nn.Upsample`, `nn.functional.interpolate`.
    """

    def __init__(self, size: int | tuple[int, int] | None = None, scale_factor: float | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Layer, function=F.pixel_shuffle, upscale_factor=...):
    """Rearranges channels into an image of higher resolution.

    Use it for super-resolution: the convolution before it runs at the low resolution, so it is cheaper than
    `ConvTranspose2d`.

    Shape:
        Input: (*, C * r², H, W).
        Output: (*, C, H * r, W * r).

    Source: Shi et al., 2016.

    Example:
        >>> nn.PixelShuffle(2)(mytorch.arange(4.0).reshape(4, 1, 1)).tolist()
        [[[0.0, 1.0], [2.0, 3.0]]]

    See also: `nn.functional.pixel_shuffle`, `nn.PixelUnshuffle`.
    """


class PixelUnshuffle(Layer, function=F.pixel_unshuffle, downscale_factor=...):
    """Rearranges an image into more channels of lower resolution, the inverse of `nn.PixelShuffle`.

    Shape:
        Input: (*, C, H * r, W * r).
        Output: (*, C * r², H, W).

    Example:
        >>> nn.PixelUnshuffle(2)(tensor([[[0.0, 1.0], [2.0, 3.0]]])).flatten().tolist()
        [0.0, 1.0, 2.0, 3.0]

    See also: `nn.functional.pixel_unshuffle`, `nn.PixelShuffle`.
    """


class ChannelShuffle(Layer, function=F.channel_shuffle, groups=...):
    """Rearranges channels so that neighbors come from different groups.

    Shape:
        Input: (N, C, *).
        Output: the same shape as the input.

    Source: Zhang et al., 2018.

    Example:
        >>> nn.ChannelShuffle(2)(mytorch.arange(4.0).reshape(1, 4, 1, 1)).flatten().tolist()
        [0.0, 2.0, 1.0, 3.0]

    See also: `nn.functional.channel_shuffle`.
    """


class Unfold(Layer, function=F.unfold, kernel_size=..., dilation=1, padding=0, stride=1):
    """Returns each window of an image as a column.

    Use it for operations on windows that no layer has; for a plain convolution, `Conv2d` needs far less memory.

    Shape:
        Input: (N, C, H, W).
        Output: (N, C * kernel_height * kernel_width, number of windows).

    Example:
        >>> nn.Unfold(kernel_size=(1, 2))(mytorch.arange(4.0).reshape(1, 1, 2, 2)).tolist()
        [[[0.0, 2.0], [1.0, 3.0]]]

    See also: `nn.functional.unfold`, `nn.Fold`.
    """


class Fold(Layer, function=F.fold, output_size=..., kernel_size=..., dilation=1, padding=0, stride=1):
    """Sums columns at the positions of their windows.

    `nn.Unfold` followed by `nn.Fold` multiplies each pixel by the number of windows that contain it.

    Shape:
        Input: (N, C * kernel_height * kernel_width, number of windows).
        Output: (N, C, H, W).

    Example:
        >>> nn.Fold(output_size=(1, 3), kernel_size=(1, 2))(mytorch.ones(1, 2, 2)).tolist()
        [[[[1.0, 2.0, 1.0]]]]

    See also: `nn.functional.fold`, `nn.Unfold`.
    """
