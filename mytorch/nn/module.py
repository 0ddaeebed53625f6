"""Module: the base of every layer and model, with PyTorch's semantics.

A module keeps three dictionaries, of parameters, buffers and submodules, which assignment to attributes
fills. Everything else (state dicts, moving, iterating, printing) walks those three.
"""

import functools
import itertools
from collections import OrderedDict, namedtuple

from .._array import Array
from ..backend import as_device, device
from ..base import dtypes
from ..graph.mode import no_grad
from ..tensor import RemovableHandle, Tensor
from .parameter import Buffer, Parameter, is_lazy

_EXTRA_STATE = "_extra_state"


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


def _global_hook(hooks, hook):
    _hooked_globally[0] = True
    return RemovableHandle(hooks, hook)


def register_module_forward_pre_hook(hook):
    """Call `hook(module, args)` before the forward of every module."""
    return _global_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call `hook(module, args, output)` after the forward of every module.

    Args:
        with_kwargs: call `hook(module, args, kwargs, output)`. always_call: also where forward raised.
    """
    handle = _global_hook(_global_forward_hooks, hook)
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_hook(hook):
    """Call `hook(module, grad_input, grad_output)` in the backward of every module."""
    return _global_hook(_global_backward_hooks, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook):
    """Call `hook(module, grad_output)` before the backward of every module."""
    return _global_hook(_global_backward_pre_hooks, hook)


def register_module_buffer_registration_hook(hook):
    """Call `hook(module, name, buffer)` when any module registers a buffer; a result takes its place."""
    return RemovableHandle(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Call `hook(module, name, submodule)` when any module registers a submodule; a result takes its place."""
    return RemovableHandle(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Call `hook(module, name, param)` when any module registers a parameter; a result takes its place."""
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def _registered(hooks, module, name, value):
    """What registration hooks make of a value."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


def _indent(text, spaces):
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


class Module:
    """A part of a model: parameters, buffers, submodules, and a `forward`.

    Subclasses call `super().__init__()` first, assign their parameters and submodules to attributes, and
    define `forward`. Calling the module runs the hooks and `forward`.
    """

    dump_patches = False
    _version = 1
    call_super_init = False

    def __init__(self, *args, **kwargs):
        if kwargs and not self.call_super_init:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
            )
        if args and not self.call_super_init:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
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
        put("_hooks_with_kwargs", set())
        put("_always_called_hooks", set())
        put("_hooked", False)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *input):
        """Compute the output; every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # -- calling -------------------------------------------------------------------------------------------

    def __call__(self, *args, **kwargs):
        if not (self._hooked or _hooked_globally[0]):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    _call_impl = _wrapped_call_impl = __call__

    def _call_with_hooks(self, args, kwargs):
        result = None
        called = set()
        try:
            for key, hook in [*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
                if key in self._hooks_with_kwargs:
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not (isinstance(changed, tuple) and len(changed) == 2):
                            raise RuntimeError(
                                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                            )
                        args, kwargs = changed
                else:
                    changed = hook(self, args)
                    if changed is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
            boundary = None
            hooks = [*_global_backward_hooks.values(), *self._backward_hooks.values()]
            pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            if hooks or pre_hooks:
                from .hooks import BackwardBoundary

                boundary = BackwardBoundary(self, hooks, pre_hooks)
                args = boundary.enter(args)
            result = self.forward(*args, **kwargs)
            for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                called.add(key)
                with_kwargs = key in self._hooks_with_kwargs or key in _global_forward_hooks_with_kwargs
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                if changed is not None:
                    result = changed
            return boundary.leave(result) if boundary is not None else result
        except Exception:
            for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                always = key in self._always_called_hooks or key in _global_forward_hooks_always_called
                if always and key not in called:
                    if key in self._hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
                        hook(self, args, kwargs, result)
                    else:
                        hook(self, args, result)
            raise

    def _register(self, hooks, hook, prepend=False, with_kwargs=False, always_call=False):
        self.__dict__["_hooked"] = True
        handle = RemovableHandle(hooks, hook, prepend)
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.id)
        if always_call:
            self._always_called_hooks.add(handle.id)
        return handle

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call `hook(module, args)` before forward; a result replaces the arguments. Returns a handle."""
        return self._register(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call `hook(module, args, output)` after forward; a result replaces the output. Returns a handle."""
        return self._register(self._forward_hooks, hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known."""
        return self._register(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call `hook(module, grad_output)` when the gradients of the outputs are known."""
        return self._register(self._backward_pre_hooks, hook, prepend)

    # -- attributes ------------------------------------------------------------------------------------------

    def __getattr__(self, name):
        d = self.__dict__
        for store in ("_parameters", "_buffers", "_modules"):
            found = d.get(store)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        d = self.__dict__
        params = d.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' (mytorch.nn.Parameter or None expected)"
                )
            params[name] = None
        elif isinstance(value, Module):
            if d.get("_modules") is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            d["_modules"][name] = _registered(_global_module_registration_hooks, self, name, value)
        elif d.get("_modules") is not None and name in d["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' (mytorch.nn.Module or None expected)"
                )
            d["_modules"][name] = None
        elif isinstance(value, Buffer) or (d.get("_buffers") is not None and name in d["_buffers"]):
            if d.get("_buffers") is None:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' (mytorch.Tensor, mytorch.nn.Buffer or None expected)"
                )
            if name not in d["_buffers"]:
                self._forget(name, "_buffers")
                self.register_buffer(name, value, getattr(value, "persistent", True))
            else:
                d["_buffers"][name] = _registered(_global_buffer_registration_hooks, self, name, value)
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name, keep):
        """Remove a name from every place but `keep`."""
        d = self.__dict__
        d.pop(name, None)
        for store in ("_parameters", "_buffers", "_modules"):
            if store != keep and d.get(store) is not None:
                d[store].pop(name, None)
        if keep != "_buffers" and "_non_persistent_buffers_set" in d:
            d["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name):
        for store in (self._parameters, self._buffers, self._modules):
            if name in store:
                del store[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted({name for name in names if not name[0].isdigit()})

    def _check_name(self, name, what):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(
                f'{what} name can\'t contain ".", got: {name}'
                if what == "module"
                else f'{what} name can\'t contain "."'
            )
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    def register_parameter(self, name, param):
        """Add a parameter under a name; None reserves the name.

        Raises:
            KeyError: the name is taken, empty, or holds a dot.
            TypeError: not a Parameter.
            ValueError: a tensor that was computed.
        """
        self._check_name(name, "parameter")
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_typename(param)}' object to parameter '{name}' (mytorch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly."
                )
        self._parameters[name] = _registered(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor that is state but not learnt; not persistent ones stay out of the state dict."""
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (mytorch Tensor or None required)"
            )
        self._buffers[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        """Add a submodule under a name."""
        self._check_name(name, "module")
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = _registered(_global_module_registration_hooks, self, name, module)

    register_module = add_module

    def get_submodule(self, target):
        """The submodule at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        found = self
        for part in target.split(".") if target else ():
            if not hasattr(found, part):
                raise AttributeError(f"{type(found).__name__} has no attribute `{part}`")
            found = getattr(found, part)
            if not isinstance(found, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return found

    def set_submodule(self, target, module, strict=False):
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
        if strict and not hasattr(parent, last):
            raise AttributeError(f"{parent._get_name()} has no attribute `{last}`")
        if hasattr(parent, last) and not isinstance(getattr(parent, last), Module):
            raise AttributeError(f"`{last}` is not an nn.Module")
        setattr(parent, last, module)

    def _get_member(self, target, store, what):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        if name not in getattr(owner, store):
            raise AttributeError(f"`{name}` is not {what}")
        return getattr(owner, store)[name]

    def get_parameter(self, target):
        """The parameter at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target):
        """The buffer at a dotted path.

        Raises:
            AttributeError: there is none.
        """
        return self._get_member(target, "_buffers", "a buffer")

    # -- iterating ---------------------------------------------------------------------------------------------

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yield (dotted name, module) for this module and all below, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self, remove_duplicate=True):
        """Yield this module and all below, each once unless remove_duplicate is off."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self):
        """Yield (name, module) for the direct submodules, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
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

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield (dotted name, parameter); one that is shared comes once."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Yield the parameters; one that is shared comes once."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield (dotted name, buffer)."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Yield the buffers."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    # -- modes, moving -------------------------------------------------------------------------------------------

    def train(self, mode=True):
        """Set training mode here and below; returns self."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """Set evaluation mode here and below; returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Set requires_grad of every parameter; returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or fill them with zeros."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.zero_()

    def apply(self, fn):
        """Call fn on every module, children first; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
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

    def to(self, *args, **kwargs):
        """Move or cast the parameters and buffers: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        A dtype applies to floating point and complex ones only; returns self.
        """
        where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        non_blocking = kwargs.pop("non_blocking", False)
        kwargs.pop("memory_format", None)
        if kwargs:
            raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
        for a in args:
            if isinstance(a, (Tensor, Array)):
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

    def _cast_floats(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self):
        """Cast the floating point parameters and buffers to float32; returns self."""
        return self._cast_floats(dtypes.float32)

    def double(self):
        """Cast the floating point parameters and buffers to float64; returns self."""
        return self._cast_floats(dtypes.float64)

    def half(self):
        """Cast the floating point parameters and buffers to float16; returns self."""
        return self._cast_floats(dtypes.float16)

    def bfloat16(self):
        """Cast the floating point parameters and buffers to bfloat16; returns self."""
        return self._cast_floats(dtypes.bfloat16)

    def type(self, dst_type):
        """Cast all parameters and buffers; returns self."""
        return self._apply(lambda t: t.to(dtypes.as_dtype(dst_type)))

    def cpu(self):
        """Move to host memory; returns self."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Move to a GPU; returns self."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self, *, device, recurse=True):
        """Move without copying the contents; returns self."""
        from ..ops.creation import empty_like

        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def share_memory(self):
        """self: worker processes get their own copies."""
        return self

    def compile(self, *args, **kwargs):
        """Eager is all there is; kept so that programs run."""

    # -- state dict ------------------------------------------------------------------------------------------------

    def get_extra_state(self):
        """What else belongs in the state dict; a subclass that defines it defines `set_extra_state` too."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state):
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def register_state_dict_post_hook(self, hook):
        """Call `hook(module, state_dict, prefix, local_metadata)` at the end of `state_dict`."""
        return RemovableHandle(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_state_dict_pre_hook(self, hook):
        """Call `hook(module, prefix, keep_vars)` at the start of `state_dict`."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Call `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return RemovableHandle(self._load_state_dict_pre_hooks, functools.partial(hook, self))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return RemovableHandle(self._load_state_dict_pre_hooks, functools.partial(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook):
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

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """The parameters and persistent buffers by dotted name, as tensors that share their memory.

        Args:
            destination: a dict to add to. prefix: put before every name.
            keep_vars: give the parameters themselves, not detached tensors.
        """
        if args:
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args) :])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
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
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            given = state_dict[key]
            try:
                given = (
                    given
                    if isinstance(given, Tensor)
                    else Tensor._of(given if isinstance(given, Array) else Array(given))
                )
            except (TypeError, ValueError):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected mytorch.Tensor or Tensor-like object from checkpoint '
                    f"but received {type(given)}"
                )
                continue
            if is_lazy(mine) and not is_lazy(given):
                mine.materialize(tuple(given.shape))
            if tuple(given.shape) != tuple(mine.shape) and not (mine.ndim == 0 and tuple(given.shape) == (1,)):
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {tuple(given.shape)} from checkpoint, the shape in "
                    f"current model is {tuple(mine.shape)}."
                )
                continue
            with no_grad():
                if assign:
                    self._assign(name, mine, given)
                else:
                    mine.copy_(given.reshape(mine.shape))
        extra = prefix + _EXTRA_STATE
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    head = key[len(prefix) :].split(".", 1)
                    if len(head) > 1:
                        if head[0] not in self._modules:
                            unexpected_keys.append(key)
                    elif head[0] not in own:
                        unexpected_keys.append(key)

    def _assign(self, name, mine, given):
        """load_state_dict(assign=True): the given tensor takes the place of ours."""
        if isinstance(mine, Parameter):
            self._parameters[name] = given if isinstance(given, Parameter) else Parameter(given, mine.requires_grad)
        else:
            self._buffers[name] = given

    def load_state_dict(self, state_dict, strict=True, assign=False):
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
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)

        def load(module, local, prefix=""):
            info = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                info["assign_to_params_buffers"] = True
            module._load_from_state_dict(local, prefix, info, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    child_prefix = prefix + name + "."
                    load(child, {k: v for k, v in local.items() if k.startswith(child_prefix)}, child_prefix)
            for hook in module._load_state_dict_post_hooks.values():
                hook(module, _IncompatibleKeys(missing, unexpected))

        load(self, state)
        if strict:
            if unexpected:
                errors.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". ")
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    def init_from_torch(self, torch_module):
        """Copy the parameters and buffers of a torch module of the same structure; returns self.

        Raises:
            RuntimeError: names or shapes that don't match.
        """
        values = {name: t.detach().cpu().numpy() for name, t in torch_module.state_dict().items()}
        self.load_state_dict(values)
        return self

    # -- printing, copying -------------------------------------------------------------------------------------------

    def extra_repr(self):
        """What stands between the brackets of this module's line when it is printed."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): " + _indent(repr(module), 2) for name, module in self._modules.items()]
        lines = extra + children
        if not lines:
            return f"{self._get_name()}()"
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in ("_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_pre_hooks"):  # older pickles
            self.__dict__.setdefault(name, OrderedDict())


def _typename(value):
    home = type(value).__module__
    return type(value).__qualname__ if home == "builtins" else f"{home}.{type(value).__qualname__}"
