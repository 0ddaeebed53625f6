"""Implementations of ops and functions for tensors of another layout than `strided`, such as sparse tensors.

A raw array of another layout has the attribute `tensor_layout`. An op or function that meets one looks up (its name, the
layout) in a table, as it looks up a kernel for a device. An implementation computes with ops on the parts of its inputs,
which give its gradient. Without an implementation, there is an error: no op converts a tensor to dense.
"""

from ...arrays import ndarray
from ...arrays.array import Array
from ...arrays.memory_format import layout_of, strided
from ...arrays.tensor import Tensor

_IMPLEMENTATIONS = {}  # (name of an op or function, layout) -> function


def implements(*names, layouts):
    """Decorates an implementation of the ops or functions with these names, for tensors of some layouts.

    An implementation of an op receives (op, inputs, attributes), with Arrays as Tensors. An implementation of a function has the
    arguments of the function.
    """

    def register(function):
        _IMPLEMENTATIONS.update(((name, layout), function) for name in names for layout in layouts)
        return function

    return register


def refusal(name, layout):
    """Returns the error of an op or function that does not support a layout."""
    return NotImplementedError(
        f"{name}: expected a dense tensor, got layout {layout!r}. Call to_dense() on the tensor first."
    )


def implementation(name, layout):
    """Returns the implementation of an op or function for a layout.

    Raises:
        NotImplementedError: there is none.
    """
    found = _IMPLEMENTATIONS.get((name, layout))
    if found is None:
        raise refusal(name, layout)
    return found


def other_layout(name, *tensors):
    """Returns the implementation of a function for the first tensor that is not `strided`; None if all tensors are."""
    for x in tensors:
        raw = getattr(getattr(x, "_mt_data", None), "_array", None)
        if type(raw) is not ndarray and (layout := layout_of(raw)) is not strided:
            return implementation(name, layout)
    return None


def creation(name, layout, like):
    """Returns the implementation of a creation function for the requested layout or the layout of a tensor. None for `strided`."""
    if layout in (None, strided):
        return None if like is None else other_layout(name, like)
    return _IMPLEMENTATIONS.get((name, layout))


def run(op, inputs, attrs, layout):
    """Runs the implementation of an op for a layout."""
    tensors = [Tensor._of(x) if isinstance(x, Array) else x for x in inputs]
    result = implementation(op.name, layout)(op, tensors, attrs)
    if any(isinstance(x, Tensor) for x in inputs):
        return result
    return result._mt_data if isinstance(result, Tensor) else tuple(r._mt_data for r in result)
