"""Inverses, determinants and matrix decompositions, with their gradients; the arithmetic is NumPy's LAPACK.

Matrices are the last two axes, everything before them is a batch. Gradients follow the conventions of M. Giles,
"Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), with
adjoints for complex matrices. A decomposition is unique up to signs (or phases); losses must not depend on those.
"""

import math
from collections import namedtuple

import numpy as np

from ..arrays import CPU, ON_NUMPY, config, device_of, dtypes
from ..arrays.errors import LinAlgError
from ..arrays.memory_format import factors, in_columns
from ..autograd.mode import get_mode
from .dispatch.bind import public
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.unwrap import on_device_of, to_cpu
from .elementwise import cast, sgn, where
from .indexing import _triangle, tril
from .movement import cat, laid_by
from .reduction import normalize_dims, vector_norm


def matrices(input, name):
    """input, checked to have the two axes of matrices."""
    if input.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions.")
    return input


def square(input, name):
    """input, checked to hold square matrices."""
    matrices(input, name)
    if input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {input.shape[-2]} by {input.shape[-1]} matrices"
        )
    return input


def finite(x, name):
    """Returns x, after a check on the CPU that it has no inf and no NaN. LAPACK may not terminate for these values.

    Raises:
        LinAlgError: it holds some.
    """
    if device_of(x) is CPU and not np.isfinite(x).all():
        raise LinAlgError(
            f"linalg.{name}: The algorithm failed to converge because the input matrix contained non-finite values."
        )
    return x


def _T(xp, x):
    return xp.swapaxes(x, -1, -2)


def _H(xp, x):
    return xp.conj(xp.swapaxes(x, -1, -2))


def _eye(xp, x):
    """Returns a bool identity matrix with the size of the last axis of x. A product with it keeps the dtype."""
    return xp.asarray(np.eye(x.shape[-1], dtype=bool))


def in_column_order(x):
    """Returns matrices in column-major order, as LAPACK's results are."""
    return laid_by(in_columns, x)


def _diagonal_part(xp, x):
    """x with zeros off the diagonal."""
    return x * _eye(xp, x)


# -- inverse, solve, determinant ----------------------------------------------------------------------------------


@op(dtype="float", name="inverse", layout=in_columns)
def _inv(xp, input):
    try:
        return xp.linalg.inv(input)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.inv: The diagonal element is zero, the inversion could not be completed because the input matrix is singular."
        ) from None


_inv.grad(input=lambda g, out, xp: -xp.matmul(xp.matmul(_T(xp, out), g), _T(xp, out)))


