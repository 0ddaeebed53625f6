"""Layers that infer the size of their input in the first call, and then change their class to the regular layer."""

import itertools
from typing import Any

from ..arrays.dtypes import int64
from ..arrays.tensor import Tensor
from ..ops.creation import zeros
from .common_types import Device, DType, _size_any_t
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin(Module):
    """The base class of lazy modules. Put it before the class of the module among the base classes.

    The subclass creates each parameter as an `UninitializedParameter`. It defines `initialize_parameters(*inputs)`,
    which gives them their shapes. After the first call, the class of the module becomes `cls_to_become`, if that is
    set.

    Args:
        args: arguments of the constructor of the next base class.
        kwargs: keyword arguments of the constructor of the next base class.

    Example:
        >>> layer = nn.LazyLinear(4)
        >>> layer.has_uninitialized_params()
        True
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _named_tensors(self):
        return itertools.chain(self._parameters.items(), self._buffers.items())

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in self._named_tensors():
            if tensor is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the parameters their shapes, from the inputs of the first call. Each lazy module defines this method."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Returns True if a parameter or buffer of this module has no shape yet."""
        return any(is_lazy(t) for _, t in self._named_tensors())

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        del module._initialize_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class _LazyLayer(LazyModuleMixin):
    """A layer that reads the attribute named by `_size` from its first input. The attribute is 0 before."""

    _size = ""

    def __init_subclass__(cls, becomes=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if becomes is not None:
            cls.cls_to_become = becomes

    def reset_parameters(self) -> None:
        """Resets the parameters as the regular layer does, if their shapes are known."""
        if not self.has_uninitialized_params() and getattr(self, self._size) != 0:
            layer: Any = super()
            layer.reset_parameters()

    def _make_lazy(self, bias, device, dtype):
        for name in ("weight", "bias") if bias else ("weight",):
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))

    def _learn_size(self, size):
        """Stores the size of the first input. Returns True if the parameters have no shapes yet."""
        if getattr(self, self._size) == 0:
            setattr(self, self._size, size)
        return self.has_uninitialized_params()

    def _materialize(self, weight, bias):
        """Gives weight and bias their shapes and initial values."""
        self.weight.materialize(weight)
        if self.bias is not None:
            self.bias.materialize(bias)
        self.reset_parameters()


