"""Linear algebra, as in `torch.linalg`. ops/decompositions.py defines the decompositions and their gradients.

The last two dimensions of a tensor are matrices; the other dimensions are a batch.
"""

import bisect
import functools
import math
from collections import namedtuple

import numpy as np

from ..arrays import xp_of
from ..arrays.arguments import described as _described
from ..arrays.array import on_input_device
from ..arrays.errors import LinAlgError
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..ops import decompositions as _d
from ..ops.creation import eye
from ..ops.decompositions import (
    cholesky,
    det,
    for_norms,
    in_column_order,
    inverse,
    lu_parts,
    qr_reduced,
    rows_after,
    slogdet,
    solve,
    square,
)
from ..ops.dispatch.bind import also_named, found_by_pickle, public_function
from ..ops.dispatch.out import takes_out, write_out
from ..ops.dispatch.precision import in_precision
from ..ops.dispatch.unwrap import on_device_of, raw_of, to_cpu
from ..ops.elementwise import where
from ..ops.elementwise import without_derivative as _without_derivative
from ..ops.linalg import cross as _cross
from ..ops.linalg import matmul, tensordot
from ..ops.movement import cat
from ..ops.padding import pad
from ..ops.reduction import normalize_dim, normalize_dims
from ..ops.reduction import vector_norm as _vector_norm
from ..ops.shapes import diagonal as _diagonal

inv, det, slogdet, cholesky = (also_named(f, {"A": "input"}) for f in (inverse, det, slogdet, cholesky))

_Eigh, _Eig = (namedtuple(name, "eigenvalues eigenvectors") for name in ("eigh", "eig"))
_Svd, _Qr = namedtuple("svd", "U S Vh"), namedtuple("qr", "Q R")
_Lstsq = namedtuple("lstsq", "solution residuals rank singular_values")
_Lu, _LuFactor = namedtuple("lu", "P L U"), namedtuple("lu_factor", "LU pivots")
_LuFactorEx, _InvEx = namedtuple("lu_factor_ex", "LU pivots info"), namedtuple("inv_ex", "inverse info")
_LdlFactor, _LdlFactorEx = namedtuple("ldl_factor", "LD pivots"), namedtuple("ldl_factor_ex", "LD pivots info")
_CholeskyEx, _SolveEx = namedtuple("cholesky_ex", "L info"), namedtuple("solve_ex", "result info")


def _empty(like, dtype=None):
    return on_device_of(np.empty(0, raw_of(like).dtype if dtype is None else dtype), like)


def _real_dtype(A):
    return raw_of(A).real.dtype


def _eye_like(A, *size):
    """Returns an identity matrix with the dtype and device of A."""
    return eye(*size, dtype=A.dtype, device=A.device)


