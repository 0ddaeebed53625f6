"""Sums of products and distances that are computed by matrix products, compared with PyTorch."""

import numpy as np
import pytest

import mytorch
from mytorch.kernels import blas
from tests.loops import loop


def beside(torch, run, *arrays, rtol=1e-4, atol=1e-4):
    """run(library, *tensors) under both libraries: the values, and all gradients for a random upstream one."""
    found = []
    for lib in (mytorch, torch):
        xs = [lib.tensor(a, requires_grad=True) for a in arrays]
        out = run(lib, *xs)
        up = np.random.default_rng(7).standard_normal(tuple(out.shape)).astype(arrays[0].dtype)
        out.backward(lib.tensor(up))
        found.append([out.detach().numpy(), *(x.grad.numpy() for x in xs)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)


MODES = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"


@loop
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "shapes", [((27, 5), (31, 5)), ((2, 1, 7, 3), (3, 29, 3)), ((0, 4), (30, 4)), ((30, 0), (3, 0))]
)
def test_cdist_by_a_product(torch, rng, mode, shapes):
    x, y = (rng.standard_normal(shape) for shape in shapes)
    beside(torch, lambda L, x, y: L.cdist(x, y, compute_mode=mode), x, y)


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_cdist_of_many_rows_a_few_at_a_time(torch, rng, p):
    x, y = rng.standard_normal((2, 61, 33)), rng.standard_normal((1, 397, 33))
    beside(torch, lambda L, x, y: L.cdist(x, y, p=p), x, y)


def test_cdist_of_equal_rows_has_no_gradient_there(rng):
    x = mytorch.tensor(rng.standard_normal((40, 6)).astype("float32"), requires_grad=True)
    mytorch.cdist(x, x.detach()).diagonal().sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_cdist_refuses_other_modes(rng):
    with pytest.raises(ValueError, match="is not a valid value for compute_mode"):
        mytorch.cdist(mytorch.ones(2, 2), mytorch.ones(2, 2), compute_mode="fast")


EQUATIONS = {
    "bhid,bhjd->bhij": [(2, 3, 37, 8), (2, 3, 41, 8)],
    "ijk,jl->ikl": [(7, 33, 9), (33, 11)],
    "bi,bj->bij": [(33, 31), (33, 29)],
    "bij,bjk,bkl->il": [(5, 17, 13), (5, 13, 11), (5, 11, 7)],
    "ibk,bkj,l->bij": [(21, 4, 30), (4, 30, 5), (3,)],
    "ij,ij->j": [(51, 43), (51, 43)],
    "aij,bij->ab": [(9, 23, 11), (8, 23, 11)],
}


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_by_batched_products(torch, rng, equation, dtype):
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in EQUATIONS[equation]]
    beside(torch, lambda L, *xs: L.einsum(equation, *xs), *arrays, rtol=2e-4, atol=2e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(300, 61), (70, 401)])
def test_large_images_are_resized_by_few_taps(torch, rng, mode, size):
    x = rng.standard_normal((2, 3, 131, 150))
    for corners in (False, True):
        beside(
            torch,
            lambda L, x: L.nn.functional.interpolate(x, size=size, mode=mode, align_corners=corners),
            x,
            rtol=1e-9,
            atol=1e-9,
        )


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("n", [1, 3, 70])
def test_ldl_is_pytorchs(torch, rng, n, hermitian, dtype):
    """Factors and pivots of indefinite matrices, so with blocks of two; the upper triangle is not read."""
    A = rng.standard_normal((2, n, n)) + (1j * rng.standard_normal((2, n, n)) if dtype == "complex128" else 0)
    A[..., range(n), range(n)] = A[..., range(n), range(n)].real
    A[0, 0, 0] = 0
    A, B = A.astype(dtype), rng.standard_normal((2, n, 3)).astype(dtype)
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-7, "atol": 1e-9}
    found, wanted = (L.linalg.ldl_factor_ex(L.tensor(A), hermitian=hermitian) for L in (mytorch, torch))
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), **tolerance)
    if n > 1:
        X = mytorch.linalg.ldl_solve(found.LD, found.pivots, mytorch.tensor(B), hermitian=hermitian).numpy()
        full = np.tril(A) + (np.tril(A, -1).conj() if hermitian else np.tril(A, -1)).swapaxes(1, 2)
        np.testing.assert_allclose(full @ X, B, rtol=1e-2, atol=1e-2 if dtype == "float32" else 1e-9)
    with pytest.raises(mytorch.linalg.LinAlgError, match="is zero"):
        mytorch.linalg.ldl_factor(mytorch.zeros(2, 2))


