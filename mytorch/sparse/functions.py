"""The functions of `torch.sparse`."""

import functools

import numpy as np

from ..arrays import dtypes, xp_of
from ..arrays.arguments import describe
from ..arrays.tensor import Tensor
from ..ops.dispatch.layouts import implements
from ..ops.reduction import normalize_dims
from ..ops.scatter import reduction_name
from . import operators
from .array import is_sparse, raw_of
from .creation import sparse_compressed_tensor, sparse_coo_tensor
from .links import build, pattern_of, values_of
from .methods import to_sparse
from .pattern import LAYOUTS, expand_pointers, pointers_of, sparse_coo, sparse_csr
from .products import _Sampled


def mm(sparse, dense, reduce="sum"):
    """Returns the product of two matrices, one or both of which are sparse. Gradients flow to both.

    Args:
        sparse: first matrix.
        dense: second matrix.
        reduce: reduction of the products of a row: "sum", "mean", "amax" or "amin". Rows without elements are 0. (default: "sum").

    Returns:
        A dense matrix, or a sparse matrix if both are sparse.

    Raises:
        RuntimeError: the sizes or dtypes do not fit, or there is no such reduction.

    Example:
        >>> x = mytorch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        >>> mytorch.sparse.mm(x, mytorch.ones(3, 1)).tolist()
        [[3.0], [4.0]]
    """
    if reduce == "sum":
        return sparse @ dense
    reduce = reduction_name(reduce)
    if reduce == "prod":
        raise RuntimeError("sparse.mm: expected reduce to be sum, mean, amax or amin, got 'prod'.")
    return operators.reduced_product(_sparse("sparse.mm", sparse), dense, reduce)


def addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0):
    """Returns beta * input + alpha * (mat1 @ mat2), with a sparse `mat1`.

    Args:
        input: dense matrix, which broadcasts to the product.

    Returns:
        A dense matrix.

    Example:
        >>> x = mytorch.eye(2).to_sparse()
        >>> mytorch.sparse.addmm(mytorch.ones(2, 2), x, x.to_dense(), alpha=2).tolist()
        [[3.0, 1.0], [1.0, 3.0]]
    """
    product = mat1 @ mat2
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


def sum(input, dim=None, dtype=None):
    """Returns the sum of a sparse tensor over some dimensions.

    Args:
        input: sparse tensor.
        dim: a dimension or a tuple of dimensions (default: all).
        dtype: dtype of the result (default: the dtype of `input`; for integers int64, unless the result is sparse).

    Returns:
        A sparse tensor, or a dense tensor if all sparse dimensions are summed.

    Example:
        >>> x = mytorch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        >>> mytorch.sparse.sum(x, 0).to_dense().tolist()
        [4.0, 0.0, 3.0]
    """
    if not is_sparse(input):
        raise RuntimeError("sparse.sum: expected a sparse tensor, got a dense tensor. Use mytorch.sum.")
    if dtype is not None:
        input = input.to(dtype)
    elif input.dtype.category < dtypes.FLOAT:
        dims = normalize_dims(dim, input.ndim, "sum")
        if dims is not None and len({*dims}) < input.sparse_dim() > max(dims, default=-1):
            return operators.sum_over(input, dims)
        input = (input.coalesce() if dim is None and input.layout is sparse_coo else input).to(dtypes.int64)
    return input.sum() if dim is None else input.sum(dim)


def softmax(input, dim, *, dtype=None):
    """Returns the softmax of the stored elements along a dimension. Missing elements count as negative infinity.

    Args:
        input: sparse tensor.
        dim: the dimension.
        dtype: dtype of the computation and of the result (default: the dtype of `input`).

    Returns:
        A sparse tensor with the positions of `input`.

    Example:
        >>> x = mytorch.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3))
        >>> mytorch.sparse.softmax(x, 1).values().tolist()
        [0.5, 0.5]
    """
    return operators.softmax_of(_sparse("sparse.softmax", input), dim, dtype)


def log_softmax(input, dim, *, dtype=None):
    """Returns the logarithm of `mytorch.sparse.softmax`.

    Args:
        input: sparse tensor.
        dim: the dimension.
        dtype: dtype of the computation and of the result (default: the dtype of `input`).

    Returns:
        A sparse tensor with the positions of `input`.

    Example:
        >>> x = mytorch.sparse_coo_tensor([[0], [2]], [7.0], (1, 3))
        >>> mytorch.sparse.log_softmax(x, 1).values().tolist()
        [0.0]
    """
    return operators.softmax_of(_sparse("sparse.log_softmax", input), dim, dtype, log=True)


def _sparse(name, x):
    if not is_sparse(x):
        raise RuntimeError(f"{name}: expected a sparse tensor, got a dense tensor. Call to_sparse() on the tensor.")
    return x


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """Returns beta * input + alpha * (mat1 @ mat2) at the positions of `input` only.

    The other elements of the product are not computed.

    Args:
        input: matrix in CSR layout.
        mat1: dense matrix.
        out: CSR matrix that receives the result (default: None).

    Returns:
        A matrix with the positions of `input`.

    Raises:
        RuntimeError: `input` has another layout, or the sizes do not fit.

    Example:
        >>> mask = mytorch.eye(2).to_sparse_csr()
        >>> mytorch.sparse.sampled_addmm(mask, mytorch.ones(2, 3), mytorch.ones(3, 2)).values().tolist()
        [4.0, 4.0]
    """
    if not is_sparse(input) or pattern_of(input).layout is not sparse_csr:
        raise RuntimeError(
            "sampled_addmm: Expected input to have sparse csr layout. Call to_sparse_csr() on the input."
        )
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"sampled_addmm: expected matrices that can be multiplied, got {tuple(mat1.shape)} and {tuple(mat2.shape)}."
        )
    if tuple(input.shape) != (mat1.shape[0], mat2.shape[1]):
        raise RuntimeError(
            f"sampled_addmm: expected input of size {(mat1.shape[0], mat2.shape[1])}, got {tuple(input.shape)}."
        )
    product = _Sampled.apply(mat1, mat2.t(), pattern_of(input))
    result = build(values_of(input) * beta + product * alpha if beta else product * alpha, pattern_of(input))
    return result if out is None else out.copy_(result)


