"""Batches of CSR and CSC matrices, creation functions with `layout=`, copies, and products, compared with PyTorch."""

import inspect
import itertools
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.cpu_only, pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta")]
COMPRESSED = ["sparse_csr", "sparse_csc"]
BATCHES = [(), (2,), (2, 3), (1, 1)]


@pytest.fixture(autouse=True)
def _checked():
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def matrices(rng, batch, n, m, count, dense=()):
    """Returns random matrices of equal numbers of elements, as a dense array."""
    out = np.zeros((*batch, n * m, *dense))
    for b in np.ndindex(*batch):
        out[(*b, rng.permutation(n * m)[:count])] = rng.uniform(0.5, 2, (min(count, n * m), *dense))
    return out.reshape(*batch, n, m, *dense)


def cases():
    rng = np.random.default_rng(0)
    for batch, (n, m, count), dense in itertools.product(BATCHES, [(3, 4, 5), (1, 6, 3), (4, 2, 0)], [(), (2,)]):
        yield matrices(rng, batch, n, m, count, dense), len(dense)


def parts(x):
    csr = str(x.layout).endswith("csr")
    pair = (x.crow_indices(), x.col_indices()) if csr else (x.ccol_indices(), x.row_indices())
    return [np.asarray(p.detach()) for p in (*pair, x.values())]


def same(ours, theirs):
    """Compares layouts, shapes, positions, dtypes of indices, and values."""
    assert str(ours.layout) == str(theirs.layout)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    if str(theirs.layout) == "torch.strided":
        return np.testing.assert_allclose(np.asarray(ours.detach()), theirs.detach().numpy(), rtol=1e-12)
    assert (ours.sparse_dim(), ours.dense_dim(), ours._nnz()) == (
        theirs.sparse_dim(),
        theirs.dense_dim(),
        theirs._nnz(),
    )
    if str(theirs.layout) == "torch.sparse_coo":
        pairs = [
            (ours.coalesce().indices(), theirs.coalesce().indices()),
            (ours.coalesce().values(), theirs.coalesce().values()),
        ]
        pairs = [(np.asarray(a.detach()), b.detach().numpy()) for a, b in pairs]
    else:
        pairs = list(zip(parts(ours), parts(theirs), strict=True))
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12)


OPERATIONS = {
    "itself": lambda lib, x: x,
    "dense": lambda lib, x: x.to_dense(),
    "coo": lambda lib, x: x.to_sparse(),
    "csr": lambda lib, x: x.to_sparse_csr(),
    "transpose": lambda lib, x: x.transpose(x.ndim - x.dense_dim() - 2, x.ndim - x.dense_dim() - 1),
    "product": lambda lib, x: x * 3,
    "negative": lambda lib, x: -x,
    "sine": lambda lib, x: x.sin(),
    "sum": lambda lib, x: x.sum(),
    "sum_of_two": lambda lib, x: x + x,
    "clone": lambda lib, x: x.clone(),
    "dtype": lambda lib, x: x.to(lib.float32).to(lib.float64),
    "first": lambda lib, x: x.select(0, 0),
    "last_of_second": lambda lib, x: x.select(1, -1),
    "zeros_like": lambda lib, x: lib.zeros_like(x),
    "full_like": lambda lib, x: lib.full_like(x, 2.0),
    "permuted_batch": lambda lib, x: x.transpose(0, 1),
    "sparse_dense": lambda lib, x: x.transpose(1, x.ndim - 1),
    "printed": lambda lib, x: repr(x),
}


@loop
@pytest.mark.parametrize("layout", COMPRESSED)
@pytest.mark.parametrize("name", OPERATIONS)
def test_batches_of_matrices(name, layout):
    compared = 0
    for dense, hybrid in cases():
        ours, theirs = (
            (getattr(lib, "tensor")(dense).to_sparse(layout=getattr(lib, layout), dense_dim=hybrid))
            for lib in (mytorch, torch)
        )
        try:
            expected = OPERATIONS[name](torch, theirs)
        except (RuntimeError, IndexError):  # some operations of PyTorch support only some dimensions
            continue
        result = OPERATIONS[name](mytorch, ours)
        compared += 1
        if name == "printed":
            assert result.replace("mytorch.", "torch.") == expected
        else:
            same(result, expected)
    assert compared > 3


