"""Linear algebra, with `torch.linalg`'s names. Decompositions and their gradients are in ops/decompositions.py.

Matrices are the last two axes of a tensor, everything before them is a batch.
"""

import functools
import math
from collections import namedtuple

import numpy as np

from ._array import on_input_device
from ._tensor import Tensor
from .backend import xp_of
from .base.errors import LinAlgError
from .dispatch.bind import also_named
from .dispatch.out import takes_out, write_out
from .dispatch.precision import in_precision
from .dispatch.unwrap import on_device_of, raw_of, to_cpu
from .engine.mode import get_mode
from .ops import decompositions as _d
from .ops.creation import eye
from .ops.decompositions import cholesky, det, inverse, lu_parts, qr_reduced, rows_after, slogdet, solve, square
from .ops.elementwise import where
from .ops.linalg import cross, matmul, tensordot
from .ops.movement import cat
from .ops.padding import pad
from .ops.reduction import normalize_dim, normalize_dims
from .ops.reduction import vector_norm as _vector_norm
from .ops.shapes import diagonal as _diagonal

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
    """A unit matrix of that size with the dtype and device of A."""
    return eye(*size, dtype=A.dtype, device=A.device)


def _no_errors(A):
    """The `info` of a batch of matrices none of which failed."""
    return on_device_of(np.zeros(A.shape[:-2], np.int32), A)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices, as a new last axis; a view."""
    return _diagonal(A, offset, dim1, dim2)


# -- norms --------------------------------------------------------------------------------------------------------


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The ord-norm of all elements or along `dim`; ord is any number, inf and -inf among them.

    Args:
        x: the tensor.
        ord: the order.
        dim: the axes; all if None.
        keepdim: keep the reduced axes with size 1.
        dtype: dtype of the result.

    Raises:
        RuntimeError: integers, or no element to take the largest of.
    """
    if dtype is None and not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {x.dtype.name}"
        )
    x = x if dtype is None else x.to(dtype)
    empty = not x.numel() and (dim is None or 0 in [x.shape[d] for d in np.atleast_1d(dim)])
    if empty and (ord < 0 or ord == math.inf):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor or dimension, because the operation has no identity"
        )
    return _vector_norm(x, ord=float(ord), dim=normalize_dims(dim, x.ndim, "vector_norm"), keepdim=keepdim)


