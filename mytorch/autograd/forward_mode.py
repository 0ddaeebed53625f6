"""Forward mode: ops compute the tangents of their results from the tangents of their inputs.

Inside a `Level`, a tensor can have a tangent: the derivative of its values in some direction. The tangent of a result is
derived from the gradient formulas of the op, so ops need no second rule:

* An op that returns a view is linear. It is applied to the tangent, and the result is a view of the tangent.
* The gradient formula of an elementwise op, g -> g f'(x), is its own transpose. It is called with the tangent as g.
* An op with residuals is composed of other ops, as for a second derivative.
* Any other formula is a linear map u -> Jᵀ u of the upstream gradient. Its backward is the transpose, t -> J t.

These computations run outside of the level, so levels can be nested. They use Tensors, so tangents have a graph (reverse
over forward). For forward over reverse, the level stores the tangents of the inputs and outputs of each recorded node, and
backward gives them to the saved tensors again (`restore`).

A tangent is never changed in place, because nodes and the level refer to it. A change in place of a tensor gives the tensor
a new tangent. The tangent of a view is not stored, but computed from the tangent of its base.

Source: Griewank, Walther: Evaluating Derivatives, 2008; Radul et al.: You Only Linearize Once, 2022.
"""

import weakref
from contextvars import ContextVar

import numpy as np

from ..arrays import MetaArray, device_guard, memory_owner, storage_bytes, xp_of
from ..arrays.array import Array
from ..arrays.tensor import Tensor
from ..ops.creation import zeros_like
from ..ops.dispatch.interpreter import Interpreter, interpreting
from ..ops.dispatch.unwrap import raw_of
from .backward_call import grad
from .mode import enable_grad, get_mode, in_mode
from .node import Leaf, OutputEdge
from .tensor_ns import RecordedArithmetic, in_float32, over_tensors, tensor_ns

enabled: ContextVar[bool] = ContextVar("mytorch_forward_mode", default=True)  # False: ops compute no tangents


