"""Activation layers: each applies the function of its name."""

from . import functional as F
from .module import Module


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace=False, *, auto=False, fused=None):
        super().__init__()
        self.inplace = inplace
        self.auto = auto
        self.fused = fused

    def forward(self, input):
        if self.auto:
            return input * (input.detach() > 0)
        return input.relu_() if self.inplace else F.relu(input)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """x * P(Z <= x); `approximate="tanh"` is GPT-2's formula. Source: Hendrycks and Gimpel, 2016."""

    def __init__(self, approximate="none", *, fused=None):
        super().__init__()
        self.approximate = approximate
        self.fused = fused

    def forward(self, input):
        return F.gelu(input, self.approximate, fused=self.fused)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def __init__(self, *, auto=False, fused=None):
        super().__init__()
        self.auto = auto
        self.fused = fused

    def forward(self, input):
        return 1 / (1 + (-input).exp()) if self.auto else F.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input):
        return F.tanh(input)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`, given here or at the call."""

    def __init__(self, dim=None, *, auto=False, fused=None):
        super().__init__()
        self.dim = dim
        self.auto = auto
        self.fused = fused

    def forward(self, input, dim=None):
        dim = self.dim if dim is None else dim
        if self.auto:
            dim = -1 if dim is None else dim
            e = (input - input.detach().amax(dim, keepdim=True)).exp()
            return e / e.sum(dim, keepdim=True)
        return F.softmax(input, dim, fused=self.fused)

    def extra_repr(self):
        return f"dim={self.dim}"
