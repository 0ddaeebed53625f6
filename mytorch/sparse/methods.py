"""Methods of tensors for sparse layouts. `_extensions.py` lists the names that load this module.

Some attributes of Tensor and Array read the raw array directly, such as `layout`, `repr` and `numpy`. This module replaces
them by versions for all layouts.
"""

import functools
import math
import sys

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import CPU, xp_of
from ..backend.memory_format import strided
from ..dispatch.bind import found_by_pickle
from ..ops.movement import as_shape
from . import layouts, operators
from .array import SparseArray, _words, emptied, is_sparse, raw_of
from .layouts import layout_of
from .links import build, from_dense, pattern_of, read_at, values_of
from .links import coalesce as merge
from .links import to_dense as as_dense
from .pattern import COMPRESSED, Pattern, sparse_coo, sparse_csc, sparse_csr


def _tensor(x):
    return x if isinstance(x, Tensor) else Tensor._of(x._data)


def _layout_name(x):
    return _words(raw_of(x)) if is_sparse(x) else "Strided"


def _need(x, name, kind, *layouts):
    """Raises an error if a tensor has another layout."""
    if not is_sparse(x) or pattern_of(x).layout not in layouts:
        raise RuntimeError(f"{name} expected {kind} tensor layout but got {_layout_name(x)}")
    return _tensor(x)


# -- conversion --------------------------------------------------------------------------------------------------------


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """Returns this tensor with a sparse layout. The result stores the elements that are not zero.

    Args:
        sparse_dim: number of sparse dimensions; the other dimensions are dense (default: all dimensions).
        layout: `mytorch.sparse_coo` (default), `mytorch.sparse_csr` or `mytorch.sparse_csc`.
        blocksize: must be None; layouts of blocks are not supported (default: None).
        dense_dim: number of dense dimensions of a CSR or CSC tensor (default: None).

    Returns:
        A sparse tensor. The tensor itself, if it has this layout.

    Raises:
        NotImplementedError: a layout of blocks.
        RuntimeError: `sparse_dim` is out of range, or `sparse_dim` and `layout` are given together.

    Example:
        >>> x = tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse()
        >>> x.indices().tolist(), x.values().tolist()
        ([[0, 1], [1, 0]], [3.0, 4.0])

    See also: `Tensor.to_dense`, `Tensor.to_sparse_csr`.
    """
    x = _tensor(self)
    if isinstance(sparse_dim, str):
        sparse_dim, layout = None, sparse_dim
    if blocksize is not None:
        if len(blocksize) != 2:
            raise RuntimeError(
                f"to_sparse: expected blocksize to be two sizes, but got {len(blocksize)}. Omit blocksize."
            )
        raise NotImplementedError("to_sparse: expected blocksize=None, got layouts of blocks. Use sparse_csr.")
    if layout is not None and layout not in (sparse_coo, sparse_csr, sparse_csc):
        if layout == strided:
            return to_dense(self)
        raise NotImplementedError(
            f"to_sparse: expected sparse_coo, sparse_csr or sparse_csc, got {layout!r}. Use sparse_csr."
        )
    if sparse_dim is not None:
        if layout not in (None, sparse_coo):
            raise RuntimeError("to_sparse: expected sparse_dim or a compressed layout, got both. Omit sparse_dim.")
        lowest = 1 if x.ndim else 0
        if not lowest <= sparse_dim <= x.ndim:
            raise RuntimeError(f"to_sparse: expected sparse_dim between {lowest} and {x.ndim}, got {sparse_dim}.")
    if layout in COMPRESSED:
        return _compressed(x, layout, dense_dim)
    if is_sparse(x):
        if sparse_dim is not None and sparse_dim != pattern_of(x).dims:
            raise RuntimeError(
                f"to_sparse: expected sparse_dim {pattern_of(x).dims} for a sparse tensor, got {sparse_dim}. Call to_dense() first."
            )
        return operators.to_coo(x)
    return from_dense(x, sparse_dim)


