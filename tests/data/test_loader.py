"""Datasets, samplers and the loader; orders equal PyTorch's for equal seeds."""

import os
import signal
from collections import namedtuple

import numpy as np
import pytest

import mytorch
from mytorch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

Pair = namedtuple("Pair", ("x", "y"))


class Numbers(Dataset):
    def __init__(self, n=23):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"row": np.full(3, i, np.float32), "index": i}


class Failing(Numbers):
    def __getitem__(self, i):
        if i == 7:
            raise KeyError("seven is missing")
        return i


class Dying(Numbers):
    def __getitem__(self, i):
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        start = 0 if info is None else info.id * 10
        return iter(range(start, start + 5))


class Seeds(Numbers):
    def __getitem__(self, i):
        return float(np.random.rand()), mytorch.rand(1).item(), get_worker_info().id


def indices(loader):
    return [batch["index"].tolist() for batch in loader]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (3, False), (3, True)])
def test_order_is_pytorchs(workers, persistent, torch):
    class Theirs(torch.utils.data.Dataset):
        __len__ = Numbers.__len__
        __getitem__ = Numbers.__getitem__
        n = 23

    mytorch.manual_seed(3)
    torch.manual_seed(3)
    options = {"shuffle": True, "num_workers": workers, "persistent_workers": persistent}
    loader = DataLoader(Numbers(), 4, **options)
    reference = torch.utils.data.DataLoader(Theirs(), 4, **options)
    for _ in range(3):
        assert indices(loader) == [b["index"].tolist() for b in reference]


def test_order_is_independent_of_workers():
    def orders(workers):
        mytorch.manual_seed(5)
        loader = DataLoader(Numbers(), 4, shuffle=True, num_workers=workers)
        return [indices(loader) for _ in range(2)]

    assert orders(0) == orders(1) == orders(3)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_carry_their_traceback(workers):
    with pytest.raises(KeyError, match="seven is missing") as error:
        list(DataLoader(Failing(), 4, num_workers=workers))
    if workers:
        assert "DataLoader worker process" in str(error.value)
        assert "__getitem__" in str(error.value)


def test_a_killed_worker_is_an_error_not_a_hang():
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(DataLoader(Dying(), 2, num_workers=2))


def test_streams_and_worker_info():
    assert [b.tolist() for b in DataLoader(Stream(), 2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Stream(), 2, num_workers=2)] == [
        [0, 1],
        [10, 11],
        [2, 3],
        [12, 13],
        [4],
        [14],
    ]


def test_workers_draw_different_numbers():
    batches = list(DataLoader(Seeds(8), 4, num_workers=2))
    assert batches[0][2].tolist() == [0] * 4
    assert batches[0][0][0].item() != batches[1][0][0].item()
    assert batches[0][1][0].item() != batches[1][1][0].item()


def test_leaving_early_and_nesting():
    loader = DataLoader(Numbers(8), 2, num_workers=2)
    for batch in loader:
        assert batch["index"].tolist() == [0, 1]
        break
    pairs = [(a["index"][0].item(), b["index"][0].item()) for a in loader for b in loader]
    assert len(pairs) == 16
    assert pairs[:4] == [(0, 0), (0, 2), (0, 4), (0, 6)]


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_in_the_middle_of_an_epoch(workers):
    loader = DataLoader(Numbers(), 4, shuffle=True, num_workers=workers)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    rest = [b["index"].tolist() for b in iterator]
    mytorch.manual_seed(99)
    fresh = DataLoader(Numbers(), 4, shuffle=True)
    fresh.load_state_dict(state)
    assert indices(fresh) == rest


def test_collate():
    batch = default_collate([Pair(1, {"a": 2.0, "s": "x"}), Pair(3, {"a": 4.0, "s": "y"})])
    assert isinstance(batch, Pair)
    assert batch.x.tolist() == [1, 3]
    assert batch.y["a"].dtype is mytorch.float64
    assert batch.y["s"] == ["x", "y"]
    with pytest.raises(TypeError, match="must contain tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])


def test_any_object_with_length_and_items():
    class Plain:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return [i, i + 1]

    assert [b[0].tolist() for b in DataLoader(Plain(), batch_size=2)] == [[0, 1], [2]]
    assert [x.tolist() for x in DataLoader(mytorch.arange(3), batch_size=None)] == [0, 1, 2]


def test_samplers(torch):
    for build in (
        lambda lib: lib.utils.data.RandomSampler(range(10), replacement=True, num_samples=40),
        lambda lib: lib.utils.data.RandomSampler(range(10), num_samples=25),
        lambda lib: lib.utils.data.SubsetRandomSampler([3, 1, 4, 1, 5]),
    ):
        mytorch.manual_seed(2)
        torch.manual_seed(2)
        assert list(build(mytorch)) == list(build(torch))
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    drawn = list(WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert 0 not in drawn
    assert abs(drawn.count(2) / 4000 - 0.75) < 0.05
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler(range(3), num_samples=0)


@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler(drop_last, torch):
    for shuffle in (False, True):
        for rank in range(3):
            mine = DistributedSampler(range(10), 3, rank, shuffle=shuffle, seed=4, drop_last=drop_last)
            theirs = torch.utils.data.DistributedSampler(
                range(10), 3, rank, shuffle=shuffle, seed=4, drop_last=drop_last
            )
            for epoch in range(2):
                mine.set_epoch(epoch)
                theirs.set_epoch(epoch)
                assert list(mine) == list(theirs)


def test_datasets(torch):
    x, y = mytorch.arange(6), mytorch.arange(6) * 2
    data = TensorDataset(x, y)
    assert [t.item() for t in data[2]] == [2, 4]
    joined = ConcatDataset([data, Subset(data, [5, 0])])
    assert len(joined) == 8
    assert joined[6][0].item() == 5
    assert joined[-1][0].item() == 0
    mytorch.manual_seed(1)
    torch.manual_seed(1)
    mine = random_split(range(10), [0.7, 0.3])
    theirs = torch.utils.data.random_split(range(10), [0.7, 0.3])
    assert [s.indices for s in mine] == [list(s.indices) for s in theirs]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        random_split(range(10), [3, 3])


def test_refusals():
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(Numbers(), sampler=range(3), shuffle=True)
    with pytest.raises(ValueError, match="non-negative"):
        DataLoader(Numbers(), num_workers=-1)
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), shuffle=True)


class _Doubled(TensorDataset):
    def __getitem__(self, i):
        return tuple(t * 2 for t in super().__getitem__(i))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_taken_by_one_look_up_are_the_stacked_items(workers):
    tensors = mytorch.randn(23, 5, 3)[:, ::2], mytorch.arange(23), mytorch.randn(23, requires_grad=not workers)
    data = TensorDataset(*tensors)
    for kind in (
        data,
        _Doubled(*tensors),
        Subset(data, mytorch.arange(20, 3, -2)),
        Subset(Subset(data, range(4, 20)), [3, -1, 0, 9]),
    ):
        got = list(DataLoader(kind, batch_size=6, num_workers=workers))
        wanted = list(DataLoader(kind, batch_size=6, collate_fn=lambda items: default_collate(items)))
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert type(a) is type(b) is list
            for x, y in zip(a, b, strict=True):
                assert x.dtype == y.dtype
                assert x.requires_grad == y.requires_grad or workers
                np.testing.assert_array_equal(x.detach().numpy(), y.detach().numpy())
    with pytest.raises(IndexError):
        next(iter(DataLoader(data, sampler=[23], num_workers=0)))
