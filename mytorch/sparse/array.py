"""SparseArray: the raw array of a sparse tensor.

A sparse tensor is a Tensor, or an Array, over a SparseArray instead of a NumPy array. The engine stores and adds sparse
gradients like any raw arrays. `operators.py` runs the operations on them.
"""

import functools
import sys
from types import SimpleNamespace

import numpy as np

from ..arrays import CPU, device_of, dtypes, ndarray, on, to_device
from ..arrays.array import Array, Size
from ..arrays.others import BY_ARRAY
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..ops.dispatch.layouts import refusal
from .pattern import COMPRESSED, Pattern, sparse_coo


class _Namespace:
    """The namespace of sparse arrays on a device: its functions create dense arrays."""

    kind = "sparse"

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        return getattr(on(self.device)[0], name)

    def address(self, raw):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage. Use values().")


def _with_dense(name):
    """Returns an operator that computes with Tensors over the arrays."""

    def operator(self, *others):
        with no_grad():
            others = [Tensor._wrap(o) if hasattr(o, "dtype") and hasattr(o, "ndim") else o for o in others]
            result = getattr(Tensor._wrap(self), name)(*others)
        return result._mt_data._array

    return operator


class _DenseOnly(NotImplementedError, AttributeError):
    """The error of a function that reads the memory of dense arrays. `hasattr` returns False for its methods."""


_OPERATORS = {"add": "__add__", "subtract": "__sub__", "multiply": "__mul__"}  # NumPy's functions -> methods of Tensor


