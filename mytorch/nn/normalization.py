"""Normalization layers."""

from collections.abc import Iterable
from typing import Any

from ..arrays.dtypes import int64
from ..arrays.tensor import Tensor
from ..ops.creation import ones, zeros
from . import functional as F
from . import init
from .common_types import Device, DType
from .layer import Layer
from .module import Module
from .parameter import Parameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm", "InstanceNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


class _Affine(Module):
    """The base class of the normalization layers: a weight that starts at 1 and a bias that starts at 0, or `None`."""

    def _add_affine(self, shape, weight, bias, device, dtype):
        for name, present, make in (("weight", weight, ones), ("bias", bias, zeros)):
            self.register_parameter(name, Parameter(make(*shape, device=device, dtype=dtype)) if present else None)

    def reset_parameters(self) -> None:
        """Sets the weight to 1 and the bias to 0."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            if (parameter := self._parameters.get(name)) is not None:
                fill(parameter)


def _sizes(normalized_shape):
    return tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)


class LayerNorm(_Affine):
    """Normalizes each sample over the last dimensions.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Training and evaluation mode give the same result, because the layer stores no statistics.

    Use it in transformers and for sequences: each sample is normalized alone, so training and evaluation are the same.

    Args:
        normalized_shape: sizes of the dimensions to normalize, or one number for the last dimension.
        eps: number added to the variance, to avoid division by zero (default: 1e-5).
        elementwise_affine: if True, has a learnable weight and bias (default: True).
        bias: if False, has no bias (default: True).
        weight: if False, has neither weight nor bias, as with `elementwise_affine=False` (default: True).
        embed_dim: another name of `normalized_shape`.

    Shape:
        Input: (*, normalized_shape).
        Output: the same shape as the input.

    Attributes:
        weight: learnable tensor of shape normalized_shape, or `None`.
        bias: learnable tensor of shape normalized_shape, or `None`.

    Source: Ba, Kiros and Hinton, 2016.

    Example:
        >>> nn.LayerNorm(2, eps=0.0)(tensor([1.0, 3.0])).tolist()
        [-1.0, 1.0]

    See also: `nn.functional.layer_norm`, `nn.functional.add_layer_norm`, `nn.RMSNorm`.
    """

    def __init__(
        self, normalized_shape: int | Iterable[int] | None = None, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Device = None, dtype: DType = None, *, weight: bool = True, auto: bool = False, fused: bool | None = None,
        embed_dim: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        normalized_shape = embed_dim if normalized_shape is None else normalized_shape
        if normalized_shape is None:
            raise TypeError("LayerNorm.__init__() missing 1 required positional argument: 'normalized_shape'")
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine and weight
        self.auto = auto
        self.fused = fused
        self._add_affine(self.normalized_shape, self.elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor, residual: Tensor | None = None, *, dtype: DType = None) -> Any:
        """Returns the normalized input. With a residual, returns the tuple (input + residual, normalized sum).

        Args:
            input: tensor of shape (*, normalized_shape).
            residual: tensor of the same shape, added to the input first.
            dtype: dtype of the normalized result. By default, the dtype of the input.
        """
        parameters = self.normalized_shape, self.weight, self.bias, self.eps
        options: dict[str, Any] = {"dtype": dtype, "auto": self.auto, "fused": self.fused}
        if residual is None:
            return F.layer_norm(input, *parameters, **options)
        return F.add_layer_norm(input, residual, *parameters, **options)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """Divides each sample by its root mean square over the last dimensions.

        y = x / sqrt(mean(x²) + eps) * weight

    Use it in place of `LayerNorm` in newer language models, such as Llama: without mean and bias it is cheaper, and
    about as good.

    Args:
        normalized_shape: sizes of the dimensions to normalize, or one number for the last dimension.
        eps: number added to the mean square. By default, the machine epsilon of the input's dtype.
        elementwise_affine: if True, has a learnable weight (default: True).
        weight: if False, has no weight, as with `elementwise_affine=False` (default: True).

    Shape:
        Input: (*, normalized_shape).
        Output: the same shape as the input.

    Attributes:
        weight: learnable tensor of shape normalized_shape, or `None`.

    Source: Zhang and Sennrich, 2019.

    Example:
        >>> nn.RMSNorm(2, eps=0.0)(tensor([3.0, 3.0])).tolist()
        [1.0, 1.0]

    See also: `nn.functional.rms_norm`, `nn.functional.add_rms_norm`, `nn.LayerNorm`.
    """

    def __init__(
        self, normalized_shape: int | Iterable[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Device = None, dtype: DType = None, *, weight: bool = True, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine and weight
        self.auto = auto
        self.fused = fused
        tensor = ones(*self.normalized_shape, device=device, dtype=dtype) if self.elementwise_affine else None
        self.register_parameter("weight", None if tensor is None else Parameter(tensor))

    def forward(self, input: Tensor, residual: Tensor | None = None, *, dtype: DType = None) -> Any:
        """Returns the normalized input. With a residual, returns the tuple (input + residual, normalized sum).

        Args:
            input: tensor of shape (*, normalized_shape).
            residual: tensor of the same shape, added to the input first.
            dtype: dtype of the normalized result. By default, the dtype of the input.
        """
        parameters = self.normalized_shape, self.weight, self.eps
        options: dict[str, Any] = {"dtype": dtype, "auto": self.auto, "fused": self.fused}
        return (
            F.rms_norm(input, *parameters, **options)
            if residual is None
            else F.add_rms_norm(input, residual, *parameters, **options)
        )

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _NormBase(_Affine):
    """The base class of batch and instance normalization: affine parameters and running statistics.

    Args:
        num_features: number of channels C.
        eps: number added to the variance, to avoid division by zero (default: 1e-5).
        momentum: weight of the current batch in the running statistics. `None` computes a cumulative average
            (default: 0.1).
        affine: if True, has a learnable weight and bias (default: True).
        track_running_stats: if True, updates running statistics during training and uses them in evaluation mode
            (default: True).
        bias: if False, has no bias (default: True).
    """

    dims: tuple[int, ...] = (2, 3)
    _version = 2  # version 2 added num_batches_tracked to the state

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device = None, dtype: DType = None, *, bias: bool = True,
        auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.auto = auto
        self.fused = fused
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._add_affine((num_features,), affine, affine and bias, device, dtype)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", zeros(num_features, **options) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **options) if track_running_stats else None)
        count = zeros((), dtype=int64, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Sets the running mean to 0, the running variance to 1 and the number of batches to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Sets the weight to 1 and the bias to 0, and resets the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            state_dict[key] = zeros((), dtype=int64) if count is None else count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _next_momentum(self):
        """Counts the batch in training mode. Returns the weight of the batch in the running statistics."""
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / self.num_batches_tracked.item()
        return 0.0 if self.momentum is None else self.momentum

    def _check_input_dim(self, input):
        if input.ndim not in self.dims:
            expected = " or ".join(f"{d}D" for d in self.dims)
            raise ValueError(f"{type(self).__name__}: expected {expected} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """The base class of the batch normalization layers."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = self._next_momentum()
        use_running = not self.training or self.track_running_stats
        statistics: Any = (self.running_mean, self.running_var) if use_running else (None, None)
        use_batch = self.training or self.running_mean is None
        options: dict[str, Any] = {"auto": self.auto, "fused": self.fused}
        return F.batch_norm(
            input, statistics[0], statistics[1], self.weight, self.bias, use_batch, momentum, self.eps, **options
        )


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel over the batch and the length; see `nn.BatchNorm2d`.

    Shape:
        Input: (N, C) or (N, C, L).
        Output: the same shape as the input.
    """


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel over the batch and the spatial dimensions.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    In training mode, mean and var are the statistics of the batch, and the layer updates its running statistics:

        running = (1 - momentum) * running + momentum * statistics of the batch

    In evaluation mode, the layer uses the running statistics instead.

    Use it in convolutional networks with batches of at least about 16 images; with fewer, `GroupNorm` is more accurate.
    Set `bias=False` in the convolution before it.

    Shape:
        Input: (N, C, H, W).
        Output: the same shape as the input.

    Attributes:
        weight: learnable vector of shape (C,), or `None`.
        bias: learnable vector of shape (C,), or `None`.
        running_mean: buffer of shape (C,), or `None`.
        running_var: buffer of shape (C,) with unbiased variances, or `None`.
        num_batches_tracked: number of batches seen in training mode, a buffer, or `None`.

    Source: Ioffe and Szegedy, 2015.

    Example:
        >>> y = nn.BatchNorm2d(3)(mytorch.randn(4, 3, 8, 8))
        >>> tuple(y.shape), abs(y.mean().item()) < 1e-5
        ((4, 3, 8, 8), True)

    See also: `nn.functional.batch_norm`, `nn.LazyBatchNorm2d`, `nn.SyncBatchNorm`.
    """

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel over the batch and the spatial dimensions; see `nn.BatchNorm2d`.

    Shape:
        Input: (N, C, D, H, W).
        Output: the same shape as the input.
    """

    dims = (5,)


class GroupNorm(_Affine):
    """Normalizes groups of channels of each sample.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Mean and variance are over the channels of one group and all further dimensions. Training and evaluation mode give
    the same result, because the layer stores no statistics.

    Use it in convolutional networks with small batches, where the statistics of a batch are too noisy for
    `BatchNorm2d`.

    Args:
        num_groups: number of groups, which divides `num_channels`.
        num_channels: number of channels C.
        eps: number added to the variance, to avoid division by zero (default: 1e-5).
        affine: if True, has a learnable weight and bias for each channel (default: True).
        bias: if False, has no bias (default: True).

    Shape:
        Input: (N, C, *).
        Output: the same shape as the input.

    Raises:
        ValueError: `num_groups` does not divide `num_channels`.

    Source: Wu and He, 2018.

    Example:
        >>> y = nn.GroupNorm(2, 4)(mytorch.randn(3, 4, 8, 8))
        >>> abs(y[0, :2].mean().item()) < 1e-5
        True

    See also: `nn.functional.group_norm`, `nn.LayerNorm`.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device = None,
        dtype: DType = None, *, bias: bool = True, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.auto = auto
        self.fused = fused
        self._add_affine((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, auto=self.auto, fused=self.fused)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class _InstanceNorm(_NormBase):
    """The base class of the instance normalization layers.

    Args:
        momentum: weight of the current batch in the running statistics. `None` never updates them (default: 0.1).
        affine: if True, has a learnable weight and bias (default: False).
        track_running_stats: if True, updates running statistics during training and uses them in evaluation mode
            (default: False).
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Device = None, dtype: DType = None, *, bias: bool = True,
        auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        options: dict[str, Any] = {"bias": bias, "auto": auto, "fused": fused}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, **options)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self.dims[0]
        x = input.unsqueeze(0) if single else input
        out = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum or 0.0, self.eps, auto=self.auto, fused=self.fused,
        )  # fmt: skip
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample over the length; see `nn.InstanceNorm2d`.

    Shape:
        Input: (N, C, L) or (C, L).
        Output: the same shape as the input.
    """


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample over the spatial dimensions.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    By default, the layer uses the statistics of the input also in evaluation mode. With `track_running_stats=True`, it
    uses running statistics in evaluation mode.

    Use it for style transfer and image generation, where the contrast of each image should not matter.

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: the same shape as the input.

    Source: Ulyanov et al., 2016.

    Example:
        >>> y = nn.InstanceNorm2d(3)(mytorch.randn(4, 3, 8, 8))
        >>> tuple(y.shape), abs(y[0, 0].mean().item()) < 1e-5
        ((4, 3, 8, 8), True)

    See also: `nn.functional.instance_norm`, `nn.LazyInstanceNorm2d`.
    """

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample over the spatial dimensions; see `nn.InstanceNorm2d`.

    Shape:
        Input: (N, C, D, H, W) or (C, D, H, W).
        Output: the same shape as the input.
    """

    dims = (4, 5)


class InstanceNorm(_InstanceNorm):
    """Normalizes each channel of each sample over all further dimensions.

        y = (x - mean) / sqrt(var + eps) * weight + bias

    By default, the layer uses the statistics of the input also in evaluation mode. With `track_running_stats=True`, it
    uses running statistics in evaluation mode.

    Shape:
        Input: (N, C, *), at least 3 dimensions.
        Output: the same shape as the input.

    Source: Ulyanov et al., 2016.

    Example:
        >>> y = nn.InstanceNorm(3)(mytorch.randn(4, 3, 2, 2, 2, 2))
        >>> abs(y[0, 0].mean().item()) < 1e-5
        True

    See also: `nn.functional.instance_norm`, `nn.InstanceNorm2d`.
    """

    def _check_input_dim(self, input):
        if input.ndim < 3:
            raise ValueError(f"InstanceNorm: expected at least 3D input (got {input.ndim}D input)")


class LocalResponseNorm(
    Layer, function=F.local_response_norm, shown="{size}, alpha={alpha}, beta={beta}, k={k}", size=..., alpha=1e-4,
    beta=0.75, k=1.0,
):  # fmt: skip
    """Divides each element by a power of the squares in neighboring channels.

        y_c = x_c / (k + alpha / size * sum over c' of (x_c'²))^beta

    The sum includes `size` channels around c.

    Use it to reproduce older networks such as AlexNet; newer ones use `BatchNorm2d`.

    Shape:
        Input: (N, C, *).
        Output: the same shape as the input.

    Source: Krizhevsky et al., 2012.

    Example:
        >>> layer = nn.LocalResponseNorm(1, alpha=1.0, beta=1.0)
        >>> layer(mytorch.ones(1, 2, 1)).flatten().tolist()
        [0.5, 0.5]

    See also: `nn.functional.local_response_norm`.
    """


class CrossMapLRN2d(LocalResponseNorm, shown=LocalResponseNorm._shown, size=..., alpha=1e-4, beta=0.75, k=1):
    """Divides each element by a power of the squares in neighboring channels. Older name of `nn.LocalResponseNorm`.

    Shape:
        Input: (N, C, H, W).
        Output: the same shape as the input.

    Example:
        >>> layer = nn.CrossMapLRN2d(1, alpha=1.0, beta=1.0)
        >>> layer(mytorch.ones(1, 2, 1, 1)).flatten().tolist()
        [0.5, 0.5]

    See also: `nn.LocalResponseNorm`, `nn.functional.local_response_norm`.
    """
