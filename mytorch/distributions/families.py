"""The distributions themselves."""

import math

import numpy as np

from ..linalg import cholesky, solve_triangular
from ..ops.activation import log_softmax, sigmoid, softmax
from ..ops.creation import full, zeros
from ..ops.elementwise import where, xlogy
from ..ops.linalg import matmul
from ..ops.loss import binary_cross_entropy_with_logits
from ..ops.memory import poisson, standard_gamma
from ..ops.random import rand, randn
from ..ops.special import digamma, erfinv, lgamma
from ..tensor import Tensor
from .distribution import Distribution, raw, tensors

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Normal(Distribution):
    """Normal with mean loc and standard deviation scale."""

    has_rsample = True
    _parameters = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        self._check("scale", self.scale, self.scale > 0, "GreaterThan(lower_bound=0.0)")

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale**2)

    def rsample(self, sample_shape=()):
        eps = randn(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + eps * self.scale

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value):
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value):
        """The value below which the given probability lies."""
        return self.loc + self.scale * erfinv.caller(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log()


class LogNormal(Normal):
    """exp of a Normal."""

    mean = property(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale**2).exp())
    variance = property(lambda self: ((self.scale**2).exp() - 1) * (2 * self.loc + self.scale**2).exp())
    stddev = property(lambda self: self.variance.sqrt())

    def rsample(self, sample_shape=()):
        return super().rsample(sample_shape).exp()

    def log_prob(self, value):
        return super().log_prob(value.log()) - value.log()

    def cdf(self, value):
        return super().cdf(value.log())

    def entropy(self):
        return super().entropy() + self.loc


class HalfNormal(Distribution):
    """The absolute value of a Normal of mean 0."""

    has_rsample = True
    _parameters = ("scale",)

    def __init__(self, scale, validate_args=None):
        (self.scale,) = tensors(scale)
        super().__init__(self.scale.shape, (), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale**2 * (1 - 2 / math.pi))

    def rsample(self, sample_shape=()):
        return (randn(self._extended(sample_shape), dtype=self.scale.dtype) * self.scale).abs()

    def log_prob(self, value):
        inside = math.log(2) - (value**2) / (2 * self.scale**2) - self.scale.log() - _HALF_LOG_2PI
        return where(value >= 0, inside, -math.inf)

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log() - math.log(2)


class Uniform(Distribution):
    """Uniform in [low, high)."""

    has_rsample = True
    _parameters = ("low", "high")

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = tensors(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError("Uniform is not defined when low>= high")

    mean = property(lambda self: (self.low + self.high) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def rsample(self, sample_shape=()):
        u = rand(self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -(self.high - self.low).log(), -math.inf)

    def cdf(self, value):
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        """The value below which the given probability lies."""
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(Distribution):
    """Waiting times of the given rate."""

    has_rsample = True
    _parameters = ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = tensors(rate)
        super().__init__(self.rate.shape, (), validate_args)
        self._check("rate", self.rate, self.rate > 0, "GreaterThan(lower_bound=0.0)")

    mean = stddev = property(lambda self: self.rate.reciprocal())
    variance = property(lambda self: self.rate**-2)

    def rsample(self, sample_shape=()):
        u = rand(self._extended(sample_shape), dtype=self.rate.dtype)
        return -((-u).log1p()) / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        return 1 - (-self.rate * value).exp()

    def icdf(self, value):
        """The value below which the given probability lies."""
        return -((-value).log1p()) / self.rate

    def entropy(self):
        return 1.0 - self.rate.log()


class Laplace(Distribution):
    """Two-sided exponential around loc."""

    has_rsample = True
    _parameters = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale**2)

    def rsample(self, sample_shape=()):
        u = rand(self._extended(sample_shape), dtype=self.loc.dtype) * (2 - 1e-7) - (1 - 1e-7)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value):
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        return 0.5 - 0.5 * (value - self.loc).sign() * (-(value - self.loc).abs() / self.scale).expm1()

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Cauchy(Distribution):
    """The Cauchy distribution."""

    has_rsample = True
    _parameters = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    mode = property(lambda self: self.loc)
    mean = variance = property(lambda self: full(tuple(self._batch_shape), math.nan, dtype=self.loc.dtype))

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * ((rand(self._extended(sample_shape), dtype=self.loc.dtype) - 0.5) * math.pi).tan()

    def log_prob(self, value):
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value):
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(Distribution):
    """The limit distribution of maxima."""

    has_rsample = True
    _parameters = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    mean = property(lambda self: self.loc + self.scale * 0.57721566490153286060)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: (math.pi**2 / 6) * self.scale**2)

    def rsample(self, sample_shape=()):
        u = rand(self._extended(sample_shape), dtype=self.loc.dtype).clamp(1e-7, 1 - 1e-7)
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value):
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self):
        return self.scale.log() + (1 + 0.57721566490153286060)


