"""Module, the base class of layers and models, with PyTorch's semantics.

A module stores parameters, buffers and submodules in three dictionaries. An assignment to an attribute fills them.
State dicts, moving, iterating and printing traverse these dictionaries.
"""

import inspect
import itertools
import sys
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from ..arrays import as_device, config, device, dtypes
from ..arrays.array import Array
from ..arrays.errors import warn
from ..arrays.tensor import RemovableHandle, Tensor, is_tensor, zero_gradient
from ..autograd.mode import no_grad
from ..ops.dispatch.errors import not_a_tensor
from .common_types import Device
from .hooks import BackwardBoundary
from .parameter import Buffer, Parameter, is_lazy

__all__ = ["Module"]

_EXTRA_STATE = _EXTRA_STATE_KEY_SUFFIX = "_extra_state"
Self = TypeVar("Self", bound="Module")
Hook = Callable[..., Any]
Inputs = ParamSpec("Inputs")
Output = TypeVar("Output", covariant=True)


class _HasForward(Protocol[Inputs, Output]):
    """Declares for type checkers that a module has the parameters and the result of its `forward`."""

    def forward(self, *args: Inputs.args, **kwargs: Inputs.kwargs) -> Output: ...


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()
_global_forward_hooks_with_kwargs = OrderedDict()
_global_forward_hooks_always_called = OrderedDict()
_global_backward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_buffer_registration_hooks = OrderedDict()
_global_module_registration_hooks = OrderedDict()
_global_parameter_registration_hooks = OrderedDict()
_hooked_globally = [False]  # True after the first registration of a hook for all modules


class _Handle(RemovableHandle):
    """A handle of a hook with options, which are dicts that contain the id of the hook until it is removed."""

    def __init__(self, hooks, hook, prepend, options):
        super().__init__(hooks, hook, prepend)
        self.options = options
        for option in options:
            option[self.id] = True

    def remove(self):
        super().remove()
        for option in self.options:
            option.pop(self.id, None)

    def __getstate__(self):
        return super().__getstate__(), self.options

    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.options = state[1]


