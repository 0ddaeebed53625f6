"""Forward mode: ops compute the tangents of their results from the tangents of their inputs.

Inside a `Level`, a tensor can have a tangent: the derivative of its values in some direction. The tangent of a result is
derived from the gradient formulas of the op, so ops need no second rule:

* An op that returns a view is linear. It is applied to the tangent, and the result is a view of the tangent.
* The gradient formula of an elementwise op, g -> g f'(x), is its own transpose. It is called with the tangent as g.
* An op with residuals is composed of other ops, as for a second derivative.
* Any other formula is a linear map u -> Jᵀ u of the upstream gradient. Its backward is the transpose, t -> J t.

These computations run outside of the level, so levels can be nested. They use Tensors, so tangents have a graph (reverse
over forward). For forward over reverse, recorded nodes store the tensors (`kept`), and backward uses them.

Source: Griewank, Walther: Evaluating Derivatives, 2008; Radul et al.: You Only Linearize Once, 2022.
"""

import weakref

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import MetaArray, memory_owner, xp_of
from ..dispatch.backward import grad
from ..dispatch.interpreter import Interpreter, interpreting
from ..dispatch.unwrap import raw_of
from ..engine.mode import enable_grad, get_mode
from ..engine.node import OutputEdge
from ..ops.creation import zeros_like
from .tensor_ns import RecordedArithmetic, over_tensors, tensor_ns


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
        found = _tangents_of(x).get(self)
        if found is None and x._view is not None:
            base, _, steps = x._view
            found = None if steps is None else _tangents_of(base).get(self)
            if found is not None:
                found = self._along(found, steps)
                self.give(x, found)
        return found

    def _along(self, tangent, steps):
        with self.outside():
            for step, attrs in steps:
                tangent = step.dispatch(tangent, **attrs)
        return tangent

    def follows(self, x):
        return self.tangent(x) is not None or super().follows(x)

    def give(self, tensor, tangent):
        """Sets the tangent of a tensor."""
        tensor.__dict__.setdefault("_tangents", {})[self] = tangent
        self.holders.append(weakref.ref(tensor))
        return tensor

    def dual(self, primal, tangent):
        """Returns a tensor that shares the memory of `primal`, with a tangent and with its tangents of other levels."""
        with self.outside():
            dual = _same_tensor(primal)
            if not _same_layout(primal, tangent):
                tangent = _in_layout_of(primal).copy_(tangent)
        return self.give(dual, tangent)

    def primal(self, tensor):
        """Returns a tensor that shares the memory of `tensor`, without the tangent of this level."""
        self.tangent(tensor)
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
        tangents = [self.tangent(x) for x in inputs]
        if all(t is None for t in tangents):
            with self.outside():
                return record.dispatch(*inputs, fused=fused, **attrs)
        if record.residuals:
            with interpreting(self, autocast=None):
                return self.composed(record, inputs, attrs)
        with interpreting(self.outer, autocast=None):
            out = record.dispatch(*inputs, fused=fused, **attrs)
            if not record.is_differentiable:
                return out
            outs = tuple(out) if record.outputs else (out,)
            if record.view:
                rest = inputs[1:]
                found = record.dispatch(tangents[0], *rest, **attrs)
                found = found if record.outputs else (found,)
            else:
                found = tangents_of(record, inputs, outs, tangents, attrs)
                found = [t.clone() if any(_shares(t, x) for x in tangents) else t for t in found]
        for o, t in zip(outs, found, strict=False):
            if t is not None:
                self.give(o, t)
            edge = o._edge
            if edge is not None:
                self.nodes[edge.node if type(edge) is OutputEdge else edge] = inputs, outs
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

    def kept(self, node):
        return self.nodes.get(node) or super().kept(node)

    # -- in place ---------------------------------------------------------------------------------------------

    def adopt(self, tensor, result):
        super().adopt(tensor, result)
        if not isinstance(tensor, Tensor):
            return
        new = self.tangent(result)
        old = self.tangent(tensor)
        if new is None and old is None:
            return
        with self.outside():
            if new is None:
                old.zero_()
            elif old is None and tensor._view is None:
                self.give(tensor, new.to(tensor.dtype).clone())
            else:
                (old if old is not None else self._written(tensor)).copy_(new)

    def set_item(self, tensor, index, value):
        super().set_item(tensor, index, value)
        new = self.tangent(value)
        if not isinstance(tensor, Tensor) or (new is None and self.tangent(tensor) is None):
            return
        old = self._written(tensor)
        with self.outside():
            old[index] = 0 if new is None else new

    def _written(self, tensor):
        """Returns the tangent of a tensor to write to, or zeros. For a view, it is a view of the tangent of the base."""
        found = self.tangent(tensor)
        if found is None:
            base = tensor if tensor._view is None or tensor._view[2] is None else tensor._view[0]
            with self.outside():
                self.give(base, zeros_like(base.detach()))
            found = self.tangent(tensor)
        return found

    def check_out(self, tensors):
        super().check_out(tensors)
        if any(self.tangent(t) is not None for t in tensors):
            raise RuntimeError(
                "functions with out=... arguments don't support automatic differentiation, but one of the arguments has a "
                "forward gradient: the out= function is not supported in forward mode."
            )

    def apply(self, function, args, kwargs):
        """Runs a custom autograd.Function; its `jvp` computes the tangents."""
        tangents = [self.tangent(a) for a in args]
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
            if any(o is x for x in changed) and self.tangent(o) is not None:
                with self.outside():
                    self.tangent(o).copy_(t)
            else:
                self.give(o, t)
        return result


