"""Datasets with items by index or in a stream."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import accumulate, islice
from typing import Any, Generic, TypeVar, cast

from ...arrays.tensor import Tensor
from ...ops.random import Generator, randperm
from .sampler import drawn_on

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base class of datasets with items by index.

    Subclasses define `__getitem__` and, for most samplers, `__len__`. A method `__getitems__(indices)`, if defined, returns
    the items of a whole batch as a list.

    Use it when any item can be read by its number, as with files in a folder; `IterableDataset` is for streams.

    Example:
        >>> class Squares(mytorch.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, i):
        ...         return i * i
        >>> [batch.tolist() for batch in mytorch.utils.data.DataLoader(Squares(), batch_size=3)]
        [[0, 1, 4], [9]]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable):
    """Base class of streams of items. Subclasses define `__iter__`.

    Each worker process iterates over a copy of the dataset. Use `get_worker_info()` to select the part for a worker.

    Use it for data that can only be read in order, such as a log or a network stream. Shuffling is then up to you.

    Example:
        >>> class Countdown(mytorch.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter([3, 2, 1])
        >>> [batch.tolist() for batch in mytorch.utils.data.DataLoader(Countdown(), batch_size=2)]
        [[3, 2], [1]]
    """

    def __add__(self, other: Dataset) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """Dataset of the rows of several tensors of equal length.

    Use it when the data is in memory already; for files, write a `Dataset`.

    Args:
        tensors: tensors with the same size of dimension 0.

    Raises:
        AssertionError: the lengths differ.

    Example:
        >>> data = mytorch.utils.data.TensorDataset(tensor([[1.0], [2.0]]), tensor([0, 1]))
        >>> x, label = data[1]
        >>> x.tolist(), label.item(), len(data)
        ([2.0], 1, 2)
    """

    def __init__(self, *tensors: Tensor):
        if any(len(t) != len(tensors[0]) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def _batch(self, indices):
        """Returns the result of `default_collate` for some indices, with one lookup per tensor; None if the results may differ."""
        own = type(self).__getitem__ is TensorDataset.__getitem__ and not hasattr(self, "__getitems__")
        if not own or not all(type(i) is int for i in indices) or not all(isinstance(t, Tensor) for t in self.tensors):
            return None
        return [t[list(indices)] for t in self.tensors]


class StackDataset(Dataset):
    """Dataset whose items combine the items of several datasets of equal length.

    Args:
        args: datasets; items are tuples.
        kwargs: named datasets; items are dicts. Give either `args` or `kwargs`.

    Raises:
        ValueError: the lengths differ, or both or neither kind of arguments is given.

    Example:
        >>> data = mytorch.utils.data.StackDataset(letter="ab", number=[1, 2])
        >>> data[1]
        {'letter': 'b', 'number': 2}
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset):
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in self._parts()]
        if len(set(lengths)) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def _parts(self):
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else self.datasets

    def _join(self, parts):
        """Combines the parts of an item."""
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, parts, strict=True))
        return tuple(parts)

    def __getitem__(self, index: Any) -> tuple | dict:
        return self._join([dataset[index] for dataset in self._parts()])

    def __getitems__(self, indices: Sequence[int]) -> list:
        columns = [_items(dataset, indices) for dataset in self._parts()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
        return [self._join(parts) for parts in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def _items(dataset, indices):
    """Returns a list of items, from `__getitems__` if the dataset defines it."""
    if callable(getattr(dataset, "__getitems__", None)):
        return dataset.__getitems__(indices)
    return [dataset[i] for i in indices]


class ConcatDataset(Dataset[T_co]):
    """Concatenates datasets.

    Args:
        datasets: datasets with a length.

    Raises:
        AssertionError: there is no dataset, or one of them is a stream.

    Example:
        >>> both = mytorch.utils.data.ConcatDataset(["ab", "cde"])
        >>> len(both), both[2]
        (5, 'c')
    """

    def __init__(self, datasets: Iterable[Dataset[T_co]]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable) -> list[int]:
        """Returns the cumulative lengths of the datasets.

        Args:
            sequence: the datasets.
        """
        return list(accumulate(len(d) for d in sequence))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect_right(self.cumulative_sizes, index)
        if which == len(self.datasets):
            raise IndexError(f"ConcatDataset: index {index} is out of range for {len(self)} items.")
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """Concatenates streams.

    Args:
        datasets: IterableDatasets.

    Raises:
        AssertionError: one of them is not an IterableDataset. This is checked during iteration.

    Example:
        >>> class Letters(mytorch.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter("ab")
        >>> list(mytorch.utils.data.ChainDataset([Letters(), Letters()]))
        ['a', 'b', 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Dataset]):
        super().__init__()
        self.datasets = datasets

    def _streams(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator:
        for dataset in self._streams():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._streams())


class Subset(Dataset[T_co]):
    """Dataset of the items at some indices of another dataset.

    Args:
        dataset: the other dataset.
        indices: indices of the items.

    Raises:
        NotImplementedError: a subclass overrides `__getitem__` but not `__getitems__`.

    Example:
        >>> list(mytorch.utils.data.Subset("abcde", [0, 4]))
        ['a', 'e']
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices
        kind = type(self)
        own_item = kind.__getitem__ is not Subset.__getitem__
        if own_item and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{kind.__name__} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding __getitem__, you "
                "must also override __getitems__ to ensure DataLoader works correctly with your custom logic. A simple "
                "implementation:\n\ndef __getitems__(self, indices):\n    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def _batch(self, indices):
        """Returns a batch as `TensorDataset._batch` does."""
        whole = getattr(self.dataset, "_batch", None)
        if whole is None or type(self).__getitems__ is not Subset.__getitems__:
            return None
        return whole([int(self.indices[i]) for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Splits a dataset randomly into subsets without overlap.

    Use it for a training and a validation part, with a `generator` so that each run has the same split. `Subset` takes
    indices of your own.

    Args:
        dataset: dataset with a length.
        lengths: lengths of the subsets, or fractions that sum to 1. Items that remain after rounding go to the first subsets.
        generator: random number generator (default: the default generator).

    Returns:
        A list of `Subset`s.

    Raises:
        ValueError: the lengths do not sum to the length of the dataset, or a fraction is not between 0 and 1.

    Example:
        >>> train, test = mytorch.utils.data.random_split(range(10), [0.8, 0.2])
        >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
        (8, 2, True)
    """
    size = len(cast(Sized, dataset))
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _shares(size, lengths)
    if sum(lengths) != size:
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset! Expected {size}, got {sum(lengths)}."
        )
    order = randperm(size, generator=generator, device=drawn_on(generator)).tolist()
    rest = iter(order)
    return [Subset(dataset, list(islice(rest, cast(int, n)))) for n in lengths]


def _shares(size, fractions):
    """Returns integers in the proportions of the fractions that sum to `size`."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1, got {fraction}")
    shares = [math.floor(size * fraction) for fraction in fractions]
    for i in range(size - sum(shares)):
        shares[i % len(shares)] += 1
    for i, n in enumerate(shares):
        if n == 0:
            warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=3)
    return shares
