"""Initialisers: fill a tensor in place, unrecorded, and return it. Draws are PyTorch's, bit for bit."""

import functools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._tensor import Tensor
from ..backend import device_guard, to_device
from ..base.arguments import describe
from ..base.config import holding
from ..engine.mode import no_grad
from ..ops.creation import empty, empty_like
from ..ops.creation import eye as _identity
from ..ops.elementwise import where
from ..ops.random import randperm

_skipping = ContextVar("mytorch_skipping", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Within this context the fills and draws of this module do nothing; for `nn.utils.skip_init`."""
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
    """The factor by which a nonlinearity's input should be scaled to keep the variance.

    Raises:
        ValueError: an unknown nonlinearity.
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b).

    Args:
        a: lower bound.
        b: upper bound.
    """
    return _filled(tensor, lambda: tensor.uniform_(a, b, generator=generator))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal.

    Args:
        mean: of the distribution.
        std: of the distribution.
    """
    return _filled(tensor, lambda: tensor.normal_(mean, std, generator=generator))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal, but within [a, b], by drawing again what falls outside.

    Args:
        mean: of the normal distribution.
        std: of the normal distribution.
        a: lower bound.
        b: upper bound.
    """

    def cdf(x):
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
            stacklevel=2,
        )
    often = cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3
    draw = _redraw_outside if often else _accept_by_density
    return _filled(tensor, lambda: draw(tensor, mean, std, a, b, generator))


def _redraw_outside(tensor, mean, std, a, b, generator):
    """Normal draws; those outside [a, b] are replaced until none is left."""
    low, high = (tensor.new_tensor(bound).item() for bound in (a, b))
    out = tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (out < low) | (out > high)
        if not outside.any():
            return tensor if out is tensor else tensor.copy_(out)
        out = where(outside, empty_like(out).normal_(mean, std, generator=generator), out)


def _accept_by_density(tensor, mean, std, a, b, generator):
    """Uniform draws in [a, b], each accepted with the density there over the highest; for narrow or far intervals."""
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
    """One value."""
    return _filled(tensor, lambda: tensor.fill_(val))


def ones_(tensor: Tensor) -> Tensor:
    """1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    Raises:
        ValueError: not 2-d.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _filled(tensor, lambda: tensor.copy_(_identity(*tensor.shape, dtype=tensor.dtype)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution kernel that passes its input through.

    Raises:
        ValueError: not 3-, 4- or 5-d, or out channels not divisible by groups.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
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
    """(fan in, fan out): how many inputs feed an output, and the reverse."""
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
    """Uniform with variance gain² * 2 / (fan in + fan out), so within ±gain sqrt(6 / (fan in + fan out)).

    Source: Glorot and Bengio, 2010.

    Example:
        >>> nn.init.xavier_uniform_(mytorch.empty(3, 3)).abs().max().item() <= 1.0
        True
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance gain² * 2 / (fan in + fan out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform with variance gain² / fan; the arguments are kaiming_normal_'s. Source: He et al., 2015.

    Args:
        a: slope of the leaky relu after it.
        mode: "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity: which one comes after it.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with variance gain² / fan.

    Args:
        a: the slope of the leaky relu that follows. mode: "fan_in" or "fan_out": whether the forward or the backward
            pass keeps its variance. nonlinearity: what follows; see `calculate_gain`.

    Source: He et al., 2015.

    Example:
        >>> w = nn.init.kaiming_normal_(mytorch.empty(200, 200), nonlinearity="relu")
        >>> abs(w.std().item() - 0.1) < 0.01
        True
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(
        tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)), generator
    )


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix, of the axes after the first taken as one. Source: Saxe et al., 2013."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or _skipping.get():
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    draw = normal_(empty(rows, columns, dtype=tensor.dtype, device=tensor.device), generator=generator).cpu().numpy()
    q, r = np.linalg.qr(draw.T if rows < columns else draw)
    q = q * np.sign(np.diag(r))
    q = q.T if rows < columns else q

    def fill():
        with device_guard(tensor._data._array):
            tensor._data._array[...] = to_device((q * gain).reshape(tensor.shape), tensor.device)
        tensor._data._bump()
        return tensor

    return _filled(tensor, fill)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with a share of each column set to zero. Source: Martens, 2010.

    Args:
        sparsity: share of each column that is zero.
        std: of the others.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape

    def fill():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            shuffled = randperm(rows, device="cpu").numpy()  # PyTorch too leaves the generator aside
            zeros = shuffled[: math.ceil(sparsity * rows)]
            with device_guard(tensor._data._array):
                tensor._data._array[zeros, column] = 0
        tensor._data._bump()
        return tensor

    return _filled(tensor, fill)


describe(
    globals(), tensor="the tensor to fill in place.", gain="factor of the standard deviation; see `calculate_gain`."
)


def _deprecated(function):
    """The older name of an initialiser, without the underscore; it warns."""
    new = function.__name__
    old = new[:-1]

    @functools.wraps(function)
    def renamed(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = old
    renamed.__doc__ = f"The older name of `{new}`."
    return renamed


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal, orthogonal = map(_deprecated, (xavier_uniform_, xavier_normal_, orthogonal_))
kaiming_uniform, kaiming_normal, sparse = map(_deprecated, (kaiming_uniform_, kaiming_normal_, sparse_))
