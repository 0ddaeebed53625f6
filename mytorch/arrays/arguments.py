"""Descriptions of arguments that many functions share: `described` adds them to docstrings."""

import re
from inspect import Parameter, Signature, cleandoc, unwrap
from types import FunctionType

SHARED = {
    "input": "the input tensor.",
    "other": "the second tensor, or a number.",
    "dim": "dimension along which to compute.",
    "axis": "another name of `dim`.",
    "keepdims": "another name of `keepdim`.",
    "dtype": "dtype of the result.",
    "device": "device of the result.",
    "requires_grad": "if True, autograd records operations on the result (default: False).",
    "layout": "must be `mytorch.strided` (default).",
    "memory_format": "order of the axes in memory, such as `mytorch.channels_last`.",
    "pin_memory": "if True, uses page-locked memory for fast copies to a GPU (default: False).",
    "keepdim": "if True, keeps the reduced dimensions with size 1 (default: False).",
    "inplace": "if True, writes the result into `input` (default: False).",
    "generator": "random number generator (default: the default generator of the device).",
    "fused": "True uses a compiled kernel, or warns if there is none; False uses the reference (default: the faster one).",
    "auto": "if True, composes the op of other ops and differentiates these (default: False).",
    "out": "tensor that receives the result (default: a new tensor).",
}
# Sections after `Args:`.
_LATER = (
    "Raises:",
    "Attributes:",
    "Returns:",
    "Shape:",
    "Source:",
    "Example",
    "See also:",
    "Note:",
    "Yields:",
    "Defined in ",
)


def names_of(function, skip=0):
    """Returns the parameter names of a function after the first `skip`. It reads the code object, since `inspect` is slow."""
    code = function.__code__
    return code.co_varnames[skip : code.co_argcount + code.co_kwonlyargcount]


def suggestion(error, function, kwargs):
    """Returns the error of an unexpected keyword with the name that was probably meant, as Python does from 3.13 on, or None."""
    name = next(
        (name for name in kwargs if str(error).endswith(f"() got an unexpected keyword argument '{name}'")), None
    )
    if name is None or not str(error).startswith(f"{function.__name__}()"):
        return None
    import difflib

    near = difflib.get_close_matches(name, names_of(unwrap(function)), n=1)
    return TypeError(f"{error}. Did you mean '{near[0]}'?") if near else None


def described(function, **texts):
    """Adds the shared arguments of a function to its docstring, in the order of the signature, and returns the function.

    Arguments that the docstring describes are skipped. A docstring without `Args:` changes only if all arguments are shared.

    Args:
        function: a function, a wrapped function, or the fast path of an op.
        texts: descriptions of further arguments, which the functions of a module share.
    """
    doc, inner, further = function.__doc__, function, []
    while hasattr(inner, "__wrapped__") and not hasattr(inner, "signature_extras"):
        inner = inner.__wrapped__
        if "default" in getattr(inner, "__dict__", ()):  # an argument that a wrapper adds
            further.append(inner.name)
    if not doc:
        return function
    if isinstance(inner, FunctionType):
        code = inner.__code__
        names = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *further)
    elif hasattr(inner, "signature_extras"):  # an op
        names = (*inner.inputs, *inner.attrs, *inner.signature_extras, *further)
    else:
        return function
    function.__doc__ = completed(doc, names, SHARED | texts if texts else SHARED)
    return function


def with_place(doc, module):
    """Returns a docstring with a last line that names the file of a module, for `help` and the reference."""
    last = doc.rpartition("\n")[2]
    indent = "" if last.strip() else last  # the spaces before the closing quotes
    return f"{doc.rstrip()}\n\n{indent}Defined in `{module.replace('.', '/')}.py`."


def completed(doc, names, texts):
    """Returns a docstring with the missing descriptions of arguments; see `described`.

    Args:
        doc: the docstring.
        names: the arguments, in the order of the signature.
        texts: {name: description} of the shared arguments.
    """
    names = [n for n in names if n != "self"]
    section = doc.partition("Args:\n")[2].partition("\n\n")[0]
    missing = [n for n in names if n in texts and f" {n}: " not in section]
    if not missing or (not section and len(missing) < len(names)):
        return doc
    return (_with_items if section else _with_section)(doc, names, texts)


def same_arguments(summary, function, *without):
    """Returns a docstring of a summary and the section `Args:` of a function, except the names `without`."""
    section = re.search(r"^Args:\n(?: +.*\n?)+", cleandoc(function.__doc__ or ""), re.M)
    kept = [] if section is None else [s for s in section[0].splitlines() if s.strip().partition(":")[0] not in without]
    return "\n".join([summary, "", *kept]) + "\n"


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
    """Returns a docstring with an `Args:` section of all names after its first paragraphs."""
    first, *rest = doc.rstrip().split("\n\n")
    count = next((i for i, part in enumerate(rest) if part.lstrip().startswith(_LATER)), len(rest))
    indent = rest[count][: -len(rest[count].lstrip())] if count < len(rest) else "    "
    section = f"{indent}Args:" + "".join(f"\n{indent}    {n}: {texts[n]}" for n in names)
    return "\n\n".join((first, *rest[:count], section, *rest[count:])) + "\n"


def _with_items(doc, names, texts):
    """Returns a docstring with the missing names in its `Args:` section, each before the next name of the signature."""
    start = doc.index("Args:\n")
    indent = doc[doc.rindex("\n", 0, start) : start] + "    "
    end = doc.find("\n\n", start)
    position = end = len(doc.rstrip()) if end < 0 else end
    for name in reversed(names):
        at = doc.find(f" {name}: ", start, end)
        if at >= 0:
            line = at + 1 - len(indent)
            position = line if doc.startswith(indent, line) else position
        elif name in texts and f" {name}, " not in doc[start:end]:
            doc = f"{doc[:position]}{indent}{name}: {texts[name]}{doc[position:]}"
    return doc


def describe(namespace, **texts):
    """Completes the docstrings of a module's public functions, and of its classes with the arguments of their constructors.

    Args:
        namespace: `globals()` of the module.
        texts: descriptions of further arguments, which the functions and classes share.
    """
    for name, value in namespace.items():
        if name[0] == "_" or getattr(value, "__module__", None) != namespace["__name__"]:
            continue
        if isinstance(value, FunctionType):
            described(value, **texts)
        elif isinstance(value, type) and value.__doc__ and isinstance(value.__init__, FunctionType):
            value.__doc__ = completed(value.__doc__, names_of(value.__init__, 1), SHARED | texts)
