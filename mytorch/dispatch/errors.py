"""Error messages for inputs that do not fit together. Messages of NumPy are replaced by messages of PyTorch."""

import opcode
from inspect import Parameter

import numpy as np

from ..backend import is_raw, numpy_ns, out_of_memory
from ..base import dtypes
from ..base.errors import HostMemoryError, NotTensorError, kind
from .operands import namespace

PACKAGE = __file__.rpartition("dispatch")[0]
RAISE = opcode.opmap["RAISE_VARARGS"]


def _is_own(error):
    """Returns True if this library raised an error, and not NumPy. A LinAlgError also counts as an error of this library."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raises = trace.tb_lasti >= 0 and code.co_code[trace.tb_lasti] == RAISE
    return isinstance(error, np.linalg.LinAlgError) or (raises and code.co_filename.startswith(PACKAGE))


def translate_error(op, raws, attrs, error):
    """Returns the error to raise if NumPy cannot broadcast the shapes of the inputs or does not support their dtypes.

    Other errors are returned unchanged.
    """
    missing = [n for n, default in op.defaults.items() if default is Parameter.empty and n not in attrs]
    if missing:
        return TypeError(f"{op.name}() missing required argument: '{missing[0]}'.")
    text = str(error)
    if _is_own(error):
        return error
    if isinstance(error, MemoryError):
        return HostMemoryError(text) if namespace(raws) is numpy_ns else out_of_memory(error)
    if type(error).__module__.partition(".")[0] not in ("builtins", "numpy"):  # from CUDA or Triton
        return error
    if type(error) is ValueError and ("broadcast" in text or "core dimension" in text):
        leading = -2 if op.name == "matmul" else None
        shapes = [r.shape[:leading] for r in raws if is_raw(r)]
        return RuntimeError(
            _sizes_differ(shapes) or f"{op.name}: shapes {', '.join(map(str, shapes))} do not go together."
        )
    if not text.startswith("ufunc "):
        given = ", ".join(str(tuple(r.shape)) if is_raw(r) else repr(r) for r in raws)
        kind_of_error = IndexError if isinstance(error, IndexError) else RuntimeError
        return kind_of_error(f"{op.name}: shapes or options that do not fit; inputs: {given} ({text})")
    names = dict.fromkeys(dtypes.from_numpy(r.dtype).name if is_raw(r) else kind(r) for r in raws if r is not None)
    return NotImplementedError(f'"{op.name}" is not implemented for {" and ".join(names)}.')


def not_a_tensor(error, name, args):
    """Returns the TypeError to raise for an AttributeError of this library if an argument is not a tensor.

    Other errors are returned unchanged.

    Args:
        error: the AttributeError.
        name: name of the function or class.
        args: arguments of the call.
    """
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    if trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
        for place, arg in enumerate(args, 1):
            for item in (arg, *arg) if isinstance(arg, (list, tuple)) else (arg,):
                if item is error.obj and isinstance(item, (int, float, complex, str, list, tuple, dict, type(None))):
                    return NotTensorError(f"{name}(): expected Tensor in argument {place}, but got {kind(item)}")
    return error


def broadcast(*shapes):
    """Returns the shape to which shapes broadcast.

    Raises:
        RuntimeError: shapes cannot be broadcast.
    """
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        raise RuntimeError(_sizes_differ(shapes)) from None


def expandable(tensor, shape, name):
    """Checks that a tensor can be broadcast to a shape.

    Raises:
        RuntimeError: it cannot.
    """
    shape, own = tuple(shape), tuple(tensor.shape)
    if own != shape and (
        len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False))
    ):
        raise RuntimeError(
            f"{name}: the tensor of shape {own} can't be expanded to {shape}, as every size must be 1 or equal."
        )


def _sizes_differ(shapes):
    """Returns PyTorch's error message for the first axis at which shapes cannot be broadcast; None if they can."""
    ndim = max(map(len, shapes), default=0)
    for d in reversed(range(ndim)):
        size = 1
        for shape in shapes:
            n = shape[d - ndim] if ndim - d <= len(shape) else 1
            if size != n and size != 1 and n != 1:
                return (
                    f"The size of tensor a ({size}) must match the size of tensor b ({n}) at non-singleton dimension {d} "
                    f"(the shapes are {', '.join(str(tuple(shape)) for shape in shapes)})"
                )
            size = n if size == 1 else size
    return None