@pytest.mark.parametrize("layout", COMPRESSED)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_constructors_of_batches(layout, index_dtype):
    for dense, hybrid in cases():
        source = torch.tensor(dense).to_sparse(layout=getattr(torch, layout), dense_dim=hybrid)
        pointers, inner, values = parts(source)
        results = []
        for lib in (mytorch, torch):
            indices = [lib.tensor(i, dtype=getattr(lib, index_dtype)) for i in (pointers, inner)]
            v = lib.tensor(values, requires_grad=True)
            x = getattr(lib, f"{layout}_tensor")(*indices, v, dense.shape)
            results.append(x)
        same(*results)
        upstream = np.random.default_rng(1).standard_normal(dense.shape)
        x = results[0]
        v = mytorch.tensor(values, requires_grad=True)
        built = mytorch.sparse_compressed_tensor(
            mytorch.tensor(pointers), mytorch.tensor(inner), v, dense.shape, layout=x.layout
        )
        built.to_dense().backward(mytorch.tensor(upstream))
        expected = (
            torch.tensor(upstream)[tuple(source.detach().to_sparse().coalesce().indices())] if source._nnz() else None
        )
        if expected is not None and layout == "sparse_csr":
            np.testing.assert_allclose(np.asarray(v.grad).reshape(expected.shape), expected.numpy())


@pytest.mark.parametrize("change", ["pointers", "columns", "order", "sizes", "batch"])
def test_invalid_batches_raise_errors(change):
    pointers, columns, values, size = [[0, 1, 2], [0, 0, 2]], [[0, 1], [1, 2]], [[1.0, 2.0], [3.0, 4.0]], (2, 2, 3)
    if change == "pointers":
        pointers = [[0, 1, 2], [0, 3, 2]]
    elif change == "columns":
        columns = [[0, 1], [1, 3]]
    elif change == "order":
        columns = [[0, 1], [2, 1]]
    elif change == "sizes":
        size = (3, 2, 3)
    else:
        values = [[1.0, 2.0]]
    for lib in (mytorch, torch):
        with pytest.raises(RuntimeError):
            lib.sparse_csr_tensor(pointers, columns, values, size)
    with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
        mytorch.tensor([[[1.0, 0.0]], [[1.0, 1.0]]]).to_sparse_csr()


def test_products_of_batches():
    rng = np.random.default_rng(2)
    dense, other = matrices(rng, (3,), 4, 5, 7), rng.standard_normal((3, 5, 2))
    x, d = mytorch.tensor(dense).to_sparse_csr().requires_grad_(), mytorch.tensor(other, requires_grad=True)
    upstream = rng.standard_normal((3, 4, 2))
    (x @ d).backward(mytorch.tensor(upstream))
    np.testing.assert_allclose(np.asarray((x @ d).detach()), dense @ other)
    np.testing.assert_allclose(np.asarray(d.grad), dense.transpose(0, 2, 1) @ upstream)
    np.testing.assert_allclose(np.asarray(x.grad.to_dense()), (upstream @ other.transpose(0, 2, 1)) * (dense != 0))


def created(lib):
    """Yields the results of creation functions with `layout=`, or the errors."""
    coo, csr = lib.eye(2, 3).to_sparse(1), lib.eye(2, 3, dtype=lib.float64).to_sparse_csr()
    layouts = [lib.sparse_coo, lib.sparse_csr, lib.sparse_csc, lib.strided]
    for layout, size in itertools.product(layouts, [(), (3,), (2, 3), (2, 0), (2, 3, 4)]):
        yield lambda: lib.zeros(size, layout=layout)
        yield lambda: lib.zeros(*size, layout=layout, dtype=lib.int32) if size else 0
        # PyTorch's new_zeros with another layout sometimes ends the process.
        new_zeros = lib.ones(1, dtype=lib.float64).new_zeros if lib is mytorch else lib.zeros
        yield lambda: new_zeros(size, dtype=lib.float64, layout=layout)
        if len(size) < 3:  # for three dimensions, PyTorch uses a dense dimension here, but a batch in zeros
            yield lambda: lib.zeros_like(lib.ones(size), layout=layout)
        yield lambda: lib.zeros(size, layout=layout, requires_grad=True).requires_grad
    # PyTorch's functions without values can end the process, because they may read the indices, which have no values either.
    empty_like, new_empty = (lib.empty_like, "new_empty") if lib is mytorch else (lib.zeros_like, "new_zeros")
    for x, layout in itertools.product([coo, csr], layouts):
        yield lambda: lib.zeros_like(x)
        yield lambda: lib.zeros_like(x, dtype=lib.float16)
        yield lambda: empty_like(x).shape
        yield lambda: lib.zeros_like(x, layout=layout)
        if layout == x.layout:
            yield lambda: empty_like(x, layout=layout).layout
        yield lambda: x.new_zeros(2, 2)
        yield lambda: getattr(x, new_empty)(2, 2).layout


