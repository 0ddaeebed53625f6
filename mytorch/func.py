"""Function transforms as in `torch.func`: gradients, Jacobians, Hessians, vectorization, and modules as functions.

Arguments can be nested tuples, lists and dicts of tensors. Transforms can be nested, as in `grad(grad(f))`. A result is
differentiable with respect to the arguments of outer transforms, and to parameters that the function uses.

`jvp`, `jacfwd` and `hessian` use forward mode (autograd/forward_mode.py). `vmap` calls the function once with tensors
that represent the batch (autograd/batching.py). It calls the function for each index if an op has no batching rule, or
if the function reads values of the tensors.
"""

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

from .arrays import hooks
from .arrays.config import holding
from .arrays.tensor import Tensor
from .autograd.backward_call import grad as _autograd_grad
from .autograd.batching import Batch, Draws, Samples
from .autograd.forward_mode import Level, enabled
from .autograd.function import Function
from .autograd.mode import enable_grad, get_mode, is_grad_enabled
from .autograd.node import Leaf
from .nn.module import Module
from .nn.normalization import _BatchNorm
from .nn.utils.stateless import _functional_call
from .ops.creation import zeros_like
from .ops.dispatch import interpreter
from .ops.elementwise import allclose
from .ops.movement import cat, stack
from .utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


# -- nested arguments -----------------------------------------------------------------------------------------


def _flatten(tree):
    """Returns (leaves, rebuild) of nested tuples, lists and dicts. `rebuild` makes the same structure of other leaves."""
    leaves, spec = tree_flatten(tree)
    return leaves, partial(tree_unflatten, treespec=spec)


def _tensors(tree, what, error=RuntimeError):
    leaves, rebuild = _flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise error(f"{what}: expected only tensors, got {type(leaf).__name__}.")
    return leaves, rebuild


def _outputs(out, name):
    """Returns (leaves, rebuild) of the results of a function.

    Raises:
        RuntimeError: there is no result, or a result is not a tensor.
    """
    if out is None or not _flatten(out)[0]:
        raise RuntimeError(f"{name}(f, ...): Expected f to be a function that has non-empty output, got {out!r}.")
    return _tensors(out, f"{name}: results of f")


def _check_real(tensors, what):
    """Raises an error for complex tensors, whose Jacobians have no single definition."""
    for i, t in enumerate(tensors):
        if t.dtype.is_complex:
            raise RuntimeError(f"{what} to be real but received complex tensor at flattened position {i}.")


# -- one level of differentiation -----------------------------------------------------------------------------


_innermost: ContextVar[Any] = ContextVar("mytorch_transform", default=None)  # the transform whose function runs
_spent = weakref.WeakSet()  # leaves of levels whose function has returned; no further gradients are computed there


def _fresh(leaves):
    """Returns the inputs of the derivative: views of tensors that an outer level tracks, new leaves for other tensors."""
    tracked = is_grad_enabled()
    return [t.view_as(t) if tracked and t.requires_grad else _detached(t).requires_grad_() for t in leaves]


def _detached(tensor, cut=None):
    """Returns a detached tensor that outer transforms still track."""
    interpreter = get_mode().interpreter
    return tensor.detach() if interpreter is None else interpreter.detach(tensor, cut)


def _edges_above(edge):
    """Yields an edge and all edges that it was computed from."""
    waiting, seen = [edge], set()
    while waiting:
        edge = waiting.pop()
        if edge is not None and id(edge) not in seen:
            seen.add(id(edge))
            yield edge
            waiting.extend(edge.parents)


def _depends_on_others(tensor, given):
    """Returns True if a result depends on tensors that require gradients, other than the tensors `given`."""
    own = {id(t.edge) for t in given}
    if any(isinstance(edge, Leaf) and id(edge) not in own and edge not in _spent for edge in _edges_above(tensor.edge)):
        return True
    return any(not isinstance(t.edge, Leaf) for t in given)


def _depends_outside(tensor, given):
    """As `_depends_on_others`, also through the elements of a tensor of a batch, which have their own graphs."""
    while tensor is not None:
        if _depends_on_others(tensor, given):
            return True
        interpreter = get_mode().interpreter
        tensor = None if interpreter is None else interpreter.elements(tensor)
    return False


