"""`torch.overrides`: subclasses of Tensor that keep their class, and `__torch_function__`.

Functions of the library have no code for subclasses, so plain tensors cost nothing extra. When the first instance of a
subclass is created, `activate` replaces the code of every public function by a check of its arguments. The function objects stay the
same, so references that a program holds are covered, too. The check calls `__torch_function__` if an argument has it, and
otherwise a copy of the original function.

Properties such as `x.shape` are replaced in the subclass itself, when it is defined.
"""

import dis
import functools
import sys
import threading
import warnings
from contextlib import contextmanager
from types import FunctionType

from .. import fft, linalg, special
from .._array import Array
from .._extensions import METHODS as LAZY_METHODS
from .._extensions import torch_names
from .._parameter import Buffer, Parameter
from .._tensor import Tensor
from ..backend import as_device
from ..backend.meta import hollow
from ..base import config
from ..base.dtypes import as_numpy, default_dtype
from ..dispatch.bind import METHODS, PUBLIC, found_by_pickle
from ..dispatch.operands import is_operand
from ..nn import functional as F

_initialize = Tensor.__init__
_of = Tensor._of


class _State(threading.local):
    """The settings of one thread.

    Attributes:
        subclasses_off: `__torch_function__` of tensors is disabled.
        all_off: `__torch_function__` of modes is disabled as well.
        modes: the active modes, the innermost last.
    """

    subclasses_off = False
    all_off = False
    modes = ()


_state = _State()


@contextmanager
def _holding(**changes):
    before = {name: getattr(_state, name) for name in changes}
    _state.__dict__.update(changes)
    try:
        yield
    finally:
        _state.__dict__.update(before)


class DisableTorchFunctionSubclass:
    """Disables `__torch_function__` of tensors in a `with` block."""

    _changes = {"subclasses_off": True}

    def __enter__(self):
        self._block = _holding(**self._changes)
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
    return Tensor._of(data._data, None, cls).requires_grad_(require_grad)


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
    if _state.modes and not _state.all_off:
        *outer, mode = _state.modes
        with _holding(modes=tuple(outer)):
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
    raise TypeError(
        f"Multiple dispatch failed for '{resolve_name(func) or func.__name__}'; all __torch_function__ handlers returned "
        f"NotImplemented:{tried}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


# -- public functions --------------------------------------------------------------------------------------------------

# Functions that no subclass can override: they create tensors, or they ask for the class or the identity of an object.
_IGNORED = frozenset(
    "as_subclass _of _wrap _as_tensor _extra_state _make_subclass __init__ __new__ __hash__ __init_subclass__ __array_wrap__ "
    "__setattr__ __getattribute__ __dir__ __iter__ build_graph_enabled tensor as_tensor asarray from_numpy frombuffer "
    "from_dlpack to_dlpack zeros ones empty full arange eye rand randn randint randperm range empty_strided "
    "scalar_tensor is_tensor is_storage typename manual_seed seed initial_seed save load compile broadcast_shapes can_cast "
    "promote_types get_default_dtype set_default_dtype set_default_device get_default_device set_printoptions "
    "tril_indices triu_indices install_as_torch is_grad_enabled set_default_tensor_type use_deterministic_algorithms "
    "_add_parents _is_view edge".split()
)
_FACTORIES = frozenset("zeros ones empty full arange eye rand randn randint randperm tensor".split())
# Dispatch modes receive the calls of these functions.
CREATIONS = _FACTORIES | frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full scalar_tensor "
    "linspace logspace tril_indices triu_indices empty_strided from_numpy as_tensor".split()
)
creation_hooks = []  # functions of (public function, original, args, kwargs), of active dispatch modes
# Operators -> the names of the functions that PyTorch passes to `__torch_function__`.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__matmul__": "matmul", "__pow__": "pow", "__mod__": "remainder", "__neg__": "neg", "__abs__": "abs", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__iadd__": "add_", "__isub__": "sub_",
    "__imul__": "mul_", "__itruediv__": "div_", "__imod__": "remainder_", "__pos__": "positive",
}  # fmt: skip
_BINARY = frozenset(name for name in METHODS if name.startswith("__")) - {
    "__getitem__", "__setitem__", "__contains__", "__neg__", "__abs__", "__invert__", "__pos__", "__bool__", "__int__",
    "__float__", "__index__", "__complex__", "__iter__", "__len__",
}  # fmt: skip
_NATIVE = ("fused", "auto", "act_func")  # keywords that PyTorch does not have
_originals = {}  # public function -> a function that runs its original code
_active = [False]


