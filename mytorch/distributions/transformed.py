"""Families that are transforms of simpler distributions, and relaxed (concrete) distributions."""

import math
from typing import TYPE_CHECKING, Any

from ..arrays.tensor import Tensor
from ..ops.creation import full, full_like, zeros_like
from ..ops.elementwise import where
from ..ops.random import rand
from . import constraints
from .compound import TransformedDistribution
from .continuous import Cauchy, Exponential, Gamma, Normal, Uniform
from .discrete import OfCategories
from .distribution import Family, ProbsFamily
from .transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    StickBreakingTransform,
)
from .utils import broadcast_all, clamp_probs, euler_constant, finfo, forwarded

__all__ = (
    "ExpRelaxedCategorical Gumbel HalfCauchy HalfNormal InverseGamma Kumaraswamy LogNormal LogisticNormal "
    "LogitRelaxedBernoulli Pareto RelaxedBernoulli RelaxedOneHotCategorical Weibull"
).split()


class _TransformedFamily(TransformedDistribution, Family):
    """Base class of families that declare their parameters, and in `_of` the base distribution and its transforms.

    The parameters come from the base, or are stored with `_keep`.
    """

    has_rsample = True

    if TYPE_CHECKING:

        def __init__(self, *parameters: Tensor | float, validate_args: bool | None = None, **named: Any) -> None: ...

    def _accept(self, given, validate_args):
        TransformedDistribution.__init__(self, *self._of(given, validate_args), validate_args=validate_args)


class LogNormal(_TransformedFamily):
    """The log-normal distribution: the exponential of a normal variable.

    Args:
        loc: mean of the logarithm.
        scale: standard deviation of the logarithm.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def _of(self, given, validate_args):
        return Normal(**given, validate_args=validate_args), ExpTransform()

    loc, scale = forwarded("base_dist", "loc scale")
    mean = property(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale**2).exp())
    variance = property(lambda self: (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp())

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(_TransformedFamily):
    """The logistic normal distribution of points in the simplex: stick breaking of normal variables along the last axis.

    Args:
        loc: means of the normal variables.
        scale: standard deviations of the normal variables.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def _of(self, given, validate_args):
        base = Normal(**given, validate_args=validate_args)
        base = base if base.batch_shape else base.expand((1,))
        return base, StickBreakingTransform()

    loc, scale = forwarded("base_dist.base_dist", "loc scale")


class _Folded(_TransformedFamily):
    """Base class of absolute values of distributions that are symmetric around 0."""

    _parameters = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: zeros_like(self.scale))

    def log_prob(self, value):
        self._check_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Folded):
    """The half-normal distribution: the absolute value of a normal variable with mean 0.

    Args:
        scale: standard deviation of the normal variable.
    """

    def _of(self, given, validate_args):
        return Normal(0, **given, validate_args=False), AbsTransform()

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale**2 * (1 - 2 / math.pi))


class HalfCauchy(_Folded):
    """The half-Cauchy distribution: the absolute value of a Cauchy variable around 0.

    Args:
        scale: scale of the Cauchy variable.
    """

    def _of(self, given, validate_args):
        return Cauchy(0, **given, validate_args=False), AbsTransform()

    mean = property(lambda self: full_like(self.scale, math.inf))
    variance = property(lambda self: self.base_dist.variance)


