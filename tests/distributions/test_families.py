"""Every family against PyTorch in float64: densities, moments, entropies, cdfs, gradients."""

import copy
import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop

from .families import BATCHES, FAMILIES, array, build, close, mixture, parameters

# PyTorch's Wishart takes good draws for singular ones and warns of them.
pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected:UserWarning")
GRADIENT = {"rtol": 1e-8, "atol": 1e-9}  # PyTorch's trigamma is good to 2e-10
CASES = list(FAMILIES)
every_case = pytest.mark.parametrize("case", CASES)
# Each family in one of the shapes of a batch: the shapes matter to `expand` and to broadcasting, which every family inherits.
in_a_batch = pytest.mark.parametrize(("case", "shape"), [(c, BATCHES[i % len(BATCHES)]) for i, c in enumerate(CASES)])


@pytest.fixture(autouse=True)
def double_by_default():
    """PyTorch's GeneralizedPareto and Multinomial make constants of the default dtype."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pair(torch, case, shape, seed=0, **options):
    values = parameters(np.random.default_rng(seed), case, shape)
    return [build(lib, case, values, **options) for lib in (mytorch, torch)]


def drawn(torch, d, shape=(4,), seed=0):
    torch.manual_seed(seed)
    return d.sample(shape).detach().numpy()


def agree(torch, function, mine, theirs, seed=1):
    """Results and, for a random upstream gradient, the gradients of all parameters."""
    results = []
    for lib, (d, held) in ((mytorch, mine), (torch, theirs)):
        out = function(lib, d)
        for t in held.values():
            t.grad = None
        gradients = []
        if out.requires_grad:
            g = np.random.default_rng(seed).normal(size=tuple(out.shape))
            finite = lib.isfinite(out)
            (lib.where(finite, out, lib.zeros_like(out)) * lib.tensor(g)).sum().backward()
            gradients = [np.zeros(tuple(t.shape)) if t.grad is None else np.asarray(t.grad) for t in held.values()]
        results.append([array(out), *gradients])
    for a, b, name in zip(*results, ["result", *mine[1]], strict=False):
        assert a.shape == b.shape
        if name == "scale_tril":  # the elements above the diagonal are not read
            a, b = np.tril(a), np.tril(b)
        close(a, b, **({} if name == "result" else GRADIENT))


@loop
@in_a_batch
def test_log_prob_and_its_gradients(case, shape, torch):
    mine, theirs = pair(torch, case, shape, grad=True)
    value = drawn(torch, theirs[0])
    agree(torch, lambda lib, d: d.log_prob(lib.tensor(value)), mine, theirs)


@loop
@every_case
def test_gradient_of_log_prob_for_the_value(case, torch):
    (mine, _), (theirs, _) = pair(torch, case, (3,))
    value = drawn(torch, theirs)
    if theirs.support.is_discrete or case == "Uniform":
        pytest.skip("does not depend on the value smoothly")
    x, y = mytorch.tensor(value, requires_grad=True), torch.tensor(value, requires_grad=True)
    mine.log_prob(x).sum().backward()
    theirs.log_prob(y).sum().backward()
    close(
        np.zeros(value.shape) if x.grad is None else x.grad,
        np.zeros(value.shape) if y.grad is None else y.grad,
        rtol=1e-9,
    )


@loop
@in_a_batch
@pytest.mark.parametrize("name", ["mean", "mode", "variance", "stddev", "entropy", "perplexity"])
def test_moments_and_entropy(case, shape, name, torch):
    mine, theirs = pair(torch, case, shape, grad=True)

    def found(lib, d):
        return getattr(d, name)() if name in ("entropy", "perplexity") else getattr(d, name)

    try:
        found(torch, theirs[0])
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            found(mytorch, mine[0])
        return
    if (case, name) == ("Kumaraswamy", "mode"):
        return  # NaN there: tested below
    agree(torch, found, mine, theirs)


@loop
@in_a_batch
def test_cdf_and_icdf(case, shape, torch):
    mine, theirs = pair(torch, case, shape, grad=case not in ("Gamma", "Chi2", "InverseGamma"))
    value = drawn(torch, theirs[0])
    try:
        theirs[0].cdf(torch.tensor(value))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine[0].cdf(mytorch.tensor(value))
    else:
        agree(torch, lambda lib, d: d.cdf(lib.tensor(value)), mine, theirs)
    p = np.random.default_rng(2).uniform(0.02, 0.98, (5, *shape))
    try:
        theirs[0].icdf(torch.tensor(p))
    except (NotImplementedError, RuntimeError):
        return
    mine, theirs = pair(torch, case, shape, grad=True)
    agree(torch, lambda lib, d: d.icdf(lib.tensor(p)), mine, theirs)


@loop
@every_case
def test_shapes_constraints_and_representation(case, torch):
    (mine, _), (theirs, _) = pair(torch, case, (2, 3))
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(mine.event_shape) == tuple(theirs.event_shape)
    for name in ("has_rsample", "has_enumerate_support"):
        if case.split("-")[0] != "RelaxedBernoulli":  # PyTorch's base class lacks the attribute
            assert getattr(mine, name) == getattr(theirs, name)
    assert sorted(mine.arg_constraints) == sorted(theirs.arg_constraints)
    assert repr(mine.support)[:14] == repr(theirs.support)[:14]
    assert mine.support.event_dim == theirs.support.event_dim
    assert mine.support.is_discrete == theirs.support.is_discrete
    if not case.startswith("Beta"):  # whose parameters PyTorch does not show
        assert repr(mine).replace("mytorch.", "") == repr(theirs).replace("torch.", "")


@loop
@every_case
def test_scalars_in_the_representation(case, torch):
    (mine, _), (theirs, _) = pair(torch, case, ())
    if not case.startswith("Beta"):
        assert repr(mine).partition("(")[0] == repr(theirs).partition("(")[0]


@loop
@pytest.mark.parametrize(("case", "shape"), [(c, ((), (3,), (1, 3))[i % 3]) for i, c in enumerate(CASES)])
def test_expand(case, shape, torch):
    (mine, _), (theirs, _) = pair(torch, case, shape)
    wide, other = mine.expand((2, 3)), theirs.expand((2, 3))
    value = drawn(torch, other)
    close(wide.log_prob(mytorch.tensor(value)), other.log_prob(torch.tensor(value)))
    assert tuple(wide.batch_shape) == (2, 3)
    assert tuple(wide.sample((5,)).shape) == tuple(other.sample((5,)).shape)
    assert type(wide) is type(mine)
    try:
        wanted = other.mean
    except NotImplementedError:
        return
    close(wide.mean, wanted)


@loop
@every_case
def test_float32_stays(case, torch):
    torch.set_default_dtype(torch.float32)
    (mine, _), (theirs, _) = pair(torch, case, (3,), dtype=np.float32)
    sample = mine.sample((4,))
    assert str(sample.dtype).split(".")[-1] == str(theirs.sample((4,)).dtype).split(".")[-1]
    if case != "LKJCholesky":  # whose unit rows in float32 are checked to a few eps
        close(mine.log_prob(sample), theirs.log_prob(torch.tensor(array(sample))), rtol=2e-4, atol=2e-4)


@loop
@every_case
def test_copies(case):
    d, _ = build(mytorch, case, parameters(np.random.default_rng(0), case, (3,)))
    value = d.sample((2,))
    for twin in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        close(twin.log_prob(value), d.log_prob(value))


@loop
@every_case
@pytest.mark.parametrize("expand", [True, False])
def test_enumerate_support(case, expand, torch):
    (mine, _), (theirs, _) = pair(torch, case, (2, 3))
    if not theirs.has_enumerate_support:
        with pytest.raises(NotImplementedError):
            mine.enumerate_support(expand)
        return
    close(mine.enumerate_support(expand), theirs.enumerate_support(expand))


@pytest.mark.parametrize("which", [0, 1], ids=["numbers", "vectors"])
def test_mixture(which, torch):
    mine, theirs = mixture(mytorch)[which], mixture(torch)[which]
    value = drawn(torch, theirs)
    close(mine.log_prob(mytorch.tensor(value)), theirs.log_prob(torch.tensor(value)))
    close(mine.mean, theirs.mean)
    close(mine.variance, theirs.variance)
    assert repr(mine).replace("mytorch.", "") == repr(theirs).replace("torch.", "")
    if which == 0:
        close(mine.cdf(mytorch.tensor(value)), theirs.cdf(torch.tensor(value)))
    wide = mine.expand((5, 2))
    assert tuple(wide.sample((4,)).shape) == tuple(theirs.expand((5, 2)).sample((4,)).shape)
    draws = mine.sample((40_000,))
    assert ((draws.mean(0) - mine.mean).abs() / (mine.variance / 40_000).sqrt()).max().item() < 6


def test_mixture_of_one_categorical_over_a_batch():
    d = mytorch.distributions
    few = d.MixtureSameFamily(d.Categorical(mytorch.ones(3)), d.Normal(mytorch.zeros(2, 3), mytorch.ones(2, 3)))
    assert few.sample((7,)).shape == (7, 2)
    assert few.mean.shape == (2,)


def test_independent_moves_axes(torch):
    values = parameters(np.random.default_rng(0), "Normal", (2, 3, 4))
    (mine, _), (theirs, _) = (build(lib, "Normal", values) for lib in (mytorch, torch))
    for n in range(4):
        a, b = (mytorch.distributions.Independent(mine, n), torch.distributions.Independent(theirs, n))
        value = drawn(torch, b)
        close(a.log_prob(mytorch.tensor(value)), b.log_prob(torch.tensor(value)))
        close(a.entropy(), b.entropy())
        assert tuple(a.event_shape) == tuple(b.event_shape)
        assert repr(a).replace("mytorch.", "") == repr(b).replace("torch.", "")
        assert tuple(a.expand((5, *a.batch_shape)).batch_shape) == (5, *a.batch_shape)
    with pytest.raises(ValueError, match="reinterpreted_batch_ndims <="):
        mytorch.distributions.Independent(mine, 4)


def test_exponential_family_entropy_is_the_families_own():
    base = mytorch.distributions.ExponentialFamily.entropy
    for case in ("Normal", "Exponential", "Gamma", "Bernoulli-logits", "ContinuousBernoulli-logits"):
        d, _ = build(mytorch, case, parameters(np.random.default_rng(0), case, (3,)))
        if case.startswith("Gamma"):
            continue  # its carrier measure is not constant; PyTorch also overrides it
        close(base(d), d.entropy(), rtol=1e-5)


def test_mode_of_kumaraswamy_is_where_the_density_is_largest():
    a, b = mytorch.tensor([1.5, 3.0, 0.5]).double(), mytorch.tensor([2.0, 1.2, 2.0]).double()
    d = mytorch.distributions.Kumaraswamy(a, b)
    grid = mytorch.linspace(0.0005, 0.9995, 1999).double().unsqueeze(-1)
    best = grid.squeeze(-1)[d.log_prob(grid).argmax(0)]
    np.testing.assert_allclose(array(d.mode)[:2], array(best)[:2], atol=1e-3)
    assert np.isnan(array(d.mode)[2])


def test_numbers_as_parameters(torch):
    for lib in (mytorch, torch):
        assert repr(lib.distributions.Normal(0.5, 2)) == "Normal(loc: 0.5, scale: 2.0)"
    assert mytorch.distributions.Beta(1.0, 2.0).sample().shape == ()
    assert mytorch.distributions.Dirichlet(mytorch.ones(3)).sample((2,)).shape == (2, 3)
    assert mytorch.distributions.Bernoulli(0.3).sample((2,)).shape == (2,)


def test_every_public_name_is_here(torch):
    assert [n for n in torch.distributions.__all__ if not hasattr(mytorch.distributions, n)] == []
    assert [
        n for n in torch.distributions.constraints.__all__ if not hasattr(mytorch.distributions.constraints, n)
    ] == []
    assert set(torch.distributions.__all__) <= set(mytorch.distributions.__all__)


def test_modules_of_single_families(torch):
    import importlib
    import pkgutil

    for info in pkgutil.iter_modules(torch.distributions.__path__):
        theirs = importlib.import_module(f"torch.distributions.{info.name}")
        mine = importlib.import_module(f"mytorch.distributions.{info.name}")
        for name in getattr(theirs, "__all__", ()):
            assert hasattr(mine, name), f"{info.name}.{name}"
