"""Distributions of integers, categories and one-hot vectors."""

import math
from collections.abc import Iterable

from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..ops.activation import logsigmoid
from ..ops.creation import arange, eye, full, zeros_like
from ..ops.elementwise import where
from ..ops.loss import binary_cross_entropy_with_logits
from ..ops.random import bernoulli, binomial, multinomial, poisson, rand
from . import constraints
from .continuous import Gamma
from .distribution import Distribution, ExponentialFamily, Family, ProbsFamily
from .utils import broadcast_all, finfo, forwarded, joint_shape, one_of, size

__all__ = (
    "Bernoulli Binomial Categorical Geometric Multinomial NegativeBinomial OneHotCategorical "
    "OneHotCategoricalStraightThrough Poisson"
).split()


def _column(values, batch_shape, expand):
    """Return the values along a new first axis before a batch."""
    values = values.reshape(-1, *[1] * len(batch_shape))
    return values.expand(size((values.shape[0],), batch_shape)) if expand else values


class Bernoulli(ProbsFamily, ExponentialFamily):
    """The Bernoulli distribution of 0 and 1.

    Args:
        probs: probability of 1.
        logits: log-odds of 1, instead of probs.
    Example:
        >>> d = mytorch.distributions.Bernoulli(tensor([0.5, 0.25]))
        >>> d.mean.tolist(), d.log_prob(tensor([1.0, 1.0])).exp().tolist()
        ([0.5, 0.25], [0.5, 0.25])
    """

    _parameters = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        """The mode; NaN if 0 and 1 are equally probable."""
        p = self.probs
        return where(p == 0.5, math.nan, (p >= 0.5).to(p.dtype))

    def _draw(self, shape):
        return bernoulli(self.probs.expand(shape))

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        return _column(arange(2, **self._options), self._batch_shape, expand)

    _natural_params = property(lambda self: (self.probs.logit(),))

    def _log_normalizer(self, x):
        return x.exp().log1p()


class Geometric(ProbsFamily):
    """The geometric distribution: the number of failures before the first success.

    Args:
        probs: probability of success.
        logits: log-odds of success, instead of probs.
    """

    _parameters = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def _accept(self, given, validate_args):
        super()._accept(given, validate_args)
        if self._validate_args and self._held == "probs" and not bool((self.probs > 0).all()):
            p = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(p).__name__} of shape {tuple(p.shape)}) of distribution {self!r} "
                f"to be positive but found invalid values:\n{p[p <= 0]}"
            )

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def _draw(self, shape):
        u = rand(shape, **self._options).clamp(min=finfo(self.probs).tiny)
        return (u.log() / (-self.probs).log1p()).floor()

    def _log_prob(self, value):
        value, p = broadcast_all(value, self.probs)
        return value * (-where((p == 1) & (value == 0), 0.0, p)).log1p() + p.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Poisson(Family, ExponentialFamily):
    """The Poisson distribution of event counts.

    Args:
        rate: mean number of events.
    """

    _parameters = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def _draw(self, shape):
        return poisson(self.rate.expand(shape))

    def _log_prob(self, value):
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    _natural_params = property(lambda self: (self.rate.log(),))

    def _log_normalizer(self, x):
        return x.exp()


def _one_count(total_count, where_from):
    most = int(total_count.max())
    if int(total_count.min()) != most:
        raise NotImplementedError(f"Inhomogeneous total count not supported by `{where_from}`.")
    return most


