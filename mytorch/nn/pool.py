"""Pooling layers. Each layer calls the function of the same name in `nn.functional`."""

from collections.abc import Sequence
from typing import Any

from ..arrays.tensor import Tensor
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
    """The base class of layers with a window. By default, the stride is the size of the window.

    Args:
        kernel_size: size of the window, one number or one for each spatial dimension.
        stride: distance between neighboring windows, one number or one for each spatial dimension. By default,
            `kernel_size`.
    """

    def __post_init__(self) -> None:
        self.stride: Any = self.kernel_size if self.stride is None else self.stride


class _MaxPool(
    _Pool, Layer,
    shown="kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}",
    kernel_size=..., stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False,
):  # fmt: skip
    """The base class of the max pooling layers.

    Args:
        padding: number of elements added at both ends, which are never the maximum (default: 0).
        dilation: distance between neighboring elements of a window (default: 1).
        return_indices: if True, also returns the positions of the maxima, for `nn.MaxUnpool1d`, `nn.MaxUnpool2d` or
            `nn.MaxUnpool3d` (default: False).
        ceil_mode: if True, rounds the output size up instead of down, so that windows may extend beyond the input
            (default: False).
    """


class MaxPool1d(_MaxPool, function=F.max_pool1d):
    """Computes the maximum of each window of the last dimension; see `nn.MaxPool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: (N, C, L_out) or (C, L_out).
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d):
    """Computes the maximum of each window of the last two dimensions.

    Each spatial dimension, such as H, becomes

        H_out = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1

    Use it to halve feature maps and keep the strongest response; a convolution with `stride=2` learns how to do it
    instead.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> nn.MaxPool2d(2)(mytorch.arange(16.0).reshape(1, 4, 4)).tolist()
        [[[5.0, 7.0], [13.0, 15.0]]]

    See also: `nn.functional.max_pool2d`, `nn.MaxUnpool2d`, `nn.AdaptiveMaxPool2d`.
    """


class MaxPool3d(_MaxPool, function=F.max_pool3d):
    """Computes the maximum of each window of the last three dimensions; see `nn.MaxPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).
    """


class _AvgPool(
    _Pool, Layer, shown="kernel_size={kernel_size}, stride={stride}, padding={padding}", kernel_size=..., stride=None, padding=0,
    ceil_mode=False, count_include_pad=True, divisor_override=None,
):  # fmt: skip
    """The base class of the average pooling layers.

    Args:
        padding: number of zeros added at both ends (default: 0).
        ceil_mode: if True, rounds the output size up instead of down, so that windows may extend beyond the input
            (default: False).
        count_include_pad: if True, includes the padding in the average (default: True).
        divisor_override: divisor of the sums, instead of the number of elements.
    """


class AvgPool1d(
    _AvgPool, function=F.avg_pool1d, shown=_AvgPool._shown, kernel_size=..., stride=None, padding=0, ceil_mode=False,
    count_include_pad=True,
):  # fmt: skip
    """Computes the mean of each window of the last dimension; see `nn.AvgPool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: (N, C, L_out) or (C, L_out).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            value = getattr(self, name)
            setattr(self, name, tuple(value) if isinstance(value, (tuple, list)) else (value,))