class Gumbel(_TransformedFamily):
    """The Gumbel distribution, a limit distribution of maxima.

    Args:
        loc: location.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def _of(self, given, validate_args):
        self._keep(**given)
        limits = finfo(self.loc)
        low, high = full_like(self.loc, limits.tiny), full_like(self.loc, 1 - limits.eps)
        steps = [ExpTransform().inv, AffineTransform(0, -1), ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        return Uniform(low, high, validate_args=validate_args), steps

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(lambda self: self.loc)
    stddev = property(lambda self: (math.pi / math.sqrt(6)) * self.scale)
    variance = property(lambda self: self.stddev**2)

    def log_prob(self, value):
        self._check_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)


class Weibull(_TransformedFamily):
    """The Weibull distribution: scale * E^(1 / concentration) for E from Exponential(1).

    Args:
        concentration: shape parameter.
    """

    _parameters = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _batched = ("scale", "concentration", "concentration_reciprocal")

    def _of(self, given, validate_args):
        self._keep(**given)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(full_like(self.scale, 1.0), validate_args=validate_args)
        return base, [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]

    def _moment(self, n):
        """Return the mean of the n-th power of X / scale."""
        return (1 + n * self.concentration_reciprocal).lgamma().exp()

    mean = property(lambda self: self.scale * self._moment(1))
    variance = property(lambda self: self.scale**2 * (self._moment(2) - self._moment(1) ** 2))

    @property
    def mode(self) -> Tensor:
        """The mode, scale * ((k - 1) / k)^(1/k)."""
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1


class Pareto(_TransformedFamily):
    """The Pareto distribution, a power law: P(X > x) = (scale / x)^alpha.

    Args:
        scale: minimum value.
        alpha: exponent.
    """

    _parameters = {"scale": constraints.positive, "alpha": constraints.positive}
    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}  # PyTorch's order

    def _of(self, given, validate_args):
        self._keep(**given)
        base = Exponential(self.alpha, validate_args=validate_args)
        return base, [ExpTransform(), AffineTransform(0, self.scale)]

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The values from scale on."""
        return constraints.greater_than_eq(self.scale)

    mode = property(lambda self: self.scale)

    @property
    def mean(self) -> Tensor:
        """The mean; infinite for alpha up to 1."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        """The variance; infinite for alpha up to 2."""
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Kumaraswamy(_TransformedFamily):
    """The Kumaraswamy distribution on (0, 1), similar to Beta: P(X <= x) = 1 - (1 - x^a)^b.

    Args:
        concentration1: first parameter a.
        concentration0: second parameter b.
    """

    _parameters = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def _of(self, given, validate_args):
        self._keep(**given)
        a, b = self.concentration1, self.concentration0
        base = Uniform(zeros_like(b), full_like(b, 1.0), validate_args=validate_args)
        return base, [PowerTransform(b.reciprocal()), AffineTransform(1.0, -1.0), PowerTransform(a.reciprocal())]

    def _moment(self, n):
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self.mean**2)

    @property
    def mode(self) -> Tensor:
        """The mode, ((a - 1) / (a b - 1))^(1/a); NaN for a concentration below 1."""
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1)
        a, b = where(inside, a, 2.0), where(inside, b, 2.0)
        return where(inside, ((a - 1) / (a * b - 1)) ** a.reciprocal(), math.nan)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class InverseGamma(_TransformedFamily):
    """The inverse gamma distribution: 1 / X for X from Gamma(concentration, rate).

    Args:
        concentration: shape parameter.
        rate: rate of the gamma variable.
    """

    _parameters = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def _of(self, given, validate_args):
        base = Gamma(**given, validate_args=validate_args)
        minus_one = full((), -1.0, dtype=base.rate.dtype, device=base.rate.device)
        return base, PowerTransform(minus_one)

    concentration, rate = forwarded("base_dist", "concentration rate")
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def mean(self) -> Tensor:
        """The mean; infinite for concentration up to 1."""
        a = self.concentration
        return where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def variance(self) -> Tensor:
        """The variance; infinite for concentration up to 2."""
        a = self.concentration
        return where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class LogitRelaxedBernoulli(ProbsFamily):
    """The logit of a `RelaxedBernoulli` draw.

    Args:
        temperature: temperature of the relaxation.
        probs: probability of 1.
        logits: log-odds of 1, instead of probs.
    """

    _parameters = {"temperature": None, "probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def _accept(self, given, validate_args):
        (self.temperature,) = broadcast_all(given.pop("temperature"))
        super()._accept(given, validate_args)

    def _draw(self, shape):
        p = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, **self._options))
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        gap = logits - value * self.temperature
        return self.temperature.log() + gap - 2 * gap.exp().log1p()


class RelaxedBernoulli(_TransformedFamily):
    """A differentiable relaxation of the Bernoulli distribution on (0, 1). Low temperatures give values near 0 and 1.

    Args:
        temperature: temperature of the relaxation.
        probs: probability of 1.
        logits: log-odds of 1, instead of probs.
    Source: Maddison et al., 2017; Jang et al., 2017.
    """

    _parameters, _defaults = LogitRelaxedBernoulli._parameters, ProbsFamily._defaults
    support = constraints.unit_interval

    def _of(self, given, validate_args):
        return LogitRelaxedBernoulli(**given, validate_args=validate_args), SigmoidTransform()

    temperature, probs, logits = forwarded("base_dist", "temperature probs logits")


class ExpRelaxedCategorical(OfCategories):
    """The logarithm of a `RelaxedOneHotCategorical` draw.

    Args:
        temperature: temperature of the relaxation.
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    """

    _parameters = {"temperature": None, **OfCategories._parameters}
    support = constraints.real_vector  # actually only vectors whose logsumexp is 0
    has_rsample = True
    _batched = ("_categorical",)

    def _accept(self, given, validate_args):
        (self.temperature,) = broadcast_all(given.pop("temperature"))
        super()._accept(given, validate_args)

    def _draw(self, shape):
        gumbels = -((-clamp_probs(rand(shape, **self._options)).log()).log())
        scores = (self.logits + gumbels) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def _log_prob(self, value):
        k = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        score = logits - value * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + math.lgamma(k) + (k - 1) * self.temperature.log()


class RelaxedOneHotCategorical(_TransformedFamily):
    """A differentiable relaxation of one-hot vectors. Low temperatures give points near the corners of the simplex.

    Args:
        temperature: temperature of the relaxation.
        probs: probabilities over the last axis, which are normalized.
        logits: unnormalized log-probabilities over the last axis, instead of probs.
    Source: Maddison et al., 2017; Jang et al., 2017.
    """

    _parameters, _defaults = ExpRelaxedCategorical._parameters, OfCategories._defaults
    support = constraints.simplex

    def _of(self, given, validate_args):
        return ExpRelaxedCategorical(**given, validate_args=validate_args), ExpTransform()

    temperature, probs, logits = forwarded("base_dist", "temperature probs logits")
