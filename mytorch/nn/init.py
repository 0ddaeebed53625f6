"""Initialization functions. They fill a tensor in place, outside the graph, and return it.

The functions draw the same random numbers as PyTorch on a CPU.
"""

import functools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..arrays import device_guard, to_device
from ..arrays.arguments import describe
from ..arrays.config import holding
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..ops.creation import empty, empty_like
from ..ops.creation import eye as _identity
from ..ops.elementwise import where
from ..ops.random import randperm

_skipping = ContextVar("mytorch_skipping", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Disables the functions of this module, as a context manager. `nn.utils.skip_init` uses it."""
    with holding(_skipping, True):
        yield


def _filled(tensor, fill):
    if _skipping.get() or tensor.is_meta:
        return tensor
    with no_grad():
        return fill()


_GAINS = {
    **dict.fromkeys(("linear", "sigmoid", *(f"conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3))), 1),
    "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the recommended gain for a nonlinearity, which keeps the variance of its input.

    Args:
        nonlinearity: "linear", "conv2d" or another convolution, "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        param: negative slope, for "leaky_relu". By default, 0.01.

    Raises:
        ValueError: the nonlinearity is unknown, or the slope is not a number.

    Example:
        >>> round(nn.init.calculate_gain("relu"), 4)
        1.4142
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param!r} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from the uniform distribution on [a, b).

    Args:
        a: lower limit (default: 0.0).
        b: upper limit (default: 1.0).

    Example:
        >>> w = nn.init.uniform_(mytorch.empty(100), -1.0, 1.0)
        >>> bool((w.abs() <= 1.0).all())
        True
    """
    return _filled(tensor, lambda: tensor.uniform_(a, b, generator=generator))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from a normal distribution.

    Args:
        mean: mean of the distribution (default: 0.0).
        std: standard deviation of the distribution (default: 1.0).

    Example:
        >>> w = nn.init.normal_(mytorch.empty(10000), std=0.02)
        >>> abs(w.std().item() - 0.02) < 0.001
        True
    """
    return _filled(tensor, lambda: tensor.normal_(mean, std, generator=generator))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Draws from a normal distribution, limited to [a, b].

    Use it for vision transformers and embeddings, where single large weights disturb.

    Args:
        mean: mean of the normal distribution (default: 0.0).
        std: standard deviation of the normal distribution (default: 1.0).
        a: lower limit (default: -2.0).
        b: upper limit (default: 2.0).

    Example:
        >>> w = nn.init.trunc_normal_(mytorch.empty(1000), std=1.0, a=-1.0, b=1.0)
        >>> bool((w.abs() <= 1.0).all())
        True
    """

    def cdf(x):
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
            stacklevel=2,
        )
    # Redrawing is fast if more than 30 % of the draws are inside.
    is_likely = cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3
    draw = _redraw_outside if is_likely else _accept_by_density
    return _filled(tensor, lambda: draw(tensor, mean, std, a, b, generator))


def _redraw_outside(tensor, mean, std, a, b, generator):
    """Draws from the normal distribution, and draws elements outside [a, b] again."""
    low, high = (tensor.new_tensor(bound).item() for bound in (a, b))
    out = tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (out < low) | (out > high)
        if not outside.any():
            return tensor if out is tensor else tensor.copy_(out)
        out = where(outside, empty_like(out).normal_(mean, std, generator=generator), out)


