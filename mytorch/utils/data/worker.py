"""What runs in a worker process of the DataLoader."""

import random
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops.random import manual_seed
from .dataset import IterableDataset


@dataclass
class WorkerInfo:
    """Who a worker is: its number, how many there are, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info = None


def get_worker_info():
    """The WorkerInfo of this process; None in the main process."""
    return _info


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised again in another process."""

    def __init__(self, where):
        kind, error, trace = sys.exc_info()
        self.kind = kind
        self.text = f"Caught {kind.__name__} {where}.\nOriginal {''.join(traceback.format_exception(kind, error, trace))}"

    def reraise(self):
        """Raise an exception of the original type, its message the original traceback."""
        if self.kind is KeyError:
            raise KeyError(_Message(self.text))
        try:
            error = self.kind(self.text)
        except Exception:  # a type that is not made from one message
            raise RuntimeError(self.text) from None
        raise error


class _Message(str):
    """A KeyError shows the repr of its message; this one's repr is the text itself."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


class Fetcher:
    """Items of a dataset for a list of indices, made into a batch."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.stream = iter(dataset) if isinstance(dataset, IterableDataset) else None

    def fetch(self, index):
        """The batch for an index or a list of them; for a stream, the next items, as many as indices.

        Raises:
            StopIteration: the stream has ended.
        """
        if self.stream is not None:
            if not self.auto_collation:
                return self.collate_fn(next(self.stream))
            items = []
            for _ in index:
                try:
                    items.append(next(self.stream))
                except StopIteration:
                    break
            if not items or (self.drop_last and len(items) < len(index)):
                raise StopIteration
            return self.collate_fn(items)
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])


END = "end of stream"


def work(make_fetcher, tasks, results, worker_id, num_workers, base_seed, init_fn):
    """The loop of a worker: take (index) tasks, send back ("ok", batch), ("error", wrapped) or (END, None).

    A task ("epoch", seed) starts a new epoch; None ends the process.
    """
    global _info
    try:
        fetcher = _begin(make_fetcher, worker_id, num_workers, base_seed, init_fn)
    except Exception:
        fetcher = ExceptionWrapper(f"in DataLoader worker process {worker_id}")
    while True:
        try:
            task = tasks.get()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        if task is None:
            return
        kind, payload = task
        if kind == "epoch":
            try:
                fetcher = _begin(make_fetcher, worker_id, num_workers, payload, None)
            except Exception:
                fetcher = ExceptionWrapper(f"in DataLoader worker process {worker_id}")
            continue
        try:
            if isinstance(fetcher, ExceptionWrapper):
                reply = ("error", fetcher)
            else:
                reply = ("ok", fetcher.fetch(payload))
        except StopIteration:
            reply = (END, None)
        except KeyboardInterrupt:
            return
        except Exception:
            reply = ("error", ExceptionWrapper(f"in DataLoader worker process {worker_id}"))
        try:
            results.send(reply)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception:  # a batch that can't be sent, such as one holding a lambda
            results.send(("error", ExceptionWrapper(f"in DataLoader worker process {worker_id}")))


def _begin(make_fetcher, worker_id, num_workers, base_seed, init_fn):
    """Seed the generators of this worker and open the dataset."""
    global _info
    seed = base_seed + worker_id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(seed % (1 << 32))
    dataset = make_fetcher[0]
    _info = WorkerInfo(worker_id, num_workers, seed, dataset)
    if init_fn is not None:
        init_fn(worker_id)
    return Fetcher(_info.dataset, *make_fetcher[1:])