class Binomial(ProbsFamily):
    """The binomial distribution: the number of successes in total_count trials.

    Args:
        total_count: number of trials.
        probs: probability of success.
        logits: log-odds of success, instead of probs.
    """

    _parameters = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    _defaults = {"total_count": 1, "probs": None, "logits": None}
    has_enumerate_support = True

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The integers from 0 to total_count."""
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        """The mode, floor((n + 1) p), at most n."""
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    def _draw(self, shape):
        return binomial(self.total_count.expand(shape).detach(), self.probs.expand(shape).detach())

    def _log_prob(self, value):
        n, logits = self.total_count, self.logits
        positive = (logits.clamp(min=0) + logits - logits.clamp(max=0)) / 2  # max(logits, 0) with gradient 1/2 at 0
        normalizer = n * positive + n * (-logits.abs()).exp().log1p() - (n + 1).lgamma()
        return value * logits - (value + 1).lgamma() - (n - value + 1).lgamma() - normalizer

    def entropy(self) -> Tensor:
        _one_count(self.total_count, "entropy")
        log_p = self.log_prob(self.enumerate_support(False))
        return -(log_p.exp() * log_p).sum(0)

    def enumerate_support(self, expand=True):
        n = _one_count(self.total_count, "enumerate_support")
        return _column(arange(1 + n, **self._options), self._batch_shape, expand)


class NegativeBinomial(ProbsFamily):
    """The negative binomial distribution: the number of successes before total_count failures.

    Args:
        total_count: number of failures.
        probs: probability of success.
        logits: log-odds of success, instead of probs.
    """

    _parameters = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def _draw(self, shape):
        return poisson(Gamma(self.total_count, (-self.logits).exp(), validate_args=False)._draw(shape))

    def _log_prob(self, value):
        n, logits = self.total_count, self.logits
        chosen = (1.0 + value).lgamma() + n.lgamma() - (n + value).lgamma()
        return n * logsigmoid(-logits) + value * logsigmoid(logits) - where(n + value == 0.0, 0.0, chosen)


class Categorical(ProbsFamily):
    """A distribution of K categories.

    Args:
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    Example:
        >>> d = mytorch.distributions.Categorical(tensor([1.0, 1.0, 2.0]))
        >>> d.probs.tolist(), d.mode.item()
        ([0.25, 0.25, 0.5], 2)
    """

    _parameters = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False

    def _accept(self, given, validate_args):
        one_of(**given)
        ((self._held, x),) = ((name, value) for name, value in given.items() if value is not None)
        if x.ndim < 1:
            raise ValueError(f"`{self._held}` parameter must be at least one-dimensional.")
        normalized = x / x.sum(-1, keepdim=True) if self._held == "probs" else x - x.logsumexp(-1, keepdim=True)
        setattr(self, self._held, normalized)
        self._num_events = x.shape[-1]
        Distribution.__init__(self, x.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The integers from 0 to K - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    mode = property(lambda self: self.probs.argmax(-1))

    @property
    def mean(self) -> Tensor:
        """NaN, because categories have no mean."""
        return full(self._batch_shape, math.nan, **self._options)

    variance = mean

    def _draw(self, shape):
        batch, probs = len(self._batch_shape), self.probs
        n = math.prod(shape[: len(shape) - batch])
        drawn = multinomial(probs if batch < 2 else probs.reshape(-1, self._num_events), n, True)
        return (drawn if n == 1 or batch == 0 else drawn.T).reshape(shape)

    def _log_prob(self, value):
        value, logits = value.long().unsqueeze(-1), self.logits
        if value.shape[:-1] != logits.shape[:-1]:
            shape = size(joint_shape(value.shape[:-1], logits.shape[:-1]), logits.shape[-1:])
            value, logits = value.expand((*shape[:-1], 1)), logits.expand(shape)
        return logits.gather(-1, value).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.logits.clamp(min=finfo(self.logits).min) * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        return _column(arange(self._num_events, device=self._param.device), self._batch_shape, expand)


class OfCategories(Family):
    """Base class of distributions of vectors with one entry per category of a Categorical."""

    _parameters = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _defaults = {"probs": None, "logits": None}
    _batched = ("_categorical",)

    def _accept(self, given, validate_args):
        self._categorical = Categorical(**given)
        shape = self.param_shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)

    probs, logits, param_shape, _param = forwarded("_categorical", "probs logits param_shape _param")
    _like = _param


class OneHotCategorical(OfCategories):
    """The distribution of one-hot vectors of K categories.

    Args:
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    """

    support = constraints.one_hot
    has_enumerate_support = True

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, index):
        n = self._event_shape[0]
        return (index.unsqueeze(-1) == arange(n, device=index.device)).to(self._param.dtype).contiguous()

    @property
    def mode(self) -> Tensor:
        """The one-hot vector of the most probable category."""
        return self._one_hot(self.probs.argmax(-1))

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def _log_prob(self, value):
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        rows = eye(n, **self._options).reshape(n, *[1] * len(self._batch_shape), n)
        return rows.expand((n, *self._batch_shape, n)) if expand else rows


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors with the gradient of the probabilities. Source: Bengio et al., 2013.

    Args:
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    """

    has_rsample = True

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategories):
    """The multinomial distribution: the counts of K categories in total_count draws.

    Args:
        total_count: number of draws, an int.
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    """

    _parameters = {"total_count": None, **OfCategories._parameters}
    _defaults = {"total_count": 1, "probs": None, "logits": None}
    _batched = ("_categorical",)

    def _accept(self, given, validate_args):
        self.total_count = given.pop("total_count")
        if not isinstance(self.total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        super()._accept(given, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Nonnegative integers whose sum is at most total_count."""
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        drawn = self._categorical.sample(size((self.total_count,), sample_shape)).movedim(0, -1)
        counts = self.probs.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add(-1, drawn, counts.new_ones(drawn.shape))

    def entropy(self) -> Tensor:
        n = self.total_count
        single = Binomial(n, probs=self.probs)
        counts = single.enumerate_support(False)[1:]
        together = (single.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + together

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        powers = where((value == 0) & (logits == -math.inf), 0.0, logits) * value
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + powers.sum(-1)