@public(inplace=False)
def inverse(input):
    """Computes the inverses of square matrices.

    Args:
        input: (…, n, n).

    Returns:
        A tensor of shape (…, n, n).

    Raises:
        RuntimeError: a matrix is singular or not square.

    Example:
        >>> mytorch.linalg.inv(tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inv.fast_call(square(input, "inv"))


@op(dtype="float", name="linalg_solve", layout=in_columns)
def _solve(xp, input, other):
    try:
        return xp.linalg.solve(input, other)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.solve: The solver failed because the input matrix is singular.") from None


def _solve_input(g, input, out, xp):
    return -xp.matmul(xp.call(_solve, _T(xp, input), g), _T(xp, out))


_solve.grad(input=_solve_input, other=lambda g, input, xp: xp.call(_solve, _T(xp, input), g))


@op(dtype="float", name="linalg_solve_triangular", layout=in_columns)
def triangular_solution(xp, input, other, *, upper, unit=False):
    """By substitution, which no row of another size disturbs; a zero on the diagonal gives inf."""
    if xp not in ON_NUMPY:
        triangle = xp.triu(input, unit) if upper else xp.tril(input, -unit)
        return xp.linalg.solve(triangle + xp.eye(input.shape[-1], dtype=input.dtype) if unit else triangle, other)
    batch = np.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    return _substituted(input, np.broadcast_to(other, (*batch, *other.shape[-2:])), upper, unit)


def _substituted(A, B, upper, unit):
    """X with A X = B, by halves."""
    n = A.shape[-1]
    if n <= 1:
        return B.copy() if unit or not n else B / A
    a, b = slice(0, n // 2), slice(n // 2, n)
    first, then = (b, a) if upper else (a, b)
    X = np.empty(B.shape, np.result_type(A, B))
    X[..., first, :] = _substituted(A[..., first, first], B[..., first, :], upper, unit)
    rest = B[..., then, :] - A[..., then, first] @ X[..., first, :]
    X[..., then, :] = _substituted(A[..., then, then], rest, upper, unit)
    return X


def _triangular_input(g, input, out, upper, unit, xp):
    full = xp.matmul(xp.call(triangular_solution, _T(xp, input), g, upper=not upper, unit=unit), _T(xp, out))
    return -xp.call(_triangle, full, diagonal=int(unit) if upper else -int(unit), lower=not upper)


triangular_solution.grad(
    input=_triangular_input,
    other=lambda g, input, upper, unit, xp: xp.call(triangular_solution, _T(xp, input), g, upper=not upper, unit=unit),
)


def solve(A, B, *, left=True):
    """Solves linear systems A X = B, or X A = B.

    Use it in place of `inv(A) @ B`: it is faster and more accurate.

    Args:
        A: matrices, (…, n, n).
        B: right-hand sides, (…, n, k), or a batch of vectors (…, n).
        left: if False, solves X A = B (default: True).

    Returns:
        X, a tensor of the shape of B.

    Raises:
        LinAlgError: a matrix is singular.
        RuntimeError: the shapes do not fit.

    Example:
        >>> mytorch.linalg.solve(tensor([[2.0, 0.0], [0.0, 4.0]]), tensor([2.0, 2.0])).tolist()
        [1.0, 0.5]
    """
    square(A, "solve")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape)[:-1])
    if vector and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    if not left:
        return solve(A.mT, B.mT).mT
    try:
        out = _solve.fast_call(A, B.unsqueeze(-1) if vector else B)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.solve: The solver failed because the input matrix is singular.") from None
    return own(in_column_order(out.squeeze(-1))) if vector else out


@op(dtype="float", name="adjugate")
def _adjugate(xp, input):
    """det(A) inv(A), which exists for singular matrices too (there by way of the singular values)."""
    det = xp.linalg.det(input)
    if bool(xp.all(det != 0)):
        return det[..., None, None] * xp.linalg.inv(input)
    U, S, Vh = xp.linalg.svd(finite(input, "det"))
    n = S.shape[-1]
    others = xp.stack([xp.prod(xp.concatenate([S[..., :i], S[..., i + 1 :]], -1), -1) for i in range(n)], -1)
    phase = xp.linalg.det(U) * xp.linalg.det(Vh)
    V, Uh = xp.conj(_T(xp, Vh)), xp.conj(_T(xp, U))
    return xp.matmul(V * others[..., None, :] * phase[..., None, None], Uh)


def _adjugate_grad(g, input, out, xp):
    inverse_ = xp.call(_inv, input)
    total = xp.sum(g * inverse_, axis=(-2, -1), keepdims=True)
    return total * _T(xp, out) - xp.matmul(xp.matmul(_T(xp, inverse_), g), _T(xp, out))


_adjugate.grad(input=_adjugate_grad)


@op(dtype="float", name="linalg_det")
def _det(xp, input):
    return xp.asarray(xp.linalg.det(input))


_det.grad(input=lambda g, input, xp: xp.expand_dims(xp.expand_dims(g, -1), -1) * _T(xp, xp.call(_adjugate, input)))


@public(inplace=False)
def det(input):
    """Computes the determinants of square matrices.

    Args:
        input: (…, n, n).

    Returns:
        A tensor of shape (…).

    Raises:
        RuntimeError: matrices are not square.

    Example:
        >>> mytorch.linalg.det(tensor([[2.0, 0.0], [0.0, 4.0]])).item()
        8.0
    """
    return _det.fast_call(square(input, "det"))


@op(dtype="float", name="logabsdet", holomorphic=False)
def _logabsdet(xp, input):
    return xp.asarray(xp.linalg.slogdet(input)[1])


_logabsdet.grad(input=lambda g, input, xp: xp.expand_dims(xp.expand_dims(g, -1), -1) * _H(xp, xp.call(_inv, input)))
return_types = {"slogdet": namedtuple("slogdet", ("sign", "logabsdet"))}


@public(inplace=False)
def slogdet(input):
    """Computes the signs of determinants and the logarithms of their absolute values.

    Use it for log-likelihoods: `det` of a large matrix is soon 0 or inf.

    Args:
        input: (…, n, n).

    Returns:
        A named tuple (sign, logabsdet) of tensors of shape (…). A singular matrix has the sign 0 and the logarithm -inf.

    Raises:
        RuntimeError: matrices are not square.

    Example:
        >>> mytorch.linalg.slogdet(tensor([[2.0, 0.0], [0.0, -0.5]])).sign.item()
        -1.0
    """
    square(input, "slogdet")
    sign = sgn(_det.fast_call(input)) if input.dtype.is_complex else _sign_of_det.fast_call(input)
    return return_types["slogdet"](sign, _logabsdet.fast_call(input))


@op(dtype="float", name="sign_of_det")
def _sign_of_det(xp, input):
    return xp.asarray(xp.linalg.slogdet(input)[0])


_sign_of_det.grad(input=lambda g, input: input * 0)


@public(inplace=False)
def logdet(input):
    """Computes the logarithms of determinants; NaN for negative determinants, -inf for 0.

    Args:
        input: (…, n, n).

    Returns:
        A tensor of shape (…).

    Raises:
        RuntimeError: matrices are not square.

    Example:
        >>> mytorch.logdet(mytorch.eye(3)).item()
        0.0
    """
    square(input, "logdet")
    sign, logabs = slogdet(input)
    if input.dtype.is_complex:
        return logabs + sign.log()
    return where(sign == -1, float("nan"), logabs)


# -- Cholesky -----------------------------------------------------------------------------------------------------


@op(dtype="float", name="cholesky", holomorphic=False, layout=in_columns)
def _cholesky(xp, input):
    if device_of(input) is CPU and np.isnan(input).any():
        raise np.linalg.LinAlgError
    return xp.linalg.cholesky(input)


def _cholesky_grad(g, out, xp):
    low = xp.call(_triangle, xp.matmul(_H(xp, out), g), diagonal=0, lower=True)
    half = low - _diagonal_part(xp, low) * 0.5
    inverse_ = xp.call(_inv, out)
    s = xp.matmul(xp.matmul(_H(xp, inverse_), half), inverse_)
    return (s + _H(xp, s)) * 0.5


_cholesky.grad(input=_cholesky_grad)


@public(inplace=False)
def cholesky(input, upper=False):
    """Computes the Cholesky factor L of positive definite matrices: L Lᴴ = input.

    Use it for positive definite matrices, such as covariances: it takes half of the operations of an LU factorization,
    and it fails if a matrix is not positive definite.

    Args:
        input: (…, n, n).
        upper: if True, returns the upper triangular factor Lᴴ (default: False).

    Returns:
        A tensor of shape (…, n, n).

    Raises:
        LinAlgError: a matrix is not positive definite.

    Example:
        >>> mytorch.linalg.cholesky(tensor([[4.0, 0.0], [0.0, 9.0]])).tolist()
        [[2.0, 0.0], [0.0, 3.0]]
    """
    square(input, "cholesky")
    try:
        out = _cholesky.fast_call(input.mH if upper else input)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.cholesky: The factorization could not be completed because the input is not positive-definite."
        ) from None
    return in_column_order(out.mH) if upper else out


@public(inplace=False)
def cholesky_solve(input, L, upper=False):
    """Solves A X = input, given the Cholesky factor L of A = L Lᴴ (or Lᴴ L with `upper`).

    Args:
        input: right-hand sides, (…, N, K).
        L: Cholesky factors, (…, N, N).
        upper: True if the factor is upper triangular (default: False).
    """
    matrices(input, "cholesky_solve")
    square(L, "cholesky_solve")
    if L.shape[-1] != input.shape[-2]:
        raise RuntimeError(f"cholesky_solve: a factor of shape {list(L.shape)} does not fit {list(input.shape)}")
    lower = L.mH if upper else L
    half = triangular_solution.fast_call(lower, input, upper=False)
    return in_column_order(triangular_solution.fast_call(lower.mH, half, upper=True))


@public(inplace=False)
@in_precision(None)
def cholesky_inverse(L, upper=False):
    """Computes the inverse of a matrix from its Cholesky factor."""
    half = inverse(tril(L.mH if upper else L))
    return in_column_order(half.mH @ half)


# -- eigenvalues --------------------------------------------------------------------------------------------------


@op(dtype="float", outputs=("L", "V"), differentiable=2, name="eigh", holomorphic=False, layout=factors)
def _eigh(xp, input, *, UPLO="L"):
    return tuple(xp.linalg.eigh(finite(input, "eigh"), UPLO=UPLO))


def _check_phases(xp, name, vectors, *products):
    """Checks that a gradient does not depend on the phases of complex vectors, which a decomposition chooses freely.

    Args:
        name: name of the function for the message.
        vectors: the vectors; real ones have no phase.
        products: the products of the adjoint vectors and their gradients, whose diagonals have imaginary parts with the sum 0.

    Raises:
        RuntimeError: the gradient depends on them.
    """
    if not xp.is_complex(vectors) or get_mode().interpreter:  # a transform has no values to look at
        return
    total, size = 0.0, 0.0
    for product in products:
        turned = xp.detach(xp.real(xp.sum(_diagonal_part(xp, product) * -1j, axis=-1)))
        total, size = total + turned, abs(turned)
    if bool((abs(total) > 1e-2 + 1e-2 * size).any()):  # the tolerances of PyTorch
        raise RuntimeError(
            f"{name}: the vectors in the complex case are specified up to multiplication by e^(i phi). The specified loss function "
            "depends on this quantity, so it is ill-defined."
        )


def _eigh_grad(g, L, V, xp):
    g_values, g_vectors = g
    gaps = xp.expand_dims(L, -2) - xp.expand_dims(L, -1)
    same = gaps == 0
    product = xp.matmul(_H(xp, V), g_vectors)
    _check_phases(xp, "linalg.eigh", V, product)
    inner = xp.where(same, 0.0, product / xp.where(same, 1.0, gaps))
    middle = inner + _eye(xp, L) * xp.expand_dims(g_values, -2)
    s = xp.matmul(xp.matmul(V, middle), _H(xp, V))
    return (s + _H(xp, s)) * 0.5


_eigh.grad(input=_eigh_grad)


@op(dtype="float", outputs=("L", "V"), differentiable=2, name="eig", holomorphic=False, layout=factors)
def _eig(xp, input):
    kind = np.complex128 if input.dtype.itemsize >= 8 and input.dtype != np.complex64 else np.complex64
    values, vectors = xp.linalg.eig(finite(input, "eig"))
    return values.astype(kind), vectors.astype(kind)


def _eig_grad(g, L, V, xp):
    g_values, g_vectors = g
    gaps = xp.conj(xp.expand_dims(L, -2) - xp.expand_dims(L, -1))
    same = gaps == 0
    inner = xp.matmul(_H(xp, V), g_vectors)
    _check_phases(xp, "linalg.eig", V, inner)
    length = xp.real(_diagonal_part(xp, inner))  # columns keep the length 1
    inner = inner - xp.matmul(xp.matmul(_H(xp, V), V), length)
    inner = xp.where(same, 0.0, inner / xp.where(same, 1.0, gaps))
    middle = inner + _eye(xp, L) * xp.expand_dims(g_values, -2)
    return xp.call(_solve, _H(xp, V), xp.matmul(middle, _H(xp, V)))


_eig.grad(input=_eig_grad)


# -- singular values ----------------------------------------------------------------------------------------------


@op(dtype="float", outputs=("U", "S", "Vh"), differentiable=3, name="svd", holomorphic=False, layout=factors)
def _svd(xp, input):
    return tuple(xp.linalg.svd(finite(input, "svd"), full_matrices=False))


def _quotient(xp, a, b):
    """Returns a / b, and 0 where both are 0. Without a dependence there is no gradient, however close two singular values are."""
    return a / xp.where((a == 0) & (b == 0), 1.0, b)


def _svd_grad(g, U, S, Vh, xp):
    gu, gs, gv = g
    V, gv = _H(xp, Vh), _H(xp, gv)
    m, n, k = U.shape[-2], V.shape[-2], S.shape[-1]
    eye = _eye(xp, S)
    row, column = xp.expand_dims(S, -2), xp.expand_dims(S, -1)
    gaps = xp.where(eye, 1.0, (row - column) * (row + column))
    ug, vg = xp.matmul(_H(xp, U), gu), xp.matmul(_H(xp, V), gv)
    _check_phases(xp, "linalg.svd", U, ug, vg)
    skew_u = ug - _H(xp, ug)
    middle = _quotient(xp, skew_u, gaps) * row + column * _quotient(xp, vg - _H(xp, vg), gaps)
    diagonal = xp.expand_dims(gs, -2)
    if xp.is_complex(U):
        diagonal = diagonal + _quotient(xp, skew_u, row * 2)
    middle = xp.where(eye, diagonal, middle)
    out = xp.matmul(xp.matmul(U, middle), Vh)
    if m > k:
        out = out + xp.matmul(_quotient(xp, gu - xp.matmul(U, ug), row), Vh)
    if n > k:
        out = out + xp.matmul(U, _H(xp, _quotient(xp, gv - xp.matmul(V, vg), row)))
    return out


_svd.grad(input=_svd_grad)


def _nuclear_norm(input, dim, keepdim):
    """The sum of the singular values of matrices over two axes."""
    if input.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    dims = normalize_dims((-2, -1) if dim is None else dim, input.ndim, "norm")
    if dims is None or len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    rows, columns = dims
    total = _svd(input.movedim((rows, columns), (-2, -1)))[1].sum(-1)
    if keepdim:
        for d in sorted((rows, columns)):
            total = total.unsqueeze(d)
    return total


@public(inplace=False)
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """Computes the p-norm of all elements or along dimensions.

        result = (sum of |x|^p)^(1 / p)

    Args:
        p: order of the norm, also infinite. "fro" is 2; "nuc" is the sum of the singular values (default: "fro").
        dim: dimension or dimensions to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.norm(tensor([3.0, -4.0])).item(), mytorch.norm(tensor([3.0, -4.0]), 1).item()
        (5.0, 7.0)
    """
    input = for_norms(input, dtype)
    if p == "nuc":
        return _nuclear_norm(input, dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm: the order is a number, 'fro' or 'nuc', got {p!r}.")
    order = 2.0 if p in ("fro", None) else float(p)
    return vector_norm(input, ord=order, dim=normalize_dims(dim, input.ndim, "norm"), keepdim=keepdim)


def for_norms(input, dtype, name="linalg.vector_norm"):
    """Returns the input of a norm in the dtype of the computation.

    Raises:
        RuntimeError: a dtype is neither floating-point nor complex, or the cast to `dtype` would lose digits or imaginary parts.
    """
    given = input.dtype
    mine = dtypes.word_of(given)
    if given.category < dtypes.FLOAT:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {mine}")
    if dtype is None:
        return input
    dtype = dtypes.as_dtype(dtype)
    other = dtypes.word_of(dtype)
    if dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {other}")
    if dtype.is_complex is not given.is_complex:
        kind = "complex" if given.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {other}")
    if dtypes.promote_types(given, dtype) is not dtype:
        raise RuntimeError(
            f"{name}: the dtype of the input ({mine}) should be convertible without narrowing to the specified dtype ({other})"
        )
    return cast(input, dtype)


@op(dtype="float", name="pinv", holomorphic=False)
def _pinv(xp, input, *, cut=None, hermitian=False):
    """The pseudo-inverse; singular values up to `cut(the largest)` count as 0. The largest is of the same decomposition: another
    one's can differ in the last bit."""
    matrices(input, "pinv")
    finite(input, "pinv")
    if hermitian:
        L, V = xp.linalg.eigh(input)
        S, U, Vh = abs(L), V * xp.sign(L)[..., None, :], xp.conj(_T(xp, V))
    else:
        U, S, Vh = xp.linalg.svd(input, full_matrices=False)
    largest = to_cpu(S.max(-1)) if S.shape[-1] else np.zeros(S.shape[:-1], S.dtype)
    keep = S > xp.asarray(cut(largest))[..., None]
    inverse_s = xp.where(keep, 1 / xp.where(keep, S, 1), 0).astype(S.dtype)
    return xp.matmul(xp.conj(_T(xp, Vh)) * inverse_s[..., None, :], xp.conj(_T(xp, U)))