def _global_hook(hooks, hook):
    _hooked_globally[0] = True
    return RemovableHandle(hooks, hook)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs before the forward of every module.

    Args:
        hook: function that is called as `hook(module, args)`. A result replaces the arguments.

    Returns:
        A handle with a method `remove()`.
    """
    return _global_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Registers a hook that runs after the forward of every module.

    Args:
        hook: function that is called as `hook(module, args, output)`. A result replaces the output.
        with_kwargs: if True, calls `hook(module, args, kwargs, output)` (default: False).
        always_call: if True, calls the hook also if forward raises (default: False).

    Returns:
        A handle with a method `remove()`.
    """
    _hooked_globally[0] = True
    options = [_global_forward_hooks_with_kwargs] * with_kwargs + [_global_forward_hooks_always_called] * always_call
    return _Handle(_global_forward_hooks, hook, False, options)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs in the backward of every module.

    Args:
        hook: function that is called as `hook(module, grad_input, grad_output)`. A result replaces `grad_input`.

    Returns:
        A handle with a method `remove()`.
    """
    return _global_hook(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook on the last operation of the forward of every module. Deprecated: it misses some gradients.

    Args:
        hook: function that is called as `hook(module, grad_input, grad_output)`. A result replaces `grad_input`.

    Returns:
        A handle with a method `remove()`.
    """
    return sys.modules[__package__].backward_hooks.register(None, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs before the backward of every module.

    Args:
        hook: function that is called as `hook(module, grad_output)`. A result replaces `grad_output`.

    Returns:
        A handle with a method `remove()`.
    """
    return _global_hook(_global_backward_pre_hooks, hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs when any module registers a buffer.

    Args:
        hook: function that is called as `hook(module, name, buffer)`. A result replaces the buffer.

    Returns:
        A handle with a method `remove()`.
    """
    return RemovableHandle(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs when any module registers a submodule.

    Args:
        hook: function that is called as `hook(module, name, submodule)`. A result replaces the submodule.

    Returns:
        A handle with a method `remove()`.
    """
    return RemovableHandle(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Registers a hook that runs when any module registers a parameter.

    Args:
        hook: function that is called as `hook(module, name, param)`. A result replaces the parameter.

    Returns:
        A handle with a method `remove()`.
    """
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def _registered(hooks, module, name, value):
    """Returns a value after the registration hooks, which may replace it."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


def is_plain(module: "Module", kind: type) -> bool:
    """Returns True if a call of the module has exactly the effect of class `kind`.

    Then one kernel can replace several layers. This requires that the module is not of a subclass, has no hooks, and
    does not override `forward` itself.
    """
    return type(module) is kind and "forward" not in module.__dict__ and not (module._hooked or _hooked_globally[0])


def _load_tree(module, local, prefix, metadata, assign, reports):
    """Loads a module and its submodules. `reports` contains the lists of missing keys, unexpected keys and errors."""
    info = dict(metadata.get(prefix[:-1], {}))
    if assign:
        info["assign_to_params_buffers"] = True
    module._load_from_state_dict(local, prefix, info, True, *reports)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            _load_tree(child, {k: v for k, v in local.items() if k.startswith(below)}, below, metadata, assign, reports)
    for hook in module._load_state_dict_post_hooks.values():
        hook(module, _IncompatibleKeys(*reports[:2]))


class _ModuleHook:
    """A hook that receives its module first. The reference to the module is weak, because the module refers to its hooks."""

    def __init__(self, hook, module):
        self.__setstate__((hook, module))

    def __call__(self, *args):
        return self.hook(self.module(), *args)

    def __getstate__(self):
        return self.hook, self.module()

    def __setstate__(self, state):
        self.hook, module = state
        self.module = weakref.ref(module)


class Module:
    """The base class of all layers and models.

    A module consists of parameters, buffers, submodules, and a method `forward`. A subclass first calls
    `super().__init__()`, then assigns its parameters and submodules to attributes, and defines `forward`. A call of the
    module runs its hooks and `forward`.

    Args:
        args: not accepted, unless a subclass sets `call_super_init`.
        kwargs: not accepted, unless a subclass sets `call_super_init`.

    Attributes:
        training: True in training mode, False in evaluation mode. Dropout and batch normalization depend on it.

    Example:
        >>> class Scale(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = nn.Parameter(tensor(3.0))
        ...
        ...     def forward(self, x):
        ...         return self.factor * x
        >>> Scale()(tensor([1.0, 2.0])).tolist()
        [3.0, 6.0]
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]  # Module or None

    dump_patches = False
    _version = 1
    call_super_init = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = f"{type(self).__name__}.__init__()"
        if kwargs and not self.call_super_init:
            raise TypeError(f"{name} got an unexpected keyword argument '{next(iter(kwargs))}'")
        if args and not self.call_super_init:
            raise TypeError(f"{name} takes 1 positional argument but {len(args) + 1} were given")
        put = super().__setattr__
        put("training", True)
        put("_parameters", {})
        put("_buffers", {})
        put("_modules", {})
        put("_non_persistent_buffers_set", set())
        for name in (
            "_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
            "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
            "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
        ):  # fmt: skip
            put(name, OrderedDict())
        put("_hooked", False)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling -------------------------------------------------------------------------------------------

    if TYPE_CHECKING:
        forward: Callable[..., Any]

        def __call__(self: _HasForward[Inputs, Output], *args: Inputs.args, **kwargs: Inputs.kwargs) -> Output: ...

    else:

        def forward(self, *input):
            """Computes the output. Every subclass defines this method."""
            raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

        def __call__(self, *args, **kwargs):
            try:
                if not (self._hooked or _hooked_globally[0]):
                    return self.forward(*args, **kwargs)
                return self._call_with_hooks(args, kwargs)
            except AttributeError as error:
                found = not_a_tensor(error, type(self).__name__, args)
                if found is error:
                    raise
                raise found from None

    _call_impl = _wrapped_call_impl = __call__

    def _call_with_hooks(self, args, kwargs):
        result = None
        called = set()
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            boundary = None
            # Backward hooks need the gradients at both ends of the module: identity functions receive them.
            hooks = [*_global_backward_hooks.values(), *self._backward_hooks.values()]
            pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            if hooks or pre_hooks:
                boundary = BackwardBoundary(self, hooks, pre_hooks)
                args = boundary.enter(args)
            result = self.forward(*args, **kwargs)
            for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                called.add(key)
                changed = self._run_hook(key, hook, args, kwargs, result)
                result = result if changed is None else changed
            return boundary.leave(result) if boundary is not None else result
        except Exception:
            # Hooks with always_call=True run also after an error, except if they already ran.
            for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                always = key in self._forward_hooks_always_called or key in _global_forward_hooks_always_called
                if always and key not in called:
                    try:
                        self._run_hook(key, hook, args, kwargs, result)
                    except Exception as error:
                        warn(
                            f"a hook with always_call=True failed after forward failed, its error is silenced: {error}"
                        )
            raise

    def _run_pre_hooks(self, args, kwargs):
        """Returns the arguments of forward after the pre-hooks, which may replace them."""
        for key, hook in [*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
            with_kwargs = key in self._forward_pre_hooks_with_kwargs
            changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if changed is None:
                continue
            if not with_kwargs:
                args = changed if isinstance(changed, tuple) else (changed,)
            elif isinstance(changed, tuple) and len(changed) == 2:
                args, kwargs = changed
            else:
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                )
        return args, kwargs

    def _run_hook(self, key, hook, args, kwargs, result):
        with_kwargs = key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs
        return hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)

    def _register(self, hooks, hook, prepend=False, with_kwargs=False, always_call=False):
        self.__dict__["_hooked"] = True
        kind = "pre_hooks" if hooks is self._forward_pre_hooks else "hooks"
        options = [getattr(self, f"_forward_{kind}_with_kwargs")] * with_kwargs + [
            self._forward_hooks_always_called
        ] * always_call
        return _Handle(hooks, hook, prepend, options) if options else RemovableHandle(hooks, hook, prepend)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Registers a hook that runs before forward.

        Args:
            hook: function that is called as `hook(module, args)`. A result replaces the arguments.
            prepend: if True, the hook runs before the other hooks (default: False).
            with_kwargs: if True, calls `hook(module, args, kwargs)`, which returns both or `None` (default: False).

        Returns:
            A handle with a method `remove()`.

        Example:
            >>> layer = nn.ReLU()
            >>> handle = layer.register_forward_pre_hook(lambda module, args: (-args[0],))
            >>> layer(tensor([-1.0, 2.0])).tolist()
            [1.0, 0.0]
        """
        return self._register(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Registers a hook that runs after forward.

        Args:
            hook: function that is called as `hook(module, args, output)`. A result replaces the output.
            prepend: if True, the hook runs before the other hooks (default: False).
            with_kwargs: if True, calls `hook(module, args, kwargs, output)` (default: False).
            always_call: if True, calls the hook also if forward raises (default: False).

        Returns:
            A handle with a method `remove()`.

        Example:
            >>> layer = nn.Linear(3, 2)
            >>> handle = layer.register_forward_hook(lambda module, args, output: print(tuple(output.shape)))
            >>> _ = layer(mytorch.zeros(4, 3))
            (4, 2)
            >>> handle.remove()
        """
        return self._register(self._forward_hooks, hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Registers a hook that runs when the gradients of the inputs are complete.

        Args:
            hook: function that is called as `hook(module, grad_input, grad_output)`. A result replaces `grad_input`.
            prepend: if True, the hook runs before the other hooks (default: False).

        Returns:
            A handle with a method `remove()`.

        Example:
            >>> layer = nn.Linear(3, 2)
            >>> handle = layer.register_full_backward_hook(lambda module, inputs, outputs: print(outputs[0].shape))
            >>> layer(mytorch.ones(1, 3, requires_grad=True)).sum().backward()
            mytorch.Size([1, 2])
        """
        return self._register(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Registers a hook on the last operation of forward. Deprecated: use `register_full_backward_hook`.

        Args:
            hook: function that is called as `hook(module, grad_input, grad_output)` with the gradients of that operation. A
                result replaces `grad_input`.

        Returns:
            A handle with a method `remove()`.

        Raises:
            RuntimeError: the module also has full backward hooks.
        """
        return sys.modules[__package__].backward_hooks.register(self, hook)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Registers a hook that runs when the gradients of the outputs are complete.

        Args:
            hook: function that is called as `hook(module, grad_output)`. A result replaces `grad_output`.
            prepend: if True, the hook runs before the other hooks (default: False).

        Returns:
            A handle with a method `remove()`.
        """
        return self._register(self._backward_pre_hooks, hook, prepend)

    # -- attributes ------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        if (entries := d.get("_parameters")) and name in entries:  # not in a loop, since models spend time here
            return entries[name]
        if (entries := d.get("_modules")) and name in entries:
            return entries[name]
        if (entries := d.get("_buffers")) and name in entries:
            return entries[name]
        kind = type(self).__name__
        if name == "_hooked":  # a call of a module without state
            raise AttributeError(
                f"{kind}: expected Module.__init__() before the call. Begin {kind}.__init__ with super().__init__()."
            )
        raise AttributeError(f"'{kind}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if "_parameters" not in d:
            for kind, what in ((Parameter, "parameters"), (Module, "module"), (Buffer, "buffer")):
                if isinstance(value, kind):
                    raise AttributeError(f"cannot assign {what} before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        parameters, buffers, modules = d["_parameters"], d["_buffers"], d["_modules"]
        if isinstance(value, Parameter):
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif name in parameters:
            _refuse_other_than_none(value, "parameter", name, "mytorch.nn.Parameter")
            parameters[name] = None
        elif isinstance(value, Module):
            self._forget(name, "_modules")
            modules[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif name in modules:
            _refuse_other_than_none(value, "child module", name, "mytorch.nn.Module")
            modules[name] = None
        elif name in buffers:
            if not isinstance(value, Tensor):
                _refuse_other_than_none(value, "buffer", name, "mytorch.Tensor, mytorch.nn.Buffer")
            buffers[name] = _registered(_global_buffer_registration_hooks, self, name, value)
        elif isinstance(value, Buffer):
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name, keep):
        """Removes a name from all dictionaries except `keep`."""
        self.__dict__.pop(name, None)
        for store in {"_parameters", "_buffers", "_modules"} - {keep}:
            self.__dict__[store].pop(name, None)
        if keep != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for store in (self._parameters, self._buffers, self._modules):
            if name in store:
                del store[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted({name for name in names if not name[0].isdigit()})

    def _check_name(self, name, what, store):
        """Raises an error if a name is invalid, or if it is an attribute outside `store`."""
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[store]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter. `None` reserves the name.

        Args:
            name: name of the attribute.
            param: the parameter, or `None`.

        Raises:
            KeyError: the name exists already, is empty, or contains a dot.
            TypeError: `param` is not a Parameter.
            ValueError: `param` is not a leaf of the graph.
        """
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                description = f"'{_typename(param)}' object to parameter '{name}'"
                raise TypeError(f"cannot assign {description} (mytorch.nn.Parameter or None required)")
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly."
                )
        self._parameters[name] = _registered(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer, a tensor that is part of the state but not trained.

        Args:
            name: name of the attribute.
            tensor: the tensor, or `None`.
            persistent: if True, the state dict contains the buffer (default: True).

        Raises:
            KeyError: the name exists already, is empty, or contains a dot.
            TypeError: `tensor` is not a tensor.

        Example:
            >>> module = nn.Module()
            >>> module.register_buffer("mean", mytorch.zeros(3))
            >>> list(module.state_dict())
            ['mean']
        """
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            description = f"'{_typename(tensor)}' object to buffer '{name}'"
            raise TypeError(f"cannot assign {description} (mytorch Tensor or None required)")
        self._buffers[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Adds a submodule.

        Args:
            name: name of the attribute.
            module: the submodule, or `None`.

        Raises:
            KeyError: the name exists already, is empty, or contains a dot.
            TypeError: `module` is not a Module.

        Example:
            >>> model = nn.Sequential()
            >>> model.add_module("hidden", nn.Linear(3, 2))
            >>> model.hidden
            Linear(in_features=3, out_features=2, bias=True)
        """
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", "_modules")
        self._modules[name] = _registered(_global_module_registration_hooks, self, name, module)

    register_module = add_module

    def get_submodule(self, target: str) -> "Module":
        """Returns the submodule at a dotted path.

        Args:
            target: the path, such as "encoder.layers.0". An empty path selects this module.

        Raises:
            AttributeError: the path does not exist, or is not a module.

        Example:
            >>> nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU())).get_submodule("1.0")
            ReLU()
        """
        module = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Replaces the submodule at a dotted path, or adds one. Its parent must exist.

        Args:
            target: the path.
            module: the new submodule.
            strict: if True, a submodule must exist at the path (default: False).

        Raises:
            ValueError: the path is empty, or `module` is not a Module.
            AttributeError: the parent does not exist, or the path is not a module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, last = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, last):
            parent.get_submodule(last)  # raises an error if it is not a module
        setattr(parent, last, module)

    def _get_member(self, target, store, what):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        if name not in getattr(owner, store):
            raise AttributeError(f"`{name}` is not {what}")
        return getattr(owner, store)[name]

    def get_parameter(self, target: str) -> Parameter:
        """Returns the parameter at a dotted path.

        Args:
            target: the path, such as "encoder.weight".

        Raises:
            AttributeError: the path does not exist, or is not a parameter.

        Example:
            >>> nn.Sequential(nn.Linear(3, 2)).get_parameter("0.bias").shape
            mytorch.Size([2])
        """
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer at a dotted path.

        Args:
            target: the path, such as "norm.running_mean".

        Raises:
            AttributeError: the path does not exist, or is not a buffer.
        """
        return self._get_member(target, "_buffers", "a buffer")

    # -- iterating ---------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set["Module"] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
        """Yields (dotted name, module) for this module and all its submodules.

        Args:
            memo: modules to skip.
            prefix: text before each name (default: "").
            remove_duplicate: if True, yields a shared module only once (default: True).

        Example:
            >>> [name for name, _ in nn.Sequential(nn.ReLU(), nn.Tanh()).named_modules()]
            ['', '0', '1']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator["Module"]:
        """Yields this module and all its submodules.

        Args:
            remove_duplicate: if True, yields a shared module only once (default: True).

        Example:
            >>> [type(module).__name__ for module in nn.Sequential(nn.Linear(3, 2), nn.ReLU()).modules()]
            ['Sequential', 'Linear', 'ReLU']
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Yields (name, module) for the direct submodules. A shared module occurs once.

        Example:
            >>> dict(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).named_children())
            {'0': Linear(in_features=3, out_features=2, bias=True), '1': ReLU()}
        """
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        """Yields the direct submodules. A shared module occurs once.

        Example:
            >>> list(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).children())
            [Linear(in_features=3, out_features=2, bias=True), ReLU()]
        """
        for _, module in self.named_children():
            yield module

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yields (dotted name, parameter).

        Args:
            prefix: text before each name (default: "").
            recurse: if True, includes the parameters of submodules (default: True).
            remove_duplicate: if True, yields a shared parameter only once (default: True).

        Example:
            >>> [(name, tuple(p.shape)) for name, p in nn.Linear(3, 2).named_parameters()]
            [('weight', (2, 3)), ('bias', (2,))]
        """
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yields the parameters. A shared parameter occurs once.

        Args:
            recurse: if True, includes the parameters of submodules (default: True).

        Example:
            >>> sum(p.numel() for p in nn.Linear(3, 2).parameters())
            8
        """
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (dotted name, buffer).

        Args:
            prefix: text before each name (default: "").
            recurse: if True, includes the buffers of submodules (default: True).
            remove_duplicate: if True, yields a shared buffer only once (default: True).

        Example:
            >>> [name for name, _ in nn.BatchNorm1d(3).named_buffers()]
            ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers. A shared buffer occurs once.

        Args:
            recurse: if True, includes the buffers of submodules (default: True).
        """
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    # -- modes, moving -------------------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Sets training mode for this module and its submodules. Returns self.

        Args:
            mode: False sets evaluation mode (default: True).

        Raises:
            ValueError: `mode` is not a bool.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
            >>> model.train()[1].training  # dropout is on again
            True
        """
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)  # a class may override `train`, for example to freeze its statistics
        return self

    def eval(self: Self) -> Self:
        """Sets evaluation mode for this module and its submodules. Returns self.

        Example:
            >>> layer = nn.Dropout().eval()
            >>> layer.training
            False
        """
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Sets `requires_grad` of every parameter. Returns self.

        Args:
            requires_grad: the new value (default: True).
        """
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of all parameters.

        Args:
            set_to_none: if True, sets `grad` to `None`. Otherwise, fills the gradients with zeros (default: True).

        Example:
            >>> layer = nn.Linear(3, 2)
            >>> layer(mytorch.ones(1, 3)).sum().backward()
            >>> layer.zero_grad()
            >>> print(layer.weight.grad)
            None
        """
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            else:
                zero_gradient(p)

    def apply(self: Self, fn: Callable[["Module"], Any]) -> Self:
        """Calls a function with every submodule, and then with this module. Returns self.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
            >>> _ = model.apply(lambda m: nn.init.zeros_(m.weight) if isinstance(m, nn.Linear) else None)
            >>> model(mytorch.ones(1, 2)).item() == model[1].bias.item()
            True
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replaces the contents of every parameter, gradient and buffer by the result of `fn`, in place."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for p in self._parameters.values():
            if p is None:
                continue
            with no_grad():
                grad = p.grad
                p.grad = None  # converted separately below
                p.data = fn(p)
                if grad is not None:
                    p.grad = fn(grad if isinstance(grad, Tensor) else Tensor._of(grad))
        for name, b in self._buffers.items():
            if b is not None:
                moved = fn(b)
                if moved is not b:
                    if isinstance(b, Buffer) or is_lazy(b):
                        b.data = moved
                    else:
                        self._buffers[name] = moved
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Moves or casts the parameters and buffers. Returns self.

        Call it as `to(device)`, `to(dtype)`, `to(device, dtype)` or `to(tensor)`. A dtype applies only to floating point and complex tensors.

        Args:
            args: device, dtype, or a tensor that determines both.
            kwargs: `device`, `dtype` and `non_blocking`. `memory_format` is the order in memory of parameters with 4 or 5 axes.

        Raises:
            TypeError: the dtype is an integer or bool dtype, or an argument is unknown.

        Example:
            >>> nn.Linear(3, 2).to(mytorch.float64).weight.dtype
            mytorch.float64
        """
        where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        non_blocking = kwargs.pop("non_blocking", False)
        memory_format = kwargs.pop("memory_format", None)
        if "copy" in kwargs:
            raise RuntimeError(".to() does not accept copy argument. Use copy.deepcopy(module) for a copy.")
        if kwargs:
            raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
        for a in args:
            if is_tensor(a):
                where, dtype = a.device, a.dtype
            elif isinstance(a, bool):
                non_blocking = a
            elif isinstance(a, (device, int)) or (isinstance(a, str) and a not in dtypes._BY_NAME):
                where = a
            elif a is not None:
                dtype = a
        if dtype is not None:
            dtype = dtypes.as_dtype(dtype)
            if dtype.category < dtypes.FLOAT:
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
        if where is not None:
            where = as_device(where)

        if dtype is not None and dtype.is_complex:
            warn(
                "Complex modules are a new feature whose design may change. Some modules might not work as expected with complex "
                "parameters or buffers."
            )

        def convert(t):
            fits = dtype is not None and t.dtype.category >= dtypes.FLOAT
            order = {} if memory_format is None or t.ndim not in (4, 5) else {"memory_format": memory_format}
            return t.to(device=where, dtype=dtype if fits else None, non_blocking=non_blocking, **order)

        return self._apply(convert)

    def _cast_floats(self: Self, dtype: dtypes.dtype) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self: Self) -> Self:
        """Casts the floating point parameters and buffers to float32. Returns self."""
        return self._cast_floats(dtypes.float32)

    def double(self: Self) -> Self:
        """Casts the floating point parameters and buffers to float64. Returns self.

        Example:
            >>> nn.Linear(3, 2).double().weight.dtype
            mytorch.float64
        """
        return self._cast_floats(dtypes.float64)

    def half(self: Self) -> Self:
        """Casts the floating point parameters and buffers to float16. Returns self."""
        return self._cast_floats(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        """Casts the floating point parameters and buffers to bfloat16. Returns self."""
        return self._cast_floats(dtypes.bfloat16)

    def type(self: Self, dst_type: dtypes.dtype | str) -> Self:
        """Casts all parameters and buffers. Returns self.

        Args:
            dst_type: the new dtype.
        """
        return self._apply(lambda t: t.to(dtypes.as_dtype(dst_type)))

    def cpu(self: Self) -> Self:
        """Moves the parameters and buffers to the CPU. Returns self."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Device = None) -> Self:
        """Moves the parameters and buffers to a GPU. Returns self.

        Args:
            device: the GPU. By default, the current GPU.
        """
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: Self, *, device: Device, recurse: bool = True) -> Self:
        """Replaces the parameters and buffers by uninitialized memory on a device. Returns self.

        Args:
            recurse: if True, includes submodules (default: True).
        """
        empty_like = sys.modules["mytorch"].empty_like  # the public function, which subclasses of Tensor can override
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def share_memory(self: Self) -> Self:
        """Moves the parameters, their gradients and the buffers to memory that several processes share.

        Processes that are started later train the same parameters. See `Tensor.share_memory_`.

        Returns:
            This module.
        """
        tensors = [*self.parameters(), *self.buffers()]
        tensors += [t.grad for t in tensors if t.grad is not None]
        if tensors:
            tensors[0]._share_with(tensors[1:])
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the forward method of this module in place; see `mytorch.compile`.

        Args:
            args: arguments of `mytorch.compile`.
            kwargs: keyword arguments of `mytorch.compile`.
        """
        self.__dict__["forward"] = sys.modules["mytorch"].compile(self.forward, *args, **kwargs)

    # -- state dict ------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Returns further state for the state dict.

        A subclass that defines this method must also define `set_extra_state`.
        """
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Restores the state that `get_extra_state` returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Registers a hook that runs at the end of `state_dict`.

        Args:
            hook: function that is called as `hook(module, state_dict, prefix, local_metadata)`.

        Returns:
            A handle with a method `remove()`.
        """
        return RemovableHandle(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Registers a hook that runs at the start of `state_dict`.

        Args:
            hook: function that is called as `hook(module, prefix, keep_vars)`.

        Returns:
            A handle with a method `remove()`.
        """
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Registers a hook that runs before this module loads a state dict.

        Args:
            hook: function that is called as `hook(module, state_dict, prefix, metadata, strict, missing, unexpected,
                errors)`.

        Returns:
            A handle with a method `remove()`.
        """
        return RemovableHandle(self._load_state_dict_pre_hooks, _ModuleHook(hook, self))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return RemovableHandle(self._load_state_dict_pre_hooks, _ModuleHook(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Registers a hook that runs after this module has loaded a state dict.

        Args:
            hook: function that is called as `hook(module, incompatible_keys)`.

        Returns:
            A handle with a method `remove()`.
        """
        return RemovableHandle(self._load_state_dict_post_hooks, hook)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Returns the parameters and persistent buffers by dotted name. The tensors share the memory of the module.

        Use it to save a model: a file with these names and tensors does not depend on your code. Clone the tensors if
        you want to keep the values while the training goes on.

        Args:
            args: deprecated, use the keyword arguments.
            destination: dict that receives the tensors. By default, a new `OrderedDict`.
            prefix: text before each name (default: "").
            keep_vars: if True, contains the parameters themselves instead of detached tensors (default: False).

        Example:
            >>> list(nn.Linear(3, 2).state_dict())
            ['weight', 'bias']
        """
        if args:
            options: list[Any] = [destination, prefix, keep_vars]
            destination, prefix, keep_vars = *args, *options[len(args) :]
        if destination is None:
            destination = OrderedDict()
            vars(destination)["_metadata"] = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, destination, prefix, metadata)
            if changed is not None:
                destination = changed
        return destination

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        persistent = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        tensors = {k: v for k, v in itertools.chain(self._parameters.items(), persistent.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in tensors.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_tensor(name, key, target, state_dict[key], assign)
                error_msgs.extend([problem] if problem else [])
            elif strict:
                missing_keys.append(key)
        extra = prefix + _EXTRA_STATE
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        for key in state_dict if strict else ():
            # A name with a dot belongs to a submodule, which checks the rest of the name itself.
            if key.startswith(prefix) and key != extra:
                head, dot, _ = key[len(prefix) :].partition(".")
                if head not in (self._modules if dot else tensors):
                    unexpected_keys.append(key)

    def _load_tensor(self, name, key, target, source, assign):
        """Copies one tensor of a state dict, or stores it if `assign` is True. Returns an error message, or `None`."""
        try:
            if not isinstance(source, Tensor):
                if config.pytorch_mode and not isinstance(source, Array):
                    raise TypeError(source)
                source = Tensor._of(source if isinstance(source, Array) else Array(source))
        except (TypeError, ValueError):
            return (
                f'While copying the parameter named "{key}", expected mytorch.Tensor or Tensor-like object from checkpoint '
                f"but received {type(source)}"
            )
        if is_lazy(target) and not is_lazy(source):
            target.materialize(tuple(source.shape))
        if is_lazy(target) and is_lazy(source):
            return None
        if target.ndim == 0 and source.ndim == 1 and len(source):
            # Before 0-d tensors existed, files stored them with one element.
            source = source[0]
        if tuple(source.shape) != tuple(target.shape):
            return (
                f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, the shape in "
                f"current model is {target.shape}."
            )
        try:
            self._store_tensor(name, key, target, source, assign)
        except Exception as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are {target.size()} and whose '
                f"dimensions in the checkpoint are {source.size()}, an exception occurred : {error.args}."
            )
        return None

    def _store_tensor(self, name, key, target, source, assign):
        with no_grad():
            if not assign:
                if target.is_meta and not source.is_meta:
                    warn(
                        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
                        "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
                        "corresponding key in the module instead of copying them in place?)"
                    )
                target.copy_(source)
            elif isinstance(target, Parameter):
                parameter = source if isinstance(source, Parameter) else Parameter(source, target.requires_grad)
                self._parameters[name] = parameter.requires_grad_(target.requires_grad)
            else:
                self._buffers[name] = source

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies tensors from a state dict into this module and its submodules.

        Args:
            state_dict: mapping of names to Tensors, Arrays or NumPy arrays.
            strict: if True, the names must match exactly (default: True).
            assign: if True, stores the given tensors instead of copying their values (default: False).

        Returns:
            A named tuple (missing_keys, unexpected_keys).

        Raises:
            RuntimeError: names or shapes do not match. The message lists all of them.
            TypeError: `state_dict` is not a mapping.

        Example:
            >>> source, target = nn.Linear(3, 2), nn.Linear(3, 2)
            >>> target.load_state_dict(source.state_dict())
            <All keys matched successfully>
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors, lines = [], [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)

        _load_tree(self, state, "", metadata or {}, assign, (missing, unexpected, errors))
        for what, keys in (("Missing", missing), ("Unexpected", unexpected)) if strict else ():
            if keys:
                listed = ", ".join(f'"{k}"' for k in keys)
                lines.append(f"{what} key(s) in state_dict: {listed}. ")
        errors = lines + errors
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    def init_from_torch(self: Self, torch_module: Any) -> Self:
        """Copies the parameters and buffers of a PyTorch module with the same structure. Returns self.

        Args:
            torch_module: the PyTorch module.

        Raises:
            RuntimeError: names or shapes do not match.
        """
        values = {name: t.detach().cpu().numpy() for name, t in torch_module.state_dict().items()}
        self.load_state_dict(values)
        return self

    # -- printing, copying -------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Returns the text between the parentheses when the module is printed."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        lines = extra + children
        if not lines:
            return f"{self._get_name()}()"
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def _replicate_for_data_parallel(self):
        """Returns a module with the same state but without parameters, which the caller sets one by one."""
        replica = type(self).__new__(type(self))
        copies = {name: dict(getattr(self, name)) for name in ("_buffers", "_modules")}
        replica.__dict__.update(self.__dict__, **copies, _parameters={}, _is_replica=True)
        return replica

    def __setstate__(self, state):
        fresh = vars(Module())
        if "_hooked" not in state:  # a pickle of PyTorch, which lacks the options that only this library has
            present = {*state, *state["_parameters"], *state["_buffers"], *state["_modules"]}
            for kind in [kind for kind in type(self).__mro__ if config.is_own(kind)]:
                for name, option in inspect.signature(kind).parameters.items():
                    if name not in present and option.default is not option.empty:
                        fresh.setdefault(name, option.default)
            fresh["_hooked"] = True
        self.__dict__.update({**fresh, **state})


def _refuse_other_than_none(value, what, name, expected):
    if value is not None:
        expected = expected.replace("mytorch", Tensor.__module__.partition(".")[0])  # "torch" in PyTorch mode
        raise TypeError(f"cannot assign '{_typename(value)}' as {what} '{name}' ({expected} or None expected)")


def _typename(value):
    home = type(value).__module__
    return type(value).__qualname__ if home == "builtins" else f"{home}.{type(value).__qualname__}"
