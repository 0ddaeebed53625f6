"""The base of distributions, of those that declare their parameters, and of exponential families."""

import warnings
from collections.abc import Iterable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from .._array import Size
from .._tensor import Tensor
from ..base.arguments import constructor
from ..dispatch.backward import grad
from ..engine.mode import no_grad
from . import constraints
from .utils import broadcast_all, lazy_property, logits_to_probs, one_of, probs_to_logits, size, sum_rightmost


class Distribution:
    """A distribution, with a batch shape (independent ones side by side) and one of its events.

    Args:
        batch_shape: the shape of the parameters.
        event_shape: the shape of one draw.
        validate_args: whether parameters and values are checked; by default what
            `set_default_validate_args` was last told, at first True.
    Raises:
        ValueError: a parameter breaks its constraint in `arg_constraints`.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = True
    _batched: tuple[str, ...] | None = None  # attributes whose leading axes are the batch's: `expand` expands them

    def __init__(
        self,
        batch_shape: Iterable[int] = Size(),
        event_shape: Iterable[int] = Size(),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self):
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        for name, constraint in wanted.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property) and name not in self.__dict__
            if lazy or constraints.is_dependent(constraint):
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked by default."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}.")
        Distribution._validate_args = value

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> "Distribution":
        """The same distribution with its parameters expanded to another batch shape.

        Raises:
            NotImplementedError: a subclass has a constructor of its own and no `expand`.
        """
        owner = next((c for c in type(self).__mro__ if c.__dict__.get("_batched") is not None), None)
        if owner is None:
            raise NotImplementedError(f"{type(self).__name__} does not implement expand.")
        new = self._get_checked_instance(owner, _instance)
        old, batch_shape = len(self._batch_shape), Size(batch_shape)
        for name, value in self.__dict__.items():
            if name in owner.__dict__["_batched"]:
                lead = value.batch_shape if isinstance(value, Distribution) else value.shape
                value = value.expand(size(batch_shape, lead[old:]))
            new.__dict__.setdefault(name, value)
        new._batch_shape = batch_shape
        return new

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self) -> constraints.Constraint:
        """The constraint that draws satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self)} does not implement mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self)} does not implement variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        """Draws through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self)} does not implement rsample")

    def sample_n(self, n: int) -> Tensor:
        """n draws; deprecated, `sample((n,))` is the same."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or probability) at a value."""
        raise NotImplementedError(f"{type(self)} does not implement log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of being at most a value."""
        raise NotImplementedError(f"{type(self)} does not implement cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value below which the given probability lies."""
        raise NotImplementedError(f"{type(self)} does not implement icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first axis."""
        raise NotImplementedError(f"{type(self)} does not implement enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self)} does not implement entropy")

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return self.entropy().exp()

    @property
    def _like(self):
        """A parameter, which has the dtype and the device of draws."""
        return next(self.__dict__[name] for name in self._batched if name in self.__dict__)

    @property
    def _options(self):
        return {"dtype": self._like.dtype, "device": self._like.device}

    def _extended_shape(self, sample_shape=Size()):
        return size(sample_shape, self._batch_shape, self._event_shape)

    def _validate_sample(self, value):
        """Raise ValueError unless value is a tensor of a fitting shape within the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event = value.shape, self._event_shape
        wanted = self._extended_shape()
        if shape != wanted:
            if shape[len(shape) - len(event) :] != event:
                raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {event}.")
            for i, j in zip(reversed(shape), reversed(wanted), strict=False):
                if 1 not in (i, j) and i != j:
                    raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {wanted}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not bool(support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _check_sample(self, value):
        """As `_validate_sample`, if validation is on."""
        if self._validate_args:
            self._validate_sample(value)

    def __repr__(self):
        held = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        shown = (f"{k}: {_shown(v)}" for k, v in held.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(parameter):
    if parameter.ndim == 0:
        return parameter.item()
    return parameter if parameter.numel() == 1 else parameter.shape


def _constructor(cls):
    """Returns `__init__(self, loc, scale, validate_args=None)` for a family that declares loc and scale."""
    names, defaults = cls._parameters, cls._defaults
    types = {n: Any if constraint is None else Tensor | float for n, constraint in names.items()}
    types |= {n: types[n] | None for n, default in defaults.items() if default is None}
    parameters = [
        Parameter(n, Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(n, Parameter.empty), annotation=types[n])
        for n in names
    ]
    validate = Parameter("validate_args", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=bool | None)
    return constructor(
        cls, [*parameters, validate], lambda self, values: self._accept(values, values.pop("validate_args"))
    )


class Family(Distribution):
    """A distribution that declares its parameters; the constructor, `arg_constraints` and `expand` follow.

    A family states `_parameters` (each name with its constraint, in the constructor's order; None for an option, which
    is no parameter) and their `_defaults`. It defines `_log_prob(value)` and `_cdf(value)` of values that are checked
    already, `_draw(shape)`, and where need be its own `_accept(given, validate_args)`.
    """

    _parameters: dict[str, constraints.Constraint | None]
    _defaults: dict[str, Any] = {}

    if TYPE_CHECKING:  # constructors and parameters come from the declarations

        def __init__(self, *parameters: Tensor | float, validate_args: bool | None = None, **named: Any) -> None: ...
        def __getattr__(self, name: str) -> Tensor: ...
        def _draw(self, shape: Size) -> Tensor: ...
        def _log_prob(self, value: Tensor) -> Tensor: ...

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "_parameters" in cls.__dict__:
            bounded = {name: constraint for name, constraint in cls._parameters.items() if constraint is not None}
            derived = {"_batched": tuple(bounded), "arg_constraints": bounded, "__init__": _constructor(cls)}
            for name in derived.keys() - cls.__dict__.keys():
                setattr(cls, name, derived[name])

    def _accept(self, given, validate_args):
        """What a constructor does with its arguments."""
        self._keep(**given)
        super().__init__(self._like.shape, validate_args=validate_args)

    def _keep(self, **given):
        """Store parameters, broadcast with each other."""
        self.__dict__.update(zip(given, broadcast_all(*given.values()), strict=True))

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape) if self.has_rsample else self._draw(self._extended_shape(sample_shape))

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self._draw(self._extended_shape(sample_shape)) if self.has_rsample else super().rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self._log_prob(value)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self._cdf(value)

    def _cdf(self, value):
        return super().cdf(value)


class RealFamily(Family):
    """Families of single real numbers, whose draws have gradients."""

    has_rsample = True


class ProbsFamily(Family):
    """Families given probabilities or logits: the others are computed at first access.

    Either is of a success (sigmoid and logit), or of categories along the last axis (softmax and log) if not `_binary`.
    """

    _defaults = {"probs": None, "logits": None}
    _binary = True

    def _keep(self, **given):
        """Store those that are not None, in the dtype of the probability or logit."""
        one_of(given["probs"], given["logits"])
        given = {name: value for name, value in given.items() if value is not None}
        self._held = [*given][-1]
        super()._keep(**given)
        self.__dict__.update({name: self.__dict__[name].to(self._param.dtype) for name in given})

    @lazy_property
    def logits(self) -> Tensor:
        """log(p / (1 - p)) of a success, log p of categories."""
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=self._binary)

    _param = property(lambda self: self.__dict__[self._held])
    param_shape = property(lambda self: self._param.shape)


class ExponentialFamily(Distribution):
    """Densities exp(<natural parameters, t(x)> - F(natural parameters) + k(x)), known by F.

    Subclasses that define `_natural_params`, `_log_normalizer` (F) and `_mean_carrier_measure` (the
    mean of k) get their entropy, and their divergence from one of their kind, from F's gradient.
    Source: Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010.
    """

    @property
    def _natural_params(self):
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError

    def _bregman_parts(self):
        """The natural parameters as leaves, F of them, and its gradients."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*natural)
        return natural, normalizer, grad(normalizer.sum(), natural, create_graph=True)

    def entropy(self) -> Tensor:
        natural, normalizer, gradients = self._bregman_parts()
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(natural, gradients, strict=True):
            term = p * g
            result = result - sum_rightmost(term, term.ndim - len(self._batch_shape))
        return result
