"""A DataLoader whose batches arrive on the process's device."""

from copy import copy
from typing import Any

from .._array import Array
from ..tensor import Tensor
from ..utils.data import DataLoader, DistributedSampler, IterableDataset
from ..utils.data._utils import resume


def map_tensors(function, x):
    """The function's results for the tensors of nested containers; all else as it is."""
    if isinstance(x, (Tensor, Array)):
        return function(x)
    if isinstance(x, dict):
        out = copy(x)  # whatever kind of dict it is
        out.update({key: map_tensors(function, value) for key, value in x.items()})
        return out
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*[map_tensors(function, item) for item in x])
    if isinstance(x, (list, tuple)):
        return type(x)(map_tensors(function, item) for item in x)
    return x


def send_to(x: Any, device) -> Any:
    """Tensors in nested containers, moved to a device; all else as it is."""
    return map_tensors(lambda t: t.to(device) if isinstance(t, Tensor) and t.device is not device else t, x)


class ShardedSampler:
    """Every num_processes-th batch (or index, for a loader without batches) of a sampler, beginning at this rank's.

    All processes go through the same order: that of rank 0's generators. At the end, what is missing for every
    process to have the same number of full batches is taken from the beginning again; with drop_last it is
    left out.
    """

    def __init__(self, loader, state):
        batched = loader.batch_sampler is not None
        sampler = loader.batch_sampler if batched else loader.sampler
        self.sampler = sampler
        self.state = state
        self.find_generators = lambda: resume._sources(loader)[0]
        self.batch_size = getattr(sampler, "batch_size", None) if batched else 1
        self.batched = batched
        self.drop_last = getattr(sampler, "drop_last", False)

    def __len__(self):
        n = len(self.sampler)
        return n // self.state.num_processes if self.drop_last else -(-n // self.state.num_processes)

    def _in_common_order(self):
        """The sampler's items, drawn from rank 0's random states; one's own global generators are left alone."""
        generators = self.find_generators()
        mine = resume._states(generators)
        common = self.state.broadcast_object(mine)
        for path, generator in generators.items():
            resume._set_state(generator, common[path])
        items = iter(self.sampler)
        first = next(items, None)  # the samplers draw their order here
        for path, generator in resume._GLOBAL.items():
            if mine[path] != common[path]:
                resume._set_state(generator, mine[path])
        if first is not None:
            yield first
            yield from items

    def __iter__(self):
        n, rank, size = self.state.num_processes, self.state.rank, self.batch_size
        head, turn = [], []
        for item in self._in_common_order():
            batch = list(item) if self.batched else [item]
            if len(head) < (n if size is None else n * size):
                head.extend([batch] if size is None else batch)
            turn.append(batch)
            if len(turn) == n and (size is None or len(batch) == size):
                yield self._out(turn[rank])
                turn = []
        if not turn or self.drop_last:
            return
        if size is None:  # batches of a user's own sizes
            turn += [head[i % len(head)] for i in range(n - len(turn))]
            yield self._out(turn[rank])
            return
        last = [i for batch in turn for i in batch]
        last += [head[i % len(head)] for i in range(n * size - len(last))]
        yield self._out(last[rank * size : (rank + 1) * size])

    def _out(self, batch):
        return batch if self.batched else batch[0]


