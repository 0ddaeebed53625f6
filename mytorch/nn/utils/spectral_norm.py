"""Spectral normalization by a hook: w / sigma(w), with sigma from power iterations. Source: Miyato et al., 2018."""

from typing import Any

from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ...linalg import pinv
from .. import functional as F
from ..conv import _ConvTranspose
from ..module import Module
from ..parameter import Parameter
from .parameter_hook import ParameterHook


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Returns a weight as a matrix, with dimension `dim` as rows and the other dimensions as columns."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.reshape(weight.shape[0], -1)


def output_dim(module: Module) -> int:
    """Returns the dimension of the outputs in the weight of a module."""
    return 1 if isinstance(module, _ConvTranspose) else 0


def check_iterations(n_power_iterations: int) -> None:
    """Raises `ValueError` if the number of power iterations is not positive."""
    if n_power_iterations <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")


class SpectralNorm(ParameterHook):
    """The hook, which divides a weight by an estimate of its largest singular value.

    Args:
        name: name of the parameter (default: "weight").
        n_power_iterations: number of power iterations at each forward in training mode (default: 1).
        dim: dimension of the outputs (default: 0).
        eps: smallest norm in a denominator (default: 1e-12).
    """

    function = "spectral_norm"
    purpose = "spectral normalization"
    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        check_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """Returns the weight as a matrix with one row for each output."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Returns the normalized weight. The iteration updates the buffers `<name>_u` and `<name>_v`."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.T @ u, dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix @ v, dim=0, eps=self.eps))
                # Copies, so that a second forward before backward (as in a GAN) does not change saved tensors.
                u, v = u.clone(), v.clone()
        return weight / u.dot(matrix @ v)

    def remove(self, module: Module) -> None:
        """Replaces the hook by a parameter with the normalized weight."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v(self, matrix, u, sigma):
        """Returns v with u = W v / |W v| and uᵀ W v = sigma."""
        # Least squares, then scaled to the given sigma.
        v = (pinv(matrix.T @ matrix) @ matrix.T @ u.unsqueeze(1)).squeeze(1)
        return v.mul_(sigma / u.dot(matrix @ v))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> "SpectralNorm":
        """Renames a parameter to `<name>_orig`, and registers the hook on the module.

        Raises:
            RuntimeError: the parameter already has this hook.
            ValueError: the parameter is `None` or has no shape yet.
        """
        SpectralNorm.refuse_second(module, name)
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied to parameter `{name}`, which is `None`")
        SpectralNorm.refuse_lazy(weight)
        with no_grad():
            rows, columns = as_matrix(weight, dim).shape
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())  # The name must exist before the first forward.
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Completes state dicts of the first version, which contain the weight but no v."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        version = local_metadata.get("spectral_norm", {}).get(self.fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        key = prefix + self.fn.name
        if version is None and key not in state_dict and all(key + s in state_dict for s in ("_orig", "_u", "_v")):
            return
        absent = [key + s for s in ("_orig", "", "_u") if key + s not in state_dict]
        if absent:
            missing_keys.extend(absent if strict else ())
            return
        with no_grad():
            original, weight = state_dict[key + "_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()  # weight = original / sigma
            v = self.fn._solve_v(as_matrix(original, self.fn.dim), state_dict[key + "_u"], sigma)
            state_dict[key + "_v"] = v


class SpectralNormStateDictHook:
    """Stores the version in the metadata of the state dict."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, module, state_dict, prefix, local_metadata):
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a parameter by its largest singular value before every forward.

    Prefer `nn.utils.parametrizations.spectral_norm`.

    Args:
        name: name of the parameter (default: "weight").
        n_power_iterations: number of power iterations at each forward in training mode (default: 1).
        eps: smallest norm in a denominator (default: 1e-12).
        dim: dimension of the outputs. By default, 1 for transposed convolutions and 0 otherwise.

    Returns:
        The module.

    Raises:
        RuntimeError: the parameter already has this hook.
        ValueError: the parameter is `None` or has no shape yet.

    Example:
        >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'weight_orig']
    """
    SpectralNorm.apply(module, name, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Removes the hook of `spectral_norm` from a parameter.

    Args:
        name: name of the parameter (default: "weight").

    Returns:
        The module.

    Raises:
        ValueError: the parameter has no such hook.
    """
    SpectralNorm.remove_from(module, name)
    kinds = (SpectralNormStateDictHook, SpectralNormLoadStateDictPreHook)
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, hook in list(hooks.items()):
            if isinstance(hook, kinds) and hook.fn.name == name:
                del hooks[key]
    return module
