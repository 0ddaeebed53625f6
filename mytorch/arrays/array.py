"""Array: a thin wrapper around one NumPy or CuPy array.

It is the type of `tensor.data`, of `tensor.grad` and of optimizer state: elements without autograd. Ops are also methods
of Array. They run forward only and return Arrays. NumPy functions work on Arrays on both devices and return Arrays, as
in `np.power(a, 2)`.

An Array has two slots:

* `_array`: the raw array.
* `_version_counter`: a list with the version as its only item, or None. It is created when an op saves the array for
  backward, or when a view shares the memory.
"""

import functools
import operator

import numpy as np

from . import (
    address,
    as_device,
    config,
    cuda_available,
    device_guard,
    device_of,
    dtypes,
    gpu,
    is_raw,
    looks_like_cupy,
    on,
    storage_bytes,
    to_device,
    xp_of,
)
from .dlpack import to_dlpack
from .memory_format import axes_in_memory, layout_of, strided
from .others import BY_NAME
from .printing import format_array

_new = object.__new__


def other_device(items):
    """Returns the GPU of the first item that is on a GPU, or None if that GPU is already the current device.

    Args:
        items: Tensors, Arrays, raw arrays and other values, also in lists and tuples.
    """
    where = _first_gpu(items)
    return None if where is None or where.id == xp_of_cuda().cuda.runtime.getDevice() else where


def _first_gpu(items):
    for item in items:
        if isinstance(item, (list, tuple)):
            where = _first_gpu(item)
        else:
            inner = getattr(item, "_mt_data", item)
            raw = inner._array if isinstance(inner, Array) else inner
            where = raw.device if not isinstance(raw, np.ndarray) and is_raw(raw) else None
        if where is not None:
            return where
    return None


def on_input_device(function):
    """Decorates a function on raw arrays, so that the GPU of its first GPU argument is the current device."""

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        if gpu.several_gpus:
            where = other_device((args, tuple(kwargs.values())))
            if where is not None:
                with where:
                    return function(*args, **kwargs)
        return function(*args, **kwargs)

    return guarded


