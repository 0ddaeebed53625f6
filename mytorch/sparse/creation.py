"""Functions that create sparse tensors, and their checks."""

import math

import numpy as np

from ..arrays import as_device, dtypes, to_device
from ..arrays.arguments import describe
from ..arrays.array import as_raw, place_for
from ..arrays.tensor import Tensor
from .array import is_sparse, raw_of
from .links import build
from .pattern import COMPRESSED, Pattern, sparse_coo, sparse_csc, sparse_csr

_checks = [False]


class check_sparse_tensor_invariants:
    """Enables or disables the checks of indices for all new sparse tensors. Usable as a `with` block.

    COO tensors are always checked. Without this option, the indices of CSR tensors are checked only for their shapes
    and dtypes.

    Args:
        enable: True to enable the checks (default: True).

    Example:
        >>> with mytorch.sparse.check_sparse_tensor_invariants():
        ...     mytorch.sparse.check_sparse_tensor_invariants.is_enabled()
        True
    """

    def __init__(self, enable=True):
        self._value = enable
        self._before = []

    @staticmethod
    def is_enabled():
        """Returns True if the checks are enabled."""
        return _checks[0]

    @staticmethod
    def enable():
        """Enables the checks."""
        _checks[0] = True

    @staticmethod
    def disable():
        """Disables the checks."""
        _checks[0] = False

    def __enter__(self):
        self._before.append(_checks[0])
        _checks[0] = self._value
        return self

    def __exit__(self, *error):
        _checks[0] = self._before.pop()

    def __call__(self, function):
        def checked(*args, **kwargs):
            with type(self)(self._value):
                return function(*args, **kwargs)

        return checked


def _as_values(values, dtype, device):
    """Returns the values as a tensor that keeps its graph."""
    if isinstance(values, Tensor):
        if is_sparse(values):
            raise TypeError("sparse_coo_tensor: expected dense values, got a sparse tensor. Use values().")
        place = values.device if device is None else as_device(device)
        return values.to(place, dtype or values.dtype)
    return Tensor._wrap(as_raw(values, place_for(values, device), dtype))


def _as_indices(indices, where, name, keep=False):
    raw = as_raw(indices, None, None)
    whole = raw.dtype.kind in "iu" or (raw.dtype.kind == "f" and bool((raw == raw.astype(np.int64)).all()))
    if not whole and raw.size:
        raise TypeError(
            f"{name}: expected indices of an integer dtype, got {dtypes.from_numpy(raw.dtype)}. Use .long()."
        )
    raw = to_device(raw, where)
    if keep and raw.dtype in (np.int32, np.int64):
        return raw.copy()
    return raw.astype(np.int64)


def sparse_coo_tensor(
    indices=None, values=None, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False,
    check_invariants=None, is_coalesced=None,
):  # fmt: skip
    """Creates a sparse tensor in COO format from the positions and values of its elements.

    Elements at one position are added (`coalesce`). The values can have further dimensions, which are dense. Gradients
    flow to `values`.

    Args:
        indices: integers (sparse dimensions, elements): the index of each element in each sparse dimension.
        values: numbers (elements, *dense sizes).
        size: sizes of all dimensions (default: the smallest sizes that contain all elements).
        pin_memory: must be False; page-locked sparse tensors are not supported (default: False).
        is_coalesced: True if the positions are sorted and distinct, which is checked (default: None).

    Returns:
        A tensor of layout `mytorch.sparse_coo`.

    Raises:
        RuntimeError: shapes do not fit, or an index is outside of `size`.
        TypeError: the indices are not integers.

    Example:
        >>> x = mytorch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        >>> x.to_dense().tolist()
        [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]

    See also: `mytorch.sparse_csr_tensor`, `Tensor.to_sparse`.
    """
    name = "sparse_coo_tensor"
    _refuse_pinned(name, pin_memory)
    if values is None:
        size = indices if size is None else size
        size = tuple(int(n) for n in ((size,) if isinstance(size, int) else size or ()))
        _check_size(name, size)
        dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
        indices = np.zeros((len(size), 0), np.int64)
        values = Tensor._wrap(as_raw(np.zeros(0, dtype.numpy), as_device(device), None))
    values = _as_values(values, dtype, device)
    raw = raw_of(values)
    indices = _as_indices(indices, values.device, name)
    if indices.ndim == 1 and not indices.size:
        indices = indices.reshape(0 if size is None else len(size), 0) if not raw.size else indices
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if raw.ndim == 0 and indices.shape[1] == 1:
        values = values.reshape(1)
        raw = raw_of(values)
    if raw.ndim == 0 or raw.shape[0] != indices.shape[1]:
        raise RuntimeError(
            f"number of indices must match number of values: expected values of size ({indices.shape[1]}, ...), "
            f"got {tuple(raw.shape)}."
        )
    dims = indices.shape[0]
    if size is None:
        if indices.shape[1]:
            sizes = [int(n) + 1 for n in indices.max(axis=1)]
        else:
            sizes = [0] * dims
        size = (*sizes, *raw.shape[1:])
    size = tuple(int(n) for n in size)
    _check_size(name, size)
    if len(size) != dims + raw.ndim - 1:
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({dims}) + dense_dim ({raw.ndim - 1}), but got {len(size)}"
        )
    if tuple(raw.shape[1:]) != size[dims:]:
        raise RuntimeError(
            f"values has incorrect size, expected {[indices.shape[1], *size[dims:]]}, got {list(raw.shape)}"
        )
    _check_positions(indices, size)
    coalesced = indices.shape[1] < 2  # one element has sorted and distinct positions
    pattern = Pattern(sparse_coo, size[:dims], indices, coalesced=coalesced)
    if is_coalesced:
        linear = pattern.linear
        if not bool((linear[1:] > linear[:-1]).all()):
            raise RuntimeError(
                "sparse_coo_tensor: expected sorted and distinct indices with is_coalesced=True. Omit is_coalesced."
            )
        pattern.coalesced = True
    return _leaf(build(values, pattern), requires_grad)


