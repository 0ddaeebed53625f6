"""Products of a sparse matrix and a dense matrix, and products that are computed at the positions of a pattern only.

On a CPU, a compiled kernel computes the product of a matrix in row order if Numba is installed. SciPy's routine computes the
other products if SciPy is installed. Otherwise NumPy sums the rows of a table of products. A GPU gathers and adds rows.
"""

import functools
import importlib

import numpy as np

from ..arrays import numpy_ns, xp_of
from ..arrays.tensor import Tensor
from ..autograd import Function
from ..kernels.registry import Kernels
from .array import raw_of
from .pattern import Groups, expand_pointers, sparse_csc

KERNELS = Kernels("products of sparse matrices", cpu="mytorch.kernels.numba.sparse_products")
BLOCK = 1 << 22  # elements of the temporary table of products


@functools.cache
def scipy_sparse():
    """Returns the module scipy.sparse, or None if SciPy is not installed."""
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError:
        return None


def _wide(raw):
    """Returns an array with a dtype that the routines support: half precision is computed in float32."""
    if raw.dtype.kind == "V" or raw.dtype == np.float16:
        return raw.astype(np.float32)
    return raw.astype(np.int64) if raw.dtype == bool else raw


def _multiply(pattern, values, dense):
    """Returns the product of a sparse and a dense raw matrix."""
    dtype = np.result_type(values.dtype, dense.dtype) if values.dtype != dense.dtype else values.dtype
    xp = xp_of(dense)
    if not pattern.count or not dense.shape[1]:
        return xp.zeros((pattern.sizes[0], dense.shape[1]), dtype)
    values, dense = _wide(values), _wide(dense)
    if xp is not numpy_ns:
        product = _gathered(pattern, values, dense, xp)
    elif (product := _by_kernel(pattern, values, dense)) is not None:
        pass
    elif (scipy := scipy_sparse()) is not None:
        product = _by_scipy(scipy, pattern, values, dense)
    else:
        product = _by_rows(pattern, values, dense)
    return product if product.dtype == dtype else product.astype(dtype)


def _in_rows(pattern):
    """Returns True if the product reads the rows of the matrix. The product of a transposed matrix adds to rows instead."""
    if pattern.layout is sparse_csc:
        return False
    return "transposed" not in pattern.__dict__ or pattern.sorted_rows


def _by_kernel(pattern, values, dense):
    if not _in_rows(pattern):
        return None
    pointers, columns, order = pattern.in_row_order
    values = values if order is None else values[order]
    arrays = values, dense, pointers, columns
    kernel = KERNELS.find("cpu", None, arrays, {})
    return kernel and kernel.forward(numpy_ns, *arrays)


def _by_scipy(scipy, pattern, values, dense):
    if pattern.layout is sparse_csc:
        matrix = scipy.csc_array((values, pattern.inner, pattern.pointers), shape=pattern.sizes)
    elif not _in_rows(pattern):
        pointers, columns, order = pattern.transposed.in_row_order
        values = values if order is None else values[order]
        matrix = scipy.csc_array((values, columns, pointers), shape=pattern.sizes)
    else:
        pointers, columns, order = pattern.in_row_order
        values = values if order is None else values[order]
        matrix = scipy.csr_array((values, columns, pointers), shape=pattern.sizes)
    return np.ascontiguousarray(matrix @ dense)


def _by_rows(pattern, values, dense):
    """Sums the rows of the products of values and rows of the dense matrix, in blocks of limited size."""
    pointers, columns, order = pattern.in_row_order
    values = values if order is None else values[order]
    pointers = np.asarray(pointers)
    out = np.zeros((pattern.sizes[0], dense.shape[1]), np.result_type(values.dtype, dense.dtype))
    filled = np.flatnonzero(np.diff(pointers))  # reduceat needs rows with elements
    width = max(1, BLOCK // dense.shape[1])  # elements of a block
    begin = 0
    while begin < len(filled):
        end = max(begin + 1, int(np.searchsorted(pointers[filled + 1], pointers[filled[begin]] + width, side="right")))
        rows = filled[begin:end]
        first, last = pointers[rows[0]], pointers[rows[-1] + 1]
        table = values[first:last, None] * dense[columns[first:last]]
        out[rows] = np.add.reduceat(table, pointers[rows] - first, axis=0, dtype=out.dtype)
        begin = end
    return out


def _gathered(pattern, values, dense, xp):
    rows, columns = pattern.indices
    products = Tensor._wrap(values[:, None] * dense[columns])
    total = Tensor._wrap(xp.zeros((pattern.sizes[0], dense.shape[1]), products._mt_data._array.dtype))
    return raw_of(total.index_add(0, Tensor._wrap(rows), products))


def _sample(pattern, left, right):
    """Returns the sums over j of left[row, j] * right[column, j] for each element."""
    rows, columns = pattern.indices
    xp = xp_of(left)
    if left.shape[1] == 0:
        return xp.zeros(pattern.count, left.dtype)
    dtype = left.dtype
    left, right = _wide(left), _wide(right)
    width = max(1, BLOCK // left.shape[1])
    parts = []
    for begin in range(0, pattern.count, width):
        block = slice(begin, begin + width)
        parts.append(xp.einsum("ij,ij->i", left[rows[block]], right[columns[block]]))
    out = parts[0] if len(parts) == 1 else xp.concatenate(parts) if parts else xp.zeros(0, left.dtype)
    return out if out.dtype == dtype else out.astype(dtype)


class Product(Function):
    """(values of a sparse matrix, dense matrix) -> dense matrix."""

    @staticmethod
    def forward(ctx, values, dense, pattern):
        ctx.save_for_backward(values, dense)
        ctx.pattern = pattern
        return Tensor._wrap(_multiply(pattern, raw_of(values), raw_of(dense)))

    @staticmethod
    def backward(ctx, g):
        values, dense = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            _Sampled.apply(g, dense.conj(), ctx.pattern) if needs[0] else None,
            Product.apply(values.conj(), g, ctx.pattern.transposed) if needs[1] else None,
            None,
        )


class _Sampled(Function):
    """(matrix, matrix) -> products of rows of both, at the positions of a pattern."""

    @staticmethod
    def forward(ctx, left, right, pattern):
        ctx.save_for_backward(left, right)
        ctx.pattern = pattern
        return Tensor._wrap(_sample(pattern, raw_of(left), raw_of(right)))

    @staticmethod
    def backward(ctx, g):
        left, right = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            Product.apply(g, right.conj(), ctx.pattern) if needs[0] else None,
            Product.apply(g, left.conj(), ctx.pattern.transposed) if needs[1] else None,
            None,
        )


def pairs_of(left, right):
    """Returns, for a product of two sparse matrices, all pairs of elements that are multiplied.

    Returns:
        A tuple (elements of the left matrix, elements of the right matrix, rows, columns).
    """
    xp = xp_of(left.indices)
    rows, inner = left.indices
    pointers, columns, order = right.in_row_order
    counts = pointers[inner + 1] - pointers[inner]
    ends = xp.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    of_left = expand_pointers(xp.concatenate([xp.zeros(1, ends.dtype), ends])) if total else xp.zeros(0, np.int64)
    offset = xp.arange(total) - (ends - counts)[of_left]
    of_right = pointers[inner[of_left]] + offset
    return of_left, (of_right if order is None else order[of_right]), rows[of_left], columns[of_right]


def group(rows, columns, width):
    """Returns the groups of equal positions of a matrix with `width` columns, and the positions of the groups."""
    groups = Groups(rows * width + columns)
    return groups, rows[groups.first], columns[groups.first]
