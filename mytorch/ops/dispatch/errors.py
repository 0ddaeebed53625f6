"""Error messages for inputs that do not fit together. Messages of NumPy are replaced by messages of PyTorch."""

import re
import traceback
from inspect import Parameter

import numpy as np

from ...arrays import dtypes, is_raw, numpy_ns, out_of_memory
from ...arrays.errors import HostMemoryError, NotTensorError, kind
from .operands import namespace

_PACKAGE = __file__.rpartition("ops")[0]
# Messages of NumPy's C code about shapes, indices and dtypes. C code has no frame in a traceback, so the text has to tell.
# Both patterns are compiled by the first error, since compiling takes as long as importing a file.
_BY_NUMPY = (
    r"ufunc |matmul: |\w+: Input operand |operands? (could not|has more|does not)|non-broadcastable output|could not broadcast"
    r"|shape(s .* not aligned|-mismatch| mismatch)|cannot reshape|cannot select an axis|cannot (cast|interpret)|Cannot (cast|interpret)"
    r"|axes don't match|repeated axis|duplicate value in 'axis'|all the input arrays? |zero-dimensional arrays cannot"
    r"|need at least one array|zero-size array|attempt to get arg|index .* is out of bounds|too many indices|boolean index did"
    r"|arrays used as indices|only integers, slices|invalid entry in|data type .* not understood|einstein sum|einsum"
    r"|negative dimensions|maximum supported dimension|array is too big|setting an array element|can only convert an array"
    r"|only (length-1|size-1|0-dim)|numpy boolean|The numpy boolean|repeats may not|counts cannot|'list' argument must"
)
# The Python files of NumPy, and CuPy's files, of which those in Cython have relative names.
_FILES = rf"{re.escape(np.__path__[0])}|(.*[/\\]site-packages[/\\])?cupy(x|_backends)?[/\\]"


def _is_from_numpy(error):
    """Returns True if NumPy or CuPy raised an error about shapes, indices or dtypes."""
    if isinstance(error, np.linalg.LinAlgError) or not isinstance(error, (ValueError, TypeError, IndexError)):
        return False
    last = traceback.extract_tb(error.__traceback__, limit=-1)[-1]
    if re.match(_FILES, last.filename):
        return True
    if re.search(r"\braise\b", last.line or ""):
        return False
    return type(error).__module__.partition(".")[0] == "numpy" or re.match(_BY_NUMPY, str(error)) is not None


def translate_error(op, raws, attrs, error):
    """Raises PyTorch's error if NumPy cannot broadcast the shapes of the inputs or does not support their dtypes.

    The error of NumPy is its cause. For other errors, nothing happens, and the fast path raises them again unchanged, so that a
    mistake in the forward function of an op shows the line of the mistake.
    """
    missing = [n for n, default in op.defaults.items() if default is Parameter.empty and n not in attrs]
    if missing:
        raise TypeError(f"{op.name}() missing required argument: '{missing[0]}'.") from None
    if isinstance(error, MemoryError):
        raise (HostMemoryError(str(error)) if namespace(raws) is numpy_ns else out_of_memory(error)) from None
    if not _is_from_numpy(error):
        return
    text = str(error)
    if type(error) is ValueError and ("broadcast" in text or "core dimension" in text):
        leading = -2 if op.name == "matmul" else None
        shapes = [r.shape[:leading] for r in raws if is_raw(r)]
        raise RuntimeError(
            _sizes_differ(shapes) or f"{op.name}: shapes {', '.join(map(str, shapes))} do not go together."
        ) from error
    if not text.startswith("ufunc "):
        given = ", ".join(str(tuple(r.shape)) if is_raw(r) else repr(r) for r in raws)
        kind_of_error = IndexError if isinstance(error, IndexError) else RuntimeError
        raise kind_of_error(f"{op.name}: shapes or options that do not fit; inputs: {given} ({text})") from error
    names = dict.fromkeys(dtypes.from_numpy(r.dtype).name if is_raw(r) else kind(r) for r in raws if r is not None)
    raise NotImplementedError(f'"{op.name}" is not implemented for {" and ".join(names)}.') from error


def not_a_tensor(error, name, args):
    """Returns the TypeError to raise for an AttributeError of this library if an argument is not a tensor.

    Other errors are returned unchanged.

    Args:
        error: the AttributeError.
        name: name of the function or class.
        args: arguments of the call.
    """
    if traceback.extract_tb(error.__traceback__, limit=-1)[-1].filename.startswith(_PACKAGE):
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
    if shapes and shapes.count(shapes[0]) == len(shapes):  # NumPy's function takes longer than a small op
        return tuple(shapes[0])
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