def _pinv_grad(g, input, out, xp):
    """By G. Golub and V. Pereyra (1973): the derivative of a pseudo-inverse of constant rank."""
    P, Ph, gh = out, _H(xp, out), _H(xp, g)
    first = xp.matmul(xp.matmul(Ph, g), Ph)
    left = xp.matmul(xp.matmul(gh, P), Ph)
    right = xp.matmul(xp.matmul(Ph, P), gh)
    left = left - xp.matmul(input, xp.matmul(P, left))
    right = right - xp.matmul(xp.matmul(right, P), input)
    return left + right - first


_pinv.grad(input=_pinv_grad)


# -- QR and LU ----------------------------------------------------------------------------------------------------


@op(dtype="float", outputs=("Q", "R"), differentiable=2, name="qr", holomorphic=False, layout=factors)
def _qr(xp, input):
    """The reduced factors of matrices with at least as many rows as columns."""
    return tuple(xp.linalg.qr(input))


def _qr_grad(g, Q, R, xp):
    gq, gr = g
    m = xp.matmul(R, _H(xp, gr)) - xp.matmul(_H(xp, gq), Q)
    low = xp.call(_triangle, m, diagonal=-1, lower=True)
    symmetric = low + _H(xp, low) + _diagonal_part(xp, xp.real(m))
    return _H(xp, xp.call(_solve, R, _H(xp, gq + xp.matmul(Q, symmetric))))