class ShardedStream(IterableDataset):
    """A stream of which each process takes every num_processes-th chunk of `batch_size` items.

    At the end the last chunks are filled up with the stream's first items; with drop_last they are left out.
    """

    def __init__(self, dataset, state, batch_size, drop_last):
        self.dataset = dataset
        self.state = state
        self.size = batch_size or 1
        self.drop_last = drop_last

    def __len__(self):
        whole = self.size * self.state.num_processes
        n = len(self.dataset)
        return (n // whole if self.drop_last else -(-n // whole)) * self.size

    def set_epoch(self, epoch: int) -> None:
        """Tell the stream which epoch it is, if it wants to know."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __iter__(self):
        n, rank = self.state.num_processes, self.state.rank
        head, turn = [], []
        for item in self.dataset:
            if len(head) < n * self.size:
                head.append(item)
            turn.append(item)
            if len(turn) == n * self.size:
                yield from turn[rank * self.size : (rank + 1) * self.size]
                turn = []
        if turn and not self.drop_last:
            turn += [head[i % len(head)] for i in range(n * self.size - len(turn))]
            yield from turn[rank * self.size : (rank + 1) * self.size]


_KEPT = (
    "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator prefetch_factor "
    "persistent_workers"
)


def share(loader: DataLoader, state) -> DataLoader:
    """A DataLoader of this process's part of a loader's batches; the loader itself if it is a part already."""
    if state.num_processes == 1 or isinstance(loader.sampler, DistributedSampler):
        return loader
    options = {name: getattr(loader, name) for name in _KEPT.split()}
    if isinstance(loader.dataset, IterableDataset):
        if loader.num_workers > 0:
            raise ValueError("Accelerator: a stream (IterableDataset) is shared by processes with num_workers=0 only.")
        stream = ShardedStream(loader.dataset, state, loader.batch_size, loader.drop_last)
        return DataLoader(stream, batch_size=loader.batch_size, drop_last=loader.drop_last, **options)
    if loader.batch_sampler is None:
        return DataLoader(loader.dataset, batch_size=None, sampler=ShardedSampler(loader, state), **options)
    return DataLoader(loader.dataset, batch_sampler=ShardedSampler(loader, state), **options)


class AcceleratedLoader:
    """Iterates over this process's part of a DataLoader's batches, moved to a device; all else is the loader's own.

    With several processes, process r gets the batches r, r + n, … of the common order, so that a step uses n
    times batch_size items. A loader over a DistributedSampler is taken as it is.

    Args:
        loader: a DataLoader.
        device: where batches go.
        state: the ProcessState; None for one process.
        active: a list that the loader is in while it is being iterated over.

    Attributes:
        end_of_dataloader: whether the batch handed out last is the epoch's last.
        remainder: items of all processes' last batches together that are no padding; 0 if all are none, or if
            it is not known.
    """

    def __init__(self, loader, device, state=None, active=None):
        self.whole = loader
        self.loader = loader if state is None else share(loader, state)
        self.device = device
        self.active = [] if active is None else active
        self.end_of_dataloader = False
        self.remainder = 0 if state is None else self._remainder(state.num_processes)

    def _remainder(self, n):
        loader = self.whole
        if n == 1 or self.loader is loader or loader.drop_last:
            return 0
        size = 1 if loader.batch_size is None else loader.batch_size
        if isinstance(loader.dataset, IterableDataset):
            return len(loader.dataset) % (size * n) if hasattr(type(loader.dataset), "__len__") else 0
        if loader.batch_sampler is None:
            return len(loader.sampler) % n
        size, inner = getattr(loader.batch_sampler, "batch_size", None), getattr(loader.batch_sampler, "sampler", None)
        if size is None or inner is None or getattr(loader.batch_sampler, "drop_last", False):
            return 0
        return len(inner) % (size * n)

    def _length(self):
        """Batches in an epoch, or None for a stream that does not know."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    def __iter__(self):
        self.active.append(self)
        self.end_of_dataloader = False
        length = self._length()
        try:
            for batch in self.loader:
                self.end_of_dataloader = sum(self.loader._progress.handed) == length
                yield send_to(batch, self.device)
        finally:
            self.active.remove(self)

    def __len__(self):
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers, or the stream, which epoch it is."""
        inner = getattr(self.whole.batch_sampler, "sampler", None)
        for x in (self.loader.sampler, self.loader.dataset, self.whole.sampler, inner):
            if hasattr(x, "set_epoch"):
                x.set_epoch(epoch)

    def __getattr__(self, name):
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


class SkippingLoader:
    """A loader without its first `count` batches, for one epoch that goes on in the middle."""

    def __init__(self, loader, count):
        self.loader = loader
        self.count = count

    def __iter__(self):
        for i, batch in enumerate(self.loader):
            if i >= self.count:
                yield batch

    def __len__(self):
        return max(len(self.loader) - self.count, 0)
