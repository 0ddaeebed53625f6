"""Sparse tensors, compared with PyTorch on random tensors of all layouts, dtypes and sizes."""

import copy
import io
import pickle

import numpy as np
import pytest

import mytorch
from mytorch import nn
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.cpu_only, pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta")]


@pytest.fixture(autouse=True)
def _checked():
    with torch.sparse.check_sparse_tensor_invariants():
        yield


FLOATS = ["float32", "float64", "complex64", "complex128"]
DTYPES = ["float64", "complex128", "float16", "bfloat16", "int64", "int32", "bool", "uint8"]
# (sparse sizes, dense sizes, elements)
SHAPES = [
    ((4, 5), (), 7), ((4, 5), (), 0), ((6,), (), 4), ((3, 4, 2), (), 9), ((4, 3), (2,), 6), ((5,), (2, 3), 4),
    ((1, 1), (), 3), ((0, 3), (), 0), ((4, 5), (0,), 3), ((3, 3), (), 30),
]  # fmt: skip
MATRICES = [((4, 5), 7), ((4, 5), 0), ((1, 6), 3), ((6, 1), 4), ((0, 3), 0), ((3, 0), 0), ((5, 5), 25), ((7, 3), 40)]


def numbers(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.6
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, 5, shape).astype(dtype)
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        return (values + 1j * rng.standard_normal(shape)).astype(dtype)
    return values.astype("float64" if dtype == "float64" else "float32")


def leaf(lib, values, dtype, grad=False):
    return lib.tensor(values, dtype=getattr(lib, dtype)).requires_grad_(grad)


def coo(lib, spec, grad=False, distinct=False):
    """Returns (sparse tensor, its values) of a library."""
    indices, values, sizes, dtype = spec
    v = leaf(lib, values, dtype, grad)
    x = lib.sparse_coo_tensor(lib.tensor(indices), v, sizes)
    return (x.coalesce() if distinct else x), v


def spec_of(rng, sizes, dense, count, dtype):
    indices = np.stack([rng.integers(0, max(n, 1), count) for n in sizes]).reshape(len(sizes), count)
    return indices, numbers(rng, (count, *dense), dtype), (*sizes, *dense), dtype


def plain(x):
    """Returns a dense NumPy array of a tensor of any layout and library."""
    x = x.detach()
    x = x.to_dense() if str(x.layout) not in ("strided", "torch.strided") else x
    name = str(x.dtype)
    x = x.float() if name.endswith(("float16", "bfloat16")) else x
    return np.asarray(x.cpu())


def agree(ours, theirs, dtype="float64"):
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.layout).removeprefix("torch.") == str(theirs.layout).removeprefix("torch.")
    rough = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 1e-5, "complex64": 1e-5}.get(dtype, 1e-10)
    np.testing.assert_allclose(plain(ours), plain(theirs), rtol=rough, atol=rough)


def agree_gradients(ours, theirs, dtype):
    """Compares gradients. Some gradients are sparse in one library and dense in the other."""
    if ours.layout != mytorch.strided and theirs.layout == torch.strided:
        theirs = theirs * torch.tensor(plain(ours) != 0)
    rough = {"float32": 1e-5, "complex64": 1e-5}.get(dtype, 1e-10)
    np.testing.assert_allclose(plain(ours), plain(theirs), rtol=rough, atol=rough)


def same_pattern(ours, theirs):
    assert ours._nnz() == theirs._nnz()
    if str(theirs.layout) == "torch.sparse_coo":
        assert ours.is_coalesced() == theirs.is_coalesced()
        np.testing.assert_array_equal(np.asarray(ours._indices()), np.asarray(theirs._indices()))
    elif str(theirs.layout) == "torch.sparse_csr":
        np.testing.assert_array_equal(np.asarray(ours.crow_indices()), np.asarray(theirs.crow_indices()))
        np.testing.assert_array_equal(np.asarray(ours.col_indices()), np.asarray(theirs.col_indices()))


