"""Pooling layers; each calls the function of its name."""

from collections.abc import Sequence
from typing import Any

from .._tensor import Tensor
from ..ops.conv import several
from . import functional as F
from .layer import Declared, Layer

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip


class _Pool(Declared):
    """Windows, which by default follow one another without overlap."""

    def __post_init__(self) -> None:
        self.stride: Any = self.kernel_size if self.stride is None else self.stride


class _MaxPool(
    _Pool, Layer,
    shown="kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}",
    kernel_size=..., stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False,
):  # fmt: skip
    """The maximum of each window; see `F.max_pool2d`."""


class MaxPool1d(_MaxPool, function=F.max_pool1d):
    """Maxima over windows of the last axis.

    Args:
        kernel_size: of a window. stride: distance of windows; by default kernel_size. padding: -inf at both ends.
        dilation: distance of a window's elements. return_indices: also where the maxima were, for `MaxUnpool1d`.
        ceil_mode: also windows that lie partly outside.
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d):
    """Maxima over windows of the last two axes.

    Args:
        kernel_size, stride, padding, dilation: of the windows, a number or one for each axis; stride is by default
            kernel_size.
        return_indices: also return where the maxima are. ceil_mode: keep windows that reach over the edge.

    Shape: (N, C, H, W) or (C, H, W).

    Example:
        >>> nn.MaxPool2d(2)(mytorch.arange(16.0).reshape(1, 4, 4)).tolist()
        [[[5.0, 7.0], [13.0, 15.0]]]
    """


class MaxPool3d(_MaxPool, function=F.max_pool3d):
    """Maxima over windows of the last three axes."""


class _AvgPool(
    _Pool, Layer, shown="kernel_size={kernel_size}, stride={stride}, padding={padding}", kernel_size=..., stride=None, padding=0,
    ceil_mode=False, count_include_pad=True, divisor_override=None,
):  # fmt: skip
    """The mean of each window; see `F.avg_pool2d`."""


class AvgPool1d(
    _AvgPool, function=F.avg_pool1d, shown=_AvgPool._shown, kernel_size=..., stride=None, padding=0, ceil_mode=False,
    count_include_pad=True,
):  # fmt: skip
    """Means over windows of the last axis."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            value = getattr(self, name)
            setattr(self, name, tuple(value) if isinstance(value, (tuple, list)) else (value,))


class AvgPool2d(_AvgPool, function=F.avg_pool2d):
    """Means over windows of the last two axes.

    Args:
        kernel_size: of a window; one number for both axes. stride: distance of windows; by default kernel_size.
        padding: zeros at both ends. ceil_mode: also windows that lie partly outside.
        count_include_pad: divide by the window's size, padding included. divisor_override: divide by this instead.
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d):
    """Means over windows of the last three axes."""


class _Adaptive(Layer, output_size=...):
    """As many windows as `output_size` says; None keeps an axis."""


class _AdaptiveMax(_Adaptive, shown="output_size={output_size!r}", output_size=..., return_indices=False):
    """Maxima; `return_indices` also says where they are."""


class AdaptiveAvgPool1d(_Adaptive, function=F.adaptive_avg_pool1d):
    """Means of output_size windows of the last axis."""


class AdaptiveAvgPool2d(_Adaptive, function=F.adaptive_avg_pool2d):
    """Means of output_size windows of the last two axes; None keeps an axis.

    Example:
        >>> nn.AdaptiveAvgPool2d(1)(mytorch.arange(4.0).reshape(1, 2, 2)).tolist()
        [[[1.5]]]
    """


class AdaptiveAvgPool3d(_Adaptive, function=F.adaptive_avg_pool3d):
    """Means of output_size windows of the last three axes."""


class AdaptiveMaxPool1d(_AdaptiveMax, function=F.adaptive_max_pool1d):
    """Maxima of output_size windows of the last axis."""


class AdaptiveMaxPool2d(_AdaptiveMax, function=F.adaptive_max_pool2d):
    """Maxima of output_size windows of the last two axes."""


class AdaptiveMaxPool3d(_AdaptiveMax, function=F.adaptive_max_pool3d):
    """Maxima of output_size windows of the last three axes."""


class _LPPool(Layer, norm_type=..., kernel_size=..., stride=None, ceil_mode=False):
    """The norm_type-norm of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool, function=F.lp_pool1d):
    """Norms over windows of the last axis."""


class LPPool2d(_LPPool, function=F.lp_pool2d):
    """Norms over windows of the last two axes."""


class LPPool3d(_LPPool, function=F.lp_pool3d):
    """Norms over windows of the last three axes."""


class _MaxUnpool(_Pool, kernel_size=..., stride=None, padding=0):
    """The values put back where a max pool found them, zeros elsewhere."""

    dims = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, several(getattr(self, name), self.dims, type(self).__name__))

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool, function=F.max_unpool1d):
    """The partial inverse of MaxPool1d."""

    dims = 1


class MaxUnpool2d(_MaxUnpool, function=F.max_unpool2d):
    """The partial inverse of MaxPool2d."""


class MaxUnpool3d(_MaxUnpool, function=F.max_unpool3d):
    """The partial inverse of MaxPool3d."""

    dims = 3


class _FractionalMaxPool(
    Layer, shown="", kernel_size=..., output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    dims = 2
    _tensors = ("_random_samples",)

    def __post_init__(self) -> None:
        if self.output_size is None and self.output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if self.output_size is not None and self.output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        given = self.output_ratio
        for name in ("kernel_size", "output_size", "output_ratio"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, tuple(value) if isinstance(value, (tuple, list)) else (value,) * self.dims)
        if given is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {given})")


class FractionalMaxPool2d(_FractionalMaxPool, function=F.fractional_max_pool2d):
    """Maxima of windows of the last two axes at pseudo-random places. Source: Graham, 2014."""


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d):
    """Maxima of windows of the last three axes at pseudo-random places. Source: Graham, 2014."""

    dims = 3
