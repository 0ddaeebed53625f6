"""Between tensors and raw arrays, for functions that work on NumPy's or CuPy's arrays themselves."""

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import CPU, NO_DATA, MetaArray, device_of, is_raw, to_device, xp_of
from ..base import config
from ..base.capturing import is_recording


def raw_of(x):
    """The raw array of a Tensor or Array; a raw array and None as they are, anything else as a NumPy array."""
    if isinstance(x, Tensor):
        return x._data._array
    if isinstance(x, Array):
        return x._array
    return x if x is None or is_raw(x) else np.asarray(x)


def shape_of(x):
    """The shape of a Tensor, an Array or a raw array, as a plain tuple."""
    data = x._data if isinstance(x, Tensor) else x
    return data._array.shape if isinstance(data, Array) else data.shape


def to_cpu(x):
    """The NumPy array of a tensor or raw array on any device, without a copy where it lies on the CPU."""
    raw = raw_of(x)
    if type(raw) is MetaArray:  # also one that stands for a batch, and has a device
        raise NotImplementedError(NO_DATA)
    return to_device(raw, CPU)


def on_device_of(array, like):
    """A Tensor over an array, which is brought to the device of the tensor `like`."""
    return Tensor._wrap(to_device(array, device_of(raw_of(like))))


def looks_at_indices(raw):
    """Whether an op looks at its indices before it follows them: on the CPU, and with MYTORCH_CHECK_INDICES=1 on a GPU, which it
    then waits for."""
    return (isinstance(raw, np.ndarray) and type(raw) is not MetaArray) or (config.check_indices and not is_recording())


def outside(raw, size):
    """Whether indices leave [0, size), as far as they are looked at."""
    if not (raw.size and looks_at_indices(raw)):
        return False
    return bool(xp_of(raw).max(raw.view(f"u{raw.itemsize}")) >= size)  # read without a sign, what is negative is large


def watched(raw, index):
    """Returns an Array over `raw`, computed from `index`, with the version counter of `index`, which an op that saves it checks."""
    data = getattr(index, "_data", None)
    if data is not None and data._array is raw:
        return data
    array = Array._wrap(raw)
    array._version_counter = None if data is None else data.shared_version_counter()
    return array


def index_vector(index, name):
    """The raw array of an index tensor of at most one axis, as a vector.

    Raises:
        IndexError: it has more. RuntimeError: it holds no integers.
    """
    raw = index_raw(index, name)
    if raw.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {raw.ndim} and size: {list(raw.shape)}"
        )
    return raw.reshape(-1)


def index_raw(index, name):
    """The raw array of an index tensor.

    Raises:
        RuntimeError: it holds no integers.
    """
    raw = raw_of(index)
    if raw.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {raw.dtype}.")
    return raw
