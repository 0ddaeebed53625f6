"""Linear algebra, with `torch.linalg`'s names. Decompositions are NumPy's; their gradients are in ops/linalg.py."""

import math
from collections import namedtuple

import numpy as np

from .ops.creation import eye
from .ops.elementwise import where
from .ops.linalg import _eigh, _qr, _square, _svd, cholesky, cross, det, inverse, matmul, slogdet, solve, tensordot
from .ops.reduction import normalize_dims
from .ops.reduction import vector_norm as _vector_norm
from .ops.shapes import diagonal
from .tensor import Tensor

inv = inverse
LinAlgError = np.linalg.LinAlgError


def _tuple(name, fields):
    return namedtuple(name, fields)


_Eigh, _Svd, _Qr = _tuple("eigh", "eigenvalues eigenvectors"), _tuple("svd", "U S Vh"), _tuple("qr", "Q R")
_Lstsq, _Eig = _tuple("lstsq", "solution residuals rank singular_values"), _tuple("eig", "eigenvalues eigenvectors")


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The ord-norm of all elements or along `dim`."""
    x = x if dtype is None else x.to(dtype)
    return _vector_norm(x, ord=float(ord), dim=normalize_dims(dim, x.ndim, "vector_norm"), keepdim=keepdim)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """A norm of matrices: "fro", "nuc", inf, -inf, 1, -1, 2 or -2.

    Raises:
        RuntimeError: another order.
    """
    A = A if dtype is None else A.to(dtype)
    rows, columns = (d % A.ndim for d in dim)
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


def norm(A, ord=None, dim=None, keepdim=False, *, out=None, dtype=None):
    """A vector norm, or a matrix norm where two axes or a matrix order are given."""
    if ord is None or (dim is None and A.ndim == 1) or isinstance(dim, int) or (dim is not None and len(dim) == 1):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype)


def eigh(A, UPLO="L"):
    """(eigenvalues in ascending order, eigenvectors) of symmetric matrices, one triangle of which is read."""
    _square(A, "eigh")
    low = A.tril() if UPLO == "L" else A.triu().mT
    strict = low.tril(-1)
    return _Eigh(*_eigh(low + strict.mT))


def eigvalsh(A, UPLO="L"):
    """The eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO).eigenvalues


def eig(A):
    """(eigenvalues, eigenvectors) of square matrices, complex; no gradient."""
    values, vectors = np.linalg.eig(_square(A, "eig").detach().numpy())
    kind = np.complex128 if A.dtype.itemsize == 8 else np.complex64
    return _Eig(Tensor._wrap(values.astype(kind)), Tensor._wrap(vectors.astype(kind)))


def eigvals(A):
    """The eigenvalues of square matrices, complex; no gradient."""
    return eig(A).eigenvalues


def svd(A, full_matrices=True, *, driver=None):
    """(U, S, Vh) with A = U diag(S) Vh. The gradient needs full_matrices=False."""
    square = A.shape[-1] == A.shape[-2]
    if full_matrices and not square:
        if A.requires_grad:
            raise RuntimeError("linalg.svd: the gradient of the full decomposition does not exist; use full_matrices=False.")
        return _Svd(*_svd(A, full=True))
    return _Svd(*_svd(A, full=False))


def svdvals(A, *, driver=None):
    """The singular values, descending."""
    return svd(A, full_matrices=False).S


def qr(A, mode="reduced"):
    """(Q, R) with A = Q R.

    Raises:
        RuntimeError: a gradient is asked for where it does not exist.
    """
    if mode == "reduced" and A.shape[-2] >= A.shape[-1]:
        return _Qr(*_qr(A))
    if A.requires_grad:
        raise RuntimeError("linalg.qr: the derivative is implemented for mode='reduced' of matrices with at least as many rows as columns.")
    if mode == "r":
        return _Qr(Tensor._wrap(np.empty(0, A.numpy().dtype)), Tensor._wrap(np.linalg.qr(A.numpy(), "r")))
    return _Qr(*(Tensor._wrap(x) for x in np.linalg.qr(A.numpy(), mode)))


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse."""
    U, S, Vh = svd(A, full_matrices=False)
    rtol = rtol if rtol is not None else rcond
    rtol = max(A.shape[-2:]) * np.finfo(A.numpy(force=True).dtype).eps if rtol is None else rtol
    cut = S.detach().amax(-1, keepdim=True) * rtol
    cut = cut if atol is None else cut.clamp(min=float(atol))
    inverse_s = where(S > cut, 1.0 / where(S > cut, S, 1.0), 0.0)
    return (Vh.mT * inverse_s.unsqueeze(-2)) @ U.mT


def lstsq(A, B, rcond=None, *, driver=None):
    """The least-squares solution of A X = B: a named tuple whose `solution` is differentiable."""
    return _Lstsq(pinv(A, rcond) @ B, Tensor([]), Tensor._wrap(np.asarray(np.linalg.matrix_rank(A.numpy(force=True)))), Tensor([]))


def matrix_rank(A, *, atol=None, rtol=None, hermitian=False):
    """How many singular values are not negligible."""
    s = svdvals(A.detach())
    rtol = max(A.shape[-2:]) * np.finfo(A.numpy(force=True).dtype).eps if rtol is None else rtol
    return (s > s.amax(-1, keepdim=True) * rtol).sum(-1)


def cond(A, p=None):
    """The condition number."""
    if p in (None, 2, -2):
        s = svdvals(A)
        return s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    return matrix_norm(A, p) * matrix_norm(inverse(A), p)


def matrix_power(A, n):
    """A multiplied with itself n times; negative n for the inverse."""
    _square(A, "matrix_power")
    if n == 0:
        return eye(A.shape[-1], dtype=A.dtype).expand(*A.shape).clone()
    if n < 0:
        return matrix_power(inverse(A), -n)
    out = None
    while n:
        if n & 1:
            out = A if out is None else out @ A
        n >>= 1
        A = A @ A if n else A
    return out


def matrix_exp(A):
    """e to the power of square matrices, by scaling and squaring of its series."""
    _square(A, "matrix_exp")
    size = float(A.detach().abs().sum(-1).max()) if A.numel() else 0.0
    squarings = max(0, math.ceil(math.log2(size)) + 4) if size > 0 else 0
    x = A * (0.5**squarings)
    term = out = eye(A.shape[-1], dtype=A.dtype).expand(*A.shape)
    for k in range(1, 13):
        term = term @ x * (1.0 / k)
        out = out + term
    for _ in range(squarings):
        out = out @ out
    return out


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B for triangular A (or X A = B)."""
    A = A.triu() if upper else A.tril()
    if unitriangular:
        one = eye(A.shape[-1], dtype=A.dtype)
        A = A * (1 - one) + one
    return solve(A, B, left=left)


def multi_dot(tensors):
    """The product of several matrices."""
    out = tensors[0]
    for t in tensors[1:]:
        out = matmul(out, t)
    return out


def vecdot(x, y, *, dim=-1):
    """Inner products along an axis."""
    return (x.conj() * y).sum(dim)


def inv_ex(A, *, check_errors=False):
    """(inverse, zeros)."""
    return inverse(A), Tensor._wrap(np.zeros(A.shape[:-2], np.int32))


def cholesky_ex(A, *, upper=False, check_errors=False):
    """(cholesky, zeros)."""
    return cholesky(A, upper), Tensor._wrap(np.zeros(A.shape[:-2], np.int32))


def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, B.ndim) = B."""
    shape = tuple(A.shape[B.ndim :])
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(shape)


__all__ = ["cross", "det", "diagonal", "slogdet", "tensordot"]
