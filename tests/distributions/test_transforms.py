"""Transforms, constraints, their registries and transformed distributions against PyTorch."""

import pickle

import numpy as np
import pytest

import mytorch
from tests.loops import loop

from .families import array, close

D = mytorch.distributions
RNG = np.random.default_rng


def corr(rng, shape, n=4):
    return rng.normal(size=(*shape, n * (n - 1) // 2))


def plain(rng, shape):
    return rng.normal(size=shape)


def above_zero(rng, shape):
    return rng.uniform(0.2, 3.0, shape)


def square(rng, shape):
    return np.tril(rng.normal(size=(*shape, 3, 3)) * 0.5)  # the elements above the diagonal are not read


S = np.array([0.7, 1.5, 3.0])
# name -> (the transform, made by a library; draws from its domain)
TRANSFORMS = {
    "abs": (lambda lib, t: t.AbsTransform(), plain),
    "affine": (lambda lib, t: t.AffineTransform(0.5, -2.0), plain),
    "affine-tensor": (
        lambda lib, t: t.AffineTransform(lib.tensor(S), lib.tensor(-S)),
        lambda r, s: r.normal(size=(*s, 3)),
    ),
    "affine-event": (
        lambda lib, t: t.AffineTransform(0.5, lib.tensor(S), event_dim=1),
        lambda r, s: r.normal(size=(*s, 3)),
    ),
    "cat": (
        lambda lib, t: t.CatTransform([t.ExpTransform(), t.TanhTransform()], -1, [2, 3]),
        lambda r, s: r.normal(size=(*s, 5)),
    ),
    "cdf": (lambda lib, t: t.CumulativeDistributionTransform(lib.distributions.Normal(0.2, 1.5)), plain),
    "compose": (
        lambda lib, t: t.ComposeTransform(
            [t.AffineTransform(1.0, 2.0), t.SigmoidTransform(), t.AffineTransform(-1.0, 3.0)]
        ),
        plain,
    ),
    "compose-event": (
        lambda lib, t: t.ComposeTransform([t.AffineTransform(0.1, 2.0), t.StickBreakingTransform()]),
        lambda r, s: r.normal(size=(*s, 3)),
    ),
    "corr": (lambda lib, t: t.CorrCholeskyTransform(), corr),
    "exp": (lambda lib, t: t.ExpTransform(), plain),
    "identity": (lambda lib, t: t.identity_transform, plain),
    "independent": (lambda lib, t: t.IndependentTransform(t.ExpTransform(), 1), lambda r, s: r.normal(size=(*s, 3))),
    "lower": (lambda lib, t: t.LowerCholeskyTransform(), square),
    "positive": (lambda lib, t: t.PositiveDefiniteTransform(), square),
    "power": (lambda lib, t: t.PowerTransform(lib.tensor(S)), lambda r, s: r.uniform(0.2, 3, (*s, 3))),
    "power-number": (lambda lib, t: t.PowerTransform(-2.0), above_zero),
    "reshape": (lambda lib, t: t.ReshapeTransform((2, 3), (3, 2)), lambda r, s: r.normal(size=(*s, 2, 3))),
    "sigmoid": (lambda lib, t: t.SigmoidTransform(), plain),
    "softmax": (lambda lib, t: t.SoftmaxTransform(), lambda r, s: r.normal(size=(*s, 4))),
    "softplus": (lambda lib, t: t.SoftplusTransform(), plain),
    "stack": (
        lambda lib, t: t.StackTransform([t.ExpTransform(), t.TanhTransform()], -1),
        lambda r, s: r.normal(size=(*s, 2)),
    ),
    "stick": (lambda lib, t: t.StickBreakingTransform(), lambda r, s: r.normal(size=(*s, 4))),
    "tanh": (lambda lib, t: t.TanhTransform(), plain),
}
every = pytest.mark.parametrize("name", TRANSFORMS)


@pytest.fixture(autouse=True)
def double_by_default():
    """Numbers become float64 in both."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)
    mytorch.set_default_dtype(mytorch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    mytorch.set_default_dtype(mytorch.float32)


def both(torch, name):
    make, draw = TRANSFORMS[name]
    return [make(lib, lib.distributions.transforms) for lib in (mytorch, torch)], draw


@loop
@pytest.mark.parametrize(("name", "shape"), [(n, ((), (3,), (2, 3))[i % 3]) for i, n in enumerate(TRANSFORMS)])
@pytest.mark.parametrize("inverse", [False, True])
def test_forward_inverse_and_jacobian(name, shape, inverse, torch):
    transforms, draw = both(torch, name)
    data = draw(RNG(0), shape)
    if inverse:
        data = transforms[1](torch.tensor(data)).numpy()
        transforms = [t.inv for t in transforms]
    found = []
    for lib, t in zip((mytorch, torch), transforms, strict=True):
        x = lib.tensor(data, requires_grad=True)
        y = t(x)
        outputs = [y]
        try:
            outputs.append(t.log_abs_det_jacobian(x, y))
        except NotImplementedError:
            pass
        rng = RNG(1)
        total = sum((o * lib.tensor(rng.normal(size=tuple(o.shape)))).sum() for o in outputs)
        total.backward()
        found.append([*outputs, x.grad, t.inv(y)])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        close(a, b, rtol=1e-9, atol=1e-11)
    if name != "abs":
        mine, x = transforms[0], mytorch.tensor(data)
        if name != "softmax" or inverse:
            close(mine.inv(mine(x)) if name != "softmax" else mine(x).softmax(-1), x, rtol=1e-7, atol=1e-9)


@every
def test_properties(name, torch):
    (mine, theirs), draw = both(torch, name)
    data = draw(RNG(0), (2,))
    assert mine.bijective == theirs.bijective
    for end in ("domain", "codomain"):
        a, b = getattr(mine, end), getattr(theirs, end)
        assert a.event_dim == b.event_dim
        assert repr(a).split("(")[0] == repr(b).split("(")[0]
        assert getattr(mine.inv, end).event_dim == getattr(theirs.inv, end).event_dim
    assert tuple(mine.forward_shape(mytorch.Size(data.shape))) == tuple(theirs.forward_shape(torch.Size(data.shape)))
    after = tuple(theirs(torch.tensor(data)).shape)
    assert tuple(mine.inverse_shape(mytorch.Size(after))) == tuple(theirs.inverse_shape(torch.Size(after)))
    assert repr(mine) == repr(theirs)
    assert repr(mine.inv) == repr(theirs.inv)
    assert mine.inv.inv is mine
    try:
        wanted = theirs.sign
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            _ = mine.sign
    else:
        close(mytorch.tensor(array(mine.sign)), torch.tensor(array(wanted)))
        assert np.all(array(mine.inv.sign) == array(theirs.inv.sign))
    assert bool(mine.domain.check(mytorch.tensor(data)).all())
    assert bool(mine.codomain.check(mine(mytorch.tensor(data))).all())


@every
def test_cache_equality_and_copies(name, torch):
    (mine, _), draw = both(torch, name)
    x = mytorch.tensor(draw(RNG(0), (2,)))
    cached = mine.with_cache()
    assert mine.with_cache(0) is mine
    if name != "identity":  # which has nothing to remember
        y = cached(x)
        assert cached.inv(y) is x
        assert cached.inv.with_cache(1)(y) is x
    if name != "cdf":  # distributions are equal only to themselves
        again = TRANSFORMS[name][0](mytorch, D.transforms)
        assert mine == again
        assert mine.inv == again.inv
    assert mine != D.AffineTransform(0.1, 0.2)
    close(pickle.loads(pickle.dumps(mine))(x), mine(x))
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.Transform(cache_size=2)


@every
def test_jacobian_is_the_determinant(name, torch):
    (mine, _), draw = both(torch, name)
    if name in ("abs", "softmax", "lower", "positive", "identity"):
        pytest.skip("not a bijection between spaces of one dimension")
    x = mytorch.tensor(draw(RNG(0), ()))
    y = mine(x)
    found = mine.log_abs_det_jacobian(x, y).sum().item()

    def flat(z):
        out = mine(z.reshape(x.shape))
        if name in ("stick", "compose-event"):
            out = out[..., :-1]
        if name == "corr":
            out = D.utils.tril_matrix_to_vec(out, diag=-1)
        return out.reshape(-1)

    point, h = x.reshape(-1), 1e-6
    columns = [(flat(point + h * e) - flat(point - h * e)) / (2 * h) for e in mytorch.eye(point.numel())]
    matrix = array(mytorch.stack(columns, -1))
    assert found == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-6)


def test_repeated_parts_of_a_composition(torch):
    for lib in (mytorch, torch):
        t = lib.distributions.AffineTransform(0.0, 2.0)
        twice = lib.distributions.ComposeTransform([t, t])
        x = lib.tensor([1.0, 2.0])
        close(twice.log_abs_det_jacobian(x, twice(x)), np.full(2, 2 * np.log(2)))


# -- constraints -----------------------------------------------------------------------------------

L = np.linalg.cholesky(np.array([[2.0, 0.3], [0.3, 1.0]]))
CORR = np.array([[1.0, 0.0], [0.6, 0.8]])
CONSTRAINTS = {
    "boolean": [0.0, 1.0, 0.5],
    "one_hot": [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]],
    "nonnegative_integer": [0.0, 2.0, -1.0, 0.5],
    "positive_integer": [0.0, 2.0, 1.5],
    "real": [0.0, np.nan, np.inf],
    "real_vector": [[0.0, np.nan], [1.0, 2.0]],
    "positive": [0.0, 1.0, -1.0],
    "nonnegative": [0.0, 1.0, -1.0],
    "unit_interval": [0.0, 1.0, 1.1, -0.1],
    "simplex": [[0.5, 0.5], [0.5, 0.6], [1.5, -0.5]],
    "lower_triangular": [[[1.0, 0.0], [2.0, 3.0]], [[1.0, 1.0], [2.0, 3.0]]],
    "lower_cholesky": [L, [[1.0, 0.0], [2.0, -3.0]]],
    "corr_cholesky": [CORR, L],
    "square": [[[1.0, 2.0], [3.0, 4.0]]],
    "symmetric": [[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]],
    "positive_semidefinite": [L @ L.T, [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]],
    "positive_definite": [L @ L.T, [[1.0, 2.0], [2.0, 1.0]]],
}
MADE = {
    "interval": (lambda c: c.interval(-1.0, 2.0), [-1.0, 2.0, 3.0]),
    "half_open": (lambda c: c.half_open_interval(-1.0, 2.0), [-1.0, 2.0, 3.0]),
    "greater_than": (lambda c: c.greater_than(1.0), [1.0, 1.5]),
    "greater_than_eq": (lambda c: c.greater_than_eq(1.0), [1.0, 0.5]),
    "less_than": (lambda c: c.less_than(1.0), [1.0, 0.5]),
    "integer_interval": (lambda c: c.integer_interval(0, 3), [0.0, 3.0, 4.0, 0.5]),
    "multinomial": (lambda c: c.multinomial(3), [[1.0, 2.0], [3.0, 1.0]]),
    "independent": (lambda c: c.independent(c.positive, 1), [[1.0, 2.0], [3.0, -1.0]]),
    "cat": (lambda c: c.cat([c.positive, c.real], -1, [1, 1]), [[1.0, -2.0], [-3.0, -1.0]]),
    "stack": (lambda c: c.stack([c.positive, c.real], -1), [[1.0, -2.0], [-3.0, -1.0]]),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.positive), [1.0, -1.0]),
}


@loop
@pytest.mark.parametrize("name", [*CONSTRAINTS, *MADE])
def test_constraints(name, torch):
    make, data = MADE.get(name, (lambda c: getattr(c, name), CONSTRAINTS.get(name)))
    mine, theirs = make(D.constraints), make(torch.distributions.constraints)
    data = np.array(data)
    a, b = mine.check(mytorch.tensor(data)), theirs.check(torch.tensor(data))
    assert a.tolist() == b.tolist()
    assert str(a.dtype).split(".")[-1] == "bool"
    assert (mine.event_dim, mine.is_discrete) == (theirs.event_dim, theirs.is_discrete)
    if name not in ("cat", "stack", "multinomial"):
        assert repr(mine) == repr(theirs)


def test_dependent_constraints():
    c = D.constraints
    with pytest.raises(NotImplementedError, match="event_dim cannot be determined"):
        _ = c.dependent.event_dim
    assert c.dependent(event_dim=1).event_dim == 1
    with pytest.raises(ValueError, match="dependent constraint"):
        c.dependent.check(mytorch.zeros(1))
    assert c.is_dependent(D.Uniform.support)
    assert not c.is_dependent(c.real)
    assert D.Uniform.support.event_dim == 0
    with pytest.raises(AssertionError, match="base_constraint must be a Constraint"):
        c.independent(3, 1)
    with pytest.raises(AssertionError, match="lengths"):
        c.cat([c.real], 0, [1, 2])


REGISTERED = [
    "real",
    "real_vector",
    "positive",
    "nonnegative",
    "unit_interval",
    "interval",
    "half_open",
    "greater_than",
    "greater_than_eq",
    "less_than",
    "simplex",
    "corr_cholesky",
    "independent",
    "cat",
    "stack",
    "lower_cholesky",
    "positive_definite",
    "positive_semidefinite",
]


@loop
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", REGISTERED)
def test_registries(name, registry, torch):
    make = MADE[name][0] if name in MADE else lambda c: getattr(c, name)
    mine, theirs = make(D.constraints), make(torch.distributions.constraints)
    try:
        wanted = getattr(torch.distributions, registry)(theirs)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            getattr(D, registry)(mine)
        return
    t = getattr(D, registry)(mine)
    assert repr(t) == repr(wanted)
    shape = {"corr_cholesky": (2, 6), "cat": (5, 2), "stack": (5, 2)}.get(name, (2, 3, 3))
    x = RNG(0).normal(size=shape)
    y = t(mytorch.tensor(x))
    close(y, wanted(torch.tensor(x)), rtol=1e-9, atol=1e-12)
    assert bool(mine.check(y).all())


def test_registering_a_constraint():
    registry = D.constraint_registry.ConstraintRegistry()

    @registry.register(D.constraints.positive)
    def _make(constraint):
        return D.SoftplusTransform()

    assert isinstance(registry(D.constraints.greater_than(0.0)), D.SoftplusTransform)
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        registry.register(int, _make)


# -- transformed distributions ---------------------------------------------------------------------


def make_transformed(lib):
    d = lib.distributions
    loc, scale = lib.tensor(S), lib.tensor(S * 0.3)
    normal = d.Normal(loc, scale)
    return [
        d.TransformedDistribution(normal, [d.TanhTransform()]),
        d.TransformedDistribution(normal, d.AffineTransform(1.0, -2.0)),
        d.TransformedDistribution(
            d.Uniform(lib.zeros(3), 1.0), [d.SigmoidTransform().inv, d.AffineTransform(loc, scale)]
        ),
        d.TransformedDistribution(normal, [d.StickBreakingTransform()]),
        d.TransformedDistribution(d.Normal(0.0, 1.0), [d.AffineTransform(loc, scale), d.ExpTransform()]),
        d.TransformedDistribution(
            d.Independent(d.Normal(lib.zeros(2, 6), 1.0), 1), [d.ReshapeTransform((6,), (2, 3)), d.ExpTransform()]
        ),
        d.TransformedDistribution(d.Normal(lib.zeros(2, 6), 1.0), [d.CorrCholeskyTransform()]),
        d.TransformedDistribution(normal, []),
    ]


@pytest.mark.parametrize("i", range(8))
def test_transformed_distributions(i, torch):
    mine, theirs = make_transformed(mytorch)[i], make_transformed(torch)[i]
    mytorch.manual_seed(2), torch.manual_seed(2)
    x = theirs.sample((5,))
    close(mine.sample((5,)), x)
    value = mytorch.tensor(x.numpy())
    close(mine.log_prob(value), theirs.log_prob(x), rtol=1e-9)
    assert (tuple(mine.batch_shape), tuple(mine.event_shape)) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    assert repr(mine.support) == repr(theirs.support)
    wide, wider = mine.expand((4, *mine.batch_shape)), theirs.expand((4, *theirs.batch_shape))
    close(wide.log_prob(value.unsqueeze(1)), wider.log_prob(x.unsqueeze(1)), rtol=1e-9)
    if i in (0, 1, 2, 4):
        close(mine.cdf(value), theirs.cdf(x), rtol=1e-9)
        p = RNG(0).uniform(0.1, 0.9, (4, 3))
        close(mine.icdf(mytorch.tensor(p)), theirs.icdf(torch.tensor(p)), rtol=1e-9)
    assert mine.has_rsample


def test_transformed_distribution_refuses():
    with pytest.raises(ValueError, match="Transform or list"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), 3)
    with pytest.raises(ValueError, match="list of Transforms"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), [3])
    with pytest.raises(ValueError, match="size at least 1"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform())
    with pytest.raises(ValueError, match="different numbers of elements"):
        D.ReshapeTransform((2, 3), (5,))
    with pytest.raises(ValueError, match="flattened lower-diagonal"):
        D.CorrCholeskyTransform().forward_shape((4,))
    with pytest.raises(AssertionError, match="must equal length"):
        D.CatTransform([D.ExpTransform()], 0, [2])(mytorch.zeros(3))
    with pytest.raises(ValueError, match="Too few dimensions"):
        D.IndependentTransform(D.ExpTransform(), 2)(mytorch.zeros(3))


@pytest.mark.parametrize("diag", [-2, -1, 0, 1, 2])
def test_triangles(diag, torch):
    m = RNG(0).normal(size=(2, 4, 4))
    mine = D.utils.tril_matrix_to_vec(mytorch.tensor(m), diag)
    theirs = torch.distributions.utils.tril_matrix_to_vec(torch.tensor(m), diag)
    close(mine, theirs)
    if diag <= 0:
        close(D.utils.vec_to_tril_matrix(mine, diag), torch.distributions.utils.vec_to_tril_matrix(theirs, diag))
    with pytest.raises(ValueError, match="outside"):
        D.utils.tril_matrix_to_vec(mytorch.tensor(m), 4)
    with pytest.raises(ValueError, match="cannot be expressed"):
        D.utils.vec_to_tril_matrix(mytorch.zeros(5))