def both(function, make, dtype, backward=True, pattern=False, dense=None):
    """Runs a function with both libraries and compares the results and the gradients of all leaves.

    Args:
        function: function of (library, *inputs).
        make: function of a library that returns (inputs, leaves).
        dtype: name of the dtype.
        backward: compare gradients.
        pattern: compare the positions of the elements.
        dense: the function over dense tensors, for gradients that PyTorch does not have for sparse tensors.
    """
    results = []
    for lib in (mytorch, torch):
        inputs, leaves = make(lib)
        results.append((function(lib, *inputs), leaves))
    (ours, mine), (theirs, yours) = results
    agree(ours, theirs, dtype)
    if pattern and str(theirs.layout) != "torch.strided":
        same_pattern(ours, theirs)
    if not backward or not ours.requires_grad:
        return
    if dense is not None:
        inputs, yours = make(torch)
        theirs = dense(torch, *[x.to_dense() for x in inputs])
    assert ours.requires_grad
    g = numbers(np.random.default_rng(7), theirs.shape, dtype)
    for lib, result in ((mytorch, ours), (torch, theirs)):
        result = result.to_dense() if str(result.layout) not in ("strided", "torch.strided") else result
        g = g.real if not result.dtype.is_complex else g
        result.backward(lib.tensor(g, dtype=result.dtype))
    for a, b in zip(mine, yours, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            agree_gradients(a.grad, b.grad, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_coalesce_and_conversions(dtype):
    rng = np.random.default_rng(0)
    for sizes, dense, count in SHAPES:
        spec = spec_of(rng, sizes, dense, count, dtype)
        grad = dtype in FLOATS

        def make(lib, spec=spec, grad=grad):
            x, v = coo(lib, spec, grad)
            return (x,), (v,)

        both(lambda lib, x: x.to_dense(), make, dtype)
        both(lambda lib, x: x.coalesce(), make, dtype, pattern=True)
        both(lambda lib, x: x.clone(), make, dtype, pattern=True)
        if not dtype.startswith("complex"):  # PyTorch has no gradient of complex numbers here
            both(lambda lib, x: x.to_dense().to_sparse(), make, dtype, pattern=True)
        both(lambda lib, x: x.coalesce().values(), make, dtype)
        if len(sizes) == 2 and not dense and not dtype.startswith("complex"):
            both(lambda lib, x: x.to_sparse_csr(), make, dtype, pattern=True)
            both(lambda lib, x: x.to_sparse_csr().to_dense(), make, dtype)
            both(lambda lib, x: x.to_sparse_csr().to_sparse(), make, dtype, pattern=True)
            both(lambda lib, x: x.to_sparse_csc().to_dense(), make, dtype)
            both(lambda lib, x: x.to_dense().to_sparse_csr(), make, dtype, pattern=True)


UNARY = (
    "neg abs sign sgn sqrt sin tan sinh tanh asin asinh atan atanh erf erfinv expm1 log1p floor ceil trunc round square relu "
    "isnan isinf deg2rad rad2deg nan_to_num"
).split()


@loop
@pytest.mark.parametrize("name", UNARY)
def test_functions_that_keep_zeros(name):
    rng = np.random.default_rng(1)
    complex_too = name in "neg abs sgn sqrt sin tan sinh tanh asin atan asinh atanh square expm1".split()
    for dtype in ["float64", *(["complex128"] if complex_too else [])]:
        for sizes, dense, count in SHAPES:
            spec = spec_of(rng, sizes, dense, count, dtype)
            indices, values, size, _ = spec
            spec = indices, values * 0.1, size, dtype

            def make(lib, spec=spec):
                x, v = coo(lib, spec, True)
                return (x,), (v,)

            # PyTorch has no gradients for most functions of sparse tensors. Its gradient of the dense function is read at
            # the positions of the elements.
            function = getattr(torch, name)
            if name in ("square", "nan_to_num", "deg2rad", "rad2deg"):
                both(lambda lib, x: getattr(x, name)().to_dense(), make, dtype, dense=lambda lib, x: function(x))
            else:
                both(lambda lib, x: getattr(x, name)(), make, dtype, name != "isinf", True, lambda lib, x: function(x))


BINARY = {
    "add": lambda lib, a, b, d: a + b,
    "sub": lambda lib, a, b, d: a - b,
    "mul": lambda lib, a, b, d: a.coalesce() * b.coalesce(),
    "add_alpha": lambda lib, a, b, d: lib.add(a, b, alpha=2),
    "dense_add": lambda lib, a, b, d: d + a,
    "dense_sub": lambda lib, a, b, d: d - a,
    "mul_dense": lambda lib, a, b, d: a.coalesce() * d,
    "dense_mul": lambda lib, a, b, d: d * a.coalesce(),
    "mul_number": lambda lib, a, b, d: a * 2.5,
    "mul_0d": lambda lib, a, b, d: a * lib.tensor(2.5, dtype=d.dtype),
    "div": lambda lib, a, b, d: a / 4,
    "neg": lambda lib, a, b, d: -a,
    "mask": lambda lib, a, b, d: d.sparse_mask(a.coalesce()),
    "mask_sparse": lambda lib, a, b, d: b.coalesce().sparse_mask(a.coalesce()),
    "cat": lambda lib, a, b, d: lib.cat([a, b], 0),
    "cat_last": lambda lib, a, b, d: lib.cat([a, b], -1),
    "stack": lambda lib, a, b, d: lib.stack([a, b]),
    "same": lambda lib, a, b, d: a + a,
}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name):
    rng = np.random.default_rng(2)
    for dtype in ("float32", "complex128"):
        for sizes, dense, count in SHAPES:
            one, two = (
                spec_of(rng, sizes, dense, count, dtype),
                spec_of(rng, sizes, dense, count // 2 + (0 not in sizes), dtype),
            )
            third = numbers(rng, (*sizes, *dense), dtype)

            def make(lib, one=one, two=two, third=third, dtype=dtype):
                (a, va), (b, vb), d = coo(lib, one, True), coo(lib, two, True), leaf(lib, third, dtype, True)
                return (a, b, d), (va, vb, d)

            # PyTorch has no gradient of joined sparse tensors.
            joined = (lambda lib, a, b, d: BINARY[name](lib, a, b, d)) if name.startswith(("cat", "stack")) else None
            both(BINARY[name], make, dtype, dense=joined)


def shapes_of(name):
    return [s for s in SHAPES if len(s[0]) > 1] if "transpose" in name else SHAPES


SHAPED = {
    "sum": lambda lib, x: x.sum(),
    "sparse_sum": lambda lib, x: lib.sparse.sum(x),
    "sum_0": lambda lib, x: lib.sparse.sum(x, 0),
    "sum_last": lambda lib, x: lib.sparse.sum(x, -1),
    "sum_all_sparse": lambda lib, x: lib.sparse.sum(x, tuple(range(x.sparse_dim()))),
    "transpose": lambda lib, x: x.transpose(0, 1),
    "transpose_coalesced": lambda lib, x: x.coalesce().transpose(0, 1),
    "select": lambda lib, x: x.coalesce().select(0, -1) if x.shape[0] and x.ndim > 1 else x.coalesce(),
    "select_last": lambda lib, x: x.coalesce().select(-1, 0) if x.shape[-1] and x.ndim > 1 else x.coalesce(),
    "getitem": lambda lib, x: x.coalesce()[0] if x.shape[0] and x.ndim > 1 else x.coalesce(),
    "narrow_copy": lambda lib, x: x.narrow_copy(0, 0, x.shape[0] // 2).coalesce(),
    "unsqueeze": lambda lib, x: x.unsqueeze(0),
    "unsqueeze_last": lambda lib, x: x.unsqueeze(-1),
    "norm": lambda lib, x: x.coalesce().norm(),
}


DENSE = {  # the same functions of dense tensors, where PyTorch has no gradient for sparse tensors
    "select": lambda x: x[-1] if x.shape[0] and x.ndim > 1 else x,
    "select_last": lambda x: x[..., 0] if x.shape[-1] and x.ndim > 1 else x,
    "getitem": lambda x: x[0] if x.shape[0] and x.ndim > 1 else x,
    "unsqueeze": lambda x: x.unsqueeze(0),
    "unsqueeze_last": lambda x: x.unsqueeze(-1),
    "norm": lambda x: x.norm(),
}


@pytest.mark.parametrize("name", SHAPED)
def test_shapes_and_sums(name):
    rng = np.random.default_rng(3)
    for dtype in ("float64",):
        for sizes, dense, count in shapes_of(name):
            spec = spec_of(rng, sizes, dense, count, dtype)

            def make(lib, spec=spec):
                x, v = coo(lib, spec, True)
                return (x,), (v,)

            if name in ("narrow_copy",):  # PyTorch has no gradient for it
                both(lambda lib, x: SHAPED[name](lib, x.detach()), make, dtype, backward=False)
            else:
                dense = DENSE.get(name)
                both(SHAPED[name], make, dtype, dense=dense and (lambda lib, x: dense(x)))


def test_index_select():
    rng = np.random.default_rng(4)
    for sizes, dense, count in SHAPES:
        spec = spec_of(rng, sizes, dense, count, "float64")
        for dim in range(len(sizes) + len(dense)):
            size = (*sizes, *dense)[dim]
            chosen = rng.integers(0, max(size, 1), 5 if size else 0)

            def make(lib, spec=spec):
                x, v = coo(lib, spec, True)
                return (x,), (v,)

            picked = {lib: lib.tensor(chosen.astype("int64")) for lib in (mytorch, torch)}
            both(
                lambda lib, x: x.coalesce().index_select(dim, picked[lib]), make, "float64",
                dense=lambda lib, x: x.index_select(dim, picked[lib]),
            )  # fmt: skip


PRODUCTS = {
    "mm": lambda lib, x, y, d, v, w: lib.mm(x, d),
    "matmul": lambda lib, x, y, d, v, w: x @ d,
    "sparse_mm": lambda lib, x, y, d, v, w: lib.sparse.mm(x, d),
    "mv": lambda lib, x, y, d, v, w: x @ v,
    "addmm": lambda lib, x, y, d, v, w: lib.addmm(w, x, d, beta=0.5, alpha=2),
    "sparse_addmm": lambda lib, x, y, d, v, w: lib.sparse.addmm(w, x, d, beta=0.5, alpha=2),
    "sparse_sparse": lambda lib, x, y, d, v, w: lib.sparse.mm(x, y.t()),
    "transposed": lambda lib, x, y, d, v, w: x.t() @ w,
    "method": lambda lib, x, y, d, v, w: x.mm(d),
    "dense_left": lambda lib, x, y, d, v, w: w.t() @ x,
}


@loop
@pytest.mark.parametrize("layout", ["coo", "uncoalesced", "csr"])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("routine", ["scipy", "numpy"])
def test_products(name, layout, routine, monkeypatch):
    if routine == "numpy":
        monkeypatch.setattr(mytorch.sparse.products, "scipy_sparse", lambda: None)
    if layout == "csr" and name in ("sparse_sparse", "transposed"):
        pytest.skip("PyTorch has no gradient of this product")
    rng = np.random.default_rng(5)
    for dtype in ("float32", "float64") if layout == "csr" else ("float32", "complex128"):
        for (n, m), count in MATRICES:
            one, two = spec_of(rng, (n, m), (), count, dtype), spec_of(rng, (n, m), (), count, dtype)
            dense, vector, other = (numbers(rng, s, dtype) for s in ((m, 3), (m,), (n, 3)))

            def make(lib, one=one, two=two, dense=dense, vector=vector, other=other, dtype=dtype):
                x, vx = coo(lib, one, True, layout != "uncoalesced")
                y, vy = coo(lib, two, True, True)
                x = x.to_sparse_csr() if layout == "csr" else x
                d, v, w = (leaf(lib, a, dtype, True) for a in (dense, vector, other))
                return (x, y, d, v, w), (vx, vy, d, v, w)

            both(PRODUCTS[name], make, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "int32"])
def test_products_of_other_dtypes(dtype):
    """Compared with the dense product, since PyTorch has no sparse product of all dtypes."""
    rng = np.random.default_rng(6)
    for (n, m), count in MATRICES:
        spec = spec_of(rng, (n, m), (), count, dtype)
        x, _ = coo(mytorch, spec)
        d = leaf(mytorch, numbers(rng, (m, 3), dtype), dtype)
        wide = {"float16": mytorch.float32, "bfloat16": mytorch.float32}.get(dtype, mytorch.int64)
        expected = x.to_dense().to(wide) @ d.to(wide)
        for layout in (mytorch.sparse_coo, mytorch.sparse_csr):
            got = x.to_sparse(layout=layout) @ d
            assert got.dtype is d.dtype
            rough = {"float16": 1e-2, "bfloat16": 6e-2}.get(dtype, 0)
            np.testing.assert_allclose(plain(got), plain(expected), rtol=rough, atol=rough)


def test_bmm():
    rng = np.random.default_rng(7)
    spec = spec_of(rng, (3, 4, 5), (), 20, "float64")
    dense = numbers(rng, (3, 5, 2), "float64")

    def make(lib):
        x, v = coo(lib, spec, True, True)
        d = leaf(lib, dense, "float64", True)
        return (x, d), (v, d)

    both(lambda lib, x, d: lib.bmm(x, d), make, "float64")


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name):
    rng = np.random.default_rng(8)
    for dtype in ("float32", "float64"):
        for sizes, dense, count in SHAPES:
            spec = spec_of(rng, sizes, dense, count, dtype)
            for dim in range(-1, len(sizes) + len(dense)):

                def make(lib, spec=spec):
                    x, v = coo(lib, spec, True)
                    return (x,), (v,)

                if 0 in spec[2]:
                    continue
                mask = torch.zeros(spec[2], dtype=torch.bool)
                mask[tuple(torch.tensor(spec[0]))] = True

                def reference(lib, x, mask=mask, dim=dim):
                    missing = x.masked_fill(~mask, -float("inf"))
                    return getattr(missing, name)(dim).masked_fill(~mask, 0)

                both(lambda lib, x: getattr(lib.sparse, name)(x, dim), make, dtype, dense=reference)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients_of_sparse_leaves(layout):
    rng = np.random.default_rng(9)
    for (n, m), count in MATRICES:
        spec = spec_of(rng, (n, m), (), count, "float64")
        dense = numbers(rng, (m, 3), "float64")

        def make(lib, spec=spec, dense=dense):
            x = coo(lib, spec, False, True)[0].detach()
            x = (x.to_sparse_csr() if layout == "csr" else x).requires_grad_()
            d = leaf(lib, dense, "float64", True)
            return (x, d), (x, d)

        both(lambda lib, x, d: x @ d, make, "float64")
        both(lambda lib, x, d: x.to_dense(), make, "float64")
        both(lambda lib, x, d: (x * 3) @ d + (x @ d).sin(), make, "float64")


def test_second_derivatives():
    rng = np.random.default_rng(10)
    indices = mytorch.tensor(rng.integers(0, 4, (2, 6)))
    values = mytorch.tensor(rng.standard_normal(6), dtype=mytorch.float64, requires_grad=True)
    dense = mytorch.tensor(rng.standard_normal((4, 3)), dtype=mytorch.float64, requires_grad=True)

    def product(v, d):
        return mytorch.sparse.mm(mytorch.sparse_coo_tensor(indices, v, (4, 4)), d).sin()

    def others(v, d):
        x = mytorch.sparse_coo_tensor(indices, v, (4, 4))
        return mytorch.sparse.softmax(x, 1).to_dense() * (x * x).to_dense() + (x.t() @ d)[:, :1]

    for function in (product, others):
        assert mytorch.autograd.gradcheck(function, (values, dense))
        assert mytorch.autograd.gradgradcheck(function, (values, dense))


def test_sampled_addmm():
    rng = np.random.default_rng(11)
    mask = rng.random((4, 5)) < 0.5
    values, a, b = rng.standard_normal(mask.sum()), rng.standard_normal((4, 3)), rng.standard_normal((3, 5))
    crow, col = np.r_[0, mask.sum(1).cumsum()], mask.nonzero()[1]
    v, x, y = (mytorch.tensor(t, requires_grad=True) for t in (values, a, b))
    got = mytorch.sparse.sampled_addmm(mytorch.sparse_csr_tensor(crow, col, v, (4, 5)), x, y, beta=0.5, alpha=2)
    expected = np.zeros((4, 5))
    expected[mask] = 0.5 * values + 2 * (a @ b)[mask]
    np.testing.assert_allclose(plain(got), expected)
    g = rng.standard_normal((4, 5))
    got.to_dense().backward(mytorch.tensor(g))
    np.testing.assert_allclose(np.asarray(x.grad), 2 * (g * mask) @ b.T)
    np.testing.assert_allclose(np.asarray(y.grad), 2 * a.T @ (g * mask))
    np.testing.assert_allclose(np.asarray(v.grad), 0.5 * g[mask])


# -- attributes, text, copies ------------------------------------------------------------------------------------------


def text(x):
    return repr(x).replace("mytorch.", "torch.")


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "bool"])
def test_text(dtype):
    rng = np.random.default_rng(12)
    mytorch.set_printoptions(layout="torch")
    try:
        for sizes, dense, count in SHAPES:
            spec = spec_of(rng, sizes, dense, count, dtype)
            ours, theirs = coo(mytorch, spec)[0], coo(torch, spec)[0]
            assert text(ours) == repr(theirs)
            assert text(ours.coalesce()) == repr(theirs.coalesce())
            if dtype in FLOATS:
                assert text(ours.requires_grad_()) == repr(theirs.requires_grad_())
            if len(sizes) == 2 and not dense:
                assert text(ours.detach().to_sparse_csr()) == repr(theirs.detach().to_sparse_csr())
    finally:
        mytorch.set_printoptions(profile="default", layout="mytorch")


