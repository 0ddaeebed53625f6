"""Linear algebra, Fourier transforms, scatter, order statistics, shapes and special functions: values and gradients
against PyTorch, under random upstream gradients. Results with an arbitrary sign or phase (eigenvectors, complex results)
are compared by magnitude."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 4, 4))
P = A @ A.swapaxes(1, 2) + 4 * np.eye(4)
B = RNG.standard_normal((2, 4, 3))
R = RNG.standard_normal((2, 5, 3))

LINALG = [
    ("inv", lambda L, x: L.inv(x), (A,)),
    ("det", lambda L, x: L.det(x), (A,)),
    ("slogdet", lambda L, x: L.slogdet(x)[1], (A,)),
    ("solve", lambda L, x, y: L.solve(x, y), (A, B)),
    ("chol", lambda L, x: L.cholesky((x + x.mT) / 2), (P,)),
    ("eigvalsh", lambda L, x: L.eigvalsh(x + x.mT), (A,)),
    ("eigh", lambda L, x: L.eigh(x + x.mT), (A,)),
    ("svd", lambda L, x: L.svd(x, full_matrices=False), (R,)),
    ("svd2", lambda L, x: L.svd(x.mT, full_matrices=False), (R,)),
    ("qr", lambda L, x: L.qr(x), (R,)),
    ("pinv", lambda L, x: L.pinv(x), (R,)),
    ("mp", lambda L, x: L.matrix_power(x, 3), (A,)),
    ("mpn", lambda L, x: L.matrix_power(x, -2), (A,)),
    ("mexp", lambda L, x: L.matrix_exp(x), (A,)),
    ("norm", lambda L, x: L.norm(x), (A,)),
    ("fro", lambda L, x: L.matrix_norm(x, "fro"), (A,)),
    ("nuc", lambda L, x: L.matrix_norm(x, "nuc"), (A,)),
    ("m1", lambda L, x: L.matrix_norm(x, 1), (A,)),
    ("minf", lambda L, x: L.matrix_norm(x, float("inf")), (A,)),
    ("m2", lambda L, x: L.matrix_norm(x, 2), (A,)),
    ("cond", lambda L, x: L.cond(x), (A,)),
    ("st", lambda L, x, y: L.solve_triangular(x, y, upper=True), (P, B)),
    ("md", lambda L, x, y: L.multi_dot([x[0], y[0], y[0].mT]), (A, B)),
    ("lstsq", lambda L, x, y: L.lstsq(x, y).solution, (R, RNG.standard_normal((2, 5, 2)))),
]

FUNCTIONS = [
    ("tensordot", lambda L, x, y: L.tensordot(x, y, dims=([1], [0])), (A[0], B[0])),
    ("kron", lambda L, x, y: L.kron(x, y), (A[0], B[0])),
    ("cross", lambda L, x: L.cross(x, x.roll(1, 0), dim=-1), (RNG.standard_normal((4, 3)),)),
    ("cdist", lambda L, x, y: L.cdist(x, y), (A, B.swapaxes(1, 2))),
    ("inner", lambda L, x: L.inner(x[0], x[1]), (A,)),
    ("prod", lambda L, x: x.prod(1), (A,)),
    ("cumprod", lambda L, x: x.cumprod(1), (A,)),
    ("cummax", lambda L, x: x.cummax(1)[0], (A,)),
    ("median", lambda L, x: x.median(1)[0], (A,)),
    ("lcse", lambda L, x: x.logcumsumexp(1), (A,)),
    ("quant", lambda L, x: L.quantile(x, 0.3, dim=1), (A,)),
    ("diff", lambda L, x: x.diff(), (A,)),
    ("cov", lambda L, x: L.cov(x[0]), (A,)),
    ("corrcoef", lambda L, x: L.corrcoef(x[0]), (A,)),
    ("diag_embed", lambda L, x: L.diag_embed(x), (A,)),
    ("diagonal", lambda L, x: x.diagonal(1, 1, 2), (A,)),
    ("roll", lambda L, x: x.roll((1, 2), (1, 2)), (A,)),
    ("rot90", lambda L, x: L.rot90(x, 1, (1, 2)), (A,)),
    ("unfold", lambda L, x: x.unfold(1, 2, 1), (A,)),
    ("ri", lambda L, x: x.repeat_interleave(2, 1), (A,)),
    ("sa", lambda L, x: x.scatter_add(1, L.tensor([[[0, 1, 1, 2]] * 3] * 2), x[:, :3] * 2), (A,)),
    ("sc", lambda L, x: x.scatter(1, L.tensor([[[0, 1, 3, 2]]] * 2), x[:, :1] * 2), (A,)),
    ("sr", lambda L, x: x.scatter_reduce(1, L.tensor([[[0, 1, 1, 2]] * 3] * 2), x[:, :3] * 2, "amax"), (A,)),
    ("srm", lambda L, x: x.scatter_reduce(1, L.tensor([[[0, 1, 1, 2]] * 3] * 2), x[:, :3] * 2, "mean"), (A,)),
    (
        "srp",
        lambda L, x: x.scatter_reduce(1, L.tensor([[[0, 1, 1, 2]] * 3] * 2), x[:, :3] * 2, "prod", include_self=False),
        (A,),
    ),
    ("ia", lambda L, x: x.index_add(1, L.tensor([0, 2, 0]), x[:, :3], alpha=2), (A,)),
    ("ic", lambda L, x: x.index_copy(1, L.tensor([0, 2]), x[:, :2] * 3), (A,)),
    ("tad", lambda L, x: L.take_along_dim(x, x.argsort(1), 1), (A,)),
    ("ms", lambda L, x: x.masked_scatter(x > 0, x.flatten() * 2), (A,)),
    ("asin", lambda L, x: (x * 0.2).asin() + (x * 0.2).atanh() + x.sinh() + x.atan() + x.asinh(), (A,)),
    ("lgamma", lambda L, x: (x.abs() + 0.1).lgamma() + (x.abs() + 0.2).digamma(), (A,)),
    ("erfinv", lambda L, x: (x * 0.2).erfinv() + x.erfc(), (A,)),
    ("logaddexp", lambda L, x: L.logaddexp(x, x * 2) + L.atan2(x, x + 3) + L.hypot(x, x * 2), (A,)),
    ("fft", lambda L, x: L.fft.fft(x), (A,)),
    ("rfft", lambda L, x: L.fft.rfft(x, n=6), (A,)),
    ("irfft", lambda L, x: L.fft.irfft(L.fft.rfft(x) * 2), (A,)),
    ("irfft5", lambda L, x: L.fft.irfft(L.fft.rfft(x), n=5), (A,)),
    ("fft2", lambda L, x: L.fft.fft2(x, norm="ortho"), (A,)),
    (
        "rotary",
        lambda L, x: L.view_as_real(
            L.view_as_complex(x.reshape(2, 4, 2, 2))
            * L.polar(L.ones(4, 2, dtype=L.float64), L.arange(8.0, dtype=L.float64).reshape(4, 2))
        ),
        (A,),
    ),
    ("kth", lambda L, x: x.kthvalue(2, 1)[0], (A,)),
    ("mode", lambda L, x: x.round().mode(1)[0], (A,)),
    ("trace", lambda L, x: L.trace(x[0]), (A,)),
    ("bd", lambda L, x: L.block_diag(x[0], x[1]), (A,)),
    ("combi", lambda L, x: L.combinations(x[0, 0]), (A,)),
    ("trapz", lambda L, x: L.trapezoid(x), (A,)),
    ("select_scatter", lambda L, x: x.select_scatter(x[:, 0] * 2, 1, 2), (A,)),
    ("as_strided", lambda L, x: L.as_strided(x, (2, 2), (1, 2), 1), (A,)),
    ("tsplit", lambda L, x: L.tensor_split(x, 3, 1), (A,)),
    ("sinc", lambda L, x: L.sinc(x), (A,)),
    ("nansum", lambda L, x: x.nansum(1), (A,)),
    ("renorm", lambda L, x: x.renorm(2, 0, 1.0), (A,)),
]

EINSUMS = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("bij,bjk->bik", ((2, 2, 3), (2, 3, 4))),
    ("i,j->ij", ((3,), (4,))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("...ij,...jk->...ik", ((2, 2, 3), (3, 4))),
    ("bhld,bhmd->bhlm", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("ij->", ((2, 3),)),
    ("ij->j", ((2, 3),)),
    ("abc,cd,de->abe", ((2, 3, 4), (4, 5), (5, 2))),
    ("ij,ij->i", ((2, 3), (2, 3))),
    ("ijk->kji", ((2, 3, 4),)),
]


def compare(torch, call, *arrays):
    results = []
    for lib in (mytorch, torch):
        leaves = [lib.tensor(a, requires_grad=True) for a in arrays]
        out = call(lib, *leaves)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        rng = np.random.default_rng(1)
        loss = None
        for o in outs:
            up = lib.tensor(rng.standard_normal(tuple(o.shape)))
            if o.requires_grad:
                term = (o.abs() * up).sum()
                loss = term if loss is None else loss + term
        if loss is not None:
            loss.backward()
        results.append(
            ([o.detach().abs().numpy() for o in outs], [None if t.grad is None else np.asarray(t.grad) for t in leaves])
        )
    for mine, theirs in zip(results[0][0], results[1][0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-7)
    for mine, theirs in zip(results[0][1], results[1][1], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


@loop
@pytest.mark.parametrize(("name", "function", "arrays"), LINALG, ids=[r[0] for r in LINALG])
def test_linalg(name, function, arrays, torch):
    compare(torch, lambda lib, *xs: function(lib.linalg, *xs), *arrays)


@loop
@pytest.mark.parametrize(("name", "function", "arrays"), FUNCTIONS, ids=[r[0] for r in FUNCTIONS])
def test_function(name, function, arrays, torch):
    compare(torch, function, *arrays)


@pytest.mark.parametrize(("equation", "shapes"), EINSUMS, ids=[e for e, _ in EINSUMS])
def test_einsum(equation, shapes, torch):
    arrays = [RNG.standard_normal(s) for s in shapes]
    compare(torch, lambda lib, *xs: lib.einsum(equation, *xs), *arrays)
