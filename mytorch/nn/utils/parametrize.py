"""Parametrizations: modules that compute a parameter or buffer of another module on each access.

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    register_parametrization(nn.Linear(5, 5), "weight", Symmetric())

The tensor moves to `module.parametrizations.weight.original`. If a `right_inverse` returns several tensors, they are
`original0`, `original1`, and so on. The module gets a new class: a subclass of its class, with a property for the tensor.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cache = {}  # (id of module, name) -> tensor, while `cached` is active
_cache_depth = 0


@contextmanager
def cached() -> Iterator[None]:
    """Computes each parametrized tensor only once, at its first access, as a context manager.

    Use it around code that reads a parametrized tensor several times, such as a recurrent network with a parametrized
    weight.

    Example:
        >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
        >>> with nn.utils.parametrize.cached():
        ...     layer.weight is layer.weight
        True
    """
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _register(module, name, tensor):
    (module.register_parameter if isinstance(tensor, Parameter) else module.register_buffer)(name, tensor)


def _right_inverse(module, value):
    """Returns the module's right inverse of a value, or the value itself if the module defines no right inverse."""
    if not hasattr(module, "right_inverse"):
        return value
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return value


def _is_sequence(value):
    return isinstance(value, Sequence) and not isinstance(value, (str, Tensor))


def _check_same(what, before, after, before_name, after_name, flag):
    if before != after:
        raise ValueError(
            f"Registering a parametrization may not change the {what} of the tensor, unless {flag} flag is enabled.\n"
            f"{before_name}{what}: {before}\n{after_name}{what}: {after}"
        )


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor in their order, and their original tensors.

    Args:
        modules: the parametrizations.
        original: the parameter or buffer. The right inverses of the modules determine its new value.
        unsafe: if True, the parametrizations may change shape and dtype (default: False).

    Raises:
        ValueError: `modules` is empty, a right inverse returns other objects than tensors or another dtype, or the
            shape or dtype changes.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = tuple(original.shape), original.dtype
        with no_grad():
            new = original
            for module in reversed(list(self)):
                new = _right_inverse(module, new)
        if not isinstance(new, Tensor) and not _is_sequence(new):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._take_one(original, new)
        else:
            self._take_several(original, new)
        if not unsafe:
            value = self()
            if not isinstance(value, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
            names = ("unparametrized ", "parametrized ", "`unsafe`")
            _check_same("dtype", dtype, value.dtype, *names)
            _check_same("shape", shape, tuple(value.shape), *names)

    def _take_one(self, original, new):
        for what in ("dtype", "device"):
            if getattr(original, what) != getattr(new, what):
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                    f"original.{what}: {getattr(original, what)}\n"
                    f"right_inverse(original).{what}: {getattr(new, what)}"
                )
        with no_grad():
            original.data = new.data
        _register(self, "original", original)

    def _take_several(self, original, new):
        for i, tensor in enumerate(new):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {i} of the sequence with type {type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor.detach(), original.requires_grad)
            _register(self, f"original{i}", tensor)

    def right_inverse(self, value: Any) -> None:
        """Sets the original tensors so that the parametrizations compute `value`.

        Args:
            value: the new value.

        Raises:
            RuntimeError: a parametrization has no right inverse.
            ValueError: a right inverse returns objects of another type, number or dtype.
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                self._assign_one(value)
            else:
                self._assign_several(value)

    def _assign_one(self, value):
        if not isinstance(value, Tensor):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
        if value.dtype != self.original.dtype:
            raise ValueError(
                f"The tensor returned by `right_inverse` has dtype {value.dtype} "
                f"while `original` has dtype {self.original.dtype}"
            )
        self.original.data = value.data

    def _assign_several(self, values):
        if not _is_sequence(values):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(values).__name__}.")
        if len(values) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                f"Got a sequence of length {len(values)}."
            )
        for i, value in enumerate(values):
            mine = getattr(self, f"original{i}")
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors. Got element {i} of type {type(value).__name__}."
                )
            if value.dtype != mine.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {value.dtype} "
                    f"while `original{i}` has dtype {mine.dtype}"
                )
            mine.data = value.data

    def forward(self) -> Tensor:
        originals = [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]
        first, *others = [m for name, m in self._modules.items() if name.isdigit()]
        value = first(*originals)
        for module in others:
            value = module(value)
        return value


def _refuse_pickling(self, *protocol):
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See the notes on saving and "
        "loading a general checkpoint."
    )


def _deepcopy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    copied = memo[id(self)] = object.__new__(type(self))
    copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return copied


def _inject_class(module):
    """Changes the class of the module to a new subclass, which defines the properties."""
    cls = type(module)
    body = {"__getstate__": _refuse_pickling, "__module__": cls.__module__}
    if not hasattr(cls, "__deepcopy__"):
        body["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), body)


def _inject_property(module, name):
    def read(self):
        parametrization = self.parametrizations[name]
        if not _cache_depth:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Registers a module that computes a parameter or buffer of another module on each access.

    Args:
        module: the module with the parameter.
        tensor_name: name of a parameter or buffer. For a parametrized tensor, the new parametrization is applied last.
        parametrization: module that computes the tensor. Its method `right_inverse`, if defined, makes assignment
            possible.
        unsafe: if True, skips all checks, and the parametrization may change shape and dtype (default: False).

    Returns:
        The module.

    Raises:
        ValueError: the tensor does not exist, or the parametrization changes its shape or dtype.

    Example:
        >>> class Positive(nn.Module):
        ...     def forward(self, x):
        ...         return x.exp()
        >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(3, 2), "weight", Positive())
        >>> bool((layer.weight > 0).all())
        True

    See also: `nn.utils.parametrize.remove_parametrizations`, `nn.utils.parametrizations.orthogonal`.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_next(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        parametrizations = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def _check_next(module, name, parametrization):
    """Raises `ValueError` if a further parametrization changes shape or dtype."""
    before = getattr(module, name)
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        names = (f"module.{name}.", f"parametrization(module.{name}).", "the `unsafe`")
        _check_same(what, getattr(before, what), getattr(after, what), *names)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what in ("dtype", "shape"):
        if getattr(back, what) != getattr(before, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, unless "
                f"the `unsafe` flag is enabled.\nmodule.{name}.{what}: {getattr(before, what)}\n"
                f"returned {what}: {getattr(back, what)}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Returns True if a tensor of the module has a parametrization.

    Args:
        tensor_name: name of the tensor. By default, any tensor.
    """
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Removes the parametrizations of a tensor, which becomes a regular parameter or buffer.

    Args:
        leave_parametrized: if True, keeps the computed value. Otherwise, restores the original tensor (default: True).

    Returns:
        The module.

    Raises:
        ValueError: the tensor is not parametrized, or it has several original tensors and `leave_parametrized` is
            False.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if not parametrizations.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    if parametrizations.is_tensor:
        tensor = parametrizations.original
        if leave_parametrized:
            with no_grad():
                tensor.data = getattr(module, tensor_name).data
    else:
        value = getattr(module, tensor_name)
        tensor = Parameter(value.detach()) if value.requires_grad else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, tensor)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Returns the class that the module had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Registers the parametrizations of one module, and their original tensors, on another module.

    Args:
        from_module: module with the parametrizations.
        to_module: module that receives them.
        tensor_name: name of the tensor. By default, all tensors.

    Returns:
        `to_module`.
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for module in source:
            register_parametrization(to_module, name, module)
        target = to_module.parametrizations[name]
        for key in ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]:
            setattr(target, key, getattr(source, key))
    return to_module