def test_attributes():
    for lib in (mytorch, torch):
        x, c, d = lib.eye(3).to_sparse(), lib.eye(3).to_sparse_csr(), lib.eye(3)
        assert (x.is_sparse, c.is_sparse, d.is_sparse) == (True, False, False)
        assert (x.is_sparse_csr, c.is_sparse_csr, d.is_sparse_csr) == (False, True, False)
        assert x.layout == lib.sparse_coo
        assert c.layout == lib.sparse_csr
        assert d.layout == lib.strided
        assert isinstance(x.layout, lib.layout)
        assert (x.sparse_dim(), x.dense_dim(), d.sparse_dim(), d.dense_dim()) == (2, 0, 0, 2)
        assert x._nnz() == c._nnz() == 3
        assert x.numel() == 9
        assert len(x) == 3
        assert x.shape == (3, 3)
        assert c.t().layout == lib.sparse_csc
        assert c.t().t().layout == lib.sparse_csr
        assert lib.sparse_coo_tensor(size=(2, 3))._nnz() == 0
        assert lib.sparse_coo_tensor([[0, 2]], [1.0, 2.0]).shape == (3,)
        assert lib.zeros_like(x)._nnz() == 0
        assert x.is_coalesced()
        assert not lib.sparse_coo_tensor([[0, 0]], [1.0, 2.0]).is_coalesced()


