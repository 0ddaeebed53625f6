"""Activation layers. Each layer calls the function of the same name in `nn.functional`."""

from ..arrays.tensor import Tensor
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
    """Applies the rectified linear unit to each element.

        ReLU(x) = max(x, 0)

    Use it as the default in convolutional networks and MLPs: it is the fastest. If units die, try `LeakyReLU` or
    `GELU`.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.ReLU()(tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]

    See also: `nn.functional.relu`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace, auto=self.auto, fused=self.fused)


class GELU(Layer, function=F.gelu, approximate="none"):
    """Applies the Gaussian error linear unit to each element.

        GELU(x) = x * P(Z <= x), Z ~ N(0, 1)

    Use it in transformers; GPT-2 and BERT do. `approximate="tanh"` gives the values of checkpoints that were trained
    with it.

    Args:
        approximate: "none" for the exact formula, "tanh" for the approximation of GPT-2 (default: "none").

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Hendrycks and Gimpel, 2016.

    Example:
        >>> nn.GELU()(tensor(1.0))
        tensor(0.84134)

    See also: `nn.functional.gelu`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate, auto=self.auto, fused=self.fused)


class Sigmoid(Layer, function=F.sigmoid):
    """Applies the logistic sigmoid function to each element.

        Sigmoid(x) = 1 / (1 + exp(-x))

    Use it for gates and for probabilities that you show. Before a loss, omit it and use `BCEWithLogitsLoss`.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.Sigmoid()(tensor([-1.0, 0.0, 1.0]))
        >>> y
        tensor([0.26894 0.50000 0.73106])

    See also: `nn.functional.sigmoid`, `nn.BCEWithLogitsLoss`.
    """


class Tanh(Layer, function=F.tanh):
    """Applies the hyperbolic tangent to each element.

        Tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))

    Use it for outputs between -1 and 1, such as images of a generator, and inside of recurrent layers.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.Tanh()(tensor([-1.0, 0.0, 1.0]))
        >>> y
        tensor([-0.76159  0.00000  0.76159])

    See also: `nn.functional.tanh`.
    """


class Softmax(Layer, function=F.softmax, dim=None):
    """Applies the softmax function along one dimension.

        Softmax(x_i) = exp(x_i) / sum_j exp(x_j)

    Do not put this layer before `nn.CrossEntropyLoss`, which expects logits and applies log-softmax to them.

    Use it for probabilities that you show or sample from. Before a loss, omit it: `CrossEntropyLoss` expects logits.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input, with elements in [0, 1].

    Example:
        >>> nn.Softmax(dim=1)(tensor([[1.0, 1.0], [0.0, 0.0]])).tolist()
        [[0.5, 0.5], [0.5, 0.5]]

    See also: `nn.functional.softmax`, `nn.LogSoftmax`.
    """

    def forward(self, input: Tensor, dim: int | None = None) -> Tensor:
        return F.softmax(input, self.dim if dim is None else dim, auto=self.auto, fused=self.fused)


class LeakyReLU(Layer, function=F.leaky_relu, negative_slope=0.01, inplace=False):
    """Applies a rectified linear unit with a small slope for negative elements.

        LeakyReLU(x) = x if x > 0, negative_slope * x otherwise

    Use it when units with `ReLU` stop learning because their inputs are always negative, as in the discriminator of a
    GAN.

    Args:
        negative_slope: slope for negative elements (default: 0.01).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.LeakyReLU(0.5)(tensor([-2.0, 2.0])).tolist()
        [-1.0, 2.0]

    See also: `nn.functional.leaky_relu`, `nn.PReLU`.
    """


class ELU(Layer, function=F.elu, alpha=1.0, inplace=False):
    """Applies the exponential linear unit to each element.

        ELU(x) = x if x > 0, alpha * (exp(x) - 1) otherwise

    Use it when the mean of the activations should be near zero and there are no normalization layers.

    Args:
        alpha: factor of the exponential part (default: 1.0).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Clevert et al., 2015.

    Example:
        >>> y = nn.ELU()(tensor([-1.0, 2.0]))
        >>> y
        tensor([-0.63212  2.00000])

    See also: `nn.functional.elu`.
    """