def _reparameterised(draw, derivative, parameter):
    """A draw whose gradient for its parameter is known: the draw, plus zero times the parameter."""
    return draw + derivative * (parameter - parameter.detach())


def _gamma_draw(concentration, shape):
    """Gamma(concentration, 1) draws with implicit gradients for the concentration (Figurnov et al., 2018)."""
    alpha = concentration.expand(*shape) if shape else concentration
    drawn = np.maximum(standard_gamma(alpha.detach()), np.finfo(raw(alpha).dtype).tiny)
    if not concentration.requires_grad:
        return Tensor._wrap(drawn)
    a = raw(alpha).astype(np.float64)
    eps = 1e-4 * np.maximum(a, 1e-2)
    x = drawn.astype(np.float64)
    slope = (_gammainc(a + eps, x) - _gammainc(a - eps, x)) / (2 * eps)
    log_density = (a - 1) * np.log(x) - x - np.vectorize(math.lgamma)(a)
    derivative = (-slope / np.exp(log_density)).astype(raw(alpha).dtype)
    return _reparameterised(Tensor._wrap(drawn), Tensor._wrap(derivative), alpha)


def _gammainc(a, x):
    """The regularised lower incomplete gamma function, by its series or its continued fraction."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    front = np.exp(a * np.log(x) - x - np.vectorize(math.lgamma)(a))
    total = term = 1.0 / a
    for n in range(1, 400):
        term = term * x / (a + n)
        total = total + term
        if np.all(np.abs(term) < np.abs(total) * 1e-16):
            break
    series = front * total
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(b, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    h = d
    for n in range(1, 400):
        an = -n * (n - a)
        b = b + 2
        d = 1 / np.where(an * d + b == 0, tiny, an * d + b)
        c = np.where(b + an / c == 0, tiny, b + an / c)
        step = d * c
        h = h * step
        if np.all(np.abs(step - 1) < 1e-15):
            break
    return np.where(x < a + 1, series, 1 - front * h)


class Gamma(Distribution):
    """Gamma of a concentration and a rate."""

    has_rsample = True
    _parameters = ("concentration", "rate")

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = tensors(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)
        self._check("concentration", self.concentration, self.concentration > 0, "GreaterThan(lower_bound=0.0)")
        self._check("rate", self.rate, self.rate > 0, "GreaterThan(lower_bound=0.0)")

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def rsample(self, sample_shape=()):
        return _gamma_draw(self.concentration, self._extended(sample_shape)) / self.rate

    def log_prob(self, value):
        a, b = self.concentration, self.rate
        return xlogy(a, b) + xlogy(a - 1, value) - b * value - lgamma.caller(a)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + lgamma.caller(a) + (1.0 - a) * digamma.caller(a)


class Chi2(Gamma):
    """The sum of df squared standard normals."""

    def __init__(self, df, validate_args=None):
        (df,) = tensors(df)
        super().__init__(0.5 * df, 0.5, validate_args)

    df = property(lambda self: self.concentration * 2)


class StudentT(Distribution):
    """Student's t."""

    has_rsample = True
    _parameters = ("df", "loc", "scale")

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = tensors(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    mean = property(lambda self: where(self.df > 1, self.loc, math.nan))
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        """Infinite up to 2 degrees of freedom, NaN up to 1."""
        inside = self.scale**2 * self.df / (self.df - 2)
        return where(self.df > 2, inside, where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        chi2 = _gamma_draw(self.df * 0.5, shape) * 2
        return self.loc + self.scale * randn(shape, dtype=self.loc.dtype) * (self.df / chi2).sqrt()

    def log_prob(self, value):
        y = (value - self.loc) / self.scale
        z = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + lgamma.caller(0.5 * self.df) - lgamma.caller(0.5 * (self.df + 1))
        return -0.5 * (self.df + 1) * (y**2 / self.df).log1p() - z

    def entropy(self):
        half = 0.5 * (self.df + 1)
        beta = lgamma.caller(0.5 * self.df) + math.lgamma(0.5) - lgamma.caller(half)
        return self.scale.log() + half * (digamma.caller(half) - digamma.caller(0.5 * self.df)) + 0.5 * self.df.log() + beta


class Dirichlet(Distribution):
    """Points of the simplex."""

    has_rsample = True
    _parameters = ("concentration",)

    def __init__(self, concentration, validate_args=None):
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)
        self._check("concentration", concentration, concentration > 0, "IndependentConstraint(GreaterThan(lower_bound=0.0), 1)")

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def variance(self):
        """Of each coordinate."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape=()):
        g = _gamma_draw(self.concentration, self._extended(sample_shape))
        return g / g.sum(-1, True)

    def log_prob(self, value):
        a = self.concentration
        return xlogy(a - 1.0, value).sum(-1) + lgamma.caller(a.sum(-1)) - lgamma.caller(a).sum(-1)

    def entropy(self):
        a = self.concentration
        k, total = a.shape[-1], a.sum(-1)
        return lgamma.caller(a).sum(-1) - lgamma.caller(total) - (k - total) * digamma.caller(total) - ((a - 1.0) * digamma.caller(a)).sum(-1)


class Beta(Distribution):
    """Numbers in (0, 1)."""

    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = tensors(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)
        self._check("concentration1", self.concentration1, self.concentration1 > 0, "GreaterThan(lower_bound=0.0)")
        self._check("concentration0", self.concentration0, self.concentration0 > 0, "GreaterThan(lower_bound=0.0)")

    @property
    def mean(self):
        """a / (a + b)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self):
        """a b / ((a + b)^2 (a + b + 1))."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        a, b = _gamma_draw(self.concentration1, shape), _gamma_draw(self.concentration0, shape)
        return a / (a + b)

    def _log_beta(self):
        a, b = self.concentration1, self.concentration0
        return lgamma.caller(a) + lgamma.caller(b) - lgamma.caller(a + b)

    def log_prob(self, value):
        return xlogy(self.concentration1 - 1, value) + xlogy(self.concentration0 - 1, 1 - value) - self._log_beta()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        psi = digamma.caller
        return self._log_beta() - (a - 1) * psi(a) - (b - 1) * psi(b) + (a + b - 2) * psi(a + b)


def _one_of(probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class Bernoulli(Distribution):
    """0 or 1, given the probability of 1 or its logit."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        if probs is not None:
            (self.probs,) = tensors(probs)
            eps = float(np.finfo(raw(self.probs).dtype).eps)
            p = self.probs.clamp(eps, 1 - eps)
            self.logits = p.log() - (-p).log1p()
            super().__init__(self.probs.shape, (), validate_args)
            self._check("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")
        else:
            (self.logits,) = tensors(logits)
            self.probs = sigmoid(self.logits)
            super().__init__(self.logits.shape, (), validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        return (rand(shape, dtype=self.probs.dtype) < self.probs.detach()).to(self.probs.dtype)

    def log_prob(self, value):
        logits, value = tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value.to(logits.dtype), reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Geometric(Distribution):
    """The number of failures before the first success."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        self.probs = tensors(probs)[0] if probs is not None else sigmoid(tensors(logits)[0])
        super().__init__(self.probs.shape, (), validate_args)

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape=()):
        u = 1.0 - rand(self._extended(sample_shape), dtype=self.probs.dtype)
        return (u.log() / (-self.probs.detach()).log1p()).floor()

    def log_prob(self, value):
        return value * (-self.probs).log1p() + self.probs.log()

    def entropy(self):
        logits = self.probs.log() - (-self.probs).log1p()
        return binary_cross_entropy_with_logits(logits, self.probs, reduction="none") / self.probs


class Poisson(Distribution):
    """Counts of the given rate."""

    _parameters = ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = tensors(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = variance = property(lambda self: self.rate)

    def sample(self, sample_shape=()):
        return poisson(self.rate.detach().expand(*self._extended(sample_shape)))

    def log_prob(self, value):
        return xlogy(value, self.rate) - self.rate - lgamma.caller(value + 1)


class Categorical(Distribution):
    """One of several classes, given their probabilities or logits along the last axis."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        if probs is not None:
            if probs.ndim < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, True)
            eps = float(np.finfo(raw(probs).dtype).eps)
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        else:
            if logits.ndim < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = log_softmax(logits, -1)
            self.probs = softmax(logits, -1)
        super().__init__(self.logits.shape[:-1], (), validate_args)
        if probs is not None:
            self._check("probs", probs, (probs >= 0), "Simplex()")

    @property
    def param_shape(self):
        """The shape of the parameters, classes included."""
        return self.logits.shape

    @property
    def mode(self):
        """The likeliest class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape=()):
        classes = self.probs.shape[-1]
        flat = self.probs.detach().reshape(-1, classes)
        n = int(np.prod(tuple(sample_shape)))
        drawn = flat.multinomial(max(n, 1), True).T
        return drawn[:n].reshape(self._extended(sample_shape))

    def log_prob(self, value):
        index = value.long().unsqueeze(-1)
        shape = np.broadcast_shapes(tuple(index.shape)[:-1], tuple(self._batch_shape))
        logits = self.logits.expand(*shape, self.logits.shape[-1])
        return logits.gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self):
        low = float(np.finfo(raw(self.logits).dtype).min)
        return -(self.logits.clamp(min=low) * self.probs).sum(-1)


class OneHotCategorical(Distribution):
    """A Categorical whose draws are one-hot vectors."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        index = self._categorical.sample(sample_shape).unsqueeze(-1)
        return zeros(*index.shape[:-1], self._event_shape[0], dtype=self.probs.dtype).scatter(-1, index, 1.0)

    def log_prob(self, value):
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()


