"""A loader that resumes from a saved state yields the same batches as an uninterrupted loader."""

import json
import random

import numpy as np
import pytest

import mytorch
from mytorch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    get_worker_info,
)
from tests.loops import loop

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Squares(Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, i):
        return i


class Stream(IterableDataset):
    """Uneven parts for the workers, partly random."""

    def __iter__(self):
        worker = get_worker_info().id if get_worker_info() else 0
        for i in range(17 + 4 * worker):
            yield 1000 * worker + i, float(mytorch.rand(1)) if get_worker_info() else 0.0


class OwnBatches(Sampler):
    """Draws batches one at a time from a separate generator."""

    def __init__(self, kind):
        self.source = {"mytorch": mytorch.Generator, "numpy": np.random.default_rng, "python": random.Random}[kind]()
        self.kind = kind

    def __len__(self):
        return 6

    def draw(self):
        if self.kind == "mytorch":
            return mytorch.randint(0, 23, (4,), generator=self.source).tolist()
        if self.kind == "numpy":
            return self.source.integers(0, 23, 4).tolist()
        return [self.source.randrange(23) for _ in range(4)]

    def __iter__(self):
        for _ in range(6):
            yield self.draw()


class FromGlobals(Sampler):
    def __len__(self):
        return 23

    def __iter__(self):
        order = np.random.permutation(23).tolist()
        random.shuffle(order)
        return iter(order)


class CountsEpochs(Sampler):
    epoch = 0

    def __len__(self):
        return 23

    def __iter__(self):
        self.epoch += 1
        yield from mytorch.randperm(23, generator=mytorch.Generator().manual_seed(self.epoch)).tolist()


def replacing(generator=None):
    return RandomSampler(range(23), replacement=True, num_samples=70, generator=generator)


ORDERS = {
    "shuffle": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": mytorch.Generator().manual_seed(3)},
    "single items": lambda: {"batch_size": None, "shuffle": True},
    "replacement": lambda: {"batch_size": 4, "sampler": replacing(mytorch.Generator().manual_seed(5))},
    "subset": lambda: {"batch_size": 4, "sampler": SubsetRandomSampler(range(3, 20))},
    "own mytorch": lambda: {"batch_sampler": OwnBatches("mytorch")},
    "own numpy": lambda: {"batch_sampler": OwnBatches("numpy")},
    "own python": lambda: {"batch_sampler": OwnBatches("python")},
    "nested": lambda: {"batch_sampler": BatchSampler(replacing(mytorch.Generator()), 3, True)},
    "globals": lambda: {"batch_size": 4, "sampler": FromGlobals()},
    "epochs": lambda: {"batch_size": 4, "sampler": CountsEpochs()},
    "distributed": lambda: {"batch_size": 4, "sampler": DistributedSampler(range(23), 2, 1)},
}


def values(batches):
    return [b.tolist() if hasattr(b, "tolist") else b for b in batches]


def disturb():
    """Changes the global random states, as a new process would."""
    mytorch.manual_seed(99)
    np.random.seed(98)
    random.seed(97)


@loop
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_rest_of_an_epoch_and_the_next(order, count, workers, persistent):
    def make():
        return DataLoader(Squares(), num_workers=workers, persistent_workers=persistent, **ORDERS[order]())

    loader = make()
    list(loader)
    iterator = iter(loader)
    for _ in range(count):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = values(iterator)
    end = loader.state_dict()
    following = values(loader)
    disturb()
    fresh = make()
    fresh.load_state_dict(state)
    assert values(fresh) == rest
    disturb()
    fresh = make()
    fresh.load_state_dict(end)
    assert values(fresh) == following


