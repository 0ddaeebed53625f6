"""Distributions against PyTorch: densities, moments, entropies, divergences; draws against their moments."""

import numpy as np
import pytest

import mytorch

A, B = np.array([0.7, 1.5, 3.0]), np.array([2.0, 0.8, 1.2])
P = np.array([0.2, 0.5, 0.9])
M = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
COV = np.array([[2.0, 0.3], [0.3, 1.0]])

FAMILIES = [
    ("Normal", (A, B), A), ("LogNormal", (A * 0.3, B * 0.3), A), ("HalfNormal", (A,), A), ("Uniform", (-A, B), A * 0.1), ("Exponential", (A,), B), ("Laplace", (A, B), B),
    ("Cauchy", (A, B), B), ("Gumbel", (A, B), B), ("Gamma", (A, B), B), ("Chi2", (A + 2,), B), ("StudentT", (A + 3, A, B), B), ("Beta", (A, B), P), ("Dirichlet", (A,), A / A.sum()),
    ("Bernoulli", (P,), np.array([1.0, 0.0, 1.0])), ("Geometric", (P,), np.array([1.0, 0.0, 2.0])), ("Poisson", (A,), np.array([1.0, 0.0, 2.0])),
    ("Categorical", (M,), np.array([0, 2])), ("MultivariateNormal", (A[:2], COV), B[:2]),
]  # fmt: skip


def make(lib, name, parameters, grad=False):
    values = [lib.tensor(p, requires_grad=grad) for p in parameters]
    return getattr(lib.distributions, name)(*values), values


@pytest.mark.parametrize(("name", "parameters", "value"), FAMILIES, ids=[f[0] for f in FAMILIES])
def test_density_entropy_moments_and_gradients(name, parameters, value, torch):
    results = []
    for lib in (mytorch, torch):
        d, values = make(lib, name, parameters, grad=True)
        density = d.log_prob(lib.tensor(value))
        total = (density * lib.tensor(np.arange(1.0, density.numel() + 1).reshape(tuple(density.shape)))).sum()
        if name != "Poisson":
            total = total + d.entropy().sum()
        total.backward()
        moments = [] if name in ("Cauchy", "Categorical") else [d.mean.detach().numpy(), d.variance.detach().numpy()]
        results.append([density.detach().numpy(), *moments, *(np.asarray(v.grad) for v in values)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "parameters", "value"), [f for f in FAMILIES if f[0] not in ("Cauchy", "Categorical", "StudentT")], ids=lambda x: x if isinstance(x, str) else "")
def test_draws_have_the_right_moments(name, parameters, value):
    d, _ = make(mytorch, name, parameters)
    draws = d.sample((20_000,))
    assert tuple(draws.shape) == (20_000, *d.batch_shape, *d.event_shape)
    error = (draws.mean(0) - d.mean).abs() / (d.variance / 20_000).sqrt()
    assert error.max().item() < 6


@pytest.mark.parametrize("name", ["Normal", "Uniform", "Exponential", "Gamma", "Beta"])
def test_rsample_carries_gradients(name):
    """The derivative of the mean of draws is that of the mean."""
    parameters = {"Normal": (A, B), "Uniform": (-A, B), "Exponential": (A,), "Gamma": (A, B), "Beta": (A, B)}[name]
    d, values = make(mytorch, name, parameters, grad=True)
    d.rsample((20_000,)).mean(0).sum().backward()
    drawn = [np.asarray(v.grad).copy() for v in values]
    for v in values:
        v.grad = None
    make_again, again = make(mytorch, name, parameters, grad=True)
    make_again.mean.sum().backward()
    for a, b in zip(drawn, again, strict=True):
        exact = np.zeros(3) if b.grad is None else np.asarray(b.grad)
        np.testing.assert_allclose(a, exact, atol=0.12)


@pytest.mark.parametrize("name", ["Normal", "Bernoulli", "Categorical", "Exponential", "Gamma", "Beta", "Dirichlet", "Poisson", "MultivariateNormal"])
def test_divergences(name, torch):
    first = {"Bernoulli": (P,), "Categorical": (M,), "Exponential": (A,), "Dirichlet": (A,), "Poisson": (A,), "MultivariateNormal": (A[:2], COV)}.get(name, (A, B))
    second = {"Bernoulli": (P[::-1].copy(),), "Categorical": (M[::-1].copy(),), "Exponential": (B,), "Dirichlet": (B,), "Poisson": (B,),
              "MultivariateNormal": (B[:2], COV * 2)}.get(name, (B, A))  # fmt: skip
    mine = mytorch.distributions.kl_divergence(make(mytorch, name, first)[0], make(mytorch, name, second)[0])
    theirs = torch.distributions.kl_divergence(make(torch, name, first)[0], make(torch, name, second)[0])
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_policy_gradient_shapes():
    logits = mytorch.zeros(5, 3, requires_grad=True)
    policy = mytorch.distributions.Categorical(logits=logits)
    action = policy.sample()
    (-policy.log_prob(action) * mytorch.ones(5)).mean().backward()
    assert logits.grad is not None
    joint = mytorch.distributions.Independent(mytorch.distributions.Normal(mytorch.zeros(4, 2), mytorch.ones(4, 2)), 1)
    assert joint.log_prob(joint.rsample()).shape == (4,)


def test_bad_parameters():
    with pytest.raises(ValueError, match="Expected parameter scale"):
        mytorch.distributions.Normal(0.0, mytorch.tensor(-1.0))
    with pytest.raises(ValueError, match="Either `probs` or `logits`"):
        mytorch.distributions.Bernoulli()