def _two_axes(dim, ndim):
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    return tuple(normalize_dim(d, ndim) for d in dim)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """A norm of matrices: "fro", "nuc", inf, -inf, 1, -1, 2 or -2.

    Args:
        A: (…, M, N).
        ord: which norm.
        dim: the two axes of the matrices.
        keepdim: keep the reduced axes with size 1.
        dtype: dtype of the result.

    Raises:
        RuntimeError: another order, or fewer than two axes.
    """
    if A.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    A = A if dtype is None else A.to(dtype)
    rows, columns = _two_axes(dim, A.ndim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim)
    if ord in (math.inf, -math.inf, 1, -1):
        inner, outer = (columns, rows) if abs(ord) == math.inf else (rows, columns)
        sums = A.abs().sum(inner, keepdim=True)
        out = sums.amax(outer, keepdim=True) if ord > 0 else sums.amin(outer, keepdim=True)
    elif ord in ("nuc", 2, -2):
        s = svdvals(A.movedim((rows, columns), (-2, -1)))
        out = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
        for d in sorted((rows, columns)):
            out = out.unsqueeze(d)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return out if keepdim else out.squeeze((rows, columns))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """A vector norm, or a matrix norm where two axes or a matrix order are given.

    Args:
        A: the tensor.
        ord: the order; 2, or "fro" of a matrix, by default.
        dim: one axis for vectors, two for matrices.
        keepdim: keep the reduced axes with size 1.
        dtype: dtype of the result.

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
    return matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype)


def cond(A, p=None):
    """The condition number of matrices with respect to the norm p (2 by default); inf for singular ones."""
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
    """(eigenvalues in ascending order, eigenvectors) of symmetric or Hermitian matrices, of which one triangle is read.

    Raises:
        RuntimeError: UPLO is neither "L" nor "U", or matrices that are not square.

    Example:
        >>> mytorch.linalg.eigh(tensor([[3.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
        [1.0, 3.0]
    """
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _Eigh(*_d._eigh(square(A, "eigh"), UPLO=UPLO.upper()))


def eigvalsh(A, UPLO="L"):
    """The eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO).eigenvalues


def eig(A):
    """(eigenvalues, eigenvectors) of square matrices, complex."""
    return _Eig(*_d._eig(square(A, "eig")))


def eigvals(A):
    """The eigenvalues of square matrices, complex."""
    return eig(A).eigenvalues


@on_input_device
def svd(A, full_matrices=True, *, driver=None):
    """(U, S, Vh) with A = U diag(S) Vh. The columns that full_matrices adds are constants to autograd.

    Args:
        A: (…, M, N).
        full_matrices: square U and Vh.
        driver: accepted; a choice for CUDA in PyTorch.

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
    return _Svd(U, S, Vh)


def svdvals(A, *, driver=None):
    """The singular values, descending."""
    return svd(A, full_matrices=False).S


def _cut(largest, shape, atol, rtol, kind):
    """Below which singular values count as 0: the larger of atol and rtol times the largest."""
    atol, rtol = (to_cpu(tol) if isinstance(tol, Tensor) else tol for tol in (atol, rtol))
    if rtol is None:
        given = isinstance(atol, np.ndarray) or (atol is not None and atol > 0)
        rtol = 0.0 if given else max(shape[-2:], default=0) * np.finfo(kind).eps
    return largest * rtol if atol is None else np.maximum(largest * rtol, atol)


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse (Moore-Penrose); singular values up to max(atol, rtol * largest) count as 0.

    Args:
        A: (…, M, N).
        rcond: older name of rtol.
        hermitian: A is Hermitian.
        atol: absolute cut.
        rtol: cut by the largest singular value; max(M, N) * eps by default.
    """
    if hermitian:
        square(A, "pinv")
    options = {"atol": atol, "rtol": rcond if rtol is None else rtol, "kind": _real_dtype(A)}
    return _d._pinv(A, cut=functools.partial(_cut, shape=A.shape, **options), hermitian=hermitian)


def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """How many singular values are above max(atol, rtol * largest).

    Args:
        A: (…, M, N).
        tol: absolute cut.
        hermitian: A is Hermitian.
        atol: absolute cut.
        rtol: cut by the largest singular value; max(M, N) * eps by default.

    Raises:
        RuntimeError: fewer than two axes.
    """
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


def lstsq(A, B, rcond=None, *, driver=None):
    """Least squares: the X that makes the norm of A X - B smallest.

    Args:
        driver: "gelsy" (default), "gels", "gelsd" or "gelss": which of rank and singular values are returned.

    Raises:
        RuntimeError: another driver, or axes that do not fit.

    Returns:
        A named tuple (solution, residuals, rank, singular_values); `solution` and `residuals` are differentiable.
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
    return _Lstsq(solution.squeeze(-1) if vector else solution, residuals, out_rank, s)


# -- QR and LU ----------------------------------------------------------------------------------------------------


def qr(A, mode="reduced"):
    """(Q, R) with A = Q R, Q orthonormal and R upper triangular.

    Args:
        mode: "reduced", "complete" (Q is square) or "r" (Q is empty and nothing is differentiable).

    Raises:
        RuntimeError: a gradient is needed in a mode that has none.

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
    if A.requires_grad:
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'."
            if mode == "r"
            else "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )
    raw = to_cpu(A)
    if mode == "r":
        return _Qr(_empty(A), on_device_of(np.linalg.qr(raw, "r"), A))
    return _Qr(*(on_device_of(x, A) for x in np.linalg.qr(raw, mode)))


def _permutation(order, dtype, like):
    """The matrices that move row order[i] back from row i: A = P L U."""
    n = order.shape[-1]
    P = np.zeros((*order.shape, n), dtype)
    np.put_along_axis(np.swapaxes(P, -1, -2), order[..., None], 1, -1)
    return on_device_of(P, like)


def lu(A, *, pivot=True):
    """(P, L, U) with A = P L U; P is empty without pivoting."""
    _, order, L, U = lu_parts(A, pivot)
    P = _permutation(order, raw_of(A).dtype, A) if pivot else _empty(A)
    return _Lu(P, L, U)


def _compact(L, U):
    """L below the diagonal, U on and above it, in one matrix."""
    rows, k, columns = L.shape[-2], L.shape[-1], U.shape[-1]
    return pad(L.tril(-1), (0, columns - k)) + pad(U, (0, 0, 0, rows - k))


def lu_factor(A, *, pivot=True):
    """(LU, pivots): both factors in one matrix, and which row (from 1) each step exchanged with its own."""
    if A.dtype.name == "bool":
        raise RuntimeError("linalg.lu_factor: Expected numbers, got a tensor of torch.bool")
    pivots, _, L, U = lu_parts(A, pivot)
    return _LuFactor(_compact(L, U), on_device_of(np.ascontiguousarray(pivots) + np.int32(1), A))


def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """lu_factor with `info`: for each matrix the first step (from 1) whose pivot is 0, or 0.

    Args:
        A: (…, M, N).
        pivot: exchange rows for stability.
        check_errors: raise where a pivot is 0.
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
    """(P, L, U) of what lu_factor returned.

    Args:
        LU_data: (…, M, N).
        LU_pivots: (…, min(M, N)).
        unpack_data: False leaves L and U empty.
        unpack_pivots: False leaves P empty.

    Raises:
        RuntimeError: pivots of another shape, or outside of the rows.
    """
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


def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X with A X = B (X A = B if not left; Aᴴ instead of A if adjoint), given lu_factor's result for A.

    Args:
        LU: (…, N, N).
        pivots: (…, N).
        B: (…, N, K).
        left: False solves X A = B.
        adjoint: solve with Aᴴ.
    """
    P, L, U = lu_unpack(LU, pivots)
    A = P @ L @ U
    return solve(A.mH if adjoint else A, B, left=left)


def ldl_factor(A, *, hermitian=False):
    """(LD, pivots): L below the diagonal and D on it of A = P L D Lᵀ Pᵀ, D of blocks of one or two columns; not differentiable.

    Args:
        A: (…, N, N), symmetric or Hermitian; the lower triangles are read.
        hermitian: complex matrices are Hermitian, not symmetric.

    Raises:
        LinAlgError: a block of D is 0.
    """
    LD, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return _LdlFactor(LD, pivots)


def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """ldl_factor with `info`: for each matrix the first column (from 1) in which D is 0, or 0.

    Args:
        A: (…, N, N), symmetric or Hermitian; the lower triangles are read.
        hermitian: complex matrices are Hermitian, not symmetric.
        check_errors: raise where D is 0.
    """
    raw = to_cpu(_d.square(A, "ldl_factor_ex"))
    if raw.dtype.kind not in "fc" or raw.itemsize == 2:
        raise RuntimeError(
            f"linalg.ldl_factor_ex: Expected a floating point (of 32 or 64 bits) or complex tensor as input. Got {A.dtype}"
        )
    hermitian = hermitian and raw.dtype.kind == "c"
    if hermitian:  # whose diagonal is real, as LAPACK takes it to be
        raw = raw.copy()
        np.einsum("...ii->...i", raw).imag = 0
    LD, pivots, info = (on_device_of(part, A) for part in _d.ldl_parts(raw, hermitian))
    if check_errors and info.any():
        raise LinAlgError(f"linalg.ldl_factor: D[{int(info.max())},{int(info.max())}] is zero.")
    return _LdlFactorEx(LD, pivots, info)


def ldl_solve(LD, pivots, B, *, hermitian=False):
    """X with A X = B, given ldl_factor's result for A; batches broadcast.

    Args:
        LD: (…, N, N), and
        pivots: (…, N), of ldl_factor.
        B: (…, N, K).
        hermitian: as it was given to ldl_factor.

    Raises:
        RuntimeError: shapes or dtypes that do not fit.
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
        raise RuntimeError(f"linalg.ldl_solve: pivots must satisfy 1 <= |pivot| <= {A.shape[-1]}, as ldl_factor's do")
    batch = np.broadcast_shapes(A.shape[:-2], right.shape[:-2])
    X = np.empty((*batch, *right.shape[-2:]), right.dtype)
    A, order = np.broadcast_to(A, (*batch, *A.shape[-2:])), np.broadcast_to(order, (*batch, order.shape[-1]))
    right = np.broadcast_to(right, X.shape)
    for i in np.ndindex(batch):
        X[i] = _d.ldl_solved(A[i], order[i], right[i], hermitian and X.dtype.kind == "c")
    return on_device_of(X, LD)


def householder_product(A, tau):
    """The first columns of the product of reflections 1 - tau v vᴴ, the vectors v below A's diagonal.

    Raises:
        RuntimeError: more vectors than columns, or more columns than rows.
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
    return _reflected(A, tau)[..., : A.shape[-1]]


def _reflected(A, tau):
    """The square product of the reflections."""
    rows, columns = A.shape[-2:]
    out = _eye_like(A, rows).expand(*A.shape[:-2], rows, rows)
    V = A.tril(-1) + _eye_like(A, rows, columns)
    for i in range(tau.shape[-1]):
        v = V[..., i : i + 1]
        out = out - tau[..., i, None, None] * (out @ v) @ v.mH
    return out if tau.shape[-1] else out + A[..., :0, :].sum()  # the graph, without a number of A


# -- powers, solving, products ------------------------------------------------------------------------------------


def matrix_power(A, n):
    """A multiplied with itself n times; negative n for the inverse."""
    square(A, "matrix_power")
    if n == 0:
        return _eye_like(A, A.shape[-1]).expand(*A.shape).clone() + A * 0
    if n < 0:
        return matrix_power(inverse(A), -n)
    out = None
    while n:
        if n & 1:
            out = A if out is None else out @ A
        n >>= 1
        A = A @ A if n else A
    return out


@in_precision(None)
def matrix_exp(A):
    """e to the power of square matrices: 18 terms of its series for A / 2^s of norm below 1, squared s times, each matrix as often as it needs.

    Source: C. Moler, C. Van Loan, "Nineteen dubious ways to compute the exponential of a matrix" (2003).
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
    """X with A X = B for triangular A (or X A = B).

    Args:
        A: (…, N, N).
        B: (…, N, K).
        upper: whether A is upper triangular.
        left: False solves X A = B.
        unitriangular: take A's diagonal as ones.
    """
    square(A, "solve_triangular")
    side = B.shape[-2 if left else -1] if B.ndim > 1 else None
    if side != A.shape[-1]:
        raise RuntimeError(
            f"linalg.solve_triangular: A of shape {list(A.shape)} and B of shape {list(B.shape)} don't fit; B wants at least 2 "
            f"dimensions and {A.shape[-1]} {'rows' if left else 'columns'}"
        )
    if left:
        return _d.triangular_solution.fast_call(A, B, upper=upper, unit=unitriangular)
    return _d.triangular_solution.fast_call(A.mT, B.mT, upper=not upper, unit=unitriangular).mT


def solve_ex(A, B, *, left=True, check_errors=False):
    """(solve, zeros): a singular matrix raises here too.

    Args:
        A: (…, N, N).
        B: (…, N) or (…, N, K).
        left: False solves X A = B.
        check_errors: accepted.
    """
    return _SolveEx(solve(A, B, left=left), _no_errors(A))


def inv_ex(A, *, check_errors=False):
    """(inverse, info). Where a matrix is singular, its `info` is the first step (from 1) without a pivot, its inverse NaN.

    Args:
        A: (…, N, N).
        check_errors: raise instead of telling by `info`.

    Raises:
        LinAlgError: with check_errors, for such a matrix.
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
    info = on_device_of(info, A)
    bad = (info > 0)[..., None, None]
    return _InvEx(inverse(A.masked_fill(bad, 0) + _eye_like(A, A.shape[-1]) * bad).masked_fill(bad, math.nan), info)


def _steps_without_pivot(raw):
    """For each square matrix the first step (from 1) of its elimination whose pivot is 0, or 0."""
    info = np.zeros(raw.shape[:-2], np.int32)
    for place in np.ndindex(*info.shape):
        sizes = (np.linalg.matrix_rank(raw[place][:, :k]) == k for k in range(1, raw.shape[-1] + 1))
        info[place] = next((k for k, full in enumerate(sizes, 1) if not full), 0)
    return info


def cholesky_ex(A, *, upper=False, check_errors=False):
    """(cholesky, info). Where a matrix is not positive definite, its `info` is 1 and its factor NaN.

    Args:
        A: (…, N, N), Hermitian.
        upper: return the upper factor.
        check_errors: raise instead of telling by `info`.

    Raises:
        LinAlgError: with check_errors, for such a matrix.
    """
    try:
        return _CholeskyEx(cholesky(A, upper), _no_errors(A))
    except np.linalg.LinAlgError:
        if check_errors:
            raise
    raw = to_cpu(A)
    info = np.zeros(A.shape[:-2], np.int32)
    for i in np.ndindex(*info.shape):
        try:
            np.linalg.cholesky(raw[i])
        except np.linalg.LinAlgError:
            info[i] = 1
    return _CholeskyEx(on_device_of(np.full_like(raw, np.nan), A), on_device_of(info, A))


def multi_dot(tensors, *, out=None):
    """The product of several matrices (the first and last may be vectors), in the cheapest order of multiplication."""
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
    """Inner products along an axis, the first conjugated.

    Args:
        x: the first tensor, conjugated.
        y: the second.
        dim: the axis that is summed.
    """
    return (x.conj() * y).sum(dim)


def vander(x, N=None):
    """The powers 0 to N - 1 of each element, along a new last axis.

    Raises:
        RuntimeError: fewer than two columns.
    """
    x = x.reshape(1) if x.ndim == 0 else x
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {n}.")
    ones = x.new_ones(x.shape).unsqueeze(-1)
    return cat([ones, x.unsqueeze(-1).expand(*x.shape, n - 1).cumprod(-1)], -1)


def tensorinv(A, ind=2):
    """The inverse of A as a linear map from its last axes to its first `ind` ones."""
    if ind <= 0:
        raise RuntimeError(f"tensorinv: Expected a strictly positive integer for 'ind', but got {ind}")
    n = math.prod(A.shape[:ind])
    if n != math.prod(A.shape[ind:]):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {math.prod(A.shape[ind:])} != {n}"
        )
    return inverse(A.reshape(n, n)).reshape(*A.shape[ind:], *A.shape[:ind])


def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.ndim) = B; `dims` names axes of A that are moved to its end first.

    Args:
        A: its first axes are B's, the others the result's.
        B: the right-hand side.
        dims: axes of A to move to its end first.
    """
    if dims is not None:
        if not isinstance(dims, (tuple, list)):
            raise TypeError(f"linalg.tensorsolve: dims must be a tuple of ints, not {type(dims).__name__}")
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim :])
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(shape)


norm = also_named(norm, {"axis": "dim", "keepdims": "keepdim"})


for _name, _function in list(globals().items()):
    _ours = getattr(_function, "__module__", None) in (__name__, _d.__name__) and not _name.startswith("_")
    if _ours and callable(_function) and not isinstance(_function, type):
        globals()[_name] = takes_out(_function)

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip
