"""Distributions of real numbers, and the Dirichlet distribution."""

import math

from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..ops.creation import as_tensor, empty, full, zeros_like
from ..ops.elementwise import where
from ..ops.loss import binary_cross_entropy_with_logits
from ..ops.movement import stack
from ..ops.random import rand, randn
from . import constraints
from .distribution import Distribution, ExponentialFamily, Family, ProbsFamily, RealFamily
from .implicit import dirichlet_draw, gamma_cdf, gamma_draw
from .utils import broadcast_all, clamp_probs, finfo, lazy_property, logits_to_probs

__all__ = (
    "Beta Cauchy Chi2 ContinuousBernoulli Dirichlet Exponential FisherSnedecor Gamma GeneralizedPareto Laplace Normal "
    "StudentT Uniform VonMises"
).split()

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Normal(RealFamily, ExponentialFamily):
    """The normal (Gaussian) distribution.

    Args:
        loc: mean.
        scale: standard deviation.
    Example:
        >>> d = mytorch.distributions.Normal(tensor([0.0, 1.0]), 2.0)
        >>> d.batch_shape, d.variance.tolist()
        (mytorch.Size([2]), [4.0, 4.0])
        >>> d.log_prob(tensor(0.0))[0]
        tensor(-1.61209)
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _mean_carrier_measure = 0

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale**2)

    def _draw(self, shape):
        return self.loc + randn(shape, **self._options) * self.scale

    def sample(self, sample_shape=()):
        return (
            super().sample(sample_shape).contiguous()
        )  # PyTorch draws the sample itself, not a function of loc and scale

    def _log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - _HALF_LOG_2PI

    def _cdf(self, value):
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + _HALF_LOG_2PI + self.scale.log()

    _natural_params = property(lambda self: (self.loc / self.scale**2, -0.5 * self.scale**-2))

    def _log_normalizer(self, x, y):
        return -0.25 * x**2 / y + 0.5 * (-math.pi / y).log()


class Uniform(RealFamily):
    """The uniform distribution on [low, high).

    Args:
        low: lower bound.
        high: upper bound.
    Example:
        >>> d = mytorch.distributions.Uniform(0.0, 4.0)
        >>> d.mean.item(), d.cdf(tensor([1.0, 3.0])).tolist()
        (2.0, [0.25, 0.75])
    """

    _parameters = {"low": constraints.dependent, "high": constraints.dependent}

    @property
    def arg_constraints(self):
        """The constraints: low is less than high."""
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The interval from low to high."""
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / 12**0.5)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def _draw(self, shape):
        return self.low + rand(shape, **self._options) * (self.high - self.low)

    def _log_prob(self, value):
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value):
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(RealFamily, ExponentialFamily):
    """The exponential distribution.

    Args:
        rate: rate; the mean is 1 / rate.
    """

    _parameters = {"rate": constraints.positive}
    support = constraints.nonnegative
    _mean_carrier_measure = 0

    mean = stddev = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: zeros_like(self.rate))
    variance = property(lambda self: self.rate**-2)

    def _draw(self, shape):
        return empty(shape, **self._options).exponential_() / self.rate

    def _log_prob(self, value):
        return self.rate.log() - self.rate * value

    def _cdf(self, value):
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -((-value).log1p()) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    _natural_params = property(lambda self: (-self.rate,))

    def _log_normalizer(self, x):
        return -(-x).log()


class Laplace(RealFamily):
    """The Laplace distribution, a two-sided exponential distribution.

    Args:
        loc: mean.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: 2**0.5 * self.scale)
    variance = property(lambda self: 2 * self.scale**2)

    def _draw(self, shape):
        # excludes -1, where log1p would be infinite
        u = empty(shape, **self._options).uniform_(finfo(self.loc).eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def _log_prob(self, value):
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value):
        off = value - self.loc
        return 0.5 - 0.5 * off.sign() * (-off.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(RealFamily):
    """The Cauchy (Lorentz) distribution. Its mean and variance are undefined.

    Args:
        loc: median.
        scale: half width at half maximum.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    mode = property(lambda self: self.loc)
    mean = property(lambda self: full(self._batch_shape, math.nan, **self._options))
    variance = property(lambda self: full(self._batch_shape, math.inf, **self._options))

    def _draw(self, shape):
        u = rand(shape, dtype=dtypes.float64, device=self.loc.device)
        return self.loc + (math.pi * (u - 0.5)).tan().to(self.loc.dtype) * self.scale

    def _log_prob(self, value):
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def _cdf(self, value):
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gamma(RealFamily, ExponentialFamily):
    """The gamma distribution.

    Args:
        concentration: shape parameter.
        rate: rate; the mean is concentration / rate.
    Example:
        >>> d = mytorch.distributions.Gamma(tensor([2.0, 4.0]), 2.0)
        >>> d.mean.tolist(), d.variance.tolist()
        ([1.0, 2.0], [0.5, 1.0])
    """

    _parameters = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    _mean_carrier_measure = 0

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def _draw(self, shape):
        return gamma_draw(self.concentration, shape) / self.rate

    def log_prob(self, value):
        return super().log_prob(as_tensor(value, dtype=self.rate.dtype, device=self.rate.device))

    def _log_prob(self, value):
        a, b = self.concentration, self.rate
        return a.xlogy(b) + (a - 1).xlogy(value) - b * value - a.lgamma()

    def _cdf(self, value):
        return gamma_cdf(self.rate * value, self.concentration)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))

    def _log_normalizer(self, x, y):
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The chi-squared distribution: the sum of df squared standard normal variables.

    Args:
        df: degrees of freedom.
        validate_args: check parameters and values.
    """

    arg_constraints = {"df": constraints.positive}
    _batched = ("concentration", "rate")

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: self.concentration * 2)


class StudentT(RealFamily):
    """Student's t-distribution.

    Args:
        df: degrees of freedom.
        loc: location.
    """

    _parameters = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    _defaults = {"loc": 0.0, "scale": 1.0}
    support = constraints.real

    mean = property(lambda self: where(self.df > 1, self.loc, math.nan))
    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The variance; infinite for df from 1 to 2, NaN for df up to 1."""
        safe = where(self.df > 2, self.df, 3.0)
        found = self.scale**2 * safe / (safe - 2)
        return where(self.df > 2, found, where(self.df > 1, math.inf, math.nan).to(self.df.dtype))

    def _draw(self, shape):
        normal = randn(shape, **self._options)
        chi2 = gamma_draw(0.5 * self.df, shape) / 0.5
        return self.loc + self.scale * normal * (chi2 / self.df).rsqrt()

    def _log_prob(self, value):
        df, y = self.df, (value - self.loc) / self.scale
        beta = (0.5 * df).lgamma() - (0.5 * (df + 1.0)).lgamma() + 0.5 * math.log(math.pi)
        return -0.5 * (df + 1.0) * (y**2 / df).log1p() - self.scale.log() - 0.5 * df.log() - beta

    def entropy(self) -> Tensor:
        df, half = self.df, 0.5 * (self.df + 1)
        beta = (0.5 * df).lgamma() + math.lgamma(0.5) - half.lgamma()
        return self.scale.log() + half * (half.digamma() - (0.5 * df).digamma()) + 0.5 * df.log() + beta