class CELU(Layer, function=F.celu, alpha=1.0, inplace=False):
    """Applies the continuously differentiable exponential linear unit to each element.

        CELU(x) = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)

    Args:
        alpha: scale of the exponential part (default: 1.0).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Barron, 2017.

    Example:
        >>> y = nn.CELU(alpha=2.0)(tensor([-2.0, 2.0]))
        >>> y
        tensor([-1.26424  2.00000])

    See also: `nn.functional.celu`.
    """


class SELU(Layer, function=F.selu, inplace=False):
    """Applies the scaled exponential linear unit to each element.

        SELU(x) = scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0))

    The constants scale = 1.0507 and alpha = 1.6733 keep the activations near mean 0 and variance 1.

    Use it in deep MLPs without normalization layers, with weights of variance 1 / fan_in and with `AlphaDropout`.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Klambauer et al., 2017.

    Example:
        >>> y = nn.SELU()(tensor([-1.0, 1.0]))
        >>> y
        tensor([-1.11133  1.05070])

    See also: `nn.functional.selu`, `nn.AlphaDropout`.
    """


class SiLU(Layer, function=F.silu, inplace=False):
    """Applies the sigmoid linear unit, also known as swish, to each element.

        SiLU(x) = x * sigmoid(x)

    Use it in newer convolutional networks, and in the gated layers of Llama.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.SiLU()(tensor([-1.0, 1.0]))
        >>> y
        tensor([-0.26894  0.73106])

    See also: `nn.functional.silu`.
    """


class Mish(Layer, function=F.mish, inplace=False):
    """Applies the Mish function to each element.

        Mish(x) = x * tanh(softplus(x))

    Use it where a recipe asks for it, such as YOLOv4; `SiLU` is similar and faster.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Misra, 2019.

    Example:
        >>> y = nn.Mish()(tensor([-1.0, 1.0]))
        >>> y
        tensor([-0.30340  0.86510])

    See also: `nn.functional.mish`.
    """


class ReLU6(Layer, function=F.relu6, inplace=False):
    """Applies a rectified linear unit with an upper limit of 6 to each element.

        ReLU6(x) = min(max(x, 0), 6)

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.ReLU6()(tensor([-1.0, 3.0, 8.0])).tolist()
        [0.0, 3.0, 6.0]

    See also: `nn.functional.relu6`.
    """


class Hardsigmoid(Layer, function=F.hardsigmoid, inplace=False):
    """Applies a piecewise linear approximation of the sigmoid to each element.

        Hardsigmoid(x) = min(max(x / 6 + 1/2, 0), 1)

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Hardsigmoid()(tensor([-4.0, 0.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]

    See also: `nn.functional.hardsigmoid`.
    """


class Hardswish(Layer, function=F.hardswish, inplace=False):
    """Applies a piecewise quadratic approximation of SiLU to each element.

        Hardswish(x) = x * hardsigmoid(x)

    Use it in place of `SiLU` in small networks for phones: it needs no exponential.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Howard et al., 2019.

    Example:
        >>> nn.Hardswish()(tensor([1.5, 4.0])).tolist()
        [1.125, 4.0]

    See also: `nn.functional.hardswish`.
    """


class Hardtanh(Layer, function=F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False):
    """Clips each element to the interval [min_val, max_val].

        Hardtanh(x) = min(max(x, min_val), max_val)

    Args:
        min_val: lower limit (default: -1.0).
        max_val: upper limit (default: 1.0).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Hardtanh()(tensor([-2.0, 0.5, 2.0])).tolist()
        [-1.0, 0.5, 1.0]

    See also: `nn.functional.hardtanh`.
    """


class Hardshrink(Layer, function=F.hardshrink, shown="{lambd}", lambd=0.5):
    """Replaces elements of small magnitude by zeros.

        Hardshrink(x) = x if |x| > lambd, 0 otherwise

    Args:
        lambd: largest magnitude that becomes zero (default: 0.5).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Hardshrink()(tensor([-1.0, 0.25, 1.0])).tolist()
        [-1.0, 0.0, 1.0]

    See also: `nn.functional.hardshrink`.
    """