class Level(Interpreter):
    """One direction of differentiation. Tensors store their tangent for each level as an attribute."""

    def __init__(self):
        super().__init__()
        self.holders = []
        self.nodes = weakref.WeakKeyDictionary()

    def close(self):
        """Deletes the tangents and the stored tensors of this level."""
        for holder in self.holders:
            tensor = holder()
            if tensor is not None:
                tensor.__dict__.get("_tangents", {}).pop(self, None)
        self.holders = []
        self.nodes.clear()

    # -- tangents ---------------------------------------------------------------------------------------------

    def tangent(self, x):
        """Returns the tangent of a tensor, or None. The tangent of a view is a view of the tangent of its base."""
        if not isinstance(x, Tensor):
            return None
        base, steps = _base_of(x)
        found = base.__dict__.get("_tangents", _NONE).get(self)
        if found is None:
            return None
        with self.outside():
            if type(found) is _Given:
                found = found.current()
            if not steps:
                return found
            return _along(found, steps) if _has_tangents(x) else None

    def shown(self, x):
        """Returns the tangent of a tensor for the user: of a dual tensor, the tensor that the user gave, or a view of it."""
        base, steps = _base_of(x)
        found = base.__dict__.get("_tangents", _NONE).get(self)
        if type(found) is not _Given:
            return self.tangent(x)
        with self.outside():
            return _along(found.tensor, steps)

    def follows(self, x):
        return self.tangent(x) is not None or super().follows(x)

    def give(self, tensor, tangent):
        """Sets the tangent of a tensor."""
        tangents = tensor.__dict__.setdefault("_tangents", {})
        given = tangents.get(self)
        if type(given) is _Given and type(tangent) is not _Given and not isinstance(given.tensor.edge, Leaf):
            with self.outside():
                given.change(tangent)
            return tensor
        tangents[self] = tangent
        self.holders.append(weakref.ref(tensor))
        return tensor

    def dual(self, primal, tangent):
        """Returns a tensor that shares the memory of `primal`, with a tangent and with its tangents of other levels."""
        with self.outside():
            dual = _same_tensor(primal)
            if not _same_layout(primal, tangent):
                tangent = _in_layout_of(primal).copy_(tangent)
        return self.give(dual, _Given(tangent))

    def primal(self, tensor):
        """Returns a tensor that shares the memory of `tensor`, without the tangent of this level."""
        same = _same_tensor(tensor)
        same.__dict__.get("_tangents", {}).pop(self, None)
        return same

    def detach(self, tensor, cut=None):
        return _detached(tensor, cut or (lambda tangent: tangent))

    # -- ops --------------------------------------------------------------------------------------------------

    def __call__(self, record, inputs, fused, attrs):
        mode = get_mode()
        if mode.autocast is not None:
            inputs, attrs = mode.autocast.cast(record, inputs, attrs)
        tangents = [self.tangent(x) for x in inputs] if enabled.get() else []
        if all(t is None for t in tangents):
            with self.outside():
                return record.dispatch(*inputs, fused=fused, **attrs)
        if record.residuals:
            with interpreting(self, autocast=None):
                return self.composed(record, inputs, attrs)
        with interpreting(self.outer, autocast=None):
            out = record.dispatch(*inputs, fused=fused, **attrs)
            if not record.is_differentiable:
                if record.lacks_gradient and any(
                    o.dtype.is_floating_point or o.dtype.is_complex for o in (out if record.outputs else (out,))
                ):
                    record.raise_no_gradient()
                return out
            outs = tuple(out) if record.outputs else (out,)
            if record.view:
                if any(_base_of(o)[0] is o for o in outs):  # a copy, such as a reshape of a transposed tensor
                    found = record.dispatch(tangents[0], *inputs[1:], **attrs)
                    for o, t in zip(outs, found if record.outputs else (found,), strict=True):
                        if _base_of(o)[0] is o:
                            self.give(o, t)
                return out
            # Hooks see what the op saves, not what its tangents save.
            with in_mode(get_mode().replace(saved_hooks=None)):
                found = tangents_of(record, inputs, outs, tangents, attrs)
            found = [t.clone() if any(_shares(t, x) for x in tangents) else t for t in found]
        for o, t in zip(outs, found, strict=False):
            if t is not None:
                self.give(o, t)
        edge = next((o._mt_edge for o in outs if o._mt_edge is not None), None)
        if edge is not None:
            self.nodes[edge.node if type(edge) is OutputEdge else edge] = tangents, found
        return out

    @staticmethod
    def composed(record, inputs, attrs):
        """Runs an op with residuals as a composition of the ops that its reference calls."""
        first = next(x for x in inputs if isinstance(x, Tensor))
        try:
            return over_tensors(record, first, inputs, attrs)
        except (AttributeError, NotImplementedError) as error:
            raise NotImplementedError(
                f"Trying to use forward AD with {record.name} that does not support it because it has not been implemented yet: {error}"
            ) from error

    def restore(self, tensor, node, is_output, i):
        super().restore(tensor, node, is_output, i)
        stored = self.nodes.get(node, ((), ()))[is_output]
        tangent = stored[i] if i < len(stored) else None
        if tangent is not None:
            if tangent.dtype is not tensor.dtype:  # the op promoted its inputs
                with self.outside():
                    tangent = tangent.to(tensor.dtype)
            self.give(tensor, tangent)

    # -- in place ---------------------------------------------------------------------------------------------

    def check_write(self, tensor, name):
        super().check_write(tensor, name)
        if name in ("resize_", "set_") and self.tangent(tensor) is not None:
            raise RuntimeError(
                f"{name}: cannot change the memory of variables that have a forward grad. Use clone() first."
            )

    def original(self, tensor):
        if not isinstance(tensor, Tensor):
            return tensor
        with self.outside():
            copy = Tensor._of(tensor._mt_data).clone()
        same = Tensor._of(copy._mt_data, tensor.edge)
        for level, tangent in _tangents_of(tensor).items():
            level.give(same, tangent)
        return same

    def adopt(self, tensor, result):
        super().adopt(tensor, result)
        new = self.tangent(result)
        if not enabled.get() or not isinstance(tensor, Tensor) or (new is None and self.tangent(tensor) is None):
            return
        with self.outside():
            if new is None:
                new = zeros_like(tensor.detach())
            elif new.dtype is not tensor.dtype:
                new = new.to(tensor.dtype)
        if _base_of(tensor)[0] is tensor:
            self.give(tensor, new)
        else:
            self._write(tensor, new, lambda part: part.copy_(new))

    def set_item(self, tensor, index, value):
        super().set_item(tensor, index, value)
        new = self.tangent(value)
        if not enabled.get() or not isinstance(tensor, Tensor) or (new is None and self.tangent(tensor) is None):
            return

        def assign(part):
            part[index] = 0 if new is None else new

        self._write(tensor, new, assign)

    def _write(self, tensor, new, write):
        """Gives a tensor, or its base, a new tangent: a copy of its tangent, or zeros, to whose part `write` writes `new`."""
        base, steps = _base_of(tensor)
        with self.outside():
            old = self.tangent(base)
            tracked = isinstance(base._mt_data._array, MetaArray) or (
                old is not None and isinstance(old._mt_data._array, MetaArray)
            )
            if tracked:
                copy = zeros_like(base.detach()) if old is None else old.clone()
            else:
                copy = _in_layout_of(base)
                if old is not None:
                    copy.copy_(old)
            if new is not None and self.outer is not None:
                copy = self.outer.writable(copy, new)
            write(_along(copy, steps))
        self.give(base, copy)

    def check_out(self, tensors):
        super().check_out(tensors)
        if any(self.tangent(t) is not None for t in tensors):
            raise RuntimeError(
                "functions with out=... arguments don't support automatic differentiation, but one of the arguments has a "
                "forward gradient: the out= function is not supported in forward mode."
            )

    def apply(self, function, args, kwargs):
        """Runs a custom autograd.Function; its `jvp` computes the tangents."""
        tangents = [self.tangent(a) for a in args] if enabled.get() else []
        if all(t is None for t in tangents):
            return super().apply(function, args, kwargs)
        with self.outside():
            if self.outer is not None and any(self.outer.follows(a) for a in args):
                raise NotImplementedError(
                    f"{function.__name__}: a custom autograd.Function supports one level of forward mode, not several."
                )
            ctx, result, changed = function._apply(args, kwargs, keep=True)
            outs = result if isinstance(result, tuple) else (result,)
            if ctx._materialize:
                tangents = [
                    zeros_like(a) if t is None and isinstance(a, Tensor) and _has_tangents(a) else t
                    for a, t in zip(args, tangents, strict=True)
                ]
            found = function._run_jvp(ctx, tangents)
        if len(found) != len(outs):
            raise RuntimeError(
                f"{function.__name__}.jvp returned an incorrect number of tangents (expected {len(outs)}, got {len(found)})"
            )
        for o, t in zip(outs, found, strict=True):
            if t is None or not isinstance(o, Tensor) or any(o is x for x in ctx._non_differentiable):
                continue
            if tuple(t.shape) != tuple(o.shape):
                raise RuntimeError(
                    f"{function.__name__}.jvp: expected a tangent of shape {tuple(o.shape)}, as the output, got {tuple(t.shape)}."
                )
            if any(o is x for x in changed):
                self._write(o, t, lambda part, t=t: part.copy_(t))
            else:
                self.give(o, t)
        return result


