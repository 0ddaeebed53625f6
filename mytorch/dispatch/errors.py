"""What is said of inputs that do not go together, in PyTorch's words where NumPy's are others."""

import opcode
from inspect import Parameter

import numpy as np

from ..backend import is_raw, numpy_ns, out_of_memory
from ..base import dtypes
from ..base.errors import kind
from .operands import namespace

PACKAGE = __file__.rpartition("dispatch")[0]
RAISE = opcode.opmap["RAISE_VARARGS"]


def _is_own(error):
    """Whether a statement of this library raised an error, rather than NumPy; LinAlgError is PyTorch's too."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raises = trace.tb_lasti >= 0 and code.co_code[trace.tb_lasti] == RAISE
    return isinstance(error, np.linalg.LinAlgError) or (raises and code.co_filename.startswith(PACKAGE))


def translate_error(op, raws, attrs, error):
    """The error to raise where NumPy can't bring these shapes together or has no function for these dtypes.

    Any other error is returned as it is.
    """
    missing = [n for n, default in op.defaults.items() if default is Parameter.empty and n not in attrs]
    if missing:
        return TypeError(f"{op.name}() missing required argument: '{missing[0]}'.")
    text = str(error)
    if _is_own(error):
        return error
    if isinstance(error, MemoryError):
        return error if namespace(raws) is numpy_ns else out_of_memory(error)
    if type(error).__module__.partition(".")[0] not in ("builtins", "numpy"):  # CUDA's, Triton's
        return error
    if type(error) is ValueError and ("broadcast" in text or "core dimension" in text):
        leading = -2 if op.name == "matmul" else None
        shapes = [r.shape[:leading] for r in raws if is_raw(r)]
        return RuntimeError(
            _sizes_differ(shapes) or f"{op.name}: shapes {', '.join(map(str, shapes))} do not go together."
        )
    if text.startswith("numpy boolean subtract"):
        return RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        )
    if not text.startswith("ufunc "):
        given = ", ".join(str(tuple(r.shape)) if is_raw(r) else repr(r) for r in raws)
        kind_of_error = IndexError if isinstance(error, IndexError) else RuntimeError
        return kind_of_error(f"{op.name}: shapes or options that do not fit; inputs: {given} ({text})")
    names = dict.fromkeys(dtypes.from_numpy(r.dtype).name if is_raw(r) else kind(r) for r in raws if r is not None)
    return NotImplementedError(f'"{op.name}" is not implemented for {" and ".join(names)}.')


def broadcast(*shapes):
    """The shape that all broadcast to.

    Raises:
        RuntimeError: there is none.
    """
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        raise RuntimeError(_sizes_differ(shapes)) from None


def expandable(tensor, shape, name):
    """Refuse a tensor that does not broadcast to exactly this shape.

    Raises:
        RuntimeError: it does not.
    """
    shape, own = tuple(shape), tuple(tensor.shape)
    if own != shape and (
        len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False))
    ):
        raise RuntimeError(
            f"{name}: the tensor of shape {own} can't be expanded to {shape}, as every size must be 1 or equal."
        )


def _sizes_differ(shapes):
    """PyTorch's sentence on the first axis at which shapes don't broadcast; None if they do."""
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
