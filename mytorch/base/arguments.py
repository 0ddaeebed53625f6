"""What arguments mean that many functions share, said once: `described` puts it into the docstrings of those that take them."""

from inspect import Parameter, Signature
from types import FunctionType

SHARED = {
    "input": "the tensor.",
    "dim": "the axis.",
    "keepdim": "keep the reduced axes with size 1.",
    "inplace": "write the result into input.",
    "generator": "where the random numbers come from; the default generator if None.",
    "fused": "True asks for a compiled kernel, False for the reference; by default the kernel runs if it is faster.",
    "auto": "derive the gradient from the formula instead of the written one.",
}
_LATER = ("Raises:", "Returns:", "Shape:", "Source:", "Example:")  # the sections that stand behind `Args:`


def described(function, **texts):
    """The function, whose docstring now says what its shared arguments are, in their order, where it did not itself.

    A docstring without `Args:` stays as it is if the function takes fewer than three arguments or one that is not shared.

    Args:
        function: what is documented.
        texts: what its module's own shared arguments are, besides `SHARED`.
    """
    doc, inner = function.__doc__, function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not doc or not isinstance(inner, FunctionType):
        return function
    code, texts = inner.__code__, SHARED | texts if texts else SHARED
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    missing = [n for n in names if n in texts and f" {n}: " not in doc]
    has_section = "Args:\n" in doc
    if missing and (has_section or len(missing) == len(names) > 2):
        function.__doc__ = (_completed if has_section else _with_section)(doc, names, texts)
    return function


def bind(function, positional, defaults, args, kwargs, ignored=()):
    """Returns {name: value} for all arguments of a call, as `inspect.Signature.bind` does, but faster.

    Args:
        function: name of the function, for error messages.
        positional: names of the arguments that may be passed by position, in order.
        defaults: {name: default value} of all arguments; `...` stands for a required argument.
        args, kwargs: arguments of the call.
        ignored: names that are accepted and left out of the result.

    Raises:
        TypeError: too many arguments, an unknown name, two values for an argument, or a missing required argument.
    """
    if len(args) > len(positional):
        raise TypeError(f"{function}() takes {len(positional)} arguments, got {len(args)}.")
    by_position = dict(zip(positional, args))  # noqa: B905 - the other arguments keep their defaults
    for name in kwargs:
        if name in by_position:
            raise TypeError(f"{function}() got multiple values for argument '{name}'")
        if name not in defaults and name not in ignored:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
    values = {**defaults, **by_position, **kwargs}
    for name, value in values.items():
        if value is ...:
            raise TypeError(f"{function}() missing required argument: '{name}'")
    return {name: values[name] for name in defaults} if ignored else values


def constructor(cls, parameters, build):
    """Returns an `__init__` for a class that declares its arguments as data.

    Args:
        cls: the class, for error messages and `help()`.
        parameters: `inspect.Parameter`s with annotations, without `self`.
        build: called as `build(self, values)`, where `values` is a dict of all arguments.
    """
    defaults = {p.name: ... if p.default is Parameter.empty else p.default for p in parameters}
    positional = tuple(p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD)
    name = f"{cls.__qualname__}.__init__"

    required = len([p for p in parameters if p.default is Parameter.empty])

    def __init__(self, *args, **kwargs):
        if not kwargs and required <= len(args) <= len(positional):
            values = {**defaults, **dict(zip(positional, args))}  # noqa: B905 - the other arguments keep their defaults
        else:
            values = bind(name, positional, defaults, args, kwargs)
        build(self, values)

    __init__.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters])
    __init__.__annotations__ = {**{p.name: p.annotation for p in parameters}, "return": None}
    __init__.__module__, __init__.__qualname__ = cls.__module__, name
    return __init__


def _with_section(doc, names, texts):
    """A docstring with `Args:` of all names, behind its first paragraphs."""
    first, *rest = doc.rstrip().split("\n\n")
    count = next((i for i, part in enumerate(rest) if part.lstrip().startswith(_LATER)), len(rest))
    indent = rest[count][: -len(rest[count].lstrip())] if count < len(rest) else "    "
    section = f"{indent}Args:" + "".join(f"\n{indent}    {n}: {texts[n]}" for n in names)
    return "\n\n".join((first, *rest[:count], section, *rest[count:])) + "\n"


def _completed(doc, names, texts):
    """A docstring in whose `Args:` stand the names that are missing, each before the next one in the signature."""
    start = doc.index("Args:\n")
    indent = doc[doc.rindex("\n", 0, start) : start] + "    "
    place = doc.find("\n\n", start)
    place = len(doc.rstrip()) if place < 0 else place
    for name in reversed(names):
        own = doc.find(f" {name}: ", start)
        if own >= 0:
            line = own + 1 - len(indent)
            place = line if doc.startswith(indent, line) else place
        elif name in texts and f" {name}, " not in doc[start:]:
            doc = f"{doc[:place]}{indent}{name}: {texts[name]}{doc[place:]}"
    return doc


def describe(namespace, **texts):
    """`described` for every public function that a module defines; `namespace` is its globals()."""
    for name, function in namespace.items():
        if name[0] != "_" and isinstance(function, FunctionType) and function.__module__ == namespace["__name__"]:
            described(function, **texts)
