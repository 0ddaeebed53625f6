"""Weight normalization by a hook: w = g * v / |v| before every forward. Source: Salimans and Kingma, 2016."""

import warnings
from typing import Any

from ...arrays.tensor import Tensor
from ...ops.normalization import norm_except_dim, normalized
from ..module import Module
from ..parameter import Parameter
from .parameter_hook import ParameterHook


class WeightNorm(ParameterHook):
    """The hook, which computes a weight from its magnitude and direction.

    Args:
        name: name of the parameter.
        dim: dimension that has one norm for each index. `None` computes one norm of the whole tensor.
    """

    function = "weight_norm"
    purpose = "weight normalization"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Returns the weight, computed from `<name>_g` and `<name>_v`."""
        return normalized(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> "WeightNorm":
        """Replaces a parameter by its magnitude and direction, and registers the hook on the module.

        Raises:
            RuntimeError: the parameter already has this hook.
            ValueError: the parameter has no shape yet.
        """
        new = "mytorch.nn.utils.parametrizations.weight_norm"
        text = f"`mytorch.nn.utils.weight_norm` is deprecated in favor of `{new}`."
        warnings.warn(text, FutureWarning, stacklevel=3)
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
        """Replaces magnitude and direction by one parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Computes a parameter as w = g * v / |v| before every forward, with parameters `<name>_g` and `<name>_v`.

    Deprecated, use `nn.utils.parametrizations.weight_norm`.

    Args:
        name: name of the parameter (default: "weight").
        dim: dimension that has one norm for each index. `None` computes one norm of the whole tensor (default: 0).

    Returns:
        The module.

    Raises:
        RuntimeError: the parameter already has this hook.
        ValueError: the parameter has no shape yet.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Removes the hook of `weight_norm` from a parameter.

    Args:
        name: name of the parameter (default: "weight").

    Returns:
        The module.

    Raises:
        ValueError: the parameter has no such hook.
    """
    WeightNorm.remove_from(module, name)
    return module