class Array:
    """An n-dimensional array without autograd, on a CPU or a GPU. `x.data` and `x.grad` of a Tensor are Arrays.

    An Array has the methods of `Tensor`, except the autograd methods.

    Args:
        data: numbers, nested lists, a NumPy or CuPy array, an Array or a Tensor. A NumPy array is wrapped, not copied.
        device: device of the array (default: the device of `data`, or the CPU for Python numbers).
        dtype: dtype of the elements (default: the dtype of `data`, or the default dtype for Python floats).

    Example:
        >>> x = mytorch.ones(2, requires_grad=True)
        >>> type(x.data).__name__, (x.data + 1).tolist()
        ('Array', [2.0, 2.0])
    """

    __slots__ = ("__weakref__", "_array", "_version_counter")
    __array_priority__ = 1000
    retains_grad = False
    grad = _grad = grad_fn = edge = _base = _mt_edge = _mt_view = None
    is_leaf = True
    output_nr = 0
    is_quantized = is_mkldnn = is_nested = False
    is_xpu = is_ipu = is_maia = is_mtia = is_vulkan = is_xla = False
    is_meta = property(lambda self: self.device.type == "meta", doc="True if the array is on the `meta` device.")

    def __init__(self, data=(), device=None, dtype=None):
        self._array = as_raw(data, device, dtype)
        self._version_counter = None

    @classmethod
    def _wrap(cls, raw):
        """Returns an Array over a raw array, without checks."""
        self = _new(cls)
        self._array = raw
        self._version_counter = None
        return self

    @property
    def data(self):
        """This Array, so that `p.grad.data` works."""
        return self

    _mt_data = data  # so that `x._mt_data._array` is the raw array of a Tensor and of an Array

    @property
    def dtype(self):
        return dtypes._BY_NUMPY[self._array.dtype]

    @property
    def device(self):
        return device_of(self._array)

    @property
    def shape(self):
        return new_size(self._array.shape)

    @property
    def ndim(self):
        return self._array.ndim

    @property
    def is_cuda(self):
        return type(self._array) is not np.ndarray and self.device.type == "cuda"

    @property
    def itemsize(self):
        return self._array.itemsize

    @property
    def nbytes(self):
        return self._array.nbytes

    def detach_(self):
        """Returns this Array, which has no graph."""
        return self

    @property
    def requires_grad(self):
        """False. Setting it to False has no effect; setting it to True raises an error."""
        return False

    @requires_grad.setter
    def requires_grad(self, value):
        if value:
            raise RuntimeError("An Array cannot record operations. Use the Tensor that array.requires_grad_() returns.")

    def _is_view(self):
        return False

    @property
    def _version(self):
        return 0 if self._version_counter is None else self._version_counter[0]

    def _bump(self):
        """Increments the version after an in-place change."""
        counter = self._version_counter
        if counter is None:
            self._version_counter = [1]
        elif type(counter) is list:
            counter[0] += 1
        else:
            counter[-1] += 1  # an inference tensor raises its error for changes

    def shared_version_counter(self):
        """Returns the version counter, and creates it at the first call."""
        if self._version_counter is None:
            self._version_counter = [0]
        return self._version_counter

    def __len__(self):
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d array")
        return self._array.shape[0]

    def __repr__(self):
        return format_array(self)

    # -- NumPy protocols: NumPy functions run on the device of the array and return Arrays -----------

    def __array__(self, dtype=None, copy=None):
        host = to_device(self._array, as_device("cpu"))
        if not isinstance(host, np.ndarray):
            host.__array__()  # raises an error: this layout has no NumPy array
        if dtype is not None and host.dtype != dtype:
            return host.astype(dtype)
        return host.copy() if copy else host

    @on_input_device
    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        raw = [_unwrap(x) for x in inputs]
        if out is not None:
            kwargs["out"] = tuple(_unwrap(x) for x in out)
        function = ufunc if isinstance(self._array, np.ndarray) else getattr(xp_of(self._array), ufunc.__name__)
        result = getattr(function, method)(*raw, **kwargs) if method != "__call__" else function(*raw, **kwargs)
        if out is not None:
            for x in out:
                if isinstance(x, Array):
                    x._bump()
            return out[0] if len(out) == 1 else out
        return _rewrap(result)

    @on_input_device
    def __array_function__(self, function, types, args, kwargs):
        if not isinstance(self._array, np.ndarray):
            function = getattr(xp_of(self._array), function.__name__)
        return _rewrap(function(*_unwrap(args), **_unwrap(kwargs)))

    @property
    def __cuda_array_interface__(self):
        if isinstance(self._array, np.ndarray):
            raise AttributeError("__cuda_array_interface__: this Array is on the CPU.")
        return self._array.__cuda_array_interface__

    def __dlpack__(self, stream=None, **kwargs):
        return to_dlpack(self._array, stream, **kwargs)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __reduce__(self):
        if layout_of(self._array) is not strided:
            return Array._wrap, (self._array,)
        host = np.asarray(self)
        axes = axes_in_memory(host, None)
        if axes is None:
            return _restore, (host, str(self.device))
        return _restore, (np.ascontiguousarray(host.transpose(axes)), str(self.device), axes)

    def __deepcopy__(self, memo):
        raw = self._array
        with device_guard(raw):
            if type(raw) is not np.ndarray or not raw.size:
                return Array._wrap(raw.copy())
            # Copies of views of one memory share the copy of that memory.
            whole = storage_bytes(raw)
            key = "memory", address(whole)
            if key not in memo:
                copied = raw.copy("K") if raw.base is None else None
                if copied is None:  # memory of the dtype of its views, as `save` requires to share memory
                    memo[key] = np.empty(-(-whole.size // raw.itemsize), raw.dtype)
                    memo[key].view("u1")[: whole.size] = whole
                else:
                    memo[key] = storage_bytes(copied)
                if copied is not None:
                    return Array._wrap(copied)
            start = address(raw) - address(whole)
            return Array._wrap(np.ndarray(raw.shape, raw.dtype, memo[key], start, raw.strides))


class Size(tuple):
    """The shape of a tensor: a tuple of ints.

    Example:
        >>> size = mytorch.zeros(2, 3).shape
        >>> size, size.numel(), size == (2, 3)
        (mytorch.Size([2, 3]), 6, True)
    """

    __slots__ = ()

    def __new__(cls, sizes=()):
        return tuple.__new__(cls, map(operator.index, sizes))

    def numel(self):
        """Returns the number of elements of an array of this shape."""
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self):
        return f"{config.torch_name()}.Size({list(self)})"

    def __getitem__(self, key):
        try:
            got = tuple.__getitem__(self, key)
        except IndexError:
            n = len(self) or 1
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {key})"
            ) from None
        return new_size(got) if isinstance(key, slice) else got

    def __add__(self, other):
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other):
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count):
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__