LAID_OUT = {
    "a @ b": lambda a, b: (a, b),
    "a @ bᵀ": lambda a, b: (a, np.ascontiguousarray(b.T).T),
    "aᵀ @ b": lambda a, b: (np.asfortranarray(a), b),
    "rows of a wider one": lambda a, b: (np.tile(a, 2)[:, : a.shape[1]], np.tile(b, 2)[:, : b.shape[1]]),
}


@loop
@pytest.mark.parametrize("laid_out", LAID_OUT)
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_few_rows_are_right_in_blocks_of_columns(rng, monkeypatch, laid_out, in_place, dtype):
    with blas.one_thread():  # it has found out by now which processor this is
        monkeypatch.setattr(blas, "_in_place", in_place)
    for rows, inner, columns in (
        (2, 384, 1543),
        (7, 771, 515),
        (33, 129, 513),
        (64, 40, 300),
        (513, 3, 900),
        (5, 0, 700),
    ):
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((rows, inner), (inner, columns)))
        exact = a.astype("float64") @ b.astype("float64")
        a, b = LAID_OUT[laid_out](a, b)
        wide = np.full((rows, 2 * columns), np.nan, dtype)
        for out in (blas.product(a, b), blas.product(a, b, wide[:, :columns]), wide[:, :columns]):
            np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)
        assert np.isnan(wide[:, columns:]).all()


@loop
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_repeated_products_with_one_matrix_are_right(rng, monkeypatch, in_place, dtype):
    with blas.one_thread():  # it has found out by now which processor this is
        monkeypatch.setattr(blas, "_in_place", in_place)
    for inner, columns in ((128, 512), (256, 96), (7, 64), (130, 65), (1, 128), (0, 64), (513, 48), (100, 400)):
        b = rng.standard_normal((inner, columns)).astype(dtype)
        multiply = blas.repeated(b)
        for rows in (0, 1, 2, 33, 700):
            a = rng.standard_normal((rows, inner)).astype(dtype)
            wide = np.full((rows, 2 * columns), np.nan, dtype)  # as the gates of a GRU
            multiply(a, wide[:, :columns])
            np.testing.assert_allclose(wide[:, :columns], a.astype("float64") @ b, rtol=1e-4, atol=1e-4)
            assert np.isnan(wide[:, columns:]).all()


@loop
@pytest.mark.cpu_only
@pytest.mark.parametrize("outs", [1, 3, 4, 65, 130])
@pytest.mark.parametrize("inner", [0, 1, 5, 8, 31, 128, 131])
def test_a_row_does_not_depend_on_the_other_rows(rng, outs, inner):
    """The kernel for few rows: any size, in a new array or in columns of another one, on one thread or several."""
    pytest.importorskip("numba")
    from mytorch.kernels import threads
    from mytorch.kernels.numba import linear

    weight = rng.standard_normal((outs, inner)).astype("float32")
    for rows in (0, 1, 2, 3, 5, 6, 7, 13, 64):
        x = rng.standard_normal((rows, inner)).astype("float32")
        out, wide = linear.forward(np, weight, x), np.full((rows, outs + 5), 7, np.float32)
        np.testing.assert_allclose(out, x.astype(float) @ weight.T.astype(float), 1e-5, 1e-4)
        linear.forward(np, weight, x, wide[:, 2:-3])
        assert (wide[:, 2:-3] == out).all()
        assert (wide[:, [0, 1, -3, -2, -1]] == 7).all()
        with threads.everything():
            assert (linear.forward(np, weight, x) == out).all()
        for r in range(rows):
            assert (linear.forward(np, weight, x[r : r + 1])[0] == out[r]).all()


def test_one_thread_restores_the_threads_of_blas():
    get = (blas._openblas() or [lambda: 1])[0]
    before = get()
    with blas.one_thread():
        with blas.one_thread():
            assert get() == 1
        assert get() == 1
    assert get() == before
    assert blas.one_thread.inside == 0