def test_copies_and_files(tmp_path):
    x = mytorch.sparse_coo_tensor([[1, 0, 1], [0, 2, 0]], [1.0, 2.0, 3.0], (2, 3), requires_grad=True)
    c = x.detach().to_sparse_csr()
    for tensor in (x, c):
        path = tmp_path / "sparse.pt"
        mytorch.save({"x": tensor}, path)
        for other in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor)), mytorch.load(path)["x"]):
            assert other.layout == tensor.layout
            assert other._nnz() == tensor._nnz()
            np.testing.assert_array_equal(plain(other), plain(tensor))
    theirs = torch.load(path, weights_only=True)["x"]
    agree(c, theirs)
    file = io.BytesIO()
    torch.save({"x": coo(torch, ([[1, 0]], np.ones(2), (3,), "float64"))[0]}, file)
    file.seek(0)
    np.testing.assert_array_equal(plain(mytorch.load(file)["x"]), [1.0, 1.0, 0.0])


def test_in_place_changes():
    for lib in (mytorch, torch):
        x = lib.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).coalesce()
        x.mul_(2)
        x._values().add_(1)
        x.add_(x)
        np.testing.assert_array_equal(plain(x), [[0, 6], [10, 0]])
        x.neg_()
        np.testing.assert_array_equal(plain(x), [[0, -6], [-10, 0]])
        d = lib.ones(2, 2)
        d.add_(x)
        d += x
        np.testing.assert_array_equal(plain(d), [[1, -11], [-19, 1]])
        x.zero_()
        assert x._nnz() == 0


