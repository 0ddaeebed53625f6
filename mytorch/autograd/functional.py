"""Jacobians, Hessians and products with them, as functions of functions."""

from ..ops.creation import zeros, zeros_like
from ..ops.movement import stack
from ..tensor import Tensor
from .functions import grad
from .mode import enable_grad


def _tuple(x):
    return (tuple(x), True) if isinstance(x, (tuple, list)) else ((x,), False)


def _fresh(inputs, create_graph):
    """Inputs to differentiate with respect to: copies out of the graph, or, for create_graph, views in it."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs)


def _done(values, create_graph):
    return tuple(v if create_graph else v.detach() for v in values)


def _one(values, many):
    return values if many else values[0]


def _or_zeros(grads, likes, strict, what):
    if strict and any(g is None for g in grads):
        raise RuntimeError(f"{what}: an output does not depend on an input. This is not allowed in strict mode.")
    return tuple(zeros_like(t) if g is None else g for g, t in zip(grads, likes, strict=True))


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), vᵀ J): the product of a vector with the Jacobian."""
    inputs, many = _tuple(inputs)
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _tuple(func(*given))
        upstream = None if v is None else _tuple(v)[0]
        if v is None and outputs[0].numel() != 1:
            raise RuntimeError("The vector v can only be None if the user-provided function returns a single Tensor with a single element.")
        grads = grad(outputs, given, upstream, create_graph=create_graph, allow_unused=True)
        grads = _or_zeros(grads, given, strict, "vjp")
    return _one(_done(outputs, create_graph), several), _one(_done(grads, create_graph), many)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), J v): the product of the Jacobian with a vector, by differentiating vjp twice."""
    inputs, _ = _tuple(inputs)
    with enable_grad():
        given = _fresh(inputs, create_graph)
        vector = tuple(zeros_like(t) + 1 for t in given) if v is None else _tuple(v)[0]
        outputs, several = _tuple(func(*given))
        dual = tuple(zeros_like(o).requires_grad_() for o in outputs)
        grads = grad(outputs, given, dual, create_graph=True, allow_unused=True)
        pairs = [(g, w) for g, w in zip(grads, vector, strict=True) if g is not None and g.requires_grad]
        if pairs:
            found = grad([g for g, _ in pairs], dual, [w for _, w in pairs], create_graph=create_graph, allow_unused=True)
        else:
            found = (None,) * len(dual)
        found = _or_zeros(found, outputs, strict, "jvp")
    return _one(_done(outputs, create_graph), several), _one(_done(found, create_graph), several)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivative of every element of the output by every element of the inputs.

    Returns:
        A tensor of shape output.shape + input.shape; tuples of them for several inputs or outputs.
    """
    inputs, many = _tuple(inputs)
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _tuple(func(*given))
        rows = []
        for out in outputs:
            columns = [[] for _ in given]
            flat = out.reshape(-1)
            for i in range(flat.numel()):
                if flat.requires_grad:
                    grads = grad(flat[i], given, retain_graph=True, create_graph=create_graph, allow_unused=True)
                else:
                    grads = (None,) * len(given)
                for column, g in zip(columns, _or_zeros(grads, given, strict, "jacobian"), strict=True):
                    column.append(g)
            rows.append(
                tuple(
                    (stack(c) if c else zeros(0, *t.shape)).reshape(*out.shape, *t.shape)
                    for c, t in zip(columns, given, strict=True)
                )
            )
    rows = [_one(_done(row, create_graph), many) for row in rows]
    return _one(tuple(rows), several)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function with one number as output."""

    def gradient(*args):
        out = func(*args)
        if not isinstance(out, Tensor) or out.numel() != 1:
            raise RuntimeError("The function given to hessian should return a single Tensor with a single element.")
        found = grad(out, args, create_graph=True, allow_unused=True)
        found = _or_zeros(found, args, strict, "hessian")
        return found if len(found) > 1 else found[0]

    _, many = _tuple(inputs)
    result = jacobian(gradient, inputs, create_graph=create_graph)
    return ((result,),) if many and not isinstance(result[0], tuple) and len(_tuple(inputs)[0]) == 1 else result


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), vᵀ H): the product of a vector with the Hessian."""
    inputs, many = _tuple(inputs)
    with enable_grad():
        given = _fresh(inputs, create_graph)
        out = func(*given)
        vector = tuple(zeros_like(t) + 1 for t in given) if v is None else _tuple(v)[0]
        first = _or_zeros(grad(out, given, create_graph=True, allow_unused=True), given, strict, "vhp")
        pairs = [(g, w) for g, w in zip(first, vector, strict=True) if g.requires_grad]
        if pairs:
            found = grad([g for g, _ in pairs], given, [w for _, w in pairs], create_graph=create_graph, allow_unused=True)
        else:
            found = (None,) * len(given)
        found = _or_zeros(found, given, strict, "vhp")
    return (out if create_graph else out.detach()), _one(_done(found, create_graph), many)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), H v): the Hessian is symmetric, so this is vhp."""
    return vhp(func, inputs, v, create_graph, strict)
