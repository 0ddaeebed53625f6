"""Base classes: distributions, families with declared parameters, and exponential families."""

import warnings
from collections.abc import Iterable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from ..arrays.arguments import constructor
from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..autograd.backward_call import grad
from ..autograd.mode import no_grad
from . import constraints
from .utils import broadcast_all, lazy_property, logits_to_probs, one_of, probs_to_logits, size, sum_rightmost


class Distribution:
    """Base class of all distributions. The batch shape contains independent distributions, and the event shape one draw.

    Args:
        batch_shape: shape of the parameters.
        event_shape: shape of one draw.
        validate_args: check parameters and values (default: True, or the value of `set_default_validate_args`).

    Raises:
        ValueError: if a parameter violates its constraint in `arg_constraints`.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = True
    _batched: tuple[str, ...] | None = None  # attributes with leading batch axes, which `expand` expands

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
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue
            if constraints.is_dependent(constraint):
                continue
            value = getattr(self, name)
            if not constraints.holds(constraint, value):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets the default of `validate_args`.

        Args:
            value: True or False.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}.")
        Distribution._validate_args = value

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> "Distribution":
        """Returns the distribution with parameters expanded to another batch shape.

        Args:
            batch_shape: the new batch shape.

        Raises:
            NotImplementedError: if a subclass overrides the constructor and not `expand`.
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
        """The constraint of each parameter by name."""
        raise NotImplementedError

    @property
    def support(self) -> constraints.Constraint:
        """The constraint of all draws."""
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
        """Draws samples of shape sample_shape + batch_shape + event_shape, without gradients.

        Args:
            sample_shape: leading shape of the samples.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        """Draws samples with gradients to the parameters (reparameterization).

        Args:
            sample_shape: leading shape of the samples.
        """
        raise NotImplementedError(f"{type(self)} does not implement rsample")

    def sample_n(self, n: int) -> Tensor:
        """Draws n samples. Deprecated; use `sample((n,))`.

        Args:
            n: number of samples.
        """
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the density (or probability) at a value.

        Args:
            value: a tensor.
        """
        raise NotImplementedError(f"{type(self)} does not implement log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Returns the cumulative distribution function: the probability of a draw up to a value.

        Args:
            value: a tensor.
        """
        raise NotImplementedError(f"{type(self)} does not implement cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Returns the quantile: the inverse of `cdf`.

        Args:
            value: probabilities.
        """
        raise NotImplementedError(f"{type(self)} does not implement icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all values of a discrete distribution, along a new first axis.

        Args:
            expand: expand the values to the batch shape.
        """
        raise NotImplementedError(f"{type(self)} does not implement enumerate_support")

    def entropy(self) -> Tensor:
        """Returns the entropy in nats."""
        raise NotImplementedError(f"{type(self)} does not implement entropy")

    def perplexity(self) -> Tensor:
        """Returns the exponential of the entropy."""
        return self.entropy().exp()

    @property
    def _like(self):
        """A parameter, which has the dtype and device of the draws."""
        for name in self._batched:
            if name in self.__dict__:
                return self.__dict__[name]
        return getattr(self, next(iter(self._batched)))  # a subclass may store them as buffers of an nn.Module

    @property
    def _options(self):
        return {"dtype": self._like.dtype, "device": self._like.device}

    def _extended_shape(self, sample_shape=Size()):
        return size(sample_shape, self._batch_shape, self._event_shape)

    def _validate_sample(self, value):
        """Raise ValueError if value is not a tensor of a matching shape in the support."""
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
        if not constraints.holds(support, value):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _check_sample(self, value):
        """Call `_validate_sample` if validation is enabled."""
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
    """A distribution with declared parameters. They determine the constructor, `arg_constraints` and `expand`.

    A family defines `_parameters`, the names and constraints in the order of the constructor. A constraint of None marks an
    option that is not a parameter. `_defaults` contains default values. A family also defines `_log_prob(value)` and
    `_cdf(value)` for valid values, `_draw(shape)`, and if necessary `_accept(given, validate_args)`.
    """

    _parameters: dict[str, constraints.Constraint | None]
    _defaults: dict[str, Any] = {}

    if TYPE_CHECKING:  # constructors and parameters are derived from the declarations

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
        """Handle the arguments of the constructor."""
        self._keep(**given)
        super().__init__(self._like.shape, validate_args=validate_args)

    def _keep(self, **given):
        """Store parameters after broadcasting."""
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
    """Base class of families of single real numbers with differentiable draws."""

    has_rsample = True


class ProbsFamily(Family):
    """Base class of families with either probabilities or logits; the other is computed on first access.

    They belong to a success (sigmoid and logit), or to categories along the last axis (softmax and log) without `_binary`.
    """

    _defaults = {"probs": None, "logits": None}
    _binary = True

    def _keep(self, **given):
        """Store the parameters that are not None, in the dtype of the probabilities or logits."""
        one_of(given["probs"], given["logits"])
        given = {name: value for name, value in given.items() if value is not None}
        self._held = [*given][-1]
        super()._keep(**given)
        self.__dict__.update({name: self.__dict__[name].to(self._param.dtype) for name in given})

    @lazy_property
    def logits(self) -> Tensor:
        """The logits: log(p / (1 - p)) of a success, or log p of categories."""
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=self._binary)

    _param = property(lambda self: self.__dict__[self._held])
    param_shape = property(lambda self: self._param.shape)


class ExponentialFamily(Distribution):
    """A family of densities exp(<natural parameters, t(x)> - F(natural parameters) + k(x)).

    A subclass defines `_natural_params`, `_log_normalizer` (F) and `_mean_carrier_measure` (the mean of k). Its entropy, and
    its divergence from the same family, are computed with the gradient of F.
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
        """Return the natural parameters as leaves, F of them, and its gradients."""
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
