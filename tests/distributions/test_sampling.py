"""Draws: equal seeds, moments, and the gradients that pass through them."""

from decimal import Decimal, getcontext

import numpy as np
import pytest

import mytorch
from mytorch.distributions import implicit
from tests.loops import loop

from .families import FAMILIES, array, build, close, parameters

every_case = pytest.mark.parametrize("case", list(FAMILIES))

# Families that are drawn from uniform and normal numbers, as PyTorch draws them.
SAME_SEED = [
    "Cauchy",
    "ContinuousBernoulli",
    "ContinuousBernoulli-logits",
    "Exponential",
    "GeneralizedPareto",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Kumaraswamy",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MultivariateNormal",
    "MultivariateNormal-precision",
    "MultivariateNormal-tril",
    "Normal",
    "Pareto",
    "RelaxedBernoulli",
    "RelaxedBernoulli-logits",
    "RelaxedOneHotCategorical",
    "RelaxedOneHotCategorical-logits",
    "Uniform",
    "VonMises",
    "Weibull",
    "Geometric",
    "Geometric-logits",
    "Categorical",
    "OneHotCategorical",
    "Multinomial",
]


def both(torch, case, shape, **options):
    values = parameters(np.random.default_rng(0), case, shape)
    return [build(lib, case, values, **options) for lib in (mytorch, torch)]


@loop
@pytest.mark.parametrize("case", SAME_SEED)
@pytest.mark.parametrize(("shape", "draws"), [((), ()), ((3,), (4, 5)), ((2, 3), (3,))], ids=str)
def test_equal_seeds_draw_the_same_numbers_as_pytorch(case, shape, draws, torch):
    (mine, _), (theirs, _) = both(torch, case, shape)
    mytorch.manual_seed(3), torch.manual_seed(3)
    close(mine.sample(draws), theirs.sample(draws), rtol=1e-9)


@pytest.mark.parametrize("case", ["Normal", "Uniform", "Exponential", "Cauchy", "Laplace", "Gumbel", "Categorical"])
@pytest.mark.parametrize("draws", [(), (40,)], ids=str)
def test_equal_seeds_in_float32(case, draws, torch):
    (mine, _), (theirs, _) = both(torch, case, (3,), dtype=np.float32)
    mytorch.manual_seed(3), torch.manual_seed(3)
    close(mine.sample(draws), theirs.sample(draws), rtol=2e-4, atol=1e-5)


@loop
@every_case
def test_draws_have_the_right_moments(case, torch):
    (d, _), _ = both(torch, case, (3,))
    n = 20_000
    draws = d.sample((n,))
    assert tuple(draws.shape) == (n, *d.batch_shape, *d.event_shape)
    assert not draws.requires_grad
    assert bool(d.support.check(draws).all())
    try:
        mean, variance = d.mean, d.variance
    except NotImplementedError:
        return
    if case == "VonMises":  # its moments are circular
        variance, found = variance, 1 - (draws - mean).cos().mean(0)
        np.testing.assert_allclose(array(found), array(variance), atol=0.02)
        return
    if not bool(mytorch.isfinite(mean).all() and mytorch.isfinite(variance).all()):
        return
    error = (draws.mean(0) - mean).abs() / (variance / n).sqrt()
    assert error.max().item() < 5.5
    if case not in ("FisherSnedecor", "InverseGamma", "Pareto", "StudentT", "GeneralizedPareto", "LogNormal"):
        np.testing.assert_allclose(array(draws.var(0)), array(variance), rtol=0.15, atol=1e-3)


def _has_rsample(case):
    return build(mytorch, case, parameters(np.random.default_rng(0), case, (3,)))[0].has_rsample


SMOOTH = [
    c for c in FAMILIES if _has_rsample(c) and c not in ("Cauchy", "HalfCauchy", "OneHotCategoricalStraightThrough")
]


