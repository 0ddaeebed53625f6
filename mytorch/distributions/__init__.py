"""Probability distributions: sampling, densities, entropies, divergences."""

from .distribution import Distribution, Independent
from .divergence import kl_divergence, register_kl
from .families import (
    Bernoulli,
    Beta,
    Categorical,
    Cauchy,
    Chi2,
    Dirichlet,
    Exponential,
    Gamma,
    Geometric,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    Poisson,
    StudentT,
    Uniform,
)