def _accept_by_density(tensor, mean, std, a, b, generator):
    """Draws uniformly from [a, b], and accepts each element with its density relative to the highest density.

    This method is faster than `_redraw_outside` for intervals with a low probability.
    """
    highest = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    draws, chances = empty_like(tensor), empty_like(tensor)
    out = tensor.uniform_(a, b, generator=generator)
    draws.copy_(tensor)
    pending = None
    while True:
        draws.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(highest)
        refused = chances.uniform_(generator=generator).log_() > draws
        pending = refused if pending is None else pending & refused
        if not pending.any():
            return tensor if out is tensor else tensor.copy_(out)
        draws.uniform_(a, b, generator=generator)
        out = where(pending, draws, out)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills the tensor with one value.

    Args:
        val: the value.

    Example:
        >>> nn.init.constant_(mytorch.empty(2), 0.5).tolist()
        [0.5, 0.5]
    """
    return _filled(tensor, lambda: tensor.fill_(val))


def ones_(tensor: Tensor) -> Tensor:
    """Fills the tensor with ones.

    Args:
        tensor: the tensor to fill in place.

    Example:
        >>> nn.init.ones_(mytorch.empty(2)).tolist()
        [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills the tensor with zeros.

    Args:
        tensor: the tensor to fill in place.

    Example:
        >>> nn.init.zeros_(mytorch.empty(2)).tolist()
        [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fills a matrix with the identity matrix.

    Args:
        tensor: the tensor to fill in place.

    Raises:
        ValueError: the tensor does not have 2 dimensions.

    Example:
        >>> nn.init.eye_(mytorch.empty(2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got {tensor.ndim}")
    return _filled(tensor, lambda: tensor.copy_(_identity(*tensor.shape, dtype=tensor.dtype)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills the weight of a convolution so that it copies its input channels to its output channels.

    Args:
        groups: number of groups of the convolution (default: 1).

    Raises:
        ValueError: the tensor does not have 3, 4 or 5 dimensions, or `groups` does not divide the first size.

    Example:
        >>> nn.init.dirac_(mytorch.empty(1, 1, 3)).tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"Only tensors with 3, 4, or 5 dimensions are supported, got {tensor.ndim}")
    if tensor.shape[0] % groups:
        raise ValueError(f"dim 0 must be divisible by groups, got {tensor.shape[0]} and {groups}")
    out = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])

    def fill():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(out, tensor.shape[1])):
                tensor.data[(g * out + d, d, *centre)] = 1
        return tensor

    return _filled(tensor, fill)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Returns (fan_in, fan_out), the numbers of inputs of each output and of outputs of each input."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from the Xavier uniform distribution.

        U(-a, a) with a = gain * sqrt(6 / (fan_in + fan_out))

    Use it before tanh and sigmoid, and in attention; before ReLU, `kaiming_normal_` keeps the variance.

    Raises:
        ValueError: the tensor has fewer than 2 dimensions.

    Source: Glorot and Bengio, 2010.

    Example:
        >>> nn.init.xavier_uniform_(mytorch.empty(3, 3)).abs().max().item() <= 1.0
        True

    See also: `nn.init.xavier_normal_`, `nn.init.kaiming_uniform_`.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from the Xavier normal distribution.

        N(0, std²) with std = gain * sqrt(2 / (fan_in + fan_out))

    Raises:
        ValueError: the tensor has fewer than 2 dimensions.

    Source: Glorot and Bengio, 2010.

    Example:
        >>> w = nn.init.xavier_normal_(mytorch.empty(200, 200))
        >>> abs(w.std().item() - (2 / 400) ** 0.5) < 0.01
        True

    See also: `nn.init.xavier_uniform_`, `nn.init.kaiming_normal_`.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Draws from the Kaiming uniform distribution.

        U(-b, b) with b = gain * sqrt(3 / fan)

    The gain is `calculate_gain(nonlinearity, a)`, and fan is fan_in or fan_out.

    Args:
        a: negative slope of the following leaky ReLU (default: 0).
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass (default: "fan_in").
        nonlinearity: function that follows the layer, "relu" or "leaky_relu" (default: "leaky_relu").

    Raises:
        ValueError: the tensor has fewer than 2 dimensions, or `mode` or `nonlinearity` is unknown.

    Source: He et al., 2015.

    Example:
        >>> w = nn.init.kaiming_uniform_(mytorch.empty(4, 6), nonlinearity="relu")
        >>> w.abs().max().item() <= 1.0
        True

    See also: `nn.init.kaiming_normal_`, `nn.init.calculate_gain`.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Draws from the Kaiming normal distribution.

        N(0, std²) with std = gain / sqrt(fan)

    The gain is `calculate_gain(nonlinearity, a)`, and fan is fan_in or fan_out.

    Use it before ReLU and its relatives, which remove half of the signal; `xavier_uniform_` is for symmetric
    activations.

    Args:
        a: negative slope of the following leaky ReLU (default: 0).
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass (default: "fan_in").
        nonlinearity: function that follows the layer, "relu" or "leaky_relu" (default: "leaky_relu").

    Raises:
        ValueError: the tensor has fewer than 2 dimensions, or `mode` or `nonlinearity` is unknown.

    Source: He et al., 2015.

    Example:
        >>> w = nn.init.kaiming_normal_(mytorch.empty(200, 200), nonlinearity="relu")
        >>> abs(w.std().item() - 0.1) < 0.01
        True

    See also: `nn.init.kaiming_uniform_`, `nn.init.calculate_gain`.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(
        tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)), generator
    )


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fills a matrix with orthonormal rows or columns, times `gain`. Further dimensions are flattened.

    Use it for recurrent weights, so that repeated products neither grow nor shrink.

    Raises:
        ValueError: the tensor has fewer than 2 dimensions.

    Source: Saxe et al., 2013.

    Example:
        >>> w = nn.init.orthogonal_(mytorch.empty(3, 5))
        >>> bool((w @ w.T - mytorch.eye(3)).abs().max() < 1e-5)
        True
    """
    if tensor.ndim < 2:
        raise ValueError(f"Only tensors with 2 or more dimensions are supported, got {tensor.ndim}")
    if tensor.numel() == 0 or _skipping.get():
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    draw = normal_(empty(rows, columns, dtype=tensor.dtype, device=tensor.device), generator=generator).cpu().numpy()
    q, r = np.linalg.qr(draw.T if rows < columns else draw)
    q = q * np.sign(np.diag(r))  # makes the decomposition unique, so that Q is uniformly distributed
    q = q.T if rows < columns else q

    def fill():
        with device_guard(tensor._mt_data._array):
            tensor._mt_data._array[...] = to_device((q * gain).reshape(tensor.shape), tensor.device)
        tensor._mt_data._bump()
        return tensor

    return _filled(tensor, fill)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fills a matrix with normal numbers, and sets a part of each column to zero.

    Args:
        sparsity: part of each column that is zero, from 0 to 1.
        std: standard deviation of the other elements (default: 0.01).

    Raises:
        ValueError: the tensor does not have 2 dimensions.

    Source: Martens, 2010.

    Example:
        >>> w = nn.init.sparse_(mytorch.empty(4, 3), sparsity=0.5)
        >>> (w == 0).sum(0).tolist()
        [2, 2, 2]
    """
    if tensor.ndim != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got {tensor.ndim}")
    rows, columns = tensor.shape

    def fill():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            shuffled = randperm(rows, device="cpu").numpy()  # PyTorch does not use the generator here either
            zeros = shuffled[: math.ceil(sparsity * rows)]
            with device_guard(tensor._mt_data._array):
                tensor._mt_data._array[zeros, column] = 0
        tensor._mt_data._bump()
        return tensor

    return _filled(tensor, fill)


describe(
    globals(),
    tensor="the tensor to fill in place.",
    gain="factor of the deviation, from `calculate_gain` (default: 1).",
)


def _deprecated(function):
    """Returns a function with the older name, without the underscore, that warns."""
    new = function.__name__
    old = new[:-1]

    @functools.wraps(function)
    def renamed(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = old
    renamed.__doc__ = f"Older name of `{new}`. Deprecated."
    return renamed


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal, orthogonal = map(_deprecated, (xavier_uniform_, xavier_normal_, orthogonal_))
kaiming_uniform, kaiming_normal, sparse = map(_deprecated, (kaiming_uniform_, kaiming_normal_, sparse_))


# PyTorch's names of the functions that the ones above call, which packages use, too.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