_qr.grad(input=_qr_grad)


def qr_reduced(A):
    """(Q, R) with Q of min(rows, columns) columns; differentiable for any shape."""
    if A.ndim < 2:
        raise RuntimeError(f"linalg.qr: The input tensor A must have at least 2 dimensions, got {list(A.shape)}.")
    rows, columns = A.shape[-2:]
    if rows >= columns:
        return _qr(A)
    Q, R = _qr(A[..., :rows])
    return Q, in_column_order(cat([R, Q.mH @ A[..., rows:]], -1))


PANEL = 32  # columns that are eliminated one by one, before a matrix product updates the columns to the right


def _eliminate(xp, A, pivots=None):
    """Gaussian elimination in place on (batch, rows, columns): L below the diagonal, U on and above it.

    With `pivots`, (batch, steps), each step first brings up the row with the largest element, and notes which it was.
    """
    batch, steps = np.arange(len(A)), min(A.shape[1:])
    for start in range(0, steps, PANEL):
        end = min(start + PANEL, steps)
        for k in range(start, end):
            if pivots is not None:
                column = A[:, k:, k]
                size = abs(column.real) + abs(column.imag) if column.dtype.kind == "c" else abs(column)  # as LAPACK
                best = pivots[:, k] = k + size.argmax(1)
                A[batch, k], A[batch, best] = A[batch, best].copy(), A[batch, k].copy()
            pivot = A[:, k, k, None]
            A[:, k + 1 :, k] = xp.where(pivot != 0, A[:, k + 1 :, k] / xp.where(pivot != 0, pivot, 1), 0)
            A[:, k + 1 :, k + 1 : end] -= A[:, k + 1 :, k, None] * A[:, k, None, k + 1 : end]
        for k in range(start, end - 1):  # the rows of the panel, right of it
            A[:, k + 1 : end, end:] -= A[:, k + 1 : end, k, None] * A[:, k, None, end:]
        A[:, end:, end:] -= xp.matmul(A[:, end:, start:end], A[:, start:end, end:])


