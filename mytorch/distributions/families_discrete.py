"""Distributions over whole numbers, categories and one-hot vectors."""

import math

from .._array import Size
from ..graph.mode import no_grad
from ..ops.activation import logsigmoid
from ..ops.creation import arange, empty_like, eye, full, zeros_like
from ..ops.elementwise import where
from ..ops.loss import binary_cross_entropy_with_logits
from ..ops.random import _drawn, bernoulli, multinomial, poisson, rand
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .families_continuous import Gamma
from .utils import (
    Success,
    broadcast_all,
    finfo,
    joint_shape,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
    size,
)


def _column(values, batch_shape, expand):
    """Values along a new first axis before a batch."""
    values = values.reshape(-1, *[1] * len(batch_shape))
    return values.expand(size((values.shape[0],), batch_shape)) if expand else values


class Bernoulli(Success, ExponentialFamily):
    """0 or 1, given the probability of 1 or its logit."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _batched = ("probs", "logits")

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self):
        """1 or 0, NaN where both are as probable."""
        p = self.probs
        return where(p == 0.5, math.nan, (p >= 0.5).to(p.dtype))

    def sample(self, sample_shape=Size()):
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        values = arange(2, dtype=self._param.dtype, device=self._param.device)
        return _column(values, self._batch_shape, expand)

    _natural_params = property(lambda self: (self.probs.logit(),))

    def _log_normalizer(self, x):
        return x.exp().log1p()


class Geometric(Success, Distribution):
    """How many failures come before the first success."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _batched = ("probs", "logits")

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            p = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(p).__name__} of shape {tuple(p.shape)}) of "
                f"distribution {self!r} "
                f"to be positive but found invalid values:\n{p[p <= 0]}"
            )

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape=Size()):
        with no_grad():
            p = self.probs
            u = rand(self._extended_shape(sample_shape), dtype=p.dtype, device=p.device)
            return (u.clamp(min=finfo(p).tiny).log() / (-p).log1p()).floor()

    def log_prob(self, value):
        self._check_sample(value)
        value, p = broadcast_all(value, self.probs)
        return value * (-where((p == 1) & (value == 0), 0.0, p)).log1p() + p.log()

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Poisson(ExponentialFamily):
    """Counts of events of the given rate."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _batched = ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape=Size()):
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._check_sample(value)
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


class Binomial(Success, Distribution):
    """How many of total_count trials succeed."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _batched = ("total_count", "probs", "logits")

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        """0 … total_count."""
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    @property
    def mode(self):
        """floor((n + 1) p), at most n."""
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    def sample(self, sample_shape=Size()):
        shape = self._extended_shape(sample_shape)
        counts, source = _drawn(self.total_count.expand(shape).detach(), None)
        probs = self.probs.expand(shape).detach()._data._array
        return Tensor._wrap(source.library().binomial(counts.astype("int64"), probs).astype(counts.dtype))

    def log_prob(self, value):
        self._check_sample(value)
        n, logits = self.total_count, self.logits
        positive = (logits.clamp(min=0) + logits - logits.clamp(max=0)) / 2  # whose gradient at 0 is 1/2
        normalizer = n * positive + n * (-logits.abs()).exp().log1p() - (n + 1).lgamma()
        return value * logits - (value + 1).lgamma() - (n - value + 1).lgamma() - normalizer

    def entropy(self):
        _one_count(self.total_count, "entropy")
        log_p = self.log_prob(self.enumerate_support(False))
        return -(log_p.exp() * log_p).sum(0)

    def enumerate_support(self, expand=True):
        n = _one_count(self.total_count, "enumerate_support")
        values = arange(1 + n, dtype=self._param.dtype, device=self._param.device)
        return _column(values, self._batch_shape, expand)


class NegativeBinomial(Success, Distribution):
    """How many successes of probability probs come before total_count failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _batched = ("total_count", "probs", "logits")

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape=Size()):
        with no_grad():
            rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
            return poisson(rates.sample(sample_shape))

    def log_prob(self, value):
        self._check_sample(value)
        n, logits = self.total_count, self.logits
        chosen = (1.0 + value).lgamma() + n.lgamma() - (n + value).lgamma()
        return n * logsigmoid(-logits) + value * logsigmoid(logits) - where(n + value == 0.0, 0.0, chosen)


class Categorical(Distribution):
    """One of K categories, given probabilities (of any sum) or logits over the last axis."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _batched = ("probs", "logits")

    def __init__(self, probs=None, logits=None, validate_args=None):
        one_of(probs, logits)
        self._held, given = ("probs", probs) if logits is None else ("logits", logits)
        if given.ndim < 1:
            raise ValueError(f"`{self._held}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        """0 … K - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self):
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        """The probabilities."""
        return logits_to_probs(self.logits)

    _param = property(lambda self: getattr(self, self._held))
    param_shape = property(lambda self: self._param.shape)
    mode = property(lambda self: self.probs.argmax(-1))

    @property
    def mean(self):
        """NaN: categories have none."""
        return full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    variance = mean

    def sample(self, sample_shape=Size()):
        rows = self.probs.detach().reshape(-1, self._num_events)
        n = Size(sample_shape).numel()
        if n == 1:  # as PyTorch draws one: the winner of an exponential race
            drawn = (rows / empty_like(rows).exponential_()).argmax(-1)
        else:
            drawn = multinomial(rows, n, True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._check_sample(value)
        value, logits = value.long().unsqueeze(-1), self.logits
        shape = size(joint_shape(value.shape[:-1], logits.shape[:-1]), logits.shape[-1:])
        return logits.expand(shape).gather(-1, value.expand((*shape[:-1], 1))).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=finfo(self.logits).min) * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        return _column(arange(self._num_events, device=self._param.device), self._batch_shape, expand)


class OfCategories:
    """What distributions over the categories of a Categorical take from it."""

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    _param = property(lambda self: self._categorical._param)


class OneHotCategorical(OfCategories, Distribution):
    """One-hot vectors of K categories."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _batched = ("_categorical",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, index):
        n = self._event_shape[0]
        return (index.unsqueeze(-1) == arange(n, device=index.device)).to(self._param.dtype)

    @property
    def mode(self):
        """The most probable category."""
        return self._one_hot(self.probs.argmax(-1))

    def sample(self, sample_shape=Size()):
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        self._check_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        rows = eye(n, dtype=self._param.dtype, device=self._param.device)
        rows = rows.reshape(n, *[1] * len(self._batch_shape), n)
        return rows.expand((n, *self._batch_shape, n)) if expand else rows


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose gradient is that of the probabilities. Source: Bengio et al., 2013."""

    has_rsample = True

    def rsample(self, sample_shape=Size()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategories, Distribution):
    """How often each of K categories comes in total_count (an int) draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _batched = ("_categorical",)

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        """Counts of at most total_count together."""
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):
        drawn = self._categorical.sample(size((self.total_count,), sample_shape)).movedim(0, -1)
        counts = self.probs.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add(-1, drawn, counts.new_ones(drawn.shape))

    def entropy(self):
        n = self.total_count
        single = Binomial(n, probs=self.probs)
        counts = single.enumerate_support(False)[1:]
        together = (single.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + together

    def log_prob(self, value):
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        powers = where((value == 0) & (logits == -math.inf), 0.0, logits) * value
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + powers.sum(-1)