class Softshrink(Layer, function=F.softshrink, shown="{lambd}", lambd=0.5):
    """Moves each element toward zero by `lambd`.

        Softshrink(x) = sign(x) * max(|x| - lambd, 0)

    Args:
        lambd: distance of the shift toward zero (default: 0.5).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Softshrink()(tensor([-1.0, 0.25, 1.0])).tolist()
        [-0.5, 0.0, 0.5]

    See also: `nn.functional.softshrink`.
    """


class Tanhshrink(Layer, function=F.tanhshrink):
    """Subtracts its hyperbolic tangent from each element.

        Tanhshrink(x) = x - tanh(x)

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.Tanhshrink()(tensor([-1.0, 1.0]))
        >>> y
        tensor([-0.23841  0.23841])

    See also: `nn.functional.tanhshrink`.
    """


class Threshold(Layer, function=F.threshold, threshold=..., value=..., inplace=False):
    """Replaces elements that do not exceed a threshold by a value.

        Threshold(x) = x if x > threshold, value otherwise

    Args:
        threshold: elements above it do not change.
        value: replacement for the other elements.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Threshold(1.0, 20.0)(tensor([0.5, 2.0])).tolist()
        [20.0, 2.0]

    See also: `nn.functional.threshold`.
    """


class Softplus(Layer, function=F.softplus, beta=1.0, threshold=20.0):
    """Applies a smooth approximation of ReLU to each element.

        Softplus(x) = log(1 + exp(beta * x)) / beta

    Use it for outputs that must be positive, such as a variance.

    Args:
        beta: sharpness of the approximation (default: 1.0).
        threshold: inputs with beta * x above it are returned unchanged, to avoid overflow (default: 20.0).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.Softplus()(tensor([-1.0, 0.0, 1.0]))
        >>> y
        tensor([0.31326 0.69315 1.31326])

    See also: `nn.functional.softplus`.
    """


class Softsign(Layer, function=F.softsign):
    """Applies the softsign function to each element.

        Softsign(x) = x / (1 + |x|)

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> nn.Softsign()(tensor([-1.0, 3.0])).tolist()
        [-0.5, 0.75]

    See also: `nn.functional.softsign`.
    """


class LogSigmoid(Layer, function=F.logsigmoid):
    """Applies the logarithm of the sigmoid to each element.

        LogSigmoid(x) = log(1 / (1 + exp(-x)))

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.LogSigmoid()(tensor([-1.0, 0.0, 1.0]))
        >>> y
        tensor([-1.31326 -0.69315 -0.31326])

    See also: `nn.functional.logsigmoid`.
    """


class Softmin(Layer, function=F.softmin, dim=None):
    """Applies the softmin function along one dimension.

        Softmin(x) = Softmax(-x)

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input, with elements in [0, 1].

    Example:
        >>> y = nn.Softmin(dim=0)(tensor([0.0, 1.0]))
        >>> y
        tensor([0.73106 0.26894])

    See also: `nn.functional.softmin`.
    """


class LogSoftmax(Layer, function=F.log_softmax, dim=None):
    """Applies the logarithm of the softmax along one dimension.

        LogSoftmax(x_i) = x_i - log(sum_j exp(x_j))

    Use it in place of the logarithm of `Softmax`, which is -inf for small probabilities.

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Example:
        >>> y = nn.LogSoftmax(dim=0)(tensor([0.0, 1.0]))
        >>> y
        tensor([-1.31326 -0.31326])

    See also: `nn.functional.log_softmax`, `nn.NLLLoss`.
    """


class GLU(Layer, function=F.glu, dim=-1):
    """Applies the gated linear unit to the two halves of a dimension.

        GLU(a, b) = a * sigmoid(b)

    Args:
        dim: dimension that is split into a and b (default: -1).

    Shape:
        Input: (*, 2C, *), with 2C at dimension `dim`.
        Output: (*, C, *).

    Source: Dauphin et al., 2016.

    Example:
        >>> nn.GLU()(tensor([1.0, 2.0, 0.0, 0.0])).tolist()
        [0.5, 1.0]

    See also: `nn.functional.glu`.
    """


