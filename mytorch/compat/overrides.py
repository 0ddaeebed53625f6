"""`torch.overrides`: subclasses of Tensor that keep their class, and `__torch_function__`.

Public functions ask this module whether a class or a mode overrides a call; `arrays/overriding.py` describes when. The first class with
an override, and the first mode, load this module.

Properties such as `x.shape` and methods that read metadata are overridden in the dict of the subclass, when it is defined.
"""

import functools
from contextlib import contextmanager
from types import FunctionType

from .. import _extensions
from ..arrays import as_device, config
from ..arrays.array import Array
from ..arrays.dtypes import as_numpy, default_dtype
from ..arrays.meta import hollow
from ..arrays.overriding import ASKED_BY_SIZES, CREATIONS, IGNORED, NOTHING, asks, in_state, overriding
from ..arrays.overriding import state as _state
from ..arrays.parameter import Buffer, Parameter
from ..arrays.tensor import Tensor
from ..ops.dispatch.bind import found_by_pickle
from ..ops.dispatch.operands import is_operand


class DisableTorchFunctionSubclass:
    """Disables `__torch_function__` of tensors in a `with` block."""

    _changes = {"subclasses_off": True}

    def __enter__(self):
        self._block = in_state(**self._changes)
        self._block.__enter__()
        return self

    def __exit__(self, *error):
        self._block.__exit__(*error)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Disables `__torch_function__` of tensors and of modes in a `with` block."""

    _changes = {"subclasses_off": True, "all_off": True}


def _disabled_torch_function_impl(func, types, args=(), kwargs=None):
    """Runs the function without conversion of the result. A subclass with this `__torch_function__` loses its class."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def _torch_function(cls, func, types, args=(), kwargs=None):
    """Runs a function, and returns its results as instances of this class. Subclasses can override it.

    Args:
        func: the public function or method, such as `mytorch.add`.
        types: the classes of the arguments that have a `__torch_function__`.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.

    Returns:
        The result; NotImplemented if one of the types is not a superclass of this class.
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    if hasattr(cls, "__torch_dispatch__"):
        return _dispatch(cls, func, types, args, kwargs or {})
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in get_default_nowrap_functions() else _convert(result, cls)


def _convert(result, cls):
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [_convert(item, cls) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


__torch_function__ = classmethod(_torch_function)  # of Tensor, see `_extensions.METHODS`


# Methods that PyTorch answers without an operator.
_METADATA = frozenset(
    "size stride dim ndimension numel nelement storage_offset data_ptr element_size is_contiguous get_device is_floating_point "
    "is_complex is_signed is_inference requires_grad_ backward register_hook register_post_accumulate_grad_hook retain_grad type "
    "untyped_storage storage __repr__ __str__ __format__ __len__ __deepcopy__ __reduce_ex__ __setstate__ numpy tolist".split()
)


def _dispatch(cls, func, types, args, kwargs):
    """Calls `__torch_dispatch__` of a class with the operator of a public function. Metadata is read from the tensor."""
    if func.__name__ in _METADATA or isinstance(getattr(func, "__self__", None), property):
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    from .aten import overload_of_function  # which needs the functions that this module replaces

    types = tuple(kind for kind in types if hasattr(kind, "__torch_dispatch__"))
    return cls.__torch_dispatch__(overload_of_function(func, args, kwargs), types, args, kwargs)


def _wrapper_of(
    cls, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False, dispatch_sizes_strides_policy=None, dispatch_device=False, dispatch_layout=False, **extra,
):  # fmt: skip
    """Returns an instance of a subclass that has a shape, a dtype and a device, but no elements.

    Args:
        cls: the class, which defines `__torch_dispatch__`.
        size: the shape.
        strides: ignored; the instance reports the strides of a contiguous tensor.
        dtype: the dtype (default: the default dtype).
        device: the device that the instance reports (default: the CPU).
        requires_grad: see `mytorch.tensor`.
        storage_offset, memory_format, layout, pin_memory, extra: for compatibility with PyTorch.
        dispatch_sizes_strides_policy, dispatch_device, dispatch_layout: for compatibility with PyTorch.

    Raises:
        TypeError: the class has no `__torch_dispatch__`.
    """
    if not hasattr(cls, "__torch_dispatch__"):
        raise TypeError(f"{cls.__name__} must define __torch_dispatch__ as a classmethod.")
    raw = hollow(tuple(size), as_numpy(dtype or default_dtype()))
    raw.home = as_device("cpu" if device is None else device)
    return Tensor._of(Array._wrap(raw), None, cls).requires_grad_(requires_grad)


_make_wrapper_subclass = staticmethod(_wrapper_of)


def _subclass_of(cls, data, require_grad=False):
    """Returns an instance of a subclass that shares the memory of a tensor and is not connected to its graph.

    Args:
        cls: the class.
        data: a tensor.
        require_grad: True to record operations on the result (default: False).
    """
    return Tensor._of(data._mt_data, None, cls).requires_grad_(require_grad)


found_by_pickle(_subclass_of, "Tensor._make_subclass")
_make_subclass = staticmethod(_subclass_of)


# -- which classes have a __torch_function__ ---------------------------------------------------------------------------

_overriding = {Tensor: False, Parameter: False, Buffer: False, int: False, float: False, bool: False, str: False}


def _overrides(kind):
    """Returns True if the class has a `__torch_function__` that is not disabled."""
    found = _overriding.get(kind)
    if found is None:
        method = getattr(kind, "__torch_function__", None)
        found = method not in (None, _disabled_torch_function_impl) and kind is not type
        if issubclass(kind, (Tensor, Array)):
            found = (found or hasattr(kind, "__torch_dispatch__")) and not config.is_own(kind)
        _overriding[kind] = found
        if not found and kind not in (list, tuple):
            overriding.add_simple(kind)
    return found


def _add_overridden(found, value):
    kind = type(value)
    if kind is list or kind is tuple:
        for item in value:
            if _overriding.get(type(item), True) and _overrides(type(item)):
                found.append(item)
    elif _overriding.get(kind, True) and _overrides(kind):
        found.append(value)


def _overridden(args, kwargs):
    """Returns the arguments whose classes have a `__torch_function__`."""
    found = []
    for value in args:
        _add_overridden(found, value)
    for value in kwargs.values():
        _add_overridden(found, value)
    return found


def _in_order(overridden):
    """Returns one argument for each class: subclasses before their superclasses, otherwise from left to right."""
    order = []
    for value in overridden:
        kind = type(value)
        if kind not in map(type, order):
            index = next((i for i, other in enumerate(order) if issubclass(kind, type(other))), len(order))
            order.insert(index, value)
    return order


def _handle(func, args, kwargs, overridden, optional=False):
    """Calls `__torch_function__` of the innermost mode, then of the arguments, until one returns a result.

    Args:
        func: the public function.
        overridden: the arguments that have a `__torch_function__`.
        optional: return NotImplemented, instead of an error, if all of them do.
    """
    order = _in_order(overridden)
    types = tuple(map(type, order))
    handlers = list(order)
    if _state.modes and not _state.all_off and _state.modes[-1]._receives(func):
        *outer, mode = _state.modes
        with in_state(modes=tuple(outer)):
            result = mode.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
        handlers.insert(0, mode)
    for value in order:
        handler = type(value).__torch_function__
        if handler is not _disabled_torch_function_impl:
            result = handler(func, types, args, kwargs)
        elif hasattr(type(value), "__torch_dispatch__"):
            result = _dispatch(type(value), func, types, args, kwargs)
        else:
            continue
        if result is not NotImplemented:
            return result
    if optional:
        return NotImplemented
    tried = "".join(f"\n\n  - {'mode object' if h not in order else 'tensor subclass'} {type(h)!r}" for h in handlers)
    name = _extensions.load("compat.overridable_functions:resolve_name")(func) or func.__name__
    raise TypeError(
        f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned "
        f"NotImplemented:{tried}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


# -- public functions --------------------------------------------------------------------------------------------------

creation_hooks = []  # functions of (public function, args, kwargs), of active dispatch modes
_NATIVE = ("fused", "auto", "act_func")  # keywords that PyTorch does not have


def _ask(public, args, kwargs=None, operator=False):
    """Returns the result of a call that a class or a mode overrides, otherwise NOTHING.

    Args:
        public: the function that `__torch_function__` receives.
        args, kwargs: the arguments of the call.
        operator: a binary operator, which returns NotImplemented for unknown operands.
    """
    kwargs = kwargs or {}
    if _state.skipped is public:
        _state.skipped = None
        return NOTHING
    if not _state.all_off and (_state.modes or not _state.subclasses_off):
        overridden = () if _state.subclasses_off else _overridden(args, kwargs)
        if (name := public.__name__) in IGNORED:
            overridden = [v for v in overridden if name in ASKED_BY_SIZES and not isinstance(v, Tensor)]
        if overridden or (_state.modes and _state.modes[-1]._receives(public)):
            if operator and not all(is_operand(a) or _overrides(type(a)) for a in args):
                return NOTHING
            kwargs = {k: v for k, v in kwargs.items() if k not in _NATIVE or v not in (None, False)}
            args = public.asked_with(*args) if hasattr(public, "asked_with") else args
            return _handle(public, args, kwargs, overridden, operator)
    # `backward` runs hooks of the program, which are not inside a public function.
    if not creation_hooks or _state.inside or operator or public.__name__ == "backward":
        return NOTHING
    result = creation_hooks[-1](public, args, kwargs) if public.__name__ in CREATIONS else NotImplemented
    if result is not NotImplemented:
        return result
    with in_state(inside=True):
        return public(*args, **kwargs)


def _read(name, tensor):
    """Returns the value of a property that a mode overrides, otherwise NOTHING."""
    if not _state.modes or _state.all_off or _state.modes[-1]._only is not None:
        return NOTHING
    return _handle(vars(Tensor)[name].__get__, (tensor,), {}, [])


overriding.ask, overriding.read = _ask, _read


def activate():
    """Lets public functions look for arguments with a `__torch_function__`. A second call has no effect."""
    overriding.add_class()


# -- subclasses --------------------------------------------------------------------------------------------------------


def override(*classes):
    """Lets classes of the library, which are plain otherwise, override functions."""
    _overriding.update(dict.fromkeys(classes, True))
    overriding.add_class()
    for cls in classes:
        _override_methods(cls)


def _override_methods(cls, *kinds):
    """Overrides the methods of Tensor that do not ask for subclasses, and attributes of other kinds, in the dict of a subclass."""
    for name, descriptor in vars(Tensor).items():
        if isinstance(descriptor, kinds):
            make = _overridable
        elif type(descriptor) is FunctionType and (hasattr(descriptor, "reads") or not asks(descriptor)):
            make = _overridable_method
        else:
            continue
        if name not in IGNORED and getattr(cls, name) is descriptor:
            setattr(cls, name, make(descriptor))


def define(cls):
    """Prepares a new subclass of Tensor: its properties and metadata call `__torch_function__`."""
    if not _overrides(cls):
        overriding.add_plain(cls)
        return
    overriding.add_class()
    _override_methods(cls, property)


@functools.cache
def _overridable_method(method):
    """Returns the method of subclasses that calls `__torch_function__` before a method that does not ask for subclasses."""

    @functools.wraps(method)
    def overridable(*args, **kwargs):
        if (result := _ask(method, args, kwargs)) is not NOTHING:
            return result
        return method(*args, **kwargs)

    return overridable


@functools.cache
def _overridable(descriptor):
    def get(self):
        if _state.subclasses_off:
            return descriptor.fget(self)
        return _handle(descriptor.__get__, (self,), {}, [self])

    def put(self, value):
        if _state.subclasses_off:
            return descriptor.fset(self, value)
        return _handle(descriptor.__set__, (self, value), {}, [self])

    def delete(self):
        if _state.subclasses_off:
            return descriptor.fdel(self)
        return _handle(descriptor.__delete__, (self,), {}, [self])

    return property(get, descriptor.fset and put, descriptor.fdel and delete, descriptor.__doc__)


def construct(tensor, args, kwargs):
    """Creates the data of an instance of a subclass in `Tensor.__new__`, for `super().__new__(cls, data)`."""
    cls = type(tensor)
    with DisableTorchFunctionSubclass():
        if cls.__new__ is not Tensor.__new__:  # called by the `__new__` of the subclass
            Tensor.__init__(tensor, *args, **kwargs)
        elif cls.__init__ is not Tensor.__init__ and args:
            try:
                Tensor.__init__(tensor, *args[:1])  # for an `__init__` that calls `super().__init__()` without the data
            except (TypeError, ValueError, RuntimeError):
                pass


# -- torch.overrides ---------------------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context manager whose `__torch_function__` receives every call of a public function in a `with` block.

    Override `__torch_function__(self, func, types, args=(), kwargs=None)`. Calls inside it do not reach this mode.
    """

    _only = None  # the functions that the mode receives, or None for all

    def _receives(self, function):
        return self._only is None or function in self._only

    def __enter__(self):
        overriding.enter_mode()
        _state.modes = (*_state.modes, self)
        return self

    def __exit__(self, *error):
        _state.modes = _state.modes[:-1]
        overriding.exit_mode()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    @classmethod
    def push(cls, *args, **kwargs):
        """Returns an instance of this mode."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls each function unchanged."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextmanager
def skipping(public):
    """Lets one call of a public function, in a `with` block, run without asking."""
    _state.skipped = public
    try:
        yield
    finally:
        _state.skipped = None


def has_torch_function(relevant_args):
    """Returns True if an argument, or a mode, has a `__torch_function__`.

    Args:
        relevant_args: the arguments to check.
    """
    if _state.modes and not _state.all_off:
        return True
    return not _state.subclasses_off and bool(_overridden(tuple(relevant_args), {}))


def has_torch_function_unary(arg):
    """`has_torch_function` for one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args):
    """`has_torch_function` for any number of arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Calls `__torch_function__` of the relevant arguments.

    Args:
        public_api: the function that the program called.
        relevant_args: the arguments to check.
        args, kwargs: the arguments of the call.

    Raises:
        TypeError: all of them return NotImplemented.
    """
    return _handle(public_api, args, kwargs, _overridden(tuple(relevant_args), {}))


def wrap_torch_function(dispatcher):
    """Decorates a function so that subclasses can override it.

    Args:
        dispatcher: function of the same arguments that returns the arguments to check.
    """

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp):
    """Returns True for a tensor and for an object with a `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


@functools.cache
def get_default_nowrap_functions():
    """Returns the functions whose results the default `__torch_function__` does not convert."""
    return {vars(Tensor)[name].__get__ for name in ("_base", "grad", "_grad")}


def is_tensor_method_or_property(func):
    """Returns True for a method of Tensor, and for `__get__` of one of its properties."""
    name = getattr(func, "__name__", "")
    return vars(Tensor).get(name) is func or name in ("__get__", "__set__", "__delete__")


def _get_current_function_mode():
    return _state.modes[-1] if _state.modes else None


def _get_current_function_mode_stack():
    return list(_state.modes)


for _kind in (Parameter, Buffer):
    setattr(_kind, "__torch_function__", staticmethod(_disabled_torch_function_impl))  # noqa: B010

__getattr__, __dir__ = _extensions.lazy(
    __name__, names={"compat.overridable_functions": "get_ignored_functions get_overridable_functions resolve_name"}
)
