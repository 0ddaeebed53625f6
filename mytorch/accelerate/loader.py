"""Data loaders that yield this process's part of the data, on its device."""

from itertools import chain, islice
from typing import Any

from ..arrays.tensor import Tensor, is_tensor
from ..utils.data import DataLoader, DistributedSampler, IterableDataset
from ..utils.data._utils import resume
from ..utils.data._utils.collate import map_container


def map_tensors(function, x):
    """Apply a function to the tensors in nested containers; other values are unchanged."""
    if is_tensor(x):
        return function(x)
    if isinstance(x, (dict, list, tuple)):
        return map_container(lambda item: map_tensors(function, item), x, as_tuple=type(x))
    return x


def send_to(x: Any, device) -> Any:
    """Moves tensors in nested containers to a device; other values are unchanged.

    Args:
        x: a tensor, or nested lists, tuples and dicts.
    """
    return map_tensors(lambda t: t.to(device) if isinstance(t, Tensor) and t.device is not device else t, x)


class ShardedSampler:
    """Yields every num_processes-th batch of a sampler, starting at this rank (indices, for a loader without batches).

    All processes use the same order, drawn from rank 0's generators. Every process gets the same number of full batches.
    For this, the sampler repeats items from the start, or drops the rest with drop_last. With
    `split`, each process gets a part of every batch. The sampler skips the first `offset` samples (batches, for a
    sampler whose batch sizes vary).
    """

    def __init__(self, loader, state, split=False, offset=0):
        batched = loader.batch_sampler is not None
        self.sampler = sampler = loader.batch_sampler if batched else loader.sampler
        self.state = state
        self.find_generators = lambda: resume.sources_of(loader)[0]
        self.batch_size = getattr(sampler, "batch_size", None) if batched else 1
        self.regroups = batched and self.batch_size is not None and (split or offset > 0)
        if split and self.batch_size is not None:
            self.batch_size = _part(self.batch_size, state)
        self.batched = batched
        self.drop_last = getattr(sampler, "drop_last", False)
        self.offset = offset

    def __len__(self):
        n, turn = len(self.sampler), self.state.num_processes
        if self.regroups:
            inner, size = getattr(self.sampler, "sampler", None), self.sampler.batch_size
            n = len(inner) if inner is not None and not self.drop_last else n * size
            turn *= self.batch_size
        n = max(n - self.offset, 0)
        return n // turn if self.drop_last else -(-n // turn)

    def _items(self):
        """Return the batches (or indices) of the common order, after the offset."""
        order = self._in_common_order()
        if not self.regroups:
            return islice(order, self.offset, None)
        indices = islice(chain.from_iterable(order), self.offset, None)
        return iter(lambda: list(islice(indices, self.batch_size)), [])

    def _in_common_order(self):
        """Draw the sampler's items with rank 0's random states; restore this process's generators afterward."""
        generators = self.find_generators()
        mine = resume.states_of(generators)
        common = self.state.broadcast_object(mine)
        for path, generator in generators.items():
            resume.set_state(generator, common[path])
        items = iter(self.sampler)
        first = next(items, None)  # samplers draw their order here
        for path, generator in resume.GLOBAL_GENERATORS.items():
            if mine[path] != common[path]:
                resume.set_state(generator, mine[path])
        if first is not None:
            yield first
            yield from items

    def __iter__(self):
        n, rank, size = self.state.num_processes, self.state.rank, self.batch_size
        head, turn = [], []
        for item in self._items():
            batch = list(item) if self.batched else [item]
            if len(head) < (n if size is None else n * size):
                head.extend([batch] if size is None else batch)
            turn.append(batch)
            if len(turn) == n and (size is None or len(batch) == size):
                yield self._out(turn[rank])
                turn = []
        if not turn or self.drop_last:
            return
        if n == 1:  # a short last batch is allowed
            yield self._out(turn[0])
            return
        if size is None:  # a user's sampler with varying sizes
            turn += [head[i % len(head)] for i in range(n - len(turn))]
            yield self._out(turn[rank])
            return
        last = [i for batch in turn for i in batch]
        last += [head[i % len(head)] for i in range(n * size - len(last))]
        yield self._out(last[rank * size : (rank + 1) * size])

    def _out(self, batch):
        return batch if self.batched else batch[0]