def _with_aux(out, name):
    """Checks that a function returned a tuple (output, aux), and returns it."""
    if not (isinstance(out, tuple) and len(out) == 2):
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return out


class _Level:
    """One call of a function with new leaves as arguments, and the derivatives of its results."""

    def __init__(self, func, args, argnums=None, has_aux=False, name="grad"):
        self.name = name
        self.record = is_grad_enabled()
        chosen = args if argnums is None else [args[i] for i in argnums]
        leaves, self.rebuild = _tensors(list(chosen), name, ValueError)
        self.inputs = _fresh(leaves)
        fresh = self.rebuild(self.inputs)
        args = list(args)
        for i, value in zip(range(len(args)) if argnums is None else argnums, fresh, strict=True):
            args[i] = value
        self.running = False  # while backward of this level runs
        with enable_grad(), holding(_innermost, self):
            out = func(*args)
        _spent.update(t.edge for t in self.inputs if isinstance(t.edge, Leaf))
        self.aux = None
        if has_aux:
            out, aux = _with_aux(out, name)
            self.aux = tree_map(self.closed, aux)
        self.out = out
        self.outputs, self.rebuild_out = _outputs(out, name)
        self.outer = self.record and any(_depends_outside(o, self.inputs) for o in self.outputs)

    def closed(self, value):
        """Returns a result of the transform, detached from the graph of this level unless an outer level tracks it."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        return value if self.record and _depends_on_others(value, self.inputs) else _detached(value, self.closed)

    def gradients(self, outputs, upstream, retain=False):
        """Returns the gradients of outputs with respect to each input; zeros for unused inputs."""
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        if not pairs:
            return [zeros_like(t) for t in self.inputs]
        self.running, records = True, self.outer and is_grad_enabled()
        with enable_grad():
            found = _autograd_grad(
                [o for o, _ in pairs], self.inputs, [g for _, g in pairs], retain_graph=retain or self.outer,
                create_graph=records, allow_unused=True,
            )  # fmt: skip
        self.running = False
        return [zeros_like(t) if g is None else g for g, t in zip(found, self.inputs, strict=True)]


class _Cut(Function):
    """The identity, through which gradients of all levels but one pass."""

    @staticmethod
    def forward(ctx, tensor, level):
        ctx.level = level
        return tensor.detach()

    @staticmethod
    def backward(ctx, g):
        return None if ctx.level.running else g, None


def _detach_in_transform(tensor):
    """Detaches a tensor in place from the innermost transform, so that outer ones still track it; see `hooks.detach_in_transform`."""
    level, edge = _innermost.get(), tensor.edge
    if level is None:
        return False
    if isinstance(level, Level):
        tensor.__dict__.get("_tangents", {}).pop(level, None)
        return True
    if edge is None:
        return True
    own = {id(t.edge) for t in level.inputs}
    if not any(id(e) in own for e in _edges_above(edge)):
        raise RuntimeError(
            f"{level.name}: the function calls detach_, an in-place operation, on a tensor from outside of it. Use detach() instead."
        )
    with interpreter.interpreting(None):  # the tangents of the tensor stay
        tensor._mt_edge = _Cut.apply(Tensor._of(tensor._mt_data, edge), level)._mt_edge
    return True


hooks.detach_in_transform = _detach_in_transform


def _argnums(argnums, args):
    """Returns (argnums as a tuple of nonnegative positions, True if argnums is an int)."""
    one = isinstance(argnums, int)
    numbers = (argnums,) if one else argnums
    if not isinstance(numbers, tuple) or not all(isinstance(i, int) for i in numbers):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {argnums!r}")
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise RuntimeError(f"Got argnum={i}, but only {len(args)} positional inputs")
    places = tuple(i % len(args) for i in numbers)
    if len(set(places)) != len(places):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return places, one


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., tuple]:
    """Returns a function that computes the gradient and the value of `func`.

    Args:
        func: function that returns a tensor without dimensions, or (tensor, aux) if `has_aux` is True.
        argnums: position of the argument to differentiate, or a tuple of positions (default: 0).
        has_aux: `func` also returns auxiliary data (default: False).

    Returns:
        A function with the arguments of `func`. It returns (gradient, value), or (gradient, (value, aux)).

    Raises:
        RuntimeError: at the call, if the result of `func` has dimensions, or `argnums` is out of range.

    Example:
        >>> gradient, value = mytorch.func.grad_and_value(lambda x: x**3)(tensor(2.0))
        >>> gradient.item(), value.item()
        (12.0, 8.0)
    """

    @wraps(func)
    def run(*args, **kwargs):
        places, one = _argnums(argnums, args)
        level = _Level(lambda *a: func(*a, **kwargs), args, places, has_aux)
        out = level.out
        if not isinstance(out, Tensor):
            raise RuntimeError(f"Expected f(*args) returned by grad to be a Tensor, got {type(out).__name__}")
        if out.ndim:
            raise RuntimeError(f"Expected f(*args) to return a scalar tensor, got tensor with {out.ndim} dims")
        found = level.rebuild(level.gradients([out], [None]))
        found = found[0] if one else tuple(found)
        value = level.closed(out)
        return (found, (value, level.aux)) if has_aux else (found, value)

    return run


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `func`.

    Args:
        func: function that returns a tensor without dimensions, or (tensor, aux) if `has_aux` is True.
        argnums: position of the argument to differentiate, or a tuple of positions (default: 0).
        has_aux: `func` also returns auxiliary data (default: False).

    Returns:
        A function with the arguments of `func`. It returns the gradient, or (gradient, aux) if `has_aux` is True.

    Raises:
        RuntimeError: at the call, if the result of `func` has dimensions, or `argnums` is out of range.

    Example:
        >>> mytorch.func.grad(lambda x: x**3)(tensor(2.0)).item()
        12.0
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def run(*args, **kwargs):
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return run


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """Computes `func(*primals)` and returns a function for products of vectors with the Jacobian.

    Use it when there are fewer outputs than inputs, as with a loss; `jvp` is for few inputs.

    Args:
        func: function of tensors.
        primals: arguments of `func`.
        has_aux: `func` returns (output, aux) (default: False).

    Returns:
        A tuple (output, vjp_fn), or (output, vjp_fn, aux) if `has_aux` is True. `vjp_fn(cotangents)` returns a tuple with
        a gradient for each primal, and can be called several times. Cotangents have the structure of the output.

    Raises:
        RuntimeError: cotangents do not match the output.

    Example:
        >>> out, vjp_fn = mytorch.func.vjp(lambda x: x**2, tensor([1.0, 3.0]))
        >>> vjp_fn(tensor([1.0, 1.0]))[0].tolist()
        [2.0, 6.0]
    """
    level = _Level(func, primals, has_aux=has_aux, name="vjp")

    def vjp_fn(*cotangents):
        given, _ = _flatten(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(given) != len(level.outputs):
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function: "
                f"got {len(given)} tensors for {len(level.outputs)}."
            )
        for g, o in zip(given, level.outputs, strict=True):
            if tuple(g.shape) != tuple(o.shape):
                raise RuntimeError(
                    f"vjp: expected a cotangent of shape {tuple(o.shape)}, as the output, got {tuple(g.shape)}."
                )
        level.outer = level.outer or (is_grad_enabled() and any(g.requires_grad for g in given))
        return tuple(level.rebuild(level.gradients(level.outputs, given, retain=True)))

    out = level.rebuild_out([level.closed(o) for o in level.outputs])
    return (out, vjp_fn, level.aux) if has_aux else (out, vjp_fn)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """Computes `func(*primals)` and the product of the Jacobian with the tangents, in forward mode.

    Use it when there are fewer inputs than outputs, or for one direction: it stores no graph. `vjp` is for few outputs.

    Args:
        func: function of tensors.
        primals: tuple of the arguments of `func`.
        tangents: tuple with the structure and shapes of `primals`.
        strict: raise an error if an output does not depend on the primals, instead of returning zeros (default: False).
        has_aux: `func` returns (output, aux) (default: False).

    Returns:
        A tuple (output, product), or (output, product, aux) if `has_aux` is True.

    Raises:
        RuntimeError: tangents do not match the primals.

    Example:
        >>> output, product = mytorch.func.jvp(lambda x: x**2, (tensor(3.0),), (tensor(1.0),))
        >>> output.item(), product.item()
        (9.0, 6.0)
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples.")
    given, _ = _tensors(list(tangents), "jvp: tangents")
    before, rebuild = _tensors(list(primals), "jvp: primals")
    if [tuple(t.shape) for t in given] != [tuple(t.shape) for t in before] or not given:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same (non-empty) structure and shapes."
        )
    level, aux = Level(), None
    try:
        with level.inside(), holding(enabled, True), holding(_innermost, level):
            duals = [level.dual(p, t) for p, t in zip(before, given, strict=True)]
            out = func(*rebuild(duals))
        if has_aux:
            out, aux = _with_aux(out, "jvp")
            aux = tree_map(lambda x: level.primal(x) if isinstance(x, Tensor) else x, aux)
        outputs, rebuild_out = _outputs(out, "jvp")
        found = [level.tangent(o) for o in outputs]
        if strict and any(t is None for t in found):
            raise RuntimeError("jvp: an output does not depend on the primals. This is not allowed in strict mode.")
        found = [zeros_like(_detached(o)) if t is None else t for o, t in zip(outputs, found, strict=True)]
        result = rebuild_out([level.primal(o) for o in outputs]), rebuild_out(found)
    finally:
        level.close()
    return (*result, aux) if has_aux else result


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """Computes `func(*primals)` and returns a function for products of the Jacobian at `primals` with vectors.

    Args:
        func: function of tensors.
        primals: arguments of `func`.

    Returns:
        A tuple (output, jvp_fn). `jvp_fn(*tangents)` returns the product of the Jacobian with the tangents.

    Example:
        >>> output, jvp_fn = mytorch.func.linearize(lambda x: x**2, tensor(3.0))
        >>> jvp_fn(tensor(1.0)).item()
        6.0
    """
    out, _ = jvp(func, primals, tuple(tree_map(zeros_like, p) for p in primals))
    return out, lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Returns a function that computes the Jacobian of `func` in reverse mode, row by row.

    Use it when the function has fewer outputs than inputs, and `jacfwd` otherwise.

    Args:
        func: function of tensors.
        argnums: position of the argument to differentiate, or a tuple of positions (default: 0).
        has_aux: `func` returns (output, aux) (default: False).
        chunk_size: for compatibility with PyTorch; the rows are computed one by one, so they need no more memory.

    Raises:
        ValueError: `chunk_size` is not positive.
        RuntimeError: at the call, if an argument or a result is complex.

    Returns:
        A function with the arguments of `func`. It returns the Jacobian, of shape `output.shape + argument.shape`, or a
        tuple of Jacobians for several `argnums`. If `has_aux` is True, it returns (Jacobian, aux).

    Example:
        >>> mytorch.func.jacrev(lambda x: x**2)(tensor([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """

    _check_chunk_size("jacrev", chunk_size)

    @wraps(func)
    def run(*args, **kwargs):
        places, one = _argnums(argnums, args)
        level = _Level(lambda *a: func(*a, **kwargs), args, places, has_aux, "jacrev")
        _check_real(level.inputs, "jacrev: Expected all inputs")
        _check_real(level.outputs, "jacrev: Expected all outputs")
        jacobians = []
        for out in level.outputs:
            rows = [level.gradients([out], [unit], retain=True) for unit in _units(out)]
            columns = [
                stack(list(c)).reshape(*out.shape, *t.shape) if rows else t.new_zeros((*out.shape, *t.shape))
                for c, t in zip(zip(*rows, strict=True) if rows else level.inputs, level.inputs, strict=True)
            ]
            found = level.rebuild(columns)
            jacobians.append(found[0] if one else tuple(found))
        result = level.rebuild_out(jacobians)
        return (result, level.aux) if has_aux else result

    return run


def _check_chunk_size(name, chunk_size):
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"{name}: `chunk_size` should be None or greater than 0, got {chunk_size}.")


def _units(out):
    """Yields the tensors of the shape of `out` with a single 1."""
    for i in range(out.numel()):
        unit = zeros_like(out.detach()).reshape(-1)
        unit[i] = 1
        yield unit.reshape(out.shape)


def jacfwd(
    func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `func` in forward mode, column by column.

    It is faster than `jacrev` if the output has more elements than the input.

    Use it when the function has fewer inputs than outputs, and `jacrev` otherwise.

    Args:
        func: function of tensors.
        argnums: position of the argument to differentiate, or a tuple of positions (default: 0).
        has_aux: `func` returns (output, aux) (default: False).
        randomness: random numbers of `func`, which is called for each column: "same" for equal numbers, "different", or "error"
            (default: "error").

    Raises:
        RuntimeError: at the call, if an argument or a result is complex, or `func` draws random numbers and `randomness` is "error".

    Returns:
        A function with the arguments of `func`. It returns the Jacobian, of shape `output.shape + argument.shape`, or a
        tuple of Jacobians for several `argnums`. If `has_aux` is True, it returns (Jacobian, aux).

    Example:
        >>> mytorch.func.jacfwd(lambda x: x**2)(tensor([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """

    @wraps(func)
    def run(*args, **kwargs):
        places, one = _argnums(argnums, args)
        leaves, rebuild = _tensors([args[i] for i in places], "jacfwd", ValueError)
        _check_real(leaves, "jacfwd: Expected all inputs")

        def of_leaves(*leaves):
            chosen = list(args)
            for i, value in zip(places, rebuild(leaves), strict=True):
                chosen[i] = value
            return func(*chosen, **kwargs)

        samples, columns, found = Samples(leaves, Draws(randomness)), [], None
        for i, leaf in enumerate(leaves):
            for unit in _units(leaf):
                tangents = tuple(unit if j == i else zeros_like(_detached(t)) for j, t in enumerate(leaves))
                with samples.next():
                    found = jvp(of_leaves, tuple(leaves), tangents, has_aux=has_aux)
                columns.append(_flatten(found[1])[0])
        if found is None:  # without a column, the shapes of the results are unknown
            found = jvp(of_leaves, tuple(leaves), tuple(map(zeros_like, leaves)), has_aux=has_aux)
        outputs, rebuild_out = _flatten(found[0])
        _check_real(outputs, "jacfwd: Expected all outputs")
        jacobians = []
        for k, out in enumerate(outputs):
            rows, parts = iter(columns), []
            for leaf in leaves:
                own = [next(rows)[k] for _ in range(leaf.numel())]
                shape = (*out.shape, *leaf.shape)
                # PyTorch computes the columns as one batch, whose axis it then moves: the strides of the result show it.
                parts.append(stack(own).movedim(0, -1).reshape(shape) if own else out.new_zeros(shape))
            jacobian = rebuild(parts)
            jacobians.append(jacobian[0] if one else tuple(jacobian))
        result = rebuild_out(jacobians)
        return (result, found[2]) if has_aux else result

    return run


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Returns a function that computes the Hessian of `func`: forward mode over reverse mode.

    Args:
        func: function that returns a tensor without dimensions.
        argnums: position of the argument to differentiate, or a tuple of positions (default: 0).

    Returns:
        A function with the arguments of `func`. It returns a tensor of shape `argument.shape + argument.shape`.

    Example:
        >>> mytorch.func.hessian(lambda x: (x**3).sum())(tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(func, argnums), argnums)


# -- vectorization ---------------------------------------------------------------------------------------------


def _spread(dims, tree, what):
    """Returns the batch axis of each leaf of `tree`. A single number applies to all leaves below it."""
    if isinstance(dims, int) or dims is None:
        return [dims] * len(_flatten(tree)[0])
    if what == "out_dims" and isinstance(tree, Tensor) and isinstance(dims, tuple) and len(dims) == 1:
        return _spread(dims[0], tree, what)
    children = list(tree.values()) if isinstance(tree, dict) else tree
    if (
        type(dims) is not type(tree)
        or len(dims) != len(children)
        or (isinstance(dims, dict) and dims.keys() != tree.keys())
    ):
        raise ValueError(
            f"vmap: {what} is not compatible with the structure of `{'inputs' if what == 'in_dims' else 'outputs'}`: {dims!r}."
        )
    parts = [dims[k] for k in tree] if isinstance(dims, dict) else dims
    return [d for part, child in zip(parts, children, strict=True) for d in _spread(part, child, what)]


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Returns a function that applies `func` to each index of a batch axis and stacks the results.

    Use it when a function handles one sample and you have a batch, as with gradients for each sample.

    Args:
        func: function of tensors that returns tensors.
        in_dims: batch axis of each argument; None for arguments without a batch axis. A single number applies to all
            arguments. Nested arguments can have nested `in_dims` (default: 0).
        out_dims: position of the batch axis in each result (default: 0).
        randomness: "same" for equal random numbers in each call, "different", or "error" (default: "error").
        chunk_size: number of indices to compute at a time, to save memory (default: all).

    Returns:
        A function with the arguments of `func`.

    Raises:
        ValueError: at the call, if no argument has a batch axis, sizes differ, a result with a batch axis is not a tensor, or a result
            without one depends on the batch.
        RuntimeError: `func` draws random numbers, and `randomness` is "error".

    Example:
        >>> x, y = tensor([[1, 2], [3, 4]]), tensor([[5, 6], [7, 8]])
        >>> mytorch.vmap(mytorch.dot)(x, y).tolist()
        [17, 53]
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    _check_chunk_size("vmap", chunk_size)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got {in_dims!r}."
        )

    @wraps(func)
    def run(*args, **kwargs):
        if isinstance(in_dims, tuple) and len(in_dims) != len(args):
            raise ValueError(
                f"vmap({func}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of inputs: "
                f"{len(in_dims)} for {len(args)} arguments."
            )
        leaves, rebuild = _flatten(list(args))
        dims = _spread(list(in_dims) if isinstance(in_dims, tuple) else in_dims, list(args), "in_dims")
        sizes = set()
        for leaf, d in zip(leaves, dims, strict=True):
            if d is None:
                continue
            if not isinstance(leaf, Tensor):
                raise ValueError(
                    f"vmap({func}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but the input is of type "
                    f"{type(leaf)}. We cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
                )
            if not -leaf.ndim <= d < leaf.ndim:
                raise ValueError(
                    f"vmap({func}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a "
                    f"Tensor of dimensionality {leaf.ndim} so expected in_dim to satisfy -{leaf.ndim} <= in_dim < {leaf.ndim}."
                )
            sizes.add(leaf.shape[d])
        if not sizes:
            raise ValueError(f"vmap({func}, in_dims={in_dims}, ...)(<inputs>): no input has a batch axis to go along.")
        if len(sizes) > 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} "
                "for the mapped dimension"
            )
        size, draws = sizes.pop(), Draws(randomness)
        try:
            return _in_chunks(func, leaves, rebuild, dims, size, out_dims, kwargs, draws, chunk_size or max(size, 1))
        except Exception as error:
            if getattr(error, "written", False):
                raise
            draws.rewind()
            return _one_by_one(func, leaves, rebuild, dims, size, out_dims, kwargs, draws)

    return run