class SwiGLU(Layer, function=F.swiglu):
    """Applies a gated linear unit with SiLU to the two halves of the last dimension.

        SwiGLU(a, b) = silu(a) * b

    Shape:
        Input: (*, 2C).
        Output: (*, C).

    Source: Shazeer, 2020.

    Example:
        >>> y = nn.SwiGLU()(tensor([1.0, 2.0]))
        >>> y
        tensor([1.46212])

    See also: `nn.functional.swiglu`.
    """


class ReGLU(Layer, function=F.reglu):
    """Applies a gated linear unit with ReLU to the two halves of the last dimension.

        ReGLU(a, b) = relu(a) * b

    Shape:
        Input: (*, 2C).
        Output: (*, C).

    Source: Shazeer, 2020.

    Example:
        >>> nn.ReGLU()(tensor([-1.0, 3.0, 2.0, 2.0])).tolist()
        [0.0, 6.0]

    See also: `nn.functional.reglu`.
    """


class GEGLU(Layer, function=F.geglu, approximate="none"):
    """Applies a gated linear unit with GELU to the two halves of the last dimension.

        GEGLU(a, b) = gelu(a) * b

    Shape:
        Input: (*, 2C).
        Output: (*, C).

    Source: Shazeer, 2020.

    Example:
        >>> y = nn.GEGLU()(tensor([1.0, 2.0]))
        >>> y
        tensor([1.68269])

    See also: `nn.functional.geglu`.
    """


class ReLUSquared(Layer, function=F.relu_squared):
    """Applies the square of ReLU to each element.

        ReLUSquared(x) = max(x, 0)²

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: So et al., Primer, 2021.

    Example:
        >>> nn.ReLUSquared()(tensor([-1.0, 3.0])).tolist()
        [0.0, 9.0]

    See also: `nn.functional.relu_squared`.
    """


class RReLU(Layer, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
    """Applies a leaky ReLU with a random slope for negative elements.

        RReLU(x) = x if x > 0, a * x otherwise

    In training mode, the layer draws each slope a uniformly from [lower, upper]. In evaluation mode, a is the mean of
    both limits.

    Args:
        lower: smallest slope (default: 0.125).
        upper: largest slope (default: 1/3).

    Shape:
        Input: (*), any shape.
        Output: (*), the same shape as the input.

    Source: Xu et al., 2015.

    Example:
        >>> nn.RReLU(lower=0.25, upper=0.75).eval()(tensor([-2.0, 2.0])).tolist()
        [-1.0, 2.0]

    See also: `nn.functional.rrelu`, `nn.LeakyReLU`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """Applies a leaky ReLU whose slope is a learnable parameter.

        PReLU(x) = x if x > 0, weight * x otherwise

    Use it when you don't know the slope of a `LeakyReLU` and can afford a few more parameters; don't apply weight decay
    to them.

    Args:
        num_parameters: 1 for one slope, or C for one slope for each channel (default: 1).
        init: initial value of each slope (default: 0.25).

    Shape:
        Input: (N, C, *), or any shape if `num_parameters` is 1.
        Output: the same shape as the input.

    Source: He et al., 2015.

    Example:
        >>> nn.PReLU()(tensor([-4.0, 2.0])).tolist()
        [-1.0, 2.0]

    See also: `nn.functional.prelu`, `nn.LeakyReLU`.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Device = None, dtype: DType = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Sets every slope to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softmax2d(Layer, function=F.softmax):
    """Applies the softmax function over the channels at each spatial position.

        Softmax2d(x)_c = exp(x_c) / sum_k exp(x_k)

    Shape:
        Input: (N, C, H, W) or (C, H, W).
        Output: the same shape as the input.

    Example:
        >>> nn.Softmax2d()(mytorch.zeros(1, 2, 1, 1)).flatten().tolist()
        [0.5, 0.5]

    See also: `nn.functional.softmax`.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead.")
        return F.softmax(input, -3, auto=self.auto, fused=self.fused)