def test_numbers_and_truth_of_sparse_tensors():
    for lib in (mytorch, torch):
        zero, one = (lib.sparse_coo_tensor([[0]], [value], (1,)) for value in (0.0, 1.5))
        assert not bool(zero)
        assert not zero.is_nonzero()
        assert bool(one)
        assert float(one) == one.item() == 1.5
        assert int(one) == 1
        assert one.is_coalesced()
        assert bool(lib.any(one))
        assert not bool(lib.any(zero))
        with pytest.raises(RuntimeError):
            bool(lib.eye(2).to_sparse())
        empty = lib.sparse.spdiags(lib.zeros(0, 3), lib.zeros(0, dtype=lib.int64), (3, 3))
        assert empty._nnz() == 0


def test_the_positions_are_copies():
    indices = mytorch.tensor([[0, 1]])
    x = mytorch.sparse_coo_tensor(indices, [1.0, 2.0], (3,))
    indices[0, 0] = 2
    x._indices()[0, 0] = 2
    assert x.to_dense().tolist() == [1.0, 2.0, 0.0]


def test_conversions_of_dtype_and_device():
    x = mytorch.eye(2).to_sparse()
    assert x.double().dtype is mytorch.float64
    assert x.double().is_sparse
    assert x.half().to_dense().dtype is mytorch.float16
    assert x.to(mytorch.int64).values().tolist() == [1, 1]
    assert x.cpu() is x
    assert x.to("cpu") is x
    assert x.device.type == "cpu"