def _refuse_pinned(name, pin_memory):
    if pin_memory:
        raise NotImplementedError(f"{name}: expected pin_memory=False, got True. Pin the values instead.")


def _leaf(x, requires_grad):
    if requires_grad and x.edge is not None:
        x = x.detach()
    return x.requires_grad_() if requires_grad else x


def _check_size(name, size):
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(size)}")
    if math.prod(size) >= 1 << 63:
        raise RuntimeError(f"{name}: expected fewer than 2**63 elements of the dense shape, got size {size}.")


def _check_positions(indices, size):
    if not indices.shape[1]:
        return
    for d in range(indices.shape[0]):
        low, high = int(indices[d].min()), int(indices[d].max())
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= size[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}"
            )


def _compressed_size(name, layout, pointers, inner, shape, size):
    """Checks the shapes of the parts of a CSR or CSC tensor, and returns the sizes of the tensor.

    Args:
        name: name of the function, for errors.
        pointers: raw array of the pointers, (*batch, rows + 1).
        inner: raw array of the indices, (*batch, elements).
        shape: shape of the values, (*batch, elements, *dense sizes).
        size: the sizes that the program gives, or None.

    Raises:
        RuntimeError: the shapes or dtypes do not fit.
    """
    if pointers.ndim < 1 or inner.ndim < 1:
        raise RuntimeError(
            f"{name}: expected indices with one dimension or more, got {pointers.ndim} and {inner.ndim} dimensions."
        )
    batch = pointers.shape[:-1]
    if inner.shape[:-1] != batch or shape[: len(batch)] != batch:
        raise RuntimeError(
            f"{name}: expected equal batch sizes of indices and values, got shapes {pointers.shape}, {inner.shape} and {shape}."
        )
    if pointers.dtype != inner.dtype:
        raise RuntimeError(
            f"{name}: expected indices of one dtype, got {pointers.dtype} and {inner.dtype}. Convert one with to()."
        )
    if shape[: inner.ndim] != inner.shape:
        raise RuntimeError(f"{name}: expected {inner.shape[-1]} values, one for each index, got {shape}.")
    if not pointers.shape[-1]:
        raise RuntimeError(
            f"{name}: expected pointers that begin with 0, got none. Pass [0] for a matrix without rows."
        )
    dense, outer_count = shape[inner.ndim :], pointers.shape[-1] - 1
    if size is None:
        inner_count = int(inner.max()) + 1 if inner.size else 0
        size = (outer_count, inner_count) if layout is sparse_csr else (inner_count, outer_count)
        size = (*batch, *size, *dense)
    size = tuple(int(n) for n in size)
    _check_size(name, size)
    sparse = len(batch) + 2
    if size[: len(batch)] != batch or len(size) != sparse + len(dense) or size[sparse:] != dense:
        raise RuntimeError(
            f"{name}: expected {sparse + len(dense)} sizes that begin with {batch} and end with {dense}, got {size}."
        )
    outer = size[len(batch)] if layout is sparse_csr else size[len(batch) + 1]
    if outer_count != outer:
        raise RuntimeError(f"{name}: expected {outer + 1} pointers for size {size}, got {outer_count + 1}.")
    return size


