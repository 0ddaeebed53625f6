"""Normalisation layers."""

from collections.abc import Iterable
from typing import Any

from .._tensor import Tensor
from ..base.dtypes import int64
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
    """What the norms share: a weight that starts at 1 and a bias that starts at 0, either of which may be None."""

    def _add_affine(self, shape, weight, bias, device, dtype):
        for name, wanted, make in (("weight", weight, ones), ("bias", bias, zeros)):
            self.register_parameter(name, Parameter(make(*shape, device=device, dtype=dtype)) if wanted else None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            if (parameter := self._parameters.get(name)) is not None:
                fill(parameter)


def _sizes(normalized_shape):
    return tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)


class LayerNorm(_Affine):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes.

    Args:
        normalized_shape: the sizes of those axes, or one int; also spelled `embed_dim`.
        eps: keeps the root from zero.
        elementwise_affine: have a weight (which `weight=` also says) and a bias.
        auto: compose it of other ops, for autograd to differentiate; the result is the same.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: any that ends in normalized_shape.

    Source: Ba, Kiros and Hinton, 2016.

    Example:
        >>> nn.LayerNorm(2, eps=0.0)(tensor([1.0, 3.0])).tolist()
        [-1.0, 1.0]
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
        """The norm of input; with a residual, (input + residual, its norm). `dtype`: see `F.layer_norm`.

        Args:
            input: (…, *normalized_shape).
            residual: of input's shape.
            dtype: of the norm.
        """
        own = self.normalized_shape, self.weight, self.bias, self.eps
        options: dict[str, Any] = {"dtype": dtype, "auto": self.auto, "fused": self.fused}
        if residual is None:
            return F.layer_norm(input, *own, **options)
        return F.add_layer_norm(input, residual, *own, **options)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes.

    Args:
        normalized_shape: the sizes of those axes, or one int.
        eps: keeps the root from zero; by default that of the dtype.
        elementwise_affine: have a weight (which `weight=` also says).
        auto, fused: as LayerNorm's.

    Source: Zhang and Sennrich, 2019.

    Example:
        >>> nn.RMSNorm(2, eps=0.0)(tensor([3.0, 3.0])).tolist()
        [1.0, 1.0]
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
        own = ones(*self.normalized_shape, device=device, dtype=dtype) if self.elementwise_affine else None
        self.register_parameter("weight", None if own is None else Parameter(own))

    def forward(self, input: Tensor, residual: Tensor | None = None, *, dtype: DType = None) -> Any:
        """The norm of input; with a residual, (input + residual, its norm). `dtype`: see `F.rms_norm`.

        Args:
            input: (…, *normalized_shape).
            residual: of input's shape.
            dtype: of the norm.
        """
        own = self.normalized_shape, self.weight, self.eps
        options: dict[str, Any] = {"dtype": dtype, "auto": self.auto, "fused": self.fused}
        return (
            F.rms_norm(input, *own, **options) if residual is None else F.add_rms_norm(input, residual, *own, **options)
        )

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _NormBase(_Affine):
    """What batch and instance norms share: affine parameters and running statistics.

    Args:
        num_features: channels. eps: keeps the root from zero.
        momentum: share of a new batch in the running statistics; None averages all batches.
        affine: have weight and bias. track_running_stats: keep running statistics.
        auto, fused: as LayerNorm's.

    """

    dims: tuple[int, ...] = (2, 3)
    _version = 2  # since when num_batches_tracked is part of the state

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
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, running statistics as new."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            state_dict[key] = zeros((), dtype=int64) if own is None else own
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _next_momentum(self):
        """How much of this batch the running statistics take; a batch in training is counted."""
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / self.num_batches_tracked.item()
        return 0.0 if self.momentum is None else self.momentum

    def _check_input_dim(self, input):
        if input.ndim not in self.dims:
            words = " or ".join(f"{d}D" for d in self.dims)
            raise ValueError(f"expected {words} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Normalises each channel by the statistics of the batch, or, in eval mode, by running ones.

    Source: Ioffe and Szegedy, 2015.
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = self._next_momentum()
        keep = not self.training or self.track_running_stats
        kept: Any = (self.running_mean, self.running_var) if keep else (None, None)
        own = self.training or self.running_mean is None
        options: dict[str, Any] = {"auto": self.auto, "fused": self.fused}
        return F.batch_norm(input, kept[0], kept[1], self.weight, self.bias, own, momentum, self.eps, **options)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    Args:
        num_features: C. eps: added to the variance. momentum: share of a batch in the running statistics; None
            averages all.
        affine: learn a weight and a bias. track_running_stats: keep running statistics, used in evaluation.
    """


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W).

    Args:
        num_features: C. eps: added to the variance. momentum: share of a batch in the running statistics; None
            averages all.
        affine: learn a weight and a bias. track_running_stats: keep running statistics, used in evaluation.

    Example:
        >>> tuple(nn.BatchNorm2d(3)(mytorch.randn(4, 3, 8, 8)).shape)
        (4, 3, 8, 8)
    """

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    dims = (5,)


class GroupNorm(_Affine):
    """Normalises each sample's channels in groups. Source: Wu and He, 2018.

    Args:
        num_groups: divides num_channels. num_channels: C. eps: added to the variance. affine: learn a weight and a
            bias.
        fused: True asks for a kernel, False for the reference, None takes whichever is faster.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device = None,
        dtype: DType = None, *, bias: bool = True, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
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
    """Normalises each channel of each sample. Source: Ulyanov et al., 2016."""

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
    """Instance normalisation of (N, C, L) or (C, L)."""


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    Args:
        num_features: C. eps: added to the variance. momentum: share of a batch in the running statistics; None
            averages all.
        affine: learn a weight and a bias. track_running_stats: keep running statistics, used in evaluation.
    """

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    dims = (4, 5)


class InstanceNorm(_InstanceNorm):
    """Instance normalisation of any number of axes, (N, C, …)."""

    def _check_input_dim(self, input):
        if input.ndim < 3:
            raise ValueError(f"expected at least 3D input (got {input.ndim}D input)")


class LocalResponseNorm(
    Layer, function=F.local_response_norm, shown="{size}, alpha={alpha}, beta={beta}, k={k}", size=..., alpha=1e-4,
    beta=0.75, k=1.0,
):  # fmt: skip
    """Divides by a power of the squares of neighbouring channels. Source: Krizhevsky et al., 2012.

    Args:
        size: how many channels, the own one in the middle. alpha, beta, k: as in `F.local_response_norm`.
    """


class CrossMapLRN2d(LocalResponseNorm, shown=LocalResponseNorm._shown, size=..., alpha=1e-4, beta=0.75, k=1):
    """The older name of LocalResponseNorm."""