def _at_once(func, leaves, rebuild, dims, size, out_dims, kwargs, draws):
    """Calls the function once for the whole batch (autograd/batching.py)."""
    batch = Batch(size, [leaf for leaf, d in zip(leaves, dims, strict=True) if d is not None], draws)
    values = [leaf if d is None else leaf.movedim(d, 0) for leaf, d in zip(leaves, dims, strict=True)]
    stand = [v if d is None else batch.stand_for(v) for v, d in zip(values, dims, strict=True)]
    try:
        with batch.inside():
            out = func(*rebuild(stand), **kwargs)
        flat, axes, rebuild_out = _results(out, out_dims)
        found = []
        for leaf, d in zip(flat, axes, strict=True):
            value = batch.value(leaf)
            if d is None and value is not None:
                raise ValueError(_BATCHED)
            found.append(leaf if d is None else batch.spread(leaf, value).movedim(0, d))
        return rebuild_out(found)
    except Exception as error:
        error.written = batch.written
        raise


_BATCHED = "vmap: can not return a BatchedTensor when out_dim is None: the result depends on the batch."


def _results(out, out_dims):
    """Returns (leaves, their batch axes, rebuild) of the results of a function.

    Raises:
        ValueError: a result with a batch axis is not a tensor.
    """
    leaves, rebuild = _flatten(out)
    axes = _spread(out_dims, out, "out_dims")
    for leaf, d in zip(leaves, axes, strict=True):
        if d is not None and not isinstance(leaf, Tensor):
            raise ValueError(f"vmap: the function must only return Tensors, got type {type(leaf)}.")
    return leaves, axes, rebuild