def _check_compressed(name, pattern):
    """Raises RuntimeError if the pointers do not rise, or indices are not sorted, distinct and in range."""
    pointers, inner, sizes = pattern.pointers, pattern.inner, pattern.sizes
    if not pointers.size:
        return
    count = inner.shape[-1]
    rises = bool((pointers[..., 1:] >= pointers[..., :-1]).all())
    if not rises or not bool(((pointers[..., 0] == 0) & (pointers[..., -1] == count)).all()):
        raise RuntimeError(
            f"{name}: expected pointers that rise from 0 to {count}, got {pointers.reshape(-1)[:8].tolist()}. Pass the position of "
            "the first element of each row or column."
        )
    limit = sizes[-1] if pattern.layout is sparse_csr else sizes[-2]
    if inner.size and not (int(inner.min()) >= 0 and int(inner.max()) < limit):
        raise RuntimeError(
            f"{name}: expected indices in [0, {limit}), got {int(inner.min())} to {int(inner.max())}. Pass a larger size."
        )
    linear = (pattern if pattern.layout is sparse_csr else pattern.transposed).linear
    if not bool((linear[1:] > linear[:-1]).all()):
        raise RuntimeError(
            f"{name}: expected sorted and distinct indices in each row or column. Sort the indices first."
        )


def _compressed_tensor(name, layout, pointers, inner, values, size, dtype, device, pin_memory, requires_grad):
    _refuse_pinned(name, pin_memory)
    values = _as_values(values, dtype, device)
    raw = raw_of(values)
    pointers = _as_indices(pointers, values.device, name, keep=True)
    inner = _as_indices(inner, values.device, name, keep=True)
    size = _compressed_size(name, layout, pointers, inner, raw.shape, size)
    pattern = Pattern(layout, size[: pointers.ndim + 1], pointers=pointers, inner=inner)
    _check_compressed(name, pattern)
    values = values.reshape(-1, *raw.shape[inner.ndim :]) if pattern.batch else values
    return _leaf(build(values, pattern), requires_grad)


def sparse_csr_tensor(
    crow_indices, col_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False,
    check_invariants=None,
):  # fmt: skip
    """Creates a sparse matrix in CSR format (compressed rows), or a batch of matrices.

    The matrices of a batch have equal numbers of elements.

    Args:
        crow_indices: integers (*batch, rows + 1): the position of the first element of each row, and the number of elements.
        col_indices: integers (*batch, elements): the column of each element, sorted in each row.
        values: numbers (*batch, elements, *dense sizes): the values of the elements.
        size: sizes of all dimensions (default: the smallest number of columns that contains all elements).

    Returns:
        A tensor of layout `mytorch.sparse_csr`.

    Raises:
        RuntimeError: the indices are not a valid CSR matrix of this size.

    Example:
        >>> x = mytorch.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3))
        >>> (x @ mytorch.ones(3, 1)).tolist()
        [[3.0], [4.0]]
    """
    return _compressed_tensor(
        "sparse_csr_tensor",
        sparse_csr,
        crow_indices,
        col_indices,
        values,
        size,
        dtype,
        device,
        pin_memory,
        requires_grad,
    )


def sparse_csc_tensor(
    ccol_indices, row_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False,
    check_invariants=None,
):  # fmt: skip
    """Creates a sparse matrix in CSC format (compressed columns), or a batch of matrices.

    The matrices of a batch have equal numbers of elements.

    Args:
        ccol_indices: integers (*batch, columns + 1): the position of the first element of each column, and the number of elements.
        row_indices: integers (*batch, elements): the row of each element, sorted in each column.
        values: numbers (*batch, elements, *dense sizes): the values of the elements.
        size: sizes of all dimensions (default: the smallest number of rows that contains all elements).

    Returns:
        A tensor of layout `mytorch.sparse_csc`.

    Raises:
        RuntimeError: the indices are not a valid CSC matrix of this size.

    Example:
        >>> x = mytorch.sparse_csc_tensor([0, 1, 2], [1, 0], [3.0, 4.0])
        >>> x.to_dense().tolist()
        [[0.0, 4.0], [3.0, 0.0]]
    """
    return _compressed_tensor(
        "sparse_csc_tensor",
        sparse_csc,
        ccol_indices,
        row_indices,
        values,
        size,
        dtype,
        device,
        pin_memory,
        requires_grad,
    )


