"""DataLoader, which makes batches of a dataset in this process or in worker processes.

Tasks are numbered. In order, task i is sent to worker i mod n, among the workers whose stream has not ended. Its batch
is the i-th that the loader yields, independent of the speed of the workers. Each worker has a separate socket, so the loader notices
when a worker dies.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

from ...arrays import cuda_available
from ...arrays.errors import warn
from ...ops.random import Generator
from ._utils.collate import default_collate, default_convert
from ._utils.forking import safe_to_fork
from ._utils.pin_memory import pin_memory
from ._utils.resume import Progress
from ._utils.transport import Receiver
from ._utils.worker import (
    MP_STATUS_CHECK_INTERVAL,
    ExceptionWrapper,
    FetcherMaker,
    _parents_ends,
    _Stop,
    _worker_loop,
    get_worker_info,
)
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1


class _InfiniteConstantSampler(Sampler):
    """Yields None indefinitely: the sampler of a stream."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches.

    Args:
        dataset: object with `__getitem__` and `__len__`, or an IterableDataset.
        batch_size: number of items in a batch (default: 1). With None, `collate_fn` receives single items.
        shuffle: if True, draws a new random order for each epoch (default: False).
        sampler: iterable of indices that defines the order (default: None).
        batch_sampler: iterable of lists of indices that defines the batches (default: None).
        num_workers: number of worker processes; 0 loads batches in this process (default: 0).
        collate_fn: function that makes a batch of a list of items (default: `default_collate`, which stacks them).
        pin_memory: if True and there is a GPU, copies batches to page-locked memory (default: False).
        drop_last: if True, omits an incomplete last batch (default: False).
        timeout: seconds to wait for a batch from the workers; 0 waits indefinitely (default: 0).
        worker_init_fn: function that each worker calls with its number (default: None).
        multiprocessing_context: start method ("fork", "spawn", "forkserver") or context (default: None).
        generator: generator of the order and of the seeds of the workers (default: None).
        prefetch_factor: number of batches that each worker loads in advance (default: 2 with workers).
        persistent_workers: if True, keeps the workers between epochs (default: False).
        pin_memory_device: deprecated and ignored.
        in_order: if True, workers' batches are yielded in the order of the sampler; otherwise as they arrive (default: True).

    You can resume a loader: `state_dict()` stores the position in the epoch. After `load_state_dict`, the next iteration
    continues at this position in the same order, without loading the batches that were already yielded.

    Raises:
        ValueError: arguments that exclude each other.

    Example:
        >>> data = mytorch.utils.data.TensorDataset(mytorch.arange(10.0).reshape(5, 2), mytorch.arange(5))
        >>> for x, label in mytorch.utils.data.DataLoader(data, batch_size=2, drop_last=True):
        ...     print(tuple(x.shape), label.tolist())
        (2, 2) [0, 1]
        (2, 2) [2, 3]

    See also: `utils.data.Dataset`, `utils.data.default_collate`.
    """

    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable[Sequence] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._is_stream = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._is_stream else _DatasetKind.Map
        _check_order(self._is_stream, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and self._is_stream:
            sampler = _InfiniteConstantSampler()
        elif sampler is None:
            sized = cast(Sized, dataset)
            sampler = RandomSampler(sized, generator=generator) if shuffle else SequentialSampler(sized)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._IterableDataset_len_called: int | None = None
        self._iterator: Any = None  # the one whose workers persist
        self._progress = None  # of the iteration that most recently yielded a batch
        self._resume: dict | None = None
        self._initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name, value):
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self._initialized and name in fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __getstate__(self):
        """Returns the attributes of a copy: all except the current iteration."""
        return {**self.__dict__, "_iterator": None, "_progress": None}

    @property
    def multiprocessing_context(self) -> Any:
        """The multiprocessing context that starts the workers; None is the default context.

        Raises:
            ValueError: set to an unknown start method, or without workers.
            TypeError: set to another type of value.
        """
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            context = self._as_context(context)
        self._context = context

    def _as_context(self, context):
        if not self.num_workers:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading "
                f"(num_workers > 0), but got num_workers={self.num_workers}"
            )
        if isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context not in methods:
                raise ValueError(
                    f"multiprocessing_context option should specify a valid start method in {methods!r}, "
                    f"but got multiprocessing_context={context!r}"
                )
            context = multiprocessing.get_context(context)
        if not isinstance(context, multiprocessing.context.BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string "
                f"specifying the start method, but got multiprocessing_context={context}"
            )
        return context

    def check_worker_number_rationality(self) -> None:
        """Warns if there are more workers than this process may use CPU cores."""
        if hasattr(os, "sched_getaffinity"):
            cores, note = len(os.sched_getaffinity(0)), ""
        else:
            cores, note = os.cpu_count() or 1, " (`cpuset` is not taken into account)"
        if self.num_workers > cores:
            warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker in "
                f"current system is {cores}{note}, which is smaller than the number that this DataLoader will create. Please be aware "
                "that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid "
                "potential slowness/freeze if necessary."
            )

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if not self._is_stream:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(cast(Sized, self.dataset))
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    def __iter__(self) -> Iterator:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None or self._iterator._closed:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def _get_iterator(self):
        if not self.num_workers:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    # -- resuming ---------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        """Returns the position of the iteration that most recently began or yielded a batch, as plain data.

        The state contains the random states that determined the order, and the positions of the yielded batches. Before the first
        epoch, and after the end of an epoch, it contains the start of the next epoch. If there are several iterations at a time,
        use the `state_dict` of each iterator.
        """
        if self._resume is not None:
            return self._resume
        return (self._progress or Progress(self)).state_dict()

    def load_state_dict(self, state_dict: dict) -> None:
        """Makes the next iteration continue at a saved position.

        The global generators do not change. Workers of a map-style dataset do not repeat the random draws for batches that were
        already yielded; workers of a stream read past these batches.

        Args:
            state_dict: result of `state_dict`.

        Raises:
            ValueError: the state is invalid, only one of both loaders has a generator, or the number of workers of a
                stream differs.
        """
        progress = Progress(self)
        progress.check(state_dict)
        progress.set_epochs(state_dict)
        self._resume = state_dict


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers):
    """Raises ValueError for options that do not fit the number of workers."""
    for wrong, message in (
        (num_workers < 0, "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."),
        (timeout < 0, "timeout option should be non-negative"),
        (
            num_workers == 0 and prefetch_factor is not None,
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.",
        ),
        ((prefetch_factor or 0) < 0, "prefetch_factor option should be non-negative"),
        (persistent_workers and num_workers == 0, "persistent_workers option needs num_workers > 0"),
    ):
        if wrong:
            raise ValueError(message)


def _check_order(is_stream, batch_size, shuffle, sampler, batch_sampler, drop_last):
    """Raises ValueError for options of the order that exclude each other."""
    if is_stream:
        for name, value in {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


class _BaseDataLoaderIter:
    """Runs one epoch of a loader, or with persistent workers several epochs."""

    def __init__(self, loader):
        self._dataset, self._is_stream = loader.dataset, loader._is_stream
        self._index_sampler = loader._index_sampler
        self._generator = loader.generator
        self._timeout = loader.timeout
        self._num_workers = loader.num_workers
        self._persistent_workers = loader.persistent_workers
        self._make_fetcher = FetcherMaker(
            loader.dataset, loader._is_stream, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        self._pin_memory = loader.pin_memory and cuda_available()
        if loader.pin_memory and not self._pin_memory:
            warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used."
            )
        if loader.pin_memory and loader.pin_memory_device:
            warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device,ignore pin_memory_device='{loader.pin_memory_device}'."
            )
        self._base_seed = None

    def _begin(self, loader):
        """Starts an order or the rest of an order. Returns the state to resume from, if any."""
        self._note = weakref.ref(loader)
        self._num_yielded = 0
        self._len_called = loader._IterableDataset_len_called
        self._progress = loader._progress = Progress(loader, self._base_seed)
        saved, loader._resume = loader._resume, None
        if saved is None:
            self._tasks = enumerate(self._draw_order(self._base_seed))
        else:
            self._progress.base_seed = saved["base_seed"]
            self._tasks = self._progress.draw_again(saved, lambda: self._draw_order_again(saved), self._look_ahead)
        self._progress.begun = True
        return saved

    def _draw_order(self, seed):
        """Returns the iterator of the sampler. Random numbers are drawn in the same sequence as in PyTorch."""
        order = iter(self._index_sampler)
        if seed is None:
            seed = draw_seed(self._generator)
            if self._num_workers:
                order = iter(self._index_sampler)
        self._base_seed = seed
        return order

    def _draw_order_again(self, saved):
        return self._draw_order(saved["base_seed"])

    def _look_ahead(self, order):
        return list(itertools.islice(order, 1))

    def __iter__(self):
        return self

    def __next__(self):
        try:
            data = self._next_data()
        finally:
            loader = self._note()
            if loader is not None:
                loader._progress = self._progress
        self._num_yielded += 1
        if self._len_called is not None and self._num_yielded > self._len_called:
            self._warn_of_length()
        return pin_memory(data) if self._pin_memory else data

    def _warn_of_length(self):
        message = (
            f"Length of IterableDataset {self._dataset} was reported to be {self._len_called}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at "
                "each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        warn(message)

    def __len__(self):
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def state_dict(self):
        """Returns the position of this iteration, for `DataLoader.load_state_dict`."""
        return self._progress.state_dict()

    def _finish(self):
        self._progress.base_seed = self._base_seed if self._persistent_workers else None  # as the next epoch's
        self._progress.finish()


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Runs an epoch in this process."""

    def __init__(self, loader):
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._begin(loader)

    def _draw_order(self, seed):
        order = super()._draw_order(seed)
        self._fetcher = self._make_fetcher()
        return order

    def _draw_order_again(self, saved):
        order = super()._draw_order_again(saved)
        if self._is_stream:
            self._fetcher.skip(next(order), saved["handed"][0])
        return order

    def _look_ahead(self, order):
        if not self._is_stream:
            return super()._look_ahead(order)
        self._fetcher.look_ahead(next(order))
        return []

    def _next_data(self):
        try:
            number, index = next(self._tasks)
        except StopIteration:
            self._finish()
            raise
        self._progress.sent(number)
        try:
            data = self._fetcher.fetch(index)
        except StopIteration:
            self._finish()
            raise
        except Exception:  # the next call goes on with the next batch
            self._progress.done(number)
            raise
        self._progress.done(number)
        return data


