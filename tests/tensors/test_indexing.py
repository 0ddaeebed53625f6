"""x[index], read, written and differentiated, for every combination of kinds of index, against PyTorch."""

import itertools

import numpy as np
import pytest

import mytorch
from tests.loops import loop

KINDS = {
    "int": lambda t: 0,
    "negative": lambda t: -1,
    "slice": lambda t: slice(None),
    "step": lambda t: slice(None, None, 2),
    "none": lambda t: None,
    "ellipsis": lambda t: ...,
    "list": lambda t: [0, 1],
    "tensor": lambda t: t.tensor([[0], [1]]),
    "mask": lambda t: t.tensor([True, False]),
    "zero_dim": lambda t: t.tensor(0),
    "true": lambda t: True,
    "empty": lambda t: t.tensor([], dtype=t.long),
}


def attempt(function):
    try:
        return function()
    except (IndexError, RuntimeError) as error:
        return type(error)


@loop
@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=3)), ids="-".join)
def test_reading_and_writing(torch, kinds):
    if kinds.count("ellipsis") > 1:
        pytest.skip("PyTorch counts a second ellipsis's axes twice")
    values = np.arange(48.0).reshape(2, 3, 4, 2)

    def read(t):
        x = t.tensor(values, requires_grad=True)
        y = x[tuple(KINDS[k](t) for k in kinds)]
        (y**2).sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    def write(t):
        x, v = t.tensor(values, requires_grad=True), t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)
        y = x * 1
        y[tuple(KINDS[k](t) for k in kinds)] = v
        (y**2).sum().backward()
        return y.detach().numpy(), x.grad.numpy(), v.grad.numpy()

    for f in (read, write):
        theirs, ours = attempt(lambda f=f: f(torch)), attempt(lambda f=f: f(mytorch))
        if isinstance(theirs, type):
            assert ours is theirs
            continue
        for a, b in zip(theirs, ours, strict=True):
            assert a.shape == b.shape
            np.testing.assert_array_equal(a, b)


@loop
@pytest.mark.parametrize(
    "index", [[[0, 1], [1, 0]], [[0], [1]], [slice(0, 1)], [None, 0], [..., 0], [np.array([0, 1])]], ids=str
)
def test_a_list_of_anything_but_numbers_is_a_tuple(torch, index):
    x = np.arange(24.0).reshape(2, 3, 4)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        theirs = torch.tensor(x)[index]
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        ours = mytorch.tensor(x)[index]
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.cpu_only  # a GPU is not asked for the values of its indices
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_indices_outside_are_found_in_every_dtype(dtype):
    x = mytorch.randn(3, 4)
    for at in (4, 100, *((-1, -4) if dtype != "uint8" else ())):
        index = mytorch.tensor([[0, 1], [3, at], [2, 0]], dtype=getattr(mytorch, dtype))
        for given in (index, index.t().contiguous().t()):
            with pytest.raises(RuntimeError, match=f"index {at} is out of bounds for dimension 1 with size 4"):
                x.gather(1, given)
    np.testing.assert_array_equal(
        x.gather(1, index.clamp(0, 3)), np.take_along_axis(x.numpy(), index.clamp(0, 3).numpy(), 1)
    )


ALONG = {
    "gather": lambda x, dim, index, src: x.gather(dim, index),
    "scatter": lambda x, dim, index, src: x.scatter(dim, index, src),
    "scatter_add": lambda x, dim, index, src: x.scatter_add(dim, index, src),
    **{
        name: lambda x, dim, index, src, name=name: x.scatter_reduce(dim, index, src, name)
        for name in ("sum", "mean", "prod", "amax", "amin")
    },
}


