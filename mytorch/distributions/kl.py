"""Kullback-Leibler divergences between pairs of distributions, by their classes."""

import math
import warnings
from collections.abc import Callable
from typing import Any

from ..arrays.tensor import Tensor
from ..linalg import solve_triangular
from ..ops.activation import softplus
from ..ops.creation import full_like
from ..ops.elementwise import where
from ..ops.linalg import matmul
from .compound import Independent, TransformedDistribution
from .continuous import Beta, Cauchy, ContinuousBernoulli, Dirichlet, Exponential, Gamma, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import Distribution, ExponentialFamily
from .matrix import LowRankMultivariateNormal, MultivariateNormal, log_diagonal, mahalanobis
from .transformed import Gumbel, HalfNormal, Pareto
from .utils import euler_constant, joint_shape, size, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

Rule = Callable[[Any, Any], Tensor]  # function of two distributions
_RULES: dict[tuple[type, type], Rule] = {}
_LOG_2PI = math.log(2 * math.pi)


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Rule], Rule]:
    """Decorates a function f(p, q) that computes the divergence for two classes and their subclasses.

    Args:
        type_p: class of p.
        type_q: class of q.

    Raises:
        TypeError: if an argument is not a class. As in PyTorch, other classes than distributions are accepted.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function):
        _RULES[type_p, type_q] = function
        return function

    return register


def _find(type_p, type_q):
    """Return the rule of the nearest base classes. The distance of p decides; warn if the distance of q would differ."""
    fitting = [(a, b) for a, b in _RULES if issubclass(type_p, a) and issubclass(type_q, b)]
    if not fitting:
        return None
    far_p, far_q = type_p.__mro__.index, type_q.__mro__.index
    by_p = min(fitting, key=lambda m: (far_p(m[0]), far_q(m[1])))
    by_q = min(fitting, key=lambda m: (far_q(m[1]), far_p(m[0])))
    if _RULES[by_p] is not _RULES[by_q]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _RULES[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Computes the Kullback-Leibler divergence, the expectation of log p - log q under p, with their batch shape.

    Args:
        p: a distribution.
        q: a distribution.

    Raises:
        NotImplementedError: if no rule exists for the classes.

    Example:
        >>> D = mytorch.distributions
        >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(tensor([0.0, 2.0]), 1.0)).tolist()
        [0.0, 2.0]
    """
    rule = _find(type(p), type(q))
    if rule is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return rule(p, q)


# -- one family ------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, one))
    return one + where(p.probs == 1, 0.0, where(q.probs == 1, math.inf, zero))


