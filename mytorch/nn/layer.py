"""Layer: a module that stores the options its class statement declares, and passes them to one function."""

import inspect
from collections.abc import Callable
from typing import Any

from .._tensor import Tensor
from ..base.arguments import bind
from ..dispatch.composed import accepts
from .module import Module

_KERNEL_OPTIONS = {"auto": False, "fused": None}  # options that a layer has if its function does


class _DeclaredSignature:
    """`__signature__` of a class whose constructor is Declared's; computed when `inspect.signature` asks for it."""

    def __get__(self, layer, cls):
        if layer is not None or cls.__init__ is not Declared.__init__:
            raise AttributeError("__signature__")
        kinds = dict.fromkeys(cls._ordered, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required, named = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
        parameters = [(n, kinds.get(n, named), required if d is ... else d) for n, d in cls._options.items()]
        return inspect.Signature([inspect.Parameter(n, k, default=d) for n, k, d in parameters])


class Declared(Module):
    """A module whose options are declared by its class statement, and a function to which it can pass them.

        class ELU(Layer, function=F.elu, alpha=1.0, inplace=False):
            ...

    The class statement gives each option's default, or `...` where it is required. The options become attributes, then
    `__post_init__` runs. `_compute` passes all of them by name. Where the function takes `auto` and `fused`, they are options too.

    Args:
        function: what `_compute` calls.
        named: options that are taken by name only, separated by blanks.
        shown: `extra_repr` as a format string; by default every option but those taken by name, and inplace if it is True.
    """

    _function: Callable[..., Any]
    _options: dict[str, Any] = {}
    _ordered: tuple[str, ...] = ()  # the options that may be given by position
    _shown = ""
    _tensors: tuple[str, ...] = ()  # options that are registered as buffers
    _unused: tuple[str, ...] = ()  # options that the function does not take
    _ignored: tuple[str, ...] = ()  # names that are accepted though they are no options
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
        """Check or complete the options; nothing by default."""

    def _compute(self, *inputs):
        """The function of the inputs and of the options."""
        options = {n: getattr(self, n) for n in self._options if n not in self._unused and n not in _KERNEL_OPTIONS}
        for n, usual in _KERNEL_OPTIONS.items():
            if getattr(self, n, usual) is not usual and n in self._options:
                options[n] = getattr(self, n)
        return self._function(*inputs, **options)

    def extra_repr(self) -> str:
        text = self._shown.format_map(vars(self))
        in_place = "inplace" in self._options and "{inplace" not in self._shown and self.inplace
        return ", ".join([*([text] if text else []), *(["inplace=True"] if in_place else [])])


class Layer(Declared):
    """A module that calls its function with one input and the options that were given to its constructor."""

    def forward(self, input: Tensor) -> Tensor:
        return self._compute(input)