def _in_chunks(func, leaves, rebuild, dims, size, out_dims, kwargs, draws, chunk):
    """Calls `_at_once` for parts of the batch, and joins the results."""
    if chunk >= size:
        return _at_once(func, leaves, rebuild, dims, size, out_dims, kwargs, draws)
    parts = []
    for start in range(0, size, chunk):
        if draws.randomness == "same":
            draws.rewind()
        n = min(chunk, size - start)
        own = [leaf if d is None else leaf.narrow(d, start, n) for leaf, d in zip(leaves, dims, strict=True)]
        parts.append(_at_once(func, own, rebuild, dims, n, out_dims, kwargs, draws))
    flat, rebuilds = zip(*map(_flatten, parts), strict=True)
    axes = _spread(out_dims, parts[0], "out_dims")
    return rebuilds[0]([c[0] if d is None else cat(c, d) for c, d in zip(zip(*flat, strict=True), axes, strict=True)])


def _one_by_one(func, leaves, rebuild, dims, size, out_dims, kwargs, draws):
    """Calls the function for each index, if an op has no batching rule."""
    results, samples = [], Samples([leaf for leaf, d in zip(leaves, dims, strict=True) if d is not None], draws)
    for i in range(size):
        chosen = [leaf if d is None else leaf.select(d, i) for leaf, d in zip(leaves, dims, strict=True)]
        with samples.next():
            results.append(func(*rebuild(chosen), **kwargs))
    return _stacked(results, out_dims)