def _compressed(x, layout, dense_dim=None):
    if not is_sparse(x):
        dims = x.ndim - (dense_dim or 0)
        if dims < 2:
            raise RuntimeError(
                f"to_{layout.name}: expected a tensor with two sparse dimensions, got {x.ndim} dimensions. Pass dense_dim, or "
                "reshape the tensor."
            )
        if 0 in x.shape[: dims - 2]:
            raise RuntimeError(
                f"to_{layout.name}: Expected product of batch dimensions to be non-zero, got size {tuple(x.shape)}. Use sparse_coo."
            )
        x = from_dense(x, dims)
    elif pattern_of(x).layout is sparse_coo and pattern_of(x).dims != 2:
        raise RuntimeError(
            f"to_{layout.name}: expected two sparse dimensions, got {pattern_of(x).dims}. Use a matrix, or pass dense_dim."
        )
    return operators.to_compressed(x, layout)


def to_sparse_coo(self):
    """Returns this tensor in COO layout.

    Example:
        >>> mytorch.eye(2).to_sparse_coo().layout
        torch.sparse_coo
    """
    return to_sparse(self)


def to_sparse_csr(self, dense_dim=None):
    """Returns this matrix in CSR layout.

    Args:
        dense_dim: number of dense dimensions (default: 0).

    Raises:
        RuntimeError: the tensor does not have two sparse dimensions.

    Example:
        >>> x = tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse_csr()
        >>> x.crow_indices().tolist(), x.col_indices().tolist()
        ([0, 1, 2], [1, 0])
    """
    return _compressed(_tensor(self), sparse_csr, dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """Returns this matrix in CSC layout.

    Args:
        dense_dim: number of dense dimensions (default: 0).

    Example:
        >>> x = tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse_csc()
        >>> x.ccol_indices().tolist(), x.row_indices().tolist()
        ([0, 1, 2], [1, 0])
    """
    return _compressed(_tensor(self), sparse_csc, dense_dim)


def to_dense(self, dtype=None, *, masked_grad=None):
    """Returns this tensor with the usual dense layout, in which all elements are stored.

    Args:
        dtype: dtype of the result (default: the dtype of the tensor).
        masked_grad: False for a gradient at all positions, otherwise at the stored positions only (default: None).

    Returns:
        A dense tensor. The tensor itself, if it is dense.

    Example:
        >>> mytorch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)).to_dense().tolist()
        [3.0, 0.0, 0.0]
    """
    x = as_dense(_tensor(self), masked_grad is not False, operators.to_layout) if is_sparse(self) else self
    return x if dtype is None else x.to(dtype)


def sparse_mask(self, mask):
    """Returns the elements of this tensor at the positions of a sparse tensor.

    Args:
        mask: sparse tensor of the same size, which selects the positions.

    Returns:
        A sparse tensor with the positions of `mask`.

    Raises:
        RuntimeError: the sizes differ, or `mask` is dense.

    Example:
        >>> mask = mytorch.eye(2).to_sparse()
        >>> tensor([[1.0, 2.0], [3.0, 4.0]]).sparse_mask(mask).values().tolist()
        [1.0, 4.0]
    """
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): expected a sparse mask, got a dense tensor. Call to_sparse() on the mask.")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size {list(mask.shape)}"
        )
    return build(read_at(_tensor(self), pattern_of(mask)), pattern_of(mask))


# -- elements ----------------------------------------------------------------------------------------------------------


def coalesce(self):
    """Returns this COO tensor with sorted and distinct positions. Values at one position are added.

    Raises:
        RuntimeError: the tensor has another layout.

    Example:
        >>> mytorch.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (2,)).coalesce().values().tolist()
        [5.0]
    """
    return merge(_need(self, "coalesce", "sparse coordinate", sparse_coo))


def is_coalesced(self):
    """Returns True if the positions of this COO tensor are sorted and distinct.

    Example:
        >>> mytorch.eye(2).to_sparse().is_coalesced()
        True
    """
    _need(self, "is_coalesced", "sparse coordinate", sparse_coo)
    return pattern_of(self).coalesced


def _coalesced_(self, coalesced):
    """Sets the mark that the positions are sorted and distinct, which the caller has checked."""
    raw = raw_of(_need(self, "_coalesced_", "sparse coordinate", sparse_coo))
    old = raw.pattern
    raw.pattern = Pattern(sparse_coo, old.sizes, old.indices, coalesced=bool(coalesced))
    return self


