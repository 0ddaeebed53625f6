"""Divergences of all of PyTorch's pairs against PyTorch, the registry, and the infinite cases."""

import math

import numpy as np
import pytest

import mytorch
from mytorch.distributions import kl
from tests.loops import loop

from .families import FAMILIES, build, close, parameters

D = mytorch.distributions
PAIRS = sorted((p.__name__, q.__name__) for p, q in kl._RULES)
SIMPLE = [(p, q) for p, q in PAIRS if p in FAMILIES and q in FAMILIES]
INSIDE = {  # parameters for which the divergence is finite where it can be
    ("Uniform", "Beta"): ({"low": (0.1, 0.3), "high": (0.5, 0.9)}, {}),
    ("Uniform", "ContinuousBernoulli"): ({"low": (0.1, 0.3), "high": (0.5, 0.9)}, {}),
    ("Uniform", "Exponential"): ({"low": (0.1, 0.3), "high": (0.5, 0.9)}, {}),
    ("Uniform", "Gamma"): ({"low": (0.1, 0.3), "high": (0.5, 0.9)}, {}),
    ("Uniform", "Pareto"): ({"low": (3.1, 3.3), "high": (3.5, 3.9)}, {}),
    ("Uniform", "Uniform"): ({"low": (0.1, 0.3), "high": (0.5, 0.9)}, {"low": (-1.0, 0.0), "high": (1.0, 2.0)}),
    ("Beta", "Uniform"): ({}, {"low": (-1.0, -0.1), "high": (1.1, 2.0)}),
    ("Pareto", "Pareto"): ({"scale": (2.0, 3.0)}, {"scale": (0.5, 1.5)}),
}


def torch_classes(torch):
    return {(p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY}


def test_all_pairs_are_here(torch):
    assert torch_classes(torch) == set(PAIRS)


def compare(torch, p_case, q_case, shapes, overrides=({}, {})):
    rng = np.random.default_rng(0)
    values = [parameters(rng, case, shape) for case, shape in zip((p_case, q_case), shapes, strict=True)]
    for held, shape, changed in zip(values, shapes, overrides, strict=True):
        held.update({k: rng.uniform(*ends, shape) for k, ends in changed.items()})
    found = []
    for lib in (mytorch, torch):
        made = [build(lib, case, v, grad=True) for case, v in zip((p_case, q_case), values, strict=True)]
        out = lib.distributions.kl_divergence(made[0][0], made[1][0])
        g = np.random.default_rng(1).normal(size=tuple(out.shape))
        gradients = []
        if out.requires_grad:
            (lib.where(lib.isfinite(out), out, lib.zeros_like(out)) * lib.tensor(g)).sum().backward()
            for side, (_, tensors) in zip("pq", made, strict=True):
                for k, t in tensors.items():
                    grad = np.zeros(tuple(t.shape)) if t.grad is None else np.asarray(t.grad)
                    gradients.append((side, k, np.tril(grad) if k == "scale_tril" else grad))
        found.append((out.detach().numpy(), gradients))
    (mine, my_gradients), (theirs, their_gradients) = found
    np.testing.assert_allclose(*np.broadcast_arrays(mine, theirs), rtol=1e-9, atol=1e-11)
    if np.isfinite(theirs).all():
        for (_, _, a), (_, _, b) in zip(my_gradients, their_gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)
    return theirs


@loop
@pytest.mark.parametrize(("number", "p", "q"), [(i, *pair) for i, pair in enumerate(SIMPLE)])
def test_pairs(number, p, q, torch):
    shapes = 2 * (((), (3,), (2, 3))[number % 3],)
    finite = compare(torch, p, q, shapes, INSIDE.get((p, q), ({}, {})))
    if (p, q) in INSIDE:
        assert np.isfinite(finite).all()


@loop
@pytest.mark.parametrize(("p", "q"), SIMPLE)
def test_pairs_broadcast(p, q):
    rng = np.random.default_rng(0)
    a, b = (build(mytorch, p, parameters(rng, p, (4, 1)))[0], build(mytorch, q, parameters(rng, q, (3,)))[0])
    joint = D.kl_divergence(a, b)
    assert tuple(joint.shape) == (4, 3)
    alone = D.kl_divergence(a.expand((4, 3)), b.expand((4, 3)))
    close(joint, alone)


@pytest.mark.parametrize("case", ["LogNormal", "Wishart", "StudentT", "InverseGamma", "Weibull"])
def test_pairs_by_inheritance(case, torch):
    """Transformed distributions by their bases, exponential families by their normalizers."""
    values = parameters(np.random.default_rng(0), case, (3,))
    mine, theirs = (build(lib, case, values)[0] for lib in (mytorch, torch))
    try:
        wanted = torch.distributions.kl_divergence(theirs, theirs)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match=case):
            D.kl_divergence(mine, mine)
        return
    close(wanted, np.zeros(tuple(wanted.shape)), atol=1e-9)
    close(D.kl_divergence(mine, mine), np.zeros(3), atol=1e-9)


@pytest.mark.parametrize("case", ["Wishart", "LogNormal"])
def test_inherited_rules_of_different_parameters(case, torch):
    rng = np.random.default_rng(0)
    shape = () if case == "Wishart" else (3,)  # PyTorch sums its divergences over the batch
    first, second = parameters(rng, case, shape), parameters(rng, case, shape)
    mine = D.kl_divergence(*(build(mytorch, case, v)[0] for v in (first, second)))
    close(mine, torch.distributions.kl_divergence(*(build(torch, case, v)[0] for v in (first, second))), rtol=1e-9)


