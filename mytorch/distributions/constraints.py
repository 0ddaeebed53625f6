"""Constraints: the sets of valid parameters and values of distributions.

`constraint.check(value)` returns which events of a value are valid. `event_dim` is the number of last axes of one event, and
`is_discrete` is True for a discrete set.
"""

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import linalg
from ..arrays.overriding import PLAIN
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..kernels.registry import SMALL
from ..ops.creation import full
from ..ops.movement import cat as _cat
from ..ops.movement import stack as _stack
from .utils import finfo

__all__ = (
    "Constraint MixtureSameFamilyConstraint boolean cat corr_cholesky dependent dependent_property greater_than "
    "greater_than_eq half_open_interval independent integer_interval interval is_dependent less_than lower_cholesky "
    "lower_triangular multinomial nonnegative nonnegative_integer one_hot positive positive_definite positive_integer "
    "positive_semidefinite real real_vector simplex square stack symmetric unit_interval"
).split()


class Constraint:
    """A set of values. A subclass defines `check`."""

    is_discrete = False
    event_dim = 0
    _shown: tuple[str, ...] = ()  # attributes in the repr

    def check(self, value: Tensor) -> Tensor:
        """Returns a bool for each event of value, True if the event is in the set.

        Args:
            value: a tensor; the result has its shape without the last `event_dim` axes.
        """
        raise NotImplementedError

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


class _Dependent(Constraint):
    """A set that depends on other values, so it cannot be checked independently."""

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
        """Returns a copy with other static attributes: `dependent(is_discrete=True, event_dim=1)`."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    """Returns True if a constraint depends on other values."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of instances that is a dependent constraint when accessed through the class."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        """Decorate a function: `@dependent_property(is_discrete=False, event_dim=0)`."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def require(condition, message):
    """Raise AssertionError with a message if a condition is False."""
    if not condition:
        raise AssertionError(message)


def _require_constraint(value):
    require(isinstance(value, Constraint), f"base_constraint must be a Constraint, got {type(value).__name__}")


def _all_of(result, dims):
    """Return the logical AND over the last axes."""
    if dims > 1:
        result = result.reshape(*result.shape[: result.ndim - dims], -1)
    return result.all(-1) if dims else result


class _IndependentConstraint(Constraint):
    """A constraint that all entries of the last axes satisfy."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        _require_constraint(base_constraint)
        n = reinterpreted_batch_ndims
        require(isinstance(n, int) and n >= 0, f"reinterpreted_batch_ndims must be >= 0, got {n}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, n

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return _all_of(result, self.reinterpreted_batch_ndims)

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The values that all components of a mixture allow."""

    def __init__(self, base_constraint):
        _require_constraint(base_constraint)
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of(result, result.ndim - (value.ndim - self.event_dim))

    def __repr__(self):
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """Numbers within bounds. `_shown` contains the names of the bounds, `_compare` the comparison with each."""

    _shown: tuple[str, ...]
    _compare: tuple[Callable, ...]

    def check(self, value: Tensor) -> Tensor:
        within = [compare(value, getattr(self, name)) for name, compare in zip(self._shown, self._compare, strict=True)]
        dtype: Any = value.dtype
        if self.is_discrete and getattr(dtype, "numpy", dtype).kind not in "biu":
            within.append(value % 1 == 0)
        return functools.reduce(operator.and_, within)


class _Lower(_Bounded):
    _shown, _compare = ("lower_bound",), (operator.ge,)

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound


class _Upper(_Bounded):
    _shown, _compare = ("upper_bound",), (operator.le,)

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound


class _Between(_Bounded):
    _shown, _compare = ("lower_bound", "upper_bound"), (operator.ge, operator.le)

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _Interval(_Between):
    pass


class _GreaterThan(_Lower):
    _compare = (operator.gt,)


class _GreaterThanEq(_Lower):
    pass


class _LessThan(_Upper):
    _compare = (operator.lt,)


class _HalfOpenInterval(_Between):
    _compare = (operator.ge, operator.lt)


class _IntegerInterval(_Between):
    is_discrete = True


class _IntegerLessThan(_Upper):
    is_discrete = True


class _IntegerGreaterThan(_Lower):
    is_discrete = True


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # not NaN


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (abs(value.sum(-1) - 1) < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _all_of(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        close = finfo(value).eps * value.shape[-1] * 10
        norms = (value.detach() ** 2).sum(-1).sqrt()
        return super().check(value) & ((norms - 1.0).abs() <= close).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return full(value.shape[:-2], is_square, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        squares = super().check(value)
        if not bool(squares.all()):
            return squares
        return _all_of((value - value.mT).abs() <= 1e-6 + 1e-5 * value.mT.abs(), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return self._check_definite(value) if bool(symmetric.all()) else symmetric

    def _check_definite(self, value):
        return (linalg.eigvalsh(value.detach()) >= 0).all(-1)


class _PositiveDefinite(_PositiveSemidefinite):
    def _check_definite(self, value):
        matrices = value.detach().cpu().numpy()
        if _factors(matrices):
            return full(value.shape[:-2], True, device=value.device)
        each = [_factors(m) for m in matrices.reshape(-1, *matrices.shape[-2:])]
        return Tensor._wrap(np.array(each, bool).reshape(matrices.shape[:-2])).to(value.device)


def _factors(matrices):
    """Return True if all matrices have Cholesky factors."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrices)).all())
    except np.linalg.LinAlgError:
        return False


def _check_sequence(cseq):
    require(all(isinstance(c, Constraint) for c in cseq), "All elements of cseq must be Constraint instances")
    return list(cseq)


def check_dim(dim, value):
    """Raise an error if an axis is out of range for a value."""
    require(-value.ndim <= dim < value.ndim, f"dim {dim} out of range for value with {value.ndim} dimensions")


def consecutive(value, dim, lengths):
    """Return consecutive slices of the given lengths along an axis."""
    return [value.narrow(dim, end - n, n) for end, n in zip(itertools.accumulate(lengths), lengths, strict=True)]


class _Cat(Constraint):
    """Constraints of consecutive slices along an axis, with the given lengths."""

    def __init__(self, cseq, dim=0, lengths=None):
        self.cseq, self.dim = _check_sequence(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        counts = f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})"
        require(len(self.lengths) == len(self.cseq), counts)

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value: Tensor) -> Tensor:
        check_dim(self.dim, value)
        parts = zip(self.cseq, consecutive(value, self.dim, self.lengths), strict=True)
        return _cat([c.check(v) for c, v in parts], self.dim)


