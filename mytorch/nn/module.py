"""Module: the base of every layer and model, with PyTorch's semantics.

A module keeps three dictionaries, of parameters, buffers and submodules, which assignment to attributes
fills. Everything else (state dicts, moving, iterating, printing) walks those three.
"""

import functools
import itertools
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from .._array import Array
from .._tensor import RemovableHandle, Tensor, is_tensor
from ..backend import as_device, device
from ..base import dtypes
from ..base.errors import warn
from ..engine.mode import no_grad
from ..ops.creation import empty_like
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
    """For type checkers: calling a module takes what its `forward` takes, and returns what that returns."""

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
_hooked_globally = [False]  # whether a hook for the calls of all modules was ever set


class _Handle(RemovableHandle):
    """A handle of a hook with options, which are dicts that have its id until it is removed."""

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
    """Call `hook(module, args)` before the forward of every module."""
    return _global_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module.

    Args:
        with_kwargs: call `hook(module, args, kwargs, output)`. always_call: also where forward raised.
    """
    _hooked_globally[0] = True
    options = [_global_forward_hooks_with_kwargs] * with_kwargs + [_global_forward_hooks_always_called] * always_call
    return _Handle(_global_forward_hooks, hook, False, options)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of every module."""
    return _global_hook(_global_backward_hooks, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every module."""
    return _global_hook(_global_backward_pre_hooks, hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when any module registers a buffer; a result takes its place."""
    return RemovableHandle(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when any module registers a submodule; a result takes its place."""
    return RemovableHandle(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, param)` when any module registers a parameter; a result takes its place."""
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def _registered(hooks, module, name, value):
    """What registration hooks make of a value."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


def is_plain(module: "Module", kind: type) -> bool:
    """Whether calling a module does what class `kind` says and no more, so that a kernel for several layers may take its place:
    no subclass, no hooks, no `forward` of its own."""
    return type(module) is kind and "forward" not in module.__dict__ and not (module._hooked or _hooked_globally[0])


def _load_tree(module, local, prefix, metadata, assign, told):
    """Load a module and those below it; `told` are the lists of missing and unexpected keys and of errors."""
    info = dict(metadata.get(prefix[:-1], {}))
    if assign:
        info["assign_to_params_buffers"] = True
    module._load_from_state_dict(local, prefix, info, True, *told)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            _load_tree(child, {k: v for k, v in local.items() if k.startswith(below)}, below, metadata, assign, told)
    for hook in module._load_state_dict_post_hooks.values():
        hook(module, _IncompatibleKeys(*told[:2]))


class Module:
    """A part of a model: parameters, buffers, submodules, and a `forward`.

    Subclasses call `super().__init__()` first, assign their parameters and submodules to attributes, and
    define `forward`. Calling the module runs the hooks and `forward`.

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
        ):  # fmt: skip
            put(name, OrderedDict())
        put("_hooks_with_kwargs", OrderedDict())
        put("_forward_hooks_always_called", OrderedDict())
        put("_hooked", False)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling -------------------------------------------------------------------------------------------

    if TYPE_CHECKING:
        forward: Callable[..., Any]

        def __call__(self: _HasForward[Inputs, Output], *args: Inputs.args, **kwargs: Inputs.kwargs) -> Output: ...

    else:

        def forward(self, *input):
            """Compute the output; every subclass defines it."""
            raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

        def __call__(self, *args, **kwargs):
            if not (self._hooked or _hooked_globally[0]):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)

    _call_impl = _wrapped_call_impl = __call__

    def _call_with_hooks(self, args, kwargs):
        result = None
        called = set()
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            boundary = None
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
            for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                always = key in self._forward_hooks_always_called or key in _global_forward_hooks_always_called
                if always and key not in called:
                    try:
                        self._run_hook(key, hook, args, kwargs, result)
                    except Exception as error:
                        warn(f"a hook with always_call=True raised an exception, silenced for that of forward: {error}")
            raise

    def _run_pre_hooks(self, args, kwargs):
        """The arguments of forward, as the pre-hooks leave them."""
        for key, hook in [*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
            with_kwargs = key in self._hooks_with_kwargs
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
        with_kwargs = key in self._hooks_with_kwargs or key in _global_forward_hooks_with_kwargs
        return hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)

    def _register(self, hooks, hook, prepend=False, with_kwargs=False, always_call=False):
        self.__dict__["_hooked"] = True
        options = [self._hooks_with_kwargs] * with_kwargs + [self._forward_hooks_always_called] * always_call
        return _Handle(hooks, hook, prepend, options) if options else RemovableHandle(hooks, hook, prepend)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; a result replaces the arguments. Returns a handle.

        Args:
            hook: the function.
            prepend: call it before the other hooks.
            with_kwargs: call `hook(module, args, kwargs)`.
        """
        return self._register(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; a result replaces the output. Returns a handle.

        Args:
            prepend: call it before those that are there. with_kwargs: call `hook(module, args, kwargs, output)`.
            always_call: also when forward raises.
        """
        return self._register(self._forward_hooks, hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known."""
        return self._register(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the outputs are known."""
        return self._register(self._backward_pre_hooks, hook, prepend)

    # -- attributes ------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        for store in ("_parameters", "_buffers", "_modules"):
            found = d.get(store)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

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
        """Remove a name from every place but `keep`."""
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
        """Refuse names that are no names, and those of attributes that are not in `store`."""
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
        """Add a parameter under a name; None reserves the name.

        Raises:
            KeyError: the name is taken, empty, or holds a dot.
            TypeError: not a Parameter.
            ValueError: a tensor that was computed.
        """
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                given = f"'{_typename(param)}' object to parameter '{name}'"
                raise TypeError(f"cannot assign {given} (mytorch.nn.Parameter or None required)")
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly."
                )
        self._parameters[name] = _registered(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not learnt; not persistent ones stay out of the state dict.

        Args:
            name: the attribute.
            tensor: what it holds, or None.
            persistent: whether the state dict has it.
        """
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            given = f"'{_typename(tensor)}' object to buffer '{name}'"
            raise TypeError(f"cannot assign {given} (mytorch Tensor or None required)")
        self._buffers[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Add a submodule under a name."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", "_modules")
        self._modules[name] = _registered(_global_module_registration_hooks, self, name, module)

    register_module = add_module

    def get_submodule(self, target: str) -> "Module":
        """The submodule at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        found = self
        for part in target.split(".") if target else ():
            if not hasattr(found, part):
                raise AttributeError(f"{found._get_name()} has no attribute `{part}`")
            found = getattr(found, part)
            if not isinstance(found, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Put a module at a dotted path, whose parent is there.

        Args:
            strict: a submodule must be there to be replaced.

        Raises:
            ValueError: an empty path. AttributeError: no such parent, no module there, or not a module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, last = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, last):
            parent.get_submodule(last)  # refuses what is no module
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
        """The parameter at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        return self._get_member(target, "_buffers", "a buffer")

    # -- iterating ---------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set["Module"] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
        """Yield (dotted name, module) for this module and all below, each once.

        Args:
            memo: modules that are left out. prefix: before each name. remove_duplicate: False lists shared ones each
                time.
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
        """Yield this module and all below, each once unless remove_duplicate is off."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Yield (name, module) for the direct submodules, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        """Yield the direct submodules, each once."""
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
        """Yield (dotted name, parameter); one that is shared comes once.

        Args:
            prefix: before each name. recurse: those of submodules too. remove_duplicate: False lists shared ones each
                time.
        """
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters; one that is shared comes once."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, buffer).

        Args:
            prefix: put before the names.
            recurse: those of submodules as well.
            remove_duplicate: yield a shared buffer once.
        """
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    # -- modes, moving -------------------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode here and below; returns self."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below; returns self."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Set requires_grad of every parameter; returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.zero_()

    def apply(self: Self, fn: Callable[["Module"], Any]) -> Self:
        """Call fn on every module, children first; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the contents of every parameter, gradient and buffer by fn of it; they keep their identity."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for p in self._parameters.values():
            if p is None:
                continue
            with no_grad():
                grad = p.grad
                p.grad = None
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
        """Move or cast the parameters and buffers: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        A dtype applies to floating point and complex ones only; returns self.
        """
        where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        non_blocking = kwargs.pop("non_blocking", False)
        kwargs.pop("memory_format", None)
        if "copy" in kwargs:
            raise RuntimeError(".to() does not accept copy argument")
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

        def convert(t):
            fits = dtype is not None and t.dtype.category >= dtypes.FLOAT
            return t.to(device=where, dtype=dtype if fits else None, non_blocking=non_blocking)

        return self._apply(convert)

    def _cast_floats(self: Self, dtype: dtypes.dtype) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self: Self) -> Self:
        """Cast the floating point parameters and buffers to float32; returns self."""
        return self._cast_floats(dtypes.float32)

    def double(self: Self) -> Self:
        """Cast the floating point parameters and buffers to float64; returns self."""
        return self._cast_floats(dtypes.float64)

    def half(self: Self) -> Self:
        """Cast the floating point parameters and buffers to float16; returns self."""
        return self._cast_floats(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        """Cast the floating point parameters and buffers to bfloat16; returns self."""
        return self._cast_floats(dtypes.bfloat16)

    def type(self: Self, dst_type: dtypes.dtype | str) -> Self:
        """Cast all parameters and buffers; returns self."""
        return self._apply(lambda t: t.to(dtypes.as_dtype(dst_type)))

    def cpu(self: Self) -> Self:
        """Move to the CPU; returns self."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Device = None) -> Self:
        """Move to a GPU; returns self."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: Self, *, device: Device, recurse: bool = True) -> Self:
        """Move without copying the contents; returns self."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def share_memory(self: Self) -> Self:
        """self: worker processes get their own copies."""
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Eager is all there is; kept so that programs run."""

    # -- state dict ------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """What else belongs in the state dict; a subclass that defines it defines `set_extra_state` too."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` at the end of `state_dict`."""
        return RemovableHandle(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` at the start of `state_dict`."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return RemovableHandle(self._load_state_dict_pre_hooks, functools.partial(hook, self))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return RemovableHandle(self._load_state_dict_pre_hooks, functools.partial(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading."""
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
        """The parameters and persistent buffers by dotted name, as tensors that share their memory.

        Args:
            destination: a dict to add to. prefix: put before every name.
            keep_vars: give the parameters themselves, not detached tensors.
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
        own = {k: v for k, v in itertools.chain(self._parameters.items(), persistent.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, mine in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_tensor(name, key, mine, state_dict[key], assign)
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
            if key.startswith(prefix) and key != extra:
                head, dot, _ = key[len(prefix) :].partition(".")
                if head not in (self._modules if dot else own):
                    unexpected_keys.append(key)

    def _load_tensor(self, name, key, mine, given, assign):
        """Copy one tensor of a state dict, or, with `assign`, take it; returns what is wrong with it, if anything."""
        try:
            if not isinstance(given, Tensor):
                given = Tensor._of(given if isinstance(given, Array) else Array(given))
        except (TypeError, ValueError):
            return (
                f'While copying the parameter named "{key}", expected mytorch.Tensor or Tensor-like object from checkpoint '
                f"but received {type(given)}"
            )
        if is_lazy(mine) and not is_lazy(given):
            mine.materialize(tuple(given.shape))
        theirs, ours = tuple(given.shape), tuple(mine.shape)
        if theirs != ours and not (mine.ndim == 0 and theirs == (1,)):
            return (
                f"size mismatch for {key}: copying a param with shape {theirs} from checkpoint, the shape in "
                f"current model is {ours}."
            )
        with no_grad():
            if not assign:
                if mine.is_meta and not given.is_meta:
                    warn(
                        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
                        "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
                        "corresponding key in the module instead of copying them in place?)"
                    )
                mine.copy_(given.reshape(mine.shape))
            elif isinstance(mine, Parameter):
                kept = given if isinstance(given, Parameter) else Parameter(given, mine.requires_grad)
                self._parameters[name] = kept
            else:
                self._buffers[name] = given
        return None

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy tensors from a state dict into this module and those below.

        Args:
            state_dict: names to Tensors, Arrays or NumPy arrays.
            strict: names must match exactly.
            assign: take the given tensors themselves instead of copying into ours.

        Returns:
            A named tuple (missing_keys, unexpected_keys).

        Raises:
            RuntimeError: names or shapes that don't match; all of them are listed.
            TypeError: state_dict is not a mapping.
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors, found = [], [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)

        _load_tree(self, state, "", metadata or {}, assign, (missing, unexpected, errors))
        for what, keys in (("Missing", missing), ("Unexpected", unexpected)) if strict else ():
            if keys:
                listed = ", ".join(f'"{k}"' for k in keys)
                found.append(f"{what} key(s) in state_dict: {listed}. ")
        errors = found + errors
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    def init_from_torch(self: Self, torch_module: Any) -> Self:
        """Copy the parameters and buffers of a torch module of the same structure; returns self.

        Raises:
            RuntimeError: names or shapes that don't match.
        """
        values = {name: t.detach().cpu().numpy() for name, t in torch_module.state_dict().items()}
        self.load_state_dict(values)
        return self

    # -- printing, copying -------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the brackets of this module's line when it is printed."""
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
        """A module of the same state without parameters, which data-parallel code sets one by one."""
        replica = type(self).__new__(type(self))
        copies = {name: dict(getattr(self, name)) for name in ("_buffers", "_modules")}
        replica.__dict__.update(self.__dict__, **copies, _parameters={}, _is_replica=True)
        return replica

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in ("_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_pre_hooks"):  # older pickles
            self.__dict__.setdefault(name, OrderedDict())
        if isinstance(self._hooks_with_kwargs, set):
            self._hooks_with_kwargs = OrderedDict.fromkeys(self._hooks_with_kwargs, True)


def _refuse_other_than_none(value, what, name, wanted):
    if value is not None:
        raise TypeError(f"cannot assign '{_typename(value)}' as {what} '{name}' ({wanted} or None expected)")


def _typename(value):
    home = type(value).__module__
    return type(value).__qualname__ if home == "builtins" else f"{home}.{type(value).__qualname__}"
