"""The array namespace on large arrays, with and without compiled loops, compared with plain NumPy."""

import contextlib
import itertools

import ml_dtypes
import numpy as np
import pytest

import mytorch
from mytorch.arrays import numpy_ns as xp
from mytorch.arrays.blocks import LARGE
from mytorch.kernels import parts, threads
from tests.loops import loop

pytestmark = pytest.mark.cpu_only
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), BF16]
SHAPES = {"rows": ((97, 203), 1), "columns": ((203, 97), 0), "middle": ((7, 89, 31), 1), "vector": ((20011,), 0)}


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def kernels(request):
    if request.param == "compiled":
        pytest.importorskip("numba")
    with mytorch.fused(None if request.param == "compiled" else False):
        yield request.param


def values(rng, shape, dtype):
    return (rng.standard_normal(shape) * 8).astype(dtype)


@loop
@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("int64"), np.dtype("bool"), np.dtype("complex64")], ids=str)
@pytest.mark.parametrize("layout", SHAPES)
def test_gather(rng, layout, dtype):
    shape, dim = SHAPES[layout]
    x, index = values(rng, shape, dtype), rng.integers(0, shape[dim], shape)
    np.testing.assert_array_equal(xp.gather(x, index, dim), np.take_along_axis(x, index, dim))
    np.testing.assert_array_equal(xp.gather(x.T, index.T, x.ndim - 1 - dim).T, np.take_along_axis(x, index, dim))
    index = index[tuple(slice(n - 1) for n in shape)]  # smaller than x
    np.testing.assert_array_equal(
        xp.gather(x, index, dim),
        np.take_along_axis(x, np.pad(index, [(0, 1)] * x.ndim), dim)[tuple(map(slice, index.shape))],
    )


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(97, 203), (7, 31, 89), (20011,), (0, 9), (9001, 1), (3, 1, 5000)])
def test_flip(rng, shape, dtype):
    x = values(rng, shape, np.dtype(dtype))
    for count in range(len(shape) + 1):
        for axes in itertools.permutations(range(-len(shape), 0), count):
            for raw in (x, x.T, x[::2]):
                result = mytorch.from_numpy(raw).flip(axes).numpy()
                np.testing.assert_array_equal(result, np.flip(raw, axes))
                assert not np.may_share_memory(result, raw)


REDUCTIONS = {"max_along": np.maximum, "min_along": np.minimum, "prod_along": np.multiply}


@loop
@pytest.mark.parametrize(
    "dtype", [np.dtype("float32"), np.dtype("float64"), np.dtype("int64"), np.dtype("int32")], ids=str
)
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("name", [*REDUCTIONS, "put_along"])
def test_reducing_along_an_axis_with_nan_and_infinities(rng, name, layout, repeated, dtype):
    shape, dim = SHAPES[layout]
    out, src, index = values(rng, shape, dtype), values(rng, shape, dtype), rng.integers(0, shape[dim], shape)
    if repeated:  # one column of indices for all columns, as `index_copy` and `index_reduce` pass it
        column = rng.permutation(shape[dim]) if name == "put_along" else rng.integers(0, shape[dim], shape[dim])
        index = np.broadcast_to(column.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)
    elif name == "put_along":
        index = np.argsort(rng.random(shape), dim)
    if dtype.kind == "f":
        for special in (np.nan, np.inf, -np.inf):
            out[rng.random(shape) < 0.01] = special
            src[rng.random(shape) < 0.01] = special
    want = out.copy()
    with np.errstate(all="ignore"):
        if name == "put_along":
            np.put_along_axis(want, index, src, dim)
        else:
            REDUCTIONS[name].at(want, xp.grid(index, dim), src)
        getattr(xp, name)(out, index, dim, src)
    np.testing.assert_array_equal(out, want)


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def test_float16_is_converted_as_by_numpy(rng):
    with np.errstate(all="ignore"):
        single = HALVES.astype(np.float32)
        np.testing.assert_array_equal(xp.cast(HALVES, np.float32), single)
        # Every float16 number, the halfway points between float16 numbers, and random bits.
        halfway = (HALVES[:31743].astype(np.float64) + HALVES[1:31744].astype(np.float64)) / 2
        bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
        for x in (single, halfway.astype(np.float32), -halfway.astype(np.float32), bits):
            np.testing.assert_array_equal(xp.cast(x, np.float16), x.astype(np.float16))
        zeros = xp.cast(np.full(1 << 14, -0.0, np.float32), np.float16)
    assert np.signbit(zeros).all()


