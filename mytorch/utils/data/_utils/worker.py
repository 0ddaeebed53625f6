"""The program of a worker process of the DataLoader.

The parent and a worker communicate over one socket: the worker receives tasks and sends batches. A thread in the worker
listens, so that the parent never waits to send, and so that the worker notices when the parent has died.
"""

import multiprocessing
import os
import queue
import random
import signal
import sys
import threading
import traceback
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.threads import set_num_threads
from ....ops.random import _gpu_generators, default_generator
from .fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from .transport import Sender

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between looks at whether the other side is alive

_parents_ends = weakref.WeakSet()  # this process's ends of its workers' sockets


@dataclass(frozen=True)
class WorkerInfo:
    """Information about a worker process, returned by `get_worker_info`.

    Args:
        id: number of the worker.
        num_workers: number of workers.
        seed: seed of the worker.
        dataset: the worker's copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info = None


def get_worker_info() -> WorkerInfo | None:
    """Returns the WorkerInfo of this process; None in the main process.

    Example:
        >>> mytorch.utils.data.get_worker_info() is None
        True
    """
    return _worker_info


class ExceptionWrapper:
    """Stores the current exception and its traceback as text, to raise it in another process."""

    def __init__(self, exc_info=None, where="in background"):
        exc_info = exc_info or sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self):
        """Raises an exception of the original type. Its message is the original traceback."""
        raise self._exception() from None  # a variable here would be a cycle with its traceback

    def _exception(self):
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            if self.exc_type is KeyError:
                return KeyError(_Message(text))
            if getattr(self.exc_type, "message", None):
                return self.exc_type(message=text)
            return self.exc_type(text)
        except Exception:  # a type that is not made from one message
            return RuntimeError(text)


class _Message(str):
    """A string whose repr is the text itself, because a KeyError shows the repr of its message."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


class _Stop:
    """The reply of a worker whose stream has ended."""


class _Inbox:
    """The received tasks, which a thread reads. `epoch` is the newest epoch among them."""

    def __init__(self, connection, sender):
        self.connection = connection
        self.sender = sender
        self.tasks = queue.SimpleQueue()
        self.epoch = 0
        self.closed = False
        self.parent = os.getppid()
        threading.Thread(target=self._listen, daemon=True, name="mytorch-data-inbox").start()

    def _listen(self):
        try:
            while True:
                while not self.connection.poll(MP_STATUS_CHECK_INTERVAL / 5):
                    self._leave_with_parent()
                kind, epoch, payload, died = self.connection.recv()
                self.sender.take_back(*died)
                self.epoch = max(self.epoch, epoch)
                self.tasks.put((kind, epoch, payload))
        except (EOFError, OSError):  # the parent has closed its end, or has died
            self._leave_with_parent()
            self.closed = True
            self.tasks.put(None)
        except BaseException:  # an index that can't be unpickled: the parent sees this process end
            traceback.print_exc()
            os._exit(1)

    def _leave_with_parent(self):
        """Ends this process if its parent has died, at any point of its work."""
        if os.getppid() != self.parent or not multiprocessing.parent_process().is_alive():
            os._exit(1)

    def __iter__(self):
        """Yields the tasks of the newest epoch until the parent closes its end."""
        while not self.closed:
            task = self.tasks.get()
            if task is not None and not self.closed and task[1] == self.epoch:
                yield task


def _worker_loop(connection, make_fetcher, base_seed, init_fn, worker_id, num_workers):
    """Replies to tasks (kind, epoch, payload) with (epoch, number, batch, _Stop or ExceptionWrapper).

    * "epoch" opens the dataset again.
    * "skip" reads past batches of a stream. Its payload is (index, count).
    * "fetch" makes a batch. Its payload is (number, index).
    """
    try:
        for end in list(_parents_ends):  # inherited from the parent by forking
            end.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sender = Sender(connection)
        inbox = _Inbox(connection, sender)
        set_num_threads(1)
        fetcher = _prepare(make_fetcher, base_seed, init_fn, worker_id, num_workers)
        for kind, epoch, payload in inbox:
            if kind == "epoch":
                fetcher = _guarded(worker_id, make_fetcher)
            elif kind == "skip":
                if not isinstance(fetcher, ExceptionWrapper):
                    fetcher.skip(*payload)
            else:
                number, index = payload
                data = fetcher if isinstance(fetcher, ExceptionWrapper) else _fetch(fetcher, index, worker_id)
                _answer(sender, epoch, number, data, worker_id)
                del data
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        pass  # the parent gets its own KeyboardInterrupt, or has closed its end


def _prepare(make_fetcher, base_seed, init_fn, worker_id, num_workers):
    """Seeds the generators of this worker and opens the dataset; returns an ExceptionWrapper on failure."""
    global _worker_info
    seed = base_seed + worker_id
    random.seed(seed)
    default_generator.manual_seed(seed)
    _gpu_generators.clear()  # a forked process can't use the parent's generators; new generators take this seed
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]  # PyTorch's
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    _worker_info = WorkerInfo(worker_id, num_workers, seed, make_fetcher.dataset)
    if init_fn is None:
        return _guarded(worker_id, make_fetcher)
    return _guarded(worker_id, lambda: (init_fn(worker_id), make_fetcher())[1])


def _guarded(worker_id, function):
    """Returns the result of `function`, or the wrapped exception that it raised."""
    try:
        return function()
    except Exception:
        return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")


def _fetch(fetcher, index, worker_id):
    try:
        return fetcher.fetch(index)
    except Exception as error:
        if isinstance(error, StopIteration) and isinstance(fetcher, _IterableDatasetFetcher):
            return _Stop()
        return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")


def _answer(sender, epoch, number, data, worker_id):
    """Sends a reply, or the pickling error if the reply cannot be pickled."""
    try:
        sender.send((epoch, number, data))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception:
        wrapper = data
        if not isinstance(data, ExceptionWrapper):
            wrapper = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
        if not _picklable(wrapper.exc_type):
            wrapper.exc_type = RuntimeError
        sender.send((epoch, number, wrapper))


def _picklable(kind):
    module = sys.modules.get(kind.__module__)
    return getattr(module, kind.__qualname__, None) is kind


class FetcherMaker:
    """Makes the fetcher of a dataset: the part of a loader that is sent to its workers."""

    def __init__(self, dataset, is_stream, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.is_stream = is_stream
        self.rest = (auto_collation, collate_fn, drop_last)

    def __call__(self):
        kind = _IterableDatasetFetcher if self.is_stream else _MapDatasetFetcher
        return kind(self.dataset, *self.rest)