class FisherSnedecor(RealFamily):
    """The F-distribution: the ratio of two chi-squared variables, each divided by its degrees of freedom.

    Args:
        df1: degrees of freedom of the numerator.
        df2: degrees of freedom of the denominator.
    """

    _parameters = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    @property
    def mean(self) -> Tensor:
        """The mean; NaN for df2 up to 2."""
        d = where(self.df2 <= 2, math.nan, self.df2)
        return d / (d - 2)

    @property
    def mode(self) -> Tensor:
        """The mode; NaN for df1 up to 2."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 <= 2, math.nan, found)

    @property
    def variance(self) -> Tensor:
        """The variance; NaN for df2 up to 4."""
        d = where(self.df2 <= 4, math.nan, self.df2)
        return 2 * d**2 * (self.df1 + d - 2) / (self.df1 * (d - 2) ** 2 * (d - 4))

    def _draw(self, shape):
        shape, tiny = shape, finfo(self.df1).tiny
        above = gamma_draw(self.df1 * 0.5, shape) / self.df1
        below = gamma_draw(self.df2 * 0.5, shape) / self.df2
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def _log_prob(self, value):
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        normalizer = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return normalizer + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()


class Dirichlet(Family, ExponentialFamily):
    """The Dirichlet distribution of points in the simplex.

    Args:
        concentration: positive parameters; the last axis is the event.
        validate_args: check parameters and values.
    """

    _parameters = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        Distribution.__init__(self, concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Tensor:
        """The mode; a corner of the simplex if all concentrations are below 1."""
        return _dirichlet_mode(self.concentration)

    @property
    def variance(self) -> Tensor:
        """The variance of each coordinate."""
        a, total = self.concentration, self.concentration.sum(-1, True)
        return a * (total - a) / (total**2 * (total + 1))

    def _draw(self, shape):
        return dirichlet_draw(self.concentration, shape)

    def _log_prob(self, value):
        a = self.concentration
        return (a - 1.0).xlogy(value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        k, total = a.shape[-1], a.sum(-1)
        sums = (k - total) * total.digamma() + ((a - 1.0) * a.digamma()).sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - sums

    _natural_params = property(lambda self: (self.concentration,))

    def _log_normalizer(self, x):
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()


def _dirichlet_mode(a):
    over = (a - 1).clamp(min=0.0)
    mode = over / over.sum(-1, True)
    first = zeros_like(a)
    first[..., 0] = 1.0  # if all entries are 0/0, use the first corner
    return where((a < 1).all(-1, keepdim=True), first, mode)


class Beta(RealFamily, ExponentialFamily):
    """The beta distribution on (0, 1). The mean is concentration1 / (concentration1 + concentration0).

    Args:
        concentration1: first parameter (alpha).
        concentration0: second parameter (beta).
    Example:
        >>> mytorch.distributions.Beta(tensor([1.0, 3.0]), 1.0).mean.tolist()
        [0.5, 0.75]
    """

    _parameters = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    _both = property(lambda self: stack([self.concentration1, self.concentration0], -1))
    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: _dirichlet_mode(self._both)[..., 0])

    @property
    def variance(self) -> Tensor:
        """The variance, a b / ((a + b)^2 (a + b + 1))."""
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b) ** 2 * (a + b + 1))

    def _draw(self, shape):
        return dirichlet_draw(self._both, (*shape, 2))[..., 0]

    def _log_beta(self):
        return self._log_normalizer(self.concentration1, self.concentration0)

    def _log_prob(self, value):
        a, b = self.concentration1, self.concentration0
        return (a - 1).xlogy(value) + (b - 1).xlogy(1 - value) - self._log_beta()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        sums = (a - 1) * a.digamma() + (b - 1) * b.digamma() - (a + b - 2) * (a + b).digamma()
        return self._log_beta() - sums

    _natural_params = property(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x, y):
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


class ContinuousBernoulli(ProbsFamily, RealFamily, ExponentialFamily):
    """The continuous Bernoulli distribution on [0, 1], with density proportional to p^x (1 - p)^(1 - x).

    Args:
        probs: parameter p in (0, 1).
        logits: log-odds of p, instead of probs.
        lims: interval around 1/2. A series replaces the formulas in it.
    Source: Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019.
    """

    _parameters = {"probs": constraints.unit_interval, "logits": constraints.real, "lims": None}
    _defaults = {"probs": None, "logits": None, "lims": (0.499, 0.501)}
    support = constraints.unit_interval
    _mean_carrier_measure = 0

    def _accept(self, given, validate_args):
        self._lims = given.pop("lims")
        self._keep(**given)
        if self._held == "probs":
            if validate_args and not bool(constraints.unit_interval.check(self.probs).all()):
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        Distribution.__init__(self, self._param.shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter p, clamped away from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _either(self, formula, series):
        """Return formula(p) outside the interval around 1/2, and the value of the series inside."""
        p = self.probs
        outside = (p <= self._lims[0]) | (p > self._lims[1])
        return where(outside, formula(where(outside, p, self._lims[0])), series)

    def _cont_bern_log_norm(self):
        def formula(p):
            return ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()

        x = (self.probs - 0.5) ** 2
        return self._either(formula, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        """The mean, p / (2p - 1) + 1 / (log(1 - p) - log p)."""
        x = self.probs - 0.5
        return self._either(
            lambda p: p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log()), 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x
        )

    @property
    def variance(self) -> Tensor:
        """The variance, p (p - 1) / (1 - 2p)^2 + 1 / (log(1 - p) - log p)^2."""
        x = (self.probs - 0.5) ** 2
        return self._either(
            lambda p: p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / ((-p).log1p() - p.log()) ** 2,
            1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x,
        )

    def _draw(self, shape):
        return self.icdf(rand(shape, **self._options))

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def _cdf(self, value):
        inside = self._either(lambda p: (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1), value)
        return where(value <= 0.0, 0.0, where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        def formula(p):
            return ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())

        return self._either(formula, value)

    def entropy(self) -> Tensor:
        log0, log1 = (-self.probs).log1p(), self.probs.log()
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x):
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = where(outside, x, self._lims[0] - 0.5)
        series = 0.5 * x + x**2 / 24.0 - x**4 / 2880.0
        return where(outside, cut.expm1().abs().log() - cut.abs().log(), series)


class GeneralizedPareto(RealFamily):
    """The generalized Pareto distribution: P(X > x) = (1 + c z)^(-1/c) with z = (x - loc) / scale, or exp(-z) for c = 0.

    Args:
        loc: threshold.
        concentration: shape parameter c.
    """

    _parameters = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The values from loc on, with an upper bound for negative concentrations."""
        c = self.concentration
        upper = where(c < 0, self.loc - self.scale / c, math.inf)
        return constraints.interval(self.loc, upper)

    def _either(self, nonzero, zero):
        """Return nonzero(c), or the other value for c = 0."""
        none = self.concentration.abs() <= 1e-8
        return where(none, zero, nonzero(where(none, 1.0, self.concentration)))

    def _draw(self, shape):
        return self.icdf(rand(shape, **self._options))

    def _z(self, x):
        return (x - self.loc) / self.scale

    def _log_prob(self, value):
        z = self._z(value)

        def nonzero(c):
            y = 1 / c + 1
            return where(y == 0, 0.0, y * (c * z).log1p())

        return -self.scale.log() - self._either(nonzero, z)

    def log_survival_function(self, value):
        """Returns log P(X > value).

        Args:
            value: a tensor.
        """
        self._check_sample(value)
        z = self._z(value)
        return self._either(lambda c: -(c * z).log1p() / c, -z)

    def log_cdf(self, value):
        """Returns the logarithm of `cdf`.

        Args:
            value: a tensor.
        """
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        log_u = (-value).log1p()
        return self.loc + self.scale * self._either(lambda c: (-c * log_u).expm1() / c, -log_u)

    @property
    def mean(self) -> Tensor:
        """The mean; NaN for a concentration of 1 or more."""
        c = self.concentration
        return where(c < 1, self.loc + self.scale / (1 - where(c < 1, c, 0.5)), math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance; NaN for a concentration of 1/2 or more."""
        c = self.concentration
        safe = where(c < 0.5, c, 0.25)
        return where(c < 0.5, self.scale**2 / ((1 - safe) ** 2 * (1 - 2 * safe)), math.nan)

    mode = property(lambda self: self.loc)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


# Polynomials for the modified Bessel functions I0 and I1: in (x / 3.75)^2 below 3.75, and in 3.75 / x for
# sqrt(x) exp(-x) I(x) above. Source: Abramowitz and Stegun, 9.8.1 to 9.8.4.
_BESSEL_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3),
)
_BESSEL_LARGE = (
    (0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2,
     -0.2057706e-1, 0.2635537e-1, -0.1647633e-1, 0.392377e-2),
    (0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1,
     0.2282967e-1, -0.2895312e-1, 0.1787654e-1, -0.420059e-2),
)  # fmt: skip


def _polynomial(x, coefficients):
    total = 0.0
    for c in reversed(coefficients):
        total = total * x + c
    return total


def log_bessel(x, order):
    """Return log I_order(x) for x > 0 and order 0 or 1."""
    below, above = where(x < 3.75, x, 1.0), where(x < 3.75, 3.75, x)
    small = _polynomial((below / 3.75) ** 2, _BESSEL_SMALL[order])
    small = (below * small if order else small).log()
    large = above - 0.5 * above.log() + _polynomial(3.75 / above, _BESSEL_LARGE[order]).log()
    return where(x < 3.75, small, large)


class VonMises(RealFamily):
    """The von Mises distribution of angles in [-pi, pi).

    `variance` is the circular variance, 1 - I1/I0 of the concentration.

    Args:
        loc: mean angle in radians.
        concentration: concentration around loc.
    """

    _parameters = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I1 / I0."""
        return 1 - (log_bessel(self.concentration, 1) - log_bessel(self.concentration, 0)).exp()

    def _draw(self, shape):
        """Draw by rejection from a wrapped Cauchy distribution. Source: Best and Fisher, 1979."""
        loc, k = self.loc.double(), self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
        x = loc.new_zeros(shape)
        done = x != 0
        while not bool(done.all()):
            u1, u2, u3 = rand((3, *shape), dtype=loc.dtype, device=loc.device).unbind()
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
            x = where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
        return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def _log_prob(self, value):
        return self.concentration * (value - self.loc).cos() - math.log(2 * math.pi) - log_bessel(self.concentration, 0)
