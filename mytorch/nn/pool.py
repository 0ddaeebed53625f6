"""Pooling layers; each calls the function of its name."""

from ..ops.conv import several as sizes
from . import functional as F
from .module import Module


class _MaxPool(Module):
    """The maximum of each window; see `F.max_pool2d`."""

    dims = 2

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input):
        pool = getattr(F, f"max_pool{self.dims}d")
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """Maxima over windows of the last axis."""

    dims = 1


class MaxPool2d(_MaxPool):
    """Maxima over windows of the last two axes."""


class MaxPool3d(_MaxPool):
    """Maxima over windows of the last three axes."""

    dims = 3


class _AvgPool(Module):
    """The mean of each window; see `F.avg_pool2d`."""

    dims = 2

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input):
        pool = getattr(F, f"avg_pool{self.dims}d")
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Means over windows of the last axis."""

    dims = 1

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__(
            *(tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (kernel_size,)),
            stride,
            padding,
            ceil_mode,
            count_include_pad,
        )
        self.stride = self.kernel_size if stride is None else (stride,) if isinstance(stride, int) else tuple(stride)
        self.padding = (padding,) if isinstance(padding, int) else tuple(padding)


class AvgPool2d(_AvgPool):
    """Means over windows of the last two axes."""


class AvgPool3d(_AvgPool):
    """Means over windows of the last three axes."""

    dims = 3


class _Adaptive(Module):
    """As many windows as `output_size` says; None keeps an axis."""

    function = ""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return getattr(F, self.function)(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size, return_indices=False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input):
        return getattr(F, self.function)(input, self.output_size, self.return_indices)


def _adaptive(kind, d):
    name = f"Adaptive{kind}Pool{d}d"
    function = f"adaptive_{kind.lower()}_pool{d}d"
    doc = f"{'Means' if kind == 'Avg' else 'Maxima'} of adaptive windows of the last {d} axes; see `F.{function}`."
    return type(
        name,
        (_Adaptive if kind == "Avg" else _AdaptiveMax,),
        {"function": function, "__doc__": doc, "__module__": __name__},
    )


AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = (_adaptive("Avg", d) for d in (1, 2, 3))
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = (_adaptive("Max", d) for d in (1, 2, 3))


class _LPPool(Module):
    dims = 2

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input):
        return getattr(F, f"lp_pool{self.dims}d")(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self):
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """Norms over windows of the last axis."""

    dims = 1


class LPPool2d(_LPPool):
    """Norms over windows of the last two axes."""


class LPPool3d(_LPPool):
    """Norms over windows of the last three axes."""

    dims = 3


class _MaxUnpool(Module):
    dims = 2

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        several = sizes
        name = type(self).__name__
        self.kernel_size = several(kernel_size, self.dims, name)
        self.stride = several(kernel_size if stride is None else stride, self.dims, name)
        self.padding = several(padding, self.dims, name)

    def forward(self, input, indices, output_size=None):
        return getattr(F, f"max_unpool{self.dims}d")(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of MaxPool1d."""

    dims = 1


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of MaxPool2d."""


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of MaxPool3d."""

    dims = 3


class _FractionalMaxPool(Module):
    dims = 2

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        d, name = self.dims, type(self).__name__

        def each(value):
            return tuple(value) if isinstance(value, (tuple, list)) else (value,) * d

        self.kernel_size = each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size)
        self.output_ratio = None if output_ratio is None else each(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        return getattr(F, f"fractional_max_pool{self.dims}d")(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows of the last two axes at pseudo-random places. Source: Graham, 2014."""


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima of windows of the last three axes at pseudo-random places. Source: Graham, 2014."""

    dims = 3