class MultivariateNormal(Distribution):
    """Normal vectors, given a covariance or precision matrix, or the lower triangular factor of the covariance."""

    has_rsample = True
    _parameters = ("loc", "scale_tril")

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if sum(m is not None for m in (covariance_matrix, precision_matrix, scale_tril)) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if scale_tril is None:
            scale_tril = cholesky(covariance_matrix if covariance_matrix is not None else precision_matrix.inverse())
        shape = np.broadcast_shapes(tuple(loc.shape)[:-1], tuple(scale_tril.shape)[:-2])
        n = loc.shape[-1]
        self.loc = loc.expand(*shape, n)
        self.scale_tril = scale_tril.expand(*shape, n, n)
        super().__init__(shape, (n,), validate_args)

    mean = mode = property(lambda self: self.loc)

    @property
    def covariance_matrix(self):
        """scale_tril times its transpose."""
        return matmul(self.scale_tril, self.scale_tril.mT)

    @property
    def precision_matrix(self):
        """The inverse of the covariance."""
        return self.covariance_matrix.inverse()

    @property
    def variance(self):
        """The diagonal of the covariance."""
        return (self.scale_tril**2).sum(-1)

    def rsample(self, sample_shape=()):
        eps = randn(self._extended(sample_shape), dtype=self.loc.dtype)
        return self.loc + matmul(self.scale_tril, eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        difference = (value - self.loc).unsqueeze(-1)
        shape = np.broadcast_shapes(tuple(difference.shape)[:-2], tuple(self.scale_tril.shape)[:-2])
        n = self._event_shape[0]
        y = solve_triangular(self.scale_tril.expand(*shape, n, n), difference.expand(*shape, n, 1), upper=False)
        half_log_det = self.scale_tril.diagonal(0, -2, -1).log().sum(-1)
        return -0.5 * (n * math.log(2 * math.pi) + (y**2).sum((-2, -1))) - half_log_det

    def entropy(self):
        half_log_det = self.scale_tril.diagonal(0, -2, -1).log().sum(-1)
        return 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det