@register_kl(Beta, Beta)
def _beta(p, q):
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    shifts = (a - c) * a.digamma() + (b - d) * b.digamma() + (c + d - a - b) * (a + b).digamma()
    return q._log_beta() - p._log_beta() + shifts


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    return where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, terms)).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    normalizers = p._cont_bern_log_norm() - q._cont_bern_log_norm()
    return p.mean * (p.logits - q.logits) + normalizers + (-p.probs).log1p() - (-q.probs).log1p()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b, total = p.concentration, q.concentration, p.concentration.sum(-1)
    out = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return out + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """Compute the Bregman divergence of the normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    natural, normalizer, gradients = p._bregman_parts()
    result = q._log_normalizer(*q._natural_params) - normalizer
    for a, b, g in zip(natural, q._natural_params, gradients, strict=True):
        term = (b - a) * g
        result = result - sum_rightmost(term, term.ndim - result.ndim)
    return result


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b, c, d = p.concentration, p.rate, q.concentration, q.rate
    return c * (b / d).log() + c.lgamma() - a.lgamma() + (a - c) * a.digamma() + (d - b) * (a / b)


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, gap = p.scale / q.scale, (q.loc - p.loc) / q.scale
    tail = (gap + (1 + ratio).lgamma()).exp()
    return ratio * euler_constant + tail - ratio.log() - gap - (1 + euler_constant)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, gap = p.scale / q.scale, (p.loc - q.loc).abs()
    return gap / q.scale + ratio * (-gap / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _paretos(p, q):
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, result)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: expected equal transforms of p and q, got different ones.")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p, q):
    n = p.reinterpreted_batch_ndims
    if n != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "kl_divergence: expected equal reinterpreted_batch_ndims of p and q, got different ones."
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), n)


# -- normal vectors: 1/2 (log det q - log det p + tr(q^-1 p) + distance of the means - n) ----------


def _vectors(p, log_dets, trace, distance):
    return 0.5 * (log_dets + trace + distance - p.event_shape[0])


def _same_events(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )


def _squares(factor, *others):
    """Sum the squares of L^-1 M for each matrix M: the trace of (L L^T)^-1 M M^T."""
    total = 0.0
    for m in others:
        batch = joint_shape(factor.shape[:-2], m.shape[:-2])
        left, right = (factor.expand(size(batch, factor.shape[-2:])), m.expand(size(batch, m.shape[-2:])))
        total = total + (solve_triangular(left, right, upper=False) ** 2).sum((-2, -1))
    return total


def _low_rank_trace(q, *others):
    """Compute the trace of the precision of q times M M^T for each matrix M."""
    reduced, root = q._reduced(), q._D.rsqrt().unsqueeze(-1)
    return sum(((m * root) ** 2).sum((-2, -1)) - (matmul(reduced, m) ** 2).sum((-2, -1)) for m in others)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    _same_events(p, q)
    log_dets = 2 * (log_diagonal(q._unbroadcasted_scale_tril) - log_diagonal(p._unbroadcasted_scale_tril))
    trace = _squares(q._unbroadcasted_scale_tril, p._unbroadcasted_scale_tril)
    return _vectors(p, log_dets, trace, mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p, q):
    _same_events(p, q)
    log_dets = q.log_determinant() - p.log_determinant()
    trace = _low_rank_trace(q, p._W, p._D.sqrt().diag_embed())
    return _vectors(p, log_dets, trace, q.distance(q.loc - p.loc))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_low_rank(p, q):
    _same_events(p, q)
    log_dets = q.log_determinant() - 2 * log_diagonal(p._unbroadcasted_scale_tril)
    return _vectors(p, log_dets, _low_rank_trace(q, p._unbroadcasted_scale_tril), q.distance(q.loc - p.loc))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_multivariate(p, q):
    _same_events(p, q)
    log_dets = 2 * log_diagonal(q._unbroadcasted_scale_tril) - p.log_determinant()
    trace = _squares(q._unbroadcasted_scale_tril, p._W, p._D.sqrt().diag_embed())
    return _vectors(p, log_dets, trace, mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc))


# -- two families: minus the entropy of p, minus the mean of log q under p -------------------------


def _infinite(p, q):
    """Return infinity, because q is zero on a part of the support of p."""
    return full_like(p._like.detach().expand(joint_shape(p.batch_shape, q.batch_shape)), math.inf)


def _of_moments_normal(p, q):
    """Compute the divergence from a normal q, which depends only on the mean and variance of p."""
    squares = (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2)
    return -p.entropy() + 0.5 * _LOG_2PI + q.scale.log() + squares


def _of_mean_exponential(p, q):
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _gamma_of(p, q, mean_log):
    """Compute the divergence from a gamma distribution; mean_log is the mean of log x under p."""
    a, b = q.concentration, q.rate
    return a.lgamma() - a * b.log() - (a - 1) * mean_log + b * p.mean - p.entropy()


def _pareto(least, rule):
    """Return a rule for a Pareto p. Its moments are infinite unless alpha > least."""

    def guarded(p, q):
        far = p.alpha > least
        safe = Pareto(p.scale, where(far, p.alpha, least + 1.0), validate_args=False)
        return where(far, rule(safe, q), math.inf)

    return guarded


def _uniform_above_zero(rule):
    """Return a rule for a uniform p, which is infinite if p has values below 0."""
    return lambda p, q: where(p.low < 0, math.inf, rule(p, q))


def _mean_log(low, high):
    """Return the mean of log x for x uniform in [low, high]."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    log, log_rest = _mean_log(p.low, p.high), _mean_log(1 - p.high, 1 - p.low)
    result = q._log_beta() - (q.concentration1 - 1) * log - (q.concentration0 - 1) * log_rest - p.entropy()
    return where((p.high > 1) | (p.low < 0), math.inf, result)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    log_q = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p.low, p.high)
    return where(p.low < q.scale, math.inf, -p.entropy() - log_q)


