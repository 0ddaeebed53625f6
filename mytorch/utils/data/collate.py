"""Making one batch of several items."""

from collections.abc import Mapping, Sequence

import numpy as np

from ... import dtypes
from ..._array import Array
from ...ops.creation import as_tensor, tensor
from ...ops.movement import stack
from ...tensor import Tensor


def default_convert(data):
    """NumPy arrays in a nested structure as tensors; everything else as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype in dtypes._BY_NUMPY:
        return as_tensor(data)
    return _rebuild(data, default_convert, data)


def default_collate(batch):
    """A list of items as one batch: tensors, arrays and numbers stacked, containers gone through.

    Raises:
        TypeError: items of a kind that can't be stacked.
        RuntimeError: tensors or sequences of different sizes.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, Array):
        return stack([Tensor._of(a) for a in batch])
    if isinstance(first, np.ndarray):
        if first.dtype not in dtypes._BY_NUMPY:
            raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {first.dtype}")
        return stack([as_tensor(a) for a in batch])
    if isinstance(first, np.generic) and first.dtype in dtypes._BY_NUMPY:
        return as_tensor(np.asarray(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=dtypes.float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        merged = {key: default_collate([item[key] for item in batch]) for key in first}
        try:
            return type(first)(merged)
        except TypeError:  # a mapping that is not made from a dict
            return merged
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(column) for column in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(list(column)) for column in zip(*batch, strict=True)]
        if isinstance(first, tuple):
            return columns
        try:
            return type(first)(columns)
        except TypeError:  # a sequence that is not made from a list
            return columns
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )


def _rebuild(data, convert, unchanged):
    """A container with every item converted."""
    if isinstance(data, Mapping):
        return {key: convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(convert(item) for item in data))
    if isinstance(data, tuple):
        return [convert(item) for item in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [convert(item) for item in data]
    return unchanged
