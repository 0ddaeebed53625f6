"""Convolutions and transposed convolutions over one, two and three spatial dimensions."""

import math
from collections.abc import Sequence

from ..arrays.tensor import Tensor
from ..ops.conv import several
from ..ops.creation import empty
from . import functional as F
from . import init
from .common_types import Device, DType, _size_any_t
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Conv(Module):
    """The base class of the convolution layers.

    Args:
        in_channels: number of input channels, divisible by `groups`.
        out_channels: number of output channels, divisible by `groups`.
        kernel_size: size of the kernel, one number or one for each spatial dimension.
        stride: distance between neighboring windows, one number or one for each spatial dimension (default: 1).
        padding: number of zeros added at both ends, one number or one for each spatial dimension. "same" keeps the size
            of the input, "valid" is 0 (default: 0).
        dilation: distance between neighboring elements of the kernel, one number or one for each dimension
            (default: 1).
        groups: number of groups of channels that are convolved separately (default: 1).
        bias: if True, adds a learnable number to each output channel (default: True).
        padding_mode: contents of the padding: "zeros", "reflect", "replicate" or "circular" (default: "zeros").
    """

    dims = 2
    transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1,
        padding: _size_any_t | str = 0, dilation: _size_any_t = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Device = None, dtype: DType = None, *, auto: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.auto = auto
        self.fused = fused
        self._setup(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )

    def _setup(self, ins, outs, kernel, stride, padding, dilation, groups, bias, padding_mode, device, dtype):
        d, name = self.dims, type(self).__name__
        if groups <= 0:
            raise ValueError(f"{name}: groups must be a positive integer, got {groups}.")
        for argument, channels in (("in_channels", ins), ("out_channels", outs)):
            if channels % groups:
                raise ValueError(f"{name}: {argument} must be divisible by groups, got {channels} and {groups}.")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                f"padding_mode must be one of zeros, reflect, replicate, circular, but got padding_mode='{padding_mode}'"
            )
        self.in_channels, self.out_channels, self.groups = ins, outs, groups
        self.kernel_size, self.stride, self.dilation = (several(v, d, name) for v in (kernel, stride, dilation))
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of same, valid")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError(f"padding='same' is not supported for strided convolutions, got stride={self.stride}.")
            self.padding = padding
        else:
            self.padding = several(padding, d, name)
        self.padding_mode = padding_mode
        # A transposed convolution has the weight of the convolution whose gradient it computes.
        shape = (ins, outs // groups) if self.transposed else (outs, ins // groups)
        self.weight = Parameter(empty(*shape, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(outs, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias uniformly from ±1 / sqrt(fan_in), where fan_in is the number of inputs of each output."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":  # pad first, because the convolution itself pads with zeros only
            if padding == "same":
                # An odd total puts the extra element at the end, as PyTorch does. F.pad expects the last dimension first.
                total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
                widths = [w for t in reversed(total) for w in (t // 2, t - t // 2)]
            else:
                widths = [w for p in reversed(padding if padding != "valid" else (0,) * self.dims) for w in (p, p)]
            input, padding = F.pad(input, widths, mode=self.padding_mode), 0
        conv = getattr(F, f"conv{self.dims}d")
        geometry = (self.stride, padding, self.dilation, self.groups)
        return conv(input, weight, bias, *geometry, auto=self.auto, fused=self.fused)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        defaults = {  # not printed
            "padding": (0,) * self.dims, "dilation": (1,) * self.dims, "output_padding": (0,) * self.dims, "groups": 1,
        }  # fmt: skip
        text += "".join(f", {n}={v}" for n, d in defaults.items() if (v := getattr(self, n, d)) != d)
        text += "" if self.bias is not None else ", bias=False"
        return text + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


class Conv1d(_Conv):
    """Applies a 1D convolution; see `nn.Conv2d`.

    Shape:
        Input: (N, C_in, L) or (C_in, L).
        Output: (N, C_out, L_out) or (C_out, L_out).
    """

    dims = 1


class Conv2d(_Conv):
    """Applies a 2D convolution.

        output[n, k] = bias[k] + sum_c weight[k, c] ⋆ input[n, c]

    Here ⋆ is the 2D cross-correlation, n the sample, k the output channel and c the input channel.
    For each spatial dimension, such as H, the size of the output is

        H_out = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1

    Shape:
        Input: (N, C_in, H, W) or (C_in, H, W).
        Output: (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Attributes:
        weight: learnable kernels of shape (out_channels, in_channels / groups, *kernel_size).
        bias: learnable vector of shape (out_channels,), or `None`.

    Example:
        >>> layer = nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)
        >>> tuple(layer(mytorch.zeros(1, 3, 32, 32)).shape)
        (1, 8, 16, 16)

    See also: `nn.functional.conv2d`, `nn.LazyConv2d`, `nn.ConvTranspose2d`.
    """


class Conv3d(_Conv):
    """Applies a 3D convolution; see `nn.Conv2d`.

    Shape:
        Input: (N, C_in, D, H, W) or (C_in, D, H, W).
        Output: (N, C_out, D_out, H_out, W_out) or (C_out, D_out, H_out, W_out).
    """

    dims = 3


class _ConvTranspose(_Conv):
    """The base class of the transposed convolution layers.

    Args:
        stride: distance between neighboring windows in the output, one number or one for each dimension (default: 1).
        padding: number of elements removed from both ends of the output, one number or one for each dimension
            (default: 0).
        output_padding: number of elements added at the far end of the output, smaller than `stride` or `dilation`
            (default: 0).
        padding_mode: must be "zeros" (default: "zeros").
    """

    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1,
        padding: _size_any_t = 0, output_padding: _size_any_t = 0, groups: int = 1, bias: bool = True,
        dilation: _size_any_t = 1, padding_mode: str = "zeros", device: Device = None, dtype: DType = None, *,
        auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        Module.__init__(self)
        self.auto = auto
        self.fused = fused
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}.')
        self.output_padding = several(output_padding, self.dims, type(self).__name__)
        self._setup(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self._output_padding(input, output_size)
        conv = getattr(F, f"conv_transpose{self.dims}d")
        options = (self.stride, self.padding, extra, self.groups, self.dilation)
        return conv(input, self.weight, self.bias, *options, auto=self.auto, fused=self.fused)

    def _output_padding(self, input, output_size):
        """Returns the output padding that results in `output_size`; `self.output_padding` if `output_size` is `None`."""
        if output_size is None:
            return self.output_padding
        sizes = tuple(output_size)[-self.dims :]
        options = zip(self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        # The stride makes several input sizes give the same output size, so the size of the output is ambiguous.
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, (s, p, d, k) in zip(input.shape[-self.dims :], options, strict=True)
        ]
        extra = tuple(o - m for o, m in zip(sizes, least, strict=True))
        if any(e < 0 or e >= max(s, 1) for e, s in zip(extra, self.stride, strict=True)):
            most = [m + max(s, 1) - 1 for m, s in zip(least, self.stride, strict=True)]
            raise ValueError(
                f"requested an output size of {list(output_size)}, but valid sizes range from {least} to {most}"
            )
        return extra


class ConvTranspose1d(_ConvTranspose):
    """Applies a 1D transposed convolution, the gradient of `nn.Conv1d` with respect to its input.

    See `nn.ConvTranspose2d`.

    Shape:
        Input: (N, C_in, L) or (C_in, L).
        Output: (N, C_out, L_out) or (C_out, L_out).
    """

    dims = 1


class ConvTranspose2d(_ConvTranspose):
    """Applies a 2D transposed convolution, the gradient of `nn.Conv2d` with respect to its input.

    For each spatial dimension, such as H, the size of the output is

        H_out = (H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1

    A call with `output_size` selects the output padding that results in this size.

    Use it to enlarge feature maps with learned weights. If its output shows a checkerboard, use `Upsample` and a
    convolution.

    Shape:
        Input: (N, C_in, H, W) or (C_in, H, W).
        Output: (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Attributes:
        weight: learnable kernels of shape (in_channels, out_channels / groups, *kernel_size).
        bias: learnable vector of shape (out_channels,), or `None`.

    Example:
        >>> layer = nn.ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
        >>> tuple(layer(mytorch.zeros(1, 8, 16, 16)).shape)
        (1, 3, 32, 32)

    See also: `nn.functional.conv_transpose2d`, `nn.LazyConvTranspose2d`, `nn.Conv2d`.
    """


class ConvTranspose3d(_ConvTranspose):
    """Applies a 3D transposed convolution, the gradient of `nn.Conv3d` with respect to its input.

    See `nn.ConvTranspose2d`.

    Shape:
        Input: (N, C_in, D, H, W) or (C_in, D, H, W).
        Output: (N, C_out, D_out, H_out, W_out) or (C_out, D_out, H_out, W_out).
    """

    dims = 3
