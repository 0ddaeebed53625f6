"""Derivatives at corner points, of overlapping memory and of linear algebra in both modes, compared with PyTorch or analytic values."""

import itertools
import math

import numpy as np
import pytest

import mytorch
from mytorch import func
from mytorch.arrays import config
from tests.loops import loop

torch = pytest.importorskip("torch")
BOTH = (torch, mytorch)
F = mytorch.nn.functional

# -- corner points ----------------------------------------------------------------------------------------------------

VALUES = [[1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [-1.0, 1.0, 1.0, -1.0, 0.0, 0.0], [3.0, 3.0, 3.0, 2.0, 2.0, 2.0], [0.0] * 6]
FUNCTIONS = {
    **{name: lambda L, x, n=name: getattr(L, n)(x) for name in ("max", "min", "amax", "amin", "median", "nanmedian")},
    **{f"{name} dim": lambda L, x, n=name: getattr(L, n)(x, 0) for name in ("max", "min", "median", "amax", "cummax")},
    **{f"var {c}": lambda L, x, c=c: L.var(x, correction=c) for c in (0, 5, 6, 7)},
    **{f"std {c}": lambda L, x, c=c: L.std(x, correction=c) for c in (0, 5, 6, 7)},
    **{f"var dim {c}": lambda L, x, c=c: L.var(x.reshape(2, 3), 1, correction=c) for c in (2, 3, 4)},
    **{f"x ** {p}": lambda L, x, p=p: x**p for p in (0, 0.0, 1, 2, 3)},
    "elu": lambda L, x: L.nn.functional.elu(x),
    "celu": lambda L, x: L.nn.functional.celu(x),
    "relu6": lambda L, x: L.nn.functional.relu6(x * 6),
    "maximum": lambda L, x: L.maximum(x, x.flip(0)),
    "clamp": lambda L, x: L.clamp(x, 0, 1),
    "prod": lambda L, x: x.prod(),
    "max_pool1d": lambda L, x: L.nn.functional.max_pool1d(x.reshape(1, 1, 6), 3, 2, 1),
}


def _values(result):
    result = result.detach()
    return result.resolve_conj().numpy() if isinstance(result, torch.Tensor) else result.numpy()


@loop
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_first_and_second_derivatives_at_corners(name, rng):
    for data in VALUES:
        ups, found = rng.uniform(0.5, 2, (2, 6)), []
        for L in BOTH:
            x = L.tensor(data, dtype=L.float64).requires_grad_()
            y = FUNCTIONS[name](L, x)
            y = y[0] if isinstance(y, tuple) else y
            up = L.tensor(ups[0][: y.numel()].reshape(tuple(y.shape)))
            (g,) = L.autograd.grad(y, x, up, create_graph=True)
            second = None
            if g.requires_grad:
                (second,) = L.autograd.grad(g, x, L.tensor(ups[1]), allow_unused=True)
            second = L.zeros_like(g) if second is None else second
            found.append([_values(y), _values(g), _values(second + 0)])
        for theirs, mine in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9, equal_nan=True, err_msg=f"{name} {data}")


# -- norms ------------------------------------------------------------------------------------------------------------

ORDERS = (0.5, 1, 1.5, 2, 3, math.inf)
NORMS = {
    **{f"norm {p}": lambda L, x, p=p: x.norm(p, 1) for p in (*ORDERS, -1, -2.5, -math.inf)},
    **{f"total norm {p}": lambda L, x, p=p: L.linalg.vector_norm(x, p) for p in (*ORDERS, -1)},
    **{f"renorm {p} {m}": lambda L, x, p=p, m=m: L.renorm(x, p, 0, m) for p in ORDERS for m in (0.0, 2.5, math.inf)},
    **{f"normalize {p}": lambda L, x, p=p: L.nn.functional.normalize(x, p, 1) for p in ORDERS},
    **{
        f"cdist {p}": lambda L, x, p=p: L.cdist(x, x.detach() * 1, p) for p in ORDERS[:-1]
    },  # PyTorch adds ties of maxima up
    **{f"pdist {p}": lambda L, x, p=p: L.pdist(x, p) for p in ORDERS[:-1]},
    **{f"dist {p}": lambda L, x, p=p: L.dist(x, x.detach() * 1, p) for p in ORDERS},
    **{
        f"pairwise {e}": lambda L, x, e=e: L.nn.functional.pairwise_distance(x, x.detach() * 1, eps=e)
        for e in (0.0, 1e-6)
    },
    "cosine_similarity": lambda L, x: L.nn.functional.cosine_similarity(x, x.detach().flip(0)),
}
ROWS = {
    "zeros and equal rows": [[0.0, 0, 0], [3, 0, 4], [3, 0, 4], [-1, -1, 1], [0, 1, 0]],
    "zero": [[0.0] * 3] * 5,
    "an infinity": [[math.inf, 1, 2], [1, 2, 3], [0, 0, 0], [0.1, 0, 0], [1, 1, 1]],
}


