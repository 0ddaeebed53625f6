"""DataLoader: batches of a dataset, made here or in worker processes, in an order that no worker changes.

Batch i is made by worker i mod n and handed out as the i-th, whichever worker is faster. Each worker has
a queue of tasks and a pipe of its own for results, so one that dies is noticed at its pipe.
"""

import multiprocessing

from ...ops.random import default_generator
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed
from .worker import END, Fetcher, work


class _Endless:
    """The sampler of a stream: as many Nones as anyone wants."""

    def __iter__(self):
        while True:
            yield None


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: anything with `__getitem__` and `__len__`, or an IterableDataset.
        batch_size: items in a batch; None hands single items through `collate_fn`.
        shuffle: a new random order for each epoch.
        sampler, batch_sampler: an order of one's own, of indices or of lists of them.
        num_workers: worker processes; 0 makes batches in this one.
        collate_fn: makes a batch of a list of items; `default_collate` stacks them.
        pin_memory: accepted; see `Tensor.pin_memory`.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a worker; 0 waits for ever.
        worker_init_fn: called with its number in each worker.
        multiprocessing_context: a start method ("fork", "spawn", "forkserver") or context.
        generator: where the order and the workers' seeds are drawn from.
        prefetch_factor: batches under way for each worker; 2 by default.
        persistent_workers: keep the workers between epochs.
        in_order: accepted; batches always come in order.

    A loader can be resumed: `state_dict()` says where it is in the epoch, and after `load_state_dict` the
    next iteration continues there, in the same order, without loading what was already handed out.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if multiprocessing_context is not None and num_workers == 0:
            raise ValueError(f"multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers={num_workers}")
        stream = isinstance(dataset, IterableDataset)
        if stream and shuffle:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}")
        if stream and (sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified sampler and batch_sampler option.")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        if sampler is None:
            if stream:
                sampler = _Endless()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self._kept = None  # the iterator whose workers persist
        self._position = {"started": None, "batches": 0}
        self._resume = None

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    def __len__(self):
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self.batch_sampler if self._auto_collation else self.sampler)

    def __iter__(self):
        if not self.num_workers:
            return _Iterator(self)
        if not self.persistent_workers:
            return _WorkerIterator(self)
        if self._kept is None:
            self._kept = _WorkerIterator(self)
        else:
            self._kept.begin()
        return self._kept

    # -- resuming ----------------------------------------------------------------------------------------------

    def state_dict(self):
        """The random state at the start of the epoch and the batches handed out since; plain data."""
        return dict(self._position)

    def load_state_dict(self, state_dict):
        """Let the next iteration continue where the state was taken."""
        self._resume = dict(state_dict)
        self._position = dict(state_dict)

    def _generators(self):
        """The generators that an epoch's order may be drawn from."""
        inner = getattr(self.sampler, "generator", None)
        return [g for g in (default_generator, self.generator, inner) if g is not None]

    def _orders(self):
        """Begin an epoch: (iterator over indices, base seed, batches already handed out)."""
        resume, self._resume = self._resume, None
        generators = self._generators()
        now = [g.get_state() for g in generators]
        if resume and resume["started"] is not None:
            for g, text in zip(generators, resume["started"], strict=True):
                g.set_state(_from_text(text))
        started = [_to_text(g.get_state()) for g in generators]
        seed = draw_seed(self.generator)
        order = iter(self.batch_sampler if self._auto_collation else self.sampler)
        skip = resume["batches"] if resume else 0
        if skip:
            for _ in range(skip):
                next(order, None)
            for g, state in zip(generators, now, strict=True):
                g.set_state(state)
        self._position = {"started": started, "batches": skip}
        return order, seed, skip

    def _fetcher_arguments(self):
        return self.dataset, self._auto_collation, self.collate_fn, self.drop_last


def _to_text(state):
    return state.numpy().tobytes().hex()