def test_the_global_generators_are_the_programs():
    """Resuming draws nothing from them that the checkpoint's own state does not have."""
    loader = DataLoader(Squares(), 4, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    state, random_state = loader.state_dict(), mytorch.get_rng_state()
    rest, then = values(iterator), mytorch.rand(3).tolist()
    second, after = values(loader), mytorch.rand(3).tolist()
    disturb()
    fresh = DataLoader(Squares(), 4, shuffle=True)
    fresh.load_state_dict(state)
    mytorch.set_rng_state(random_state)
    assert values(fresh) == rest
    assert mytorch.rand(3).tolist() == then
    assert values(fresh) == second
    assert mytorch.rand(3).tolist() == after


def test_after_an_epoch_the_next_draws_as_if_uninterrupted():
    loader = DataLoader(Squares(), 4, shuffle=True)
    list(loader)
    state, random_state = loader.state_dict(), mytorch.get_rng_state()
    second, after = values(loader), mytorch.rand(3).tolist()
    assert len(second) == 6
    for restore in (True, False):
        disturb()
        if restore:
            mytorch.set_rng_state(random_state)
        fresh = DataLoader(Squares(), 4, shuffle=True)
        fresh.load_state_dict(state)
        assert values(fresh) == second
        if restore:
            assert mytorch.rand(3).tolist() == after


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("count", [1, 4, 7])
def test_streams(workers, batch_size, count):
    def make():
        return DataLoader(Stream(), batch_size, num_workers=workers)

    loader = make()
    iterator = iter(loader)
    for _ in range(count):
        next(iterator)
    state = loader.state_dict()
    rest = [values(b) for b in iterator]
    disturb()
    fresh = make()
    fresh.load_state_dict(state)
    resumed = iter(fresh)
    assert [values(b) for b in resumed] == rest
    disturb()
    fresh = make()
    fresh.load_state_dict(state)
    resumed = iter(fresh)
    next(resumed)
    again = make()
    again.load_state_dict(fresh.state_dict())
    assert [values(b) for b in again] == rest[1:]
    wrong = DataLoader(Stream(), batch_size, num_workers=workers + 2)
    with pytest.raises(ValueError, match="the same number of workers"):
        wrong.load_state_dict(state)


class Shuffled(IterableDataset):
    """A stream whose order comes from a separate generator, or from the global generators."""

    def __init__(self, own):
        self.source = random.Random(3) if own else random

    def __iter__(self):
        order = list(range(20))
        self.source.shuffle(order)
        for i in order:
            yield i, float(np.random.rand())


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_streams_in_random_order(own, count, batch_size):
    loader = DataLoader(Shuffled(own), batch_size)
    list(loader)
    iterator = iter(loader)
    for _ in range(count):
        next(iterator)
    state = loader.state_dict()
    rest = [values(b[:1]) for b in iterator]
    end = loader.state_dict()
    following = [values(b[:1]) for b in loader]
    for saved, expected in ((state, rest), (end, following)):
        disturb()
        fresh = DataLoader(Shuffled(own), batch_size)
        fresh.load_state_dict(saved)
        assert [values(b[:1]) for b in fresh] == expected


def test_resuming_twice_and_between_worker_counts():
    loader = DataLoader(Squares(), 4, shuffle=True, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    first = loader.state_dict()
    rest = values(iterator)
    for workers in (0, 1, 2):
        disturb()
        second = DataLoader(Squares(), 4, shuffle=True, num_workers=workers)
        second.load_state_dict(first)
        assert second.state_dict() == first
        iterator = iter(second)
        assert next(iterator).tolist() == rest[0]
        third = DataLoader(Squares(), 4, shuffle=True)
        third.load_state_dict(second.state_dict())
        assert values(third) == rest[1:]


def test_out_of_order_batches_are_not_given_twice():
    loader = DataLoader(Squares(), 2, num_workers=2, in_order=False, worker_init_fn=delay)
    iterator = iter(loader)
    given = [next(iterator).tolist() for _ in range(4)]
    state = loader.state_dict()
    fresh = DataLoader(Squares(), 2)
    fresh.load_state_dict(state)
    rest = values(fresh)
    assert sorted(sum(given + rest, [])) == list(range(23))


def delay(worker):
    import time

    if worker == 0:
        time.sleep(0.3)


def test_two_iterators_have_their_own_positions():
    loader = DataLoader(Squares(), 4)
    outer, inner = iter(loader), iter(loader)
    next(outer)
    next(inner)
    next(inner)
    assert loader.state_dict()["drawn"] == 2
    next(outer)
    next(outer)
    assert loader.state_dict()["drawn"] == 3
    state = outer.state_dict()
    assert len(list(inner)) == 4
    fresh = DataLoader(Squares(), 4)
    fresh.load_state_dict(state)
    assert values(fresh) == values(outer)


def test_a_batch_that_was_interrupted_is_made_again():
    class Interrupted(Squares):
        asked = 0

        def __getitem__(self, i):
            self.asked += 1
            if self.asked == 7:
                raise KeyboardInterrupt
            return i

    loader = DataLoader(Interrupted(), 4)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    fresh = DataLoader(Squares(), 4)
    fresh.load_state_dict(loader.state_dict())
    assert next(iter(fresh)).tolist() == [4, 5, 6, 7]


def test_states_that_do_not_fit():
    state = DataLoader(Squares(), shuffle=True).state_dict()
    with pytest.raises(ValueError, match="of a loader without a generator"):
        DataLoader(Squares(), shuffle=True, generator=mytorch.Generator()).load_state_dict(state)
    with pytest.raises(ValueError, match="expected a result"):
        DataLoader(Squares()).load_state_dict({"batches": 3})
    loader = DataLoader(Squares(), 2)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)
    fresh = DataLoader(range(5), 2)
    fresh.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="gives 3 only"):
        iter(fresh)
