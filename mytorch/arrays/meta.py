"""The meta device: arrays that have a shape and a dtype, and no memory.

`MetaArray` is a NumPy array whose elements all share one element's memory (strides of 0), so that NumPy's functions compute shapes and
dtypes. Writing has no effect, and reading raises.
"""

from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import dtypes
from .namespaces import Namespace, ndarray, numpy_ns

NO_DATA = (
    "Cannot copy out of meta tensor; no data! Please use Module.to_empty() instead of Module.to() when moving a module from meta to a "
    "different device, or load_state_dict(assign=True)."
)


def _refuse(*args, **kwargs):
    raise NotImplementedError(NO_DATA)


_FLAGS, _STRIDED = (
    SimpleNamespace(c_contiguous=contiguous, f_contiguous=False, writeable=True, owndata=True)
    for contiguous in (True, False)
)


class MetaArray(ndarray):
    """Array with a shape and a dtype, but no data."""

    # within vmap: the batch that it stands for, its elements there, their device (autograd/batching.py)
    batch = value = home = None

    @property  # type: ignore[misc]
    def flags(self):
        """Flags of the array it represents within vmap, or of a contiguous array of this shape."""
        if self.batch is None or not self.size:
            return _FLAGS
        steps = zip(self.shape, self.strides, self._row_major(), strict=True)
        return _FLAGS if all(a == b for n, a, b in steps if n > 1) else _STRIDED

    @property  # type: ignore[misc]
    def strides(self):
        """Strides of the array it represents within vmap, or of a contiguous array of this shape."""
        return self._row_major() if self.batch is None else self.value._mt_data._array.strides[1:]

    def _row_major(self):
        return tuple((self.itemsize * np.cumprod((1, *self.shape[:0:-1]))[::-1]).tolist()) if self.ndim else ()

    def __setitem__(self, index, value):
        pass

    def __getitem__(self, index):
        return emptied(ndarray.__getitem__(self.view(ndarray), index))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        return emptied(getattr(ufunc, method)(*filled(inputs), **options))

    def __array_function__(self, function, types, args, kwargs):
        return emptied(function(*filled(args), **{k: filled((v,))[0] for k, v in kwargs.items()}))

    def fill(self, value):
        """Does nothing: there is no data."""

    def astype(self, dtype, **_):
        """Returns an array of the same shape with another dtype."""
        return self._of(hollow(self.shape, dtype), lambda value: value.to(dtypes.as_dtype(dtype)))

    def reshape(self, *shape, **_):
        """Returns an array with another shape."""
        made = hollow(ndarray.reshape(self, *shape).shape, self.dtype)
        return self._of(made, lambda value: value.reshape(len(value), *made.shape))

    def _of(self, made, change):
        """Returns `made`; within vmap, it represents `change` applied to the elements that self represents."""
        if self.batch is not None:
            made.batch, made.home = self.batch, self.home
            with self.batch.outside():
                made.value = change(self.value)
        return made

    def copy(self, order="C"):
        """Returns a new array of the same shape and dtype."""
        return hollow(self.shape, self.dtype)

    item = tolist = tobytes = nonzero = __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse


def hollow(shape, dtype=np.float64):
    """Returns an array with a shape and a dtype but no data."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    return as_strided(np.zeros((), dtype), shape, (0,) * len(shape)).view(MetaArray)


def as_hollow_zeros(raw):
    """Returns zeros like raw on the CPU, with the memory of one element, to compute the shape of an op's result."""
    return as_strided(np.zeros((), raw.dtype), raw.shape, (0,) * raw.ndim)


def filled(values):
    """Returns values, also in nested lists, with meta arrays replaced by NumPy arrays of zeros."""
    return [
        v.view(ndarray) if type(v) is MetaArray else type(v)(filled(v)) if type(v) in (list, tuple) else v
        for v in values
    ]


def emptied(x):
    """Returns x, or the arrays in it, as meta arrays."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(emptied, x)) if type(x) in (tuple, list) else x
    return hollow(x.shape, x.dtype) if isinstance(x, (ndarray, np.generic)) else x


class _Meta(Namespace):
    """NumPy's namespace with results converted to meta arrays."""

    def __getattr__(self, name):
        if name in ("nonzero", "flatnonzero", "argwhere", "unique"):  # the shape of the result depends on the data
            return _refuse
        function = getattr(numpy_ns, name)
        if not callable(function) or isinstance(function, type):
            return function
        return lambda *args, **kwargs: emptied(function(*args, **kwargs))


meta_ns = _Meta(
    np,
    kind="meta",
    empty=hollow,
    zeros=hollow,
    ones=hollow,
    full=lambda shape, value, dtype=None: hollow(shape, dtype or np.asarray(value).dtype),
    cast=lambda x, dtype: hollow(x.shape, dtype),
)
