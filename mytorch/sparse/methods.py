"""Methods of tensors for sparse layouts. `_extensions.py` lists the names that load this module.

The functions of the core that read raw arrays, such as `stride` and `copy_`, have implementations for sparse layouts here.
"""

import functools
import math

import numpy as np

from ..arrays import xp_of
from ..arrays.array import Array
from ..arrays.memory_format import strided
from ..arrays.tensor import Tensor
from ..ops.dispatch.inplace import adopt
from ..ops.dispatch.layouts import implements
from . import operators
from .array import emptied, is_sparse, raw_of, words
from .links import build, from_dense, pattern_of, read_at, values_of
from .links import coalesce as merge
from .links import to_dense as as_dense
from .pattern import COMPRESSED, LAYOUTS, Pattern, sparse_coo, sparse_csc, sparse_csr


def _tensor(x):
    return x if isinstance(x, Tensor) else Tensor._of(x._mt_data)


def _layout_name(x):
    return words(raw_of(x)) if is_sparse(x) else "Strided"


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
    if mask is self and is_sparse(self):
        return self
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
    x = _need(self, "values", "sparse", *LAYOUTS)
    if not pattern_of(x).coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return _by_matrix(values_of(x), pattern_of(x))


def _values(self):
    """Returns the values of the elements, also for a tensor that is not coalesced, without autograd."""
    raw = raw_of(_need(self, "_values", "sparse", *LAYOUTS))
    return _by_matrix(Tensor._wrap(raw.values), raw.pattern)


def _by_matrix(values, pattern):
    """Returns the values with the batch dimensions of compressed layouts."""
    return values.reshape(*pattern.inner.shape, *values.shape[1:]) if pattern.batch else values


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
    pattern = pattern_of(_need(self, "_nnz", "sparse", *LAYOUTS))
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
    self._mt_data._bump()
    return self


def smm(input, mat2):
    """Returns the product of a sparse and a dense matrix as a sparse tensor.

    Args:
        mat2: dense matrix.
    """
    return to_sparse(operators.matrix_product(_tensor(input), mat2))


# -- functions that read the raw array ----------------------------------------------------------------------------------

_for_all = functools.partial(implements, layouts=LAYOUTS)
_NO_NUMPY = "can't convert {layout} layout tensor to numpy. Use Tensor.to_dense() first."
_NO_ADDRESS = "Cannot access data pointer of Tensor that doesn't have storage. Use {instead}."
for _name, _error, _text in (
    ("numpy", TypeError, _NO_NUMPY),
    ("tolist", RuntimeError, _NO_ADDRESS.replace("{instead}", "Tensor.to_dense() first")),
    ("data_ptr", RuntimeError, _NO_ADDRESS.replace("{instead}", "values().data_ptr()")),
    ("untyped_storage", NotImplementedError, "Cannot access storage of {layout}TensorImpl. Use values().storage()."),
    ("view", NotImplementedError, "view: expected a dense tensor, got layout {layout}. Use Tensor.to_dense() first."),
    ("resize_", NotImplementedError, "resize_: expected a dense tensor. Use sparse_resize_, or create a new sparse tensor."),
    ("setitem", TypeError, "Cannot assign to a sparse tensor. Create a new tensor, or call to_dense() first."),
):  # fmt: skip

    def _refuse(self, *args, _error=_error, _text=_text, **kwargs):
        raise _error(_text.format(layout=words(raw_of(self))))

    _for_all(_name)(_refuse)


@_for_all("resize_as_")
def _resize_as(self, other, memory_format=None):
    if not is_sparse(other):
        raise NotImplementedError(
            "resize_as_: expected a sparse tensor, got a dense tensor. Convert it with to_sparse()."
        )
    return self.sparse_resize_(other.shape, other.sparse_dim(), other.dense_dim())


@implements("unsqueeze", layouts=(sparse_coo,))
def _unsqueeze(self, dim):
    return operators.unsqueezed(_tensor(self), dim)


@implements("stride", layouts=(sparse_coo,))
def _stride(self, dim=None):
    return (0,) * self.ndim if dim is None else 0


@implements("is_contiguous", layouts=(sparse_coo,))
def _is_contiguous(self, memory_format=None):
    return False


def _no_strides(what):
    def refuse(self, *args):
        raise RuntimeError(
            f"Sparse {raw_of(self).tensor_layout.name[-3:].upper()} tensors do not have {what}. Use values()."
        )

    return refuse


for _name, _what in (("stride", "strides"), ("is_contiguous", "is_contiguous")):
    implements(_name, layouts=COMPRESSED)(_no_strides(_what))


@_for_all("narrow_copy")
def _narrow_copy(self, dim, start, length):
    return self.narrow(dim, start, length)


@_for_all("copy_")
def _copy(self, src, non_blocking=False):
    if not is_sparse(self) or not is_sparse(src):
        if is_sparse(self) and pattern_of(self).layout in COMPRESSED:
            raise RuntimeError(
                "copy_: copy of sparse compressed tensors having different layouts is not supported. Use to_sparse(layout=...) first."
            )
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented. Use to_sparse() or to_dense()."
        )
    if pattern_of(self).layout is not pattern_of(src).layout:
        raise RuntimeError(
            f"copy_: expected a source of layout {pattern_of(self).layout!r}, got {pattern_of(src).layout!r}. copy of sparse compressed "
            "tensors having different layouts is not supported."
        )
    if tuple(self.shape) != tuple(src.shape):
        raise RuntimeError(
            f"copy_: expected shapes of self and src to match along dimensions, got {tuple(self.shape)} and {tuple(src.shape)}."
        )
    src = src.to(self.device, non_blocking=non_blocking)
    if src.requires_grad:
        src = src.clone()  # otherwise the tensor would have the edge of the source, which can be a leaf
    return adopt(self, src.to(self.dtype) if src.dtype.category > self.dtype.category else src, "copy_")


_array_of = Array._wrap  # in pickles of earlier versions