def sparse_compressed_tensor(
    compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False, check_invariants=None,
):  # fmt: skip
    """Creates a sparse matrix in CSR or CSC format.

    Args:
        compressed_indices: the position of the first element of each row (of CSR) or column (of CSC).
        plain_indices: the column (of CSR) or row (of CSC) of each element.
        values: the values of the elements.
        size: sizes of all dimensions (default: the smallest sizes that contain all elements).
        layout: `mytorch.sparse_csr` or `mytorch.sparse_csc`.

    Raises:
        RuntimeError: another layout, or the indices are not valid.

    Example:
        >>> x = mytorch.sparse_compressed_tensor([0, 1], [1], [3.0], layout=mytorch.sparse_csr)
        >>> x.to_dense().tolist()
        [[0.0, 3.0]]
    """
    if layout not in COMPRESSED:
        raise RuntimeError(f"sparse_compressed_tensor: expected layout sparse_csr or sparse_csc, got {layout!r}.")
    return _compressed_tensor(
        "sparse_compressed_tensor", layout, compressed_indices, plain_indices, values, size, dtype, device, pin_memory,
        requires_grad,
    )  # fmt: skip


def spdiags(diagonals, offsets, shape, layout=None):
    """Creates a sparse matrix from its diagonals.

    The element in column j of diagonal k is `diagonals[k, j]`, as in SciPy.

    Args:
        diagonals: the diagonals (k, length), or one diagonal.
        offsets: the offset of each diagonal: 0 for the main diagonal, positive above it.
        shape: the sizes (rows, columns).
        layout: layout of the result (default: `mytorch.sparse_coo`).

    Returns:
        A sparse matrix.

    Raises:
        RuntimeError: the number of offsets differs from the number of diagonals, or offsets are repeated.

    Example:
        >>> mytorch.sparse.spdiags(tensor([[1.0, 2.0, 3.0]]), mytorch.tensor([0]), (3, 3)).to_dense().tolist()
        [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]
    """
    from .methods import to_sparse

    diagonals = diagonals.unsqueeze(0) if diagonals.ndim == 1 else diagonals
    steps = np.atleast_1d(np.asarray(as_raw(offsets, "cpu", None)))
    if len(shape) != 2 or steps.ndim != 1 or diagonals.ndim != 2:
        raise RuntimeError(
            f"spdiags: expected two sizes, a vector of offsets and a matrix of diagonals, got size {tuple(shape)} and tensors of "
            f"{steps.ndim} and {diagonals.ndim} dimensions."
        )
    if layout not in (None, sparse_coo, *COMPRESSED):
        raise RuntimeError(f"spdiags: expected layout sparse_coo, sparse_csr or sparse_csc, got {layout!r}.")
    if len(steps) != diagonals.shape[0] or len(set(steps.tolist())) != len(steps):
        raise RuntimeError(
            f"spdiags: expected {diagonals.shape[0]} distinct offsets, one for each diagonal, got {steps.tolist()}."
        )
    rows, columns, sources = [], [], []
    for k, step in enumerate(steps.tolist()):
        column = np.arange(max(step, 0), min(shape[1], shape[0] + step, diagonals.shape[1]))
        rows.append(column - step)
        columns.append(column)
        sources.append(k * diagonals.shape[1] + column)
    none = [np.zeros(0, np.int64)]  # for a matrix without diagonals
    source = np.concatenate(none + sources)
    values = diagonals.reshape(-1).index_select(0, Tensor._wrap(to_device(source, diagonals.device)))
    x = sparse_coo_tensor(np.stack([np.concatenate(none + rows), np.concatenate(none + columns)]), values, shape)
    return x if layout is None else to_sparse(x, layout=layout)


describe(
    globals(),
    requires_grad="if True, autograd computes the gradient of the tensor (default: False).",
    dtype="dtype of the values (default: the dtype of `values`).",
    device="device of the tensor (default: the device of `values`).",
    check_invariants="accepted for compatibility; indices are always checked (default: None).",
    pin_memory="must be False (default: False).",
)
