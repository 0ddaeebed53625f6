"""Probability distributions: sampling, log-densities, entropies and Kullback-Leibler divergences."""

import sys
import types

from . import constraints, kl, transforms, utils
from .compound import *  # noqa: F403
from .constraint_registry import biject_to, transform_to
from .continuous import *  # noqa: F403
from .discrete import *  # noqa: F403
from .distribution import Distribution, ExponentialFamily
from .kl import kl_divergence, register_kl
from .matrix import *  # noqa: F403
from .transformed import *  # noqa: F403
from .transforms import *  # noqa: F403

# PyTorch has one module per family, for imports such as `from mytorch.distributions.normal import Normal`.
_MODULES = """
    bernoulli:Bernoulli beta:Beta binomial:Binomial categorical:Categorical cauchy:Cauchy chi2:Chi2
    continuous_bernoulli:ContinuousBernoulli dirichlet:Dirichlet exp_family:ExponentialFamily exponential:Exponential
    fishersnedecor:FisherSnedecor gamma:Gamma generalized_pareto:GeneralizedPareto geometric:Geometric gumbel:Gumbel
    half_cauchy:HalfCauchy half_normal:HalfNormal independent:Independent inverse_gamma:InverseGamma
    kumaraswamy:Kumaraswamy laplace:Laplace lkj_cholesky:LKJCholesky log_normal:LogNormal logistic_normal:LogisticNormal
    lowrank_multivariate_normal:LowRankMultivariateNormal mixture_same_family:MixtureSameFamily multinomial:Multinomial
    multivariate_normal:MultivariateNormal negative_binomial:NegativeBinomial normal:Normal
    one_hot_categorical:OneHotCategorical,OneHotCategoricalStraightThrough pareto:Pareto poisson:Poisson
    relaxed_bernoulli:LogitRelaxedBernoulli,RelaxedBernoulli studentT:StudentT uniform:Uniform von_mises:VonMises
    relaxed_categorical:ExpRelaxedCategorical,RelaxedOneHotCategorical weibull:Weibull wishart:Wishart
    transformed_distribution:TransformedDistribution
"""
__all__ = ["Distribution", "biject_to", "kl_divergence", "register_kl", "transform_to", *transforms.__all__]
for _name, _classes in (entry.split(":") for entry in _MODULES.split()):
    _names = _classes.split(",")
    _module = types.ModuleType(f"{__name__}.{_name}", f"The module of {_names[0]}, as in PyTorch.")
    _module.__dict__.update({n: globals()[n] for n in (*_names, "Distribution", "constraints")}, __all__=_names)
    sys.modules[_module.__name__] = globals()[_name] = _module
    __all__ += _names