def _checked(original, public, operator):
    """Returns the code that replaces a public function: a check for `__torch_function__`.

    Args:
        original: a function that runs the original code.
        public: the function that `__torch_function__` receives.
        operator: a binary operator, which returns NotImplemented for unknown operands.
    """
    state, creates = _state, public.__name__ in CREATIONS

    def check(*args, **kwargs):
        if creates and creation_hooks and not in_library(sys._getframe(2)):
            result = creation_hooks[-1](public, original, args, kwargs)
            if result is not NotImplemented:
                return result
        if state.all_off or (state.subclasses_off and not state.modes):
            return original(*args, **kwargs)
        if kwargs:
            kwargs = {k: v for k, v in kwargs.items() if k not in _NATIVE or v not in (None, False)}
        overridden = () if state.subclasses_off else _overridden(args, kwargs)
        if overridden or state.modes:
            if operator and not all(is_operand(a) or _overrides(type(a)) for a in args):
                return original(*args, **kwargs)
            return _handle(public, args, kwargs, overridden, operator)
        return original(*args, **kwargs)

    return check


@functools.cache
def _calling(count):
    """Returns the code of a function with `count` free variables that calls the constant "check", which stands for a function.

    Python copies the free variables when the function starts, so the code must be compiled with their number.
    """
    free = ", ".join(f"free{i}" for i in range(count))
    lines = [
        "def outer():", f"    {free.replace(', ', ' = ')} = None" if count else "    pass",
        "    def replacement(*args, **kwargs):", f"        if 0: {free}" if count else "        pass",
        "        return 'check'(*args, **kwargs)", "    return replacement",
    ]  # fmt: skip
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a string is not callable
        exec("\n".join(lines), names)
    return names["outer"]().__code__


def _replace_code(function, public, operator=False):
    """Lets a public function check its arguments for `__torch_function__`.

    Args:
        function: the function, which remains the same object.
        public: the function that `__torch_function__` receives.
        operator: see `_checked`.
    """
    replace_code(function, lambda original: _checked(original, public, operator))


def replace_code(function, make):
    """Replaces the code of a function, once. The function remains the same object.

    Args:
        function: the function.
        make: function of a copy of the original function; it returns the new code, a function of any arguments.
    """
    if function in _originals:
        return
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__dict__.update(function.__dict__)
    function.__wrapped__ = original  # `inspect` finds its signature and source
    _originals[function] = original
    check = make(original)
    code = _calling(len(function.__code__.co_freevars))
    function.__code__ = code.replace(
        co_consts=tuple(check if value == "check" else value for value in code.co_consts),
        co_freevars=function.__code__.co_freevars,
        co_name=function.__name__,
        co_filename=original.__code__.co_filename,
    )
    function.__defaults__ = function.__kwdefaults__ = None


def _restore_code(function):
    """Reverts `_replace_code`."""
    original = _originals.pop(function)
    function.__code__ = original.__code__
    function.__defaults__, function.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    before = original.__dict__.get("__wrapped__")
    if before is None:
        del function.__wrapped__
    else:
        function.__wrapped__ = before


def _public_functions(module):
    """Yields (name, function) for the overridable functions of a module."""
    for name in getattr(module, "__all__", dir(module)):
        if not name.startswith("_") and name not in _IGNORED:
            value = getattr(module, name, None)
            if type(value) is FunctionType and config.is_own(value):
                yield name, value


