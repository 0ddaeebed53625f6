"""Weight normalisation by a hook: w = g v / |v|, before every forward. Source: Salimans and Kingma, 2016."""

import warnings
from typing import Any

from ..._tensor import Tensor
from ..module import Module
from ..parameter import Parameter
from .parameter_hook import ParameterHook


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norm of order `pow` over all axes but `dim`, which keeps its place; over all axes for dim=-1.

    Args:
        v: the tensor.
        pow: order of the norm.
        dim: the axis that stays.
    """
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, tuple(d for d in range(v.ndim) if d != dim), keepdim=True)


def normalised(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / |v|, with a norm for each index of axis `dim` (one for all if -1)."""
    return v * (g / norm_except_dim(v, dim=dim))


class WeightNorm(ParameterHook):
    """The hook: recompute the weight from its magnitude and direction.

    Args:
        name: of the parameter. dim: the axis that has a norm for each index; None, one norm for all.
    """

    function = "weight_norm"
    purpose = "weight normalization"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight, from `<name>_g` and `<name>_v`."""
        return normalised(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> "WeightNorm":
        """Replace a parameter by its magnitude and direction, and register the hook on the module.

        Raises:
            RuntimeError: the parameter has such a hook. ValueError: it has no shape yet.
        """
        warnings.warn(
            "`mytorch.nn.utils.weight_norm` is deprecated in favor of `mytorch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        WeightNorm.refuse_second(module, name)
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        WeightNorm.refuse_lazy(weight)
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), dim=hook.dim)))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a parameter be g v / |v|, with parameters `<name>_g` and `<name>_v`. Prefer `parametrizations.weight_norm`.

    Args:
        dim: the axis that has a norm for each index; None, one norm for all.

    Returns:
        The module.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm`; returns the module.

    Raises:
        ValueError: the parameter has no such hook.
    """
    WeightNorm.remove_from(module, name)
    return module
