"""In-place operations on tensors and on views, with correct gradients.

`x.op_(…)` computes `op(x, …)`, writes the result into the memory of x, and increments the version. x gets the edge of the
result, and its previous edge becomes a parent of that edge. Gradients flow as if x were a new tensor.

If x is a view (`y = base[0]; y.add_(1)`), the base also changes. Its edge becomes a `write_region` node (CopySlices in
PyTorch), which replaces a region of the base. The edge of the view is computed again from that node. Other views of the
base do the same at their next use: they compare the edge of the base with the edge that they stored (`Tensor.edge`).

If nothing is recorded, a NumPy function writes directly into the memory of x.
"""

import numpy as np

from ...arrays import assign, device_guard, dtypes, ndarray
from ...arrays.array import Array
from ...arrays.errors import InPlaceError, warn
from ...arrays.overriding import NOTHING, asking, can_override, overriding
from ...arrays.tensor import Tensor, refresh, replace_edge
from ...autograd.mode import get_mode, inference_counter
from ...autograd.node import Leaf, Node, copy_saved
from ...kernels import parts
from .op import name_node, op, to_dtype
from .operands import is_operand
from .overlap import (
    ADDING,
    outside,
    overlaps_itself,
    refuse_overlap,
    refuse_shared,
    shares_places,
    where_written,
    write_overlapping,
)
from .precision import in_precision
from .record import ON_CPU, RECORDS

_ON_EXPANDED = frozenset(("index_put_", "index_fill_", "masked_fill_"))  # PyTorch only warns for expanded tensors
_ONE_VALUE = frozenset(("fill_", "zero_", "threshold_"))  # allowed if elements share memory


def check_writable(tensor, name):
    """Raises an error if PyTorch does not allow an in-place operation on a tensor.

    Raises:
        RuntimeError: while recording, the tensor is a leaf that requires gradients, or a view of such a leaf. Also raised
            if several elements share memory, as in an expanded tensor.
    """
    raw, counter = tensor._mt_data._array, tensor._mt_data._version_counter
    if counter is inference_counter:
        inference_counter[-1]  # raises an error outside of inference mode
    elif counter is not None and len(counter) > 1:  # nodes asked for a copy of the values before they change
        copy_saved(counter)
    if 0 in raw.strides:
        if name in _ON_EXPANDED and shares_places(raw):
            warn(
                f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                "This also applies to advanced indexing e.g. tensor[indices] = tensor"
            )
        elif name not in _ONE_VALUE:
            refuse_shared(tensor, name)
    mode = get_mode()
    if mode.interpreter:
        mode.interpreter.check_write(tensor, name)
    if isinstance(tensor, Tensor) and mode.grad:
        check_shared(tensor, name)
        _drop_hooks(tensor)


def check_shared(tensor, name):
    """Raises an error if the graph does not allow an in-place operation on a tensor.

    Raises:
        RuntimeError: the tensor is a leaf, a view of a leaf, or a result of a function that returns several views.
    """
    edge, view = tensor.edge, tensor._mt_view
    if edge is None and view is not None and view[1] is not None and tensor.dtype.is_floating_point:
        raise RuntimeError(
            f"{name}: a view was created in no_grad mode and is being modified in place with grad mode enabled. "
            "Move both inside the no_grad block, or both outside."
        )
    if isinstance(edge, Leaf):
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an in-place operation.")
    if tensor._mt_view is not None and edge is not None:
        base, _, steps = tensor._mt_view
        if base._mt_edge is None or isinstance(base._mt_edge, Leaf):
            raise RuntimeError(
                f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation."
            )
        if type(steps) is not tuple:
            raise RuntimeError(
                f"{name}: this tensor is a view made by a custom Function or a function that returns multiple views (split, chunk). "
                "It can't be modified in place while recording; clone() the tensor first."
            )


def _drop_hooks(tensor):
    """Computes the edge of a view again if it has hooks, which stay with the results that were computed from the view before."""
    edge = tensor.edge
    if tensor._mt_view is None or edge is None or "_reshaped" in tensor.__dict__:
        return
    base, _, steps = tensor._mt_view
    for _ in steps:  # the edges of this view and of the views between it and its base
        if edge.hooks:
            refresh(tensor)
            break
        edge = edge.parents[0] if edge.parents else None
        if edge is None or edge is base._mt_edge:
            break