@loop
@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("int64"), np.dtype("int32")], ids=str)
@pytest.mark.parametrize("layout", SHAPES)
def test_adding_along_an_axis_counts_every_repetition(rng, layout, dtype):
    shape, dim = SHAPES[layout]
    tolerance = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 5e-3}.get(dtype.name, 1e-12)
    column = [n if axis == dim else 1 for axis, n in enumerate(shape)]
    for index_shape in (shape, column):  # another index for each element, and the same one in all columns
        out, src = values(rng, shape, dtype), values(rng, shape, dtype)
        index = np.broadcast_to(rng.integers(0, shape[dim], index_shape), shape)
        wide = out.astype(np.float64)
        np.add.at(wide, xp.grid(index, dim), src.astype(np.float64))
        with threads.everything() if index_shape is column else contextlib.nullcontext():
            xp.add_along(out, index, dim, src)
        np.testing.assert_allclose(out.astype(np.float64), wide, rtol=tolerance, atol=tolerance * 16)


@loop
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("width", [1, 3, 64])
def test_adding_rows(rng, width, dtype):
    out, rows = values(rng, (53, width), dtype), rng.integers(0, 53, 9001)
    src = values(rng, (9001, width), dtype)
    wide = out.astype(np.float64)
    np.add.at(wide, rows, src.astype(np.float64))
    xp.add_rows(out, rows, src)
    tolerance = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 8e-3}.get(dtype.name, 1e-11)
    np.testing.assert_allclose(out.astype(np.float64), wide, rtol=tolerance, atol=tolerance * 100)


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("int64")], ids=str)
def test_where_keeps_every_bit(rng, dtype):
    x, y, condition = values(rng, (131, 79), dtype), values(rng, (131, 79), dtype), rng.random((131, 79)) < 0.5
    if dtype.kind != "i":
        x[3:5], y[5:9] = np.nan, -np.inf
        x[7] = -0.0
    for a, b in (
        (x, y),
        (x, 0 if dtype.kind == "i" else 0.0),
        (2, y),
        (x, y[:1]),
        (x.T.copy().T, y),
        (x, y.reshape(-1)[0]),
    ):
        found, wanted = xp.where(condition, a, b), np.where(condition, a, b)
        if isinstance(b, int | float) or isinstance(a, int | float):
            wanted = wanted.astype(dtype)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


@loop
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (1, 2), (0, 2), (0, 1, 2), -1])
@pytest.mark.parametrize("shape", [(67, 33, 35), (2, 3, 65536), (1, 1, 70001), (1, 1040, 20)])
def test_sums(rng, shape, axis):
    x = rng.random(shape).astype(np.float32)
    for keepdims in (False, True):
        sums = (xp.sum(x, axis=axis, keepdims=keepdims), 1), (xp.sum_of_magnitudes(-x, axis, keepdims), 1)
        for found, power in (*sums, (xp.sum_of_squares(x, axis, keepdims), 2)):
            wanted = (x.astype(np.float64) ** power).sum(axis=axis, keepdims=keepdims)
            assert np.shape(found) == wanted.shape
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, rtol=5e-7)
        for laid in (x, x.transpose(2, 0, 1), x[:, ::-1]):
            found, wanted = xp.squared_deviations(laid, axis, keepdims), laid.var(axis, np.float64, keepdims=keepdims)
            rtol = 1e-11 if np.asarray(found).dtype == np.float64 else 1e-6  # without kernels it stays in float32
            np.testing.assert_allclose(found, wanted * (x.size // wanted.size), rtol=rtol)
            assert np.shape(found) == wanted.shape
    x = (x - np.float32(0.5)) * np.float32(1e30)
    x[0, 0, 7], x[0, -1, 11] = np.inf, np.nan
    np.testing.assert_array_equal(np.isfinite(xp.sum(x, axis=axis)), np.isfinite(x.sum(axis)))
    np.testing.assert_array_equal(np.isnan(xp.sum(x, axis=axis)), np.isnan(x.sum(axis)))
    np.testing.assert_array_equal(np.isnan(xp.sum_of_magnitudes(x, axis)), np.isnan(np.abs(x).sum(axis)))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_and_products(rng, axis):
    x = (1 + 0.01 * rng.standard_normal((23, 41, 29))).astype(np.float32)
    for name in ("cumsum", "cumprod"):
        for given in (x, np.flip(x, axis)):
            wanted = getattr(np, name)(given.astype(np.float64), axis)
            np.testing.assert_allclose(getattr(xp, name)(given, axis=axis), wanted, rtol=2e-7)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(23, 41, 29), (1, 1, 9001), (9001, 1, 1), (3, 2, 2001)])