class _Worker:
    """The parent's handle of a worker process."""

    def __init__(self, context, arguments, i):
        self.connection, theirs = context.Pipe(duplex=True)
        _parents_ends.add(self.connection)
        self.receiver = Receiver(self.connection)
        make_fetcher, base_seed, init_fn, num_workers = arguments
        self.process = context.Process(
            target=_worker_loop, args=(theirs, make_fetcher, base_seed, init_fn, i, num_workers), daemon=True
        )
        try:
            with safe_to_fork():
                self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()  # so that the worker's death is an end of file here
        self.under_way = 0  # tasks whose batches were not yielded
        self.ended = False  # its stream has, for this epoch


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Runs epochs in worker processes."""

    def __init__(self, loader):
        super().__init__(loader)
        if loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._in_order = loader.in_order
        self._most = loader.prefetch_factor * loader.num_workers
        self._epoch = 0
        self._workers = []
        self._end = weakref.finalize(self, _end_workers, self._workers, os.getpid())
        saved = self._begin(loader)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        arguments = self._make_fetcher, self._base_seed, loader.worker_init_fn, loader.num_workers
        for i in range(loader.num_workers):
            self._workers.append(_Worker(context, arguments, i))
        self._start(saved)

    def _reset(self, loader):
        """Starts a new epoch on the same workers and drops the remaining tasks of the previous epoch."""
        self._epoch += 1
        saved = self._begin(loader)
        for worker in self._workers:
            self._send(worker, "epoch", None)
            worker.under_way, worker.ended = 0, False
        self._start(saved)

    def _start(self, saved):
        self._given = []  # (task number, worker) of tasks whose batches were not yielded
        self._come = {}  # task number -> batch that came before its turn
        self._turns = itertools.cycle(range(self._num_workers))
        if saved is not None and self._is_stream:
            number, index = next(self._tasks)
            self._tasks = itertools.chain([(number, index)], self._tasks)
            for worker, count in zip(self._workers, saved["handed"], strict=True):
                if count:
                    self._send(worker, "skip", (index, count))
            for _ in range(saved["turn"]):
                next(self._turns)
        for _ in range(self._most):
            self._give_task()

    @property
    def _closed(self):
        return not self._end.alive

    def _send(self, worker, kind, payload):
        try:
            worker.connection.send((kind, self._epoch, payload, worker.receiver.take_died()))
        except (BrokenPipeError, ConnectionResetError):
            self._report_death(worker)

    def _give_task(self):
        """Sends the next index to the next worker in turn; with in_order=False, to a free worker."""
        active = sum(not worker.ended for worker in self._workers)
        if not active:
            return
        try:
            number, index = next(self._tasks)
        except StopIteration:
            return
        for i in itertools.islice(self._turns, self._num_workers):
            worker = self._workers[i]
            if not worker.ended and (self._in_order or worker.under_way < self._most // active):
                break
        else:
            self._tasks = itertools.chain([(number, index)], self._tasks)
            return
        self._progress.sent(number)
        self._given.append((number, i))
        worker.under_way += 1
        self._send(worker, "fetch", (number, index))

    def _next_data(self):
        while not self._closed:
            while self._given and self._lost(*self._given[0]):
                self._given.pop(0)
            if not self._given:
                break
            number, i = self._given[0]
            if number in self._come:
                return self._hand_out(number, i, self._come.pop(number))
            number, i, data = self._receive()
            if isinstance(data, _Stop):
                if not self._workers[i].ended:
                    self._workers[i].ended = True
                    self._give_task()
            elif self._in_order and number != self._given[0][0]:
                self._come[number] = data
            else:
                return self._hand_out(number, i, data)
        if not self._closed:
            self._finish()
            if not self._persistent_workers:
                self._end()
        raise StopIteration

    def _lost(self, number, i):
        """Returns True if a task was sent to a worker whose stream had ended."""
        return self._workers[i].ended and number not in self._come

    def _hand_out(self, number, i, data):
        self._given.remove((number, i))
        self._workers[i].under_way -= 1
        self._progress.done(number, i)
        self._give_task()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def _receive(self):
        """Receives the next batch of any worker, as (task number, worker, batch).

        Raises:
            RuntimeError: the timeout of the loader is exceeded, or a worker has died.
        """
        from multiprocessing.connection import wait  # it would slow down importing the library

        ends = {worker.connection: i for i, worker in enumerate(self._workers)}
        deadline = time.monotonic() + self._timeout if self._timeout else math.inf
        while True:
            left = min(MP_STATUS_CHECK_INTERVAL, deadline - time.monotonic())
            ready = wait(list(ends), max(left, 0))
            for end in ready:
                worker = self._workers[ends[end]]
                try:
                    epoch, number, data = worker.receiver.receive()
                except (EOFError, OSError):
                    self._report_death(worker)
                except Exception:  # a batch that can't be unpickled
                    self._end()
                    raise
                if epoch == self._epoch:
                    return number, ends[end], data
            if not ready:
                for worker in self._workers:
                    if not worker.process.is_alive():
                        self._report_death(worker)
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _report_death(self, worker):
        """Ends the other workers and raises RuntimeError."""
        worker.process.join(1)
        pid, code = worker.process.pid, worker.process.exitcode
        self._end()
        if code is not None and code < 0:
            raise RuntimeError(
                f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(-code)}. "
                f"It exited unexpectedly, with exit code {code}."
            ) from None
        raise RuntimeError(
            f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details are "
            "lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
        ) from None


def _hang_up(connection):
    """Closes a connection, also for processes that were forked later and share it."""
    if os.name == "posix":
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
            with contextlib.suppress(OSError):  # the worker has gone already
                end.shutdown(socket.SHUT_RDWR)
    connection.close()


def _end_workers(workers, owner, patience=2.0):
    """Ends the workers: closes their sockets, and sends signals to workers that do not exit."""
    if os.getpid() != owner:  # a forked process has inherited the iterator, not the workers
        return
    for worker in workers:
        _hang_up(worker.connection)
    processes = [worker.process for worker in workers]
    try:
        deadline = time.monotonic() + patience
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0))
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        workers.clear()