ERRORS = [
    lambda lib: lib.sparse_coo_tensor([[0, 3]], [1.0, 2.0], (2,)),
    lambda lib: lib.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (2,)),
    lambda lib: lib.sparse_coo_tensor([[0, 1]], [1.0], (2,)),
    lambda lib: lib.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 2)),
    lambda lib: lib.sparse_coo_tensor([0, 1], [1.0, 2.0], (2,)),
    lambda lib: lib.sparse_coo_tensor([[0, 0]], [1.0, 2.0]).indices(),
    lambda lib: lib.sparse_coo_tensor([[0, 0]], [1.0, 2.0]).values(),
    lambda lib: lib.eye(2).coalesce(),
    lambda lib: lib.eye(2).indices(),
    lambda lib: lib.eye(2).values(),
    lambda lib: lib.eye(2).to_sparse().crow_indices(),
    lambda lib: lib.eye(2).to_sparse_csr().indices(),
    lambda lib: lib.eye(2).to_sparse_csr().coalesce(),
    lambda lib: lib.eye(2).to_sparse().numpy(),
    lambda lib: lib.eye(2).to_sparse() @ lib.ones(3, 1),
    lambda lib: lib.eye(2).to_sparse() + lib.eye(3).to_sparse(),
    lambda lib: lib.eye(2).to_sparse() * lib.eye(3).to_sparse(),
    lambda lib: lib.eye(2).to_sparse() + 1,
    lambda lib: lib.eye(2).to_sparse().exp(),
    lambda lib: lib.eye(2).to_sparse() ** 0,
    lambda lib: lib.eye(2).to_sparse().view(4),
    lambda lib: lib.eye(2).to_sparse().expand(2, 2, 2),
    lambda lib: lib.ones(2, 2, 2).to_sparse(1).transpose(0, 1),
    lambda lib: lib.eye(2).sparse_mask(lib.eye(2)),
    lambda lib: lib.eye(2).sparse_mask(lib.eye(3).to_sparse()),
    lambda lib: lib.eye(2).to_sparse().select(0, 5),
    lambda lib: lib.sparse_csr_tensor([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2)) if lib is mytorch else [][0],
    lambda lib: lib.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 2.0], (2, 2)) if lib is mytorch else [][0],
    lambda lib: lib.sparse.sum(lib.eye(2)),
]