class _Given:
    """A tangent that the user gave. Ops use a copy, since a change in place of the dual tensor also changes the tangent."""

    __slots__ = ("copy", "tensor", "version")

    def __init__(self, tensor):
        self.tensor = tensor
        self.copy = self.version = None

    def current(self):
        version = self.tensor._mt_data.shared_version_counter()[0]
        if version != self.version:
            self.copy, self.version = self.tensor.clone(), version
        return self.copy

    def change(self, tangent):
        """Writes a new tangent into the tensor of the user."""
        self.tensor.copy_(tangent)
        self.copy, self.version = tangent, self.tensor._mt_data.shared_version_counter()[0]


_NONE: dict = {}


def _base_of(tensor):
    """Returns the tensor that stores the tangent of a tensor, and the view ops from there."""
    view = tensor._mt_view
    if view is None or view[2] is None:
        return tensor, ()
    base, _, steps = view
    return (base if base._mt_view is None else base._mt_view[0]), steps  # of a base with a new shape: the former shape


def _along(tangent, steps):
    """Applies the view ops `steps` to a tangent."""
    for op, attrs, *place in steps:
        if place:
            op, attrs = op.part(*place, **attrs)
        tangent = op.dispatch(tangent, **attrs)
    return tangent


def _tangents_of(tensor):
    """Returns the tangents of a tensor at all levels."""
    return {level: level.tangent(tensor) for level in _base_of(tensor)[0].__dict__.get("_tangents", _NONE)}


