"""Errors of constructors and log_prob, with the messages of PyTorch; also subclasses and imports by family."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch

D = mytorch.distributions

BAD_PARAMETERS = {
    "Normal": ({"loc": 0.0, "scale": -1.0}, "scale"),
    "Beta": ({"concentration1": -1.0, "concentration0": 1.0}, "concentration1"),
    "Gamma": ({"concentration": 1.0, "rate": 0.0}, "rate"),
    "Bernoulli": ({"probs": 1.5}, "probs"),
    "Uniform": ({"low": 2.0, "high": 1.0}, "low"),
    "Exponential": ({"rate": np.nan}, "rate"),
    "Poisson": ({"rate": -1.0}, "rate"),
    "Categorical": ({"probs": [-0.5, 1.0]}, "probs"),
    "Binomial": ({"total_count": -1.0, "probs": 0.5}, "total_count"),
    "NegativeBinomial": ({"total_count": 1.0, "probs": 1.0}, "probs"),
    "StudentT": ({"df": -1.0}, "df"),
    "MultivariateNormal": ({"loc": [0.0, 0.0], "covariance_matrix": [[1.0, 2.0], [2.0, 1.0]]}, "covariance_matrix"),
    "LKJCholesky": ({"dim": 3, "concentration": -1.0}, "concentration"),
    "Weibull": ({"scale": -1.0, "concentration": 1.0}, "scale"),
    "VonMises": ({"loc": 0.0, "concentration": 0.0}, "concentration"),
}


def _made(lib, values):
    return {k: v if isinstance(v, int) else lib.tensor(v) for k, v in values.items()}


def _words(text):
    """A message without the libraries' own names of shapes, and without the printed values."""
    text = text.replace("mytorch.", "").replace("torch.", "")
    return re.sub(r"Parameter|[\d.]+e[-+]\d+", "", text.partition("found invalid values")[0])


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters(name, torch):
    values, parameter = BAD_PARAMETERS[name]
    with pytest.raises(ValueError, match=f"Expected parameter {parameter}") as mine:
        getattr(D, name)(**_made(mytorch, values), validate_args=True)
    with pytest.raises(ValueError, match="Expected parameter") as theirs:
        getattr(torch.distributions, name)(**_made(torch, values), validate_args=True)
    if name not in ("Beta", "Uniform", "Weibull", "StudentT", "LKJCholesky"):  # a part's message there, or bounds
        assert _words(str(mine.value)) == _words(str(theirs.value))


def test_geometric_needs_a_positive_probability():
    with pytest.raises(ValueError, match="to be positive"):
        D.Geometric(mytorch.tensor([0.0, 0.5]))


BAD_VALUES = [
    ("Exponential", {"rate": 1.0}, -1.0),
    ("Bernoulli", {"probs": 0.5}, 0.5),
    ("Poisson", {"rate": 1.0}, 1.5),
    ("Categorical", {"probs": [0.5, 0.5]}, 2.0),
    ("Dirichlet", {"concentration": [1.0, 1.0]}, [0.5, 0.6]),
    ("Uniform", {"low": 0.0, "high": 1.0}, 2.0),
    ("LogNormal", {"loc": 0.0, "scale": 1.0}, -1.0),
    ("Binomial", {"total_count": 3.0, "probs": 0.5}, 4.0),
    ("HalfNormal", {"scale": 1.0}, -1.0),
    ("OneHotCategorical", {"probs": [0.5, 0.5]}, [1.0, 1.0]),
    ("Pareto", {"scale": 1.0, "alpha": 1.0}, 0.5),
    ("Normal", {"loc": 0.0, "scale": 1.0}, np.nan),
    ("Beta", {"concentration1": 1.0, "concentration0": 1.0}, 1.5),
]


@pytest.mark.parametrize(("name", "values", "value"), BAD_VALUES, ids=[b[0] for b in BAD_VALUES])
def test_values_outside_of_the_support(name, values, value, torch):
    messages = []
    for lib in (mytorch, torch):
        # torch.compile changes PyTorch's default for the rest of the process.
        d = getattr(lib.distributions, name)(**_made(lib, values), validate_args=True)
        with pytest.raises(ValueError, match="to be within the support") as caught:
            d.log_prob(lib.tensor(value))
        messages.append(re.sub(r"\(?\w+\(.*?\) of the|of the distribution.*", "", _words(str(caught.value))))
    if name != "Beta":  # whose parameters PyTorch does not show
        assert messages[0] == messages[1]
    if name != "Categorical":  # whose index would be out of range
        silent = getattr(D, name)(**_made(mytorch, values), validate_args=False)
        silent.log_prob(mytorch.tensor(value))