def activate():
    """Lets all public functions check their arguments for `__torch_function__`. A second call has no effect."""
    if _active[0]:
        return
    _active[0] = True
    top, without = sys.modules["mytorch"], ("compat.paths", "compat.stubs", "compat.torch_only")
    more = [name for name, home in torch_names()["mytorch"].items() if home not in without]
    for names_of_methods in LAZY_METHODS.values():
        for name in names_of_methods.split():
            getattr(Tensor, name)
    methods = {name: f for name, f in vars(Tensor).items() if type(f) is FunctionType and name not in _IGNORED}
    for name, function in methods.items():
        if methods.get(function.__name__) is not function:
            function.__name__ = name
        _replace_code(function, methods.get(_OPERATORS.get(name), function), name in _BINARY)
    functions = [getattr(top, name, None) for name in (*PUBLIC, *more) if name not in _IGNORED]
    for module in (F, linalg, fft, special):
        functions += [function for _, function in _public_functions(module)]
    for function in functions:
        if type(function) is FunctionType:
            _replace_code(function, function)


@contextmanager
def activated():
    """Lets public functions check their arguments in a `with` block. Functions that were unchanged before are restored."""
    before = set(_originals)
    was_active = _active[0]
    activate()
    _activate_factories()
    try:
        yield
    finally:
        if not _state.modes:
            for function in [f for f in _originals if f not in before]:
                _restore_code(function)
            _active[0] = was_active


# -- subclasses --------------------------------------------------------------------------------------------------------


class _SharedName:
    """An attribute of a subclass with the name of an internal slot of Tensor.

    Code of this library reads and writes the slot. Other code reads and writes the attribute of the subclass.
    """

    def __init__(self, name, theirs):
        self.name, self.slot, self.theirs = name, vars(Tensor)[name], theirs

    def __get__(self, instance, owner=None):
        theirs = self.theirs
        if instance is not None:
            if in_library(sys._getframe(1)):
                return self.slot.__get__(instance)
            if self.name in instance.__dict__:
                return instance.__dict__[self.name]
        if hasattr(theirs, "__get__"):
            return theirs.__get__(instance, owner)
        if theirs is _NO_VALUE:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}", name=self.name)
        return theirs

    def __set__(self, instance, value):
        if in_library(sys._getframe(1)):
            self.slot.__set__(instance, value)
        elif hasattr(self.theirs, "__set__"):
            self.theirs.__set__(instance, value)
        else:
            instance.__dict__[self.name] = value

    def __delete__(self, instance):
        if hasattr(self.theirs, "__delete__"):
            self.theirs.__delete__(instance)
        elif instance.__dict__.pop(self.name, _NO_VALUE) is _NO_VALUE:
            raise AttributeError(self.name)


_NO_VALUE = object()


def _assigns(function, name):
    """Returns True if a method contains an assignment to an attribute."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or name not in code.co_names:
        return False
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(code))


def _share_names(cls):
    """Lets a class use the names of internal slots that its body or its methods assign, such as `_data`."""
    body = dict(vars(cls))
    for name in ("_data", "_edge", "_view"):
        declared = name in body or name in body.get("__annotations__", ())
        if declared or any(_assigns(value, name) for value in body.values()):
            setattr(cls, name, _SharedName(name, body.get(name, _NO_VALUE)))


def define(cls):
    """Prepares a new subclass of Tensor: its properties call `__torch_function__`, and its first instance activates it."""
    if Tensor.__init__ is _initialize:
        Tensor.__new__, Tensor.__init__ = staticmethod(_construct), _construct_init
        Tensor._of = staticmethod(_of_class)
    _share_names(cls)
    if not _overrides(cls):
        return
    for name, descriptor in vars(Tensor).items():
        if isinstance(descriptor, property) and name not in _IGNORED and getattr(cls, name) is descriptor:
            setattr(cls, name, _overridable(descriptor))


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


def _construct(cls, *args, **kwargs):
    """`Tensor.__new__` after a subclass was defined: `super().__new__(cls, data)` creates the data of the instance."""
    self = object.__new__(cls)
    if cls is Tensor or config.is_own(cls):
        return self
    if _overrides(cls):
        activate()
    with DisableTorchFunctionSubclass():
        if cls.__new__ is not _construct:  # called by the `__new__` of the subclass
            _initialize(self, *args, **kwargs)
        elif cls.__init__ is not Tensor.__init__ and args:
            try:
                _initialize(self, *args[:1])  # for an `__init__` that calls `super().__init__()` without the data
            except (TypeError, ValueError, RuntimeError):
                pass
    return self


@functools.wraps(_initialize)
def _construct_init(self, *args, **kwargs):
    if hasattr(self, "_data") and (type(self).__new__ is not _construct or not (args or kwargs)):
        return
    with DisableTorchFunctionSubclass():
        _initialize(self, *args, **kwargs)


def _of_class(array, edge=None, cls=None):
    if cls is not None and not _active[0] and _overrides(cls):
        activate()
    return _of(array, edge, cls)


# -- torch.overrides ---------------------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context manager whose `__torch_function__` receives every call of a public function in a `with` block.

    Override `__torch_function__(self, func, types, args=(), kwargs=None)`. Calls inside it do not reach this mode.
    """

    def __enter__(self):
        activate()
        _activate_factories()
        _activate_properties()
        _state.modes = (*_state.modes, self)
        return self

    def __exit__(self, *error):
        _state.modes = _state.modes[:-1]

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