def _no_errors(A):
    """Returns `info` for a batch of matrices without errors."""
    return on_device_of(np.zeros(A.shape[:-2], np.int32), A)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """Returns the diagonals of matrices as a new last dimension. The result is a view.

    Args:
        offset: diagonal above (positive) or below (negative) the main diagonal (default: 0).
        dim1: first dimension of the matrices (default: -2).
        dim2: second dimension of the matrices (default: -1).

    Returns:
        A view of shape (…, K): K is the number of elements on the diagonal. `dim1` and `dim2` are removed.

    Raises:
        RuntimeError: `dim1` and `dim2` are equal.

    Example:
        >>> mytorch.linalg.diagonal(tensor([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    return _diagonal(A, offset, dim1, dim2)


def cross(input, other, *, dim=-1):
    """Computes the cross product of 3-d vectors.

    Args:
        input: first tensor.
        other: second tensor, which broadcasts with `input`.
        dim: dimension of size 3 (default: -1).

    Returns:
        A tensor of the broadcast shape.

    Raises:
        RuntimeError: dimension `dim` does not have size 3.

    Example:
        >>> mytorch.linalg.cross(tensor([1, 0, 0]), tensor([0, 1, 0])).tolist()
        [0, 0, 1]
    """
    return _cross(input, other, dim)


# -- norms --------------------------------------------------------------------------------------------------------


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """Computes a vector norm of all elements or along dimensions.

        sum_i |x_i|^ord ^ (1 / ord)

    Args:
        x: the input tensor, floating point or complex, of any shape.
        ord: order of the norm, a number, `inf` or `-inf` (default: 2).
        dim: dimension, or tuple of dimensions (default: all).

    Returns:
        A real tensor of the shape of `x` without the reduced dimensions.

    Raises:
        RuntimeError: a dtype is neither floating-point nor complex, the input does not fit `dtype`, or there are no elements and the
            norm is not defined.

    Example:
        >>> mytorch.linalg.vector_norm(tensor([3.0, 4.0])).item()
        5.0
    """
    x = for_norms(x, dtype)
    return _vector_norm(x, ord=float(ord), dim=normalize_dims(dim, x.ndim, "vector_norm"), keepdim=keepdim)


def _two_axes(dim, ndim):
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    return tuple(normalize_dim(d, ndim) for d in dim)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """Computes a norm of matrices. The order selects the norm:

    * "fro": Frobenius norm;
    * "nuc": sum of the singular values;
    * 2 or -2: largest or smallest singular value;
    * 1 or -1: largest or smallest sum of the absolute values of a column;
    * `inf` or `-inf`: largest or smallest sum of the absolute values of a row.

    Args:
        ord: order of the norm (default: "fro").
        dim: the two dimensions of the matrices (default: the last two).

    Returns:
        A real tensor of shape (…), or (…, 1, 1) with `keepdim`.

    Raises:
        RuntimeError: `ord` has another value, or A has fewer than two dimensions.

    Example:
        >>> mytorch.linalg.matrix_norm(tensor([[3.0, 0.0], [0.0, 4.0]]), ord=1).item()
        4.0
    """
    if A.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    A = for_norms(A, dtype, "linalg.matrix_norm")
    rows, columns = _two_axes(dim, A.ndim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim)
    if ord in (math.inf, -math.inf, 1, -1):
        inner, outer = (columns, rows) if abs(ord) == math.inf else (rows, columns)
        sums = A.abs().sum(inner, keepdim=True)
        if ord > 0 and not sums.shape[outer]:
            out = sums.sum(outer, keepdim=True)  # the largest of no sums is 0
        else:
            out = sums.amax(outer, keepdim=True) if ord > 0 else sums.amin(outer, keepdim=True)
    elif ord in ("nuc", 2, -2):
        s = svdvals(A.movedim((rows, columns), (-2, -1)))
        out = s.sum(-1) if ord == "nuc" or (ord == 2 and not s.shape[-1]) else s.amax(-1) if ord == 2 else s.amin(-1)
        for d in sorted((rows, columns)):
            out = out.unsqueeze(d)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return out if keepdim else out.squeeze((rows, columns))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """Computes a vector norm or a matrix norm.

    It is a matrix norm if `dim` has two dimensions, or if `ord` is given and A has two dimensions.

    Args:
        A: the input tensor, floating point or complex, of any shape.
        ord: order of the norm; see `vector_norm` and `matrix_norm` (default: 2 for vectors, "fro" for matrices).
        dim: a dimension for vector norms, or two dimensions for matrix norms (default: all).

    Returns:
        A real tensor of the shape of A without the reduced dimensions.

    Raises:
        RuntimeError: `ord` is given without `dim`, and A does not have one or two dimensions.

    Example:
        >>> mytorch.linalg.norm(tensor([[3.0, 0.0], [0.0, 4.0]])).item()
        5.0
    """
    vector = ord is None or (dim is None and A.ndim == 1) or isinstance(dim, int) or (dim is not None and len(dim) == 1)
    if vector and not isinstance(ord, str):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    if dim is None and A.ndim != 2:
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    if isinstance(dim, (tuple, list)) and len(dim) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {dim}")
    return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


def cond(A, p=None):
    """Computes the condition number of matrices; `inf` for singular matrices.

        norm(A) * norm(A^-1)

    Args:
        A: tensor of shape (…, M, N), or (…, N, N) if `p` is not 2 or -2.
        p: order of the norm, as in `matrix_norm` (default: 2).

    Returns:
        A real tensor of shape (…).

    Raises:
        RuntimeError: A has fewer than two dimensions.

    Example:
        >>> mytorch.linalg.cond(tensor([[4.0, 0.0], [0.0, 2.0]])).item()
        2.0
    """
    if A.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor A must have at least 2 dimensions.")
    if 0 in A.shape[-2:]:
        return A.abs().sum((-2, -1))
    if p in (None, 2, -2):
        s = svdvals(A)
        return s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    found, info = inv_ex(square(A, "cond"))
    if p == "nuc" and bool((info > 0).any()):
        found = found.nan_to_num(0.0)
    norms = matrix_norm(A, p) * matrix_norm(found, p)
    return norms.masked_fill(info > 0, math.inf)


# -- eigenvalues and singular values ------------------------------------------------------------------------------


def eigh(A, UPLO="L"):
    """Computes the eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Use it when the matrix is symmetric: it is faster than `eig`, and its results are real.

    Args:
        A: tensor of shape (…, N, N). Only one triangle is read.
        UPLO: "L" to read the lower triangle, "U" to read the upper one (default: "L").

    Returns:
        A named tuple (eigenvalues, eigenvectors). Eigenvalues are in ascending order, eigenvectors are columns.

    Raises:
        RuntimeError: `UPLO` has another value, or matrices are not square.

    Example:
        >>> mytorch.linalg.eigh(tensor([[3.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
        [1.0, 3.0]
    """
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _Eigh(*_d._eigh(square(A, "eigh"), UPLO=UPLO.upper()))


def eigvalsh(A, UPLO="L"):
    """Computes the eigenvalues of symmetric or Hermitian matrices, in ascending order.

    Args:
        A: tensor of shape (…, N, N). Only one triangle is read.
        UPLO: "L" to read the lower triangle, "U" to read the upper one (default: "L").

    Returns:
        A real tensor of shape (…, N).

    Raises:
        RuntimeError: `UPLO` has another value, or matrices are not square.

    Example:
        >>> mytorch.linalg.eigvalsh(tensor([[2.0, 1.0], [1.0, 2.0]])).round().tolist()
        [1.0, 3.0]
    """
    return eigh(A, UPLO).eigenvalues


def eig(A):
    """Computes the complex eigenvalues and eigenvectors of square matrices.

    Use it for matrices that are not symmetric. `eigh` is for those that are.

    Args:
        A: tensor of shape (…, N, N).

    Returns:
        A named tuple (eigenvalues, eigenvectors). Eigenvectors are columns.

    Raises:
        RuntimeError: matrices are not square.

    Example:
        >>> mytorch.linalg.eig(tensor([[0.0, -1.0], [1.0, 0.0]])).eigenvalues.tolist()
        [1j, -1j]
    """
    return _Eig(*_d._eig(square(A, "eig")))


def eigvals(A):
    """Computes the complex eigenvalues of square matrices.

    Args:
        A: tensor of shape (…, N, N).

    Returns:
        A complex tensor of shape (…, N). The order of the eigenvalues is unspecified.

    Raises:
        RuntimeError: matrices are not square.

    Example:
        >>> mytorch.linalg.eigvals(tensor([[2.0, 0.0], [0.0, 3.0]])).tolist()
        [(2+0j), (3+0j)]
    """
    return eig(A).eigenvalues


@on_input_device
def svd(A, full_matrices=True, *, driver=None):
    """Computes the singular value decomposition of matrices.

        A = U diag(S) Vh

    Use it for low-rank approximations. If you need the singular values only, `svdvals` is faster and its gradient more
    stable.

    Args:
        full_matrices: return square matrices U and Vh. Autograd treats the additional columns as constants
            (default: True).
        driver: accepted for compatibility with PyTorch; has no effect.

    Returns:
        A named tuple (U, S, Vh). The singular values S are in descending order.

    Raises:
        RuntimeError: A has fewer than two dimensions.

    Example:
        >>> U, S, Vh = mytorch.linalg.svd(tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> S.tolist()
        [4.0, 3.0]
    """
    if A.ndim < 2:
        raise RuntimeError("linalg.svd: The input tensor A must have at least 2 dimensions.")
    rows, columns = A.shape[-2:]
    k = min(rows, columns)
    U, S, Vh = _d._svd(A)
    if full_matrices and rows != columns:
        raw = raw_of(A)
        full_u, _, full_v = xp_of(raw).linalg.svd(raw, full_matrices=True)
        U = cat([U, Tensor._wrap(full_u[..., k:])], -1) if rows > k else U
        Vh = cat([Vh, Tensor._wrap(full_v[..., k:, :])], -2) if columns > k else Vh
    return _Svd(in_column_order(U), S, in_column_order(Vh))


def svdvals(A, *, driver=None):
    """Computes the singular values of matrices, in descending order.

    Args:
        driver: accepted for compatibility with PyTorch; has no effect.

    Returns:
        A real tensor of shape (…, min(M, N)).

    Raises:
        RuntimeError: A has fewer than two dimensions.

    Example:
        >>> mytorch.linalg.svdvals(tensor([[3.0, 0.0], [0.0, 4.0]])).tolist()
        [4.0, 3.0]
    """
    return svd(A, full_matrices=False).S


def _cut(largest, shape, atol, rtol, kind):
    """Returns the threshold below which singular values are treated as 0: `max(atol, rtol * largest)`."""
    atol, rtol = (to_cpu(tol) if isinstance(tol, Tensor) else tol for tol in (atol, rtol))
    if rtol is None:
        given = isinstance(atol, np.ndarray) or (atol is not None and atol > 0)
        rtol = 0.0 if given else max(shape[-2:], default=0) * np.finfo(kind).eps
    return largest * rtol if atol is None else np.maximum(largest * rtol, atol)


def _refuse_complex(name, **tolerances):
    for word, tol in tolerances.items():
        if isinstance(tol, Tensor) and tol.is_complex():
            raise RuntimeError(f"torch.linalg.{name}: {word} tensor of complex type is not supported. Got {tol.dtype}")


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """Computes the pseudo-inverse (Moore-Penrose inverse) of matrices.

    Singular values up to `max(atol, rtol * largest)` are treated as 0.

    Use it when you need the matrix itself; to solve equations, `lstsq` is faster and more accurate.

    Args:
        rcond: older name of `rtol`.
        hermitian: True if A is Hermitian (default: False).
        atol: absolute tolerance (default: 0).
        rtol: tolerance relative to the largest singular value (default: `max(M, N) * eps`).

    Returns:
        A tensor of shape (…, N, M).

    Raises:
        RuntimeError: `hermitian` is True, and matrices are not square.

    Example:
        >>> mytorch.linalg.pinv(tensor([[2.0, 0.0], [0.0, 0.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.0]]
    """
    _refuse_complex("pinv", rcond=rcond, atol=atol, rtol=rtol)
    if hermitian:
        square(A, "pinv")
    options = {"atol": atol, "rtol": rcond if rtol is None else rtol, "kind": _real_dtype(A)}
    return _d._pinv(A, cut=functools.partial(_cut, shape=A.shape, **options), hermitian=hermitian)


@in_precision()
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """Computes the rank of matrices: the number of singular values above `max(atol, rtol * largest)`.

    Args:
        tol: older name of `atol`.
        hermitian: True if A is Hermitian (default: False).
        atol: absolute tolerance (default: 0).
        rtol: tolerance relative to the largest singular value (default: `max(M, N) * eps`).

    Returns:
        An int64 tensor of shape (…).

    Raises:
        RuntimeError: A has fewer than two dimensions.

    Example:
        >>> mytorch.linalg.matrix_rank(tensor([[1.0, 2.0], [2.0, 4.0]])).item()
        1
    """
    _refuse_complex("matrix_rank", tol=tol, atol=atol, rtol=rtol)
    raw = to_cpu(A)
    if raw.ndim < 2:
        raise RuntimeError("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    if not raw.size:
        return on_device_of(np.zeros(raw.shape[:-2], np.int64), A)
    if hermitian:
        square(A, "matrix_rank")
    if raw.dtype.itemsize == 2:
        raise NotImplementedError(f"matrix_rank: not implemented for {A.dtype}")
    _d.finite(raw, "matrix_rank")
    s = abs(np.linalg.eigvalsh(raw)) if hermitian else np.linalg.svd(raw, compute_uv=False)
    cut = to_cpu(_cut(s.max(-1), A.shape, atol, rtol, s.dtype) if tol is None else tol)
    return on_device_of(np.asarray((s > cut[..., None]).sum(-1)), A)


@in_precision()
def lstsq(A, B, rcond=None, *, driver=None):
    """Computes least-squares solutions: the X that minimizes the norm of `A X - B`.

    Use it when there are more equations than unknowns. It is more accurate than `pinv(A) @ B`.

    Args:
        A: tensor of shape (…, M, N).
        B: tensor of shape (…, M, K) or (…, M).
        rcond: tolerance for the rank of A, relative to the largest singular value (default: `max(M, N) * eps`).
        driver: "gels", "gelsy", "gelsd" or "gelss". The first returns no rank; the last two return singular values
            (default: "gelsy").

    Returns:
        A named tuple (solution, residuals, rank, singular_values). `solution` and `residuals` are differentiable.

    Raises:
        RuntimeError: `driver` has another value, or shapes or dtypes do not match.

    Example:
        >>> A, B = tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), tensor([[1.0], [3.0], [5.0]])
        >>> mytorch.linalg.lstsq(A, B).solution.round(decimals=3).tolist()  # the line 1 + 2 x
        [[1.0], [2.0]]
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), but got {driver}"
        )
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    vector = A.ndim - 1 == B.ndim
    if A.shape[-2] != B.shape[-1 if vector else -2] or not 0 <= A.ndim - B.ndim <= 1:
        raise RuntimeError(f"torch.linalg.lstsq: input.size(-2) should match other.size({-1 if vector else -2})")
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"torch.linalg.lstsq: Expected input and other to have the same dtype, but got {A.dtype} and {B.dtype}"
        )
    right = B.unsqueeze(-1) if vector else B
    if rcond is None or driver == "gels" or (rcond >= 1 and driver != "gelss"):  # as LAPACK reads it
        rcond = np.finfo(_real_dtype(A)).eps * max(A.shape[-2:])
    solution = pinv(A, rtol=rcond) @ right
    rank = matrix_rank(A, rtol=rcond)
    residuals = _empty(A, _real_dtype(A))
    rows, columns = A.shape[-2:]
    if rows > columns and driver != "gelsy" and bool((rank == columns).all()):
        residuals = (A @ solution - right).abs().square().sum(-2)
    out_rank = _empty(A, np.int64) if driver == "gels" else rank
    s = svdvals(A.detach()) if driver in ("gelsd", "gelss") else _empty(A, _real_dtype(A))
    solution = in_column_order(solution.squeeze(-1) if vector else solution)
    return _Lstsq(solution, residuals, out_rank, s)


# -- QR and LU ----------------------------------------------------------------------------------------------------


@in_precision(None)
def qr(A, mode="reduced"):
    """Computes the QR decomposition of matrices: A = Q R, with orthonormal columns of Q and upper triangular R.

    Use it to make columns orthonormal; for eigenvalues and ranks there are `eigh` and `svd`.

    Args:
        mode: "reduced", "complete" for a square Q, or "r" for R only (default: "reduced").

    Returns:
        A named tuple (Q, R). With mode "r", Q is empty.

    Raises:
        RuntimeError: `mode` has another value. Backward raises it if the mode is not differentiable.

    Example:
        >>> A = tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> Q, R = mytorch.linalg.qr(A)
        >>> mytorch.allclose(Q @ R, A, atol=1e-5)
        True
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return _Qr(*qr_reduced(A))
    raw = to_cpu(A)
    found = [np.linalg.qr(raw, "r")] if mode == "r" else np.linalg.qr(raw, mode)
    message = (
        "The derivative of linalg.qr depends on Q, which is not computed when mode='r'."
        if mode == "r"
        else "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
    )
    parts = [
        _without_derivative(in_column_order(on_device_of(x, A)), A, name="linalg_qr", message=message) for x in found
    ]
    return _Qr(_empty(A), *parts) if mode == "r" else _Qr(*parts)


def _permutation(order, dtype, like):
    """Returns the permutation matrices that move row i to row order[i], as in A = P L U."""
    n = order.shape[-1]
    P = np.zeros((*order.shape, n), dtype)
    np.put_along_axis(np.swapaxes(P, -1, -2), order[..., None], 1, -1)
    return on_device_of(P, like)


def lu(A, *, pivot=True):
    """Computes the LU decomposition of matrices with partial pivoting.

        A = P L U

    Returns:
        A named tuple (P, L, U). P is empty if `pivot` is False.

    Raises:
        RuntimeError: A has fewer than two dimensions.

    Example:
        >>> A = tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> P, L, U = mytorch.linalg.lu(A)
        >>> mytorch.allclose(P @ L @ U, A)
        True
    """
    _, order, L, U = lu_parts(A, pivot)
    P = _permutation(order, raw_of(A).dtype, A) if pivot else _empty(A)
    return _Lu(P, L, U)


def _compact(L, U):
    """Returns one matrix with L below the diagonal, and U on and above the diagonal."""
    rows, k, columns = L.shape[-2], L.shape[-1], U.shape[-1]
    return in_column_order(pad(L.tril(-1), (0, columns - k)) + pad(U, (0, 0, 0, rows - k)))


def lu_factor(A, *, pivot=True):
    """Computes a compact LU decomposition of matrices. Solve equations with it by `lu_solve`.

    Returns:
        A named tuple (LU, pivots). LU contains both factors, and pivots contains the number (from 1) of the row that
        each step exchanged with its own row.

    Raises:
        RuntimeError: A has dtype bool.

    Example:
        >>> LU, pivots = mytorch.linalg.lu_factor(tensor([[2.0, 0.0], [0.0, 4.0]]))
        >>> mytorch.linalg.lu_solve(LU, pivots, tensor([[2.0], [2.0]])).tolist()
        [[1.0], [0.5]]
    """
    if A.dtype.name == "bool":
        raise RuntimeError("linalg.lu_factor: Expected numbers, got a tensor of torch.bool")
    pivots, _, L, U = lu_parts(A, pivot)
    return _LuFactor(_compact(L, U), on_device_of(np.ascontiguousarray(pivots) + np.int32(1), A))


def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """Computes a compact LU decomposition, and reports pivots that are 0.

    Args:
        check_errors: raise an error if a pivot is 0 (default: False).

    Returns:
        A named tuple (LU, pivots, info). For each matrix, `info` is the first step (from 1) with a pivot of 0, or 0.

    Raises:
        LinAlgError: `check_errors` is True, and a pivot is 0.
    """
    LU, pivots = lu_factor(A, pivot=pivot)
    zero = np.diagonal(to_cpu(LU), axis1=-2, axis2=-1) == 0
    info = np.zeros(zero.shape[:-1], np.int32)
    if zero.shape[-1]:
        info = np.where(zero.any(-1), zero.argmax(-1) + 1, 0).astype(np.int32)
    if check_errors and info.any():
        raise LinAlgError(
            f"linalg.lu_factor: U[{info.max()},{info.max()}] is zero and using it on lu_solve would result in a division by zero."
        )
    return _LuFactorEx(LU, pivots, on_device_of(np.asarray(info), A))


def _check_pivots(pivots, rows):
    raw = raw_of(pivots)
    if isinstance(raw, np.ndarray) and raw.size and not (raw.min() >= 1 and raw.max() <= rows):
        raise RuntimeError(
            f"torch.lu_unpack: pivots must be between 1 and LU.size(-2): greater or equal to 1 and smaller or equal to LU.size(-2), {rows}"
        )


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """Computes P, L and U from a result of `lu_factor`.

    Args:
        LU_data: tensor of shape (…, M, N).
        LU_pivots: tensor of shape (…, min(M, N)).
        unpack_data: return L and U; if False, they are empty (default: True).
        unpack_pivots: return P; if False, it is empty (default: True).

    Returns:
        A named tuple (P, L, U).

    Raises:
        RuntimeError: pivots have another shape or dtype, or are not valid row numbers.
    """
    if unpack_pivots and raw_of(LU_pivots).dtype != np.int32:
        raise RuntimeError(
            f"lu_unpack: expected LU_pivots of dtype int32, as `lu_factor` returns them, got {LU_pivots.dtype}. Convert them with `.int()`."
        )
    rows, columns = LU_data.shape[-2:] if LU_data.ndim > 1 else (0, 0)
    k = min(rows, columns)
    if LU_data.ndim < 2 or tuple(LU_pivots.shape) != (*LU_data.shape[:-2], k):
        raise RuntimeError(
            f"lu_unpack: a factorization of shape {list(LU_data.shape)} does not have pivots of shape {list(LU_pivots.shape)}"
        )
    P = L = U = _empty(LU_data)
    if unpack_pivots:
        _check_pivots(LU_pivots, rows)
        order = rows_after(to_cpu(LU_pivots).astype(np.int64) - 1, rows)
        P = _permutation(order, raw_of(LU_data).dtype, LU_data)
    if unpack_data:
        L = LU_data[..., :k].tril(-1) + _eye_like(LU_data, rows, k)
        U = LU_data[..., :k, :].triu()
    return _Lu(P, L, U)


@in_precision(None)
def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """Solves A X = B with the result of `lu_factor` for A.

    Args:
        LU: tensor of shape (…, N, N).
        pivots: tensor of shape (…, N).
        B: tensor of shape (…, N, K).
        adjoint: True to solve with the conjugate transpose of A (default: False).

    Returns:
        X, a tensor of the shape of B.

    Raises:
        RuntimeError: shapes do not match, or pivots are not valid row numbers.
        LinAlgError: a pivot of U is 0.

    Example:
        >>> LU, pivots = mytorch.linalg.lu_factor(tensor([[2.0, 0.0], [0.0, 4.0]]))
        >>> mytorch.linalg.lu_solve(LU, pivots, tensor([[2.0], [2.0]])).tolist()
        [[1.0], [0.5]]
    """
    P, L, U = lu_unpack(LU, pivots)
    A = P @ L @ U
    return solve(A.mH if adjoint else A, B, left=left)


def ldl_factor(A, *, hermitian=False):
    """Computes a compact LDL decomposition of symmetric or Hermitian matrices. It is not differentiable.

        A = P L D L^T P^T

    Args:
        A: tensor of shape (…, N, N). Only the lower triangles are read.
        hermitian: True if complex matrices are Hermitian, False if they are symmetric (default: False).

    Returns:
        A named tuple (LD, pivots). LD contains L below the diagonal, and the blocks of D on the diagonal.

    Raises:
        LinAlgError: a block of D is 0.
    """
    LD, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return _LdlFactor(LD, pivots)


def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """Computes a compact LDL decomposition, and reports blocks of D that are 0.

    Args:
        A: tensor of shape (…, N, N). Only the lower triangles are read.
        hermitian: True if complex matrices are Hermitian, False if they are symmetric (default: False).
        check_errors: raise an error if a block of D is 0 (default: False).

    Returns:
        A named tuple (LD, pivots, info). For each matrix, `info` is the first column (from 1) in which D is 0, or 0.

    Raises:
        RuntimeError: the dtype is not supported.
        LinAlgError: `check_errors` is True, and a block of D is 0.
    """
    raw = to_cpu(_d.square(A, "ldl_factor_ex"))
    if raw.dtype.kind not in "fc" or raw.itemsize == 2:
        raise RuntimeError(
            f"linalg.ldl_factor_ex: Expected a floating point (of 32 or 64 bits) or complex tensor as input. Got {A.dtype}"
        )
    hermitian = hermitian and raw.dtype.kind == "c"
    if hermitian:  # like LAPACK, ignore the imaginary part of the diagonal
        raw = raw.copy()
        np.einsum("...ii->...i", raw).imag = 0
    LD, pivots, info = (on_device_of(part, A) for part in _d.ldl_parts(raw, hermitian))
    LD = in_column_order(LD)
    if check_errors and info.any():
        raise LinAlgError(f"linalg.ldl_factor: D[{int(info.max())},{int(info.max())}] is zero.")
    return _LdlFactorEx(_without_derivative(LD, A, name="linalg.ldl_factor"), pivots, info)


def ldl_solve(LD, pivots, B, *, hermitian=False):
    """Solves A X = B with the result of `ldl_factor` for A. Batch dimensions are broadcast.

    Args:
        LD: tensor of shape (…, N, N) from `ldl_factor`.
        pivots: tensor of shape (…, N) from `ldl_factor`.
        B: tensor of shape (…, N, K).
        hermitian: the same value as in `ldl_factor` (default: False).

    Returns:
        X, a tensor of shape (…, N, K).

    Raises:
        RuntimeError: shapes or dtypes do not match.
    """
    _d.square(LD, "ldl_solve")
    if B.ndim < 2 or B.shape[-2] != LD.shape[-1] or B.dtype is not LD.dtype:
        raise RuntimeError(
            f"linalg.ldl_solve: matrices of shape {list(LD.shape)} and {LD.dtype} don't fit B of {list(B.shape)}, {B.dtype}"
        )
    if pivots.shape != LD.shape[:-1] or raw_of(pivots).dtype.kind not in "iu":
        raise RuntimeError(
            f"linalg.ldl_solve: Expected pivots to be integers of shape {list(LD.shape[:-1])}, got {pivots.dtype} of {list(pivots.shape)}"
        )
    A, order, right = (to_cpu(x) for x in (LD, pivots, B))
    if order.size and not 1 <= abs(order).min() <= abs(order).max() <= A.shape[-1]:
        raise RuntimeError(f"linalg.ldl_solve: pivots must satisfy 1 <= |pivot| <= {A.shape[-1]}")
    batch = np.broadcast_shapes(A.shape[:-2], right.shape[:-2])
    X = np.empty((*batch, *right.shape[-2:]), right.dtype)
    A, order = np.broadcast_to(A, (*batch, *A.shape[-2:])), np.broadcast_to(order, (*batch, order.shape[-1]))
    right = np.broadcast_to(right, X.shape)
    for i in np.ndindex(batch):
        X[i] = _d.ldl_solved(A[i], order[i], right[i], hermitian and X.dtype.kind == "c")
    solution = _without_derivative(in_column_order(on_device_of(X, LD)), LD, name="linalg.ldl_solve")
    return _without_derivative(solution, B, name="linalg.ldl_solve")


@in_precision()
def householder_product(A, tau):
    """Computes the first columns of a product of Householder reflections `1 - tau v v^H`.

    Args:
        A: tensor of shape (…, M, N). The vectors v are below its diagonal.
        tau: tensor of shape (…, K) with the factors.

    Returns:
        A tensor of shape (…, M, N).

    Raises:
        RuntimeError: shapes or dtypes do not match, there are more vectors than columns, or more columns than rows.
    """
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.householder_product: input must have at least 2 dimensions.")
    if tau.ndim != A.ndim - 1 or tau.shape[:-1] != A.shape[:-2]:
        raise RuntimeError(
            f"torch.linalg.householder_product: Expected tau of shape {[*A.shape[:-2], 'K']}, but got {list(tau.shape)}"
        )
    if tau.dtype is not A.dtype:
        raise RuntimeError(
            f"torch.linalg.householder_product: tau dtype {tau.dtype} does not match input dtype {A.dtype}"
        )
    for larger, smaller, words in (
        (A.shape[-2], A.shape[-1], "input.shape[-2] must be greater than or equal to input.shape[-1]"),
        (A.shape[-1], tau.shape[-1], "input.shape[-1] must be greater than or equal to tau.shape[-1]"),
    ):
        if larger < smaller:
            raise RuntimeError(f"torch.linalg.householder_product: {words}, got {smaller} for {larger}")
    return _reflected(A, tau, A.shape[-1])


def _reflected(A, tau, count):
    """Returns the first `count` columns of the product of the reflections."""
    rows, columns = A.shape[-2:]
    out = _eye_like(A, rows, count).expand(*A.shape[:-2], rows, count)
    V = A.tril(-1) + _eye_like(A, rows, columns)
    for i in reversed(range(tau.shape[-1])):  # the last reflection first: it is applied to few columns
        v = V[..., i : i + 1]
        out = out - tau[..., i, None, None] * v @ (v.mH @ out)
    out = in_column_order(out)
    return out if tau.shape[-1] else out + A[..., :0, :].sum()  # connects the graph to A without using its values


# -- powers, solving, products ------------------------------------------------------------------------------------


def matrix_power(A, n):
    """Computes the n-th power of square matrices.

    Args:
        A: tensor of shape (…, N, N).
        n: exponent, an integer. A negative exponent inverts the matrices.

    Returns:
        A tensor of shape (…, N, N).

    Raises:
        RuntimeError: matrices are not square.
        LinAlgError: `n` is negative, and a matrix is singular.

    Example:
        >>> mytorch.linalg.matrix_power(tensor([[2.0, 0.0], [0.0, 3.0]]), 2).tolist()
        [[4.0, 0.0], [0.0, 9.0]]
    """
    square(A, "matrix_power")
    if n == 0:
        return _eye_like(A, A.shape[-1]).expand(*A.shape).clone() + A * 0
    if n < 0:
        return matrix_power(inverse(A), -n)
    if n == 1:
        return A.clone()
    out = None
    while n:
        if n & 1:
            out = A if out is None else out @ A
        n >>= 1
        A = A @ A if n else A
    return out


@in_precision(None)
def matrix_exp(A):
    """Computes the matrix exponential of square matrices.

    The method is scaling and squaring: it scales each matrix by a power of 2 to a norm below 1, adds 18 terms of the power
    series, and squares the result.

    Args:
        A: tensor of shape (…, N, N).

    Returns:
        A tensor of shape (…, N, N).

    Raises:
        RuntimeError: matrices are not square.

    Source: C. Moler, C. Van Loan, Nineteen dubious ways to compute the exponential of a matrix, 2003.

    Example:
        >>> mytorch.linalg.matrix_exp(mytorch.zeros(2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    square(A, "matrix_exp")
    norms = to_cpu(A.detach().abs().sum(-1).amax(-1)[..., None, None]) if A.numel() else np.zeros((1, 1), np.float32)
    squarings = np.frexp(np.where(np.isfinite(norms), norms, 0.0).astype(np.float64))[1].clip(0)  # norm <= 2^squarings
    x = A * on_device_of(np.ldexp(1.0, -squarings).astype(norms.dtype), A)
    term = out = one = _eye_like(A, A.shape[-1]).expand(*A.shape)
    for k in range(1, 19):
        term = term @ x * (1.0 / k)
        out = out + term
    for done in range(squarings.max(initial=0)):
        active = squarings > done
        out = out @ (out if active.all() else where(on_device_of(active, A), out, one))
    return out


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """Solves A X = B for triangular matrices A.

    Args:
        A: tensor of shape (…, N, N).
        B: tensor of shape (…, N, K).
        upper: True if A is upper triangular, False if it is lower triangular.
        unitriangular: True to treat the diagonal of A as ones (default: False).

    Returns:
        X, a tensor of shape (…, N, K).

    Raises:
        RuntimeError: shapes do not match.

    Example:
        >>> A, B = tensor([[2.0, 0.0], [1.0, 1.0]]), tensor([[4.0], [5.0]])
        >>> mytorch.linalg.solve_triangular(A, B, upper=False).tolist()
        [[2.0], [3.0]]
    """
    square(A, "solve_triangular")
    side = B.shape[-2 if left else -1] if B.ndim > 1 else None
    if side != A.shape[-1]:
        raise RuntimeError(
            f"linalg.solve_triangular: A of shape {list(A.shape)} and B of shape {list(B.shape)} don't fit. B must have at least 2 "
            f"dimensions and {A.shape[-1]} {'rows' if left else 'columns'}"
        )
    if left:
        return _d.triangular_solution.fast_call(A, B, upper=upper, unit=unitriangular)
    return _d.triangular_solution.fast_call(A.mT, B.mT, upper=not upper, unit=unitriangular).mT


def solve_ex(A, B, *, left=True, check_errors=False):
    """Solves A X = B, and reports singular matrices. The solution for a singular matrix is NaN.

    Args:
        A: tensor of shape (…, N, N).
        B: tensor of shape (…, N) or (…, N, K).
        check_errors: raise an error for a singular matrix (default: False).

    Returns:
        A named tuple (result, info). For each matrix, `info` is the first step (from 1) without a pivot, or 0.

    Raises:
        LinAlgError: `check_errors` is True, and a matrix is singular.
    """
    try:
        return _SolveEx(solve(A, B, left=left), _no_errors(A))
    except np.linalg.LinAlgError:
        if check_errors:
            raise
    regular, bad, info = _without_singular(A, _steps_without_pivot(to_cpu(A)))
    found = solve(regular, B, left=left)
    return _SolveEx(in_column_order(found.masked_fill(bad if found.ndim >= A.ndim else bad[..., 0], math.nan)), info)


def inv_ex(A, *, check_errors=False):
    """Inverts square matrices, and reports singular matrices. The inverse of a singular matrix is NaN.

    Args:
        A: tensor of shape (…, N, N).
        check_errors: raise an error for a singular matrix (default: False).

    Returns:
        A named tuple (inverse, info). For each matrix, `info` is the first step (from 1) without a pivot, or 0.

    Raises:
        LinAlgError: `check_errors` is True, and a matrix is singular.

    Example:
        >>> inverse, info = mytorch.linalg.inv_ex(tensor([[1.0, 2.0], [2.0, 4.0]]))
        >>> info.item()
        2
    """
    try:
        return _InvEx(inverse(A), _no_errors(A))
    except LinAlgError:
        info = _steps_without_pivot(to_cpu(A))
        if check_errors:
            raise LinAlgError(
                f"linalg.inv: The diagonal element {info.max()} is zero, the inversion could not be completed because the input "
                "matrix is singular."
            ) from None
    regular, bad, info = _without_singular(A, info)
    return _InvEx(in_column_order(inverse(regular).masked_fill(bad, math.nan)), info)


def _without_singular(A, info):
    """Returns the matrices with the identity where info is not 0, the mask of the replaced matrices, and info on the device of A."""
    info = on_device_of(info, A)
    bad = (info > 0)[..., None, None]
    return A.masked_fill(bad, 0) + _eye_like(A, A.shape[-1]) * bad, bad, info


def _steps_without_pivot(raw):
    """Returns for each square matrix the first step (from 1) of the elimination with a pivot of 0, or 0."""
    info = np.zeros(raw.shape[:-2], np.int32)
    for place in np.ndindex(*info.shape):
        sizes = (np.linalg.matrix_rank(raw[place][:, :k]) == k for k in range(1, raw.shape[-1] + 1))
        info[place] = next((k for k, full in enumerate(sizes, 1) if not full), 0)
    return info


def cholesky_ex(A, *, upper=False, check_errors=False):
    """Computes the Cholesky decomposition, and reports matrices that are not positive definite.

    The factor of a matrix that is not positive definite is NaN.

    Args:
        A: Hermitian tensor of shape (…, N, N).
        upper: return the upper triangular factor (default: False).
        check_errors: raise an error if a matrix is not positive definite (default: False).

    Returns:
        A named tuple (L, info). For each matrix, `info` is the order of the first leading minor that is not
        positive definite, or 0.

    Raises:
        LinAlgError: `check_errors` is True, and a matrix is not positive definite.

    Example:
        >>> L, info = mytorch.linalg.cholesky_ex(tensor([[1.0, 0.0], [0.0, -1.0]]))
        >>> info.item()
        2
    """
    try:
        return _CholeskyEx(cholesky(A, upper), _no_errors(A))
    except np.linalg.LinAlgError:
        if check_errors:
            raise
    raw = to_cpu(A)
    info = np.zeros(A.shape[:-2], np.int32)
    for i in np.ndindex(*info.shape):
        if _has_no_factor(raw[i]):
            minors = range(1, A.shape[-1] + 1)
            info[i] = 1 + bisect.bisect_left(minors, True, key=lambda k: _has_no_factor(raw[i][:k, :k]))
    regular, bad, info = _without_singular(A, info)
    return _CholeskyEx(in_column_order(cholesky(regular, upper).masked_fill(bad, math.nan)), info)


def _has_no_factor(raw):
    """Returns True if a NumPy matrix is not positive definite."""
    try:
        np.linalg.cholesky(raw)
    except np.linalg.LinAlgError:
        return True
    return False


def multi_dot(tensors, *, out=None):
    """Computes the product of several matrices, in the order with the fewest multiplications.

    Args:
        tensors: sequence of at least two matrices. The first and the last can be vectors.
        out: tensor for the result.

    Returns:
        The product: a matrix, or a vector or a number if the first or the last tensor is a vector.

    Raises:
        RuntimeError: there are fewer than two tensors, or dimensions or dtypes do not match.

    Example:
        >>> A, B, C = mytorch.ones(2, 100), mytorch.ones(100, 3), mytorch.ones(3, 4)
        >>> mytorch.linalg.multi_dot([A, B, C]).shape
        mytorch.Size([2, 4])
    """
    tensors = list(tensors)
    if out is not None:
        result = multi_dot(tensors)
        if out.dtype is not result.dtype:
            raise RuntimeError(f"multi_dot(): expected out tensor to have dtype {result.dtype} but got {out.dtype}")
        return write_out(result, out, "multi_dot")
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    for i, x in enumerate(tensors):
        if x.ndim != 2 and (x.ndim != 1 or 0 < i < len(tensors) - 1):
            raise RuntimeError(
                f"multi_dot(): tensor {i} must be 2D{'' if 0 < i < len(tensors) - 1 else ' or 1D'} but got {x.ndim}D"
            )
        if x.dtype is not tensors[0].dtype and get_mode().autocast is None:
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype, but tensor {i} is {x.dtype}")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    if first:
        tensors[0] = tensors[0].unsqueeze(0)
    if last:
        tensors[-1] = tensors[-1].unsqueeze(-1)
    sizes = [tensors[0].shape[0], *(t.shape[1] for t in tensors)]
    n = len(tensors)
    cost, cuts = [[0] * n for _ in range(n)], {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], cuts[i, j] = min(options)

    def product(i, j):
        return tensors[i] if i == j else matmul(product(i, cuts[i, j]), product(cuts[i, j] + 1, j))

    out = product(0, n - 1)
    out = out.squeeze(0) if first else out
    return out.squeeze(-1) if last else out


@in_precision("half")
def vecdot(x, y, *, dim=-1):
    """Computes inner products along a dimension. The first tensor is conjugated.

    Args:
        x: tensor of shape (…, N). Complex elements are conjugated.
        y: tensor of a shape that broadcasts with `x`.
        dim: dimension to sum (default: -1).

    Returns:
        A tensor of the broadcast shape without dimension `dim`.

    Raises:
        RuntimeError: shapes do not broadcast.

    Example:
        >>> mytorch.linalg.vecdot(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 1.0])).tolist()
        [3.0, 7.0]
    """
    return (x.conj() * y).sum(dim)


def vander(x, N=None):
    """Computes Vandermonde matrices: the powers 0 to N - 1 of each element, along a new last dimension.

    Args:
        x: tensor of shape (…).
        N: number of columns (default: size of the last dimension).

    Returns:
        A tensor of shape (…, N).

    Raises:
        RuntimeError: there are fewer than two columns.

    Example:
        >>> mytorch.linalg.vander(tensor([2, 3]), N=3).tolist()
        [[1, 2, 4], [1, 3, 9]]
    """
    x = x.reshape(1) if x.ndim == 0 else x
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {n}.")
    ones = x.new_ones(x.shape).unsqueeze(-1)
    return cat([ones, x.unsqueeze(-1).expand(*x.shape, n - 1).cumprod(-1)], -1)


def tensorinv(A, ind=2):
    """Inverts a tensor as a linear map from its last dimensions to its first `ind` dimensions.

    Args:
        A: the tensor. The product of its first `ind` sizes must be equal to the product of the others.
        ind: number of dimensions of the result of the linear map (default: 2).

    Returns:
        A tensor of shape `A.shape[ind:] + A.shape[:ind]`.

    Raises:
        RuntimeError: `ind` is not positive, or sizes do not match.

    Example:
        >>> A = mytorch.eye(4).reshape(4, 2, 2)
        >>> mytorch.linalg.tensorinv(A, ind=1).shape
        mytorch.Size([2, 2, 4])
    """
    if ind <= 0:
        raise RuntimeError(f"tensorinv: Expected a strictly positive integer for 'ind', but got {ind}")
    n = math.prod(A.shape[:ind])
    if n != math.prod(A.shape[ind:]):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {math.prod(A.shape[ind:])} != {n}"
        )
    return inverse(A.reshape(n, n)).reshape(*A.shape[ind:], *A.shape[:ind])


def tensorsolve(A, B, dims=None):
    """Solves `tensordot(A, X, X.ndim) = B` for X.

    Args:
        A: tensor of shape `B.shape + X.shape`.
        B: the right-hand side, a tensor of any shape.
        dims: dimensions of A to move to its end first (default: none).

    Returns:
        X, a tensor of shape `A.shape[B.ndim:]`, after the move of `dims`.

    Raises:
        TypeError: `dims` is not a tuple or list.
        RuntimeError: the sizes of A and B do not match.
        LinAlgError: A is singular.

    Example:
        >>> A, B = mytorch.eye(4).reshape(2, 2, 4), tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> mytorch.linalg.tensorsolve(A, B).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    if dims is not None:
        if not isinstance(dims, (tuple, list)):
            raise TypeError(f"linalg.tensorsolve: dims must be a tuple of ints, not {type(dims).__name__}")
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim :])
    return solve(A.reshape(B.numel(), math.prod(shape)), B.reshape(-1)).reshape(shape)


norm = also_named(norm, {"axis": "dim", "keepdims": "keepdim"})

_ARGUMENTS = {  # of several functions
    "A": "tensor of shape (…, M, N).",
    "pivot": "exchange rows for numerical stability (default: True).",
    "keepdim": "keep reduced dimensions with size 1 (default: False).",
    "left": "False to solve X A = B (default: True).",
    "dtype": "dtype of the result.",
}
for _name, _function in list(globals().items()):
    _ours = getattr(_function, "__module__", None) in (__name__, _d.__name__) and not _name.startswith("_")
    if (_ours or _name in ("matmul", "tensordot")) and callable(_function) and not isinstance(_function, type):
        globals()[_name] = found_by_pickle(
            _described(public_function(takes_out(_function)), **_ARGUMENTS), _name, __name__
        )

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip
