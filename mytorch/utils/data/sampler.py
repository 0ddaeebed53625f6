"""Samplers, which define the order in which a dataset is read. With equal seeds, random orders equal PyTorch's orders."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic, TypeVar, cast

from ...arrays import dtypes
from ...arrays.tensor import Tensor
from ...ops.creation import as_tensor, empty
from ...ops.random import Generator, multinomial, randint, randperm

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


def drawn_on(generator):
    """Returns the device on which a sampler draws: the device of its generator, by default the CPU."""
    return "cpu" if generator is None else generator.device


def draw_seed(generator: Generator | None = None) -> int:
    """Draws a 63-bit seed in the same way as PyTorch's samplers and loaders."""
    where = drawn_on(generator)
    return int(empty((), dtype=dtypes.int64, device=where).random_(generator=generator).item())


class Sampler(Generic[T_co]):
    """Base class of samplers: iterables of indices, or of lists of indices for batch samplers.

    Args:
        data_source: ignored; for compatibility (default: None).
    """

    def __init__(self, data_source: Sized | None = None):
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__.")


class SequentialSampler(Sampler):
    """Yields the indices 0, 1, 2, …

    Args:
        data_source: dataset with a length.

    Example:
        >>> list(mytorch.utils.data.SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Yields indices in random order.

    Args:
        data_source: dataset with a length.
        replacement: if True, draws with replacement, so that indices can repeat (default: False).
        num_samples: number of indices to draw (default: the length of the dataset).
        generator: random number generator (default: one that is seeded from the default generator).

    Raises:
        TypeError: `replacement` is not a bool.
        ValueError: `num_samples` is not a positive integer.

    Example:
        >>> sorted(mytorch.utils.data.RandomSampler("abc"))
        [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """Number of indices per iteration."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(draw_seed())
        where = drawn_on(generator)
        if self.replacement:
            for _ in range(self.num_samples // 32):
                yield from randint(0, n, (32,), generator=generator, device=where).tolist()
            rest = randint(0, n, (self.num_samples % 32,), generator=generator, device=where)
            yield from rest.tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from randperm(n, generator=generator, device=where).tolist()
            rest = randperm(n, generator=generator, device=where)
            yield from rest.tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Yields given indices in random order.

    Args:
        generator: random number generator (default: the default generator).

    Example:
        >>> sorted(mytorch.utils.data.SubsetRandomSampler([4, 7]))
        [4, 7]
    """

    def __init__(self, indices: Sequence, generator: Generator | None = None):
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        where = drawn_on(self.generator)
        for i in randperm(len(self.indices), generator=self.generator, device=where).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws indices with probabilities proportional to weights.

    Use it when some classes are rare: weights of 1 / frequency show them as often as the others.

    Args:
        weights: weight of each index. The weights need not sum to 1.
        num_samples: number of indices to draw.
        replacement: if True, indices can repeat (default: True).
        generator: random number generator (default: the default generator).

    Raises:
        ValueError: an argument has a wrong type, or `weights` is not 1-d.

    Example:
        >>> list(mytorch.utils.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
        [1, 1, 1]
    """

    def __init__(
        self,
        weights: Tensor | Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=dtypes.float64, device=drawn_on(generator))
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Groups the indices of another sampler into batches.

    Args:
        sampler: iterable of indices.
        batch_size: number of indices in a batch.
        drop_last: if True, omits an incomplete last batch.

    Raises:
        ValueError: `batch_size` is not a positive integer, or `drop_last` is not a bool.

    Example:
        >>> list(mytorch.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable, batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        n = len(cast(Sized, self.sampler))
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
