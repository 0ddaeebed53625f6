"""Weight normalisation by a hook: w = g v / |v|, before every forward. Source: Salimans and Kingma, 2016."""

import warnings

from ..parameter import Parameter, is_lazy


def norm_except_dim(v, dim=0):
    """The 2-norm over all axes but `dim`, which stays in place; over all axes for dim=-1."""
    if dim == -1:
        return v.norm(2)
    return v.norm(2, tuple(d for d in range(v.ndim) if d != dim), keepdim=True)


def normalised(v, g, dim=0):
    """g v / |v|, with a norm for each index of axis `dim` (one for all if -1)."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """The hook: recompute the weight from its magnitude and direction.

    Args:
        name: of the parameter. dim: the axis that has a norm for each index; None, one norm for all.
    """

    def __init__(self, name, dim):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        """The weight, from `<name>_g` and `<name>_v`."""
        return normalised(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module, name, dim):
        """Replace a parameter by its magnitude and direction, and hang the hook on the module.

        Raises:
            RuntimeError: the parameter has such a hook. ValueError: it has no shape yet.
        """
        warnings.warn(
            "`mytorch.nn.utils.weight_norm` is deprecated in favor of `mytorch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if any(isinstance(hook, WeightNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), hook.dim)))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module):
        """Make the weight a parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Let a parameter be g v / |v|, with parameters `<name>_g` and `<name>_v`. Prefer `parametrizations.weight_norm`.

    Args:
        dim: the axis that has a norm for each index; None, one norm for all.

    Returns:
        The module.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Undo `weight_norm`; returns the module.

    Raises:
        ValueError: the parameter has no such hook.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
