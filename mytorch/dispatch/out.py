"""`out=`: any function's result written into a tensor that the caller gives.

The result is computed as without `out` and then copied, so `out` saves no time here; it is for programs that
use it. A tensor of another shape is resized (with a warning if it held elements), one of a dtype that cannot
take the result's kind is refused, and nothing of it can be recorded, as in PyTorch.
"""

import functools
import inspect

from ..base.dtypes import TYPE_WORDS
from ..base.errors import warn
from ..engine.mode import get_mode
from .overlap import refuse_overlap, refuse_shared
from .record import names_of


def check_out(out, inputs, name):
    """Refuse an `out` in which elements share a place, or that lies partly in the memory of an input.

    Raises:
        RuntimeError: it is so.
    """
    if not hasattr(out, "_version_counter") and not hasattr(out, "_data"):
        return
    refuse_shared(out, name)
    if get_mode().interpreter:
        get_mode().interpreter.check_out((out, *inputs))
    for x in inputs:
        if hasattr(x, "_data"):
            refuse_overlap(out, x, name)


def write_out(result, out, name, exact=False):
    """Copy a result (or a tuple of results) into `out`; returns `out`.

    Args:
        result, out: what is copied where. name: of the function.
        exact: the dtypes have to be equal, as they do for values and their indices.

    Raises:
        RuntimeError: a gradient would be needed, or out's dtype cannot hold the result's kind.
        TypeError: out is no tensor, or no tuple of as many as there are results.
    """
    if isinstance(result, (tuple, list)):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be a tuple of {len(result)} Tensors.")
        exact = exact or "indices" in getattr(result, "_fields", ())
        written = [write_out(r, o, name, exact) for r, o in zip(result, out, strict=True)]
        return type(result)(*written) if hasattr(result, "_fields") else type(out)(written)
    if not hasattr(out, "copy_"):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if get_mode().grad and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    given, wanted = (TYPE_WORDS.get(t.dtype.name, t.dtype.name) for t in (result, out))
    if exact and given != wanted:
        raise RuntimeError(f"{name}: expected scalar type {given} but got {wanted} for argument 'out'")
    if result.dtype.category > out.dtype.category:
        raise RuntimeError(f"result type {given} can't be cast to the desired output type {wanted}")
    if tuple(out.shape) != tuple(result.shape):
        if out.numel():
            warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(result.shape)}. This behavior is deprecated, and in a future "
                "PyTorch release outputs will not be resized unless they have zero elements."
            )
        out.resize_(tuple(result.shape))
    out.copy_(result)
    return out


def _not_a_tensor(error, name, args):
    """A TypeError where an attribute was missing because an argument, or an item of one, is no tensor; else the error."""
    for place, arg in enumerate(args, 1):
        for item in (arg, *arg) if isinstance(arg, (list, tuple)) else (arg,):
            if item is error.obj and isinstance(item, (int, float, complex, str, list, tuple, type(None))):
                return TypeError(f"{name}(): expected Tensor in argument {place}, but got {type(item).__name__}")
    return error


def takes_out(function):
    """A function with an `out=` argument added; itself if it has one, or is an op (which has)."""
    if hasattr(function, "op") or not inspect.isfunction(function) or "out" in names_of(inspect.unwrap(function)):
        return function

    @functools.wraps(function)
    def with_out(*args, out=None, **kwargs):
        try:
            result = function(*args, **kwargs)
        except AttributeError as error:
            raise _not_a_tensor(error, function.__name__, args) from None
        if out is None:
            return result
        check_out(out, args, function.__name__)
        if kwargs.get("dtype") is not None and hasattr(out, "dtype") and kwargs["dtype"] != out.dtype:
            raise RuntimeError(f"Expected out tensor to have dtype {kwargs['dtype']}, but got {out.dtype} instead")
        return write_out(result, out, function.__name__)

    with_out.__wrapped__ = SignatureExtra(function, "out", None)
    return with_out


class SignatureExtra:
    """What `inspect.signature` finds behind a function that was given one more argument: its parameters, and that."""

    def __init__(self, function, name, default):
        self.__wrapped__ = function
        self.name, self.default = name, default

    @property
    def __signature__(self):
        own = inspect.signature(self.__wrapped__)
        given = [p for p in own.parameters.values() if p.name != self.name]
        last = len(given) - any(p.kind is p.VAR_KEYWORD for p in given)
        further = inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default)
        return own.replace(parameters=[*given[:last], further, *given[last:]])
