"""Conversion between tensors and raw arrays, for functions that compute with NumPy or CuPy arrays."""

import numpy as np

from ...arrays import CPU, NO_DATA, MetaArray, config, device_of, is_raw, numpy_ns, to_device, xp_of
from ...arrays.array import Array
from ...arrays.capturing import is_recording
from ...arrays.tensor import Tensor


def raw_of(x):
    """Returns the raw array of a Tensor or Array. Raw arrays and None are unchanged; other values become NumPy arrays."""
    if isinstance(x, Tensor):
        return x._mt_data._array
    if isinstance(x, Array):
        return x._array
    return x if x is None or is_raw(x) else np.asarray(x)


def shape_of(x):
    """Returns the shape of a Tensor, an Array or a raw array as a tuple."""
    data = x._mt_data if isinstance(x, Tensor) else x
    return data._array.shape if isinstance(data, Array) else data.shape


def to_cpu(x):
    """Returns a NumPy array of a tensor or raw array on any device. CPU memory is not copied."""
    raw = raw_of(x)
    if type(raw) is MetaArray:  # including arrays that represent a batch and have a device
        raise NotImplementedError(NO_DATA)
    return to_device(raw, CPU)


def on_device_of(array, like):
    """Returns a Tensor over an array, copied to the device of the tensor `like`."""
    return Tensor._wrap(to_device(array, device_of(raw_of(like))))


def looks_at_indices(raw):
    """Returns True if ops check indices: on the CPU always, and on a GPU with MYTORCH_CHECK_INDICES=1, which waits for it."""
    return device_of(raw) is CPU or (config.check_indices and not is_recording())


def outside(raw, size):
    """Returns True if indices are checked and an index is outside of [0, size)."""
    # As unsigned integers, negative indices are large.
    if type(raw) is np.ndarray and raw.itemsize == 8 and raw.flags.c_contiguous:  # most indices
        return raw.size > 0 and bool(numpy_ns.max(raw.view(np.uint64)) >= size)
    if raw.size == 0 or type(raw) is MetaArray or not looks_at_indices(raw):
        return False
    if 0 in raw.strides:  # an expanded index: each number once
        raw = raw[tuple(slice(None if step else 1) for step in raw.strides)]
    return bool(xp_of(raw).max(raw.view(f"u{raw.itemsize}")) >= size)


def watched(raw, index):
    """Returns an Array over `raw`, which was computed from `index`. It has the version counter of `index`."""
    # A formula saves the converted index. If the user changes the original before backward, the shared counter reveals it.
    data = getattr(index, "_mt_data", None)
    if data is not None and data._array is raw:
        return data
    array = Array._wrap(raw)
    array._version_counter = None if data is None else data.shared_version_counter()
    return array


def index_vector(index, name):
    """Returns the raw array of an index tensor with at most one dimension, as a one-dimensional array.

    Raises:
        IndexError: the index has more dimensions.
        RuntimeError: the dtype is not an integer dtype.
    """
    raw = index_raw(index, name)
    if raw.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {raw.ndim} and size: {list(raw.shape)}"
        )
    return raw.reshape(-1)


def index_raw(index, name):
    """Returns the raw array of an index tensor.

    Raises:
        RuntimeError: the dtype is not an integer dtype.
    """
    raw = raw_of(index)
    if raw.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {raw.dtype}.")
    return raw