def in_place(function, name):
    """Returns the in-place variant of a function whose first argument is the tensor."""
    into = _ufunc_of(function)
    if ON_CPU.get(name[:-1]) == "half":  # autocast has no rule for in-place variants, as in PyTorch
        function = in_precision(None, name=name)(function)
    elementwise = not name.startswith(("index_", "scatter"))
    # Arguments after these are read before the first write, so they may share memory with the tensor, as in PyTorch.
    compared = {"masked_scatter_": 1, "masked_fill_": 1, "index_fill_": 2}.get(name)

    operator = name.startswith("__")

    def in_place_variant(self, *args, **kwargs):
        if overriding.on:
            given = self, *args
            if can_override(given, kwargs):
                if (result := overriding.ask(in_place_variant.public, given, kwargs, operator)) is not NOTHING:
                    return result
        if operator and not is_operand(args[0]):
            return NotImplemented
        check_writable(self, name)
        for other in args[:compared]:
            if isinstance(other, Tensor):
                refuse_overlap(self, other, name, None, elementwise)
        # Most in-place calls are updates of parameters, where nothing is recorded. NumPy then writes into the memory directly,
        # without a temporary result of the same size.
        if into is not None and len(args) == into.nin - 1 and not kwargs and _nothing_to_record(self, args):
            array = self._mt_data
            x = array._array
            operands = [_operand(a, x) for a in args]
            if not any(o is None for o in operands):
                try:
                    if x.size < parts.LEAST:
                        into(x, *operands, out=x)
                    else:
                        parts.update(into, x, x, *operands)
                except TypeError:  # not defined for this dtype: the op names it
                    function(self, *args)
                    raise
                array._bump()
                return self
        if get_mode().interpreter:
            before = original(self)
            args = tuple([before if a is self else a for a in args])
            return overwrite(self, function(before, *args, **kwargs), name)
        return overwrite(self, function(self, *args, **kwargs), name)

    in_place_variant.__wrapped__ = function  # inspect.signature follows it
    in_place_variant.__name__ = in_place_variant.__qualname__ = name
    in_place_variant.__doc__ = (
        f"In-place variant of `Tensor.{name.rstrip('_')}`: writes the result into the tensor and returns the tensor."
    )
    return asking(in_place_variant)


def original(tensor):
    """Returns the tensor that an op reads whose result will overwrite `tensor`.

    In forward mode it is a copy, because the tangent of the result refers to the values before the change.
    """
    interpreter = get_mode().interpreter
    return tensor if interpreter is None else interpreter.original(tensor)


def overwrite(self, result, name):
    """Overwrites `self` with a result that was computed from it. Returns `self`."""
    before = self._mt_edge
    check_writable(self, name)
    if self._mt_edge is not before:  # without the hooks of the view before the change
        result._mt_edge.parents = tuple(self._mt_edge if p is before else p for p in result._mt_edge.parents)
    keep_original(self, result)
    return adopt(self, result, name)


def keep_original(self, result):
    """Copies the values of `self` that the node of the op saved, before they are overwritten."""
    node = result._mt_edge if isinstance(result, Tensor) and isinstance(self, Tensor) else None
    if not isinstance(node, Node) or type(node.saved) is not tuple:
        return
    raw, counter = self._mt_data._array, self._mt_data._version_counter

    def kept(value):
        return value.copy() if value is raw or (type(value) is ndarray and np.may_share_memory(value, raw)) else value

    # `x.mul_(y)` saves x for the gradient of y, and then overwrites it. The versions of these copies are not checked any more, because
    # no one else can change them.
    if any(pair[0] is counter for pair in node.versions):
        with device_guard(raw):
            node.saved = tuple(map(kept, node.saved))
        node.versions = [pair for pair in node.versions if pair[0] is not counter]


def _ufunc_of(function):
    """Returns the NumPy function that can write the result of an op into its first input, or None."""
    record = getattr(function, "op", None) or RECORDS.get(function.__name__)
    ufunc = getattr(np, record.xp_name, None) if record is not None and record.xp_name is not None else None
    return ufunc if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 else None


def _nothing_to_record(self, args):
    if isinstance(self, Tensor):
        mode = get_mode()
        if mode.interpreter or type(self._mt_data._array) is not ndarray or self._mt_data._array.dtype.kind != "f":
            return False
        return not mode.grad or (
            self.edge is None and not any(isinstance(a, Tensor) and a.edge is not None for a in args)
        )
    return type(self._array) is ndarray and self._array.dtype.kind == "f"


def _operand(a, x):
    """Returns the raw operand if it has the dtype of x and broadcasts to the shape of x, or None."""
    if type(a) in (float, int):
        return a if x.itemsize > 2 else None  # NumPy would round it to float16 first; the op knows if PyTorch does
    raw = a._mt_data._array if isinstance(a, Tensor) else a._array if isinstance(a, Array) else None
    if type(raw) is not ndarray or raw.dtype is not x.dtype:
        return None
    if raw.shape != x.shape and (
        raw.ndim > x.ndim or any(n not in (1, m) for n, m in zip(raw.shape[::-1], x.shape[::-1], strict=False))
    ):
        return None
    return raw