def as_sparse_gradcheck(gradcheck):
    """Decorates `gradcheck` so that inputs and results can be sparse. Gradients are compared at the stored positions.

    Args:
        gradcheck: `mytorch.autograd.gradcheck`.

    Returns:
        A function with the same arguments.

    Example:
        >>> gradcheck = mytorch.sparse.as_sparse_gradcheck(mytorch.autograd.gradcheck)
        >>> x = mytorch.eye(2, dtype=mytorch.float64).to_sparse().requires_grad_()
        >>> gradcheck(lambda x: (x * 2).to_dense(), (x,))
        True
    """

    @functools.wraps(gradcheck)
    def checked(function, inputs, *args, masked=None, **kwargs):
        inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        if any(is_sparse(x) for x in inputs):
            (function, inputs), masked = _of_values(function, inputs, masked), None
        return gradcheck(function, inputs, *args, masked=masked, **kwargs)

    return checked


@implements("gradcheck", layouts=LAYOUTS)
def _of_values(function, inputs, masked):
    """Returns a function of dense tensors, and its inputs: the values of sparse inputs, at whose positions it compares gradients."""
    if masked is False:
        raise NotImplementedError(
            "gradcheck: expected masked=True for sparse inputs, got False. Gradients are compared at the stored positions only."
        )
    patterns = [pattern_of(x) if is_sparse(x) else None for x in inputs]
    leaves = [
        Tensor._wrap(raw_of(x).values).detach().requires_grad_(x.requires_grad) if p is not None else x
        for x, p in zip(inputs, patterns, strict=True)
    ]

    def dense(*values):
        result = function(*[v if p is None else build(v, p) for v, p in zip(values, patterns, strict=True)])
        several = isinstance(result, (tuple, list))
        outs = [r.to_dense() if is_sparse(r) else r for r in (result if several else (result,))]
        return tuple(outs) if several else outs[0]

    return dense, tuple(leaves)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of a sparse and a dense matrix as a sparse tensor with one sparse dimension."""
    return to_sparse(mat1 @ mat2, 1)


def smm(input, mat):
    """Returns the product of a sparse and a dense matrix as a sparse tensor.

    Args:
        input: sparse matrix.
        mat: dense matrix.
    """
    return to_sparse(input @ mat)


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Returns beta * input + alpha * (mat1 @ mat2) as a sparse tensor, with sparse `input` and `mat1`.

    Args:
        input: sparse matrix.
    """
    return to_sparse(mat1 @ mat2) * alpha + input * beta


def spmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of a sparse and a dense matrix, as `mytorch.sparse.mm` does."""
    return mm(mat1, mat2)


def _convert_indices_from_coo_to_csr(input, size, *, out_int32=False):
    """Returns the position of the first element of each row from sorted rows.

    Args:
        input: the row of each element, sorted.
        size: number of rows.
        out_int32: return int32 instead of int64 (default: False).
    """
    pointers = pointers_of(raw_of(input), size)
    return Tensor._wrap(pointers.astype(np.int32) if out_int32 else pointers)


def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False):
    """Returns the row and column of each element of a CSR matrix, (2, elements).

    Args:
        crow_indices: position of the first element of each row.
        col_indices: column of each element.
        out_int32: return int32 instead of int64 (default: False).
        transpose: return columns before rows (default: False).
    """
    pair = expand_pointers(raw_of(crow_indices)), raw_of(col_indices)
    dtype = np.int32 if out_int32 else np.int64
    pair = [part.astype(dtype) for part in (pair[::-1] if transpose else pair)]
    return Tensor._wrap(xp_of(pair[0]).stack(pair))


def _sparse_broadcast_to(input, size):
    """Returns a COO tensor, expanded along dimensions of size 1 and along new first dimensions.

    Args:
        input: COO tensor.
        size: the new sizes.

    Raises:
        RuntimeError: the sizes do not fit.
    """
    return operators.broadcast(_sparse("_sparse_broadcast_to", input), size)


def _validate_sparse_coo_tensor_args(indices, values, size, is_coalesced=None):
    """Raises the errors of `mytorch.sparse_coo_tensor` for invalid parts.

    Args:
        indices: the index of each element in each sparse dimension.
        size: sizes of all dimensions.
        is_coalesced: the positions are sorted and distinct (default: None).
    """
    sparse_coo_tensor(indices, values, tuple(size), is_coalesced=is_coalesced)


def _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout):
    """Raises the errors of `mytorch.sparse_compressed_tensor` for invalid parts.

    Args:
        compressed_indices: the position of the first element of each row or column.
        plain_indices: the column or row of each element.
        size: sizes of all dimensions.
        layout: `mytorch.sparse_csr` or `mytorch.sparse_csc`.
    """
    sparse_compressed_tensor(compressed_indices, plain_indices, values, tuple(size), layout=layout)


describe(
    globals(),
    mat1="sparse matrix.",
    mat2="dense matrix.",
    beta="factor of `input` (default: 1).",
    alpha="factor of the product (default: 1).",
)