def test_shapes_of_values():
    d = D.Normal(mytorch.zeros(3), mytorch.ones(3))
    with pytest.raises(ValueError, match="must be a Tensor"):
        d.log_prob(0.5)
    with pytest.raises(ValueError, match="not broadcastable"):
        d.log_prob(mytorch.zeros(2))
    with pytest.raises(ValueError, match="must match event_shape"):
        D.Dirichlet(mytorch.ones(3)).log_prob(mytorch.ones(2) / 2)


def test_either_probs_or_logits():
    for make in (
        D.Bernoulli,
        D.Categorical,
        D.Geometric,
        D.ContinuousBernoulli,
        D.OneHotCategorical,
        D.Multinomial,
        D.Binomial,
    ):
        with pytest.raises(ValueError, match="Either `probs` or `logits`"):
            make()
        with pytest.raises(ValueError, match="Either `probs` or `logits`"):
            make(probs=mytorch.ones(2) / 2, logits=mytorch.ones(2))


def test_other_refusals():
    one, eye = mytorch.ones(2), mytorch.eye(2)
    with pytest.raises(ValueError, match="Exactly one of covariance_matrix"):
        D.MultivariateNormal(one, eye, eye)
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.MultivariateNormal(mytorch.tensor(0.0), eye)
    with pytest.raises(ValueError, match="at least two-dimensional"):
        D.MultivariateNormal(one, one)
    with pytest.raises(ValueError, match="cov_factor must be a batch"):
        D.LowRankMultivariateNormal(one, mytorch.ones(3, 1), one)
    with pytest.raises(ValueError, match="cov_diag must be a batch"):
        D.LowRankMultivariateNormal(one, mytorch.ones(2, 1), mytorch.ones(3))
    with pytest.raises(ValueError, match="Incompatible batch shapes"):
        D.LowRankMultivariateNormal(mytorch.ones(3, 2), mytorch.ones(2, 2, 1), one)
    with pytest.raises(ValueError, match="greater than ndim - 1"):
        D.Wishart(mytorch.tensor(0.5), eye)
    with pytest.warns(UserWarning, match="Low df values"):
        D.Wishart(mytorch.tensor(1.5), eye)
    with pytest.raises(AssertionError, match="Exactly one"):
        D.Wishart(mytorch.tensor(3.0))
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        D.LKJCholesky(1)
    with pytest.raises(NotImplementedError, match="inhomogeneous total_count"):
        D.Multinomial(mytorch.tensor([1, 2]), one / 2)
    with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
        D.Binomial(mytorch.tensor([1.0, 2.0]), one / 2).entropy()
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.Categorical(mytorch.tensor(0.5))
    with pytest.raises(ValueError, match="Mixture distribution needs"):
        D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0))
    with pytest.raises(ValueError, match="does not equal"):
        D.MixtureSameFamily(D.Categorical(one), D.Normal(mytorch.zeros(3), 1.0))
    with pytest.raises(ValueError, match="is not compatible"):
        D.MixtureSameFamily(D.Categorical(mytorch.ones(4, 2)), D.Normal(mytorch.zeros(3, 2), 1.0))
    with pytest.raises(NotImplementedError, match="does not implement cdf"):
        D.Poisson(1.0).cdf(one)
    with pytest.raises(ValueError, match="instances of Number"):
        D.Normal("a", 1.0)
    with pytest.raises(NotImplementedError, match="cartesian product"):
        D.Independent(D.Bernoulli(one / 2), 1).enumerate_support()


def test_validation_can_be_switched_off():
    try:
        D.Distribution.set_default_validate_args(False)
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="True or False"):
        D.Distribution.set_default_validate_args(3)


