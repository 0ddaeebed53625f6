"""Convolution layers in one, two and three dimensions, and transposed ones."""

import math
from collections.abc import Sequence

from .._tensor import Tensor
from ..ops.conv import several
from ..ops.creation import empty
from . import functional as F
from . import init
from .common_types import Device, DType, _size_any_t
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Conv(Module):
    """What the convolution layers share.

    Args:
        in_channels, out_channels: both divisible by groups.
        kernel_size, stride, padding, dilation: a number, or one for each axis; padding may be "same" or "valid".
        groups: how many blocks of channels are convolved separately.
        bias: whether a number is added for each output channel.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        auto: compose it of other ops. fused: use a fused kernel where there is one.
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
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if ins % groups:
            raise ValueError("in_channels must be divisible by groups")
        if outs % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                f"padding_mode must be one of zeros, reflect, replicate, circular, but got padding_mode='{padding_mode}'"
            )
        d, name = self.dims, type(self).__name__
        self.in_channels, self.out_channels, self.groups = ins, outs, groups
        self.kernel_size, self.stride, self.dilation = (several(v, d, name) for v in (kernel, stride, dilation))
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of same, valid")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
            self.padding = padding
        else:
            self.padding = several(padding, d, name)
        self.padding_mode = padding_mode
        shape = (ins, outs // groups) if self.transposed else (outs, ins // groups)
        self.weight = Parameter(empty(*shape, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(outs, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/sqrt(fan in), weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            if padding == "same":
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
        usual = {  # what is not printed
            "padding": (0,) * self.dims, "dilation": (1,) * self.dims, "output_padding": (0,) * self.dims, "groups": 1,
        }  # fmt: skip
        text += "".join(f", {n}={v}" for n, d in usual.items() if (v := getattr(self, n, d)) != d)
        text += "" if self.bias is not None else ", bias=False"
        return text + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


class Conv1d(_Conv):
    """Convolution of (N, C, L).

    Args:
        in_channels, out_channels: C before and after. kernel_size: of a window. stride: distance of windows.
        padding: at both ends, or "same" or "valid". dilation: distance of a window's elements.
        groups: channels are convolved in so many groups. bias: learn one. padding_mode: "zeros", "reflect",
            "replicate", "circular".
        fused: True asks for a kernel, False for the reference, None takes whichever is faster.
    """

    dims = 1


class Conv2d(_Conv):
    """Convolution of (N, C, H, W): a sum over windows of channels times weights (out, in / groups, kH, kW).

    Args:
        in_channels, out_channels: both divisible by groups.
        kernel_size, stride, padding, dilation: a number, or one for each axis; padding may be "same" or "valid".
        groups: how many blocks of channels are convolved separately.
        bias: whether a number is added for each output channel.
        padding_mode: "zeros", "reflect", "replicate" or "circular".

    Shape: (N, in, H, W) to (N, out, (H + 2 padding - dilation (kernel - 1) - 1) // stride + 1, …).

    Example:
        >>> tuple(nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)(mytorch.zeros(1, 3, 32, 32)).shape)
        (1, 8, 16, 16)
    """


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W).

    Args:
        in_channels, out_channels: C before and after. kernel_size: of a window. stride: distance of windows.
        padding: at both ends, or "same" or "valid". dilation: distance of a window's elements.
        groups: channels are convolved in so many groups. bias: learn one. padding_mode: "zeros", "reflect",
            "replicate", "circular".
        fused: True asks for a kernel, False for the reference, None takes whichever is faster.
    """

    dims = 3


class _ConvTranspose(_Conv):
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
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
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
        """The output padding that gives an output of `output_size`; the layer's own if that is None."""
        if output_size is None:
            return self.output_padding
        sizes = tuple(output_size)[-self.dims :]
        options = zip(self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, (s, p, d, k) in zip(input.shape[-self.dims :], options, strict=True)
        ]
        extra = tuple(o - m for o, m in zip(sizes, least, strict=True))
        if any(e < 0 or e >= max(s, 1) for e, s in zip(extra, self.stride, strict=True)):
            raise ValueError(
                f"requested an output size of {list(output_size)}, but valid sizes range from {least} up by less than the stride {self.stride}"
            )
        return extra


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C, L)."""

    dims = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C, H, W).

    Args:
        in_channels, out_channels: C before and after. kernel_size: of a window. stride: distance of windows in the
            output.
        padding: how much of the output's ends is cut off. output_padding: how much is added at one end.
        groups, bias, dilation, padding_mode, fused: as Conv2d's; padding_mode is "zeros".
    """


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W)."""

    dims = 3