class ShardedStream(IterableDataset):
    """A stream that yields every num_processes-th chunk of `batch_size` items.

    The last chunks are filled with the stream's first items, or dropped with drop_last. The first `offset` items are
    skipped.
    """

    def __init__(self, dataset, state, batch_size, drop_last, offset=0):
        self.dataset, self.state = dataset, state
        self.size, self.drop_last, self.offset = batch_size or 1, drop_last, offset

    def __len__(self):
        whole = self.size * self.state.num_processes
        n = max(len(self.dataset) - self.offset, 0)
        return (n // whole if self.drop_last else -(-n // whole)) * self.size

    def set_epoch(self, epoch: int) -> None:
        """Passes the number of the epoch to the dataset, if it has `set_epoch`.

        Args:
            epoch: number of the epoch.
        """
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __iter__(self):
        n, rank = self.state.num_processes, self.state.rank
        head, turn = [], []
        for item in islice(self.dataset, self.offset, None):
            if len(head) < n * self.size:
                head.append(item)
            turn.append(item)
            if len(turn) == n * self.size:
                yield from turn[rank * self.size : (rank + 1) * self.size]
                turn = []
        if turn and not self.drop_last:
            if n > 1:
                turn += [head[i % len(head)] for i in range(n * self.size - len(turn))]
            yield from turn[rank * self.size : (rank + 1) * self.size]


_KEPT = (
    "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator prefetch_factor "
    "persistent_workers"
)


def _part(batch_size, state):
    """Return this process's share of a batch size.

    Raises:
        ValueError: if the batch size is not divisible by the number of processes.
    """
    size, rest = divmod(batch_size, state.num_processes)
    if rest:
        raise ValueError(
            f"Accelerator: split_batches=True expected a batch_size divisible by {state.num_processes} processes, got {batch_size}."
        )
    return size


def share(loader: DataLoader, state, split: bool = False, offset: int = 0) -> DataLoader:
    """Return a DataLoader of this process's part of a loader's batches, or the loader itself if it is a part already.

    Args:
        loader: the DataLoader.
        state: the ProcessState.
        split: use a part of each batch instead of every num_processes-th batch.
        offset: number of samples to skip at the start.
    """
    if isinstance(loader.sampler, DistributedSampler) or (state.num_processes == 1 and not offset):
        return loader
    options = {name: getattr(loader, name) for name in _KEPT.split()}
    if isinstance(loader.dataset, IterableDataset):
        if loader.num_workers > 0:
            raise ValueError("Accelerator: expected num_workers=0 for an IterableDataset with several processes.")
        size = _part(loader.batch_size, state) if split and loader.batch_size is not None else loader.batch_size
        stream = ShardedStream(loader.dataset, state, size, loader.drop_last, offset)
        return DataLoader(stream, batch_size=size, drop_last=loader.drop_last, **options)
    sampler = ShardedSampler(loader, state, split, offset)
    if loader.batch_sampler is None:
        return DataLoader(loader.dataset, batch_size=None, sampler=sampler, **options)
    return DataLoader(loader.dataset, batch_sampler=sampler, **options)


class AcceleratedLoader:
    """Iterates over this process's part of a DataLoader's batches, on a device. Other attributes come from the loader.

    With n processes, process r gets the batches r, r + n, … of the common order, so a step uses n times batch_size items.
    A loader with a DistributedSampler is used as it is.

    Args:
        loader: the DataLoader.
        device: device of the batches.
        state: the ProcessState; None for a single process.
        active: list that contains the loader during an iteration.
        split: each process gets a part of every batch.

    Attributes:
        end_of_dataloader: True if the last returned batch is the last of the epoch.
        remainder: number of items without padding in the last batches of all processes; 0 if there is no padding or if
            the number is unknown.
    """

    def __init__(self, loader, device, state=None, active=None, split=False):
        self.whole = loader
        self.loader = self.usual = loader if state is None else share(loader, state, split)
        self.state, self.split = state, split
        self.offset = 0  # number of samples to skip at the start of a resumed epoch
        self.device = device
        self.active = [] if active is None else active
        self.end_of_dataloader = False
        self.remainder = self._remainder()

    def _turn(self):
        """Return the number of samples in one step of all processes, or None if unknown."""
        n = 1 if self.state is None else self.state.num_processes
        if n > 1 and self.usual is self.whole:  # over a DistributedSampler
            return None
        sampler = self.whole.batch_sampler
        size = self.whole.batch_size if sampler is None else getattr(sampler, "batch_size", None)
        return n * (size or 1) if not (self.split and size) else size

    def _remainder(self):
        loader, turn = self.whole, self._turn()
        if self.loader is loader or loader.drop_last or turn is None:
            return 0
        if isinstance(loader.dataset, IterableDataset):
            items = loader.dataset if hasattr(type(loader.dataset), "__len__") else None
        elif loader.batch_sampler is None:
            items = loader.sampler
        elif getattr(loader.batch_sampler, "drop_last", False) or not hasattr(loader.batch_sampler, "batch_size"):
            items = None
        else:
            items = getattr(loader.batch_sampler, "sampler", None)
        return 0 if items is None else (len(items) - self.offset) % turn

    # -- resuming ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the loader: DataLoader's state and the count of samples."""
        state = self.loader.state_dict()
        return {**state, "samples": self._turn(), "offset": self.offset if state["begun"] else 0}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a saved position. The number of processes and the batch size may differ.

        The position is counted in samples, so each sample occurs once in the epoch.

        Args:
            state_dict: result of `state_dict`.
        """
        state = dict(state_dict)
        turn, self.offset = state.pop("samples", None), state.pop("offset", 0)
        resume.Progress(self.usual).check(state)
        now = self._turn()
        if turn != now and turn is not None and now is not None:
            done = state["drawn"] - len(state["pending"]) or sum(state["handed"])
            done, self.offset = divmod(self.offset + done * turn, now)
            state.update(drawn=done, pending=[], handed=[done] + [0] * (len(state["handed"]) - 1))
        self.loader = share(self.whole, self.state, self.split, self.offset) if self.offset else self.usual
        self.remainder = self._remainder()
        sources = dict.fromkeys(path for found in resume.sources_of(self.loader) for path in found)
        state["start"] = {
            kind: {_known(path, sources): value for path, value in found.items()}
            for kind, found in state["start"].items()
        }
        self.loader.load_state_dict(state)
        self._resumes = True

    _resumes = False  # True if the next iteration continues an epoch

    def _length(self):
        """Return the number of batches in an epoch, or None for a stream of unknown length."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    def __iter__(self):
        if not self._resumes:
            self._restart()
        self._resumes = False
        self.active.append(self)
        self.end_of_dataloader = False
        length = self._length()
        try:
            for batch in self.loader:
                self.end_of_dataloader = sum(self.loader._progress.handed) == length
                yield send_to(batch, self.device)
            self._restart()
        finally:
            self.active.remove(self)

    def _restart(self):
        if self.offset:
            self.loader, self.offset = self.usual, 0
            self.remainder = self._remainder()

    def __len__(self):
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Passes the number of the epoch to the samplers or the stream.

        Args:
            epoch: number of the epoch.
        """
        inner = getattr(self.whole.batch_sampler, "sampler", None)
        for x in (self.loader.sampler, self.loader.dataset, self.whole.sampler, inner):
            getattr(x, "set_epoch", lambda epoch: None)(epoch)

    def __getattr__(self, name):
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def _known(path, sources):
    """Translate a generator's path between loaders with and without a wrapper around their sampler or stream."""
    root = path.partition(".")[0]
    return next((p for p in (path, f"{root}.{path}", path.removeprefix(f"{root}.")) if p in sources), path)


class SkippingLoader:
    """Iterates over a loader without its first `count` batches, to continue an epoch.

    Args:
        count: number of batches to skip.
    """

    def __init__(self, loader, count):
        self.loader = loader
        self.count = count

    def __iter__(self):
        for i, batch in enumerate(self.loader):
            if i >= self.count:
                yield batch

    def __len__(self):
        return max(len(self.loader) - self.count, 0)