def ldl_parts(A, hermitian):
    """Returns (LD, pivots, info) of symmetric or Hermitian NumPy matrices, as LAPACK's sytrf. Only the lower triangles are read.

    Source: Bunch and Kaufman, 1977, Some stable methods for calculating inertia and solving symmetric linear systems.
    """
    LD = np.tril(_matrices(A))
    pivots, info = np.zeros(LD.shape[:2], np.int32), np.zeros(len(LD), np.int32)
    for i, lower in enumerate(LD):
        lower[:], pivots[i], info[i] = _bunch_kaufman(lower, hermitian)
    return LD.reshape(A.shape), pivots.reshape(A.shape[:-1]), info.reshape(A.shape[:-2])


def _bunch_kaufman(lower, hermitian):
    flip = np.conj if hermitian else np.asarray
    S = lower + flip(np.tril(lower, -1).T)
    n, k, info = len(S), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        column = _size(S[k:, k], 0, hermitian)
        step, up = _bunch_kaufman_step(column, lambda i: _size(S[k + i, k:], i, hermitian))  # noqa: B023 - called at once
        if not column.any():
            info, step, up = info or k + 1, 1, 0
        last, up = k + step - 1, k + up
        S[[last, up], k:] = S[[up, last], k:]
        S[k:, [last, up]] = S[k:, [up, last]]
        end = k + step
        if column.any():
            below = S[end:, k:end]
            L = np.linalg.solve(S[k:end, k:end].T, below.T).T
            S[end:, end:] -= L @ flip(below.T)
            below[:] = L
        pivots[k:end] = up + 1 if step == 1 else -up - 1
        k = end
    return np.tril(S), pivots, info


