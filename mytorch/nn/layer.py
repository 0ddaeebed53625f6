"""Layer, a module that stores the options declared by its class statement and passes them to one function."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from ..arrays.arguments import bind, completed
from ..arrays.tensor import Tensor
from ..ops.dispatch.composed import accepts
from .module import Module

_SHARED = {  # arguments that many layers have, and the line of each for `Args`
    "inplace": "if True, writes the result into the input (default: False).",
    "auto": "if True, composes the layer of other ops, whose gradients autograd derives (default: False).",
    "fused": "True runs a fused kernel where one is available, False the reference, `None` the faster one.",
    "device": "device of the parameters. By default, the default device.",
    "dtype": "dtype of the parameters. By default, the default dtype.",
}
_ARGS = r"(?m)^    Args:\n((?: {8}.*\n)+)\n?"  # the section in a docstring
_ITEM = r"(?m)^ {8}(\w+): (.*\n(?: {9,}.*\n)*)"
_KERNEL_OPTIONS = {"auto": False, "fused": None}  # options of a layer whose function has them


def _items(doc):
    """Returns {argument: description} of the section `Args` of a docstring."""
    section = re.search(_ARGS, doc)
    return {name: text.rstrip("\n") for name, text in re.findall(_ITEM, section[1])} if section else {}


class Docstring:
    """The docstring of a layer, with the arguments that its base classes, `_SHARED` or its function describe; made on first access."""

    def __init__(self, text):
        self.text = text or ""

    def __get__(self, layer, cls):
        bases = [vars(base).get("__doc__") or "" for base in reversed(cls.__mro__)]
        function = getattr(cls, "_function", None)
        texts = {**_items(getattr(function, "__doc__", None) or ""), **_SHARED}
        for doc in bases:
            texts.update(_items(getattr(doc, "text", doc)))
        code = cls.__init__.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        names = cls._options if cls.__init__ is Declared.__init__ else names
        return completed(self.text, [n for n in names if n in texts], texts)


class _DeclaredSignature:
    """Computes `__signature__` of a class with the constructor of `Declared`, when `inspect.signature` reads it."""

    def __get__(self, layer, cls):
        if layer is not None or cls.__init__ is not Declared.__init__:
            raise AttributeError("__signature__")
        kinds = dict.fromkeys(cls._ordered, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required, named = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
        parameters = [(n, kinds.get(n, named), required if d is ... else d) for n, d in cls._options.items()]
        return inspect.Signature([inspect.Parameter(n, k, default=d) for n, k, d in parameters])


class Declared(Module):
    """A module with options that its class statement declares, and with a function that can receive them.

        class ELU(Layer, function=F.elu, alpha=1.0, inplace=False):
            ...

    The class statement gives the default of each option, or `...` for a required option. The constructor stores the
    options as attributes, and then calls `__post_init__`. `_compute` passes all options by name. If the function has
    the parameters `auto` and `fused`, the layer has them as options, too.

    Args:
        function: function that `_compute` calls.
        named: names of keyword-only options, separated by blanks.
        shown: format string for `extra_repr`. By default, it contains every option that is not keyword-only, and
            `inplace` if it is True.
    """

    _function: Callable[..., Any]
    _options: dict[str, Any] = {}
    _ordered: tuple[str, ...] = ()  # options that may be passed by position
    _shown = ""
    _tensors: tuple[str, ...] = ()  # options that are registered as buffers
    _unused: tuple[str, ...] = ()  # options that the function does not have
    _ignored: tuple[str, ...] = ()  # further names that are accepted and not stored
    __signature__ = _DeclaredSignature()

    def __init_subclass__(cls, function=None, named="", shown=None, **options):
        super().__init_subclass__()
        if function is not None:
            cls._function = staticmethod(function)
            further = {n: d for n, d in _KERNEL_OPTIONS.items() if n not in options and accepts(function, n)}
            cls._options = {**cls._options, **further}
            options = options and {**options, **further}
        if options:
            cls._options = options
            cls._ordered = tuple(n for n in options if n not in named.split() and n not in _KERNEL_OPTIONS)
            cls._shown = ", ".join(f"{n}={{{n}!r}}" for n in cls._ordered if n != "inplace")
        if shown is not None:
            cls._shown = shown

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for n, value in bind(type(self).__name__, self._ordered, self._options, args, kwargs, self._ignored).items():
            self.register_buffer(n, value) if n in self._tensors else setattr(self, n, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks or completes the options. The default does nothing."""

    def _compute(self, *inputs):
        """Calls the function with the inputs and the options."""
        options = {n: getattr(self, n) for n in self._options if n not in self._unused and n not in _KERNEL_OPTIONS}
        for n, default in _KERNEL_OPTIONS.items():
            if getattr(self, n, default) is not default and n in self._options:
                options[n] = getattr(self, n)
        return self._function(*inputs, **options)

    def extra_repr(self) -> str:
        text = self._shown.format_map(vars(self))
        in_place = "inplace" in self._options and "{inplace" not in self._shown and self.inplace
        return ", ".join([*([text] if text else []), *(["inplace=True"] if in_place else [])])


class Layer(Declared):
    """A module that calls its function with one input and the options of its constructor."""

    def forward(self, input: Tensor) -> Tensor:
        return self._compute(input)
