"""Jacobians, Hessians and products with them, as functions of functions."""

from collections.abc import Callable
from typing import Any

from .._tensor import Tensor
from ..base.arguments import describe
from ..dispatch.backward import grad
from ..engine.mode import enable_grad
from ..ops.creation import zeros, zeros_like
from ..ops.movement import stack

Tensors = Tensor | tuple[Tensor, ...]
Func = Callable[..., Any]


def _tensors(x, what, where):
    """(a tuple of tensors, whether it was one).

    Raises:
        TypeError: something else is in it.
    """
    many = isinstance(x, (tuple, list))
    values = tuple(x) if many else (x,)
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            given = f"the value at index {i}" if many else f"the given {what}"
            given += f" has type {type(value)}"
            raise TypeError(f"The {what} {where} must be either a Tensor or a tuple of Tensors but {given}.")
    return values, many


def _vector(v, likes, need):
    """The vector of a product, checked against the tensors that it multiplies; ones if there is only one number.

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


def _grads(outputs, inputs, vectors=None, create_graph=True):
    """The gradients of those outputs that have a graph; None for inputs that none of them depends on."""
    used = [i for i, out in enumerate(outputs) if out.requires_grad]
    if not used:
        return (None,) * len(inputs)
    upstream = None if vectors is None else [vectors[i] for i in used]
    outs = [outputs[i] for i in used]
    return grad(outs, inputs, upstream, retain_graph=True, create_graph=create_graph, allow_unused=True)


def vjp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """(func(inputs), vᵀ J): the product of a vector with the Jacobian.

    Args:
        v: the vector, of the shape of func's result; may be left out for one number.
    """
    inputs, many = _tensors(inputs, "inputs", "given to vjp")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _results(func, given, "vjp", strict)
        vector = _vector(v, outputs, "the user-provided function returns a single Tensor with a single element")
        grads = _or_zeros(_grads(outputs, given, vector, create_graph), given, strict)
    return _one(_done(outputs, create_graph), several), _one(_done(grads, create_graph), many)


def jvp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """(func(inputs), J v): the product of the Jacobian with a vector, by differentiating vjp twice.

    Args:
        v: the vector, of the shape of the inputs; may be left out for one number.

    Example:
        >>> x, v = tensor([1.0, 2.0]), tensor([1.0, 10.0])
        >>> mytorch.autograd.functional.jvp(lambda x: x**2, x, v)[1].tolist()
        [2.0, 40.0]
    """
    inputs, _ = _tensors(inputs, "inputs", "given to jvp")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        vector = _vector(v, given, "the input to the user-provided function is a single Tensor with a single element")
        outputs, several = _results(func, given, "jvp", strict)
        dual = tuple(zeros_like(o).requires_grad_() for o in outputs)
        first = [(g, w) for g, w in zip(_grads(outputs, given, dual), vector, strict=True) if g is not None]
        found = _grads([g for g, _ in first], dual, [w for _, w in first], create_graph)
        found = _or_zeros(found, outputs, strict)
        if strict and create_graph and not all(t.requires_grad for t in found):
            raise RuntimeError(
                "The jacobian of the user-provided function is independent of input 0. This is not allowed in strict mode when "
                "create_graph=True."
            )
    return _one(_done(outputs, create_graph), several), _one(_done(found, create_graph), several)


def jacobian(
    func: Func, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Tensors | tuple[Tensors, ...]:  # fmt: skip
    """The derivative of every element of the output by every element of the inputs.

    Args:
        strict: raise if an output does not depend on an input, instead of giving zeros.
        vectorize, strategy: checked as PyTorch checks them; rows are computed one after another, which gives the same.

    Returns:
        A tensor of shape output.shape + input.shape; tuples of them for several inputs or outputs.

    Example:
        >>> mytorch.autograd.functional.jacobian(lambda x: x**2, tensor([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """
    _check_strategy(strategy, vectorize, strict)
    inputs, many = _tensors(inputs, "inputs", "given to jacobian")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _results(func, given, "jacobian", strict)
        blocks = []
        for number, out in enumerate(outputs):
            rows = [
                _or_zeros(_grads([element], given, None, create_graph), given, strict, number)
                for element in out.reshape(-1).unbind()
            ]
            columns = zip(*rows, strict=True) if rows else [()] * len(given)
            block = [
                (stack(c) if c else zeros(0, *t.shape)).reshape(*out.shape, *t.shape)
                for c, t in zip(columns, given, strict=True)
            ]
            blocks.append(_one(_done(block, create_graph), many))
    return _one(tuple(blocks), several)


def hessian(
    func: Func, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Tensors | tuple[Tensors, ...]:  # fmt: skip
    """The second derivatives of a function with one number as output.

    Args:
        vectorize: accepted; there is one way.
        outer_jacobian_strategy: "reverse-mode".

    Example:
        >>> mytorch.autograd.functional.hessian(lambda x: x.prod(), tensor([2.0, 3.0])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    _check_strategy(outer_jacobian_strategy, vectorize, strict)
    inputs, many = _tensors(inputs, "inputs", "given to hessian")
    func = _one_number(func, "hessian")
    result = jacobian(lambda *args: _gradient(func(*args), args, strict), inputs, create_graph=create_graph)
    return result if many else result[0][0]


def _gradient(out, inputs, strict):
    """The gradient of a number, to be differentiated again."""
    return _or_zeros(_or_zeros(_grads([out], inputs), inputs, strict), inputs, strict, second=True)


def vhp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensor, Tensors]:
    """(func(inputs), vᵀ H): the product of a vector with the Hessian.

    Args:
        v: the vector, of the shape of the inputs; may be left out for one number.
    """
    return _with_hessian(func, inputs, v, create_graph, strict, "vhp")


def hvp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensor, Tensors]:
    """(func(inputs), H v): the Hessian is symmetric, so this is vhp.

    Args:
        v: the vector, of the shape of the inputs; may be left out for one number.
    """
    return _with_hessian(func, inputs, v, create_graph, strict, "hvp")


def _with_hessian(func, inputs, v, create_graph, strict, what):
    inputs, many = _tensors(inputs, "inputs", f"given to {what}")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        vector = _vector(v, given, "the input to the user-provided function is a single Tensor with a single element")
        out = _one_number(func, what)(*given)
        first = _gradient(out, given, strict)
        found = _or_zeros(_grads(first, given, vector, create_graph), given, strict)
    return (out if create_graph else out.detach()), _one(_done(found, create_graph), many)


describe(
    globals(),
    func="a function of tensors, returning tensors.",
    inputs="its argument, or a tuple of several.",
    create_graph="whether the result can be differentiated again.",
    strict="raise where an input does not influence an output.",
)