def _size(values, diagonal, hermitian):
    """Returns the magnitudes of a row or column as LAPACK measures them. `diagonal` is the position of the diagonal element."""
    size = abs(values.real) + abs(values.imag)
    if hermitian:
        size[diagonal] = abs(values[diagonal].real)
    return size


def _bunch_kaufman_step(first, row_of):
    """Returns the number of columns of the next step, and the row that moves up into the last of them.

    Args:
        first: magnitudes of the first column.
        row_of: function of the number of a row; it returns its magnitudes.
    """
    alpha = (1 + math.sqrt(17)) / 8
    if len(first) == 1:
        return 1, 0
    best = 1 + first[1:].argmax()
    sizes, column = row_of(best), first[best]
    row = np.delete(sizes, best).max()
    if first[0] >= alpha * column or first[0] * row >= alpha * column * column:
        return 1, 0
    return (1, best) if sizes[best] >= alpha * row else (2, best)


def ldl_solved(LD, pivots, B, hermitian):
    """X with A X = B for one matrix's `ldl_parts`."""
    flip = np.conj if hermitian else np.asarray
    X, n, k, steps = B.copy(), len(LD), 0, []
    while k < n:
        end = k + 1 + (pivots[k] < 0)
        steps.append((k, end, abs(pivots[k]) - 1))
        k = end
    for k, end, up in steps:
        X[[end - 1, up]] = X[[up, end - 1]]
        X[end:] -= LD[end:, k:end] @ X[k:end]
        D = LD[k:end, k:end]
        X[k:end] = np.linalg.solve(D + flip(np.tril(D, -1).T), X[k:end])
    for k, end, up in reversed(steps):
        X[k:end] -= flip(LD[end:, k:end].T) @ X[end:]
        X[[end - 1, up]] = X[[up, end - 1]]
    return X


