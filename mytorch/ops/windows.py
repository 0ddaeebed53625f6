"""`torch.signal.windows`: windows of M points, symmetric or periodic."""

import math

import numpy as np

from ..arrays import dtypes
from ..arrays.memory_format import strided
from ..arrays.tensor import Tensor
from .creation import from_numpy

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


def _window(name, M, make, sym, dtype, layout, device, requires_grad):
    """Returns a window: `make(n, x)` for the positions x of n points. A periodic window omits the last of M + 1 points."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout not in (None, strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if dtype.name not in ("float32", "float64"):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    n = M if sym or M < 2 else M + 1
    values = np.ones(M) if M < 2 else make(n, np.arange(n, dtype=np.float64))[:M]
    return from_numpy(values.astype(dtypes.as_numpy(dtype))).to(device).requires_grad_(requires_grad)


_COMMON = """
        sym: True for a symmetric window, False for one period (default: True).
        dtype: float32 or float64 (default: the default dtype).
        layout: must be strided.
        device: device of the window.
        requires_grad: True to record operations on the window (default: False).

    Raises:
        ValueError: bad length, parameter or dtype.
"""


def _documented(**arguments):
    def decorate(function):
        lines = "".join(f"        {name}: {text}.\n" for name, text in arguments.items())
        function.__doc__ = f"{function.__doc__}\n\n    Args:\n        M: number of points.\n{lines.rstrip()}{_COMMON}"
        return function

    return decorate


def _cosine_sum(coefficients):
    return lambda n, x: sum((-1) ** k * a * np.cos(2 * math.pi * k * x / (n - 1)) for k, a in enumerate(coefficients))


@_documented(a="coefficients of the cosines")
def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns a sum of cosines."""
    if not hasattr(a, "__iter__"):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, _cosine_sum(a), sym, dtype, layout, device, requires_grad)


@_documented(alpha="constant part (default: 0.54)")
def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns alpha - (1 - alpha) cos(2 pi n / (M - 1))."""
    return _window("general_hamming", M, _cosine_sum([alpha, 1 - alpha]), sym, dtype, layout, device, requires_grad)


@_documented()
def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the Hamming window."""
    return _window("hamming", M, _cosine_sum([0.54, 0.46]), sym, dtype, layout, device, requires_grad)


@_documented()
def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the Hann window."""
    return _window("hann", M, _cosine_sum([0.5, 0.5]), sym, dtype, layout, device, requires_grad)


@_documented()
def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the Blackman window."""
    return _window("blackman", M, _cosine_sum([0.42, 0.5, 0.08]), sym, dtype, layout, device, requires_grad)


@_documented()
def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the minimum 4-term Blackman-Harris window of Nuttall."""
    terms = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return _window("nuttall", M, _cosine_sum(terms), sym, dtype, layout, device, requires_grad)


@_documented()
def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the Bartlett window, a triangle that begins and ends at 0."""

    def make(n, x):
        return 1 - np.abs(2 * x / (n - 1) - 1)

    return _window("bartlett", M, make, sym, dtype, layout, device, requires_grad)


@_documented()
def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns half a period of a sine, sampled at the centers of M intervals."""

    def make(n, x):
        return np.sin(math.pi * (x + 0.5) / n)

    return _window("cosine", M, make, sym, dtype, layout, device, requires_grad)


@_documented(center="position of the largest value (default: the middle)", tau="decay (default: 1.0)")
def exponential(
    M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False
) -> Tensor:
    """Returns exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def make(n, x):
        return np.exp(-np.abs(x - ((n - 1) / 2 if center is None else center)) / tau)

    return _window("exponential", M, make, sym, dtype, layout, device, requires_grad)


@_documented(std="standard deviation in points (default: 1.0)")
def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns a Gaussian."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def make(n, x):
        return np.exp(-(((x - (n - 1) / 2) / std) ** 2) / 2)

    return _window("gaussian", M, make, sym, dtype, layout, device, requires_grad)


@_documented(beta="shape parameter; larger is narrower (default: 12.0)")
def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the Kaiser window."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, lambda n, x: np.kaiser(n, beta), sym, dtype, layout, device, requires_grad)
