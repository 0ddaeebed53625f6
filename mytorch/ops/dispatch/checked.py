"""Checks of the results of forward functions, and of ops that are defined outside of this package.

The ops of this package are tested, so their calls contain no check that takes time. The forward function of any other op is called
through `checked`. Its errors then name the op and say what to change.
"""

from functools import wraps

import numpy as np

from ...arrays import is_raw, memory_owner
from ...arrays.errors import kind


def is_users(function):
    """Returns True if a function was defined outside of this package."""
    return (function.__module__ or "").partition(".")[0] != __name__.partition(".")[0]


def as_array(op, out, xp=np):
    """Returns the result of a forward function that is not an array, a NumPy scalar or a Python number, as an array.

    Args:
        op: the op, for messages.
        out: the result.
        xp: the namespace of the arrays.

    Raises:
        TypeError: the result is not a number.
    """
    if isinstance(out, (np.generic, bool, int, float, complex)):
        return xp.asarray(out)
    hint = {
        type(None): "Is a return statement missing?",
        list: "Convert it with xp.asarray or xp.stack.",
        tuple: 'Declare several results with @op(outputs=("first", "second")).',
    }.get(type(out), "Return the result of functions of xp.")
    raise TypeError(
        f"{op.name}: expected forward to return an array, got {'None' if out is None else kind(out)}. {hint}"
    )


def _check(op, out):
    """Checks one result.

    Raises:
        TypeError: it is not an array of numbers.
    """
    if not hasattr(out, "dtype"):
        as_array(op, out)
    elif is_raw(out) and out.dtype.kind in "OSUM":
        raise TypeError(f"{op.name}: expected forward to return an array of numbers, got one of dtype {out.dtype}.")


def check_results(op, out, residuals=()):
    """Checks the results of a forward function: one, or a tuple if the op declares outputs or residuals.

    Args:
        out: what forward returned.
        residuals: names of the residuals.

    Raises:
        TypeError: a result is not an array of numbers, or their number is not the declared one.
    """
    names = (*(op.outputs or op.outputs_names), *residuals)
    counted = op.outputs != "list" and len(names) != 1
    if counted and not (isinstance(out, (tuple, list)) and len(out) == len(names)):
        got = f"{len(out)} values" if isinstance(out, (tuple, list)) else kind(out)
        raise TypeError(f"{op.name}: expected forward to return a tuple ({', '.join(names)}), got {got}.")
    for value in out if counted or op.outputs is not None else (out,):
        _check(op, value)


def checked(op, forward, residuals=(), inputs=True):
    """Returns a forward function with checks, for an op or a kernel that is defined outside of this package.

    Until a first call ends without an error, forward receives views that cannot be written, which detects a change of an input in
    place. CuPy has no such views, so this is a check on a CPU.

    Args:
        forward: the function.
        residuals: names of its residuals.
        inputs: check that inputs are not changed.
    """
    unchecked = inputs

    @wraps(forward)
    def checking(xp, *raws, **attrs):
        nonlocal unchecked
        if unchecked and any(type(x) is np.ndarray for x in raws):
            out = _without_changes(op, forward, xp, raws, attrs)
            unchecked = False
        else:
            out = forward(xp, *raws, **attrs)
        if out is not None or inputs:  # a kernel returns None for inputs that it does not support
            check_results(op, out, residuals)
        if not op.view:
            out = type(out)(_apart(x, raws) for x in out) if isinstance(out, (tuple, list)) else _apart(out, raws)
        return out

    return checking


def _apart(x, raws):
    """Returns an array that shares no memory with the inputs, which only an op with the rule view=True may do."""
    if is_raw(x) and (x.base is not None or any(x is raw for raw in raws)):
        owner = memory_owner(x)
        if any(is_raw(raw) and memory_owner(raw) is owner for raw in raws):
            return x.copy()
    return x


def _without_changes(op, forward, xp, raws, attrs):
    """Calls forward with views that cannot be written.

    Raises:
        RuntimeError: forward changes an input in place.
    """
    views = []
    for x in raws:
        if type(x) is np.ndarray:
            x = x.view()
            x.flags.writeable = False
        views.append(x)
    try:
        out = forward(xp, *views, **attrs)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        # The array that forward changed may be another read-only one. Then the error comes again.
        forward(xp, *[x.copy() if type(x) is np.ndarray else x for x in raws], **attrs)
        raise RuntimeError(
            f"{op.name}: expected forward to leave its inputs unchanged, got a change in place. Compute a new array instead, such as "
            "input + 1 for input += 1."
        ) from error
    for x in out if isinstance(out, (tuple, list)) else (out,):
        if type(x) is np.ndarray and not x.flags.writeable:  # a view of an input, which may be writable
            given = [raw for raw in raws if type(raw) is np.ndarray and np.may_share_memory(raw, x)]
            if given and all(raw.flags.writeable for raw in given):
                x.flags.writeable = True
    return out
