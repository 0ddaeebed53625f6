"""Writing into memory that is also read."""

import numpy as np

from .._array import Array
from ..backend import address, ndarray, numpy_ns


def refuse_shared(tensor, name):
    """Refuse to write into a tensor of which several elements share a place, as an expanded one's do.

    Raises:
        RuntimeError: it is one.
    """
    raw = tensor._data._array
    if shares_places(raw):
        raise RuntimeError(
            f"{name}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )


def shares_places(raw):
    """Whether an array has an axis along which all elements lie at one place."""
    return 0 in raw.strides and raw.size and any(s == 0 and n > 1 for s, n in zip(raw.strides, raw.shape, strict=True))


def refuse_overlap(tensor, other, name, region=None, elementwise=True):
    """Refuse to write into a tensor (or a raw `region` of it) from another that lies partly in the same memory, as PyTorch does.

    Args:
        tensor, other, name: what is written into, what is read, the function. region: the part that is written into.
        elementwise: each element is read before its own place is written, so that the very same elements are allowed.

    Raises:
        RuntimeError: both are dense, they share memory, and are not the same elements in the same order.
    """
    counter = tensor._data._version_counter
    other = getattr(other, "_data", other)
    if not elementwise and other is getattr(tensor, "_data", tensor):
        counter = (
            tensor.shared_version_counter() if isinstance(tensor, Array) else tensor._data.shared_version_counter()
        )
    if counter is None or type(other) is not Array or other._version_counter is not counter:
        return
    a, b = tensor._data._array if region is None else region, other._array
    if type(a) is not ndarray or not a.size or not b.size:
        return
    (a_begin, a_end), (b_begin, b_end) = _span(a), _span(b)
    dense = a_end - a_begin == a.nbytes and b_end - b_begin == b.nbytes
    same = elementwise and (a_begin, a_end, a.strides) == (b_begin, b_end, b.strides)
    if dense and a_begin < b_end and b_begin < a_end and not same:
        raise RuntimeError(
            f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _span(raw):
    """Where the memory of an array begins and ends."""
    reaches = [(n - 1) * s for n, s in zip(raw.shape, raw.strides, strict=True)]
    begin = address(raw)
    return begin + sum(min(r, 0) for r in reaches), begin + sum(max(r, 0) for r in reaches) + raw.itemsize


def outside(shape, steps):
    """A mask of `shape` that is False in the region that the views `steps` lead to."""
    mask = np.ones(shape, bool)
    _region(mask, steps)[...] = False
    return mask


def overlaps_itself(raw):
    """Whether several elements of an array lie in one place, as those of windows do."""
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(raw.strides, raw.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def where_written(xp, g, shape, steps):
    """The gradient g of a region of `shape`, where several elements lie in one place that of the last alone: it was written last."""
    if not overlaps_itself(_region(np.empty(shape, bool), steps)):
        return g
    places = _region(np.arange(np.prod(shape)).reshape(shape), steps)
    last = np.empty(shape, np.int64).reshape(-1)
    last[places.reshape(-1)] = order = np.arange(places.size)
    return xp.where(xp.asarray((last[places.reshape(-1)] == order).reshape(places.shape)), g, 0.0)


def _region(x, steps):
    for step, attrs in steps:
        x = step.forward(numpy_ns, x, **attrs)
    return x