new_size = functools.partial(tuple.__new__, Size)  # without a check of the sizes


def as_raw(data, device=None, dtype=None):
    """Returns the raw array of `data`, converted to `device` and `dtype` if they are not None.

    Raises:
        TypeError: an item of `data` is not a number.
        ValueError: nested lists have different lengths.
    """
    wanted = None if dtype is None else dtypes.as_numpy(dtype)
    data = getattr(data, "_mt_data", data)
    if isinstance(data, Array):
        raw = data._array
    elif is_raw(data) or looks_like_cupy(data):
        raw = data
    elif hasattr(data, "__cuda_array_interface__") and device is not None and as_device(device).type == "cuda":
        raw = xp_of_cuda().asarray(data)
    elif isinstance(data, np.generic) or hasattr(data, "__array__"):
        raw = data.elements(dtype) if hasattr(data, "elements") else np.asarray(data)
    else:
        return _from_python(data, device, wanted)
    if raw.dtype not in dtypes._BY_NUMPY:
        raw = raw.astype(dtypes.from_numpy(raw.dtype).numpy)
    if wanted is not None and raw.dtype != wanted:
        raw = raw.astype(wanted)
    return raw if device is None else to_device(raw, as_device(device))


def place_for(data, device):
    """Returns the device for a new tensor of `data`: `device` if it is given, the default device for NumPy data.

    None stands for the current device of `data`.
    """
    return as_device(None) if device is None and isinstance(data, (np.ndarray, np.generic)) else device


def xp_of_cuda():
    """Returns the CuPy namespace; see arrays/gpu.py."""
    return on(as_device("cuda"))[0]


def _from_python(data, device, wanted):
    """Returns a raw array of numbers, nested sequences, or sequences of arrays."""
    try:
        plain = _plain(data)
    except RecursionError:
        raise TypeError("new(): self-referential lists are incompatible with tensors.") from None
    try:
        host = np.asarray(plain)
    except ValueError:
        raise _uneven(plain) from None
    if host.dtype == object and wanted is None and any(isinstance(x, float) for x in host.flat):
        host = host.astype(np.float64)
    if host.dtype == object and (wanted is None or wanted.kind in "iu"):  # ints of more than 64 bits
        raise ValueError(f"Overflow when unpacking long: value {max(host.flat, key=abs)} is out of range for int64.")
    if wanted is None:
        wanted = dtypes.from_numpy(host.dtype)
        holds_arrays = _holds_arrays(data)
        if holds_arrays and isinstance(data, (list, tuple)):
            wanted = _common(data)
        elif wanted.category == dtypes.COMPLEX and not holds_arrays:
            wanted = dtypes.default_dtype().to_complex()
        elif (wanted.category == dtypes.FLOAT or host.size == 0) and not holds_arrays:
            wanted = dtypes.default_dtype()
        elif host.dtype == np.uint64 and not holds_arrays:
            raise ValueError(f"Overflow when unpacking long: value {host.max()} is out of range for int64.")
        wanted = wanted.numpy
    if host.dtype != wanted:
        if (
            host.dtype.kind == "f"
            and type(data) in (float, list, tuple)
            and wanted.kind in "iu"
            and not _holds_arrays(data)
        ):
            for value in host.flat:
                dtypes.fitting(float(value), dtypes.from_numpy(wanted))
        _check_fits(host, wanted)
        host = host.astype(wanted, copy=False)
    return to_device(host, as_device(device))