def _matrices(A):
    """A copy with all of its batch in one axis."""
    return A.copy().reshape(math.prod(A.shape[:-2]), *A.shape[-2:])


@op(dtype="float", outputs=("L", "U"), differentiable=2, name="lu", holomorphic=False)
def _lu(xp, input):
    """Returns L (with ones on its diagonal) and U of square matrices, without an exchange of rows."""
    A = _matrices(input)
    _eliminate(xp, A)
    A = A.reshape(input.shape)
    return xp.tril(A, -1) + xp.eye(A.shape[-1], dtype=A.dtype), xp.triu(A)


def _lu_grad(g, L, U, xp):
    gl, gu = g
    Lh, Uh = _H(xp, L), _H(xp, U)
    middle = xp.call(_triangle, xp.matmul(Lh, gl), diagonal=-1, lower=True)
    middle = middle + xp.call(_triangle, xp.matmul(gu, Uh), diagonal=0, lower=False)
    half = xp.call(triangular_solution, Lh, middle, upper=True, unit=True)
    return _H(xp, xp.call(triangular_solution, U, _H(xp, half), upper=True))  # not finite if U has a 0 on its diagonal


_lu.grad(input=_lu_grad)


def exchanges(A):
    """The row exchanges of LU with partial pivoting: for each step, the row (from 0) that comes up; of a NumPy array."""
    work = _matrices(A)
    pivots = np.empty((len(work), min(work.shape[1:])), np.int32)
    _eliminate(np, work, pivots)
    return pivots.reshape(*A.shape[:-2], pivots.shape[-1])