@loop
@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_through_draws_are_those_of_expectations(case):
    """d/dp E[f(x)] = E[f d/dp log p(x)]: the score function's estimate is the truth.

    f is bounded, not symmetric, and of about one period over the draws.
    """
    values = parameters(np.random.default_rng(0), case, ())
    n = 40_000
    d, held = build(mytorch, case, values, grad=True)
    held.pop("temperature", None)
    x = d.rsample((n,))
    centre, spread = x.detach().median(0)[0], x.detach().std(0) + 1e-9
    weight = np.random.default_rng(1).uniform(0.5, 1.5, tuple(d.event_shape)) / max(1, np.prod(d.event_shape)) ** 0.5
    weight = mytorch.tensor(weight) / spread

    def f(x):
        z = (x - centre) * weight
        return (0.7 * (z.sum(tuple(range(1, x.ndim))) if x.ndim > 1 else z) + 0.3).sin()

    f(x).mean().backward()
    pathwise = {k: np.array(np.zeros(tuple(t.shape)) if t.grad is None else t.grad) for k, t in held.items()}
    if case.startswith(("Uniform", "GeneralizedPareto", "Pareto", "Relaxed")):
        return  # no score: the support depends on the parameters, or the density is on a submanifold
    for k, t in held.items():
        flat = []
        for part in range(8):
            d, again = build(mytorch, case, values, grad=True)
            draws = d.sample((n,))
            centred = f(draws) - f(draws).mean()
            (centred.detach() * d.log_prob(draws)).mean().backward()
            flat.append(np.asarray(again[k].grad))
        truth, error = np.mean(flat, 0), np.std(flat, 0) / np.sqrt(7) + 2e-3
        mine, symmetric = pathwise[k], k.endswith("matrix")
        if symmetric:  # either triangle may carry the gradient
            mine, truth = mine + np.swapaxes(mine, -1, -2), truth + np.swapaxes(truth, -1, -2)
        if k == "scale_tril":
            mine, truth = np.tril(mine), np.tril(truth)
        assert (np.abs(mine - truth) < 7 * error).all(), (k, mine, truth, error)


def test_gamma_gradient_against_differences_of_the_distribution_function(torch):
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-1.5, 2.0, 3000)
    x = np.maximum(rng.gamma(a), 1e-200)
    h = 1e-4 * a

    def tail(shape, upper):
        f = torch.special.gammaincc if upper else torch.special.gammainc
        return (-1 if upper else 1) * f(torch.tensor(shape), torch.tensor(x)).numpy()

    upper = tail(a, False) > 0.5
    slope = np.where(
        upper,
        *(
            (8 * (tail(a + h, u) - tail(a - h, u)) - tail(a + 2 * h, u) + tail(a - 2 * h, u)) / (12 * h)
            for u in (True, False)
        ),
    )
    density = np.exp((a - 1) * np.log(x) - x - torch.lgamma(torch.tensor(a)).numpy())
    np.testing.assert_allclose(implicit.gamma_gradient(x, a), -slope / density, rtol=2e-6)
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()  # an approximation to 1e-3
    np.testing.assert_allclose(implicit.gamma_gradient(x, a), theirs, rtol=1e-3)


@pytest.mark.parametrize("exponents", [(-2, 0), (-1, 1), (0, 2), (1, 4)])
def test_beta_gradient_against_pytorch_and_finer_quadrature(exponents, torch, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = 10 ** rng.uniform(*exponents, (2, 2000))
    x = np.clip(rng.beta(a, b), 1e-300, 1 - 1e-14)
    mine = implicit.beta_gradient(x, a, b)
    theirs = torch._dirichlet_grad(torch.tensor(x), torch.tensor(a), torch.tensor(a + b)).numpy() * (1 - x)
    np.testing.assert_allclose(mine, theirs, rtol=2e-3)  # an approximation to 1e-3
    t = np.arange(-3.6, 4.0, 0.02)
    nodes = np.exp(t - np.exp(-t))
    monkeypatch.setattr(implicit, "_NODES", nodes)
    monkeypatch.setattr(implicit, "_WEIGHTS", 0.02 * nodes * (1 + np.exp(-t)))
    np.testing.assert_allclose(mine, implicit.beta_gradient(x, a, b), rtol=1e-7)


def test_gamma_distribution_function_and_its_gradients(torch):
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-1.5, 3.0, 2000)
    x = rng.gamma(a) + 1e-12
    mine, theirs = mytorch.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    concentration = mytorch.tensor(a, requires_grad=True)
    out = implicit.gamma_cdf(mine, concentration)
    wanted = torch.special.gammainc(torch.tensor(a), theirs)
    close(out, wanted, rtol=1e-8)  # PyTorch's result has an error of 3e-9: see the next test
    out.sum().backward(), wanted.sum().backward()
    close(mine.grad, theirs.grad, rtol=1e-8)
    h = 1e-5 * a
    above, below = (torch.special.gammainc(torch.tensor(s), torch.tensor(x)).numpy() for s in (a + h, a - h))
    np.testing.assert_allclose(np.asarray(concentration.grad), (above - below) / (2 * h), rtol=1e-4, atol=1e-7)
    zero = implicit.gamma_cdf(mytorch.tensor([0.0, 1e9]), mytorch.tensor([2.0, 2.0]))
    assert zero.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("a", "x"), [(0.3, 0.01), (38.45, 30.4), (404.9, 398.2), (5.0, 9.0), (900.0, 950.0)])
