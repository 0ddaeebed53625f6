"""Making one batch of several items.

`default_collate_fn_map` says how items of each kind are put together; programs may add kinds to it. Containers are gone
through, whatever their type: a clone of the first one is filled with the batches.
"""

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...._array import Array
from ...._tensor import Tensor
from ....base import dtypes
from ....ops.creation import as_tensor, tensor
from ....ops.movement import stack

CollateMap = Mapping[type | tuple[type, ...], Callable]
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def map_container(function, data, as_tuple=tuple):
    """A container of the same type, of `function` of each item; anything else as it is."""
    if isinstance(data, Mapping):
        return _refill(data, {key: function(data[key]) for key in data})
    if isinstance(data, tuple):
        items = [function(item) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else as_tuple(items)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _refill(data, [function(item) for item in data])
    return data


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers in a nested structure as tensors; everything else as it is."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype in dtypes._BY_NUMPY:
        return as_tensor(data)
    return map_container(default_convert, data, as_tuple=list)  # lists for tuples, as in PyTorch


def collate(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Any:
    """A list of items as one batch, by the functions of `collate_fn_map`, through containers.

    Args:
        batch: items of equal structure.
        collate_fn_map: a function for each type, or tuple of types, of items; called as
            `function(items, collate_fn_map=...)`. An exact type goes before a base class.

    Raises:
        TypeError: items of a kind that nothing is known for.
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
    """A container of the same type with other items; a dict or list where it can't be made."""
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
    """Tensors stacked."""
    return stack(list(batch))


def _collate_array_fn(batch, *, collate_fn_map=None):
    return stack([Tensor._of(array) for array in batch])


def collate_numpy_array_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """NumPy arrays stacked to a tensor.

    Raises:
        TypeError: arrays of strings or objects.
    """
    if batch[0].dtype.kind in "SUO":
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """NumPy numbers as a tensor of one dimension."""
    return as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Python floats as float64."""
    return tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Tensor:
    """Python ints as int64, bools as bool."""
    return tensor(batch)


def collate_str_fn(batch: Sequence, *, collate_fn_map: dict | None = None) -> Sequence:
    """Strings and bytes as they are."""
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
    np.generic: collate_numpy_scalar_fn,  # bfloat16 and the like are no np.number
}


def default_collate(batch: Sequence) -> Any:
    """A list of items as one batch: tensors, arrays and numbers stacked, containers traversed.

    Raises:
        TypeError: items of a kind that can't be stacked.
        RuntimeError: tensors or sequences of different sizes.

    Example:
        >>> mytorch.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])["x"].tolist()
        [1, 2]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
