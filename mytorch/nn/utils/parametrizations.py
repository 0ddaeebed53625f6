"""Ready parametrizations: weight normalisation, spectral normalisation, orthogonal matrices."""

import numpy as np

from ..._tensor import Tensor
from ...base.dtypes import finfo
from ...engine.mode import no_grad
from ...linalg import householder_product, matrix_exp, qr, solve
from ...ops.creation import eye, zeros_like
from ...ops.movement import cat
from ...ops.random import randn
from .. import functional as F
from ..module import Module
from .parametrize import register_parametrization
from .spectral_norm import as_matrix, check_iterations, output_dim
from .weight_norm import norm_except_dim, normalised

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_MAPS = ("matrix_exp", "cayley", "householder")


def _tensor_of(module, name):
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


def _is_orthogonal(q):
    n, k = q.shape[-2:]
    identity = eye(k, dtype=q.dtype, device=q.device)
    return (q.mH @ q).allclose(identity.expand(*q.shape[:-2], k, k), atol=10.0 * n * finfo(q.dtype).eps)


def _make_orthogonal(a):
    """The Q of a = QR with a positive diagonal of R."""
    q, r = qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if it is wide), from an unconstrained one.

    Source: Lezcano-Casado, Trivializations for gradient-based optimization on manifolds, 2019.
    """

    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        wide = n < k
        if wide:
            X, n, k = X.mT, k, n
        Q = self._by_reflections(X) if self.orthogonal_map == "householder" else self._by_skew(X, n, k)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _by_skew(self, X, n, k):
        """exp(A), or (I + A/2)(I - A/2)^-1, of the skew-symmetric A made of X's lower triangle."""
        X = X.tril()
        if n != k:
            X = cat([X, X.new_zeros(*X.shape[:-1], n - k)], -1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(A)
        else:
            identity = eye(n, dtype=A.dtype, device=A.device)
            Q = solve(identity - A * 0.5, identity + A * 0.5)
        return Q[..., :k] if n != k else Q

    def _by_reflections(self, X):
        """The product of the Householder reflections below X's diagonal, signed by the diagonal."""
        A = X.tril(-1)
        tau = 2.0 / (1.0 + (A * A).sum(-2))
        signs = X.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        return householder_product(A, tau) * signs

    def right_inverse(self, Q: Tensor) -> Tensor:
        """What gives Q, or the orthogonal matrix next to it.

        Raises:
            ValueError: another shape.
            NotImplementedError: matrix_exp and cayley without trivialization.
        """
        if tuple(Q.shape) != tuple(self.shape):
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        with no_grad():
            n, k = Q.shape[-2:]
            wide = n < k
            tall = Q.mT if wide else Q
            if not hasattr(self, "base"):
                return self._reflections_of(tall, wide)
            n, k = tall.shape[-2:]
            if n == k:
                base = tall.clone() if _is_orthogonal(tall) else _make_orthogonal(tall)
            else:  # complete it to a square orthogonal matrix
                rest = randn(*tall.shape[:-2], n, n - k, dtype=tall.dtype, device=tall.device)
                base = _make_orthogonal(cat([tall, rest], -1))
            self.base = base.detach()
            out = zeros_like(Q)  # -I: the reflections of zeros are I, and the diagonal holds the signs
            out.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return out

    def _reflections_of(self, Q, wide):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        h, tau = np.linalg.qr(Q.detach().cpu().numpy(), mode="raw")
        A = np.ascontiguousarray(np.swapaxes(h, -1, -2))
        diagonal = np.einsum("...ii->...i", A[..., : A.shape[-1], :])
        diagonal[...] = np.where(tau == 0.0, -np.sign(diagonal), np.sign(diagonal))
        A = Tensor(A, device=Q.device, dtype=Q.dtype)
        return A.mT if wide else A


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a matrix (or a batch of matrices) orthogonal: QᴴQ = I if it is tall, QQᴴ = I if it is wide.

    Args:
        name: of the tensor.
        orthogonal_map: "matrix_exp", "cayley" or "householder"; by default the first for square and complex
            matrices, else the last.
        use_trivialization: multiply by a fixed matrix, `parametrizations.<name>[0].base`, so that the
            start is the tensor's own value made orthogonal.

    Returns:
        The module.

    Raises:
        ValueError: no such tensor, fewer than 2 axes, an unknown map, or complex reflections.
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrization = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)


class _WeightNorm(Module):
    """g v / |v|, of magnitude g and direction v."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return normalised(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(g, v)."""
        return norm_except_dim(weight, dim=self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a parameter be g v / |v|, with originals g and v. Source: Salimans and Kingma, 2016.

    Args:
        dim: the axis that has a norm for each index; None, one norm for all.

    Returns:
        The module. It also loads the state dicts of `nn.utils.weight_norm`.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_names(state_dict, prefix, *rest):
        old = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(take_old_names)
    return module


class _SpectralNorm(Module):
    """w / sigma(w), with an estimate of the largest singular value that is improved at each reading in training."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        check_iterations(n_power_iterations)
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            u, v = (matrix.new_empty(n).normal_(0, 1) for n in matrix.shape)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _power_method(self, matrix, iterations):
        with no_grad():
            for _ in range(iterations):
                self._u.copy_(F.normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.mH @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # a later reading must not change what backward saved
        return weight / u.vdot(matrix @ v)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value: it is taken to be normalised."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a tensor by its largest singular value (a vector by its norm). Source: Miyato et al., 2018.

    Args:
        n_power_iterations: at each reading in training mode.
        eps: keeps norms from zero.
        dim: the axis of the outputs; by default 1 for transposed convolutions, else 0.

    Returns:
        The module.
    """
    weight = _tensor_of(module, name)
    dim = output_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