class SparseArray:
    """The stored elements of a tensor: their positions and values.

    Attributes:
        pattern: the positions.
        values: raw array of the values. Its first dimension counts the elements; the other dimensions are dense.
        shape: sizes of the sparse and of the dense dimensions.
        dtype: NumPy dtype of the values.
    """

    __slots__ = ("__weakref__", "dtype", "pattern", "shape", "values")
    base = None
    strides = ()
    # Gradients are replaced, not changed in place.
    flags = SimpleNamespace(c_contiguous=False, f_contiguous=True, writeable=False)

    def __init__(self, pattern, values):
        self._set(pattern, values)

    def _set(self, pattern, values):
        self.pattern, self.values = pattern, values
        self.shape = pattern.sizes + tuple(values.shape[1:])
        self.dtype = values.dtype

    @staticmethod
    def of(pattern, values):
        """Returns a sparse array of the class for the device of the values."""
        return _class_for(device_of(values))(pattern, values)

    tensor_layout = property(lambda self: self.pattern.layout)
    device = property(lambda self: None if isinstance(self.values, ndarray) else self.values.device)
    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)

    @property
    def size(self):
        """The number of elements of the dense shape."""
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def nbytes(self):
        """The memory of the values and positions in bytes."""
        pattern = self.pattern
        parts = (pattern.indices,) if pattern.layout is sparse_coo else (pattern.pointers, pattern.inner)
        return self.values.nbytes + sum(p.nbytes for p in parts)

    def item(self):
        """Returns the only element of an array of size 1."""
        return Tensor._wrap(self).to_dense()._mt_data._array.item()

    def __bool__(self):
        return bool(self.item())

    def __getattr__(self, name):
        if name[:2] != "__" and hasattr(ndarray, name):
            raise _DenseOnly(*refusal(name, self.pattern.layout).args)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def copy(self, order="K"):
        """Returns a copy of the values with the same pattern."""
        return type(self)(self.pattern, self.values.copy())

    def conj(self):
        """Returns the complex conjugate."""
        return type(self)(self.pattern, self.values.conj())

    def astype(self, dtype, copy=True):
        """Returns a copy with another dtype."""
        return type(self)(self.pattern, self.values.astype(dtype))

    def fill(self, value):
        """Removes all elements; `value` must be 0."""
        if value != 0:
            raise RuntimeError(f"fill_: expected 0 for a sparse tensor, got {value}. Call to_dense() first.")
        self._set(*emptied(self))

    def __setitem__(self, key, value):
        if key is Ellipsis and not hasattr(value, "dtype"):
            self.fill(value)
            return
        if key is not Ellipsis:
            raise TypeError("Cannot assign to a sparse tensor. Use to_dense(), or create a new tensor.")
        if not isinstance(value, SparseArray):
            raise RuntimeError(
                "copy_() between dense and sparse Tensors is not implemented. Use to_sparse() or to_dense()."
            )
        values = value.values if value.dtype == self.dtype else value.values.astype(self.dtype)
        self._set(value.pattern, values)

    def text(self, tensor):
        """Returns PyTorch's text of a sparse tensor."""
        style = sys.modules["mytorch"]._torch_layout
        pattern, coo, prefix = self.pattern, self.pattern.layout is sparse_coo, "tensor("
        indent = len(prefix)

        def part(name, raw):
            start = f"{name}=tensor("
            text = style._numbers(style.to_host(raw), indent + len(start))
            return f"{start}{text}{f', size={tuple(raw.shape)}' if not raw.size else ''})"

        if coo:
            parts = [part("indices", pattern.indices), part("values", self.values)]
        else:
            outer, inner = COMPRESSED[pattern.layout]
            parts = [
                part(f"{outer}_indices", pattern.pointers),
                part(f"{inner}_indices", pattern.inner),
                part("values", self.values.reshape(*pattern.inner.shape, *self.values.shape[1:])),
            ]
        suffixes = [f"device='{tensor.device}'"] if tensor.device is not CPU else []
        suffixes += [f"size={tuple(self.shape)}", f"nnz={pattern.count if coo else pattern.inner.shape[-1]}"]
        if not style.dtype_is_plain(tensor.dtype):
            suffixes.append(f"dtype={tensor.dtype}")
        suffixes.append(f"layout={pattern.layout!r}")
        if tensor.grad_fn is not None:
            suffixes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
        elif tensor.requires_grad:
            suffixes.append("requires_grad=True")
        text = prefix + (",\n" + " " * indent).join(parts)
        if coo:
            text += ",\n" + " " * indent + suffixes.pop(0)
        return style._with_suffixes(text, suffixes, indent)

    def __array__(self, dtype=None, copy=None):
        raise TypeError(f"can't convert {words(self)} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __reduce__(self):
        pattern = self.pattern
        if pattern.layout is sparse_coo:
            parts = (pattern.indices,)
        else:
            parts = (pattern.pointers, pattern.inner)
        parts = tuple(to_device(p, CPU) for p in (*parts, self.values))
        return _restored, (pattern.layout, pattern.sizes, pattern.coalesced, parts, str(device_of(self)))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        """Computes the operators of a NumPy array and a sparse array, also in place, as in `array += sparse`."""
        name = _OPERATORS.get(ufunc.__name__)
        if name is None or method != "__call__" or kwargs:
            return NotImplemented
        with no_grad():
            result = getattr(Tensor._wrap(inputs[0]), name)(Tensor._wrap(inputs[1]))._mt_data._array
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def in_file(self):
        """Returns the arguments of PyTorch's function that rebuilds a sparse tensor from a file."""
        pattern, values = self.pattern, Tensor._wrap(self.values)
        if pattern.layout is sparse_coo:
            return pattern.layout, (Tensor._wrap(pattern.indices), values, Size(self.shape), pattern.coalesced)
        parts = Tensor._wrap(pattern.pointers), Tensor._wrap(pattern.inner)
        values = values.reshape(*pattern.inner.shape, *values.shape[1:])
        return pattern.layout, (*parts, values, Size(self.shape))

    __add__, __radd__ = _with_dense("__add__"), _with_dense("__radd__")
    __sub__, __rsub__ = _with_dense("__sub__"), _with_dense("__rsub__")
    __mul__, __rmul__ = _with_dense("__mul__"), _with_dense("__mul__")
    __truediv__, __neg__ = _with_dense("__truediv__"), _with_dense("__neg__")


def emptied(raw):
    """Returns (pattern, values) of a sparse array without elements."""
    old = raw.pattern
    xp = on(device_of(raw))[0]
    values = xp.zeros((0, *raw.values.shape[1:]), raw.dtype)
    if old.layout is sparse_coo:
        return Pattern(sparse_coo, old.sizes, xp.zeros((old.dims, 0), np.int64), coalesced=True), values
    pointers = xp.zeros(old.pointers.shape, old.pointers.dtype)
    inner = xp.zeros((*old.batch, 0), old.inner.dtype)
    return Pattern(old.layout, old.sizes, pointers=pointers, inner=inner), values


def words(raw):
    """Returns PyTorch's name of the layout of a sparse array in errors."""
    return {"sparse_coo": "Sparse", "sparse_csr": "SparseCsr"}.get(raw.pattern.layout, "SparseCsc")


def _restored(layout, sizes, coalesced, parts, where):
    from ..arrays import cuda_available

    if where.startswith("cuda") and cuda_available():
        from ..arrays import as_device

        parts = tuple(to_device(p, as_device(where)) for p in parts)
    *positions, values = parts
    names = ("indices",) if layout == sparse_coo else ("pointers", "inner")
    return SparseArray.of(
        Pattern(layout, sizes, **dict(zip(names, positions, strict=True)), coalesced=coalesced), values
    )


@functools.cache
def _class_for(device):
    """Returns the class of sparse arrays on a device. The backend finds the device of an array by its class."""
    cls = SparseArray if device is CPU else type("SparseArray", (SparseArray,), {"__slots__": ()})
    BY_ARRAY[cls] = _Namespace(device)
    return cls


_class_for(CPU)


def is_sparse(x):
    """Returns True if a value is a Tensor or Array of sparse layout."""
    return isinstance(x, (Tensor, Array)) and isinstance(x._mt_data._array, SparseArray)


def raw_of(x):
    """Returns the raw array of a Tensor or Array."""
    return x._mt_data._array


def dtype_of(raw):
    """Returns the dtype of a raw array."""
    return dtypes.from_numpy(raw.dtype)