def indices(self):
    """Returns the index of each element in each sparse dimension, int64 (sparse dimensions, elements). A copy.

    Raises:
        RuntimeError: the tensor is not coalesced, or it has another layout.

    Example:
        >>> mytorch.eye(2).to_sparse().indices().tolist()
        [[0, 1], [0, 1]]
    """
    x = _need(self, "indices", "sparse coordinate", sparse_coo)
    if not pattern_of(x).coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return _indices(self)


def _indices(self):
    """Returns the index of each element in each sparse dimension, also for a tensor that is not coalesced. A copy."""
    x = _need(self, "_indices", "sparse coordinate", sparse_coo)
    return Tensor._wrap(pattern_of(x).indices.copy())


def values(self):
    """Returns the values of the elements (elements, *dense sizes). They share the memory of the sparse tensor.

    Raises:
        RuntimeError: the tensor is not coalesced, or it is dense.

    Example:
        >>> mytorch.eye(2).to_sparse().values().tolist()
        [1.0, 1.0]
    """
    x = _need(self, "values", "sparse", *_ALL)
    if not pattern_of(x).coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return _by_matrix(values_of(x), pattern_of(x))


def _values(self):
    """Returns the values of the elements, also for a tensor that is not coalesced, without autograd."""
    raw = raw_of(_need(self, "_values", "sparse", *_ALL))
    return _by_matrix(Tensor._wrap(raw.values), raw.pattern)


def _by_matrix(values, pattern):
    """Returns the values with the batch dimensions of compressed layouts."""
    return values.reshape(*pattern.inner.shape, *values.shape[1:]) if pattern.batch else values


_ALL = (sparse_coo, sparse_csr, sparse_csc)


def _compressed_part(name, layout, part, kind):
    def method(self):
        x = _need(self, name, kind, layout)
        return Tensor._wrap(getattr(pattern_of(x), part).copy())

    method.__name__ = method.__qualname__ = name
    return method


crow_indices = _compressed_part("crow_indices", sparse_csr, "pointers", "sparse row compressed")
crow_indices.__doc__ = "Returns the position of the first element of each row of a CSR tensor. A copy."
col_indices = _compressed_part("col_indices", sparse_csr, "inner", "sparse row compressed")
col_indices.__doc__ = "Returns the column of each element of a CSR tensor. A copy."
ccol_indices = _compressed_part("ccol_indices", sparse_csc, "pointers", "sparse column compressed")
ccol_indices.__doc__ = "Returns the position of the first element of each column of a CSC tensor. A copy."
row_indices = _compressed_part("row_indices", sparse_csc, "inner", "sparse column compressed")
row_indices.__doc__ = "Returns the row of each element of a CSC tensor. A copy."


def _nnz(self):
    """Returns the number of stored elements of a sparse tensor; of one matrix for a batch of CSR or CSC matrices."""
    pattern = pattern_of(_need(self, "_nnz", "sparse", *_ALL))
    return pattern.inner.shape[-1] if pattern.layout in COMPRESSED else pattern.count


def sparse_dim(self):
    """Returns the number of sparse dimensions; 0 for a dense tensor.

    Example:
        >>> mytorch.eye(2).to_sparse().sparse_dim()
        2
    """
    return pattern_of(self).dims - len(pattern_of(self).batch) if is_sparse(self) else 0


def dense_dim(self):
    """Returns the number of dense dimensions.

    Example:
        >>> mytorch.eye(2).to_sparse(1).dense_dim()
        1
    """
    return self.ndim - pattern_of(self).dims if is_sparse(self) else self.ndim


def sparse_resize_(self, size, sparse_dim, dense_dim):
    """Changes the sizes of a COO tensor in place. Elements must stay within the new sizes.

    Args:
        size: the new sizes.
        sparse_dim: number of sparse dimensions.
        dense_dim: number of dense dimensions.

    Raises:
        RuntimeError: the number of dimensions changes although there are elements, or a size of a tensor with elements shrinks.
    """
    x = _need(self, "sparse_resize_", "sparse coordinate", sparse_coo)
    return _resize(self, raw_of(x), size, sparse_dim, dense_dim)