def _of_mean_continuous_bernoulli(p, q):
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _unit_uniform(p, q):
    result = (q.high - q.low).log() - p.entropy()
    return where((q.low > 0) | (q.high < 1), math.inf, result)


def _gumbel_of(p, q, mean, mean_exp):
    """Compute the divergence from a Gumbel distribution; mean_exp is the mean of exp(-x / q.scale) under p."""
    location = q.loc / q.scale
    return q.scale.log() + mean / q.scale - location + location.exp() * mean_exp - p.entropy()


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p, q):
    product = p.rate * q.scale
    return _gumbel_of(p, q, p.mean, product / (product + 1))


@register_kl(Normal, Gumbel)
def _normal_gumbel(p, q):
    mean_exp = (0.5 * (p.scale / q.scale) ** 2 - p.loc / q.scale).exp()
    return _gumbel_of(p, q, p.loc, mean_exp)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p, q):
    gap = (-p.low / q.scale).exp() - (-p.high / q.scale).exp()
    return _gumbel_of(p, q, p.mean, gap * q.scale / (p.high - p.low))


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    gap = p.loc - q.loc
    z = gap / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z**2).exp() + gap * (math.sqrt(0.5) * z).erf()
    return (2 * q.scale).log() + distance / q.scale - p.entropy()


# -- pairs with a single expression ------------------------------------------------------------------------------------

_ON_REALS = (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_INFINITE = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
    **dict.fromkeys((Gumbel, Laplace, Normal), _ON_REALS),
}
_OF_ONE_EXPRESSION: dict[tuple[type, type], Rule] = {
    **{(p, q): _infinite for p, others in _INFINITE.items() for q in others},
    **{
        (p, Normal): _of_moments_normal
        for p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Uniform)
    },
    **{(p, Exponential): _of_mean_exponential for p in (Beta, ContinuousBernoulli, Gamma)},
    **{(p, Uniform): _unit_uniform for p in (Beta, ContinuousBernoulli)},
    (OneHotCategorical, OneHotCategorical): lambda p, q: _categorical(p._categorical, q._categorical),
    (Exponential, Exponential): lambda p, q: q.rate / p.rate - (q.rate / p.rate).log() - 1,
    (Geometric, Geometric): lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits,
    (HalfNormal, HalfNormal): lambda p, q: _normal(p.base_dist, q.base_dist),
    (Poisson, Poisson): lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
    (Bernoulli, Poisson): lambda p, q: q.rate - p.probs * q.rate.log() - p.entropy(),
    (Pareto, Normal): _pareto(2, _of_moments_normal),
    (Pareto, Exponential): _pareto(1, _of_mean_exponential),
    (Pareto, Gamma): _pareto(1, lambda p, q: _gamma_of(p, q, p.scale.log() + p.alpha.reciprocal())),
    (Exponential, Gamma): lambda p, q: _gamma_of(p, q, -euler_constant - p.rate.log()),
    (Beta, Gamma): lambda p, q: _gamma_of(
        p, q, p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    ),
    (Uniform, Gamma): _uniform_above_zero(lambda p, q: _gamma_of(p, q, _mean_log(p.low, p.high))),
    (Uniform, Exponential): _uniform_above_zero(_of_mean_exponential),
    (Beta, ContinuousBernoulli): _of_mean_continuous_bernoulli,
    (Uniform, ContinuousBernoulli): lambda p, q: where(
        (p.high > 1) | (p.low < 0), math.inf, _of_mean_continuous_bernoulli(p, q)
    ),
    (Gamma, Gumbel): lambda p, q: _gumbel_of(p, q, p.mean, (1 + (p.rate * q.scale).reciprocal()) ** -p.concentration),
}
_RULES |= _OF_ONE_EXPRESSION
