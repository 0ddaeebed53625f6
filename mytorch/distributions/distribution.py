"""The base of distributions, and of those in the exponential family."""

import warnings

from .._array import Size
from ..graph.backward import grad
from ..graph.mode import no_grad
from ..tensor import Tensor
from . import constraints
from .utils import lazy_property, size, sum_rightmost


class Distribution:
    """A distribution, with a batch shape (independent ones side by side) and one of its events.

    Args:
        batch_shape, event_shape: the shapes.
        validate_args: whether parameters and values are checked; by default what
            `set_default_validate_args` was last told, at first True.
    Raises:
        ValueError: a parameter breaks its constraint in `arg_constraints`.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = True
    _batched = None  # attributes whose leading axes are the batch's: `expand` expands them

    def __init__(self, batch_shape=Size(), event_shape=Size(), validate_args=None):
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
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = "
                f"{{}}` or initialize "
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
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid "
                    f"values:\n{value}"
                )

    @staticmethod
    def set_default_validate_args(value):
        """Whether parameters and values are checked by default."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}.")
        Distribution._validate_args = value

    def expand(self, batch_shape, _instance=None):
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
            if name in self._batched:
                lead = value.batch_shape if isinstance(value, Distribution) else value.shape
                value = value.expand(size(batch_shape, lead[old:]))
            new.__dict__.setdefault(name, value)
        new._batch_shape = batch_shape
        return new

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method "
                "must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self):
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self):
        """The constraint of each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self):
        """The constraint that draws satisfy."""
        raise NotImplementedError

    @property
    def mean(self):
        """The mean."""
        raise NotImplementedError(f"{type(self)} does not implement mean")

    @property
    def mode(self):
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        """The variance."""
        raise NotImplementedError(f"{type(self)} does not implement variance")

    @property
    def stddev(self):
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape=Size()):
        """Draws of shape sample_shape + batch_shape + event_shape, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size()):
        """Draws through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self)} does not implement rsample")

    def sample_n(self, n):
        """n draws; deprecated, `sample((n,))` is the same."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density (or probability) at a value."""
        raise NotImplementedError(f"{type(self)} does not implement log_prob")

    def cdf(self, value):
        """The probability of being at most a value."""
        raise NotImplementedError(f"{type(self)} does not implement cdf")

    def icdf(self, value):
        """The value below which the given probability lies."""
        raise NotImplementedError(f"{type(self)} does not implement icdf")

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution, along a new first axis."""
        raise NotImplementedError(f"{type(self)} does not implement enumerate_support")

    def entropy(self):
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self)} does not implement entropy")

    def perplexity(self):
        """exp of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=Size()):
        return size(sample_shape, self._batch_shape, self._event_shape)

    def _validate_sample(self, value):
        """Raise ValueError unless value is a tensor of a fitting shape within the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        event = self._event_shape
        if value.shape[value.ndim - len(event) :] != event:
            raise ValueError(f"The right-most size of value must match event_shape: {value.shape} vs {event}.")
        wanted = size(self._batch_shape, event)
        for i, j in zip(reversed(value.shape), reversed(wanted), strict=False):
            if 1 not in (i, j) and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {wanted}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not bool(support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                "to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid "
                f"values:\n{value}"
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

    def entropy(self):
        natural, normalizer, gradients = self._bregman_parts()
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(natural, gradients, strict=True):
            term = p * g
            result = result - sum_rightmost(term, term.ndim - len(self._batch_shape))
        return result
