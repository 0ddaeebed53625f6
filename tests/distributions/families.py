"""Random parameters of every family, for the tests in this folder."""

import numpy as np


def real(rng, shape):
    return rng.normal(size=shape)


def positive(rng, shape):
    return rng.uniform(0.3, 3.0, shape)


def large(rng, shape):
    return rng.uniform(4.5, 9.0, shape)


def unit(rng, shape):
    return rng.uniform(0.05, 0.95, shape)


def count(rng, shape):
    return np.full(shape, 7.0)


def simplex(rng, shape):
    p = rng.uniform(0.2, 1.0, (*shape, 4))
    return p / p.sum(-1, keepdims=True)


def vector(kind, n=3):
    return lambda rng, shape: kind(rng, (*shape, n))


def matrix(rng, shape, n=3):
    a = rng.normal(size=(*shape, n, n))
    return a @ np.swapaxes(a, -1, -2) + 2 * np.eye(n)


def tril(rng, shape):
    return np.linalg.cholesky(matrix(rng, shape))


def low(rng, shape):
    return rng.uniform(-2.0, 0.0, shape)


LOGITS = vector(real, 4)
FAMILIES = {
    "Bernoulli": {"probs": unit},
    "Bernoulli-logits": {"logits": real},
    "Beta": {"concentration1": positive, "concentration0": positive},
    "Binomial": {"total_count": count, "probs": unit},
    "Binomial-logits": {"total_count": count, "logits": real},
    "Categorical": {"probs": simplex},
    "Categorical-logits": {"logits": LOGITS},
    "Cauchy": {"loc": real, "scale": positive},
    "Chi2": {"df": positive},
    "ContinuousBernoulli": {"probs": unit},
    "ContinuousBernoulli-logits": {"logits": real},
    "Dirichlet": {"concentration": vector(positive, 4)},
    "Exponential": {"rate": positive},
    "FisherSnedecor": {"df1": large, "df2": large},
    "Gamma": {"concentration": positive, "rate": positive},
    "GeneralizedPareto": {"loc": real, "scale": positive, "concentration": lambda r, s: r.uniform(-0.4, 0.4, s)},
    "Geometric": {"probs": unit},
    "Geometric-logits": {"logits": real},
    "Gumbel": {"loc": real, "scale": positive},
    "HalfCauchy": {"scale": positive},
    "HalfNormal": {"scale": positive},
    "InverseGamma": {"concentration": large, "rate": positive},
    "Kumaraswamy": {"concentration1": positive, "concentration0": positive},
    "LKJCholesky": {"dim": 3, "concentration": positive},
    "Laplace": {"loc": real, "scale": positive},
    "LogNormal": {"loc": real, "scale": unit},
    "LogisticNormal": {"loc": vector(real), "scale": vector(positive)},
    "LowRankMultivariateNormal": {
        "loc": vector(real),
        "cov_factor": lambda r, s: r.normal(size=(*s, 3, 2)),
        "cov_diag": vector(positive),
    },
    "Multinomial": {"total_count": 5, "probs": simplex},
    "Multinomial-logits": {"total_count": 5, "logits": LOGITS},
    "MultivariateNormal": {"loc": vector(real), "covariance_matrix": matrix},
    "MultivariateNormal-precision": {"loc": vector(real), "precision_matrix": matrix},
    "MultivariateNormal-tril": {"loc": vector(real), "scale_tril": tril},
    "NegativeBinomial": {"total_count": positive, "probs": unit},
    "NegativeBinomial-logits": {"total_count": positive, "logits": real},
    "Normal": {"loc": real, "scale": positive},
    "OneHotCategorical": {"probs": simplex},
    "OneHotCategorical-logits": {"logits": LOGITS},
    "OneHotCategoricalStraightThrough": {"probs": simplex},
    "Pareto": {"scale": positive, "alpha": large},
    "Poisson": {"rate": positive},
    "RelaxedBernoulli": {"temperature": lambda r, s: np.array(0.7), "probs": unit},
    "RelaxedBernoulli-logits": {"temperature": lambda r, s: np.array(0.7), "logits": real},
    "RelaxedOneHotCategorical": {"temperature": lambda r, s: np.array(0.7), "probs": simplex},
    "RelaxedOneHotCategorical-logits": {"temperature": lambda r, s: np.array(0.7), "logits": LOGITS},
    "StudentT": {"df": large, "loc": real, "scale": positive},
    "Uniform": {"low": low, "high": positive},
    "VonMises": {"loc": real, "concentration": lambda r, s: r.uniform(0.3, 8.0, s)},
    "Weibull": {"scale": positive, "concentration": lambda r, s: r.uniform(1.2, 3.0, s)},
    "Wishart": {"df": large, "covariance_matrix": matrix},
    "Wishart-precision": {"df": large, "precision_matrix": matrix},
    "Wishart-tril": {"df": large, "scale_tril": tril},
}

BATCHES = [(), (3,), (2, 3)]


def parameters(rng, case, shape):
    """NumPy parameters of a case for a batch shape; ints as they are."""
    return {k: v(rng, shape) if callable(v) else v for k, v in FAMILIES[case].items()}


def build(lib, case, values, grad=False, dtype=None):
    """(the distribution, its tensors by name)."""
    made = {
        k: v if isinstance(v, int) else lib.tensor(np.asarray(v, dtype), requires_grad=grad) for k, v in values.items()
    }
    return getattr(lib.distributions, case.split("-")[0])(**made), {
        k: v for k, v in made.items() if not isinstance(v, int)
    }


def array(x):
    """Any tensor's numbers."""
    return np.asarray(x.detach().numpy() if hasattr(x, "detach") else x)


def close(a, b, rtol=1e-10, atol=1e-12):
    np.testing.assert_allclose(array(a), array(b), rtol=rtol, atol=atol)


def mixture(lib, rng_seed=0):
    """Two mixtures: of single numbers, and of vectors."""
    rng = np.random.default_rng(rng_seed)
    weights, means, scales = (rng.uniform(0.1, 1, (2, 3)), rng.normal(size=(2, 3)), rng.uniform(0.3, 2, (2, 3)))
    d = lib.distributions
    t = lib.tensor
    scalar = d.MixtureSameFamily(d.Categorical(t(weights)), d.Normal(t(means), t(scales)))
    wide = d.Independent(d.Normal(t(np.stack([means, -means], -1)), t(np.stack([scales, scales], -1))), 1)
    return scalar, d.MixtureSameFamily(d.Categorical(t(weights)), wide)