def sparse_resize_and_clear_(self, size, sparse_dim, dense_dim):
    """Removes all elements of a COO tensor and changes its sizes in place.

    Args:
        size: the new sizes.
        sparse_dim: number of sparse dimensions.
        dense_dim: number of dense dimensions.
    """
    x = _need(self, "sparse_resize_and_clear_", "sparse coordinate", sparse_coo)
    raw_of(x)._set(*emptied(raw_of(x)))
    return _resize(self, raw_of(x), size, sparse_dim, dense_dim)


def _resize(self, raw, size, sparse_dim, dense_dim):
    size = tuple(size)
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got {len(size)}"
        )
    old, count = raw.pattern, raw.pattern.count
    xp = xp_of(old.indices)
    if count and (sparse_dim != old.dims or dense_dim != raw.ndim - old.dims):
        raise RuntimeError(
            "sparse_resize_: expected the same numbers of dimensions for a tensor with elements. Clear it first."
        )
    if count and any(n < m for n, m in zip(size, raw.shape, strict=True)):
        raise RuntimeError(
            f"sparse_resize_: expected sizes of at least {tuple(raw.shape)} for a tensor with elements, got {size}. Clear it first."
        )
    shape = (count, *size[sparse_dim:])
    values = xp.zeros(math.prod(shape), raw.dtype)
    values[: raw.values.size] = raw.values.reshape(-1)  # like resize_, which keeps the order in memory
    values = values.reshape(shape)
    indices = old.indices if count else xp.zeros((sparse_dim, 0), np.int64)
    raw._set(Pattern(sparse_coo, size[:sparse_dim], indices, coalesced=old.coalesced), values)
    self._data._bump()
    return self


def smm(input, mat2):
    """Returns the product of a sparse and a dense matrix as a sparse tensor.

    Args:
        mat2: dense matrix.
    """
    return to_sparse(operators.matrix_product(_tensor(input), mat2))


# -- attributes that read the raw array --------------------------------------------------------------------------------


def _replace(name, function, *classes):
    """Replaces a method of sparse tensors. Dense tensors keep the method."""
    library = vars(sys.modules["mytorch"])
    for cls in classes or (Array, Tensor):
        before = getattr(cls, name)

        def method(self, *args, _before=before, **kwargs):
            if isinstance(self._data._array, SparseArray):
                return function(self, *args, **kwargs)
            return _before(self, *args, **kwargs)

        setattr(cls, name, functools.wraps(before)(method))
        if cls is Tensor:
            found_by_pickle(method, f"Tensor.{name}")
    if callable(library.get(name)) and not name.startswith("_"):

        def of_input(input, *args, _before=library[name], **kwargs):
            if is_sparse(input):
                return function(input, *args, **kwargs)
            return _before(input, *args, **kwargs)

        library[name] = found_by_pickle(functools.wraps(library[name])(of_input), name)


def _refusing(name, error, text):
    def method(self, *args, **kwargs):
        raise error(text.format(layout=_words(raw_of(self))))

    return name, method


for _cls in (Tensor, Array):
    for _name, _get, _doc in (
        ("is_sparse", lambda self: layout_of(self) is sparse_coo, "True if the tensor has the layout `sparse_coo`."),
        (
            "is_sparse_csr",
            lambda self: layout_of(self) is sparse_csr,
            "True if the tensor has the layout `sparse_csr`.",
        ),
        ("layout", layout_of, "The layout: `strided` (dense), `sparse_coo`, `sparse_csr` or `sparse_csc`."),
    ):
        setattr(_cls, _name, property(_get, doc=_doc))
_NO_NUMPY = "can't convert {layout} layout tensor to numpy. Use Tensor.to_dense() first."
for _name, _error, _message in (
    ("numpy", TypeError, _NO_NUMPY),
    ("__array__", TypeError, _NO_NUMPY),
    (
        "tolist",
        RuntimeError,
        "Cannot access data pointer of Tensor that doesn't have storage. Use Tensor.to_dense() first.",
    ),
    (
        "data_ptr",
        RuntimeError,
        "Cannot access data pointer of Tensor that doesn't have storage. Use values().data_ptr().",
    ),
    ("storage", NotImplementedError, "Cannot access storage of {layout}TensorImpl. Use values().storage()."),
    ("untyped_storage", NotImplementedError, "Cannot access storage of {layout}TensorImpl. Use values().storage()."),
    ("view", RuntimeError, "view is not implemented for sparse tensors. Use Tensor.to_dense() first."),
):
    _replace(*_refusing(_name, _error, _message))


