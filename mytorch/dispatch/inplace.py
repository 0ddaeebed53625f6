"""In-place operations, on tensors and on views of tensors, with right gradients.

`x.op_(…)` computes `op(x, …)`, writes the result into x's memory, raises the version, and gives x the
result's edge; the old edge is that edge's parent, so gradients flow as if x were a new tensor.

If x is a view (`y = base[0]; y.add_(1)`), the base changes too. Its edge becomes "the base with this
region replaced" (a `write_region` node, PyTorch's CopySlices), and the view's own edge is regenerated
from it. Other views of the base notice when they are next used: the base's edge is no longer the one
that they remember (`Tensor.edge`).

Where nothing is recorded, a plain NumPy function writes straight into x's memory.
"""

import numpy as np

from .._array import Array
from .._tensor import RESHAPED, Tensor
from ..backend import assign, device_guard, ndarray
from ..base import dtypes
from ..base.errors import InPlaceError, warn
from ..engine.mode import get_mode
from ..engine.node import Leaf, Node
from .op import op, to_dtype
from .overlap import outside, refuse_overlap, refuse_shared, shares_places, where_written
from .record import RECORDS

_ON_EXPANDED = frozenset(("index_put_", "index_fill_", "masked_fill_"))  # which PyTorch only warns of
_ONE_VALUE = frozenset(("fill_", "zero_"))  # which may share places


def check_writable(tensor, name):
    """Raise where PyTorch refuses an in-place operation.

    Raises:
        RuntimeError: a leaf that requires grad (or a view of one) while recording, or memory in which
            several elements share a place (an expanded tensor).
    """
    raw = tensor._data._array
    if 0 in raw.strides:
        if name in _ON_EXPANDED and shares_places(raw):
            warn(
                f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                "This also applies to advanced indexing e.g. tensor[indices] = tensor"
            )
        elif name not in _ONE_VALUE:
            refuse_shared(tensor, name)
    if isinstance(tensor, Tensor) and get_mode().grad:
        check_shared(tensor, name)


def check_shared(tensor, name):
    """Raise where a graph does not let a tensor change: a leaf, a view of one, one of several views.

    Raises:
        RuntimeError: it is one of these.
    """
    edge = tensor.edge
    if isinstance(edge, Leaf):
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an in-place operation.")
    if tensor._view is not None and edge is not None:
        base, _, steps = tensor._view
        if isinstance(base._edge, Leaf):
            raise RuntimeError(
                f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation."
            )
        if steps is None:
            raise RuntimeError(
                f"{name}: this tensor is a view made by a function that returns multiple views (split, chunk, unbind); "
                "such views can't be modified in place while recording. clone() it first."
            )


def in_place(function, name):
    """Returns the in-place variant of a function whose first argument is the tensor."""
    into = _ufunc_of(function)
    elementwise = not name.startswith(("index_", "scatter", "masked_scatter"))

    def in_place_variant(self, *args, **kwargs):
        check_writable(self, name)
        for other in args:
            if isinstance(other, Tensor):
                refuse_overlap(self, other, name, None, elementwise)
        if into is not None and len(args) == into.nin - 1 and not kwargs and _nothing_to_record(self, args):
            array = self._data
            x = array._array
            operands = [_operand(a, x) for a in args]
            if not any(o is None for o in operands):
                into(x, *operands, out=x)
                array._bump()
                return self
        return overwrite(self, function(self, *args, **kwargs), name)

    in_place_variant.__wrapped__ = function  # inspect.signature follows it
    in_place_variant.__name__ = in_place_variant.__qualname__ = name
    in_place_variant.__doc__ = f"In-place version of `{name.rstrip('_')}`; returns self."
    return in_place_variant


def overwrite(self, result, name):
    """Make `self` hold a result that was computed from it; returns self."""
    check_writable(self, name)
    _keep_original(self, result)
    return adopt(self, result, name)


