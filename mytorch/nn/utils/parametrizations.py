"""Parametrizations for common constraints: weight normalization, spectral normalization, orthogonal matrices."""

import numpy as np

from ...arrays.dtypes import finfo
from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ...linalg import householder_product, matrix_exp, qr, solve
from ...ops.creation import eye, zeros_like
from ...ops.movement import cat
from ...ops.random import randn
from .. import functional as F
from ..module import Module
from .parametrize import register_parametrization
from .spectral_norm import as_matrix, check_iterations, output_dim
from .weight_norm import norm_except_dim, normalized

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_MAPS = ("matrix_exp", "cayley", "householder")


def _tensor_of(module, name):
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return tensor


def _is_orthogonal(q):
    n, k = q.shape[-2:]
    identity = eye(k, dtype=q.dtype, device=q.device)
    return (q.mH @ q).allclose(identity.expand(*q.shape[:-2], k, k), atol=10.0 * n * finfo(q.dtype).eps)


def _make_orthogonal(a):
    """Returns Q of the decomposition a = QR with a positive diagonal of R."""
    q, r = qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """Maps an unconstrained matrix to a matrix with orthonormal columns, or orthonormal rows if it is wide.

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
        """Returns exp(A) or (I + A/2)(I - A/2)^-1 for the skew-symmetric A with the lower triangle of X."""
        X = X.tril()
        if n != k:  # extend to a square matrix, and use the first k columns of the result
            X = cat([X, X.new_zeros(*X.shape[:-1], n - k)], -1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(A)
        else:
            identity = eye(n, dtype=A.dtype, device=A.device)
            Q = solve(identity - A * 0.5, identity + A * 0.5)
        return Q[..., :k] if n != k else Q

    def _by_reflections(self, X):
        """Returns the product of the Householder reflections below the diagonal of X, with the signs of the diagonal."""
        A = X.tril(-1)
        tau = 2.0 / (1.0 + (A * A).sum(-2))
        signs = X.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        return householder_product(A, tau) * signs

    def right_inverse(self, Q: Tensor) -> Tensor:
        """Returns a matrix that the forward map turns into Q. If Q is not orthogonal, its QR factor takes its place.

        Raises:
            ValueError: Q has another shape.
            NotImplementedError: the map is matrix_exp or cayley, and there is no trivialization.
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
            else:  # Extend it to a square orthogonal matrix.
                rest = randn(*tall.shape[:-2], n, n - k, dtype=tall.dtype, device=tall.device)
                base = _make_orthogonal(cat([tall, rest], -1))
            self.base = base.detach()
            out = zeros_like(Q)  # -I, because reflections of zeros are I, and the diagonal has the signs
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
        A = Tensor._make(A, Q.device, Q.dtype)
        return A.mT if wide else A


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Parametrizes a matrix, or a batch of matrices, so that it stays orthogonal.

        QᴴQ = I if Q has at least as many rows as columns, QQᴴ = I otherwise

    Args:
        name: name of the parameter (default: "weight").
        orthogonal_map: "matrix_exp", "cayley" or "householder". By default, "matrix_exp" for square and complex
            matrices, and "householder" otherwise.
        use_trivialization: if True, multiplies by a fixed matrix, `parametrizations.<name>[0].base`. The parameter then
            starts at the factor Q of the QR decomposition of its value (default: True).

    Returns:
        The module.

    Raises:
        ValueError: the parameter does not exist or has fewer than 2 dimensions, the map is unknown, or the map is
            "householder" for complex matrices.

    Example:
        >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
        >>> bool((layer.weight @ layer.weight.T - mytorch.eye(3)).abs().max() < 1e-5)
        True
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
    """Computes g * v / |v| from a magnitude g and a direction v."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return normalized(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (g, v)."""
        return norm_except_dim(weight, dim=self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrizes a parameter as w = g * v / |v|, with the learnable magnitude g and direction v.

    The module also loads state dicts of `nn.utils.weight_norm`.

    Args:
        name: name of the parameter (default: "weight").
        dim: dimension that has one norm for each index. `None` computes one norm of the whole tensor (default: 0).

    Returns:
        The module.

    Source: Salimans and Kingma, 2016.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
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
    """Computes w / sigma(w). Each access in training mode improves the estimate of sigma."""

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
        u, v = self._u.clone(), self._v.clone()  # copies, because a later access must not change the saved tensors
        return weight / u.vdot(matrix @ v)

    def right_inverse(self, value: Tensor) -> Tensor:
        """Returns the value, which is assumed to be normalized."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Parametrizes a tensor as w / sigma(w), where sigma is the largest singular value, or the norm of a vector.

    Args:
        name: name of the parameter (default: "weight").
        n_power_iterations: number of power iterations at each access in training mode (default: 1).
        eps: smallest norm in a denominator (default: 1e-12).
        dim: dimension of the outputs. By default, 1 for transposed convolutions and 0 otherwise.

    Returns:
        The module.

    Source: Miyato et al., 2018.

    Example:
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
        >>> abs(mytorch.linalg.matrix_norm(layer.weight, 2).item() - 1.0) < 0.1
        True
    """
    weight = _tensor_of(module, name)
    dim = output_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