def test_gradients_of_products_are_products_of_all_others(rng, shape, dtype, order):
    x = (1 + 0.05 * rng.standard_normal(shape)).astype(dtype)
    x[0, 0, :2], x[-1, -1, -1] = 0, 0
    for axis in range(3):
        a = mytorch.tensor(x, requires_grad=True)
        out = a.permute(order).prod(axis)
        g = rng.standard_normal(out.shape).astype(dtype)
        out.backward(mytorch.from_numpy(g))
        lines = np.moveaxis(x.transpose(order), axis, -1).astype(np.float64)
        before, after = np.ones_like(lines), np.ones_like(lines)
        before[..., 1:] = np.cumprod(lines[..., :-1], -1)
        after[..., :-1] = np.cumprod(lines[..., :0:-1], -1)[..., ::-1]
        wanted = np.moveaxis(before * after * g[..., None], -1, axis).transpose(np.argsort(order))
        np.testing.assert_allclose(a.grad.numpy(), wanted, rtol=1e-6 if dtype == "float32" else 1e-9, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.dtype("int8"), *FLOATS], ids=str)
def test_copies_of_transposed_arrays(rng, dtype):
    x = values(rng, (113, 5, 97), dtype)
    for axes in ((2, 1, 0), (0, 2, 1), (1, 2, 0)):
        view = x.transpose(axes)
        for copy in (xp.ascontiguousarray(view), xp.reshape(view, view.shape)):
            np.testing.assert_array_equal(copy, view)
        assert xp.ascontiguousarray(view).flags.c_contiguous
        np.testing.assert_array_equal(xp.reshape(view, (-1,)), view.reshape(-1))
    assert np.shares_memory(xp.reshape(x.swapaxes(0, 1), (5, 113, 97, 1)), x)


def test_several_threads_equal_one_thread(rng, kernels):
    x, index = values(rng, (211, 307), "float32"), rng.integers(0, 211, 4001)
    rows, threads, found = values(rng, (4001, 307), "float32"), mytorch.get_num_threads(), []
    try:
        for count in (1, 3):
            mytorch.set_num_threads(count)
            out = x.copy()
            xp.add_rows(out, index, rows)
            found.append((out, xp.sum(x, axis=0), xp.sum(x, axis=1), xp.cumsum(x, axis=0), xp.where(x > 0, x, 0.0)))
    finally:
        mytorch.set_num_threads(threads)
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


@loop
@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("int64"), np.dtype("uint8")], ids=str)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_sorting_is_stable_whatever_the_way(rng, dtype, descending, dim):
    x = np.round(values(rng, (131, 97), "float64")).astype(dtype)
    x[3, 4:9] = -0.0 if dtype.kind != "u" else 0
    found = mytorch.tensor(x).sort(dim, descending=descending)
    wide = x.astype(np.float64)
    order = np.argsort(-wide if descending else wide, dim, kind="stable")
    np.testing.assert_array_equal(found.indices.numpy(), order)
    np.testing.assert_array_equal(found.values.numpy().astype(np.float64), np.take_along_axis(wide, order, dim))
    for k in (1, 7, 90):
        top = mytorch.tensor(x).topk(k, dim, largest=descending)
        np.testing.assert_array_equal(top.indices.numpy(), order.take(range(k), dim))
    kth = mytorch.tensor(x).kthvalue(7, dim)
    if not descending:
        np.testing.assert_array_equal(kth.indices.numpy(), order.take(6, dim))


def test_sorting_puts_nan_last_as_pytorch(torch, rng):
    x = values(rng, (131, 97), "float32")
    x[rng.random(x.shape) < 0.1] = np.nan
    for dim in (0, 1):
        for run in (
            lambda L: L.tensor(x).sort(dim).values, lambda L: L.tensor(x).topk(30, dim).values,
            lambda L: L.tensor(x).kthvalue(5, dim).values, lambda L: L.tensor(x).cummax(dim).values,
            lambda L: L.tensor(x).cummin(dim).indices,
        ):  # fmt: skip
            np.testing.assert_array_equal(run(mytorch).numpy(), run(torch).numpy())


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_take_the_last_of_equal_ones(torch, rng, name):
    x = np.round(values(rng, (97, 11, 13), "float32"))
    x[31, 2:, 5] = np.nan
    for dim in (0, 1, 2):
        mine, theirs = (getattr(L.tensor(x), name)(dim) for L in (mytorch, torch))
        np.testing.assert_array_equal(mine.values.numpy(), theirs.values.numpy())
        np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