def _has_tangents(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _shares(tangent, other):
    """Returns True if two tangents share memory. A change in place of a result must not change the tangents of the inputs."""
    if tangent is None or other is None or isinstance(tangent._mt_data._array, MetaArray):
        return tangent is other and tangent is not None
    return tangent is other or memory_owner(tangent._mt_data._array) is memory_owner(other._mt_data._array)


def _same_layout(primal, tangent):
    """Returns True if a primal and a tangent have the same strides, so that view ops have the same effect on both."""
    if not primal.numel() or isinstance(primal._mt_data._array, MetaArray):  # arrays without memory
        return True
    if _items(primal._mt_data._array) != _items(tangent._mt_data._array):
        return False
    steps = zip(primal.shape, primal.stride(), tangent.stride(), strict=True)
    return all(a == b for n, a, b in steps if n > 1)


def _items(raw):
    """Returns how many elements the memory of an array has."""
    return raw.size if isinstance(raw, MetaArray) else storage_bytes(raw).size // raw.itemsize


def _in_layout_of(tensor):
    """Returns zeros with the strides of a tensor."""
    raw = tensor._mt_data._array
    with device_guard(raw):
        memory = xp_of(raw).zeros(_items(raw), raw.dtype)
        return Tensor._wrap(xp_of(raw).lib.stride_tricks.as_strided(memory, raw.shape, raw.strides))


def _same_tensor(tensor):
    """Returns another tensor with the same memory, the same position in the graph, and the same tangents."""
    edge = tensor.edge
    same = Tensor._of(tensor._mt_data, edge if edge is None else tensor.view_as(tensor)._mt_edge)
    tangents = _tangents_of(tensor)
    for level in list(tangents):
        level.give(same, tangents[level])
    return same


def _detached(tensor, cut=None):
    """Returns a detached tensor. `cut` detaches its tangents."""
    out = Tensor._of(tensor._mt_data)
    for level, tangent in list(_tangents_of(tensor).items()):
        level.give(out, (cut or _detached)(tangent))
    return out


# -- from a gradient formula to a tangent ---------------------------------------------------------------------


def tangents_of(record, inputs, outs, tangents, attrs):
    """Computes the tangents of the results of an op, J t, from its gradient formulas Jᵀ.

    Args:
        record: the op.
        inputs: inputs of the op.
        outs: outputs of the op.
        tangents: tangents of the inputs; None for constants.
        attrs: attributes of the op.

    Returns:
        A list with a tangent for each output; None for outputs without a derivative.
    """
    implementation = record.reference
    wanted = [i for i, t in enumerate(tangents) if t is not None]
    names = [record.input_name(i) for i in wanted]
    if implementation.vjp is None and not any(n in implementation.formulas for n in names):
        return [None] * len(outs)
    values = _values(record, inputs, outs, tangents, attrs)
    if implementation.vjp is None and _is_elementwise(record, inputs, outs):
        return [_elementwise(record, values, outs[0], [(n, tangents[i]) for n, i in zip(names, wanted, strict=True)])]
    keeps = get_mode().grad
    if not keeps:
        values = {n: _constant(v) for n, v in values.items()}
        tangents = [None if t is None else _detached(t) for t in tangents]
    with enable_grad():
        found = _transposed(record, values, outs, [(i, inputs[i], tangents[i]) for i in wanted])
    return found if keeps else [None if t is None else _detached(t) for t in found]


def _is_elementwise(record, inputs, outs):
    """Returns True if the gradient formula multiplies each element of the upstream gradient by the derivative."""
    function = getattr(np, record.xp_name or "", None)
    if not isinstance(function, np.ufunc) or function.signature is not None or not record.holomorphic:
        return False
    return outs[0].dtype.is_complex or not any(isinstance(x, Tensor) and x.dtype.is_complex for x in inputs)


def _elementwise(record, values, out, pairs):
    total = None
    for name, tangent in pairs:
        formula = record.reference.formulas.get(name)
        if formula is not None:
            part = formula.on(in_float32(record, tangent), values)
            total = part if total is None else total + part
    if total is not None and (tuple(total.shape) != tuple(out.shape) or total.dtype is not out.dtype):
        total = total.to(out.dtype).expand(*out.shape)
    return total


def _transposed(record, values, outs, wanted):
    """Computes J t as the gradient of the linear map u -> Jᵀ u, the gradient formulas, with respect to u."""
    several = record.outputs == "list" or record.differentiable > 1
    count = (len(outs) if record.outputs == "list" else record.differentiable) if several else 1
    ups = [zeros_like(_detached(o)).requires_grad_() if _has_tangents(o) else None for o in outs[:count]]
    ends = [u for u in ups if u is not None]
    if not ends:
        return [None] * len(outs)
    implementation = record.reference
    conjugate = record.holomorphic and any(u.dtype.is_complex for u in ends)
    g = in_float32(record, ups if several else ups[0])
    if implementation.vjp is not None:
        parts = implementation.vjp.on(g, values)
        found = [(parts[i], x, t) for i, x, t in wanted]
    else:
        formulas = [(implementation.formulas.get(record.input_name(i)), x, t) for i, x, t in wanted]
        found = [(f.on(g, values), x, t) for f, x, t in formulas if f is not None]
    roots, cotangents = [], []
    for part, x, t in found:
        if isinstance(part, Tensor) and part.requires_grad:
            edge = x._mt_data._array
            if conjugate and not x.dtype.is_complex:
                part, t = part.real if part.dtype.is_complex else part, t
            part = RecordedArithmetic.fit(part, edge)
            if part.requires_grad:
                roots.append(part)
                cotangents.append(t.conj() if conjugate and t.dtype.is_complex else t)
    if not roots:
        return [None if u is None else zeros_like(u.detach()) for u in ups]
    grads = iter(grad(roots, ends, cotangents, create_graph=True, allow_unused=True))
    results = []
    for u in ups:
        t = None if u is None else next(grads)
        if u is not None and t is None:
            t = zeros_like(u.detach())
        results.append(t.conj() if conjugate and t is not None and t.dtype.is_complex else t)
    return results


def _values(record, inputs, outs, tangents, attrs):
    """Returns the values that gradient formulas can use, over Tensors."""
    given = [*map(_as_tensor, inputs[: record.floats]), *map(raw_of, inputs[record.floats :])]
    raws = [x._mt_data._array if isinstance(x, Tensor) else x for x in given]
    first = next(r for r in raws if hasattr(r, "shape"))
    values = dict.fromkeys(record.inputs)
    values.update(zip(record.inputs, record.by_name(given), strict=False))
    results = [o if _has_tangents(o) else o._mt_data._array for o in outs]
    values.update({"out": results} if record.outputs == "list" else zip(record.outputs_names, results, strict=False))
    values.update({n: attrs.get(n, default) for n, default in record.defaults.items()})
    values.update(
        xp=tensor_ns(xp_of(first)),
        shape=getattr(raws[0], "shape", ()),
        shapes=tuple(getattr(r, "shape", ()) for r in raws),
        dtypes=tuple(getattr(r, "dtype", None) for r in raws),
        needs=tuple(t is not None for t in tangents) + (False,) * (len(record.inputs) - len(tangents)),
        float32_accum=(False,) * max(len(tangents), len(record.inputs)),
    )
    return {n: in_float32(record, v) for n, v in values.items()}


def _as_tensor(x):
    if isinstance(x, Array):
        return Tensor._of(x)
    return Tensor._wrap(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic, list)) else x


def _constant(value):
    if isinstance(value, list):
        return [_constant(v) for v in value]
    return _detached(value) if isinstance(value, Tensor) and value.requires_grad else value
