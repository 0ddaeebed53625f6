"""Linear maps, and the layers that only change a shape."""

import math

from ..ops.creation import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class Identity(Module):
    """Returns its input; takes any arguments, so that it can stand in for another layer."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """y = x Wᵀ + b.

    Args:
        in_features, out_features: the sizes of the last axis of input and output.
        bias: whether there is a b.
        act_func: an activation to apply on top; see `F.linear`.
        auto: compose it of matmul and add, for autograd to differentiate; the result is the same.
        fused: use a fused kernel; see `mytorch.fused`.

    Shape: (…, in_features) to (…, out_features). Weight: (out_features, in_features).
    """

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, *, act_func=None, auto=False, fused=None
    ):
        super().__init__()
        if act_func is not None:
            F.activation_named(act_func)
        self.in_features = in_features
        self.out_features = out_features
        self.act_func = act_func
        self.auto = auto
        self.fused = fused
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform in ±1/sqrt(in_features), weight and bias, as PyTorch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        if self.auto:
            out = input @ self.weight.T
            out = out if self.bias is None else out + self.bias
            return out if self.act_func is None else F.activation_named(self.act_func)(out)
        return F.linear(input, self.weight, self.bias, act_func=self.act_func, fused=self.fused)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """PyTorch's name for the Linear at the end of MultiheadAttention; no different from it."""


class Bilinear(Module):
    """y_k = x1ᵀ W_k x2 + b_k.

    Shape: (…, in1_features) and (…, in2_features) to (…, out_features).
    """

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform in ±1/sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Flatten(Module):
    """The axes from start_dim to end_dim as one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis split into several."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
