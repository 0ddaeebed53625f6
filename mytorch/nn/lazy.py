"""Layers that learn the size of their input at their first forward, and then become the ordinary kind."""

import itertools
from typing import Any

from .._tensor import Tensor
from ..base.dtypes import int64
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
    """What makes a module lazy; it stands before the module's class among the bases.

    The subclass makes its parameters UninitializedParameter, and defines `initialize_parameters(*inputs)`, which
    materializes them. After the first forward the module's class is `cls_to_become`, if that is set.
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _named_tensors(self):
        return itertools.chain(self._parameters.items(), self._buffers.items())

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in self._named_tensors():
            if tensor is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def _lazy_load_hook(self, state_dict, prefix, *rest):
        for name, tensor in self._named_tensors():
            given = state_dict.get(prefix + name)
            if given is not None and tensor is not None and is_lazy(tensor) and not is_lazy(given):
                tensor.materialize(tuple(given.shape))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters from the inputs of the first forward; every lazy module defines it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module has no shape yet."""
        return any(is_lazy(t) for _, t in self._named_tensors())

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class _LazyLayer(LazyModuleMixin):
    """A layer whose number of inputs, the attribute `_size`, is that of its first input; 0 until then."""

    _size = ""

    def __init_subclass__(cls, becomes=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if becomes is not None:
            cls.cls_to_become = becomes

    def reset_parameters(self) -> None:
        """As the layer's, once the size is known."""
        if not self.has_uninitialized_params() and getattr(self, self._size) != 0:
            layer: Any = super()
            layer.reset_parameters()

    def _make_lazy(self, bias, device, dtype):
        for name in ("weight", "bias") if bias else ("weight",):
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))

    def _learn_size(self, size):
        """Take the size of the first input; whether parameters have to be made."""
        if getattr(self, self._size) == 0:
            setattr(self, self._size, size)
        return self.has_uninitialized_params()

    def _materialize(self, weight, bias):
        """Make weight and bias of these shapes."""
        self.weight.materialize(weight)
        if self.bias is not None:
            self.bias.materialize(bias)
        self.reset_parameters()


class LazyLinear(_LazyLayer, Linear, becomes=Linear):
    """A Linear whose in_features are those of its first input.

    Args:
        out_features: C of the output (…, C).
        bias: whether to add a learnt bias.
        device: of the parameters.
        dtype: of the parameters.
    """

    _size = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Device = None, dtype: DType = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._make_lazy(bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take in_features from the input."""
        if self._learn_size(input.shape[-1]):
            self._materialize((self.out_features, self.in_features), (self.out_features,))


class _LazyConv(_LazyLayer):
    """A convolution whose in_channels are those of its first input."""

    _size = "in_channels"

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take in_channels from the input."""
        if not self._learn_size(self._channels_of(input)):
            return
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        first, second = self.out_channels, self.in_channels
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
    """A batch or instance norm whose num_features are those of its first input."""

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
        """Take num_features from the input."""
        fresh = self.has_uninitialized_params()
        if fresh or (self.num_features == 0 and any(t is not None for t in (self.weight, self.running_mean))):
            self.num_features = input.shape[1]
        if fresh:
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                if tensor is not None and is_lazy(tensor):
                    tensor.materialize((self.num_features,))
            self.reset_parameters()


class LazyConv1d(_LazyOrdinaryConv, Conv1d, becomes=Conv1d):
    """A Conv1d whose in_channels are those of its first input."""


class LazyConv2d(_LazyOrdinaryConv, Conv2d, becomes=Conv2d):
    """A Conv2d whose in_channels are those of its first input."""


class LazyConv3d(_LazyOrdinaryConv, Conv3d, becomes=Conv3d):
    """A Conv3d whose in_channels are those of its first input."""


class LazyConvTranspose1d(_LazyTransposedConv, ConvTranspose1d, becomes=ConvTranspose1d):
    """A ConvTranspose1d whose in_channels are those of its first input."""


class LazyConvTranspose2d(_LazyTransposedConv, ConvTranspose2d, becomes=ConvTranspose2d):
    """A ConvTranspose2d whose in_channels are those of its first input."""


class LazyConvTranspose3d(_LazyTransposedConv, ConvTranspose3d, becomes=ConvTranspose3d):
    """A ConvTranspose3d whose in_channels are those of its first input."""


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d, becomes=BatchNorm1d):
    """A BatchNorm1d whose num_features are those of its first input."""


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d, becomes=BatchNorm2d):
    """A BatchNorm2d whose num_features are those of its first input."""


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d, becomes=BatchNorm3d):
    """A BatchNorm3d whose num_features are those of its first input."""


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d, becomes=InstanceNorm1d):
    """An InstanceNorm1d whose num_features are those of its first input."""


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d, becomes=InstanceNorm2d):
    """An InstanceNorm2d whose num_features are those of its first input."""


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d, becomes=InstanceNorm3d):
    """An InstanceNorm3d whose num_features are those of its first input."""