def _keep_original(self, result):
    """Where the op's node saved the values that are about to be overwritten, let it save a copy of them."""
    node = result._edge if isinstance(result, Tensor) and isinstance(self, Tensor) else None
    if type(node) is not Node or type(node.saved) is not tuple:
        return
    raw, counter = self._data._array, self._data._version_counter

    def kept(value):
        return value.copy() if value is raw or (type(value) is ndarray and np.may_share_memory(value, raw)) else value

    if any(pair[0] is counter for pair in node.versions):
        with device_guard(raw):
            node.saved = tuple(map(kept, node.saved))
        node.versions = [pair for pair in node.versions if pair[0] is not counter]


def _ufunc_of(function):
    """NumPy's function that writes the result of an op into its first input itself; None if there is none."""
    record = getattr(function, "op", None) or RECORDS.get(function.__name__)
    ufunc = getattr(np, record.xp_name, None) if record is not None and record.xp_name is not None else None
    return ufunc if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 else None


def _nothing_to_record(self, args):
    if isinstance(self, Tensor):
        mode = get_mode()
        if mode.interpreter or type(self._data._array) is not ndarray or self._data._array.dtype.kind != "f":
            return False
        return not mode.grad or (
            self.edge is None and not any(isinstance(a, Tensor) and a.edge is not None for a in args)
        )
    return type(self._array) is ndarray and self._array.dtype.kind == "f"


def _operand(a, x):
    """The raw operand, if it has x's dtype and broadcasts to x's shape; else None."""
    if type(a) in (float, int):
        return a
    raw = a._data._array if isinstance(a, Tensor) else a._array if isinstance(a, Array) else None
    if type(raw) is not ndarray or raw.dtype is not x.dtype:
        return None
    if raw.shape != x.shape and (
        raw.ndim > x.ndim or any(n not in (1, m) for n, m in zip(raw.shape[::-1], x.shape[::-1], strict=False))
    ):
        return None
    return raw


def adopt(self, result, name):
    """Make `self` hold `result`: its values in self's memory, its edge as self's edge."""
    array = self._data
    raw = array._array
    value = (result._data if isinstance(result, Tensor) else result)._array
    if value.shape != raw.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(raw.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    if value.dtype != raw.dtype:
        have, want = dtypes.from_numpy(value.dtype), dtypes.from_numpy(raw.dtype)
        if not dtypes.can_cast(have, want):
            raise RuntimeError(
                f"{name}: result type {dtypes.TYPE_WORDS.get(have.name, have.name)} can't be cast to the desired output type "
                f"{dtypes.TYPE_WORDS.get(want.name, want.name)}"
            )
    if value is not raw:
        assign(raw, value)
    array._bump()
    mode = get_mode()
    if mode.interpreter:
        mode.interpreter.adopt(self, result)
    if isinstance(self, Tensor) and mode.grad:
        edge = result._edge if isinstance(result, Tensor) else None
        if edge is None and self._edge is not None:
            edge = (self * 0)._edge  # a constant: nothing of it reaches what was there before
        if edge is not None and value.dtype != raw.dtype:
            edge = to_dtype(result, dtype=self.dtype)._edge
        if edge is not None or self._edge is not None:
            set_edge(self, edge)
    return self


def set_edge(tensor, edge):
    """Give a tensor that was changed in place its new edge; a view's base is given one too."""
    view = tensor._view
    if view is None:
        tensor._edge = edge
        return
    base, _, steps = view
    if base._view is not None or steps is None:
        raise InPlaceError(
            RESHAPED if steps is not None else "one of several views (split, chunk, unbind) was given a graph."
        )
    region = Tensor._of(tensor._data, edge)
    before = Tensor._of(base._data, base._edge)
    changed = write_region(before, region, steps=steps)
    base._edge = changed._edge
    fresh = base
    for step, attrs in steps:
        fresh = step(fresh, **attrs)
    tensor._edge = fresh._edge
    tensor._view = (base, base._edge, steps)


def _walk(xp, g, steps):
    for step, attrs in steps:
        g = xp.call(step, g, **attrs)
    return g


@op(dtype="same")
def write_region(xp, input, src, *, steps):
    """input with the region that `steps` lead to replaced by src; the memory holds that already."""
    return input


write_region.grad(
    input=lambda g, steps, xp: xp.where(xp.asarray(outside(g.shape, steps)), g, 0.0),
    src=lambda g, steps, xp: where_written(xp, _walk(xp, g, steps), g.shape, steps),
)