class _Stack(Constraint):
    """Constraints of the single indices of an axis."""

    def __init__(self, cseq, dim=0):
        self.cseq, self.dim = _check_sequence(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))

    @property
    def event_dim(self):
        """The maximum event_dim of the parts, plus one if the axis is within an event."""
        most = max(c.event_dim for c in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Tensor) -> Tensor:
        check_dim(self.dim, value)
        return _stack([c.check(v) for c, v in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)


# `check` of these classes also accepts a NumPy array, if the attributes of the constraint are numbers or such constraints.
_ON_NUMPY = {c.check for c in (_IndependentConstraint, _Boolean, _OneHot, _Bounded, _Real, _Simplex, _Multinomial)}
# Numbers with which NumPy compares arrays of a dtype as PyTorch does.
_NUMBERS = {"f": (float, int), "d": (float, int), "l": (int,), "q": (int,)}


def _accepts_numpy(constraint, numbers):
    if type(constraint).check not in _ON_NUMPY:
        return False
    for value in vars(constraint).values():
        if type(value) not in numbers and not (isinstance(value, Constraint) and _accepts_numpy(value, numbers)):
            return False
    return True


def holds(constraint, value):
    """Returns True if all events of a tensor satisfy a constraint."""
    if type(value) in PLAIN and get_mode().plain:
        raw = value._mt_data._array
        # Small arrays are checked without tensors, because validation would take a third of the time of a distribution.
        if type(raw) is np.ndarray and raw.size < SMALL and (numbers := _NUMBERS.get(raw.dtype.char)):
            value = raw if _accepts_numpy(constraint, numbers) else value
    valid = constraint.check(value)
    return bool(valid.all() if valid.ndim else valid)


dependent, dependent_property = _Dependent(), _DependentProperty
real, boolean, one_hot, simplex = _Real(), _Boolean(), _OneHot(), _Simplex()
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
multinomial, cat, stack, independent = _Multinomial, _Cat, _Stack, _IndependentConstraint
real_vector = independent(real, 1)
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