@pytest.mark.parametrize("high", [100, 1 << 40])
def test_distinct_integers_whether_counted_or_sorted(torch, rng, dtype, high):
    high = min(high, np.iinfo(dtype).max)
    x = rng.integers(np.iinfo(dtype).min if dtype == "int8" else high // 2, high, (97, 101)).astype(dtype)
    mine, theirs = (L.unique(L.tensor(x), return_inverse=True, return_counts=True) for L in (mytorch, torch))
    for a, b in zip((mytorch.unique(mytorch.tensor(x)), *mine), (theirs[0], *theirs), strict=True):
        assert a.numpy().dtype == b.numpy().dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("layout", SHAPES)
def test_scatter_and_its_extremes(torch, rng, layout, dtype):
    shape, dim = SHAPES[layout]
    x, src = values(rng, shape, dtype), values(rng, shape, dtype)
    index = np.argsort(rng.random(shape), dim)  # no repetitions, so that all libraries must agree
    np.testing.assert_array_equal(
        *(L.tensor(x).scatter(dim, L.tensor(index), L.tensor(src)).numpy() for L in (mytorch, torch))
    )
    index = rng.integers(0, shape[dim], shape)
    for reduce in ("amax", "amin"):
        found = [L.tensor(x).scatter_reduce(dim, L.tensor(index), L.tensor(src), reduce) for L in (mytorch, torch)]
        np.testing.assert_array_equal(*(f.numpy() for f in found))
    for turned in (x, np.asfortranarray(x)):  # added to the input in the order of the index, as in PyTorch
        found = [L.from_numpy(turned).scatter_add(dim, L.tensor(index), L.tensor(src)) for L in (mytorch, torch)]
        np.testing.assert_array_equal(*(f.numpy() for f in found))
        assert found[0].stride() == found[1].stride()


@loop
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 100, 1025])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32"])
def test_positions_in_sorted_sequences(torch, rng, n, dtype):
    sequence, x = rng.integers(0, 2 * n, n), rng.integers(-2, 2 * n + 2, (97, 203)).astype(dtype)
    ends = [sequence.astype(dtype)]
    if x.dtype.kind == "f":
        x[0, :3] = np.nan, np.inf, -np.inf
        ends.append(np.append(ends[0], [np.inf, np.nan, np.nan]).astype(dtype))
    for sequence in map(np.sort, ends):
        rows = np.sort(np.stack([np.roll(sequence, i) + (i % 3) for i in range(97)]), -1).astype(dtype)
        for turned in (x, np.asfortranarray(x), x[::-1]):
            for side in ("left", "right"):
                expected = np.searchsorted(sequence, turned, side)
                result = mytorch.searchsorted(mytorch.tensor(sequence), mytorch.tensor(turned), side=side)
                np.testing.assert_array_equal(result.numpy(), expected)
                expected = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, turned, strict=True)])
                with threads.everything():
                    result = mytorch.searchsorted(
                        mytorch.tensor(rows), mytorch.tensor(turned), right=side == "right", out_int32=True
                    )
                np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("columns", [97, 96])