@loop
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", NORMS)
def test_derivatives_of_norms_are_finite_where_those_of_pytorch_are(name, rows, rng):
    found, up, second_up = [], rng.uniform(0.5, 2, 30), rng.uniform(0.5, 2, (5, 3))
    if rows == "an infinity" and not name.startswith("renorm"):
        return
    for L in BOTH:
        x = L.tensor(ROWS[rows], dtype=L.float64).requires_grad_()
        y = NORMS[name](L, x)
        differentiable = L is mytorch or "dist" not in name
        (g,) = L.autograd.grad(y, x, L.tensor(up[: y.numel()].reshape(tuple(y.shape))), create_graph=differentiable)
        results = [y, g]
        if g.requires_grad and "dist" not in name:
            (second,) = L.autograd.grad(g, x, L.tensor(second_up), allow_unused=True)
            results.append(L.zeros_like(x) if second is None else second)
        found.append([_values(r + 0) for r in results])
    for theirs, mine in zip(*found, strict=False):
        finite = np.isfinite(theirs)
        np.testing.assert_allclose(mine[finite], theirs[finite], rtol=1e-9, atol=1e-9, err_msg=name)
        assert np.isfinite(mine).all() or rows == "an infinity", name


# -- slices of NaN and infinities ----------------------------------------------------------------------------------------

QUANTILES = [
    (f, q, i)
    for f in ("quantile", "nanquantile")
    for q in (0.0, 0.3, 1.0, [0.2, 0.7])
    for i in ("linear", "lower", "higher", "nearest", "midpoint")
]
OF_SLICES = {
    **{n: lambda L, x, n=n, **k: getattr(L, n)(x, **k) for n in ("median", "nanmedian", "max", "min", "aminmax", "nansum", "nanmean", "var", "std")},
    **{f"{n} dim": lambda L, x, n=n, dim=0, **k: getattr(L, n)(x, dim=dim, **k) for n in ("mode", "amax", "amin", "logsumexp")},
    **{f"{n} keepdim free": lambda L, x, n=n, dim=0, keepdim=False: getattr(L, n)(x, dim=dim) for n in ("cummax", "cummin", "sort", "softmax", "logcumsumexp")},
    **{f"{f} {q} {i}": lambda L, x, f=f, q=q, i=i, **k: getattr(L, f)(x, L.tensor(q, dtype=x.dtype) if isinstance(q, list) else q, interpolation=i, **k) for f, q, i in QUANTILES},
    **{f"kthvalue {n}": lambda L, x, n=n, dim=0, **k: L.kthvalue(x, n, dim=dim, **k) for n in (1, 3)},
    **{f"norm {p}": lambda L, x, p=p, **k: L.linalg.vector_norm(x, p, **k) for p in (0.5, 1, 2, 3, math.inf, -math.inf)},
    **{f"{n}_pool": lambda L, x, n=n, **_: getattr(L.nn.functional, n)(x[None], 2) for n in ("max_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool2d")},
}  # fmt: skip


OF_SLICES |= {
    "area_pool": lambda L, x, **_: L.nn.functional.interpolate(x[None], 3, mode="area"),
    "wide_pool": lambda L, x, **_: L.nn.functional.adaptive_avg_pool2d(x[None], (6, 3)),
    "linear_pool": lambda L, x, **_: L.nn.functional.interpolate(x[None], (7, 3), mode="bilinear"),
    "smooth_pool": lambda L, x, **_: L.nn.functional.interpolate(x[None], (3, 4), mode="bilinear", antialias=True),
}  # fmt: skip


