"""Operations on tensors of the meta device."""

from ...arrays import MetaArray, as_hollow_zeros, emptied
from ...arrays.array import Array
from ...arrays.tensor import Tensor
from .unwrap import raw_of


def on_meta(op, inputs, attrs):
    """Returns the result of an op for tensors on the meta device. A run with zeros determines its shape and dtype."""
    # The number of selected elements depends on values, which meta tensors do not have.
    for mask in map(raw_of, inputs[op.floats :]):
        if type(mask) is MetaArray and mask.dtype == bool:
            mask.nonzero()  # raises an error
    # Each op knows the shape of its result only by computing it. The zeros are one element with strides of 0, so they need no memory,
    # but the result of the run does for a moment.
    zeros = [
        Tensor._wrap(as_hollow_zeros(r))
        if type(r := getattr(getattr(t, "_mt_data", t), "_array", t)) is MetaArray
        else t
        for t in inputs
    ]
    found = op.dispatch(*zeros, fused=False, **attrs)
    for out in found if isinstance(found, (tuple, list)) else (found,):
        out._mt_data = Array._wrap(emptied(out._mt_data._array))
        out._mt_view = out._mt_edge = None
    return found
