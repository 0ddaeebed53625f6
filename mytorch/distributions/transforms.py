"""Transforms between constrained and unconstrained values, with their Jacobians."""

import functools
import math
import operator
from operator import methodcaller
from typing import Any

from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..ops.activation import logsigmoid, sigmoid, softplus
from ..ops.creation import arange, eye, full_like
from ..ops.decompositions import cholesky
from ..ops.linalg import matmul
from ..ops.movement import cat, stack
from . import constraints
from .utils import (
    broadcast_all,
    finfo,
    forwarded,
    joint_shape,
    size,
    sum_rightmost,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

__all__ = (
    "AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform CumulativeDistributionTransform "
    "ExpTransform IndependentTransform LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform "
    "SigmoidTransform SoftmaxTransform SoftplusTransform StackTransform StickBreakingTransform TanhTransform Transform "
    "identity_transform"
).split()


class Transform:
    """An invertible map y = t(x), with its inverse `t.inv` and the log determinant of its Jacobian.

    A subclass defines `domain`, `codomain`, `bijective`, `_call`, `_inverse` and `log_abs_det_jacobian`. `sign` is 1 or -1
    for a monotone map.

    Args:
        cache_size: 1 to store the last (x, y), so that the inverse of y is exactly x; 0 for no cache (default).
    """

    domain: Any
    codomain: Any
    bijective = False
    _own: tuple[str, ...] = ()  # constructor arguments, stored as attributes
    _compared: tuple[str, ...] | None = None  # attributes for __eq__; by default all

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        super().__init__()  # a subclass may also be an nn.Module
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y = None, None

    def __getstate__(self):
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of axes of one event, if it is the same for domain and codomain."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> "Transform":
        """The inverse transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """1 if increasing, -1 if decreasing."""
        raise NotImplementedError(f"{type(self).__name__} is not monotone in one number")

    def with_cache(self, cache_size: int = 1) -> "Transform":
        """Returns a copy with another cache size.

        Args:
            cache_size: 0 or 1.
        """
        if self._cache_size == cache_size:
            return self
        if not self._own and type(self).__init__ is not Transform.__init__:
            raise NotImplementedError(f"{type(self)}.with_cache is not implemented")
        kind: Any = type(self)
        return kind(*(getattr(self, name) for name in self._own), cache_size=cache_size)

    def __eq__(self, other):
        if self is other:
            return True
        known = type(self) is not Transform and (self._own or type(self).__init__ is Transform.__init__)
        same = known and type(self) is type(other)
        return same and all(_equal(getattr(self, name), getattr(other, name)) for name in self._compared or self._own)

    def __call__(self, x):
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x):
        raise NotImplementedError(f"{type(self).__name__} has no forward map")

    def _inverse(self, y):
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy/dx| for each event, with y = t(x).

        Args:
            y: output.
        """
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __repr__(self):
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Size) -> Size:
        """Returns the shape of t(x) for a shape of x.

        Args:
            shape: shape of x.
        """
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """Returns the shape of x for a shape of t(x).

        Args:
            shape: shape of t(x).
        """
        return shape


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    domain = constraints.dependent_property(lambda self: self._inv.codomain, is_discrete=False)
    codomain = constraints.dependent_property(lambda self: self._inv.domain, is_discrete=False)
    bijective, sign = forwarded("_inv", "bijective sign")
    inv = property(lambda self: self._inv)

    def __getstate__(self):
        return self.__dict__

    def with_cache(self, cache_size: int = 1) -> "Transform":
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self):
        return f"_InverseTransform({self._inv!r})"

    def __call__(self, x):
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Size) -> Size:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self._inv.forward_shape(shape)


def _widened(constraint, event_dim):
    extra = event_dim - constraint.event_dim
    return constraints.independent(constraint, extra) if extra > 0 else constraint


