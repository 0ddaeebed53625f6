"""The same program under both libraries: names, messages, draws, collating."""

import collections
import copy
import inspect
import pickle
import re
import types
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

Point = collections.namedtuple("Point", ("x", "y"))

DATAPIPES = {
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
}


def outcome(function, *args, **kwargs):
    """Returns the value or the exception of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            value = type(error).__name__, re.split("! Expected|, got|!$", str(error))[0]  # ours adds the values
    return value, sorted(str(w.message) for w in caught if "will create" not in str(w.message))


def same(build, torch):
    """Compares the outcomes of `build(lib)` in both libraries; returns the outcome of mytorch."""
    mytorch.manual_seed(7)
    torch.manual_seed(7)
    mine, theirs = outcome(build, mytorch), outcome(build, torch)
    assert mine == theirs
    return mine[0]


def test_names(torch):
    theirs, mine = torch.utils.data, mytorch.utils.data
    assert {n for n in theirs.__all__ if not hasattr(mine, n)} == DATAPIPES
    for module in ("dataset", "sampler", "dataloader", "distributed"):
        path = f"mytorch.utils.data.{module}"
        ours = __import__(path, fromlist=["x"])
        assert not [n for n in getattr(theirs, module).__all__ if not hasattr(ours, n)]
    for path in (
        "dataloader.default_collate",
        "dataloader._SingleProcessDataLoaderIter",
        "dataloader._MultiProcessingDataLoaderIter",
        "dataloader._BaseDataLoaderIter",
        "dataloader._InfiniteConstantSampler",
        "_utils.collate.default_collate",
        "_utils.collate.default_convert",
        "_utils.collate.collate",
        "_utils.collate.default_collate_fn_map",
        "_utils.collate.collate_tensor_fn",
        "_utils.fetch._MapDatasetFetcher",
        "_utils.fetch._IterableDatasetFetcher",
        "_utils.pin_memory.pin_memory",
        "_utils.worker.get_worker_info",
        "_utils.worker.WorkerInfo",
        "_utils.ExceptionWrapper",
        "_utils.MP_STATUS_CHECK_INTERVAL",
        "dataset.Dataset",
        "sampler.Sampler",
        "distributed.DistributedSampler",
    ):
        a, b = theirs, mine
        for part in path.split("."):
            a, b = getattr(a, part), getattr(b, part)
    assert mine._utils.collate.default_collate is mine.default_collate is mine.dataloader.default_collate


@loop
@pytest.mark.parametrize(
    "name",
    [
        "DataLoader",
        "BatchSampler",
        "RandomSampler",
        "SequentialSampler",
        "SubsetRandomSampler",
        "WeightedRandomSampler",
        "DistributedSampler",
        "Subset",
        "random_split",
        "default_collate",
        "default_convert",
        "TensorDataset",
        "StackDataset",
    ],
)
def test_signatures(name, torch):
    mine, theirs = (inspect.signature(getattr(lib.utils.data, name)).parameters for lib in (mytorch, torch))
    assert list(mine) == list(theirs)
    assert [p.kind for p in mine.values()] == [p.kind for p in theirs.values()]


def test_classes_take_types():
    data = mytorch.utils.data
    for kind in (data.Dataset, data.IterableDataset, data.Sampler, data.DataLoader, data.ConcatDataset, data.Subset):
        assert kind[int] is not None
    with pytest.raises(TypeError, match="abstract"):
        data.IterableDataset()


def stream(lib, n=5, length=None):
    class Stream(lib.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(n))

        def __repr__(self):
            return "Stream"

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


BAD_LOADERS = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"prefetch_factor": 0},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"timeout": 3},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_sampler": [[1]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": -2},
    {"batch_size": 2.5},
    {"batch_size": True},
    {"drop_last": 1},
    {"multiprocessing_context": "fork"},
    {"multiprocessing_context": "knife", "num_workers": 1},
    {"multiprocessing_context": 3, "num_workers": 1},
    pytest.param({"pin_memory": True}, marks=pytest.mark.cpu_only),
    pytest.param({"pin_memory": True, "pin_memory_device": "cuda"}, marks=pytest.mark.cpu_only),
    {"pin_memory_device": "cuda"},
]


@loop
@pytest.mark.parametrize("options", BAD_LOADERS, ids=str)
def test_bad_loaders(options, torch):
    same(lambda lib: [x.tolist() for x in lib.utils.data.DataLoader(list(range(3)), **options)], torch)


def test_nothing_to_prefetch():
    loader = mytorch.utils.data.DataLoader([1, 2], num_workers=1, prefetch_factor=0)
    with pytest.raises(
        AssertionError, match="prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
    ):
        iter(loader)


@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"shuffle": False}, {"sampler": [1]}, {"batch_sampler": [[1]]}], ids=str
)
def test_bad_loaders_of_streams(options, torch):
    same(lambda lib: [x.tolist() for x in lib.utils.data.DataLoader(stream(lib), **options)], torch)


def test_empty_datasets(torch):
    assert same(lambda lib: lib.utils.data.DataLoader([], shuffle=True), torch)[0] == "ValueError"
    assert same(lambda lib: list(lib.utils.data.DataLoader([])), torch) == []
    assert same(lambda lib: list(lib.utils.data.DataLoader([], num_workers=1)), torch) == []
    same(lambda lib: list(lib.utils.data.RandomSampler([], num_samples=3)), torch)


@loop
@pytest.mark.parametrize(
    "name",
    [
        "batch_size",
        "batch_sampler",
        "sampler",
        "drop_last",
        "dataset",
        "persistent_workers",
        "collate_fn",
        "num_workers",
    ],
)
def test_attributes_that_are_fixed(name, torch):
    same(lambda lib: setattr(lib.utils.data.DataLoader([1, 2]), name, None), torch)


@loop
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}], ids=str
)
@pytest.mark.parametrize("length", [None, 3, 10])
@pytest.mark.parametrize("workers", [0, 2])
def test_lengths(options, length, workers, torch):
    def run(lib):
        loader = lib.utils.data.DataLoader(stream(lib, 10, length), num_workers=workers, **options)
        found = [len(loader) if length is not None else outcome(len, loader)]
        found.append(sum(1 for _ in loader))
        found.append(outcome(len, iter(loader)))
        return found

    same(run, torch)
    same(
        lambda lib: [
            len(x)
            for x in (
                lib.utils.data.DataLoader(range(10), **options),
                iter(lib.utils.data.DataLoader(range(10), **options)),
            )
        ],
        torch,
    )


class EagerDraws:
    """A sampler that draws when it is asked for an iterator."""

    def __init__(self, lib):
        self.lib = lib

    def __iter__(self):
        return iter(self.lib.randint(0, 9, (6,)).tolist())

    def __len__(self):
        return 6


class LazyDraws(EagerDraws):
    def __iter__(self):
        for _ in range(6):
            yield int(self.lib.randint(0, 9, (1,)))


@loop
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [EagerDraws, LazyDraws])
@pytest.mark.parametrize("options", ["item", "batch", "own", "generator", "shuffle"])
def test_order_of_draws(workers, persistent, kind, options, torch):
    """The items, and the final state of the default generator, are equal to PyTorch."""
    if persistent and not workers:
        return

    def run(lib):
        given = {
            "item": lambda: {"batch_size": None, "sampler": kind(lib)},
            "batch": lambda: {"batch_size": 2, "sampler": kind(lib)},
            "own": lambda: {"batch_sampler": lib.utils.data.BatchSampler(kind(lib), 4, False)},
            "generator": lambda: {"shuffle": True, "generator": lib.Generator().manual_seed(3)},
            "shuffle": lambda: {"batch_size": None, "shuffle": True},
        }[options]()
        data = list(range(9))
        loader = lib.utils.data.DataLoader(data, num_workers=workers, persistent_workers=persistent, **given)
        found = []
        for _ in range(3):
            found += [x if isinstance(x, int) else x.tolist() for x in loader]
            found.append(lib.rand(2).tolist())
        return found

    same(run, torch)


def test_samplers(torch):
    data = [
        lambda d: list(d.RandomSampler(range(9))),
        lambda d: list(d.RandomSampler(range(9), num_samples=20)),
        lambda d: list(d.RandomSampler(range(9), replacement=True, num_samples=70)),
        lambda d: d.RandomSampler(range(9), replacement=1),
        lambda d: d.RandomSampler(range(9), num_samples=0),
        lambda d: d.RandomSampler(range(9), num_samples=2.0),
        lambda d: d.RandomSampler([]),
        lambda d: list(d.SubsetRandomSampler([5, 6, 9, 1])),
        lambda d: list(d.WeightedRandomSampler([0.5, 2.0, 3.0, 0.1], 12)),
        lambda d: list(d.WeightedRandomSampler([0.5, 2.0, 3.0, 0.1], 3, replacement=False)),
        lambda d: d.WeightedRandomSampler([0.5], 0),
        lambda d: d.WeightedRandomSampler([0.5], True),
        lambda d: d.WeightedRandomSampler([0.5], 3, 1),
        lambda d: d.WeightedRandomSampler([[0.5]], 3),
        lambda d: list(d.BatchSampler(range(7), 3, False)),
        lambda d: list(d.BatchSampler(range(7), 3, True)),
        lambda d: len(d.BatchSampler(range(7), 3, False)),
        lambda d: len(d.BatchSampler(range(7), 3, True)),
        lambda d: d.BatchSampler(range(7), 0, True),
        lambda d: d.BatchSampler(range(7), 3, None),
        lambda d: d.DistributedSampler(range(7), 3, 3),
        lambda d: list(d.DistributedSampler(range(2), 5, 4)),
        lambda d: len(d.DistributedSampler([], 2, 0)),
    ]
    for build in data:
        same(lambda lib: build(lib.utils.data), torch)


def test_datasets(torch):
    class Many:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return -i

        def __getitems__(self, indices):
            return [10 * i for i in indices]

    class Wrong(Many):
        def __getitems__(self, indices):
            return [0]

    def chain(lib):
        return lib.utils.data.ChainDataset([stream(lib, 3, 3), stream(lib, 2, 2)])

    def overriding(lib, also):
        members = {"__getitem__": lambda self, i: i}
        if also:
            members["__getitems__"] = lambda self, indices: indices
        kind = type("Mine", (lib.utils.data.Subset,), members)
        return list(lib.utils.data.DataLoader(kind(range(5), [1, 2]), collate_fn=list))

    cases = [
        lambda lib: lib.utils.data.TensorDataset(lib.ones(3), lib.ones(2)),
        lambda lib: [t.tolist() for t in lib.utils.data.TensorDataset(lib.arange(3), lib.arange(3) * 2)[1:]],
        lambda lib: lib.utils.data.StackDataset(),
        lambda lib: lib.utils.data.StackDataset([1], a=[1]),
        lambda lib: lib.utils.data.StackDataset([1], [1, 2]),
        lambda lib: lib.utils.data.StackDataset(a=[1], b=[1, 2]),
        lambda lib: lib.utils.data.StackDataset([1, 2], range(2))[1],
        lambda lib: lib.utils.data.StackDataset(a=range(4), b=Many()).__getitems__([1, 3]),
        lambda lib: lib.utils.data.StackDataset(range(4), Many()).__getitems__([1, 3]),
        lambda lib: lib.utils.data.StackDataset(range(4), Wrong()).__getitems__([1, 3]),
        lambda lib: lib.utils.data.Subset(Many(), [3, 1]).__getitems__([0, 1]),
        lambda lib: lib.utils.data.Subset(Many(), [3, 1])[1],
        lambda lib: lib.utils.data.ConcatDataset([]),
        lambda lib: lib.utils.data.ConcatDataset([stream(lib)]),
        lambda lib: lib.utils.data.ConcatDataset([range(2), range(5)])[-8],
        lambda lib: [lib.utils.data.ConcatDataset([range(2), range(5)])[i] for i in (0, 2, -1, 6)],
        lambda lib: lib.utils.data.ConcatDataset.cumsum([range(2), range(5)]),
        lambda lib: list(chain(lib)),
        lambda lib: len(chain(lib)),
        lambda lib: list(stream(lib, 2) + stream(lib, 3)),
        lambda lib: list(lib.utils.data.ChainDataset([range(2)])),
        lambda lib: len(lib.utils.data.ChainDataset([range(2)])),
        lambda lib: overriding(lib, False),
        lambda lib: overriding(lib, True),
        lambda lib: lib.utils.data.Dataset()[0],
        lambda lib: [list(s.indices) for s in lib.utils.data.random_split(range(10), [3, 7])],
        lambda lib: [list(s.indices) for s in lib.utils.data.random_split(range(11), [0.3, 0.3, 0.4])],
        lambda lib: [
            list(s.indices) for s in lib.utils.data.random_split(range(11), [0.5, 0.5], lib.Generator().manual_seed(4))
        ],
        lambda lib: len(lib.utils.data.random_split(range(2), [0.9, 0.1, 0.0])),
        lambda lib: lib.utils.data.random_split(range(10), [3, 8]),
        lambda lib: lib.utils.data.random_split(range(10), [0.3, 0.8]),
        lambda lib: lib.utils.data.random_split(range(10), [-0.5, 1.5]),
    ]
    for build in cases:
        same(build, torch)


def plain(x):
    """Nested data with tensors as (dtype, values), and the types of containers."""
    if hasattr(x, "tolist") and not isinstance(x, (np.ndarray, np.generic)):
        return str(x.dtype).rpartition(".")[2], x.tolist()
    if isinstance(x, collections.abc.Mapping):
        return type(x).__name__, {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple, collections.UserList)):
        return type(x).__name__, [plain(v) for v in x]
    return type(x).__name__, str(x)


def user_list(items):
    return collections.UserList(items)


ITEMS = {
    "ints": [1, 2],
    "bools": [True, False],
    "floats": [1.5, 2],
    "ints and floats": [1, 2.5],
    "strings": ["a", "b"],
    "bytes": [b"a", b"b"],
    "arrays": [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "numbers": [np.float32(1), np.float32(2)],
    "float64 numbers": [np.float64(1), np.float64(2)],
    "bool numbers": [np.bool_(True), np.bool_(False)],
    "strings of numpy": [np.str_("a"), np.str_("b")],
    "0-d": [np.array(1), np.array(2)],
    "tuples": [(1, "a"), (2, "b")],
    "lists": [[1, 2.0], [3, 4.0]],
    "points": [Point(1, 2.0), Point(3, 4.0)],
    "dicts": [{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3, 4]}],
    "more keys": [{"a": 1}, {"a": 2, "b": 3}],
    "fewer keys": [{"a": 1, "b": 2}, {"a": 2}],
    "ordered": [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "default": [collections.defaultdict(list, a=1), collections.defaultdict(list, a=2)],
    "proxies": [types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})],
    "user lists": [user_list([1, 2]), user_list([3, 4])],
    "ranges": [range(2), range(2, 4)],
    "uneven": [[1], [1, 2]],
    "uneven points": [(1, 2), (1,)],
    "objects": [object, object],
    "none": [None, None],
    "sets": [{1}, {2}],
    "object arrays": [np.array(["x"], object), np.array(["x"], object)],
    "string arrays": [np.array(["x"]), np.array(["x"])],
    "empty": [[], []],
    "shapes": [np.ones(2), np.ones(2)],
}


@loop
@pytest.mark.parametrize("items", ITEMS, ids=str)
def test_collate_and_convert(items, torch):
    batch = ITEMS[items]
    same(
        lambda lib: plain(lib.utils.data.default_collate(copy.deepcopy(batch) if items != "proxies" else batch)), torch
    )
    same(lambda lib: plain(lib.utils.data.default_convert(batch)), torch)


def test_a_default_factory_is_kept():
    batch = mytorch.utils.data.default_collate(ITEMS["default"])
    assert batch.default_factory is list


def test_collate_is_open_to_other_kinds(torch):
    class Own:
        def __init__(self, value):
            self.value = value

    def run(lib):
        collate = lib.utils.data._utils.collate
        known = {**collate.default_collate_fn_map, Own: lambda batch, *, collate_fn_map: sum(x.value for x in batch)}
        return collate.collate([{"a": Own(2), "b": 1}, {"a": Own(3), "b": 2}], collate_fn_map=known)["a"]

    assert same(run, torch) == 5


def test_tensors_of_the_library_are_stacked(torch, rng):
    x = rng.normal(size=(3, 2)).astype(np.float32)
    same(
        lambda lib: plain(lib.utils.data.default_collate([(lib.tensor(row), {"r": lib.tensor(row)}) for row in x])),
        torch,
    )
    assert mytorch.utils.data.default_collate([mytorch.ones(2).data] * 2).shape == (2, 2)


class Pinned:
    pinned = False

    def pin_memory(self):
        self.pinned = True
        return self


def as_pinned(items):
    return Pinned()


def test_pin_memory(monkeypatch):
    batch = {"a": [Pinned()], "b": (Pinned(), "s"), "c": Point(Pinned(), 1), "t": 3}
    pinned = mytorch.utils.data._utils.pin_memory.pin_memory(batch)
    assert pinned["a"][0].pinned
    assert pinned["b"][0].pinned
    assert isinstance(pinned["c"], Point)
    assert pinned["t"] == 3
    monkeypatch.setattr("mytorch.utils.data.dataloader.cuda_available", lambda: True)
    for workers in (0, 1):
        loader = mytorch.utils.data.DataLoader([1, 2], pin_memory=True, collate_fn=as_pinned, num_workers=workers)
        assert all(own.pinned for own in loader)


def test_loaders_can_be_copied_and_iterators_not():
    loader = mytorch.utils.data.DataLoader([1, 2, 3], 2, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    for twin in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert len(list(twin)) == 2
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)


def test_worker_numbers_are_warned_of(torch, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)

    def warn(lib):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lib.utils.data.DataLoader([1], num_workers=2)
        return [str(w.message).partition(", which")[0] for w in caught]

    assert warn(mytorch) == warn(torch)


def test_worker_info(torch):
    def run(lib):
        class Data(lib.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                info = lib.utils.data.get_worker_info()
                with pytest.raises(AttributeError):
                    info.id = 3
                return info.id, info.num_workers, info.seed, type(info.dataset).__name__

        assert lib.utils.data.get_worker_info() is None
        return [plain(b) for b in lib.utils.data.DataLoader(Data(), 2, num_workers=2)]

    same(run, torch)


def test_batches_may_be_tuples():
    data = mytorch.arange(12.0).reshape(6, 2)
    loader = mytorch.utils.data.DataLoader(
        mytorch.utils.data.TensorDataset(data, data), batch_sampler=[(0, 1), (2, 3, 4)]
    )
    assert [x.tolist() for x, _ in loader] == [data[:2].tolist(), data[2:5].tolist()]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 5}, {"batch_size": None}]
)
def test_attributes_of_loaders(options, torch):
    names = "batch_size num_workers prefetch_factor pin_memory timeout drop_last persistent_workers".split()
    mine, theirs = (lib.utils.data.DataLoader([1, 2, 3], **options) for lib in (mytorch, torch))
    assert [getattr(mine, name) for name in names] == [getattr(theirs, name) for name in names]
