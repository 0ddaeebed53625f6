"""The base class of `weight_norm` and `spectral_norm`: a forward pre-hook that computes a parameter from others."""

from typing import Any

from ..module import Module
from ..parameter import is_lazy


class ParameterHook:
    """A forward pre-hook that sets `module.<name>`.

    A subclass computes the value in `__call__`, and restores the parameter in `remove`.
    """

    name: str
    function = ""  # name of the function in nn.utils
    purpose = ""

    @classmethod
    def refuse_second(cls, module: Module, name: str) -> None:
        """Raises `RuntimeError` if the parameter already has this hook."""
        if cls._key(module, name) is not None:
            raise RuntimeError(f"Cannot register two {cls.function} hooks on the same parameter {name}")

    @classmethod
    def refuse_lazy(cls, weight: Any) -> None:
        """Raises `ValueError` if the parameter has no shape yet."""
        if is_lazy(weight):
            raise ValueError(
                f"The module passed to `{cls.__name__}` can't have uninitialized parameters. "
                f"Make sure to run the dummy forward before applying {cls.purpose}"
            )

    @classmethod
    def remove_from(cls, module: Module, name: str) -> None:
        """Removes the hook from a parameter. Raises `ValueError` if the parameter has no such hook."""
        key = cls._key(module, name)
        if key is None:
            raise ValueError(f"{cls.function} of '{name}' not found in {module}")
        module._forward_pre_hooks[key].remove(module)
        del module._forward_pre_hooks[key]

    @classmethod
    def _key(cls, module, name):
        hooks = module._forward_pre_hooks.items()
        return next((key for key, hook in hooks if isinstance(hook, cls) and hook.name == name), None)