@loop
@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("name", ALONG)
def test_an_expanded_index_is_the_index_that_it_repeats(name, dtype, dim, rows):
    """`index.view(-1, 1).expand_as(src)`, of most graph networks. Repeated indices, and more of them than rows."""
    shape = [2, 3, 4]
    x = (mytorch.randn(shape) * 3).to(getattr(mytorch, dtype))
    long = [rows if axis == dim else n for axis, n in enumerate(shape)]
    vector = mytorch.randint(shape[dim], [rows if axis == dim else 1 for axis in range(3)])
    if name == "scatter":  # one source for each place: which one of several is written is not specified
        long = shape
        vector = mytorch.randperm(shape[dim]).view([-1 if axis == dim else 1 for axis in range(3)])
    src, upstream = (mytorch.randn(long).to(x.dtype) for _ in range(2))
    upstream = upstream if name == "gather" else mytorch.randn(shape).to(x.dtype)
    results = []
    for index in (vector.expand(long), vector.expand(long).contiguous()):
        leaves = [v.clone().requires_grad_(dtype != "int64") for v in (x, src)]
        out = ALONG[name](leaves[0], dim, index, leaves[1])
        used = leaves[:1] if name == "gather" else leaves
        grads = mytorch.autograd.grad(out, used, upstream) if dtype != "int64" else ()
        results.append([t.detach().cpu().numpy() for t in (out, *grads)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


LISTS = [[True], [True, False, True, False], [1, True], [True, 1.0], [0.0, 1.7], [], ["a"], [1j]]


@loop
@pytest.mark.parametrize("index", LISTS, ids=str)
def test_lists_of_other_lengths_and_kinds(index, torch):
    """Lists are read as PyTorch reads them: it truncates floats."""
    found = []
    for library in (torch, mytorch):

        def write(library=library):
            x = library.arange(12.0).reshape(3, 4)
            x[index] = 7.0
            return x.tolist()

        for program in (lambda library=library: library.arange(12.0).reshape(3, 4)[index].tolist(), write):
            try:
                found.append(program())
            except (IndexError, TypeError, ValueError) as error:
                found.append(type(error).__name__)
    assert found[2:] == found[:2]


@loop
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (0, 3), (50,), (7, 1), (3, 4, 5), (2, 3, 1, 4)], ids=str)
def test_nonzero(torch, shape, dtype):
    values = np.random.default_rng(0).integers(0, 2, shape)
    axes = tuple(reversed(range(len(shape))))
    for change in (lambda x: x, lambda x: x.permute(axes), lambda x: x[..., ::2] if x.ndim else x):
        want, got = (change(library.tensor(values).to(getattr(library, dtype))) for library in (torch, mytorch))
        for as_tuple in (False, True):
            pairs = [(library.nonzero(x, as_tuple=as_tuple)) for library, x in ((torch, want), (mytorch, got))]
            for a, b in zip(*pairs, strict=True) if as_tuple else [pairs]:
                assert (a.tolist(), tuple(a.shape)) == (b.tolist(), tuple(b.shape))
                assert a.stride() == b.stride() or not b.numel()


@pytest.mark.parametrize("values", [[[0, 1], [2, 3]], [0.0, 0.0], 1, [[True, False]]], ids=str)
@pytest.mark.parametrize("options", [{"size": 0}, {"size": 2}, {"size": 5, "fill_value": 7}], ids=str)
def test_nonzero_static(values, options, torch):
    want, got = (library.nonzero_static(library.tensor(values), **options) for library in (torch, mytorch))
    assert (got.tolist(), tuple(got.shape)) == (want.tolist(), tuple(want.shape))
    with pytest.raises(RuntimeError, match="at least 0"):
        mytorch.nonzero_static(mytorch.tensor(values), size=-1)