def test_bregman_rule_equals_the_families_own():
    rng = np.random.default_rng(0)
    for case in ("Normal", "Exponential", "Beta", "Gamma", "Dirichlet", "Poisson", "Bernoulli-logits"):
        p, q = (build(mytorch, case, parameters(rng, case, (3,)))[0] for _ in range(2))
        close(kl._exponential_family(p, q), D.kl_divergence(p, q), rtol=1e-9)


def test_independent(torch):
    rng = np.random.default_rng(0)
    first, second = parameters(rng, "Normal", (2, 3)), parameters(rng, "Normal", (2, 3))
    results = []
    for lib in (torch, mytorch):
        p, q = (lib.distributions.Independent(build(lib, "Normal", v)[0], 1) for v in (first, second))
        results.append(lib.distributions.kl_divergence(p, q))
    close(*results)
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.Independent(p.base_dist, 1), D.Independent(p.base_dist, 2))


@loop
@pytest.mark.parametrize(("p", "q"), SIMPLE)
def test_divergences_equal_monte_carlo_estimates(p, q):
    """E log p - log q over draws, where it is finite."""
    rng = np.random.default_rng(3)
    first, second = parameters(rng, p, ()), parameters(rng, q, ())
    for held, changed in zip((first, second), INSIDE.get((p, q), ({}, {})), strict=True):
        held.update({k: rng.uniform(*ends) for k, ends in changed.items()})
    a, b = build(mytorch, p, first)[0], build(mytorch, q, second)[0]
    truth = D.kl_divergence(a, b).item()
    if not math.isfinite(truth):
        return
    a._validate_args = b._validate_args = False
    x = a.sample((20_000,))
    terms = a.log_prob(x) - b.log_prob(x)
    terms = terms[mytorch.isfinite(terms)]
    error = terms.std().item() / math.sqrt(20_000)
    assert abs(terms.mean().item() - truth) < 6 * error + 1e-9


def test_infinite_and_zero_probabilities(torch):
    def both(make):
        return [make(lib.distributions, lib) for lib in (mytorch, torch)]

    cases = [
        lambda d, lib: d.kl_divergence(
            d.Bernoulli(lib.tensor([0.0, 0.5, 1.0])), d.Bernoulli(lib.tensor([0.5, 0.0, 1.0]))
        ),
        lambda d, lib: d.kl_divergence(d.Categorical(lib.tensor([0.0, 1.0])), d.Categorical(lib.tensor([0.5, 0.5]))),
        lambda d, lib: d.kl_divergence(d.Categorical(lib.tensor([0.5, 0.5])), d.Categorical(lib.tensor([0.0, 1.0]))),
        lambda d, lib: d.kl_divergence(d.Pareto(1.0, lib.tensor([0.5, 1.5, 3.0])), d.Normal(0.0, 1.0)),
        lambda d, lib: d.kl_divergence(d.Pareto(1.0, lib.tensor([0.5, 1.5, 3.0])), d.Exponential(1.0)),
        lambda d, lib: d.kl_divergence(d.Pareto(1.0, lib.tensor([0.5, 1.5, 3.0])), d.Gamma(2.0, 1.0)),
        lambda d, lib: d.kl_divergence(d.Uniform(-1.0, 1.0), d.Uniform(0.0, 1.0)),
        lambda d, lib: d.kl_divergence(d.Binomial(5, lib.tensor(0.3)), d.Binomial(3, lib.tensor(0.3))),
    ]
    for make in cases:
        mine, theirs = both(make)
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(NotImplementedError, match="q.total_count"):
        D.kl_divergence(D.Binomial(3, mytorch.tensor(0.3)), D.Binomial(5, mytorch.tensor(0.3)))


def test_a_continuous_bernoulli_is_within_the_unit_interval():
    """The divergence to a uniform on exactly [0, 1] is finite; PyTorch returns infinity."""
    p = D.ContinuousBernoulli(mytorch.tensor(0.3))
    assert D.kl_divergence(p, D.Uniform(0.0, 1.0)).item() == pytest.approx(-p.entropy().item())
    assert D.kl_divergence(p, D.Uniform(0.1, 1.0)).item() == math.inf


def test_registering(monkeypatch):
    monkeypatch.setattr(kl, "_RULES", dict(kl._RULES))

    class Mine(D.Normal):
        pass

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0.0

    @D.register_kl(Mine, D.Normal)
    def _rule(p, q):
        return "mine"

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == "mine"

    @D.register_kl(D.Normal, Mine)
    def _other(p, q):
        return "other"

    with pytest.warns(RuntimeWarning, match="Ambiguous kl_divergence"):
        assert D.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)) == "mine"
    with pytest.raises(TypeError, match="Distribution subclass"):
        D.register_kl("Mine", Mine)
    with pytest.raises(NotImplementedError, match="p type Poisson and q type VonMises"):
        D.kl_divergence(D.Poisson(1.0), D.VonMises(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="different exponential families"):
        D.kl_divergence(D.Poisson(1.0), D.Normal(0.0, 1.0))
    with pytest.raises(ValueError, match="different event shapes"):
        D.kl_divergence(*(D.MultivariateNormal(mytorch.zeros(n), mytorch.eye(n)) for n in (2, 3)))
