"""Error messages for inputs that do not fit together. Messages of NumPy are replaced by messages of PyTorch."""

import traceback
from inspect import Parameter

import numpy as np

from ..backend import is_raw, numpy_ns, out_of_memory
from ..base import dtypes
from ..base.errors import kind
from .operands import namespace

PACKAGE = __file__.rpartition("dispatch")[0]


def _is_own(error):
    """Returns True if this library raised an error, and not NumPy. A LinAlgError also counts as an error of this library."""
    if isinstance(error, np.linalg.LinAlgError):
        return True
    # An error of NumPy has the frame of its caller, as NumPy is no Python code. The line of this frame is then a call.
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(PACKAGE) and (not last.line or last.line.startswith("raise "))


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
        return error if namespace(raws) is numpy_ns else out_of_memory(error)
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
