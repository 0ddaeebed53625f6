"""Activation layers: each applies the function of its name."""

import inspect

from ..ops.creation import full
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


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
        return F.relu(input, self.inplace, fused=self.fused)

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
        return 1 / (1 + (-input).exp()) if self.auto else F.sigmoid(input, fused=self.fused)


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


def _layer(name, function, *, arguments=(), inplace=False, named=True, fused=False):
    """A layer from a function: `arguments` are (name, default) pairs kept as attributes and passed on; `fused`: it has a kernel."""
    names = [n for n, _ in arguments]

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        if fused:
            self.fused = kwargs.pop("fused", None)
        allowed = [*names, "inplace"] if inplace else names
        if len(args) > len(allowed):
            raise TypeError(f"{name}() takes {len(allowed)} arguments, got {len(args)}.")
        given = {**dict(zip(allowed, args, strict=False)), **kwargs}
        for n in given:
            if n not in allowed:
                raise TypeError(f"{name}() got an unexpected keyword argument '{n}'")
        for n, default in arguments:
            if default is ... and n not in given:
                raise TypeError(f"{name}() missing required argument: '{n}'")
            setattr(self, n, given.get(n, default))
        if inplace:
            self.inplace = given.get("inplace", False)

    def forward(self, input):
        options = {n: getattr(self, n) for n in names}
        if inplace:
            options["inplace"] = self.inplace
        if fused:
            options["fused"] = self.fused
        return getattr(F, function)(input, **options)

    def extra_repr(self):
        text = ", ".join(f"{n}={getattr(self, n)}" if named else f"{getattr(self, n)}" for n in names)
        return text + ((", " if text else "") + "inplace=True" if inplace and self.inplace else "")

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made = [inspect.Parameter(n, either, default=inspect.Parameter.empty if d is ... else d) for n, d in arguments]
    made += [inspect.Parameter("inplace", either, default=False)] if inplace else []
    made += [inspect.Parameter("fused", inspect.Parameter.KEYWORD_ONLY, default=None)] if fused else []
    elementwise = function not in ("softmin", "log_softmax", "glu", "swiglu", "geglu", "reglu")
    doc = f"Applies `F.{function}` elementwise." if elementwise else f"Applies `F.{function}`."
    body = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": doc, "__module__": __name__}
    body["__signature__"] = inspect.Signature(made)
    return type(name, (Module,), body)


LeakyReLU = _layer("LeakyReLU", "leaky_relu", arguments=[("negative_slope", 0.01)], inplace=True)
ELU = _layer("ELU", "elu", arguments=[("alpha", 1.0)], inplace=True)
CELU = _layer("CELU", "celu", arguments=[("alpha", 1.0)], inplace=True)
SELU = _layer("SELU", "selu", inplace=True)
SiLU = _layer("SiLU", "silu", inplace=True, fused=True)
Mish = _layer("Mish", "mish", inplace=True)
ReLU6 = _layer("ReLU6", "relu6", inplace=True)
Hardsigmoid = _layer("Hardsigmoid", "hardsigmoid", inplace=True)
Hardswish = _layer("Hardswish", "hardswish", inplace=True)
Hardtanh = _layer("Hardtanh", "hardtanh", arguments=[("min_val", -1.0), ("max_val", 1.0)], inplace=True)
Hardshrink = _layer("Hardshrink", "hardshrink", arguments=[("lambd", 0.5)], named=False)
Softshrink = _layer("Softshrink", "softshrink", arguments=[("lambd", 0.5)], named=False)
Tanhshrink = _layer("Tanhshrink", "tanhshrink")
Threshold = _layer("Threshold", "threshold", arguments=[("threshold", ...), ("value", ...)], inplace=True)
Softplus = _layer("Softplus", "softplus", arguments=[("beta", 1.0), ("threshold", 20.0)])
Softsign = _layer("Softsign", "softsign")
LogSigmoid = _layer("LogSigmoid", "logsigmoid")
Softmin = _layer("Softmin", "softmin", arguments=[("dim", None)], fused=True)
LogSoftmax = _layer("LogSoftmax", "log_softmax", arguments=[("dim", None)], fused=True)
GLU = _layer("GLU", "glu", arguments=[("dim", -1)])
SwiGLU = _layer("SwiGLU", "swiglu", fused=True)  # of the halves of the last axis, as GLU
ReGLU = _layer("ReGLU", "reglu", fused=True)
ReLUSquared = _layer("ReLUSquared", "relu_squared", fused=True)


class GEGLU(Module):
    """gelu(a) * b of the halves a, b of the last axis: (…, 2C) to (…, C). Source: Shazeer, 2020."""

    def __init__(self, approximate="none", *, fused=None):
        super().__init__()
        self.approximate = approximate
        self.fused = fused

    def forward(self, input):
        return F.geglu(input, approximate=self.approximate, fused=self.fused)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class RReLU(Module):
    """A leaky relu with a slope drawn at random while training."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """A leaky relu whose slope is learnt. Source: He et al., 2015."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def reset_parameters(self):
        """Every slope `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W)."""

    def __init__(self, *, fused=None):
        super().__init__()
        self.fused = fused

    def forward(self, input):
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3, fused=self.fused)
