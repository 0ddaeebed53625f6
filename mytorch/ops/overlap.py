"""Writing into memory that is also read."""

from .._array import Array
from ..backend import address, ndarray


def refuse_overlap(tensor, other, name, region=None):
    """Refuse to write into a tensor (or a raw `region` of it) from another that lies partly in the same memory, as PyTorch does.

    Raises:
        RuntimeError: both are dense, they share memory, and are not the same elements in the same order.
    """
    cell = (tensor if isinstance(tensor, Array) else tensor._data)._cell
    other = getattr(other, "_data", other)
    if cell is None or other is tensor or type(other) is not Array or other._cell is not cell:
        return
    a, b = (tensor if isinstance(tensor, Array) else tensor._data)._array if region is None else region, other._array
    if type(a) is not ndarray or not a.size or not b.size:
        return
    (a_begin, a_end), (b_begin, b_end) = _span(a), _span(b)
    dense = a_end - a_begin == a.nbytes and b_end - b_begin == b.nbytes
    same = (a_begin, a_end, a.strides) == (b_begin, b_end, b.strides)
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