class ComposeTransform(Transform):
    """Applies several transforms in sequence.

    Args:
        parts: list of transforms; empty for the identity.
        cache_size: cache size of every part; see `Transform`.
    """

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        """The domain of the first part, with the maximum number of event axes."""
        if not self.parts:
            return constraints.real
        n = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            n = max(n + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _widened(self.parts[0].domain, n)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        """The codomain of the last part, with the maximum number of event axes."""
        if not self.parts:
            return constraints.real
        n = self.parts[0].domain.event_dim
        for part in self.parts:
            n = max(n + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, n)

    bijective = property(lambda self: all(p.bijective for p in self.parts))
    sign = property(lambda self: functools.reduce(operator.mul, (p.sign for p in self.parts), 1))

    @property
    def inv(self) -> "Transform":
        """The inverses of the parts in reverse order."""
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> "Transform":
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x * 0
        total: Any = 0.0
        event_dim = self.domain.event_dim
        for i, part in enumerate(self.parts, 1):
            after = y if i == len(self.parts) else part(x)
            term = part.log_abs_det_jacobian(x, after)
            total = total + sum_rightmost(term, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Size) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Treats the last batch axes of a transform as one event, and sums the log determinants over them.

    Args:
        reinterpreted_batch_ndims: number of additional event axes.
        cache_size: see `Transform`.
    """

    _own = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _more(self, constraint):
        return constraints.independent(constraint, self.reinterpreted_batch_ndims)

    domain = constraints.dependent_property(lambda self: self._more(self.base_transform.domain), is_discrete=False)
    codomain = constraints.dependent_property(lambda self: self._more(self.base_transform.codomain), is_discrete=False)
    bijective, sign = forwarded("base_transform", "bijective sign")

    def _call(self, x):
        _need_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y):
        _need_dims(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        result = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(result, self.reinterpreted_batch_ndims)

    def __repr__(self):
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Size) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self.base_transform.inverse_shape(shape)


def _need_dims(shape, n):
    if len(shape) < n:
        raise ValueError("Too few dimensions on input")


class ReshapeTransform(Transform):
    """Reshapes the last axes from in_shape to out_shape.

    Args:
        in_shape: shape of the last axes.
        out_shape: new shape of the last axes.
        cache_size: see `Transform`.

    Raises:
        ValueError: if the shapes have different numbers of elements.
    """

    bijective = True
    _own = ("in_shape", "out_shape")

    def __init__(self, in_shape, out_shape, cache_size=0):
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    domain = constraints.dependent_property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = constraints.dependent_property(
        lambda self: constraints.independent(constraints.real, len(self.out_shape))
    )

    def _call(self, x):
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Size) -> Size:
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self._exchanged(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _exchanged(shape, old, new):
        _need_dims(shape, len(old))
        cut = len(shape) - len(old)
        if Size(shape[cut:]) != old:
            raise ValueError(f"Shape mismatch: expected {Size(shape[cut:])} but got {old}")
        return size(shape[:cut], new)


class _Increasing(Transform):
    """Base class of increasing functions of one real number."""

    domain = constraints.real
    codomain: constraints.Constraint = constraints.positive
    bijective, sign = True, 1


class ExpTransform(_Increasing):
    """Computes y = exp(x)."""

    _call, _inverse = methodcaller("exp"), methodcaller("log")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def _broadcast(shape, *others):
    return joint_shape(shape, *(getattr(o, "shape", ()) for o in others))


class PowerTransform(Transform):
    """Computes y = x ** exponent.

    Args:
        exponent: number or tensor.
        cache_size: see `Transform`.
    """

    domain = codomain = constraints.positive
    bijective = True
    _own = ("exponent",)

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    sign = property(lambda self: self.exponent.sign())

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape


def _equal(a, b):
    same = a == b
    return bool(same.all()) if isinstance(same, Tensor) else same


def _clipped_sigmoid(x):
    limits = finfo(x)
    return sigmoid(x).clamp(limits.tiny, 1.0 - limits.eps)


class SigmoidTransform(_Increasing):
    """Computes y = 1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval
    _call = staticmethod(_clipped_sigmoid)

    def _inverse(self, y):
        limits = finfo(y)
        y = y.clamp(limits.tiny, 1.0 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Increasing):
    """Computes y = log(1 + exp(x))."""

    _call = staticmethod(softplus)

    def _inverse(self, y):
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Increasing):
    """Computes y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)
    _call, _inverse = methodcaller("tanh"), methodcaller("atanh")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))  # log(1 - tanh^2), accurate near 0


class AbsTransform(Transform):
    """Computes y = |x|. The inverse returns the positive x."""

    domain, codomain = constraints.real, constraints.positive
    _call, _inverse = methodcaller("abs"), staticmethod(lambda y: y)


class AffineTransform(Transform):
    """Computes y = loc + scale * x.

    Args:
        loc: number or tensor.
        scale: number or tensor.
        event_dim: number of last axes of one event.
        cache_size: see `Transform`.
    """

    bijective = True
    event_dim = 0
    _own, _compared = ("loc", "scale", "event_dim"), ("loc", "scale")

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    domain = codomain = constraints.dependent_property(
        lambda self: _widened(constraints.real, self.event_dim), is_discrete=False
    )

    @property
    def sign(self) -> Any:
        """The sign of the scale."""
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, (int, float)):
            result = full_like(x, math.log(abs(self.scale)))
        else:
            result = self.scale.abs().log().expand(_broadcast(x.shape, self.scale))
        return sum_rightmost(result, self.event_dim)

    def forward_shape(self, shape: Size) -> Size:
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape


def _pad_left(x):
    """Add ones before the first entry of the last axis."""
    return cat([x.new_ones((*x.shape[:-1], 1)), x], -1)


class CorrCholeskyTransform(Transform):
    """Converts vectors of D (D - 1) / 2 numbers to Cholesky factors of D by D correlation matrices.

    tanh converts the numbers to partial correlations. In each row, an entry is the partial correlation times the remaining
    length, so that the row has length 1.
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x):
        eps = finfo(x).eps
        r = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), diag=-1)
        left = (1 - r**2).sqrt().cumprod(-1)
        r = r + eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * _pad_left(left[..., :-1])

    def _inverse(self, y):
        left = _pad_left((1 - (y * y).cumsum(-1))[..., :-1])
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        sticks = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        return sticks - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        _need_dims(shape, 1)
        n = shape[-1]
        d = round((0.25 + 2 * n) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != n:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return size(shape[:-1], (d, d))

    def inverse_shape(self, shape: Size) -> Size:
        _need_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return size(shape[:-2], (shape[-1] * (shape[-1] - 1) // 2,))


class SoftmaxTransform(Transform):
    """Computes y = softmax(x) over the last axis. It is not injective; the inverse is log."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        p = (x - x.amax(-1, keepdim=True)).exp()
        return p / p.sum(-1, keepdim=True)

    _inverse = methodcaller("log")

    def forward_shape(self, shape: Size) -> Size:
        _need_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """Converts n - 1 numbers to a point of the n-simplex. Each number determines a fraction of the remaining length.

    The fractions are centered, so that zeros give equal parts.
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    @staticmethod
    def _centre(x, n):
        return arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x):
        z = _clipped_sigmoid(x - self._centre(x, x.shape[-1]))
        z_then_one = cat([z, z.new_ones((*z.shape[:-1], 1))], -1)
        return z_then_one * _pad_left((1 - z).cumprod(-1))

    def _inverse(self, y):
        cut = y[..., :-1]
        left = (1 - cut.cumsum(-1)).clamp(min=finfo(y).tiny)
        return cut.log() - left.log() + self._centre(y, cut.shape[-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._centre(x, x.shape[-1])
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        _need_dims(shape, 1)
        return size(shape[:-1], (shape[-1] + 1,))

    def inverse_shape(self, shape: Size) -> Size:
        _need_dims(shape, 1)
        return size(shape[:-1], (shape[-1] - 1,))


class LowerCholeskyTransform(Transform):
    """Converts square matrices to lower triangular matrices with a positive diagonal, by exp on the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Converts square matrices to positive definite matrices L L^T, with L from `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return matmul(factor, factor.mT)

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(cholesky(y))


class _Sequence(Transform):
    """Base class of transforms of slices along an axis."""

    def __init__(self, tseq, dim=0, cache_size=0):
        constraints.require(
            all(isinstance(t, Transform) for t in tseq), "All elements of tseq must be Transform instances"
        )
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))
    domain = constraints.dependent_property(lambda self: self._side_by_side([t.domain for t in self.transforms]))
    codomain = constraints.dependent_property(lambda self: self._side_by_side([t.codomain for t in self.transforms]))

    def _call(self, x):
        return self._joined([t(v) for t, v in zip(self.transforms, self._slices(x), strict=True)])

    def _inverse(self, y):
        return self._joined([t.inv(v) for t, v in zip(self.transforms, self._slices(y), strict=True)])

    def _jacobians(self, x, y):
        parts = zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        return [t.log_abs_det_jacobian(a, b) for t, a, b in parts]


class CatTransform(_Sequence):
    """Applies transforms to consecutive slices of an axis, like `cat`.

    Args:
        tseq: list of transforms.
        dim: the axis.
        lengths: length of each slice (default: 1).
        cache_size: see `Transform`.
    """

    _own = ("transforms", "dim", "lengths")

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        constraints.require(
            len(self.lengths) == len(self.transforms),
            f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})",
        )

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))

    def _slices(self, x):
        constraints.check_dim(self.dim, x)
        found = x.shape[self.dim]
        constraints.require(found == self.length, f"x.size({self.dim}) = {found} must equal length {self.length}")
        return constraints.consecutive(x, self.dim, self.lengths)

    def _joined(self, values):
        return cat(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._jacobians(x, y), strict=True)
        terms = [sum_rightmost(v, self.event_dim - t.event_dim) for t, v in parts]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return cat(terms, dim) if dim < 0 else functools.reduce(operator.add, terms)

    def _side_by_side(self, each):
        return constraints.cat(each, self.dim, self.lengths)


class StackTransform(_Sequence):
    """Applies one transform to each index of an axis, like `stack`.

    Args:
        tseq: list of transforms.
        dim: the axis.
        cache_size: see `Transform`.
    """

    _own = ("transforms", "dim")

    def _slices(self, x):
        constraints.check_dim(self.dim, x)
        found, wanted = x.shape[self.dim], len(self.transforms)
        constraints.require(found == wanted, f"x.size({self.dim}) = {found} must equal len(transforms) {wanted}")
        return list(x.unbind(self.dim))

    def _joined(self, values):
        return stack(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._joined(self._jacobians(x, y))

    def _side_by_side(self, each):
        return constraints.stack(each, self.dim)


class CumulativeDistributionTransform(Transform):
    """Computes y = F(x), with the cumulative distribution function F of a distribution.

    Args:
        cache_size: see `Transform`.
    """

    bijective, sign = True, 1
    codomain = constraints.unit_interval
    _own = ("distribution",)

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
