"""Utilities of the distributions: broadcasting of parameters, probabilities and logits, triangular matrices."""

import functools
import itertools
import operator
from numbers import Number
from typing import Any

import numpy as np

from ..arrays import dtypes
from ..arrays.array import Array, Size
from ..arrays.overriding import PLAIN
from ..arrays.tensor import Tensor
from ..autograd.mode import enable_grad
from ..ops.activation import sigmoid, softmax
from ..ops.creation import tensor, zeros
from ..ops.dispatch.unwrap import shape_of
from ..ops.movement import broadcast_tensors
from ..ops.random import randn

euler_constant = 0.57721566490153286060

__all__ = "broadcast_all clamp_probs lazy_property logits_to_probs probs_to_logits tril_matrix_to_vec vec_to_tril_matrix".split()


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Converts numbers and tensors to tensors of one shape. Numbers get the dtype of the first tensor.

    Args:
        *values: numbers and tensors.

    Raises:
        ValueError: if a value is neither a number nor a tensor.
    """
    given: tuple[Any, ...] = values
    shapes = {v._mt_data._array.shape if type(v) in PLAIN else None for v in given}
    if len(shapes) == 1 and None not in shapes:  # the usual case
        return given
    if not all(isinstance(v, (Tensor, Array, Number)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            f"__torch_function__, got {[type(v).__name__ for v in values]}."
        )
    like = next((v for v in values if isinstance(v, (Tensor, Array))), None)
    dtype, device = (dtypes.default_dtype(), None) if like is None else (like.dtype, like.device)
    tensors: list[Any] = [tensor(v, dtype=dtype, device=device) if isinstance(v, Number) else v for v in values]
    tensors = [Tensor._make(v) if isinstance(v, Array) else v for v in tensors]
    alike = len({shape_of(v) for v in tensors}) == 1
    return tuple(tensors) if alike else broadcast_tensors(*tensors)


def _standard_normal(shape, dtype, device):
    """Draw from the standard normal distribution."""
    return randn(shape, dtype=dtype, device=device)


def _sum_rightmost(value, dim):
    """Sum over the last `dim` axes."""
    return value if dim == 0 else value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def finfo(x):
    """Return the limits of the dtype of x."""
    return _finfo(x.dtype)


_finfo = functools.lru_cache(dtypes.finfo)


def sum_rightmost(value, dim):
    """Sum over the last `dim` axes."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Converts logits to probabilities: sigmoid if binary, otherwise softmax over the last axis.

    Args:
        is_binary: use sigmoid.
    """
    return sigmoid(logits) if is_binary else softmax(logits, -1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamps probabilities to [eps, 1 - eps], with the eps of the dtype.

    Args:
        probs: probabilities.
    """
    eps = finfo(probs).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Converts clamped probabilities to logits: log(p / (1 - p)) if binary, otherwise log p.

    Args:
        probs: probabilities.
        is_binary: use log(p / (1 - p)).
    """
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


class lazy_property:
    """A property that is computed on first access, with autograd enabled, and then stored.

    Args:
        wrapped: function of the instance.
    """

    def __init__(self, wrapped):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with enable_grad():
            value = instance.__dict__[self.wrapped.__name__] = self.wrapped(instance)
        return value


def _tril_mask(n, diag):
    return np.tri(n, k=diag, dtype=bool).reshape(-1).nonzero()[0]


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Returns the entries on and below a diagonal, row by row: (..., n, n) to (..., entries).

    Args:
        mat: matrices.
        diag: number of the diagonal; 0 for the main diagonal.

    Raises:
        ValueError: if the diagonal is outside the matrix.
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat.reshape(*mat.shape[:-2], n * n)[..., _tril_mask(n, diag)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Returns the lower triangular matrices with the given entries on and below a diagonal.

    Args:
        vec: entries, row by row.
        diag: number of the diagonal; 0 for the main diagonal.

    Raises:
        ValueError: if no square matrix has this number of entries.
    """
    entries = vec.shape[-1]
    n = 1
    while len(_tril_mask(n, diag)) < entries:
        n += 1
    mask = _tril_mask(n, diag)
    if len(mask) != entries:
        raise ValueError(
            f"The size of last dimension is {entries} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    flat = zeros(*vec.shape[:-1], n * n, dtype=vec.dtype, device=vec.device)
    flat[..., mask] = vec
    return flat.reshape(*vec.shape[:-1], n, n)


def size(*parts):
    """Concatenate shapes to a Size."""
    return Size(itertools.chain.from_iterable(parts))


def joint_shape(*shapes):
    """Return the broadcast shape of several shapes."""
    return Size(np.broadcast_shapes(*(tuple(s) for s in shapes)))


def forwarded(holder, names):
    """Return properties that read the attributes `names` of the object in the attribute `holder`."""
    return [property(operator.attrgetter(f"{holder}.{name}")) for name in names.split()]


def one_of(probs, logits):
    """Raise an error unless exactly one of probs and logits is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