def _tangents_of(tensor):
    return tensor.__dict__.get("_tangents", {})


def _has_tangents(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _shares(tangent, other):
    """Returns True if two tangents share memory. A change in place of a result must not change the tangents of the inputs."""
    if tangent is None or other is None or isinstance(tangent._data._array, MetaArray):
        return tangent is other and tangent is not None
    return tangent is other or memory_owner(tangent._data._array) is memory_owner(other._data._array)


def _same_layout(primal, tangent):
    """Returns True if a primal and a tangent have the same strides, so that view ops have the same effect on both."""
    if not primal.numel() or isinstance(primal._data._array, MetaArray):  # arrays without memory
        return True
    if memory_owner(primal._data._array).size != memory_owner(tangent._data._array).size:
        return False
    steps = zip(primal.shape, primal.stride(), tangent.stride(), strict=True)
    return all(a == b for n, a, b in steps if n > 1)


def _in_layout_of(tensor):
    """Returns zeros with the strides of a tensor."""
    raw = tensor._data._array
    extent = sum((n - 1) * abs(step) for n, step in zip(raw.shape, raw.strides, strict=True)) // raw.itemsize + 1
    memory = xp_of(raw).zeros(max(extent, getattr(memory_owner(raw), "size", 0)), raw.dtype)
    return Tensor._wrap(xp_of(raw).lib.stride_tricks.as_strided(memory, raw.shape, raw.strides))


def _same_tensor(tensor):
    """Returns another tensor with the same memory, the same position in the graph, and the same tangents."""
    edge = tensor.edge
    same = Tensor._of(tensor._data, edge if edge is None else tensor.view_as(tensor)._edge)
    tangents = _tangents_of(tensor)
    for level in list(tangents):
        level.give(same, tangents[level])
    return same


def _detached(tensor, cut=None):
    """Returns a detached tensor. `cut` detaches its tangents."""
    out = Tensor._of(tensor._data)
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
            part = formula.on(tangent, values)
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
    g = ups if several else ups[0]
    if implementation.vjp is not None:
        parts = implementation.vjp.on(g, values)
        found = [(parts[i], x, t) for i, x, t in wanted]
    else:
        formulas = [(implementation.formulas.get(record.input_name(i)), x, t) for i, x, t in wanted]
        found = [(f.on(g, values), x, t) for f, x, t in formulas if f is not None]
    roots, cotangents = [], []
    for part, x, t in found:
        if isinstance(part, Tensor) and part.requires_grad:
            edge = x._data._array
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
    raws = [x._data._array if isinstance(x, Tensor) else x for x in given]
    first = next(r for r in raws if hasattr(r, "shape"))
    values = dict.fromkeys(record.inputs)
    values.update(zip(record.inputs, record.by_name(given), strict=False))
    results = [o if _has_tangents(o) else o._data._array for o in outs]
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
    return values


def _as_tensor(x):
    if isinstance(x, Array):
        return Tensor._of(x)
    return Tensor._wrap(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic, list)) else x


def _constant(value):
    if isinstance(value, list):
        return [_constant(v) for v in value]
    return _detached(value) if isinstance(value, Tensor) and value.requires_grad else value