def test_creation_with_layouts():
    compared = 0
    for mine, yours in zip(created(mytorch), created(torch), strict=True):
        try:
            theirs = yours()
        except RuntimeError:  # some layouts are supported only here
            continue
        ours = mine()
        compared += 1
        if isinstance(theirs, torch.Tensor):
            same(ours, theirs)
        else:
            assert str(ours).replace("mytorch", "torch") == str(theirs)
    assert compared > 90
    with pytest.raises(RuntimeError, match=r"torch.zeros: Only batched sparse compressed .* got size \[3\]"):
        mytorch.zeros(3, layout=mytorch.sparse_csr)
    with pytest.raises(RuntimeError, match="empty_like with different sparse layout"):
        mytorch.empty_like(mytorch.eye(2).to_sparse_csr(), layout=mytorch.sparse_csc)
    with pytest.raises(RuntimeError, match="memory format option is only supported by strided"):
        mytorch.zeros_like(mytorch.eye(2).to_sparse(), memory_format=mytorch.contiguous_format)
    with pytest.raises(TypeError, match="layout: expected"):
        mytorch.ones(3, layout=mytorch.sparse_coo)


def test_copies_keep_the_dtype_and_have_no_edge_of_a_leaf():
    results = []
    for lib in (mytorch, torch):
        x = lib.eye(3).to_sparse()
        x.copy_(lib.ones(3, 3, dtype=lib.float16).to_sparse())
        leaf = lib.ones(3, 3).to_sparse().requires_grad_()
        y = lib.eye(3).to_sparse()
        y.copy_(leaf)
        (y * 2).backward(lib.ones(3, 3).to_sparse())
        assert not y.is_leaf
        results.append((x, leaf.grad))
    for ours, theirs in zip(*results, strict=True):
        same(ours.coalesce(), theirs.coalesce())
    with pytest.raises(RuntimeError, match="shapes of self and src to match"):
        mytorch.eye(3).to_sparse().copy_(mytorch.eye(2).to_sparse())
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        mytorch.eye(3).to_sparse().copy_(mytorch.eye(3))


def test_sparse_products_broadcast():
    rng = np.random.default_rng(3)
    shapes = [
        ((2, 3), (2, 3)),
        ((2, 3), (1, 3)),
        ((2, 1), (1, 3)),
        ((3,), (2, 3)),
        ((2, 3), ()),
        ((), (2, 3)),
        ((2, 1, 3), (4, 1)),
    ]
    for a, b in shapes:
        dense = [rng.standard_normal(s) * (rng.random(s) < 0.6) for s in (a, b)]
        ours, theirs = ([lib.tensor(d).to_sparse() for d in dense] for lib in (mytorch, torch))
        np.testing.assert_allclose(np.asarray((ours[0] * ours[1]).to_dense()), dense[0] * dense[1])
        size = np.broadcast_shapes(a, b)
        if a:
            same(mytorch._sparse_broadcast_to(ours[0], size), torch._sparse_broadcast_to(theirs[0], size))
    with pytest.raises(RuntimeError, match="must match the existing size"):
        mytorch.ones(2, 3).to_sparse() * mytorch.ones(2, 2).to_sparse()


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "max", "min"])
def test_reductions_of_products(reduce):
    rng = np.random.default_rng(4)
    for n, m, count in [(3, 4, 1), (3, 4, 6), (3, 4, 12), (7, 33, 13), (2, 3, 0)]:
        dense, other = matrices(rng, (), n, m, count), rng.standard_normal((m, 5))
        upstream, results = rng.standard_normal((n, 5)), []
        for lib in (mytorch, torch):
            x, d = lib.tensor(dense).to_sparse_csr().requires_grad_(), lib.tensor(other, requires_grad=True)
            out = lib.sparse.mm(x, d, reduce)
            out.backward(lib.tensor(upstream))
            results.append([np.asarray(t.detach()) for t in (out, x.grad.values(), d.grad)])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    with pytest.raises(RuntimeError, match="expected reduce"):
        mytorch.sparse.mm(mytorch.eye(2).to_sparse_csr(), mytorch.ones(2, 2), "prod")


def test_gradients_at_all_positions():
    upstream = np.arange(9.0).reshape(3, 3)
    for layout, masked in itertools.product(("sparse_coo", "sparse_csr"), (True, False, None)):
        grads = []
        for lib in (mytorch, torch):
            x = lib.eye(3, dtype=lib.float64).to_sparse(layout=getattr(lib, layout)).requires_grad_()
            x.to_dense(masked_grad=masked).backward(lib.tensor(upstream))
            grads.append(x.grad)
        same(*grads)


