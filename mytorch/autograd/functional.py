"""Jacobians, Hessians, and products of vectors with them, for functions of tensors."""

from collections.abc import Callable
from typing import Any

from ..arrays.arguments import describe
from ..arrays.tensor import Tensor
from ..ops.creation import zeros, zeros_like
from ..ops.movement import stack
from .backward_call import grad
from .mode import enable_grad

Tensors = Tensor | tuple[Tensor, ...]
Func = Callable[..., Any]


def _tensors(x, what, where):
    """Returns (a tuple of tensors, True if x is a tuple or list).

    Raises:
        TypeError: an item is not a tensor.
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
    """Returns the vector of a product as a tuple; ones if v is None and there is only one element.

    Raises:
        RuntimeError: v is None although there are several elements, or its sizes differ from `likes`.
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
    """Returns func with a check that its result has a single element."""

    def checked(*args):
        out = func(*args)
        if not isinstance(out, Tensor):
            error = RuntimeError if isinstance(out, tuple) and all(isinstance(o, Tensor) for o in out) else TypeError
            raise error(f"The function given to {what} should return a single Tensor")
        if out.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element")
        return out

    return checked


def _fresh(inputs, create_graph):
    """Returns the inputs of the derivative: detached tensors, or views of the inputs if `create_graph` is True."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs)


def _done(values, create_graph):
    return tuple(v if create_graph else v.detach() for v in values)


def _one(values, many):
    return values if many else values[0]


def _or_zeros(grads, likes, strict, output=0, second=False):
    """Returns gradients with zeros in place of None. In strict mode, None raises an error."""
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
    """Returns (the results of func as a tuple, True if func returned a tuple)."""
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
    """Returns the gradients of the outputs that require gradients; None for unused inputs."""
    used = [i for i, out in enumerate(outputs) if out.requires_grad]
    if not used:
        return (None,) * len(inputs)
    upstream = None if vectors is None else [vectors[i] for i in used]
    outs = [outputs[i] for i in used]
    return grad(outs, inputs, upstream, retain_graph=True, create_graph=create_graph, allow_unused=True)


def vjp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """Computes the product of a vector and the Jacobian, `v^T J`, with one backward pass.

    Args:
        v: vector with the shape of the output (default: 1 for an output with one element).

    Returns:
        A tuple (`func(inputs)`, product). The product has the structure and shapes of `inputs`.

    Example:
        >>> x, v = tensor([1.0, 2.0]), tensor([1.0, 10.0])
        >>> mytorch.autograd.functional.vjp(lambda x: x**2, x, v)[1].tolist()
        [2.0, 40.0]
    """
    inputs, many = _tensors(inputs, "inputs", "given to vjp")
    with enable_grad():
        given = _fresh(inputs, create_graph)
        outputs, several = _results(func, given, "vjp", strict)
        vector = _vector(v, outputs, "the user-provided function returns a single Tensor with a single element")
        grads = _or_zeros(_grads(outputs, given, vector, create_graph), given, strict, second=create_graph)
    return _one(_done(outputs, create_graph), several), _one(_done(grads, create_graph), many)


def jvp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """Computes the product of the Jacobian and a vector, `J v`, with two backward passes.

    `func.jvp` needs only one forward pass.

    Args:
        v: vector with the shape of the inputs (default: 1 for an input with one element).

    Returns:
        A tuple (`func(inputs)`, product). The product has the structure and shapes of the output.

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
    """Computes the Jacobian: the derivative of each element of the output with respect to each element of the inputs.

    Args:
        strict: raise an error if an output does not depend on an input, instead of returning zeros.
        vectorize: for compatibility with PyTorch; the rows are computed one after another.
        strategy: "reverse-mode", or "forward-mode" together with `vectorize=True`. The result is the same.

    Returns:
        A tensor of shape `output.shape + input.shape`; tuples of tensors for several inputs or outputs.

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
                _or_zeros(_grads([element], given, None, create_graph), given, strict, number, create_graph)
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
    """Computes the Hessian: the second derivatives of a function whose output has one element.

    Args:
        vectorize: for compatibility with PyTorch; the rows are computed one after another.
        outer_jacobian_strategy: "reverse-mode", or "forward-mode" together with `vectorize=True`.

    Returns:
        A tensor of shape `input.shape + input.shape`; tuples of tuples for several inputs.

    Raises:
        RuntimeError: the output has several elements.

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
    """Returns the gradient of a tensor with one element, which can be differentiated again."""
    return _or_zeros(_or_zeros(_grads([out], inputs), inputs, strict), inputs, strict, second=True)


def vhp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensor, Tensors]:
    """Computes the product of a vector and the Hessian, `v^T H`.

    Args:
        v: vector with the shape of the inputs (default: 1 for an input with one element).

    Returns:
        A tuple (`func(inputs)`, product). The product has the structure and shapes of `inputs`.

    Example:
        >>> value, product = mytorch.autograd.functional.vhp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
        >>> product.tolist()
        [6.0, 12.0]
    """
    return _with_hessian(func, inputs, v, create_graph, strict, "vhp")


def hvp(
    func: Func, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensor, Tensors]:
    """Computes the product of the Hessian and a vector, `H v`. The Hessian is symmetric, so it is equal to `vhp`.

    Args:
        v: vector with the shape of the inputs (default: 1 for an input with one element).

    Returns:
        A tuple (`func(inputs)`, product). The product has the structure and shapes of `inputs`.

    Example:
        >>> value, product = mytorch.autograd.functional.hvp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
        >>> product.tolist()
        [6.0, 12.0]
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
    func="function of tensors that returns a tensor or a tuple of tensors.",
    inputs="argument of `func`, or a tuple of arguments.",
    create_graph="make the result differentiable (default: False).",
    strict="raise an error if an output does not depend on an input (default: False).",
)