def test_gamma_distribution_function_against_50_digits(a, x):
    getcontext().prec = 50
    shape, point = Decimal(a), Decimal(x)
    term = total = 1 / shape
    for n in range(1, 4000):
        term *= point / (shape + n)
        total += term
    z, log_gamma = shape, Decimal(0)  # Stirling's series, moved up to where it is exact
    while z < 80:
        log_gamma, z = log_gamma - z.ln(), z + 1
    pi = Decimal("3.14159265358979323846264338327950288419716939937511")
    log_gamma += (z - Decimal("0.5")) * z.ln() - z + (2 * pi).ln() / 2
    for k, d in enumerate((12, -360, 1260, -1680, 1188)):
        log_gamma += 1 / (d * z ** (2 * k + 1))
    truth = (shape * point.ln() - point - log_gamma).exp() * total
    found = implicit.gamma_cdf(*(mytorch.tensor(np.float64(v)) for v in (x, a))).item()
    assert abs(found / float(truth) - 1) < 1e-11


@pytest.mark.parametrize("case", ["Gamma", "Beta", "Dirichlet", "StudentT", "Chi2", "FisherSnedecor"])
def test_extreme_concentrations_stay_finite(case):
    for scale in (1e-3, 1e4):
        values = {
            k: scale * np.asarray(v) if k not in ("loc", "scale", "rate") else v
            for k, v in parameters(np.random.default_rng(0), case, (200,)).items()
        }
        d, held = build(mytorch, case, values, grad=True)
        draws = d.rsample()
        draws.clamp(max=1e100).sum().backward()
        if case in ("Gamma", "Beta", "Dirichlet", "Chi2"):
            assert all(np.isfinite(np.asarray(t.grad)).all() for t in held.values()), scale


def test_straight_through_gradient():
    logits = mytorch.tensor([[0.1, 0.5, -0.3]], requires_grad=True)
    d = mytorch.distributions.OneHotCategoricalStraightThrough(logits=logits)
    x = d.rsample((5,))
    assert set(np.round(array(x), 6).ravel()) <= {0.0, 1.0}
    x[..., 0].sum().backward()
    p = array(d.probs)[0]
    np.testing.assert_allclose(np.asarray(logits.grad)[0], 5 * p[0] * (np.eye(3)[0] - p), rtol=1e-5)


def test_policy_gradient_shapes():
    logits = mytorch.zeros(5, 3, requires_grad=True)
    policy = mytorch.distributions.Categorical(logits=logits)
    action = policy.sample()
    (-policy.log_prob(action) * mytorch.ones(5)).mean().backward()
    assert logits.grad is not None


def test_sample_n_warns_and_draws():
    d = mytorch.distributions.Normal(mytorch.zeros(2), 1.0)
    with pytest.warns(FutureWarning, match="sample_n"):
        assert d.sample_n(3).shape == (3, 2)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e-40, 1e-10, 1e-5, 0.3, 1e4])
def test_draws_of_tiny_concentrations_are_finite(size, dtype):
    a = mytorch.full((3,), size, dtype=getattr(mytorch, dtype))
    for name, arguments in {
        "Dirichlet": (a,),
        "Beta": (a, a),
        "Gamma": (a, mytorch.ones_like(a)),
        "Chi2": (a,),
    }.items():
        own = [v.clone().requires_grad_() for v in arguments]
        draws = getattr(mytorch.distributions, name)(*own, validate_args=False).rsample((20,))
        (draws * draws).sum().backward()
        assert not draws.isnan().any(), name
        assert not own[0].grad.isnan().any(), name
        assert not getattr(mytorch.distributions, name)(*arguments, validate_args=False).sample((20,)).isnan().any(), (
            name
        )
