"""Normalisation layers."""

from ..dtypes import finfo
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
        self.normalized_shape = tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
        self.eps = eps
        self.elementwise_affine = elementwise_affine and weight
        self.auto = auto
        self.fused = fused
        made = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(*self.normalized_shape, **made)) if self.elementwise_affine else None)
        self.register_parameter("bias", Parameter(zeros(*self.normalized_shape, **made)) if elementwise_affine and bias else None)

    def reset_parameters(self):
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        if self.auto:
            dims = tuple(range(-len(self.normalized_shape), 0))
            centred = input - input.mean(dims, keepdim=True)
            out = centred * (centred.square().mean(dims, keepdim=True) + self.eps).rsqrt()
            out = out if self.weight is None else out * self.weight
            return out if self.bias is None else out + self.bias
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, fused=self.fused)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes.

    Source: Zhang and Sennrich, 2019.
    """

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None, *, auto=False, fused=None
    ):
        super().__init__()
        self.normalized_shape = tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
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

    def forward(self, input):
        if self.auto:
            dims = tuple(range(-len(self.normalized_shape), 0))
            eps = finfo(input.dtype).eps if self.eps is None else self.eps
            out = input * (input.square().mean(dims, keepdim=True) + eps).rsqrt()
            return out if self.weight is None else out * self.weight
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps, fused=self.fused)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