def _with_nan(rng, axis):
    x = rng.standard_normal((3, 4, 5))
    yield x
    yield np.full_like(x, math.nan)
    yield np.full_like(x, math.inf)
    some = x.copy()
    np.moveaxis(some, axis or 0, 0)[:, 0] = math.nan
    yield some
    yield np.where(rng.random(x.shape) < 0.4, math.nan, x)
    yield np.where(rng.random(x.shape) < 0.3, rng.choice([math.nan, math.inf, -math.inf], x.shape), x.round())


def _shared_by_equals(x, g, axis):
    """Sums the gradients of equal elements, since either of them may be the chosen one."""
    rows, parts = (
        np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis]) if axis is not None else a.reshape(1, -1) for a in (x, g)
    )
    same = (rows[:, None] == rows[:, :, None]) | (np.isnan(rows)[:, None] & np.isnan(rows)[:, :, None])
    return np.where(same, parts[:, None], 0).sum(-1)


@pytest.mark.parametrize("name", OF_SLICES)
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_slices_of_nan(name, rng):
    picks = name.startswith(("median", "nanmedian", "mode", "kth", "sort", "quant", "nanquant"))
    for axis, keepdim in ((None, False), (0, False), (1, True), (-1, False)):
        for data in _with_nan(rng, axis):
            if name.startswith("mode") and np.isnan(data).any() and not np.isnan(data).all():
                continue  # PyTorch sorts by `<`, which is undefined then
            kwargs, seed, found = {} if axis is None else {"dim": axis, "keepdim": keepdim}, rng.integers(1 << 30), []
            for L in BOTH:
                x = L.tensor(data).requires_grad_()
                out = OF_SLICES[name](L, x, **kwargs)
                out = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
                ups = np.random.default_rng(seed)
                (g,) = L.autograd.grad(out, x, [L.tensor(ups.standard_normal(tuple(t.shape))) for t in out])
                at = 0 if axis is None and name.startswith(("kth", "sort")) else axis
                g = _values(g)
                found.append([*map(_values, out), _shared_by_equals(data, g, at) if picks else g])
            for theirs, mine in zip(*found, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9, err_msg=f"{axis} {data}")


COMPLEX = "sqrt log log2 log10 log1p exp expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid reciprocal rsqrt"


@loop
@pytest.mark.parametrize("name", COMPLEX.split())
def test_complex_functions_in_all_quadrants(name, rng):
    parts = [-2.3, -1.5, -0.4, 0.7, 3.1]
    z = np.array(
        [complex(a, b) for a, b in itertools.product(parts, [-1.7, -0.3, 0.0, 0.3, 2.2]) if b or name == "exp"]
    )
    ups = rng.standard_normal((2, len(z))) + 1j * rng.standard_normal((2, len(z)))
    found = []
    for L in BOTH:
        x = L.tensor(z).requires_grad_()
        (g,) = L.autograd.grad(getattr(L, name)(x), x, L.tensor(ups[0]), create_graph=True)
        (second,) = L.autograd.grad(g, x, L.tensor(ups[1]))
        found.append([_values(g), _values(second)])
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)


def test_cross_products_use_the_last_dimension():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 3))
    x = mytorch.tensor(a).requires_grad_()
    mytorch.linalg.cross(x, mytorch.tensor(b)).sum().backward()
    want = torch.tensor(a).requires_grad_()
    torch.linalg.cross(want, torch.tensor(b)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy())


@loop
@pytest.mark.parametrize(
    "function",
    [
        F.relu, F.leaky_relu, F.hardtanh, F.relu6, F.hardshrink, F.softshrink, lambda x: F.threshold(x, 0.0, 0.0),
        lambda x: F.max_pool1d(x.reshape(1, 1, 6), 2), lambda x: F.avg_pool1d(x.reshape(1, 1, 6), 2),
    ],
)  # fmt: skip
def test_a_gradient_penalty_runs_on_piecewise_linear_functions(function):
    x = mytorch.tensor([0.3, -1.2, 2.0, 0.8, -0.1, 5.0]).requires_grad_()
    (g,) = mytorch.autograd.grad(function(x).sum(), x, create_graph=True)
    assert g.requires_grad
    (g**2).sum().backward()
    assert x.grad.tolist() == [0.0] * 6


