"""Linear layers, and layers that only change the shape of a tensor."""

import math
from typing import Any

from ..arrays.tensor import Tensor
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
    """Returns its input unchanged.

    Use it in place of another layer. The constructor accepts and ignores any arguments.

    Args:
        args: ignored.
        kwargs: ignored.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Identity(54, unused=True)(tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """Applies a linear transformation to the last dimension of the input.

        y = x Wᵀ + b

    Args:
        in_features: size of the last dimension of the input.
        out_features: size of the last dimension of the output.
        bias: if True, adds a learnable vector b (default: True).
        act_func: name of an activation applied to the result: "relu", "gelu", "silu", "tanh", "sigmoid" or
            "relu_squared".

    Shape:
        Input: (*, in_features).
        Output: (*, out_features).

    Attributes:
        weight: learnable matrix W of shape (out_features, in_features).
        bias: learnable vector b of shape (out_features,), or `None`.

    Raises:
        RuntimeError: the last dimension of the input is not `in_features`.

    Example:
        >>> tuple(nn.Linear(3, 5)(mytorch.ones(2, 3)).shape)
        (2, 5)

    See also: `nn.functional.linear`, `nn.LazyLinear`.
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
        """Draws weight and bias uniformly from ±1 / sqrt(in_features), as PyTorch does."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        try:
            return F.linear(input, self.weight, self.bias, act_func=self.act_func, auto=self.auto, fused=self.fused)
        except RuntimeError as error:
            if input.ndim and (size := input.shape[-1]) != (expected := self.in_features):
                rule = f"(in_features={expected}): expected the last axis to be {expected}, got an input of shape"
                fix = f"{tuple(input.shape)}. Reshape the input or use in_features={size}."
                error.args = (f"{error}. {type(self).__name__}{rule} {fix}",)
            raise

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """Applies a linear transformation. PyTorch uses this name for the output projection of `MultiheadAttention`."""


class Bilinear(Module):
    """Applies a bilinear transformation to two inputs.

        y_k = x1ᵀ W_k x2 + b_k

    Args:
        in1_features: size of the last dimension of the first input.
        in2_features: size of the last dimension of the second input.
        out_features: size of the last dimension of the output.
        bias: if True, adds a learnable vector b (default: True).

    Shape:
        Input1: (*, in1_features).
        Input2: (*, in2_features), with the same leading dimensions as the first input.
        Output: (*, out_features).

    Attributes:
        weight: learnable tensor W of shape (out_features, in1_features, in2_features).
        bias: learnable vector b of shape (out_features,), or `None`.

    Example:
        >>> layer = nn.Bilinear(3, 4, 5)
        >>> tuple(layer(mytorch.ones(2, 3), mytorch.ones(2, 4)).shape)
        (2, 5)

    See also: `nn.functional.bilinear`.
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
        """Draws weight and bias uniformly from ±1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = ", ".join(f"{n}={getattr(self, n)}" for n in ("in1_features", "in2_features", "out_features"))
        return f"{sizes}, bias={self.bias is not None}"


class Flatten(Layer, start_dim=1, end_dim=-1):
    """Merges consecutive dimensions into one.

    Use it between convolutions and linear layers in an `nn.Sequential`; in a `forward`, `x.flatten(1)` is the same.

    Args:
        start_dim: first dimension to merge (default: 1).
        end_dim: last dimension to merge (default: -1).

    Shape:
        Input: (N, *).
        Output: (N, product of the other sizes), with the default dimensions.

    Example:
        >>> tuple(nn.Flatten()(mytorch.zeros(2, 3, 4)).shape)
        (2, 12)

    See also: `mytorch.flatten`, `nn.Unflatten`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Layer, dim=..., unflattened_size=...):
    """Splits one dimension into several.

    Args:
        dim: dimension to split.
        unflattened_size: sizes of the new dimensions. One of them may be -1, which is then computed.

    Shape:
        Input: (*, S, *), with S at dimension `dim`.
        Output: (*, s_1, …, s_n, *), where the product of s_1 to s_n is S.

    Example:
        >>> tuple(nn.Unflatten(1, (3, 4))(mytorch.zeros(2, 12)).shape)
        (2, 3, 4)

    See also: `mytorch.unflatten`, `nn.Flatten`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)