def in_library(frame):
    """Returns True if the code of a frame belongs to this library."""
    return frame.f_globals.get("__name__", "").startswith("mytorch")


def activate_creations():
    """Lets the functions that create tensors call `creation_hooks`. A second call has no effect."""
    for name in CREATIONS:
        function = getattr(Tensor if name.startswith("new_") else sys.modules["mytorch"], name)
        _replace_code(function, function)


def _activate_factories():
    for name in _FACTORIES:
        function = vars(sys.modules["mytorch"]).get(name)
        if type(function) is FunctionType:
            _replace_code(function, function)


def _activate_properties():
    """Lets the properties of tensors call the active modes. A second call has no effect."""
    if isinstance(vars(Tensor)["shape"], _ModeProperty):
        return
    for name, descriptor in list(vars(Tensor).items()):
        if isinstance(descriptor, property) and name not in _IGNORED and not name.startswith("_"):
            setattr(Tensor, name, _ModeProperty(descriptor.fget, descriptor.fset, descriptor.fdel, descriptor.__doc__))


class _ModeProperty(property):
    """A property of Tensor that passes reads to the active modes."""

    def __get__(self, tensor, owner=None):
        if tensor is None or not _state.modes or _state.all_off:
            return super().__get__(tensor, owner)
        return _handle(self.__get__, (tensor,), {}, [])


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


def get_ignored_functions():
    """Returns the public functions that cannot be overridden."""
    top = sys.modules["mytorch"]
    found = {vars(top).get(name) for name in _IGNORED} | {vars(Tensor).get(name) for name in _IGNORED}
    return {function for function in found if callable(function)}


def get_overridable_functions():
    """Returns {module or class: overridable functions}."""
    activate()
    found = {}
    for module in (sys.modules["mytorch"], F, linalg, fft, special):
        found[module] = [f for _, f in _public_functions(module) if f in _originals]
    found[Tensor] = [f for f in vars(Tensor).values() if type(f) is FunctionType and f in _originals]
    return found


def is_tensor_method_or_property(func):
    """Returns True for a method of Tensor, and for `__get__` of one of its properties."""
    name = getattr(func, "__name__", "")
    return vars(Tensor).get(name) is func or name in ("__get__", "__set__", "__delete__")


def resolve_name(f):
    """Returns the full name of a function, such as "torch.add".

    Args:
        f: the function.
    """
    owner = getattr(f, "__self__", None)
    if isinstance(owner, property):
        name = next((n for n, value in vars(Tensor).items() if value is owner), None)
        return name and f"torch.Tensor.{name}.{f.__name__}"
    name = getattr(f, "__name__", None)
    homes = {"torch": sys.modules["mytorch"], "torch.nn.functional": F, "torch.linalg": linalg, "torch.Tensor": Tensor}
    homes.update({"torch.fft": fft, "torch.special": special})
    return next((f"{home}.{name}" for home, place in homes.items() if vars(place).get(name) is f), None)


def _get_current_function_mode():
    return _state.modes[-1] if _state.modes else None


def _get_current_function_mode_stack():
    return list(_state.modes)


for _kind in (Parameter, Buffer):
    setattr(_kind, "__torch_function__", staticmethod(_disabled_torch_function_impl))  # noqa: B010
