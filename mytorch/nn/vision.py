"""Layers that change resolution or rearrange pixels; each calls the function of its name."""

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
    """Resizes the spatial axes to `size`, or by `scale_factor`; see `F.interpolate`.

    Example:
        >>> nn.Upsample(scale_factor=2)(tensor([[[1.0, 2.0]]])).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
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
    """Upsample with mode="nearest"."""

    def __init__(self, size: int | tuple[int, int] | None = None, scale_factor: float | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode="bilinear" and aligned corners."""

    def __init__(self, size: int | tuple[int, int] | None = None, scale_factor: float | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Layer, function=F.pixel_shuffle, upscale_factor=...):
    """(…, C r², H, W) to (…, C, H r, W r). Source: Shi et al., 2016."""


class PixelUnshuffle(Layer, function=F.pixel_unshuffle, downscale_factor=...):
    """(…, C, H r, W r) to (…, C r², H, W)."""


class ChannelShuffle(Layer, function=F.channel_shuffle, groups=...):
    """The channels dealt out in groups. Source: Zhang et al., 2017."""


class Unfold(Layer, function=F.unfold, kernel_size=..., dilation=1, padding=0, stride=1):
    """Windows as columns: (N, C, H, W) to (N, C * window, windows); see `F.unfold`."""


class Fold(Layer, function=F.fold, output_size=..., kernel_size=..., dilation=1, padding=0, stride=1):
    """Columns added back where their windows lay: (N, C * window, windows) to (N, C, H, W); see `F.fold`."""