def test_reducing_by_an_index_that_repeats_in_all_columns(torch, rng, columns, include_self):
    x, src, rows = values(rng, (203, 97), "float32"), values(rng, (150, 97), "float32"), rng.integers(0, 200, (150, 1))
    for reduce in ("sum", "mean", "amax", "amin", "prod"):
        for shape, dim, turn in (((150, columns), 0, lambda a: a), ((columns, 150), 1, lambda a: a.T)):
            found = [
                L.tensor(turn(x)).scatter_reduce(
                    dim, L.tensor(turn(rows)).expand(shape), L.tensor(turn(src)), reduce, include_self=include_self
                )
                for L in (mytorch, torch)
            ]
            np.testing.assert_allclose(*(f.numpy() for f in found), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("read", ["gather", "scatter_add", "index", "cross_entropy"])
@pytest.mark.parametrize("far", [2**40, -1])
def test_indices_changed_behind_the_graph_lead_nowhere_outside_of_memory(read, far):
    x = mytorch.ones(40000, 1, requires_grad=True) if read == "index" else mytorch.ones(64, 1024, requires_grad=True)
    index = mytorch.zeros(*((40000,) if read == "index" else (64, 1024)[: 1 if read == "cross_entropy" else 2])).long()
    out = {
        "gather": lambda: x.gather(1, index), "index": lambda: x[index],
        "scatter_add": lambda: mytorch.zeros(64, 1024).scatter_add(1, index, x),
        "cross_entropy": lambda: mytorch.nn.functional.cross_entropy(x, index),
    }[read]()  # fmt: skip
    index.numpy()[...] = far
    with contextlib.suppress(IndexError):  # some paths read -1 as the last element
        out.sum().backward()
        assert np.isfinite(x.grad.numpy()).all()


@loop
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float64"])
def test_many_arrive_at_one_element(torch, rng, dtype, reduce, include_self):
    x, src = (rng.integers(1, 3, n).astype(dtype) for n in (7000, 6400))
    src[-6300:] = 1
    index = np.where(
        np.arange(6400) < 6144, 3, rng.integers(0, 7000, 6400)
    )  # 6144 is a multiple of 256: to count in bytes gives 0
    found = [
        L.tensor(x).scatter_reduce(0, L.tensor(index), L.tensor(src), reduce, include_self=include_self)
        for L in (mytorch, torch)
    ]
    np.testing.assert_allclose(*(f.numpy() for f in found), rtol=1e-3 if dtype == "float16" else 1e-12)


def test_products_of_scattered_inputs_have_gradients_next_to_zeros(rng):
    x, src = (rng.integers(-2, 3, n).astype(np.float64) for n in (5, 40))
    index = mytorch.tensor(rng.integers(0, 5, 40))
    inputs = [mytorch.tensor(a, requires_grad=True) for a in (x, src)]
    assert mytorch.autograd.gradcheck(lambda a, b: a.scatter_reduce(0, index, b, "prod"), inputs)
    assert mytorch.autograd.gradgradcheck(lambda a, b: a.scatter_reduce(0, index, b, "prod"), inputs)


def test_columns_are_picked_and_their_gradients_added(torch, rng):
    x, index = values(rng, (57, 43, 5), "float32"), rng.integers(-43, 43, 200)
    found = []
    for L in (mytorch, torch):
        t = L.tensor(x, requires_grad=True)
        out = t[:, L.tensor(index)]
        (out * out).sum().backward()
        found.append((out.detach().numpy(), t.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    "shapes", [((33, 77), (77, 51)), ((5, 1024), (1024, 97)), ((2, 3, 41, 38), (2, 3, 38, 50)), ((3, 9, 64), (64, 47))]
)
def test_products_of_bfloat16_are_rounded_once(rng, shapes):
    a, b = (values(rng, shape, BF16) for shape in shapes)
    wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
    for right in (b, np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)):
        found = xp.matmul(a, right)
        assert found.dtype == BF16
        np.testing.assert_allclose(found.astype(np.float64), wide, rtol=2**-8, atol=1e-4 * np.abs(wide).max())


def test_products_of_bfloat16_with_infinity_and_nan(rng):
    a, b = np.ones((64, 40), BF16), np.ones((40, 70), BF16)
    a[3, 5], a[4, 6], b[7, 2] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = np.matmul(a.astype(np.float32), b.astype(np.float32))
        np.testing.assert_array_equal(xp.matmul(a, b).astype(np.float32), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_activations_equal_pytorch(torch, rng, dtype):
    x, g = rng.standard_normal((77, 129)) * 20, rng.standard_normal((77, 129))
    runs = {
        "sigmoid": lambda L, x: x.sigmoid(), "silu": lambda L, x: L.nn.functional.silu(x), "log_softmax": lambda L, x: L.log_softmax(x, -1),
        "softmax": lambda L, x: L.softmax(x, -1), "clamp": lambda L, x: x.clamp(-3.0, 2.0),
        "smooth_l1": lambda L, x: L.nn.functional.smooth_l1_loss(x, x * 0 + 1, reduction="none", beta=3.0),
        "huber": lambda L, x: L.nn.functional.huber_loss(x, x * 0 + 1, reduction="none", delta=3.0),
        "prod": lambda L, x: (x * 0.05).prod(1), "norm": lambda L, x: x.norm(dim=1), "var": lambda L, x: x.var(0),
    }  # fmt: skip
    rtol, atol = {"float32": (2e-5, 1e-5), "float64": (1e-10, 1e-11), "bfloat16": (0.02, 0.05)}[dtype]
    for name, run in runs.items():
        found = []
        for L in (mytorch, torch):
            leaf = L.tensor(x, dtype=getattr(L, dtype), requires_grad=True)
            out = run(L, leaf)
            out.backward(L.tensor(g, dtype=getattr(L, dtype)).reshape(-1)[: out.numel()].reshape(out.shape))
            found.append((out.detach().double().numpy(), leaf.grad.double().numpy()))
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, err_msg=name)


def test_infinity_and_nan_pass_through_activations(torch):
    x = np.zeros((128, 65), np.float32)
    x[0, :3] = np.inf, -np.inf, np.nan
    x[-1, -1] = np.nan
    for run in (
        lambda L, x: L.nn.functional.silu(x),
        lambda L, x: L.sigmoid(x),
        lambda L, x: x.log_softmax(1),
        lambda L, x: x.clamp(-1.0, 1.0),
    ):
        np.testing.assert_allclose(
            run(mytorch, mytorch.tensor(x)).numpy(), run(torch, torch.tensor(x)).numpy(), atol=1e-6
        )


def test_casts_to_bfloat16_round_to_even(rng):
    x = rng.integers(0, 1 << 32, 100003, dtype=np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        found, wanted = xp.cast(x, BF16), x.astype(BF16)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(found.astype(np.float32)))
    kept = ~np.isnan(x)
    np.testing.assert_array_equal(found.view(np.uint16)[kept], wanted.view(np.uint16)[kept])
    np.testing.assert_array_equal(
        xp.cast(wanted, np.dtype("float32")).view(np.uint32), wanted.astype(np.float32).view(np.uint32)
    )


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_remainders_have_the_bits_of_numpy(rng, name):
    edges = np.array([0, -0.0, 1, -3, 0.1, np.inf, -np.inf, np.nan, 1e-45, -3e38, 4194305, 33554431], np.float32)
    x, y = (np.tile(a.reshape(-1), 100) for a in np.meshgrid(edges, edges))
    numbers = rng.standard_normal(30011).astype(np.float32)
    whole = rng.integers(-9, 10, 30011).astype(np.float32)
    large = np.exp(rng.uniform(0, 17, 30011)).astype(np.float32)
    for a, b in (
        (x, y),
        (numbers, numbers[::-1]),
        (whole, whole[::-1]),
        (numbers * whole, numbers),
        (large, numbers),
        (whole, 2.5),
    ):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(a, b)
        result = getattr(xp, name)(a, b)
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result)[~np.isnan(result)], np.signbit(expected)[~np.isnan(result)])