def test_functions_and_methods_agree():
    """A function of the library and the method of this name have the same result for sparse tensors of all layouts."""
    arguments = {
        "select": (0, 1), "index_select": (0, [1]), "narrow": (0, 0, 1), "narrow_copy": (0, 0, 1), "unsqueeze": (0,), "transpose": (0, 1),
        "permute": ((1, 0),), "pow": (2,), "mul": (2,), "div": (2,), "t": (), "sum": (0,), "movedim": (0, 1), "swapaxes": (0, 1),
    }  # fmt: skip
    tensors = [
        mytorch.eye(3).to_sparse(),
        mytorch.eye(3).to_sparse(1),
        mytorch.eye(3).to_sparse_csr(),
        mytorch.eye(3).to_sparse_csc(),
    ]
    compared = 0
    for name in dir(mytorch.Tensor):
        function, method = getattr(mytorch, name, None), getattr(mytorch.Tensor, name)
        if (
            name.startswith("_")
            or name.endswith("_")
            or inspect.isclass(function)
            or not callable(function)
            or not callable(method)
        ):
            continue
        rest = [mytorch.tensor(a) if isinstance(a, list) else a for a in arguments.get(name, ())]
        for x in tensors:
            outcomes = []
            for call in (lambda: function(x, *rest), lambda: getattr(x, name)(*rest)):  # noqa: B023
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        outcomes.append(repr(call()))
                    except Exception as error:
                        outcomes.append(type(error))
            if name not in (
                "rand_like",
                "randn_like",
                "bernoulli",
                "empty_like",
                "dropout",
                "binomial",
                "poisson",
                "multinomial",
            ):
                assert outcomes[0] == outcomes[1], (name, x.layout)
            compared += isinstance(outcomes[0], str)
    assert compared > 150


def test_sums_with_zeros_and_sizes_beyond_int64():
    hybrid = mytorch.eye(2, 3).to_sparse(1)
    for result in (
        mytorch.zeros(2, 3, layout=mytorch.sparse_coo) + hybrid,
        hybrid + mytorch.zeros(2, 3, layout=mytorch.sparse_coo),
    ):
        same(result, torch.eye(2, 3).to_sparse(1))
    with pytest.raises(RuntimeError, match="fewer than"):  # the positions would overflow
        mytorch.sparse_coo_tensor([[100000, 99999]] * 4, [1.0, 2.0], (100001,) * 4)
    for lib in (mytorch, torch):
        x = lib.sparse_coo_tensor([[0]], lib.arange(6.0).reshape(1, 2, 3)).sparse_resize_((2, 2, 4), 1, 2)
        assert x.to_dense()[0].flatten()[:6].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_products(dtype):
    kernel = pytest.importorskip("mytorch.kernels.numba.sparse_products")
    rng = np.random.default_rng(5)
    for n, m, width, threads in [(50, 40, 2, 1), (300, 200, 33, 3), (1, 7, 5, 1), (0, 3, 2, 1), (4000, 9, 17, 2)]:
        dense = (rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.2)).astype(dtype)
        rows, columns = dense.nonzero()
        pointers = np.searchsorted(rows, np.arange(n + 1))
        other = rng.standard_normal((m, width)).astype(dtype)
        before = mytorch.get_num_threads()
        mytorch.set_num_threads(threads)
        try:
            out = kernel.forward(np, dense[rows, columns], other, pointers, columns)
        finally:
            mytorch.set_num_threads(before)
        np.testing.assert_allclose(
            out, dense.astype("float64") @ other, rtol=1e-5, atol=1e-5 if dtype == "float32" else 1e-12
        )
    # NaN and infinity are not lost.
    out = kernel.forward(
        np,
        np.array([1.0, np.inf], dtype),
        np.array([[np.nan, 1], [2, -1]], dtype),
        np.array([0, 1, 2]),
        np.array([0, 1]),
    )
    np.testing.assert_array_equal(out, np.array([[np.nan, 1], [np.inf, -np.inf]], dtype))


def test_large_products_and_gradients():
    rng = np.random.default_rng(6)
    indices, values = rng.integers(0, 700, (2, 9000)), rng.standard_normal(9000)
    dense, upstream = rng.standard_normal((700, 6)), rng.standard_normal((700, 6))
    results = []
    for lib in (mytorch, torch):
        v, d = lib.tensor(values, requires_grad=True), lib.tensor(dense, requires_grad=True)
        x = lib.sparse_coo_tensor(lib.tensor(indices), v, (700, 700)).coalesce()
        out = lib.sparse.mm(x, d)
        out.backward(lib.tensor(upstream))
        results.append([np.asarray(t.detach()) for t in (out, v.grad, d.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
