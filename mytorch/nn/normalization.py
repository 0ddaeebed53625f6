"""Normalisation layers."""

from ..base.dtypes import finfo, float32, int64, promote_types
from ..ops.creation import ones, zeros
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes.

    Args:
        normalized_shape: the sizes of those axes, or one int.
        eps: keeps the root from zero.
        elementwise_affine: have a weight (which `weight=` also says) and a bias.
        auto: compose it of means and products, for autograd to differentiate; the result is the same.
        fused: use a fused kernel; see `mytorch.fused`.

    Source: Ba, Kiros and Hinton, 2016.
    """

    def __init__(
        self,
        normalized_shape,
        eps=1e-5,
        elementwise_affine=True,
        bias=True,
        device=None,
        dtype=None,
        *,
        weight=True,
        auto=False,
        fused=None,
    ):
        super().__init__()
        self.normalized_shape = (
            tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
        )
        self.eps = eps
        self.elementwise_affine = elementwise_affine and weight
        self.auto = auto
        self.fused = fused
        made = {"device": device, "dtype": dtype}
        self.register_parameter(
            "weight", Parameter(ones(*self.normalized_shape, **made)) if self.elementwise_affine else None
        )
        self.register_parameter(
            "bias", Parameter(zeros(*self.normalized_shape, **made)) if elementwise_affine and bias else None
        )

    def reset_parameters(self):
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input, residual=None, *, dtype=None):
        """The norm of input; with a residual, (input + residual, its norm). `dtype`: see `F.layer_norm`."""
        if residual is not None and not self.auto:
            return F.add_layer_norm(
                input, residual, self.normalized_shape, self.weight, self.bias, self.eps, dtype=dtype, fused=self.fused
            )
        if residual is not None:
            total = input + residual
            return total, self(total, dtype=dtype)
        if self.auto:
            dims = tuple(range(-len(self.normalized_shape), 0))
            centred = input - input.mean(dims, keepdim=True)
            out = centred * (centred.square().mean(dims, keepdim=True) + self.eps).rsqrt()
            out = out if self.weight is None else out * self.weight
            out = out if self.bias is None else out + self.bias
            return out if dtype is None else out.to(dtype)
        return F.layer_norm(
            input, self.normalized_shape, self.weight, self.bias, self.eps, dtype=dtype, fused=self.fused
        )

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes.

    Source: Zhang and Sennrich, 2019.
    """

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None, *, auto=False, fused=None
    ):
        super().__init__()
        self.normalized_shape = (
            tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
        )
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.auto = auto
        self.fused = fused
        weight = Parameter(ones(*self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self):
        """Weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input, residual=None, *, dtype=None):
        """The norm of input; with a residual, (input + residual, its norm). `dtype`: see `F.rms_norm`."""
        if residual is not None and not self.auto:
            return F.add_rms_norm(
                input, residual, self.normalized_shape, self.weight, self.eps, dtype=dtype, fused=self.fused
            )
        if residual is not None:
            total = input + residual
            return total, self(total, dtype=dtype)
        if self.auto:
            dims = tuple(range(-len(self.normalized_shape), 0))
            eps = finfo(promote_types(input.dtype, float32)).eps if self.eps is None else self.eps
            out = input * (input.square().mean(dims, keepdim=True) + eps).rsqrt()
            out = out if self.weight is None else out * self.weight
            return out if dtype is None else out.to(dtype)
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps, dtype=dtype, fused=self.fused)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _NormBase(Module):
    """What batch and instance norms share: affine parameters and running statistics.

    Args:
        num_features: channels. eps: keeps the root from zero.
        momentum: share of a new batch in the running statistics; None averages all batches.
        affine: have weight and bias. track_running_stats: keep running statistics.

    """

    dims = (2, 3)
    _version = 2  # since when num_batches_tracked is part of the state

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        made = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_features, **made)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **made)) if affine and bias else None)
        self.register_buffer("running_mean", zeros(num_features, **made) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **made) if track_running_stats else None)
        count = zeros((), dtype=int64, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self):
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """Weight 1, bias 0, running statistics as new."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            state_dict[key] = zeros((), dtype=int64) if own is None else own
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _check_input_dim(self, input):
        if input.ndim not in self.dims:
            words = " or ".join(f"{d}D" for d in self.dims)
            raise ValueError(f"expected {words} input (got {input.ndim}D input)")

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Normalises each channel by the statistics of the batch, or, in eval mode, by running ones.

    Source: Ioffe and Szegedy, 2015.
    """

    def forward(self, input):
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        own = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            own,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    dims = (5,)


class GroupNorm(Module):
    """Normalises each sample's channels in groups. Source: Wu and He, 2018."""

    def __init__(
        self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True, fused=None
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.fused = fused
        made = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_channels, **made)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_channels, **made)) if affine and bias else None)

    def reset_parameters(self):
        """Weight 1, bias 0."""
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, fused=self.fused)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class _InstanceNorm(_NormBase):
    """Normalises each channel of each sample. Source: Ulyanov et al., 2016."""

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None, *, bias=True,
        fused=None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.fused = fused

    def forward(self, input):
        self._check_input_dim(input)
        single = input.ndim == self.dims[0]
        x = input.unsqueeze(0) if single else input
        out = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum or 0.0, self.eps, fused=self.fused,
        )  # fmt: skip
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W)."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    dims = (4, 5)


class LocalResponseNorm(Module):
    """Divides by a power of the squares of neighbouring channels. Source: Krizhevsky et al., 2012."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """The older name of LocalResponseNorm."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__(size, alpha, beta, k)
