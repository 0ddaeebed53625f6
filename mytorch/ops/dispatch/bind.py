"""From definitions to public names: `mytorch.exp`, `Tensor.exp`, `Array.exp`, `Tensor.exp_`, `x + y`.

`@public` declares the public names of an op, or of a function that calls ops. `attach` binds these names when
`mytorch/__init__.py` imports `ops`. It binds the fast path of each op, so a method is as fast as the op.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from ...arrays import config, ndarray
from ...arrays.arguments import described, names_of, with_place
from ...arrays.array import Array
from ...arrays.errors import warn
from ...arrays.memory_format import in_rows
from ...arrays.overridable import overridable
from ...arrays.overriding import IGNORED, NOTHING, asking, asks, can_override, is_overridable, overriding
from ...arrays.tensor import Tensor
from ...autograd.mode import get_mode
from .fast_call import fast_call
from .inplace import in_place
from .op import SPELLINGS, Op
from .operands import is_operand
from .out import takes_out
from .precision import in_precision
from .refused import argument_check

_F = TypeVar("_F", bound=Callable[..., Any])
PUBLIC = {}  # name -> function of the mytorch module
METHODS = {}  # name -> function, as bound to Tensor and Array


def also_named(function, spellings):
    """Returns a function that accepts further names of its arguments: `spellings` maps them to the arguments."""

    is_op = hasattr(function, "dispatch")
    check = argument_check(function)

    @functools.wraps(function)
    def named(*args, **kwargs):
        if overriding.on and not is_op and can_override(args, kwargs):
            if (result := overriding.ask(named.public, args, kwargs)) is not NOTHING:
                return result
        for word in kwargs.keys() & spellings.keys() if kwargs else ():
            if spellings[word] in kwargs:
                raise TypeError(
                    f"{function.__name__}() got '{word}' and '{spellings[word]}', which are the same argument."
                )
            kwargs[spellings[word]] = kwargs.pop(word)
        if check is not None and config.pytorch_mode:
            check(args, kwargs)
        return function(*args, **kwargs)

    named.spellings = spellings
    if is_op:  # which asks itself
        function.dispatch.public = named
    return asking(named)


def spelled(**spellings: str) -> Callable[[_F], _F]:
    """Decorates a function with further names of its arguments, such as `dropout_p="p"`."""
    return lambda function: also_named(function, spellings)


def with_numbers_between(*names: str) -> Callable[[_F], _F]:
    """Decorates a function of three tensors that also accepts a deprecated order, in which numbers are between the tensors.

    Args:
        names: the arguments that these numbers are, such as "beta" and "alpha" for `addmm(beta, input, alpha, mat1, mat2)`.
    """

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            if 0 < len(args) - 3 <= len(names) and not kwargs.keys() & {*names}:
                *numbers, last_but_one, last = args
                input = numbers.pop(max(range(len(numbers)), key=lambda i: getattr(numbers[i], "ndim", -1)))
                if hasattr(last, "ndim") and not any(getattr(number, "ndim", 0) for number in numbers):
                    name = function.__name__
                    warn(f"This overload of {name} is deprecated: use {name}(input, …, *, {', '.join(names)}) instead.")
                    args = input, last_but_one, last
                    kwargs.update(zip(names, numbers, strict=False))
            return function(*args, **kwargs)

        return run

    return decorate


def public(
    *, name=None, names=(), method=True, function=True, inplace=True, dunder=None, reflected=False, spellings=None
):
    """Decorates an op or function to make it part of the public API.

    Args:
        name: its public name (default: the name of the definition).
        names: further names, such as aliases in PyTorch.
        method: bind it to Tensor and Array, with the tensor as first argument (default: True).
        function: bind it to the module `mytorch` (default: True).
        inplace: also define the in-place variant `name_` (default: True).
        dunder: operator method that it implements, such as "__add__".
        reflected: True for commutative operators, so that `2 + x` calls `x + 2`.
        spellings: further names of its arguments, such as {"exponent": "other"}.
    """

    def register(definition):
        call = fast_call(definition, public=True) if isinstance(definition, Op) else definition
        home = (definition.__wrapped__ if isinstance(definition, Op) else definition).__module__
        if call.__doc__ and home.startswith("mytorch."):
            call.__doc__ = with_place(call.__doc__, home)
        call = described(call)
        words = {**({} if isinstance(definition, Op) else _numpy_names(definition)), **(spellings or {})}
        if words:
            call = also_named(call, words)
        all_names = (name or definition.__name__, *names)
        for n in all_names:
            if function:
                PUBLIC[n] = call
            if method:
                METHODS[n] = call
                if inplace and not n.endswith("_"):
                    METHODS[n + "_"] = in_place(call, n + "_")
        if dunder:
            METHODS[dunder] = (
                fast_call(definition, operator=True)
                if getattr(definition, "inputs", ()) == ("input", "other")
                else call
            )
            if reflected:
                METHODS["__r" + dunder[2:]] = _reflected(call)
            elif dunder == "__truediv__":
                METHODS["__rtruediv__"] = _swapped(in_precision("float32")(call))
            elif dunder in ("__sub__", "__pow__", "__floordiv__", "__mod__", "__lshift__", "__rshift__", "__matmul__"):
                named = definition.named("RPow", layout=in_rows).fast_call if dunder == "__pow__" else call
                METHODS["__r" + dunder[2:]] = _swapped(named)
            if dunder in _AUGMENTED:
                written = call
                if isinstance(definition, Op):  # x += y is IAddBackward
                    written = definition.named("I" + definition.grad_name.removesuffix("Backward")).fast_call
                METHODS["__i" + dunder[2:]] = in_place(written, "__i" + dunder[2:])
        return definition

    return register


_AUGMENTED = {f"__{word}__" for word in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()}


def _numpy_names(function):
    """Returns the NumPy names of the arguments of a function that PyTorch also accepts, such as {"axis": "dim"}."""
    own = names_of(inspect.unwrap(function))
    other = {word: name for word, name in SPELLINGS.items() if name in own and word not in own}
    return other if {"axis", "keepdims"} & other.keys() else {}


def _reflected(call):
    def reflected(self, other):
        return call(self, other) if is_operand(other) else NotImplemented

    return reflected


def _swapped(call):
    def swapped(self, other):
        if overriding.on and can_override((self, other), None):
            if (result := overriding.ask(swapped.public, (self, other), {}, True)) is not NOTHING:
                return result
        if (
            type(other) is float
            and isinstance(self, Tensor)
            and type(self._mt_data._array) is ndarray
            and get_mode().plain
        ):
            raw = self._mt_data._array
            if raw.dtype.kind == "f":  # the first operand must be a tensor; the result has the dtype of `self`
                return call(Tensor._wrap(np.asarray(other, raw.dtype)), self)
        return call(other, self) if is_operand(other) else NotImplemented

    return asking(swapped)


def _attribute(name, get, put=None, doc=None):
    """Adds a property that computes its value to Tensor and Array. The docstring is `doc`, or the docstring of `get`."""
    setattr(Array, name, property(get, put, doc=doc))
    setattr(Tensor, name, _overridable_property(name, get, put, doc or get.__doc__))


def _overridable_property(name, get, put, doc):
    """Returns a property that modes can override; `arrays/tensor.py` tests for modes itself in those that programs read most."""

    def read(self):
        if overriding.modes and (found := overriding.read(name, self)) is not NOTHING:
            return found
        return get(self)

    return property(read, put, doc=doc)


def attach(namespace):
    """Binds all public definitions: methods to Tensor and Array, functions to `namespace`."""
    overriding.add_simple(Array)
    _make_overridable()
    for name in "data is_cuda itemsize nbytes grad_fn is_leaf output_nr retains_grad".split():
        descriptor = vars(Tensor)[name]
        setattr(Tensor, name, _overridable_property(name, descriptor.fget, descriptor.fset, descriptor.__doc__))
    for name, function in METHODS.items():
        for cls in (Tensor, Array):
            if name not in cls.__dict__ or name in ("__eq__", "__ne__"):
                setattr(cls, name, function)
    Tensor.__hash__ = Array.__hash__ = object.__hash__
    for name, function in PUBLIC.items():
        function = takes_out(function)
        namespace[name] = found_by_pickle(
            described(public_function(function) if is_overridable(name) else function), name
        )
    for name, function in METHODS.items():
        found_by_pickle(function, f"Tensor.{name}")


# Operators -> the names of the functions that PyTorch passes to `__torch_function__`.
_PASSED = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__matmul__": "matmul", "__pow__": "pow", "__mod__": "remainder", "__neg__": "neg", "__abs__": "abs", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__iadd__": "add_", "__isub__": "sub_",
    "__imul__": "mul_", "__itruediv__": "div_", "__imod__": "remainder_", "__pos__": "positive",
}  # fmt: skip
_NOT_BINARY = frozenset(
    "__getitem__ __setitem__ __delitem__ __contains__ __neg__ __abs__ __invert__ __pos__ __bool__ __int__ __float__ __index__ "
    "__complex__ __iter__ __len__ __format__ __reversed__ __array__ __dlpack__".split()
)


def _make_overridable():
    """Lets all methods ask classes and modes that override functions. `arrays/overriding.py` describes it."""
    for name, function in METHODS.items():
        if name not in IGNORED:
            METHODS[name] = public_function(function, name.startswith("__") and name not in _NOT_BINARY)
    for name, function in METHODS.items():
        if name not in IGNORED and asks(function):
            if METHODS.get(function.__name__) is not function:
                function.__name__ = name
            passed = METHODS.get(_PASSED.get(name), function)
            if passed is not function:
                function.public = passed


_made = {}


def public_function(function, operator=False):
    """Returns a function that classes and modes can override: `function` itself, a fast path of its op, or a wrapper."""
    op = function if isinstance(function, Op) else getattr(function, "op", None)
    if asks(function) or not (op or isinstance(function, FunctionType)):
        return function
    key = function, operator
    if key not in _made:
        _made[key] = fast_call(op, overridden=True) if op else overridable(function, operator, argument_check(function))
    return _made[key]


def public_method(function, name):
    """Returns a method of an extension that classes and modes can override, and that pickle finds."""
    public = public_function(function)
    setattr(Tensor, name, public)  # `found_by_pickle` looks it up
    return public if public is function else found_by_pickle(public, f"Tensor.{name}")


def public_names(values):
    """Returns {name: value} for the `mytorch` module: functions that classes and modes can override, and that pickle finds."""
    found = dict(values)
    for name, value in values.items():
        if isinstance(value, FunctionType):
            found[name] = found_by_pickle(public_function(value) if is_overridable(name) else value, name)
    return found


def found_by_pickle(function, name, module="mytorch"):
    """Returns the function, which pickle finds by `name` in a module unless its own name leads to it already."""
    place = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        place = getattr(place, part, None) if part != "<locals>" else None
    if place is not function:
        function.__module__, function.__qualname__ = module, name
    return function