def adopt(self, result, name):
    """Copies the values of `result` into the memory of `self`, and gives `self` the edge of `result`."""
    array = self._mt_data
    raw = array._array
    value = (result._mt_data if isinstance(result, Tensor) else result)._array
    if value.shape != raw.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(raw.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    if value.dtype != raw.dtype:
        have, want = dtypes.from_numpy(value.dtype), dtypes.from_numpy(raw.dtype)
        if not dtypes.can_cast(have, want):
            raise RuntimeError(
                f"{name}: result type {dtypes.word_of(have)} can't be cast to the desired output type "
                f"{dtypes.word_of(want)}"
            )
        if name in ("abs_", "absolute_") and raw.dtype.kind == "c":
            raise RuntimeError("In-place abs is not supported for complex tensors.")
    # Windows such as those of `unfold` have several elements at one position of memory, and a plain copy would let the last one win.
    mode, changed = get_mode(), None
    if value is not raw and not (raw.flags.c_contiguous or raw.flags.f_contiguous) and overlaps_itself(raw):
        tracked = mode.interpreter is not None and (mode.interpreter.follows(self) or mode.interpreter.follows(result))
        if isinstance(self, Tensor) and mode.grad:
            tracked = tracked or self._mt_edge is not None or result._mt_edge is not None
        if name in ADDING and tracked:  # there is no formula for sums of elements that share memory
            refuse_shared(self, name, overlapping=True)
        changed = write_overlapping(raw, value.astype(raw.dtype, copy=False), name)
    elif value is not raw:
        (assign if type(raw) is not ndarray or raw.size < parts.LEAST else parts.assign)(raw, value)
    array._bump()
    if mode.interpreter:
        mode.interpreter.adopt(self, result)
    if isinstance(self, Tensor) and mode.grad:
        edge = result._mt_edge if isinstance(result, Tensor) else None
        # Constants were written over values with a history: gradients end here, and a node has to say so.
        if edge is None and self._mt_edge is not None:
            edge = _filled(self, "CopyBackwards" if name == "copy_" else torch_name_of(name))
        elif edge is not None and value.dtype != raw.dtype:
            edge = to_dtype(result, dtype=self.dtype)._mt_edge
        if edge is not None or self._mt_edge is not None:
            set_edge(self, edge, changed)
    return self


def set_edge(tensor, edge, changed=None):
    """Sets the new edge of a tensor that was changed in place, and of its base if it is a view.

    Args:
        edge: its new edge.
        changed: if elements of the tensor share memory, a mask of the elements that were changed (default: all).
    """
    view = tensor._mt_view
    if view is None:
        replace_edge(tensor, edge)
        return
    base, _, steps = view
    if type(steps) is not tuple:
        raise InPlaceError("one of several views (split, chunk, unbind) was changed in place.")
    changed = write_region(
        Tensor._of(base._mt_data, base._mt_edge), Tensor._of(tensor._mt_data, edge), steps=steps, changed=changed
    )
    replace_edge(base, changed._mt_edge)
    refresh(tensor)


@op(dtype="same", holomorphic=False, layout=None)
def constant(xp, input, values):
    """Returns `values`, for example random numbers. The gradient with respect to the input is zero, even for infinite gradients."""
    return values


constant.grad(input=lambda g, xp: xp.zeros_like(g), values=lambda g: g)


def record_fill(self, torch_name):
    """Records that constants were written into the memory of a tensor. `torch_name` is PyTorch's name of the node."""
    self._mt_data._bump()
    mode = get_mode()
    if mode.interpreter:
        mode.interpreter.adopt(self, None)
    if isinstance(self, Tensor) and mode.grad and self._mt_edge is not None:
        set_edge(self, _filled(self, torch_name))
    return self


def _filled(self, torch_name):
    """Returns the edge of a tensor after constants were written into its memory."""
    return named_constant(self, self.detach(), torch_name)._mt_edge


def named_constant(input, values, torch_name):
    """Returns `constant(input, values)`. PyTorch calls the node `torch_name`."""
    return name_node(constant(input, values), torch_name.partition("Backward")[0], torch_name)


def torch_name_of(name, number=0):
    """Returns PyTorch's name of the node of a function: EqBackward0 for `eq_`."""
    return f"{name.title().replace('_', '')}Backward{number}"


def _walk(xp, g, steps):
    for step, attrs in steps:
        g = xp.call(step, g, **attrs)
    return g


@op(dtype="same", holomorphic=False, layout=None)
def write_region(xp, input, src, *, steps, changed=None):
    """Replaces the region of the input that `steps` select by `src`. The memory already contains the values."""
    return input


write_region.grad(
    input=lambda g, steps, xp: outside(xp, g, steps),
    src=lambda g, steps, changed, xp: where_written(xp, g, _walk(xp, g, steps), steps, changed),
)
