"""Probability distributions: sampling, densities, entropies, divergences."""

import sys
import types

from . import constraints, kl, transforms, utils
from .compound import Independent, MixtureSameFamily, TransformedDistribution
from .constraint_registry import biject_to, transform_to
from .distribution import Distribution, ExponentialFamily
from .families_continuous import (
    Beta,
    Cauchy,
    Chi2,
    ContinuousBernoulli,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
    Laplace,
    Normal,
    StudentT,
    Uniform,
    VonMises,
)
from .families_discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from .families_matrix import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart
from .families_transformed import (
    ExpRelaxedCategorical,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogitRelaxedBernoulli,
    LogNormal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    Weibull,
)
from .kl import kl_divergence, register_kl
from .transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

# PyTorch has a module for each family, from which programs import:
# `from mytorch.distributions.normal import Normal`.
_MODULES = {
    "bernoulli": (Bernoulli,),
    "beta": (Beta,),
    "binomial": (Binomial,),
    "categorical": (Categorical,),
    "cauchy": (Cauchy,),
    "chi2": (Chi2,),
    "continuous_bernoulli": (ContinuousBernoulli,),
    "dirichlet": (Dirichlet,),
    "exp_family": (ExponentialFamily,),
    "exponential": (Exponential,),
    "fishersnedecor": (FisherSnedecor,),
    "gamma": (Gamma,),
    "generalized_pareto": (GeneralizedPareto,),
    "geometric": (Geometric,),
    "gumbel": (Gumbel,),
    "half_cauchy": (HalfCauchy,),
    "half_normal": (HalfNormal,),
    "independent": (Independent,),
    "inverse_gamma": (InverseGamma,),
    "kumaraswamy": (Kumaraswamy,),
    "laplace": (Laplace,),
    "lkj_cholesky": (LKJCholesky,),
    "log_normal": (LogNormal,),
    "logistic_normal": (LogisticNormal,),
    "lowrank_multivariate_normal": (LowRankMultivariateNormal,),
    "mixture_same_family": (MixtureSameFamily,),
    "multinomial": (Multinomial,),
    "multivariate_normal": (MultivariateNormal,),
    "negative_binomial": (NegativeBinomial,),
    "normal": (Normal,),
    "one_hot_categorical": (OneHotCategorical, OneHotCategoricalStraightThrough),
    "pareto": (Pareto,),
    "poisson": (Poisson,),
    "relaxed_bernoulli": (LogitRelaxedBernoulli, RelaxedBernoulli),
    "relaxed_categorical": (ExpRelaxedCategorical, RelaxedOneHotCategorical),
    "studentT": (StudentT,),
    "transformed_distribution": (TransformedDistribution,),
    "uniform": (Uniform,),
    "von_mises": (VonMises,),
    "weibull": (Weibull,),
    "wishart": (Wishart,),
}
for _name, _classes in _MODULES.items():
    _module = types.ModuleType(f"{__name__}.{_name}", f"{_classes[0].__name__}, where PyTorch keeps it.")
    _module.__dict__.update({c.__name__: c for c in _classes}, __all__=[c.__name__ for c in _classes])
    sys.modules[_module.__name__] = globals()[_name] = _module

__all__ = [
    *(c.__name__ for classes in _MODULES.values() for c in classes),
    "Distribution",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
    *transforms.__all__,
]
