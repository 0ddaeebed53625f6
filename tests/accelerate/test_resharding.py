"""An epoch of a prepared loader that resumes with another number of processes or another batch size."""

import pytest

import mytorch
from mytorch.accelerate.loader import AcceleratedLoader
from mytorch.utils.data import DataLoader, Dataset, IterableDataset, Sampler


class Process:
    """One of several processes that draw from equal generators."""

    def __init__(self, rank, num_processes):
        self.rank, self.num_processes = rank, num_processes

    def broadcast_object(self, obj):
        return obj


class Numbers(Dataset):
    def __len__(self):
        return 53

    def __getitem__(self, i):
        return i


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(53))


class Shuffled(Sampler):
    """A sampler with a separate generator."""

    def __init__(self):
        self.generator = mytorch.Generator().manual_seed(7)

    def __len__(self):
        return 53

    def __iter__(self):
        return iter(mytorch.randperm(53, generator=self.generator).tolist())


KINDS = {
    "shuffled": lambda size: DataLoader(Numbers(), size, shuffle=True),
    "a generator of its own": lambda size: DataLoader(Numbers(), size, sampler=Shuffled()),
    "stream": lambda size: DataLoader(Stream(), size),
    "one by one": lambda size: DataLoader(Numbers(), None, sampler=Shuffled()),
}


def loaders(kind, n, size, split=False):
    return [AcceleratedLoader(KINDS[kind](size), "cpu", Process(rank, n), split=split) for rank in range(n)]


def take(loader, count=None):
    """The samples of `count` batches (or all that are left), and the loader's state after them."""
    samples = []
    for i, batch in enumerate(loader, 1):
        samples += batch.reshape(-1).tolist() if isinstance(batch, mytorch.Tensor) else [batch]
        if i == count:
            break
    return samples, loader.state_dict()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("before", "after"), [((2, 4), (1, 4)), ((2, 3), (3, 5)), ((1, 4), (2, 3)), ((1, 5), (1, 4)), ((2, 3), (1, 4))]
)
def test_an_epoch_goes_on_with_each_sample_once(kind, before, after):
    mytorch.manual_seed(1)
    state = mytorch.get_rng_state()
    seen, position = [], None
    for loader in loaders(kind, *before):
        mytorch.set_rng_state(state)
        samples, saved = take(loader, 3)
        seen += samples
        position = position or saved
    rest = []
    mytorch.manual_seed(99)
    for loader in loaders(kind, *after):
        loader.load_state_dict(position)
        mytorch.manual_seed(99)
        rest += (samples := take(loader)[0])
    assert set(seen) | set(rest) == set(range(53))
    turn = after[0] * (1 if kind == "one by one" else after[1])
    filled_up = -(53 - len(seen)) % turn if after[0] > 1 else 0  # the last batches of several processes are full
    assert len(seen) + len(rest) == 53 + filled_up, "each comes once"


def test_it_is_interrupted_again_and_the_next_epoch_is_whole():
    mytorch.manual_seed(1)
    state = mytorch.get_rng_state()
    seen = []
    for loader in loaders("shuffled", 2, 4):
        mytorch.set_rng_state(state)
        samples, position = take(loader, 2)
        seen += samples
    assert len(seen) == 16
    (one,) = loaders("shuffled", 1, 5)
    one.load_state_dict(position)
    samples, position = take(one, 3)  # from the 17th sample on
    seen += samples
    (again,) = loaders("shuffled", 1, 4)
    again.load_state_dict(position)
    samples, position = take(again)
    assert sorted(seen + samples) == list(range(53))
    assert len(again) == 14
    assert sorted(take(again)[0]) == list(range(53))


def test_split_batches_share_each_batch_among_processes():
    mytorch.manual_seed(1)
    state = mytorch.get_rng_state()
    parts = []
    for loader in loaders("shuffled", 2, 8, split=True):
        mytorch.set_rng_state(state)
        assert len(loader) == 7
        parts.append([batch.tolist() for batch in loader])
        assert loader.remainder == 5
    mytorch.set_rng_state(state)
    whole = [batch.tolist() for batch in KINDS["shuffled"](8)]
    assert [a + b for a, b in zip(*parts, strict=True)][:6] == whole[:6]
    assert (parts[0][6] + parts[1][6])[:5] == whole[6]
    with pytest.raises(ValueError, match="batch_size divisible by 2 processes, got 7"):
        loaders("shuffled", 2, 7, split=True)
