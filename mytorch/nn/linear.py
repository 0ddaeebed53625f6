"""Linear maps, and the layers that only change a shape."""

import math
from typing import Any

from .._tensor import Tensor
from ..ops.composites import activation_named
from ..ops.creation import empty
from . import functional as F
from . import init
from .common_types import Device, DType
from .layer import Layer
from .module import Module
from .parameter import Parameter

__all__ = ["Bilinear", "Flatten", "Identity", "Linear", "Unflatten"]


class Identity(Module):
    """Returns its input; takes any arguments, so that it can stand in for another layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """y = x Wᵀ + b.

    Args:
        in_features, out_features: the sizes of the last axis of input and output.
        bias: whether there is a b.
        act_func: an activation to apply on top; see `F.linear`.
        auto: compose it of other ops, for autograd to differentiate; the result is the same.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: (…, in_features) to (…, out_features). Weight: (out_features, in_features).

    Example:
        >>> tuple(nn.Linear(3, 5)(mytorch.ones(2, 3)).shape)
        (2, 5)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device = None, dtype: DType = None, *,
        act_func: str | None = None, auto: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if act_func is not None:
            activation_named(act_func)
        self.in_features = in_features
        self.out_features = out_features
        self.act_func = act_func
        self.auto = auto
        self.fused = fused
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/sqrt(in_features), weight and bias, as PyTorch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias, act_func=self.act_func, auto=self.auto, fused=self.fused)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """PyTorch's name for the Linear at the end of MultiheadAttention; no different from it."""


class Bilinear(Module):
    """y_k = x1ᵀ W_k x2 + b_k.

    Args:
        in1_features, in2_features, out_features: sizes of the last axes. bias: learn b.

    Shape: (…, in1_features) and (…, in2_features) to (…, out_features).
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Device = None,
        dtype: DType = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = ", ".join(f"{n}={getattr(self, n)}" for n in ("in1_features", "in2_features", "out_features"))
        return f"{sizes}, bias={self.bias is not None}"


class Flatten(Layer, start_dim=1, end_dim=-1):
    """The axes from start_dim to end_dim as one.

    Example:
        >>> tuple(nn.Flatten()(mytorch.zeros(2, 3, 4)).shape)
        (2, 12)
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Layer, dim=..., unflattened_size=...):
    """Axis `dim` split into several, of the sizes `unflattened_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)
