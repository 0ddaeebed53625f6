"""Jacobians, Hessians and products with them, as functions of functions."""

from ..graph.backward import grad
from ..graph.mode import enable_grad
from ..ops.creation import zeros, zeros_like
from ..ops.movement import stack
from ..tensor import Tensor


def _tuple(x):
    return (tuple(x), True) if isinstance(x, (tuple, list)) else ((x,), False)


def _tensors(x, what, where):
    """(a tuple of tensors, whether it was one).

    Raises:
        TypeError: something else is in it.
    """
    values, many = _tuple(x)
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            given = (
                f"the value at index {i} has type {type(value)}" if many else f"the given {what} has type {type(value)}"
            )
            raise TypeError(f"The {what} {where} must be either a Tensor or a tuple of Tensors but {given}.")
    return values, many


def _vector(v, likes, need):
    """The vector of a product, checked against the tensors it stands beside; ones if there is only one number.

    Raises:
        RuntimeError: it is missing where there are several numbers, or sizes differ.
    """
    if v is None:
        if len(likes) != 1 or likes[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {need}.")
        return (zeros_like(likes[0]) + 1,)
    vector = _tensors(v, "v", "given")[0]
    if len(vector) != len(likes):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(likes)} but got {len(vector)}.")
    for i, (w, t) in enumerate(zip(vector, likes, strict=True)):
        if w.shape != t.shape:
            entry = f"Entry {i} in v" if len(likes) > 1 else "v"
            raise RuntimeError(f"{entry} has invalid size: should be {t.shape} but got {w.shape}.")
    return vector


def _one_number(func, what):
    """func, whose result must be a single number."""

    def checked(*args):
        out = func(*args)
        if not isinstance(out, Tensor):
            raise RuntimeError(f"The function given to {what} should return a single Tensor")
        if out.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element")
        return out

    return checked