def _from_text(text):
    import numpy as np

    return np.frombuffer(bytes.fromhex(text), np.uint8)


class _Iterator:
    """One epoch, made in this process."""

    def __init__(self, loader):
        self.loader = loader
        self.order, _, skip = loader._orders()
        self.fetcher = Fetcher(*loader._fetcher_arguments())
        if self.fetcher.stream is not None:  # a stream can only be read past
            for _ in range(skip):
                self.fetcher.fetch(next(self.order, None))

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.fetcher.fetch(next(self.order))
        self.loader._position["batches"] += 1
        return batch

    def __len__(self):
        return len(self.loader)


class _WorkerIterator:
    """One epoch (or, with persistent workers, one after another), made in worker processes."""

    def __init__(self, loader):
        self.loader = loader
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        self.order, seed, _ = loader._orders()
        self.workers = []
        for i in range(loader.num_workers):
            tasks = context.Queue()
            tasks.cancel_join_thread()
            receive, send = context.Pipe(duplex=False)
            process = context.Process(
                target=work,
                args=(loader._fetcher_arguments(), tasks, send, i, loader.num_workers, seed, loader.worker_init_fn),
                daemon=True,
            )
            process.start()
            send.close()  # so that the worker's death is an end of file here
            self.workers.append((process, tasks, receive))
        self._start()

    def begin(self):
        """A new epoch on the same workers; what is left of the last one is read and dropped."""
        while self.pending:
            self._receive(self.pending.pop(0))
        self.order, seed, _ = self.loader._orders()
        for _, tasks, _ in self.workers:
            tasks.put(("epoch", seed))
        self._start()

    def _start(self):
        self.pending = []  # the worker of each batch under way, in order
        self.ended = set()
        self.turn = 0
        for _ in range(self.loader.prefetch_factor * len(self.workers)):
            self._send_next()

    def _send_next(self):
        """Give the next indices to the worker whose turn it is."""
        if len(self.ended) == len(self.workers):
            return
        try:
            index = next(self.order)
        except StopIteration:
            return
        while self.turn in self.ended:
            self.turn = (self.turn + 1) % len(self.workers)
        self.workers[self.turn][1].put(("fetch", index))
        self.pending.append(self.turn)
        self.turn = (self.turn + 1) % len(self.workers)

    def _receive(self, i):
        """The reply of worker i.

        Raises:
            RuntimeError: it took longer than the loader's timeout, or the worker is gone.
        """
        process, _, receive = self.workers[i]
        timeout = self.loader.timeout
        try:
            if timeout and not receive.poll(timeout):
                self.shut_down()
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            return receive.recv()
        except EOFError:
            process.join(1)
            pid, code = process.pid, process.exitcode
            self.shut_down()
            raise RuntimeError(
                f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details are "
                "lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
            ) from None

    def __iter__(self):
        return self

    def __next__(self):
        while self.pending:
            i = self.pending.pop(0)
            kind, payload = self._receive(i)
            if kind == END:
                self.ended.add(i)
                self._send_next()
                continue
            self._send_next()
            if kind == "error":
                if not self.loader.persistent_workers:
                    self.shut_down()
                payload.reraise()
            self.loader._position["batches"] += 1
            return payload
        if not self.loader.persistent_workers:
            self.shut_down()
        raise StopIteration

    def __len__(self):
        return len(self.loader)

    def shut_down(self):
        """End the workers; they are waited for, and killed if they don't go."""
        workers, self.workers, self.pending = self.workers, [], []
        for process, tasks, receive in workers:
            receive.close()
            if process.is_alive():
                tasks.put(None)
        for process, tasks, _ in workers:
            process.join(2)
            if process.is_alive():
                process.terminate()
                process.join()
            tasks.close()
            process.close()
        if self.loader._kept is self:
            self.loader._kept = None

    def __del__(self):
        if getattr(self, "workers", None):
            self.shut_down()