def _expand(self, *sizes):
    if as_shape(sizes) == tuple(self.shape):
        return self
    raise RuntimeError(f"expand is unsupported for {_words(raw_of(self))} tensors. Use Tensor.to_dense() first.")


_replace("expand", _expand)


def _resize_refused(self, *sizes, memory_format=None):
    raise NotImplementedError("resize_: expected a dense tensor. Use sparse_resize_, or create a new sparse tensor.")


def _resize_as(self, other, memory_format=None):
    if not is_sparse(other):
        raise RuntimeError("resize_as_: expected a sparse tensor, got a dense tensor. Convert it with to_sparse().")
    return self.sparse_resize_(other.shape, other.sparse_dim(), other.dense_dim())


_replace("resize_", _resize_refused)
_replace("resize_as_", _resize_as)
vars(sys.modules["mytorch"])["resize_as_"] = Tensor.resize_as_


def _squeeze(self, *args, **kwargs):
    raise NotImplementedError("squeeze: expected a dense tensor. Use sum over the dimension, or select index 0.")


def _unsqueeze(self, dim):
    x = _tensor(self)
    if pattern_of(x).layout in COMPRESSED:
        raise operators.refusal("unsqueeze", x)
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.ndim - 1}, {x.ndim}], but got {dim})"
        )
    return operators.unsqueezed(x, dim % (x.ndim + 1))


def _item(self):
    x = _tensor(self)
    if x.numel() != 1:
        raise RuntimeError(f"a Tensor with {x.numel()} elements cannot be converted to Scalar")
    return as_dense(x).item()


layouts.install()
_replace("unsqueeze", _unsqueeze)
_replace("item", _item)
for _name, _kind in (
    ("__bool__", bool),
    ("__int__", int),
    ("__float__", float),
    ("__complex__", complex),
    ("is_nonzero", bool),
):
    _replace(_name, lambda self, _kind=_kind: _kind(_item(self)))


def _strides(name, of_coo):
    def method(self, *args, **kwargs):
        if pattern_of(self).layout in COMPRESSED:
            raise RuntimeError(
                f"{_words(raw_of(self))} tensors do not have {name}. Use values().".replace("Csr", " CSR")
            )
        return of_coo(self, *args)

    return method


_replace("is_contiguous", _strides("is_contiguous", lambda self, *args: False))
_replace("stride", _strides("strides", lambda self, *args: (0,) * self.ndim if not args else 0))
_replace("unbind", lambda self, dim=0: tuple(self.select(dim, i) for i in range(self.shape[dim])))
_replace("__iter__", lambda self: iter([self[i] for i in range(len(self))]))
_replace("is_same_size", lambda self, other: tuple(self.shape) == tuple(other.shape))
_replace("__contains__", lambda self, value: bool((values_of(merge(_tensor(self))) == value).any()))


def _select(self, dim, index):
    x = _tensor(self)
    (dim,) = operators._dims(dim, x.ndim)
    operators._position(int(index), x.shape[dim], dim)
    batch = len(pattern_of(x).batch)
    if batch and batch <= dim < batch + 2:
        raise RuntimeError(
            "select(): selecting sparse dimensions is not supported for batched sparse compressed tensors. Select a matrix first."
        )
    return operators.sliced(x, (slice(None),) * dim + (int(index),))


def _narrow_copy(self, dim, start, length):
    x = _tensor(self)
    if not -x.ndim <= dim < x.ndim:
        raise RuntimeError(f"narrow_copy: expected dim in [{-x.ndim}, {x.ndim}), got {dim}.")
    dim = dim % x.ndim
    start = start % x.shape[dim] if start < 0 else start
    if length < 0 or start + length > x.shape[dim]:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({x.shape[dim]}).")
    return operators.sliced(x, (slice(None),) * dim + (slice(start, start + length),))


def _index_select(self, dim, index):
    x = _tensor(self)
    (dim,) = operators._dims(dim, x.ndim)
    return operators.selected(x, dim, raw_of(index))


