"""Activation layers: each applies the function of its name."""

from .._tensor import Tensor
from ..ops.creation import full
from . import functional as F
from . import init
from .common_types import Device, DType
from .layer import Layer
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU", "ELU", "GEGLU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReGLU", "ReLU", "ReLU6", "ReLUSquared", "SiLU", "Sigmoid",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "SwiGLU", "Tanh", "Tanhshrink",
    "Threshold",
]  # fmt: skip


class ReLU(Layer, function=F.relu, inplace=False):
    """max(x, 0).

    Example:
        >>> nn.ReLU()(tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace, auto=self.auto, fused=self.fused)


class GELU(Layer, function=F.gelu, approximate="none"):
    """x * P(Z <= x) for a standard normal Z; `approximate="tanh"` is GPT-2's formula. Source: Hendrycks and Gimpel, 2016.

    Example:
        >>> round(nn.GELU()(tensor(1.0)).item(), 4)
        0.8413
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate, auto=self.auto, fused=self.fused)


class Sigmoid(Layer, function=F.sigmoid):
    """1 / (1 + exp(-x))."""


class Tanh(Layer, function=F.tanh):
    """The hyperbolic tangent."""


class Softmax(Layer, function=F.softmax, dim=None):
    """exp(x) / sum(exp(x)) along `dim`, given here or at the call."""

    def forward(self, input: Tensor, dim: int | None = None) -> Tensor:
        return F.softmax(input, self.dim if dim is None else dim, auto=self.auto, fused=self.fused)


class LeakyReLU(Layer, function=F.leaky_relu, negative_slope=0.01, inplace=False):
    """x where it is positive, negative_slope * x elsewhere."""


class ELU(Layer, function=F.elu, alpha=1.0, inplace=False):
    """x where it is positive, alpha (exp(x) - 1) elsewhere. Source: Clevert et al., 2015."""


class CELU(Layer, function=F.celu, alpha=1.0, inplace=False):
    """x where it is positive, alpha (exp(x / alpha) - 1) elsewhere. Source: Barron, 2017."""


class SELU(Layer, function=F.selu, inplace=False):
    """A scaled ELU that keeps mean 0 and variance 1. Source: Klambauer et al., 2017."""


class SiLU(Layer, function=F.silu, inplace=False):
    """x * sigmoid(x)."""


class Mish(Layer, function=F.mish, inplace=False):
    """x * tanh(softplus(x)). Source: Misra, 2019."""


class ReLU6(Layer, function=F.relu6, inplace=False):
    """min(max(x, 0), 6)."""


class Hardsigmoid(Layer, function=F.hardsigmoid, inplace=False):
    """x / 6 + 1/2, clipped to [0, 1]."""


class Hardswish(Layer, function=F.hardswish, inplace=False):
    """x * hardsigmoid(x). Source: Howard et al., 2019."""


class Hardtanh(Layer, function=F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False):
    """x clipped to [min_val, max_val]."""


class Hardshrink(Layer, function=F.hardshrink, shown="{lambd}", lambd=0.5):
    """x where |x| > lambd, else 0."""


class Softshrink(Layer, function=F.softshrink, shown="{lambd}", lambd=0.5):
    """x moved towards 0 by lambd; 0 where |x| <= lambd."""


class Tanhshrink(Layer, function=F.tanhshrink):
    """x - tanh(x)."""


class Threshold(Layer, function=F.threshold, threshold=..., value=..., inplace=False):
    """x where it is above the threshold, else `value`."""


class Softplus(Layer, function=F.softplus, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; x itself where beta x exceeds the threshold."""


class Softsign(Layer, function=F.softsign):
    """x / (1 + |x|)."""


class LogSigmoid(Layer, function=F.logsigmoid):
    """log(1 / (1 + exp(-x)))."""


class Softmin(Layer, function=F.softmin, dim=None):
    """softmax(-x) along `dim`."""


class LogSoftmax(Layer, function=F.log_softmax, dim=None):
    """log(softmax(x)) along `dim`."""


class GLU(Layer, function=F.glu, dim=-1):
    """a * sigmoid(b) of the halves a, b of axis `dim`. Source: Dauphin et al., 2016."""


class SwiGLU(Layer, function=F.swiglu):
    """silu(a) * b of the halves a, b of the last axis: (…, 2C) to (…, C). Source: Shazeer, 2020."""


class ReGLU(Layer, function=F.reglu):
    """relu(a) * b of the halves a, b of the last axis: (…, 2C) to (…, C). Source: Shazeer, 2020."""


class GEGLU(Layer, function=F.geglu, approximate="none"):
    """gelu(a) * b of the halves a, b of the last axis: (…, 2C) to (…, C). Source: Shazeer, 2020."""


class ReLUSquared(Layer, function=F.relu_squared):
    """relu(x) squared. Source: So et al., Primer, 2021."""


class RReLU(Layer, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
    """A leaky relu with a slope drawn uniformly from [lower, upper] while training. Source: Xu et al., 2015."""

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """A leaky relu whose slope is learnt: one for all channels, or `num_parameters`. Source: He et al., 2015.

    Args:
        num_parameters: 1, or the channels.
        init: the slopes to begin with.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Device = None, dtype: DType = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Every slope `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softmax2d(Layer, function=F.softmax):
    """softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3, auto=self.auto, fused=self.fused)