def _stacked(results, out_dims):
    if not results:
        raise ValueError("vmap: a batch of size 0 leaves the shapes of the results unknown.")
    flat, axes, rebuilds = zip(*(_results(out, out_dims) for out in results), strict=True)
    return rebuilds[-1](
        [_shared(c) if d is None else stack(list(c), d) for c, d in zip(zip(*flat, strict=True), axes[0], strict=True)]
    )


def _shared(results):
    """Returns the result of all samples.

    Raises:
        ValueError: they differ.
    """
    first = results[0]
    if isinstance(first, Tensor) and any(
        r is not first and (r.shape != first.shape or not allclose(r, first, 0, 0, equal_nan=True)) for r in results
    ):
        raise ValueError(_BATCHED)
    return first


# -- modules as functions ---------------------------------------------------------------------------------------


def functional_call(
    module: Module, parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Calls a module with other tensors in place of its parameters and buffers. The module does not change.

    Args:
        parameter_and_buffer_dicts: a dict {dotted name: tensor}, or a sequence of dicts. The module uses its own
            tensors for the other names.
        args: tuple of arguments, or a single argument.
        kwargs: dict of keyword arguments.
        tie_weights: use the tensor of a shared parameter for all names of the parameter (default: True).
        strict: require all names of the module, and no others (default: False).

    Returns:
        The result of the module.

    Raises:
        ValueError: a name is in several dicts, or a shared parameter has several values.
        RuntimeError: `strict` is True and names do not match.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> mytorch.func.functional_call(layer, {"weight": tensor([[1.0, 10.0]])}, tensor([2.0, 3.0])).tolist()
        [32.0]
    """
    dicts = parameter_and_buffer_dicts
    if isinstance(dicts, dict):
        given = dicts
    elif isinstance(dicts, (list, tuple)):
        if not all(isinstance(d, dict) for d in dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [name for d in dicts for name in d]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: t for d in dicts for name, t in d.items()}
    else:
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}"
        )
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stacks the parameters and buffers of several modules of the same class along a new first axis.

    Use it with `vmap` and `functional_call` to run an ensemble of models at once.

    Args:
        models: modules of the same class, all in training mode or all in eval mode.

    Returns:
        A tuple (parameters, buffers) of dicts {name: tensor}.

    Raises:
        RuntimeError: there are no models, classes or modes differ, or parameters differ in `requires_grad`.

    Example:
        >>> params, buffers = mytorch.func.stack_module_state([nn.Linear(2, 1) for _ in range(3)])
        >>> params["weight"].shape
        mytorch.Size([3, 1, 2])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(members):
        dicts = [dict(members(m)) for m in models]
        return {name: _stack_leaf([d[name] for d in dicts], name) for name in dicts[0]}

    return stacked(Module.named_parameters), stacked(Module.named_buffers)


def _stack_leaf(tensors, name):
    wanted = {t.requires_grad for t in tensors}
    if len(wanted) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    out = stack(tensors).detach()
    return out.requires_grad_() if wanted.pop() else out


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Removes the running statistics of all batch norm layers in a module, so that transforms can run it.

    Args:
        root: the module.

    Returns:
        The module.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