def _getitem(self, index):
    x = _tensor(self)
    items = index if isinstance(index, tuple) else (index,)
    if all(isinstance(i, (int, np.integer, slice)) or i is Ellipsis for i in items):
        return operators.sliced(x, items)
    if len(items) == 1 and isinstance(items[0], (Tensor, Array, list, np.ndarray)):
        from ..ops.creation import as_tensor

        chosen = as_tensor(items[0])
        if chosen.ndim == 1:
            return operators.selected(x, 0, raw_of(chosen))
    raise NotImplementedError(
        "indexing: expected integers, slices or one list of indices for a sparse tensor. Call to_dense() first."
    )


def _setitem(self, index, value):
    raise TypeError("Cannot assign to a sparse tensor. Create a new tensor, or call to_dense() first.")


def _copying(before):
    @functools.wraps(before)
    def copy_(self, *args, **kwargs):
        return (to_sparse if is_sparse(self) else before)(self, *args, **kwargs)

    def to_sparse(self, src, non_blocking=False):
        """Copies a tensor of the same layout and size to a sparse tensor."""
        if is_sparse(src):
            _check_copy(pattern_of(self), pattern_of(src), tuple(self.shape), tuple(src.shape))
            if isinstance(src, Tensor) and src.requires_grad:
                src = src.clone()  # otherwise the tensor would have the edge of the source, which can be a leaf
        elif pattern_of(self).layout in COMPRESSED:
            raise RuntimeError(
                "copy_: copy of sparse compressed tensors having different layouts is not supported. Use to_sparse(layout=...) first."
            )
        return before(self, src, non_blocking)

    return copy_


def _check_copy(pattern, source, size, source_size):
    """Raises RuntimeError if a tensor of another layout or size is copied to a sparse tensor."""
    if pattern.layout is not source.layout:
        raise RuntimeError(
            f"copy_: expected a source of layout {pattern.layout!r}, got {source.layout!r}. copy of sparse compressed tensors having "
            "different layouts is not supported."
        )
    if size != source_size:
        raise RuntimeError(
            f"copy_: expected shapes of self and src to match along dimensions, got {size} and {source_size}."
        )


for _cls in (Tensor, Array):
    _cls.copy_ = _copying(_cls.copy_)  # type: ignore[method-assign]
found_by_pickle(Tensor.__dict__["copy_"], "Tensor.copy_")
_replace("select", _select)
_replace("narrow", _narrow_copy)
_replace("narrow_copy", _narrow_copy)
_replace("index_select", _index_select)
_replace("__getitem__", _getitem)
_replace("__setitem__", _setitem)


# -- text and pickle ---------------------------------------------------------------------------------------------------


def _text(x):
    """Returns PyTorch's text of a sparse tensor."""
    style = sys.modules["mytorch"]._torch_layout
    pattern, prefix = pattern_of(x), "tensor("
    indent = len(prefix)

    def part(name, raw):
        start = f"{name}=tensor("
        text = style._numbers(style.to_host(raw), indent + len(start))
        return f"{start}{text}{f', size={tuple(raw.shape)}' if not raw.size else ''})"

    raw, coo = raw_of(x), pattern.layout is sparse_coo
    if coo:
        parts = [part("indices", pattern.indices), part("values", raw.values)]
    else:
        outer, inner = COMPRESSED[pattern.layout]
        parts = [
            part(f"{outer}_indices", pattern.pointers),
            part(f"{inner}_indices", pattern.inner),
            part("values", raw.values.reshape(*pattern.inner.shape, *raw.values.shape[1:])),
        ]
    suffixes = [f"device='{x.device}'"] if x.device is not CPU else []
    suffixes += [f"size={tuple(x.shape)}", f"nnz={_nnz(x)}"]
    if not style.dtype_is_plain(x.dtype):
        suffixes.append(f"dtype={x.dtype}")
    suffixes.append(f"layout={pattern.layout!r}")
    if x.grad_fn is not None:
        suffixes.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    text = prefix + (",\n" + " " * indent).join(parts)
    if coo:
        text += ",\n" + " " * indent + suffixes.pop(0)
    return style._with_suffixes(text, suffixes, indent)


_replace("__repr__", lambda self, *, tensor_contents=None: _text(_tensor(self)))


def _array_of(raw):
    return Array._wrap(raw)


_replace("__reduce__", lambda self: (_array_of, (raw_of(self),)), Array)