class AvgPool2d(_AvgPool, function=F.avg_pool2d):
    """Computes the mean of each window of the last two dimensions.

    Each spatial dimension, such as H, becomes

        H_out = (H + 2 * padding - kernel_size) // stride + 1

    Use it where every element of a window should count, as in smoothing.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> nn.AvgPool2d(2)(mytorch.arange(16.0).reshape(1, 4, 4)).tolist()
        [[[2.5, 4.5], [10.5, 12.5]]]

    See also: `nn.functional.avg_pool2d`, `nn.AdaptiveAvgPool2d`.
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d):
    """Computes the mean of each window of the last three dimensions; see `nn.AvgPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).
    """


class _Adaptive(Layer, output_size=...):
    """The base class of the adaptive pooling layers.

    Args:
        output_size: size of the output, one number or one for each spatial dimension. `None` keeps the size of a
            dimension.
    """


class _AdaptiveMax(_Adaptive, shown="output_size={output_size!r}", output_size=..., return_indices=False):
    """The base class of the adaptive max pooling layers.

    Args:
        return_indices: if True, also returns the positions of the maxima (default: False).
    """


class AdaptiveAvgPool1d(_Adaptive, function=F.adaptive_avg_pool1d):
    """Computes means of windows of the last dimension, for an output of a fixed size; see `nn.AdaptiveAvgPool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: (N, C, output_size) or (C, output_size).
    """


class AdaptiveAvgPool2d(_Adaptive, function=F.adaptive_avg_pool2d):
    """Computes means of windows of the last two dimensions, for an output of a fixed size.

    The layer selects the windows so that they cover the input evenly, also if their sizes differ.

    Use it with `output_size=1` before the last linear layer, so that a network accepts images of any size.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, *output_size) or (C, *output_size).

    Example:
        >>> nn.AdaptiveAvgPool2d(1)(mytorch.arange(16.0).reshape(1, 4, 4)).flatten().tolist()
        [7.5]

    See also: `nn.functional.adaptive_avg_pool2d`, `nn.AvgPool2d`.
    """


class AdaptiveAvgPool3d(_Adaptive, function=F.adaptive_avg_pool3d):
    """Computes means of windows of the last three dimensions, for an output of a fixed size.

    See `nn.AdaptiveAvgPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, *output_size) or (C, *output_size).
    """


class AdaptiveMaxPool1d(_AdaptiveMax, function=F.adaptive_max_pool1d):
    """Computes maxima of windows of the last dimension, for an output of a fixed size; see `nn.AdaptiveMaxPool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: (N, C, output_size) or (C, output_size).
    """


class AdaptiveMaxPool2d(_AdaptiveMax, function=F.adaptive_max_pool2d):
    """Computes maxima of windows of the last two dimensions, for an output of a fixed size.

    The layer selects the windows so that they cover the input evenly, also if their sizes differ.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, *output_size) or (C, *output_size).

    Example:
        >>> nn.AdaptiveMaxPool2d(1)(mytorch.arange(16.0).reshape(1, 4, 4)).flatten().tolist()
        [15.0]

    See also: `nn.functional.adaptive_max_pool2d`, `nn.MaxPool2d`.
    """


class AdaptiveMaxPool3d(_AdaptiveMax, function=F.adaptive_max_pool3d):
    """Computes maxima of windows of the last three dimensions, for an output of a fixed size.

    See `nn.AdaptiveMaxPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, *output_size) or (C, *output_size).
    """


class _LPPool(Layer, norm_type=..., kernel_size=..., stride=None, ceil_mode=False):
    """The base class of the power-average pooling layers.

    Args:
        norm_type: order p of the norm.
        kernel_size: size of the window, one number or one for each spatial dimension.
        stride: distance between neighboring windows, one number or one for each spatial dimension. By default,
            `kernel_size`.
        ceil_mode: if True, rounds the output size up instead of down (default: False).
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool, function=F.lp_pool1d):
    """Computes the p-norm of each window of the last dimension; see `nn.LPPool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: (N, C, L_out) or (C, L_out).
    """


class LPPool2d(_LPPool, function=F.lp_pool2d):
    """Computes the p-norm of each window of the last two dimensions.

        LPPool(window) = (sum of x^p over the window)^(1 / p)

    Use it for something between the sum (`norm_type=1`) and the maximum (large `norm_type`).

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> x = mytorch.ones(1, 1, 4, 4)
        >>> nn.LPPool2d(norm_type=1, kernel_size=4)(x).flatten().tolist()
        [16.0]

    See also: `nn.functional.lp_pool2d`, `nn.AvgPool2d`.
    """


class LPPool3d(_LPPool, function=F.lp_pool3d):
    """Computes the p-norm of each window of the last three dimensions; see `nn.LPPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).
    """


class _MaxUnpool(_Pool, kernel_size=..., stride=None, padding=0):
    """The base class of the max unpooling layers.

    Args:
        padding: padding of the max pooling layer (default: 0).
    """

    dims = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, several(getattr(self, name), self.dims, type(self).__name__))

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool, function=F.max_unpool1d):
    """Computes a partial inverse of `nn.MaxPool1d`; see `nn.MaxUnpool2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Indices: the same shape as the input, from `nn.MaxPool1d` with `return_indices=True`.
        Output: (N, C, L_out) or (C, L_out), where L_out = (L - 1) * stride - 2 * padding + kernel_size.
    """

    dims = 1


class MaxUnpool2d(_MaxUnpool, function=F.max_unpool2d):
    """Computes a partial inverse of `nn.MaxPool2d`.

    The layer writes each maximum to its former position. All other elements are zero.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Indices: the same shape as the input, from `nn.MaxPool2d` with `return_indices=True`.
        Output: (N, C, H_out, W_out) or (C, H_out, W_out), where H_out = (H - 1) * stride - 2 * padding + kernel_size.

    Example:
        >>> y, indices = nn.MaxPool2d(2, return_indices=True)(mytorch.arange(16.0).reshape(1, 4, 4))
        >>> nn.MaxUnpool2d(2)(y, indices).flatten().tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 13.0, 0.0, 15.0]

    See also: `nn.functional.max_unpool2d`.
    """


class MaxUnpool3d(_MaxUnpool, function=F.max_unpool3d):
    """Computes a partial inverse of `nn.MaxPool3d`; see `nn.MaxUnpool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Indices: the same shape as the input, from `nn.MaxPool3d` with `return_indices=True`.
        Output: (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out), where D_out = (D - 1) * stride - 2 * padding +
            kernel_size.
    """

    dims = 3


class _FractionalMaxPool(
    Layer, shown="", kernel_size=..., output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The base class of the fractional max pooling layers.

    Args:
        kernel_size: size of the window, one number or one for each spatial dimension.
        output_size: size of the output, one number or one for each spatial dimension.
        output_ratio: size of the output divided by the size of the input, between 0 and 1. Give either `output_size` or
            `output_ratio`.
        return_indices: if True, also returns the positions of the maxima (default: False).
    """

    dims = 2
    _tensors = ("_random_samples",)

    def __post_init__(self) -> None:
        if self.output_size is None and self.output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if self.output_size is not None and self.output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified, got both")
        ratio = self.output_ratio
        for name in ("kernel_size", "output_size", "output_ratio"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, tuple(value) if isinstance(value, (tuple, list)) else (value,) * self.dims)
        if ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {ratio})")


class FractionalMaxPool2d(_FractionalMaxPool, function=F.fractional_max_pool2d):
    """Computes maxima of windows at pseudorandom positions of the last two dimensions.

    The distances between windows vary, so that the sizes of input and output can have any ratio.

    Use it to shrink by a factor between 1 and 2, more gently than `MaxPool2d`.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: (N, C, H_out, W_out) or (C, H_out, W_out).

    Source: Graham, Fractional max-pooling, 2014.

    Example:
        >>> layer = nn.FractionalMaxPool2d(kernel_size=2, output_ratio=0.5)
        >>> tuple(layer(mytorch.randn(1, 3, 8, 8)).shape)
        (1, 3, 4, 4)

    See also: `nn.functional.fractional_max_pool2d`, `nn.MaxPool2d`.
    """


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d):
    """Computes maxima of windows at pseudorandom positions of the last three dimensions.

    See `nn.FractionalMaxPool2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).
    """

    dims = 3
