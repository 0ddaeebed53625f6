"""From definitions to surfaces: `mytorch.exp`, `Tensor.exp`, `Array.exp`, `Tensor.exp_`, `x + y`.

`@public` marks an op's record, or a plain function over ops, as part of the API, and says under which names
and where. `attach` then walks the list once, when `mytorch/__init__.py` imports `ops`. The functions
that it binds are the very callers of the records, so a method costs no more than the op.
"""

import functools
import inspect

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import ndarray
from ..base.arguments import described
from ..engine.mode import get_mode
from .fast_call import fast_call
from .inplace import in_place
from .op import SPELLINGS, Op
from .operands import is_operand
from .out import takes_out
from .precision import in_precision
from .record import names_of

PUBLIC = {}  # name -> function of the mytorch module
METHODS = {}  # name -> function, as bound to Tensor and Array


def also_named(function, spellings):
    """A function that takes arguments by other names too: `spellings` maps these to its own."""

    @functools.wraps(function)
    def named(*args, **kwargs):
        for word in kwargs.keys() & spellings.keys() if kwargs else ():
            if spellings[word] in kwargs:
                raise TypeError(
                    f"{function.__name__}() got both '{word}' and '{spellings[word]}', which mean the same."
                )
            kwargs[spellings[word]] = kwargs.pop(word)
        return function(*args, **kwargs)

    named.spellings = spellings
    return named


def spelled(**spellings):
    """Decorate a function whose arguments have other names too, mapped to their own: `dropout_p="p"`."""
    return lambda function: also_named(function, spellings)


def public(
    *, name=None, names=(), method=True, function=True, inplace=True, dunder=None, reflected=False, spellings=None
):
    """Bind what follows to the API.

    Args:
        name: its name, if not the definition's.
        names: further names, such as PyTorch's aliases.
        method: bind it to Tensor and Array, with the tensor as first argument.
        function: bind it to the `mytorch` module.
        inplace: also make `name_`, where the result can take the input's shape and dtype.
        dunder: the operator method that it implements, such as "__add__".
        reflected: the operator is commutative, so `2 + x` is `x + 2`.
        spellings: further names of its arguments, mapped to their own: {"exponent": "other"}.
    """

    def register(definition):
        call = definition.fast_call if isinstance(definition, Op) else described(definition)
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
                named = definition.named("RPow").fast_call if dunder == "__pow__" else call
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
    """NumPy's names of a function's arguments, mapped to its own, where PyTorch takes them: `axis` for `dim`, for example."""
    own = names_of(inspect.unwrap(function))
    other = {word: name for word, name in SPELLINGS.items() if name in own and word not in own}
    return other if {"axis", "keepdims"} & other.keys() else {}


def _reflected(call):
    def reflected(self, other):
        return call(self, other) if is_operand(other) else NotImplemented

    return reflected


def _swapped(call):
    def swapped(self, other):
        if (
            type(other) is float
            and isinstance(self, Tensor)
            and type(self._data._array) is ndarray
            and get_mode().plain
        ):
            raw = self._data._array
            if raw.dtype.kind == "f":  # a call wants a tensor first; a number has its dtype anyway
                return call(Tensor._wrap(np.asarray(other, raw.dtype)), self)
        return call(other, self) if is_operand(other) else NotImplemented

    return swapped


def _attribute(name, get, put=None):
    """A property of Tensor and Array that computes."""
    for cls in (Tensor, Array):
        setattr(cls, name, property(get, put))


def attach(namespace):
    """Bind every public definition: methods to Tensor and Array, functions to `namespace`."""
    for name, function in METHODS.items():
        for cls in (Tensor, Array):
            if name not in cls.__dict__ or name in ("__eq__", "__ne__"):
                setattr(cls, name, function)
    Tensor.__hash__ = Array.__hash__ = object.__hash__
    for name, function in PUBLIC.items():
        namespace[name] = takes_out(function)