@loop
@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    kinds = (RuntimeError, TypeError, IndexError, NotImplementedError, ValueError)
    with pytest.raises(kinds) as error:
        ERRORS[number](mytorch)
    assert len(str(error.value)) > 20
    with pytest.raises((*kinds, AttributeError)):
        ERRORS[number](torch)


# -- sparse gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_embeddings_with_sparse_gradients(padding_idx):
    rng = np.random.default_rng(13)
    table, index, g = rng.standard_normal((6, 3)), rng.integers(0, 6, (4, 2)), rng.standard_normal((4, 2, 3))
    grads = []
    for lib in (mytorch, torch):
        layer = lib.nn.Embedding(6, 3, padding_idx, sparse=True).double()
        layer.weight.data = lib.tensor(table)
        for _ in range(2):
            layer(lib.tensor(index)).backward(lib.tensor(g))
        assert layer.weight.grad.is_sparse
        grads.append(layer.weight.grad)
    agree(*grads)
    assert grads[0]._nnz() == grads[1]._nnz()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bags_with_sparse_gradients(mode):
    rng = np.random.default_rng(14)
    table, index, g = rng.standard_normal((6, 3)), rng.integers(0, 6, 8), rng.standard_normal((3, 3))
    grads = []
    for lib in (mytorch, torch):
        layer = lib.nn.EmbeddingBag(6, 3, mode=mode, sparse=True).double()
        layer.weight.data = lib.tensor(table)
        layer(lib.tensor(index), lib.tensor([0, 2, 5])).backward(lib.tensor(g))
        assert layer.weight.grad.is_sparse
        grads.append(layer.weight.grad)
    agree(*grads)


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.2}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "nesterov": True}), ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}), ("SparseAdam", {"lr": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers_with_sparse_gradients(name, options):
    results = []
    for lib in (mytorch, torch):
        rng = np.random.default_rng(15)
        layer = lib.nn.Embedding(6, 3, sparse=True).double()
        layer.weight.data = lib.tensor(rng.standard_normal((6, 3)))
        optimizer = getattr(lib.optim, name)(layer.parameters(), **options)
        for _ in range(4):
            optimizer.zero_grad()
            layer(lib.tensor(rng.integers(0, 6, 5))).backward(lib.tensor(rng.standard_normal((5, 3))))
            optimizer.step()
        results.append(plain(layer.weight))
    np.testing.assert_allclose(*results, rtol=1e-9)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adadelta", "NAdam"])
def test_other_optimizers_refuse_sparse_gradients(name):
    layer = nn.Embedding(3, 2, sparse=True)
    layer(mytorch.tensor([0, 1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        getattr(mytorch.optim, name)(layer.parameters()).step()


def test_sparse_and_dense_gradients_add_up():
    for order in (0, 1):
        w = mytorch.ones(3, 2, requires_grad=True)
        steps = [
            lambda w=w: nn.functional.embedding(mytorch.tensor([0, 2, 2]), w, sparse=True).sum().backward(),
            lambda w=w: (w * 3).sum().backward(),
        ]
        for step in steps[::-1] if order else steps:
            step()
        assert np.asarray(w.grad).tolist() == [[4, 4], [3, 3], [5, 5]]
        w.grad = None
        (nn.functional.embedding(mytorch.tensor([0, 2, 2]), w, sparse=True).sum() + (w * 3).sum()).backward()
        assert np.asarray(w.grad).tolist() == [[4, 4], [3, 3], [5, 5]]


def test_gradcheck_of_sparse_inputs():
    check = mytorch.sparse.as_sparse_gradcheck(mytorch.autograd.gradcheck)
    x = mytorch.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=mytorch.float64).to_sparse().requires_grad_()
    assert check(lambda x: (x * x) @ x.to_dense(), (x,), masked=True)


OF_REPEATED = {  # functions of a tensor whose positions repeat
    "element": lambda L, s: s[0, 0],
    "absent element": lambda L, s: s[0, 1],
    "row": lambda L, s: s[1],
    "rows": lambda L, s: s[0:2],
    "select": lambda L, s: s.select(1, 1),
    "index_select": lambda L, s: s.index_select(0, L.tensor([1, 0, 1])),
    "coalesce": lambda L, s: s.coalesce(),
    "dense": lambda L, s: s.to_dense(),
    "sum of all": lambda L, s: L.sparse.sum(s),
    "sum of all dims": lambda L, s: L.sparse.sum(s, (0, 1)),
    "sum of rows": lambda L, s: L.sparse.sum(s, 0),
    "sum of columns": lambda L, s: L.sparse.sum(s, (1,)),
    "sum to a dtype": lambda L, s: L.sparse.sum(s, 0, dtype=L.float32),
    "method sum": lambda L, s: s.sum(),
    "method sum of rows": lambda L, s: s.sum(0),
    "any": lambda L, s: s.any(),
    "t": lambda L, s: s.t(),
    "cat": lambda L, s: L.cat([s, s]),
    "product": lambda L, s: s * s,
    "by a number": lambda L, s: s * L.tensor(2, dtype=s.dtype),
}


@pytest.mark.parametrize(
    "dtype", "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()
)
@pytest.mark.parametrize("name", OF_REPEATED)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_values_and_dtypes_of_repeated_positions(name, dtype):
    found = []
    for L in (mytorch, torch):
        values = L.tensor([1, 2, 0, 3, 1, 5]).to(getattr(L, dtype))
        s = L.sparse_coo_tensor(L.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 2, 1, 1, 0]]), values, (3, 3))
        try:
            r = OF_REPEATED[name](L, s)
            dense = r.to_dense() if r.is_sparse else r
            found.append((str(r.dtype).rpartition(".")[2], bool(r.is_sparse), dense.tolist()))
        except (RuntimeError, NotImplementedError):
            found.append(None)
    assert found[0] == found[1] or found[1] is None  # mytorch accepts a few dtypes more
