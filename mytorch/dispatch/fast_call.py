"""The callers: for each record a function that does what `Op.run` does, in no more steps than it takes, for tensors of one dtype
on the CPU. Anything else (an Array first, mixed dtypes, a GPU, autocast, `fused=True`, `out=`, …) it hands to `Op.run`.

A caller is written for its record: source.py puts it together as Python's text, with the record's own arguments by name, and
leaves out what this record never needs (a view's bookkeeping, a gradient, a search for kernels). That is why `a + b` and
`x.sum(1)` cost a microsecond or two. `print(source_of(mytorch.ops.reduction._sum))` shows one, and so do tracebacks.

Compiling takes half a millisecond, so it waits for the first call: until then the code of every caller is `_first`. It is the
same function object before and after, since classes and modules are bound to it at import.
"""

import linecache
from inspect import Parameter
from types import FunctionType

import numpy as np

from .._array import Array
from .._tensor import Face, Tensor, refresh
from ..backend import is_raw, memory_owner, ndarray, numpy_ns
from ..base import config
from ..engine.mode import get_mode
from ..engine.node import Node
from .errors import explained
from .operands import is_operand
from .source import source_of

_NAMES = {
    "Array": Array, "Face": Face, "Node": Node, "Tensor": Tensor, "__name__": __name__, "asarray": np.asarray,
    "explained": explained, "generic": np.generic, "get_mode": get_mode, "is_raw": is_raw, "memory_owner": memory_owner,
    "missing": Parameter.empty, "ndarray": ndarray, "new": object.__new__, "refresh": refresh, "xp": numpy_ns,
}  # fmt: skip


def caller_of(op, operator=False):
    """The caller of a record.

    Args:
        operator: for the method behind an operator such as `+`, which answers NotImplemented to what is no operand.
    """
    if op.outputs and op.variadic:
        return op.run
    names = {**_NAMES, "op": op, "operator": operator, "write": _write}
    caller = names["caller"] = FunctionType(_first.__code__, names, op.name)
    caller.__qualname__, caller.__doc__, caller.__module__ = op.name, op.__doc__, op.__module__
    caller.op = caller.__wrapped__ = op  # inspect.signature follows __wrapped__
    return caller


def _first(*args, **kwargs):
    write(caller, op, operator)  # noqa: F821 - these are names in the caller's own namespace
    return caller(*args, **kwargs)  # noqa: F821


def _write(caller, op, operator):
    """Give a caller its code."""
    names = caller.__globals__
    defaults = {**op.defaults, "fused": None, "auto": False}
    names.update({f"default_{n}": value for n, value in defaults.items()})
    names.update(forward=op.forward, find=op.kernels.find, cast_from_float32=op.cast_from_float32, plans={})
    names.update(apply=op.apply, by_kernel=op.by_kernel, policy=config.fused_policy.get, record=op.record)
    names.update(
        plan_of=op.reference.plan,
        plan=op.reference.plan(1),
        reference=op.reference,
        general=_general(op, defaults, operator),
    )
    source, file = source_of(op), f"<caller of {op.name}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    written = {}
    exec(compile(source, file, "exec"), names, written)
    caller.__defaults__, caller.__kwdefaults__ = written[op.name].__defaults__, written[op.name].__kwdefaults__
    caller.__code__ = written[op.name].__code__  # at last, and at once: another thread may be calling


def _general(op, defaults, operator):
    """What a caller leaves to `Op.run`, with the attributes that are not the defaults."""

    def general(inputs, attrs, args, kwargs):
        if operator and not is_operand(inputs[1]):
            return NotImplemented
        if args:  # more than there are places
            return op.run(*inputs, *[attrs[n] for n in op.attrs], *args, **kwargs)
        return op.run(*inputs, **{n: v for n, v in attrs.items() if v is not defaults[n]}, **kwargs)

    return general
