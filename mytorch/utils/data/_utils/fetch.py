"""Fetching the items of a list of indices and collating them, in any process."""

import contextlib
import itertools

from ....arrays.tensor import Tensor
from .collate import collate_tensor_fn, default_collate, default_collate_fn_map


class _BaseDatasetFetcher:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last


class _MapDatasetFetcher(_BaseDatasetFetcher):
    def fetch(self, index):
        """Returns the batch for a list of indices, or the item for one index."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if self.collate_fn is default_collate and default_collate_fn_map[Tensor] is collate_tensor_fn:
            whole = getattr(self.dataset, "_batch", None)  # of the library's own datasets
            batch = None if whole is None else whole(index)
            if batch is not None:
                return batch
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False
        self.ahead = None  # items that were prefetched

    def fetch(self, index):
        """Returns the batch of the next items, one item for each index.

        Raises:
            StopIteration: the stream has ended.
        """
        items, self.ahead = self.ahead, None
        return self.collate_fn(self._take(index) if items is None else items)

    def look_ahead(self, index):
        """Reads the next items in advance."""
        with contextlib.suppress(StopIteration):
            self.ahead = self._take(index)

    def skip(self, index, count):
        """Reads past `count` batches. Errors in them are ignored, since they were raised when the batches were made."""
        for _ in range(count):
            with contextlib.suppress(Exception):
                self._take(index)

    def _take(self, index):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            try:
                return next(self.dataset_iter)
            except StopIteration:
                self.ended = True
                raise
        items = list(itertools.islice(self.dataset_iter, len(index)))
        self.ended = len(items) < len(index)
        if not items or (self.drop_last and len(items) < len(index)):
            raise StopIteration
        return items