class LazyLinear(_LazyLayer, Linear, becomes=Linear):
    """Applies a linear transformation, with `in_features` inferred from the first input.

    The parameters have no shape before the first call. After it, the layer is an `nn.Linear`.

    Args:
        out_features: size of the last dimension of the output.

    Shape:
        Input: (*, in_features).
        Output: (*, out_features).

    Example:
        >>> layer = nn.LazyLinear(4)
        >>> tuple(layer(mytorch.ones(2, 3)).shape), layer.in_features
        ((2, 4), 3)

    See also: `nn.Linear`.
    """

    _size = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Device = None, dtype: DType = None) -> None:
        super().__init__(0, 0, False)  # without memory: the parameters follow
        self.out_features = out_features
        self._make_lazy(bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Sets `in_features` to the size of the last dimension of the input."""
        if self._learn_size(input.shape[-1]):
            self._materialize((self.out_features, self.in_features), (self.out_features,))


class _LazyConv(_LazyLayer):
    """The base class of the lazy convolution layers."""

    _size = "in_channels"

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Sets `in_channels` to the number of channels of the input."""
        if not self._learn_size(self._channels_of(input)):
            return
        if self.in_channels % self.groups:
            raise ValueError(f"in_channels must be divisible by groups, got {self.in_channels} and {self.groups}.")
        first, second = self.out_channels, self.in_channels  # order of the channels in the weight
        if self.transposed:
            first, second = second, first
        self._materialize((first, second // self.groups, *self.kernel_size), (self.out_channels,))

    def _channels_of(self, input):
        d = self.dims
        if input.ndim not in (d + 1, d + 2):
            raise RuntimeError(
                f"Expected {d + 1}D (unbatched) or {d + 2}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {input.shape}"
            )
        return input.shape[-d - 1]


class _LazyOrdinaryConv(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1, padding: _size_any_t | str = 0,
        dilation: _size_any_t = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self.out_channels = out_channels
        self._make_lazy(bias, device, dtype)


class _LazyTransposedConv(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1, padding: _size_any_t = 0,
        output_padding: _size_any_t = 0, groups: int = 1, bias: bool = True, dilation: _size_any_t = 1,
        padding_mode: str = "zeros", device: Device = None, dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self.out_channels = out_channels
        self._make_lazy(bias, device, dtype)


class _LazyNorm(_LazyLayer):
    """The base class of the lazy normalization layers.

    Args:
        affine: if True, has a learnable weight and bias (default: True).
        track_running_stats: if True, updates running statistics during training and uses them in evaluation mode
            (default: True).
    """

    _size = "num_features"
    num_features: int

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Device = None, dtype: DType = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self._make_lazy(bias, device, dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=int64, device=device)

    def initialize_parameters(self, input: Tensor) -> None:
        """Sets `num_features` to the number of channels of the input."""
        fresh = self.has_uninitialized_params()
        if fresh or (self.num_features == 0 and any(t is not None for t in (self.weight, self.running_mean))):
            self.num_features = input.shape[1]
        if fresh:
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                if tensor is not None and is_lazy(tensor):
                    tensor.materialize((self.num_features,))
            self.reset_parameters()


class LazyConv1d(_LazyOrdinaryConv, Conv1d, becomes=Conv1d):
    """Applies a 1D convolution, with `in_channels` inferred from the first input; see `nn.LazyConv2d`."""


class LazyConv2d(_LazyOrdinaryConv, Conv2d, becomes=Conv2d):
    """Applies a 2D convolution, with `in_channels` inferred from the first input.

    The parameters have no shape before the first call. After it, the layer is an `nn.Conv2d`.

    Shape:
        Input: (N, C_in, H, W) or (C_in, H, W).
        Output: (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> layer = nn.LazyConv2d(4, kernel_size=3)
        >>> tuple(layer(mytorch.zeros(1, 3, 8, 8)).shape), layer.in_channels
        ((1, 4, 6, 6), 3)

    See also: `nn.Conv2d`.
    """


class LazyConv3d(_LazyOrdinaryConv, Conv3d, becomes=Conv3d):
    """Applies a 3D convolution, with `in_channels` inferred from the first input; see `nn.LazyConv2d`."""


class LazyConvTranspose1d(_LazyTransposedConv, ConvTranspose1d, becomes=ConvTranspose1d):
    """Applies a 1D transposed convolution, with `in_channels` inferred from the first input; see `nn.LazyConvTranspose2d`."""


class LazyConvTranspose2d(_LazyTransposedConv, ConvTranspose2d, becomes=ConvTranspose2d):
    """Applies a 2D transposed convolution, with `in_channels` inferred from the first input.

    The parameters have no shape before the first call. After it, the layer is an `nn.ConvTranspose2d`.

    Shape:
        Input: (N, C_in, H, W) or (C_in, H, W).
        Output: (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> layer = nn.LazyConvTranspose2d(4, kernel_size=3)
        >>> tuple(layer(mytorch.zeros(1, 3, 8, 8)).shape), layer.in_channels
        ((1, 4, 10, 10), 3)

    See also: `nn.ConvTranspose2d`.
    """


class LazyConvTranspose3d(_LazyTransposedConv, ConvTranspose3d, becomes=ConvTranspose3d):
    """Applies a 3D transposed convolution, with `in_channels` inferred from the first input; see `nn.LazyConvTranspose2d`."""


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d, becomes=BatchNorm1d):
    """Normalizes each channel over the batch, with `num_features` inferred from the first input; see `nn.LazyBatchNorm2d`."""


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d, becomes=BatchNorm2d):
    """Normalizes each channel over the batch, with `num_features` inferred from the first input.

    The parameters have no shape before the first call. After it, the layer is an `nn.BatchNorm2d`.

    Shape:
        Input: (N, C, H, W).
        Output: the same shape as the input.

    Example:
        >>> layer = nn.LazyBatchNorm2d()
        >>> y = layer(mytorch.randn(4, 3, 8, 8))
        >>> layer.num_features
        3

    See also: `nn.BatchNorm2d`.
    """


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d, becomes=BatchNorm3d):
    """Normalizes each channel over the batch, with `num_features` inferred from the first input; see `nn.LazyBatchNorm2d`."""


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d, becomes=InstanceNorm1d):
    """Normalizes each channel of each sample, with `num_features` inferred from the first input; see `nn.LazyInstanceNorm2d`."""


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d, becomes=InstanceNorm2d):
    """Normalizes each channel of each sample, with `num_features` inferred from the first input.

    The parameters have no shape before the first call. After it, the layer is an `nn.InstanceNorm2d`.

    Shape:
        Input: (N, C, H, W).
        Output: the same shape as the input.

    Example:
        >>> layer = nn.LazyInstanceNorm2d()
        >>> y = layer(mytorch.randn(4, 3, 8, 8))
        >>> layer.num_features
        3

    See also: `nn.InstanceNorm2d`.
    """


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d, becomes=InstanceNorm3d):
    """Normalizes each channel of each sample, with `num_features` inferred from the first input; see `nn.LazyInstanceNorm2d`."""
