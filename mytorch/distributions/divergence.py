"""Kullback-Leibler divergences between pairs of distributions."""

import math

from ..linalg import solve_triangular
from ..ops.elementwise import where
from ..ops.special import digamma, lgamma
from .distribution import Independent
from .families import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Exponential,
    Gamma,
    MultivariateNormal,
    Normal,
    Poisson,
    Uniform,
)

_RULES = {}


def register_kl(type_p, type_q):
    """A decorator for the divergence of a pair of classes."""

    def register(function):
        _RULES[type_p, type_q] = function
        return function

    return register


def kl_divergence(p, q):
    """The expectation under p of log p - log q.

    Raises:
        NotImplementedError: no rule for this pair of classes.
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _RULES:
                return _RULES[a, b](p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    a, b = p.probs, q.probs
    first = where(a == 0, 0.0, a * (where(a == 0, 1.0, a) / b).log())
    second = where(a == 1, 0.0, (1 - a) * (where(a == 1, 1.0, 1 - a) / (1 - b)).log())
    return first + second


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    return where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    out = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, out)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b, c, d = p.concentration, p.rate, q.concentration, q.rate
    return c * (b / d).log() + lgamma.caller(c) - lgamma.caller(a) + (a - c) * digamma.caller(a) + (d - b) * (a / b)


@register_kl(Beta, Beta)
def _beta(p, q):
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    psi = digamma.caller
    return q._log_beta() - p._log_beta() + (a - c) * psi(a) + (b - d) * psi(b) + (c - a + d - b) * psi(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    out = lgamma.caller(total) - lgamma.caller(b.sum(-1)) - (lgamma.caller(a) - lgamma.caller(b)).sum(-1)
    return out + ((a - b) * (digamma.caller(a) - digamma.caller(total).unsqueeze(-1))).sum(-1)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    def half_log_det(d):
        return d.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    inner = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    gap = solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    traces = (inner**2).sum((-2, -1)) + (gap**2).sum((-2, -1))
    return half_log_det(q) - half_log_det(p) + 0.5 * (traces - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the two Independent distributions take different numbers of axes as events.")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