def _check_fits(host, wanted):
    """Checks that Python numbers can be converted to a dtype.

    Raises:
        TypeError: complex numbers for a real dtype.
        RuntimeError: ints outside of the range that PyTorch accepts for the dtype.
    """
    if host.dtype.kind == "c" and wanted.kind not in "cb":
        raise TypeError(f"can't make complex numbers into {wanted}.")
    if host.dtype.kind in "iu" and wanted.kind in "iu" and host.size:
        info = np.iinfo(wanted)
        low = -int(info.max) if wanted.kind == "u" else int(info.min)  # -1 may become 255
        if int(host.max()) > info.max or int(host.min()) < low:
            raise RuntimeError(f"value cannot be converted to type {wanted} without overflow")


def _common(data):
    """Returns the promoted dtype of nested sequences that contain tensors or arrays."""
    if isinstance(data, (list, tuple)):
        found = [_common(item) for item in data]
        result = found[0] if found else dtypes.default_dtype()
        for d in found[1:]:
            result = dtypes.promote_types(result, d)
        return result
    own = getattr(data, "dtype", None)
    return dtypes.of_number(data) if own is None else dtypes.as_dtype(own)


def _plain(data):
    """Replaces Tensors and Arrays in nested sequences by NumPy arrays."""
    if isinstance(data, (list, tuple)):
        return [_number(x) for x in data]
    if isinstance(data, (str, bytes)):
        raise TypeError(f"can't make a tensor of {type(data).__name__} {data!r}; expected numbers.")
    if isinstance(data, (dict, set)) or data is None:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}: {data!r}; expected numbers.")
    inner = getattr(data, "_mt_data", data)
    return np.asarray(inner) if isinstance(inner, Array) else data


def _number(item):
    """Returns an item of a sequence as `_plain` does, and a tensor of one element as a number."""
    plain = _plain(item)
    if isinstance(getattr(item, "_mt_data", None), Array):
        if plain.size == 1:
            return plain.reshape(())
        if config.pytorch_mode:
            raise ValueError("only one element tensors can be converted to Python scalars")
    return plain


def _uneven(data):
    """Returns PyTorch's error for nested sequences and arrays of different lengths."""
    level, dim = [data], 0
    while level and all(isinstance(item, (list, tuple)) or getattr(item, "ndim", 0) for item in level):
        odd = next((item for item in level if len(item) != len(level[0])), None)
        if odd is not None:
            return ValueError(f"expected sequence of length {len(level[0])} at dim {dim} (got {len(odd)})")
        level, dim = [inner for item in level for inner in item], dim + 1
    return TypeError(f"not a sequence: expected numbers or sequences of one length at dim {dim}, got both")


def _holds_arrays(data):
    """Returns True if nested sequences contain arrays, which then decide the dtype."""
    if isinstance(data, (list, tuple)):
        return any(map(_holds_arrays, data))
    return hasattr(data, "dtype")


def _unwrap(x):
    """Replaces Arrays and Tensors by raw arrays, also in containers."""
    inner = getattr(x, "_mt_data", x)
    if isinstance(inner, Array):
        return inner._array
    if isinstance(x, (list, tuple)):
        return type(x)(_unwrap(item) for item in x)
    if isinstance(x, dict):
        return {key: _unwrap(value) for key, value in x.items()}
    return x


def _rewrap(x):
    """Replaces raw arrays and NumPy scalars by Arrays, also in containers."""
    if is_raw(x):
        return Array._wrap(x)
    if isinstance(x, np.generic) and x.dtype in dtypes._BY_NUMPY:
        return Array._wrap(np.asarray(x))
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(_rewrap(item) for item in x)
    return x


def _restore(host, where, axes=None):
    """Returns a pickled Array. If its device is not available, the Array is on the CPU. `axes`: axes in the order of memory."""
    there = where.startswith("cuda") and cuda_available()
    array = Array(host, device=where if there or where in BY_NAME else "cpu")
    return array if axes is None else Array._wrap(array._array.transpose(np.argsort(axes)))
