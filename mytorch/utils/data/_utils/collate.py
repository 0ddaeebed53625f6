"""Making one batch of several items.

`default_collate_fn_map` maps types of items to functions that combine them. Programs may add types. Containers of any type
are traversed: a copy of the first container is filled with the batches.
"""

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ....arrays import dtypes
from ....arrays.array import Array
from ....arrays.tensor import Tensor
from ....ops.creation import as_tensor, tensor
from ....ops.movement import stack

CollateMap = Mapping[type | tuple[type, ...], Callable]
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def map_container(function, data, as_tuple=tuple):
    """Applies a function to the items of a container and returns a container of the same type; other values are unchanged."""
    if isinstance(data, Mapping):
        return _refill(data, {key: function(data[key]) for key in data})
    if isinstance(data, tuple):
        items = [function(item) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else as_tuple(items)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _refill(data, [function(item) for item in data])
    return data


def default_convert(data: Any) -> Any:
    """Converts the NumPy arrays and numbers of a nested structure to tensors. Other values are unchanged.

    Args:
        data: array, number, container, or other value.

    Example:
        >>> mytorch.utils.data.default_convert({"x": np.array([1, 2])})["x"].tolist()
        [1, 2]
    """
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype in dtypes._BY_NUMPY:
        return as_tensor(data)
    return map_container(default_convert, data, as_tuple=list)  # lists for tuples, as in PyTorch


def collate(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes a batch of a list of items with the functions of a map, also in containers.

    Args:
        batch: items of equal structure.
        collate_fn_map: {type or tuple of types: function} (default: None). The functions are called as
            `function(items, collate_fn_map=...)`. An exact type takes precedence over a base class.

    Raises:
        TypeError: the map has no function for a type.
        RuntimeError: sequences of different sizes.
    """
    first = batch[0]
    kind = type(first)
    known = collate_fn_map or {}
    function = known.get(kind) or next((known[k] for k in known if isinstance(first, k)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)

    def join(items):
        return collate(items, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _refill(first, {key: join([item[key] for item in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(join(column) for column in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [join(column) for column in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _refill(first, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def _refill(container, items):
    """Returns a container of the same type with other items, or a dict or list if the type cannot be constructed."""
    try:
        if isinstance(container, MutableMapping):
            clone = copy.copy(container)  # it may have more than its items, such as a default factory
            clone.update(items)
            return clone
        if isinstance(container, MutableSequence):
            clone = copy.copy(container)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(container)(items)
    except TypeError:
        return items


def collate_tensor_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Stacks tensors."""
    return stack(list(batch))


def _collate_array_fn(batch, *, collate_fn_map=None):
    return stack([Tensor._of(array) for array in batch])


def collate_numpy_array_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Stacks NumPy arrays to a tensor.

    Raises:
        TypeError: arrays of strings or objects.
    """
    if batch[0].dtype.kind in "SUO":
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Converts NumPy numbers to a 1-d tensor."""
    return as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Converts Python floats to a float64 tensor."""
    return tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Converts Python ints to an int64 tensor and bools to a bool tensor."""
    return tensor(batch)


def collate_str_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Sequence:
    """Returns a list of strings or bytes unchanged."""
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    Array: _collate_array_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
    np.generic: collate_numpy_scalar_fn,  # bfloat16 and similar dtypes are not np.number
}


def default_collate(batch: Sequence) -> Any:
    """Makes a batch of a list of items: stacks tensors, arrays and numbers, also in containers.

    Args:
        batch: items of equal structure.

    Raises:
        TypeError: items of a type that cannot be stacked.
        RuntimeError: tensors or sequences of different sizes.

    Example:
        >>> mytorch.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])["x"].tolist()
        [1, 2]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