def rows_after(pivots, rows):
    """The order of rows that exchanges (counted from 0) lead to: a permutation of range(rows) for each matrix."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(rows), (len(flat), 1))
    batch = np.arange(len(flat))
    for k in range(flat.shape[1]):
        other = flat[:, k]
        order[batch, k], order[batch, other] = order[batch, other].copy(), order[batch, k].copy()
    return order.reshape(*pivots.shape[:-1], rows)


def lu_parts(A, pivot=True):
    """Returns (pivots from 0, row order, L, U) of matrices of any shape; L and U are differentiable.

    Only the leading square block is passed to `_lu`. A triangular solve computes the parts below and to the right of it.
    """
    if config.pytorch_mode and not pivot and not A.is_cuda:
        raise RuntimeError("linalg.lu: LU without pivoting is not implemented on the CPU.")
    if A.ndim < 2:
        raise RuntimeError(f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    rows, columns = A.shape[-2:]
    k = min(rows, columns)
    A = A if A.dtype.category >= dtypes.FLOAT else A.to(dtypes.default_dtype())
    raw = to_cpu(A)
    pivots = exchanges(raw) if pivot else np.broadcast_to(np.arange(k, dtype=np.int32), (*raw.shape[:-2], k))
    order = rows_after(pivots, rows)
    index = on_device_of(np.ascontiguousarray(np.broadcast_to(order[..., None], raw.shape)), A)
    moved = A.gather(-2, index) if pivot else A
    L, U = _lu(moved[..., :k, :k])
    if rows > k:
        singular = U.diagonal(dim1=-2, dim2=-1) == 0  # below a pivot of 0 there are only zeros
        L = cat([L, solve(U + singular.to(U.dtype).diag_embed(), moved[..., k:, :], left=False)], -2)
    elif columns > k:
        U = cat([U, solve(L, moved[..., k:])], -1)
    return pivots, order, L, U
