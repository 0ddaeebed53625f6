"""Constraints: the sets that parameters and draws of distributions lie in.

`constraint.check(value)` tells which events of a value satisfy it; `event_dim` is the number of
last axes that make one event, `is_discrete` whether the set is.
"""

import numpy as np

from .. import linalg
from ..ops.creation import full
from ..ops.movement import cat as _join
from ..ops.movement import stack as _pile
from ..tensor import Tensor
from .utils import finfo

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """A set of values. Subclasses define `check`."""

    is_discrete = False
    event_dim = 0
    _shown = ()  # the attributes that repr tells

    def check(self, value):
        """Which events of value (its shape less `event_dim` axes) are in the set, as booleans."""
        raise NotImplementedError

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


class _Dependent(Constraint):
    """A set that depends on other values, so that it can't be checked by itself."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _static(self, name):
        value = getattr(self, "_" + name)
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._static("is_discrete"))
    event_dim = property(lambda self: self._static("event_dim"))

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        """The same with other static attributes: `dependent(is_discrete=True, event_dim=1)`."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    """Whether a constraint depends on other values."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of instances that is a dependent constraint when read from the class."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        """So that it decorates: `@dependent_property(is_discrete=False, event_dim=0)`."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def require(condition, message):
    """Raise AssertionError with a message unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def _all_of(result, dims):
    """AND over the last axes."""
    return result.reshape(*result.shape[: result.ndim - dims], -1).all(-1) if dims else result


class _IndependentConstraint(Constraint):
    """All of the last axes' entries satisfy a constraint."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        kind = type(base_constraint).__name__
        require(isinstance(base_constraint, Constraint), f"base_constraint must be a Constraint, got {kind}")
        n = reinterpreted_batch_ndims
        require(isinstance(n, int) and n >= 0, f"reinterpreted_batch_ndims must be >= 0, got {n}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, n

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value):
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return _all_of(result, self.reinterpreted_batch_ndims)

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The values that every component of a mixture allows."""

    def __init__(self, base_constraint):
        kind = type(base_constraint).__name__
        require(isinstance(base_constraint, Constraint), f"base_constraint must be a Constraint, got {kind}")
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value):
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of(result, result.ndim - (value.ndim - self.event_dim))

    def __repr__(self):
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Lower(Constraint):
    """Kept: a lower bound."""

    _shown = ("lower_bound",)

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound


class _Upper(Constraint):
    """Kept: an upper bound."""

    _shown = ("upper_bound",)

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound


class _Between(Constraint):
    """Kept: both bounds."""

    _shown = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _IntegerInterval(_Between):
    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerLessThan(_Upper):
    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Lower):
    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value >= self.lower_bound)


class _Real(Constraint):
    def check(self, value):
        return value == value  # not NaN


class _GreaterThan(_Lower):
    def check(self, value):
        return value > self.lower_bound


class _GreaterThanEq(_Lower):
    def check(self, value):
        return value >= self.lower_bound


class _LessThan(_Upper):
    def check(self, value):
        return value < self.upper_bound


class _Interval(_Between):
    def check(self, value):
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    def check(self, value):
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, x):
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value):
        return _all_of(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    def check(self, value):
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value):
        close = finfo(value).eps * value.shape[-1] * 10
        norms = (value.detach() ** 2).sum(-1).sqrt()
        return super().check(value) & ((norms - 1.0).abs() <= close).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        is_square = value.shape[-2] == value.shape[-1]
        return full(value.shape[:-2], is_square, device=value.device)


class _Symmetric(_Square):
    def check(self, value):
        squares = super().check(value)
        if not bool(squares.all()):
            return squares
        return _all_of((value - value.mT).abs() <= 1e-6 + 1e-5 * value.mT.abs(), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        if not bool(symmetric.all()):
            return symmetric
        return (linalg.eigvalsh(value.detach()) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        if not bool(symmetric.all()):
            return symmetric
        matrices = value.detach().cpu().numpy()
        if _factors(matrices):
            return symmetric
        each = [_factors(m) for m in matrices.reshape(-1, *matrices.shape[-2:])]
        return Tensor._wrap(np.array(each, bool).reshape(matrices.shape[:-2])).to(value.device)


def _factors(matrices):
    """Whether all have Cholesky factors."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrices)).all())
    except np.linalg.LinAlgError:
        return False


def _check_sequence(cseq):
    require(all(isinstance(c, Constraint) for c in cseq), "All elements of cseq must be Constraint instances")
    return list(cseq)


def check_dim(dim, value):
    """Raise where an axis is out of a value's range."""
    require(-value.ndim <= dim < value.ndim, f"dim {dim} out of range for value with {value.ndim} dimensions")


class _Cat(Constraint):
    """Constraints side by side along an axis, of the given lengths."""

    def __init__(self, cseq, dim=0, lengths=None):
        self.cseq, self.dim = _check_sequence(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        counts = f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})"
        require(len(self.lengths) == len(self.cseq), counts)

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value):
        check_dim(self.dim, value)
        starts = np.cumsum([0, *self.lengths[:-1]]).tolist()
        pieces = [value.narrow(self.dim, i, n) for i, n in zip(starts, self.lengths, strict=True)]
        return _join([c.check(v) for c, v in zip(self.cseq, pieces, strict=True)], self.dim)


class _Stack(Constraint):
    """One constraint for each index of an axis."""

    def __init__(self, cseq, dim=0):
        self.cseq, self.dim = _check_sequence(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))

    @property
    def event_dim(self):
        """The largest of the parts', and one more where the axis lies inside."""
        most = max(c.event_dim for c in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value):
        check_dim(self.dim, value)
        pieces = value.unbind(self.dim)
        return _pile([c.check(v) for c, v in zip(self.cseq, pieces, strict=True)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