def test_runs_of_neighbors_along_the_last_axis():
    """Runs are copied as slices. The result is the one of NumPy, and an index out of bounds raises an error."""
    x = np.random.default_rng(0).standard_normal((30, 4, 100))
    indices = [[*range(50)], [*range(99, 40, -1)], [-1, *range(60)], [*range(3, 60), 5, 5, *range(70, 100)]]
    for index in [
        *indices,
        [*range(20, 80)] * 2,
        [7] * 40,
        [*range(-100, 0)],
        np.random.default_rng(1).permutation(100),
    ]:
        for array in (x, x.transpose(1, 0, 2), x[..., ::-1].copy()[..., ::-1]):
            wanted = array[:, :, index]
            t = mytorch.tensor(array)
            np.testing.assert_array_equal(t[:, :, mytorch.tensor(index)].numpy(), wanted)
            np.testing.assert_array_equal(t.index_select(2, mytorch.tensor(index) % 100).numpy(), wanted)
    for index in ([*range(50, 101)], [-101, *range(50)]):
        with pytest.raises(IndexError):
            mytorch.tensor(x)[:, :, mytorch.tensor(index)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"])
def test_sorting_is_stable_at_each_size(dtype):
    """Small arrays are sorted by NumPy, medium and large ones by integer keys: values, ties, zeros and NaN in the same order."""
    rng = np.random.default_rng(0)
    for shape in ((30, 33), (1023,), (1024,), (41, 25), (3, 20, 25), (90, 100)):
        x = rng.integers(0, 9, shape).astype(np.float32)
        if dtype in ("float32", "float64", "float16", "bfloat16"):
            x = np.where(rng.random(shape) < 0.1, -x, x / 4)
        for nan in (False, True)[: 1 + ("float" in dtype)]:
            x.reshape(-1)[:: 50 if nan else x.size + 1] = np.nan if nan else x.reshape(-1)[0]
            t = mytorch.tensor(x).to(getattr(mytorch, dtype))
            wide = t.to(mytorch.float64).numpy()
            for dim in range(len(shape)):
                values, indices = t.sort(dim, stable=True)
                wanted = np.argsort(wide, dim, kind="stable")
                np.testing.assert_array_equal(indices.numpy(), wanted)
                np.testing.assert_array_equal(values.double().numpy(), np.take_along_axis(wide, wanted, dim))
                values, indices = t.topk(3, dim, largest=False)
                np.testing.assert_array_equal(values.double().numpy(), np.sort(wide, dim).take(range(3), dim))
                np.testing.assert_array_equal(np.take_along_axis(wide, indices.numpy(), dim), values.double().numpy())
                kth = np.sort(wide, dim).take((shape[dim] - 1) // 2, dim)
                if not nan:
                    np.testing.assert_array_equal(t.median(dim)[0].double().numpy(), kth)


OVERLAPPING = [  # tensors of which several elements share memory, and windows, which PyTorch does not recognize
    lambda L: L.zeros(3, 1).expand(3, 4),
    lambda L: L.zeros(1, 4).expand(3, 4),
    lambda L: L.zeros(1).expand(3),
    lambda L: L.zeros(2, 1, 3).expand(2, 4, 3),
    lambda L: L.zeros(()).expand(2, 2),
    lambda L: L.zeros(6).as_strided((3, 3), (1, 1)),
    lambda L: L.zeros(6).as_strided((2, 3), (0, 1)),
]
REGIONS = [
    0,
    (slice(None), 0),
    slice(0, 1),
    slice(None),
    (slice(None), slice(1, 3)),
    (..., 0),
    (None, 0),
    slice(2, 2),
    (1, 1),
]
WRITTEN = [1, 2.5, True, lambda L, region: L.tensor(3.0), lambda L, region: L.ones_like(region)]


@pytest.mark.cpu_only
@pytest.mark.parametrize("make", OVERLAPPING)
@pytest.mark.parametrize("value", WRITTEN)
def test_assignments_to_regions_that_share_memory(make, value, torch):
    for index in REGIONS:
        outcomes = []
        for L in (torch, mytorch):
            x = make(L)
            try:
                x[index] = value(L, x[index]) if callable(value) else value
                outcomes.append(x.tolist())
            except (RuntimeError, IndexError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], (index, outcomes)