class Shifted(D.Distribution):
    """A program's own family, written as for PyTorch."""

    arg_constraints = {"by": D.constraints.real}
    support = D.constraints.real
    has_rsample = True

    def __init__(self, by, validate_args=None):
        (self.by,) = D.utils.broadcast_all(by)
        super().__init__(self.by.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Shifted, _instance)
        new.by = self.by.expand(batch_shape)
        super(Shifted, new).__init__(mytorch.Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape=()):
        return self.by + mytorch.randn(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return D.Normal(self.by, 1.0).log_prob(value)


def test_custom_families():
    d = Shifted(mytorch.zeros(3)).expand((2, 3))
    assert repr(d) == "Shifted(by: mytorch.Size([2, 3]))"
    assert d.log_prob(d.rsample((4,))).shape == (4, 2, 3)
    joint = D.Independent(d, 1)
    assert joint.log_prob(joint.sample()).shape == (2,)

    class Again(Shifted):
        def __init__(self):
            super().__init__(mytorch.zeros(1))

    with pytest.raises(NotImplementedError, match="custom .expand"):
        Again().expand((2,))

    class Named(D.Normal):
        def __init__(self, name):
            self.name = name
            super().__init__(mytorch.zeros(1), 1.0)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Named, _instance)
            return super().expand(batch_shape, _instance=new)

    wide = Named("n").expand((3,))
    assert (type(wide), wide.name, wide.loc.shape) == (Named, "n", (3,))


def test_a_family_that_declares_nothing():
    class Bare(D.Distribution):
        pass

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        d = Bare()
    with pytest.warns(UserWarning, match="does not define `support`"):
        d._validate_sample(mytorch.zeros(()))
    for name in ("mean", "mode", "variance", "support"):
        with pytest.raises(NotImplementedError):
            getattr(d, name)
    for name in ("sample", "rsample", "entropy", "enumerate_support"):
        with pytest.raises(NotImplementedError):
            getattr(d, name)()


def test_imports_of_families_by_programs_for_pytorch():
    code = (
        "import mytorch; mytorch.install_as_torch()\n"
        "from torch.distributions.normal import Normal\n"
        "from torch.distributions import constraints, transforms, Normal as N\n"
        "from torch.distributions.transforms import TanhTransform\n"
        "import torch.distributions.multivariate_normal as m\n"
        "from torch.distributions.utils import broadcast_all, lazy_property\n"
        "from torch.distributions.kl import kl_divergence\n"
        "assert Normal is N and m.MultivariateNormal; print('ok')"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.stdout.strip() == "ok", done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_small_arrays_are_checked_like_tensors(dtype):
    c, rng = D.constraints, np.random.default_rng(0)
    kinds = [
        c.real, c.boolean, c.one_hot, c.simplex, c.positive, c.nonnegative, c.unit_interval, c.nonnegative_integer, c.positive_integer,
        c.greater_than(0.5), c.greater_than_eq(1), c.less_than(2), c.interval(-1, 1.5), c.half_open_interval(0, 1), c.integer_interval(0, 2),
        c.multinomial(3), c.real_vector, c.independent(c.positive, 1), c.independent(c.independent(c.boolean, 1), 1),
        c.interval(mytorch.zeros(3), mytorch.ones(3)),
    ]  # fmt: skip
    rows = [
        [0, 1, 0],
        [0.25, 0.25, 0.5],
        [1, 2, 0],
        [-1, 0.5, 3],
        [np.nan, 1, 0],
        [np.inf, 0, 1],
        [1, 1, 1],
        [0.5, 0.5, 1.5],
    ]
    if dtype not in ("float32", "float64", "float16", "bfloat16"):
        rows = [[0, 1, 0], [1, 2, 0], [1, 1, 1], [2, 1, 0], [0, 0, 0]]
    values = [mytorch.tensor(row).to(getattr(mytorch, dtype)) for row in rows]
    values += [
        mytorch.stack([*values[:2]]),
        values[0].reshape(1, 1, 3),
        mytorch.stack([values[int(rng.integers(len(rows)))], values[0]]),
    ]
    for constraint in kinds:
        for value in values:
            if constraint.event_dim > value.ndim:
                continue
            assert c.holds(constraint, value) == bool(constraint.check(value).all()), (constraint, value)


def test_constraints_of_programs_get_tensors():
    class Even(type(D.constraints.real)):
        def check(self, value):
            assert isinstance(value, mytorch.Tensor)
            return value % 2 == 0

    assert D.constraints.holds(Even(), mytorch.tensor([2.0, 4.0]))
    assert not D.constraints.holds(D.constraints.independent(Even(), 1), mytorch.tensor([2.0, 3.0]))