@pytest.mark.skipif(not parts.SCALAR, reason="NumPy computes vectors on this processor")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", parts.SCALAR)
def test_functions_of_vectors(rng, name, dtype):
    count, function = parts.SCALAR[name], getattr(xp, name)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-42, -1e-42, 3e38, -3e38, 1e30, 88.8, -104]
    for size in (LARGE, LARGE + 1, LARGE + 7, 3 * LARGE + 13):
        x = np.exp(rng.uniform(-20, 6, size)) * rng.choice([-1, 1], size)
        x = 1 + abs(x) if name == "arccosh" else np.tanh(x) if name in ("arcsin", "arccos", "arctanh") else x
        x = x.astype(dtype)
        x[: len(special)] = x[-len(special) :] = special
        operands = [x, rng.permutation(x)][:count]
        with np.errstate(all="ignore"):
            wide = [a.astype(np.longdouble if np.finfo(np.longdouble).nmant > 52 else np.float64) for a in operands]
            expected, found = getattr(np, name)(*wide).astype(dtype), function(*operands)
            with threads.everything():
                np.testing.assert_array_equal(function(*operands), found)
            np.testing.assert_array_equal(function(*operands, out=operands[-1].copy()), found)
            operands[0] = operands[0].copy()
            np.testing.assert_array_equal(function(*operands, out=operands[0]), found)
        assert found.dtype == expected.dtype
        np.testing.assert_array_max_ulp(found, expected, 5)
        plain = expected == 0
        np.testing.assert_array_equal(np.signbit(found[plain]), np.signbit(expected[plain]))