def _fresh(inputs, create_graph):
    """Inputs to differentiate with respect to: copies out of the graph, or, for create_graph, views in it."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs)


def _done(values, create_graph):
    return tuple(v if create_graph else v.detach() for v in values)


def _one(values, many):
    return values if many else values[0]


def _or_zeros(grads, likes, strict, output=0, second=False):
    """Gradients with zeros in place of None; in strict mode, those raise."""
    for i, g in enumerate(grads):
        if strict and (g is None or (second and not g.requires_grad)):
            if second:
                raise RuntimeError(
                    "While computing the hessian, found that the jacobian of the user-provided function with respect to "
                    f"input {i} is independent of the input. This is not allowed in strict mode."
                )
            raise RuntimeError(
                f"Output {output} of the user-provided function is independent of input {i}. This is not allowed in "
                "strict mode."
            )
    return tuple(zeros_like(t) if g is None else g for g, t in zip(grads, likes, strict=True))


def _results(func, given, what, strict):
    """What func gives, as a tuple, and whether it was one."""
    outputs, several = _tensors(func(*given), "outputs of the user-provided function", f"given to {what}")
    for i, out in enumerate(outputs):
        if strict and not out.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                "differentiable manner from the input when running in strict mode."
            )
    return outputs, several


def _check_strategy(strategy, vectorize, strict):
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}.')
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`."
        )
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional: `strict=True` and `vectorized=True` are not supported together.")


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), vᵀ J): the product of a vector with the Jacobian."""
    inputs, many = _tensors(inputs, "inputs", "given to vjp")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _results(func, given, "vjp", strict)
        upstream = _vector(v, outputs, "the user-provided function returns a single Tensor with a single element")
        pairs = [(o, w) for o, w in zip(outputs, upstream, strict=True) if o.requires_grad]
        grads = (None,) * len(given)
        if pairs:
            outs, upstream = zip(*pairs, strict=True)
            grads = grad(outs, given, upstream, create_graph=create_graph, allow_unused=True)
        grads = _or_zeros(grads, given, strict)
    return _one(_done(outputs, create_graph), several), _one(_done(grads, create_graph), many)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), J v): the product of the Jacobian with a vector, by differentiating vjp twice."""
    inputs, _ = _tensors(inputs, "inputs", "given to jvp")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        vector = _vector(v, given, "the input to the user-provided function is a single Tensor with a single element")
        outputs, several = _results(func, given, "jvp", strict)
        dual = tuple(zeros_like(o).requires_grad_() for o in outputs)
        used = [(o, d) for o, d in zip(outputs, dual, strict=True) if o.requires_grad]
        grads = (None,) * len(given)
        if used:
            grads = grad([o for o, _ in used], given, [d for _, d in used], create_graph=True, allow_unused=True)
        pairs = [(g, w) for g, w in zip(grads, vector, strict=True) if g is not None and g.requires_grad]
        if pairs:
            found = grad(
                [g for g, _ in pairs], dual, [w for _, w in pairs], create_graph=create_graph, allow_unused=True
            )
        else:
            found = (None,) * len(dual)
        found = _or_zeros(found, outputs, strict)
    return _one(_done(outputs, create_graph), several), _one(_done(found, create_graph), several)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivative of every element of the output by every element of the inputs.

    Args:
        strict: raise if an output does not depend on an input, instead of giving zeros.
        vectorize, strategy: checked as PyTorch checks them; rows are computed one after another, which gives the same.

    Returns:
        A tensor of shape output.shape + input.shape; tuples of them for several inputs or outputs.
    """
    _check_strategy(strategy, vectorize, strict)
    inputs, many = _tensors(inputs, "inputs", "given to jacobian")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _results(func, given, "jacobian", strict)
        rows = []
        for number, out in enumerate(outputs):
            columns = [[] for _ in given]
            flat = out.reshape(-1)
            for i in range(flat.numel()):
                if flat.requires_grad:
                    grads = grad(flat[i], given, retain_graph=True, create_graph=create_graph, allow_unused=True)
                else:
                    grads = (None,) * len(given)
                for column, g in zip(columns, _or_zeros(grads, given, strict, number), strict=True):
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

    _check_strategy(outer_jacobian_strategy, vectorize, strict)
    inputs, many = _tensors(inputs, "inputs", "given to hessian")
    func = _one_number(func, "hessian")

    def gradient(*args):
        out = func(*args)
        if not out.requires_grad:
            found = (None,) * len(args)
        else:
            found = grad(out, args, create_graph=True, allow_unused=True)
        return _or_zeros(_or_zeros(found, args, strict), args, strict, second=True)

    result = jacobian(gradient, inputs, create_graph=create_graph)
    return result if many else result[0][0]


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), vᵀ H): the product of a vector with the Hessian."""
    return _with_hessian(func, inputs, v, create_graph, strict, "vhp")


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), H v): the Hessian is symmetric, so this is vhp."""
    return _with_hessian(func, inputs, v, create_graph, strict, "hvp")


def _with_hessian(func, inputs, v, create_graph, strict, what):
    inputs, many = _tensors(inputs, "inputs", f"given to {what}")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        vector = _vector(v, given, "the input to the user-provided function is a single Tensor with a single element")
        out = _one_number(func, what)(*given)
        first = (None,) * len(given)
        if out.requires_grad:
            first = grad(out, given, create_graph=True, allow_unused=True)
        first = _or_zeros(_or_zeros(first, given, strict), given, strict, second=True)
        pairs = [(g, w) for g, w in zip(first, vector, strict=True) if g.requires_grad]
        if pairs:
            found = grad(
                [g for g, _ in pairs], given, [w for _, w in pairs], create_graph=create_graph, allow_unused=True
            )
        else:
            found = (None,) * len(given)
        found = _or_zeros(found, given, strict)
    return (out if create_graph else out.detach()), _one(_done(found, create_graph), many)