def test_the_second_derivative_of_a_power_of_zero_is_finite():
    x, zero = mytorch.zeros(2, requires_grad=True), mytorch.zeros(2, requires_grad=True)
    (g,) = mytorch.autograd.grad((x**zero).sum(), x, create_graph=True)
    assert [t.tolist() for t in mytorch.autograd.grad(g.sum(), (x, zero))] == [[0.0, 0.0], [0.0, 0.0]]


def test_logcumsumexp_has_tangents_and_second_derivatives():
    x, t = mytorch.tensor([0.3, -1.2, 2.1]).double(), mytorch.tensor([1.0, 0.0, -1.0]).double()
    want = (x.exp() * t).cumsum(0) / x.exp().cumsum(0)
    np.testing.assert_allclose(func.jvp(lambda a: a.logcumsumexp(0), (x,), (t,))[1].numpy(), want.numpy())
    for f in (lambda a: (a.logcumsumexp(0) * t).sum(), lambda a: (a.exp().cumsum(0).log() * t).sum()):
        hessian = func.hessian(f)(x)
    np.testing.assert_allclose(
        func.hessian(lambda a: (a.logcumsumexp(0) * t).sum())(x).numpy(), hessian.numpy(), atol=1e-12
    )


def test_second_derivatives_of_complex_ops_with_residuals():
    rng = np.random.default_rng(0)
    z, u, v = (mytorch.tensor(rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))) for _ in range(3))

    def composed(x):
        return x / ((x * x).mean(-1, keepdim=True) + 0.5).sqrt()

    found = []
    for f in (lambda x: F.rms_norm(x, (3,), eps=0.5), composed):
        x = z.detach().requires_grad_()
        (g,) = mytorch.autograd.grad(f(x), x, u, create_graph=True)
        found.append([g.detach().numpy(), mytorch.autograd.grad(g, x, v)[0].numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


# -- memory that several elements share ---------------------------------------------------------------------------------

OVERLAPPING = {"unfold 3": (3, 1), "unfold 2": (2, 1), "unfold 3 step 2": (3, 2)}
WRITES = {
    "index_fill_": lambda L, v: v.index_fill_(0, L.tensor([0]), 9.25),
    "index_fill_ columns": lambda L, v: v.index_fill_(1, L.tensor([1]), 9.25),
    "scatter_": lambda L, v: v.scatter_(0, L.tensor([[0, 1]]), 7.25),
    "index_copy_": lambda L, v: v.index_copy_(0, L.tensor([1]), L.full((1, v.shape[1]), 4.25, dtype=v.dtype)),
    "masked_fill_": lambda L, v: v.masked_fill_(L.arange(v.numel()).reshape(v.shape) == 1, 8.25),
    "index_put_": lambda L, v: v.index_put_((L.tensor([1]),), L.tensor(3.25, dtype=v.dtype)),
    "index_add_": lambda L, v: v.index_add_(0, L.tensor([0, 0]), L.ones(2, v.shape[1], dtype=v.dtype)),
    "scatter_add_": lambda L, v: v.scatter_add_(0, L.tensor([[0, 1]]), L.tensor([[1.0, 2.0]], dtype=v.dtype)),
    "index_put_ adding": lambda L, v: v.index_put_((L.tensor([0, 1]),), L.tensor(3.25, dtype=v.dtype), accumulate=True),
    "fill_diagonal_": lambda L, v: v.fill_diagonal_(3.25),
    "assignment": lambda L, v: v.__setitem__((slice(None), 1), 2.25),
}


@loop
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("view", OVERLAPPING)
def test_writes_to_overlapping_views(name, view):
    size, step = OVERLAPPING[view]
    memory = []
    for L in BOTH:
        m = L.arange(1, 7, dtype=L.float64)
        WRITES[name](L, m.unfold(0, size, step))
        memory.append(m.numpy())
    np.testing.assert_array_equal(*memory)
    x = mytorch.arange(1, 7).double().requires_grad_()
    y, weights = x * 1, mytorch.arange(1, 7).double()
    if name in ("index_add_", "scatter_add_", "index_put_ adding"):
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            WRITES[name](mytorch, y.unfold(0, size, step))
        return
    WRITES[name](mytorch, y.unfold(0, size, step))
    (g,) = mytorch.autograd.grad((y * weights).sum(), x)
    np.testing.assert_array_equal(g.numpy(), np.where(memory[0] == np.arange(1, 7), np.arange(1.0, 7), 0))


# -- changes in place between forward and backward ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [lambda L, x: 1 / x, lambda L, x: 2.5 / x, lambda L, x: L.nn.functional.cross_entropy(x, L.tensor([0, 2])), lambda L, x: x.exp()],
)  # fmt: skip
def test_inputs_that_may_change_after_the_function(function, rng):
    data, found = rng.standard_normal((2, 3)), []
    for L in BOTH:
        x = L.tensor(data).requires_grad_()
        y = x * 1
        out = function(L, y)
        y.mul_(0).add_(3)
        found.append(_values(L.autograd.grad((out * out).sum(), x)[0]))
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_data_and_ravel_are_other_tensors():
    m = mytorch.ones(2, 3)
    m.data.t_()
    assert m.shape == (2, 3)
    x = mytorch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    x.data.mul_(2)
    y.sum().backward()  # as in PyTorch, changes of `data` are not watched
    v = mytorch.arange(3)
    flat = v.ravel()
    v.unsqueeze_(-1)
    assert flat.shape == (3,)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_views_as_another_dtype_do_not_change_the_graph(kind):
    found = []
    for L in BOTH:
        x = L.tensor([1.0, 2.0], dtype=getattr(L, kind)).requires_grad_()
        y = x * 2
        y.view(L.int64 if kind == "float64" else L.float64).zero_()
        found.append([_values(y), _values(L.autograd.grad(y.abs().sum() if kind == "float64" else y.real.sum(), x)[0])])
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# -- both modes -------------------------------------------------------------------------------------------------------------

MATRICES = {
    "eigvalsh": mytorch.linalg.eigvalsh,
    "eigh": lambda a: mytorch.linalg.eigh(a)[1].abs(),
    "cholesky": mytorch.linalg.cholesky,
    "cholesky_solve": lambda a: mytorch.cholesky_solve(a[:, :2], mytorch.linalg.cholesky(a)),
    "cholesky_inverse": lambda a: mytorch.cholesky_inverse(mytorch.linalg.cholesky(a)),
    "qr": lambda a: mytorch.linalg.qr(a)[0].abs(),
    "svd": lambda a: mytorch.linalg.svd(a)[1],
    "eigvals": lambda a: mytorch.linalg.eigvals(a).abs(),
    "eig": lambda a: mytorch.linalg.eig(a)[1].abs(),
    "pinv": mytorch.linalg.pinv,
    "lu": lambda a: mytorch.linalg.lu(a)[2],
    "det": lambda a: mytorch.linalg.det(a),
    "solve": lambda a: mytorch.linalg.solve(a, a[:, :1]),
    "matrix_exp": lambda a: mytorch.linalg.matrix_exp(a * 0.1),
}


@loop
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_second_derivatives_of_decompositions_in_both_modes(name, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    part = rng.standard_normal((3, 3)) * 0.2
    if dtype.startswith("complex"):
        part = part + 0.2j * rng.standard_normal((3, 3))
    a = mytorch.tensor(np.diag([4.0, 2.5, 1.0]) + part + part.conj().T).to(getattr(mytorch, dtype))
    found = []
    for mode in (False, True):
        monkeypatch.setattr(config, "pytorch_mode", mode)

        def f(x):
            out = MATRICES[name](x)
            return out.abs() if out.dtype.is_complex else out

        x = a.detach().requires_grad_()
        (g,) = mytorch.autograd.grad(f(x).sum(), x, create_graph=True)
        assert g.dtype is a.dtype
        (second,) = mytorch.autograd.grad((g.abs() ** 2).sum(), x)
        tangent = func.jvp(f, (a,), (a * 0.5,))[1]
        assert second.dtype is a.dtype
        found.append([second.numpy(), tangent.numpy()])
    for native, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, native, rtol=1e-3 if dtype in ("float32", "complex64") else 1e-9, atol=1e-4)
    assert math.isfinite(abs(found[0][1].sum()))


@pytest.mark.parametrize("name", ["std", "norm"])
def test_tangents_at_zero_are_zero(name):
    x, t = mytorch.ones(3, 2).double(), mytorch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 1.0]]).double()
    assert func.jvp(lambda y: getattr(y - y, name)(dim=0), (x,), (t,))[1].tolist() == [0.0, 0.0]
