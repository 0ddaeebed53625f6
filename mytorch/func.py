"""Functions of functions, as `torch.func`'s: gradients, Jacobians, Hessians, modules as functions, calls for a whole batch.

Arguments may be nested tuples, lists and dicts of tensors. The transforms nest (`grad(grad(f))`), and a result
stays differentiable by whatever else it depends on: an outer transform's argument, or a parameter that the
function closes over. `jvp`, `jacfwd` and `hessian` run in forward mode (transforms/forward_mode.py).
`vmap` calls the function once, over tensors that stand for the batch (transforms/batching.py); a function in which an op has no batching
rule, or which looks at numbers, is called for each index instead.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ._tensor import Tensor
from .base.pytree import tree_flatten, tree_map, tree_unflatten
from .dispatch.backward import grad as _autograd_grad
from .engine.mode import enable_grad, get_mode, is_grad_enabled
from .engine.node import Leaf
from .nn.module import Module
from .nn.normalization import _BatchNorm
from .nn.utils.stateless import _functional_call
from .ops.creation import zeros_like
from .ops.movement import cat, stack
from .ops.random import positions, set_positions
from .transforms.batching import Batch, Unbatched
from .transforms.forward_mode import Level

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


# -- nested arguments -----------------------------------------------------------------------------------------


def _flatten(tree):
    """(leaves, rebuild): the leaves of nested tuples, lists and dicts, and the function that puts others in place."""
    leaves, spec = tree_flatten(tree)
    return leaves, partial(tree_unflatten, treespec=spec)


def _tensors(tree, what):
    leaves, rebuild = _flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"{what}: expected tensors, got {type(leaf).__name__}.")
    return leaves, rebuild


# -- one level of differentiation -----------------------------------------------------------------------------


_spent = weakref.WeakSet()  # leaves of levels whose function has returned; nobody asks for gradients there


def _fresh(leaves):
    """The tensors to differentiate by: views of what an outer level tracks, leaves of their own otherwise."""
    tracked = is_grad_enabled()
    return [t.view_as(t) if tracked and t.requires_grad else _detached(t).requires_grad_() for t in leaves]


def _detached(tensor, cut=None):
    """A tensor out of its graph, still followed by the transforms around this one."""
    interpreter = get_mode().interpreter
    return tensor.detach() if interpreter is None else interpreter.detach(tensor, cut)


def _depends_on_others(tensor, given):
    """Whether a result was computed from anything that wants a gradient besides the tensors `given`."""
    own = {id(t.edge) for t in given}
    waiting, seen = [tensor.edge], set()
    while waiting:
        edge = waiting.pop()
        if edge is None or id(edge) in seen:
            continue
        seen.add(id(edge))
        if isinstance(edge, Leaf) and id(edge) not in own and edge not in _spent:
            return True
        waiting.extend(edge.parents)
    return any(not isinstance(t.edge, Leaf) for t in given)


def _with_aux(out, name):
    """(output, aux) of a function that returns both."""
    if not (isinstance(out, tuple) and len(out) == 2):
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return out


class _Level:
    """A function called with fresh arguments, and what its results are differentiated by."""

    def __init__(self, func, args, argnums=None, has_aux=False, name="grad"):
        self.name = name
        self.record = is_grad_enabled()
        chosen = args if argnums is None else [args[i] for i in argnums]
        leaves, self.rebuild = _tensors(list(chosen), name)
        self.inputs = _fresh(leaves)
        fresh = self.rebuild(self.inputs)
        args = list(args)
        for i, value in zip(range(len(args)) if argnums is None else argnums, fresh, strict=True):
            args[i] = value
        with enable_grad():
            out = func(*args)
        _spent.update(t.edge for t in self.inputs if isinstance(t.edge, Leaf))
        self.aux = None
        if has_aux:
            out, aux = _with_aux(out, name)
            self.aux = tree_map(self.closed, aux)
        self.out = out
        self.outputs, self.rebuild_out = _tensors(out, name)
        self.outer = self.record and any(_depends_on_others(o, self.inputs) for o in self.outputs)

    def closed(self, value):
        """A result as the caller gets it: out of this level's graph, unless it is in another's too."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        return value if self.record and _depends_on_others(value, self.inputs) else _detached(value, self.closed)

    def gradients(self, outputs, upstream, retain=False):
        """The gradients of outputs by every input; zeros where there is no way."""
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        if not pairs:
            return [zeros_like(t) for t in self.inputs]
        with enable_grad():
            found = _autograd_grad(
                [o for o, _ in pairs], self.inputs, [g for _, g in pairs], retain_graph=retain or self.outer,
                create_graph=self.outer, allow_unused=True,
            )  # fmt: skip
        return [zeros_like(t) if g is None else g for g, t in zip(found, self.inputs, strict=True)]


def _argnums(argnums, args):
    """argnums as a tuple of places within the arguments, and whether it was one number."""
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
    """A function that returns (gradient of func by its argument, func's value).

    Args:
        func: returns one number, or (number, anything) if has_aux.
        argnums: which argument, or a tuple of several.
        has_aux: the value is then (number, aux).

    Raises:
        RuntimeError: when the result is called: func's result is no single number, or there is no such argument.
    """

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
    """A function that returns the gradient of func by its argument; see `grad_and_value`.

    Args:
        func: a function of tensors, returning tensors.
        argnums: which argument, or a tuple of several.
        has_aux: func returns (output, aux).

    Returns:
        A function giving the gradient, or (gradient, aux) if has_aux.

    Example:
        >>> mytorch.func.grad(lambda x: x**3)(tensor(2.0)).item()
        12.0
    """
    both = grad_and_value(func, argnums, has_aux)

    def run(*args, **kwargs):
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return run


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), vjp_fn), and aux if has_aux; vjp_fn(cotangents) gives a tuple of gradients, one per primal.

    vjp_fn can be called again. The cotangents have the structure and shapes of func's result.

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
                    f"vjp: expected a cotangent of shape {tuple(o.shape)}, the output's, got {tuple(g.shape)}."
                )
        level.outer = level.outer or (is_grad_enabled() and any(g.requires_grad for g in given))
        return tuple(level.rebuild(level.gradients(level.outputs, given, retain=True)))

    out = level.rebuild_out([level.closed(o) for o in level.outputs])
    return (out, vjp_fn, level.aux) if has_aux else (out, vjp_fn)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """(func(*primals), J tangents), and aux if has_aux: a Jacobian times a vector.

    Args:
        primals, tangents: tuples of equal structure and shapes.
        strict: raise where an output does not depend on the primals, instead of giving zeros.
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples.")
    given, _ = _tensors(list(tangents), "jvp")
    before, rebuild = _tensors(list(primals), "jvp")
    if [tuple(t.shape) for t in given] != [tuple(t.shape) for t in before] or not given:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same (non-empty) structure and shapes."
        )
    level, aux = Level(), None
    try:
        with level.inside():
            duals = [level.dual(p, t) for p, t in zip(before, given, strict=True)]
            out = func(*rebuild(duals))
        if has_aux:
            out, aux = _with_aux(out, "jvp")
            aux = tree_map(lambda x: level.primal(x) if isinstance(x, Tensor) else x, aux)
        outputs, rebuild_out = _tensors(out, "jvp")
        found = [level.tangent(o) for o in outputs]
        if strict and any(t is None for t in found):
            raise RuntimeError("jvp: an output does not depend on the primals. This is not allowed in strict mode.")
        found = [zeros_like(_detached(o)) if t is None else t for o, t in zip(outputs, found, strict=True)]
        result = rebuild_out([level.primal(o) for o in outputs]), rebuild_out(found)
    finally:
        level.close()
    return (*result, aux) if has_aux else result


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(func(*primals), jvp_fn): jvp_fn(*tangents) is the Jacobian at primals times the tangents."""
    out, _ = jvp(func, primals, tuple(tree_map(zeros_like, p) for p in primals))
    return out, lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that returns the Jacobian of func by its argument: a tensor of shape output.shape + argument.shape.

    Args:
        argnums: which argument, or a tuple of several (then each output has a tuple of Jacobians).
        has_aux: func returns (output, aux), and the Jacobian comes with aux.
        chunk_size: accepted; the rows are computed one by one.

    Example:
        >>> mytorch.func.jacrev(lambda x: x**2)(tensor([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """

    def run(*args, **kwargs):
        places, one = _argnums(argnums, args)
        level = _Level(lambda *a: func(*a, **kwargs), args, places, has_aux, "jacrev")
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


def _units(out):
    """The unit tensors of out's shape."""
    for i in range(out.numel()):
        unit = zeros_like(out.detach()).reshape(-1)
        unit[i] = 1
        yield unit.reshape(out.shape)


def jacfwd(
    func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that returns the Jacobian of func by its argument, as `jacrev`'s, column by column in forward mode.

    Args:
        func: a function of tensors, returning tensors.
        argnums: which argument, or a tuple of several.
        has_aux: func returns (output, aux).
        randomness: accepted; func draws the same numbers for each column.

    Example:
        >>> mytorch.func.jacfwd(lambda x: x**2)(tensor([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """

    def run(*args, **kwargs):
        places, one = _argnums(argnums, args)
        leaves, rebuild = _tensors([args[i] for i in places], "jacfwd")

        def of_leaves(*leaves):
            chosen = list(args)
            for i, value in zip(places, rebuild(leaves), strict=True):
                chosen[i] = value
            return func(*chosen, **kwargs)

        state, columns, found = positions(), [], None
        for i, leaf in enumerate(leaves):
            for unit in _units(leaf):
                set_positions(state)
                tangents = tuple(unit if j == i else zeros_like(_detached(t)) for j, t in enumerate(leaves))
                found = jvp(of_leaves, tuple(leaves), tangents, has_aux=has_aux)
                columns.append(_flatten(found[1])[0])
        if found is None:  # no column to learn the results' shapes from
            found = jvp(of_leaves, tuple(leaves), tuple(map(zeros_like, leaves)), has_aux=has_aux)
        outputs, rebuild_out = _flatten(found[0])
        jacobians = []
        for k, out in enumerate(outputs):
            rows, parts = iter(columns), []
            for leaf in leaves:
                own = [next(rows)[k] for _ in range(leaf.numel())]
                shape = (*out.shape, *leaf.shape)
                parts.append(stack(own, -1).reshape(shape) if own else out.new_zeros(shape))
            jacobian = rebuild(parts)
            jacobians.append(jacobian[0] if one else tuple(jacobian))
        result = rebuild_out(jacobians)
        return (result, found[2]) if has_aux else result

    return run


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of func by its argument.

    Example:
        >>> mytorch.func.hessian(lambda x: (x**3).sum())(tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(func, argnums), argnums)


# -- a batch ---------------------------------------------------------------------------------------------------


def _spread(dims, tree, what):
    """The leaves of `tree` with a batch axis for each; one number holds for all below it."""
    if isinstance(dims, int) or dims is None:
        return [dims] * len(_flatten(tree)[0])
    children = list(tree.values()) if isinstance(tree, dict) else tree
    alike = type(dims) is type(tree) or (isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list)))
    parts = [dims[k] for k in tree] if alike and isinstance(dims, dict) else dims
    if not alike or len(parts) != len(children):
        raise ValueError(f"vmap: {what} is not compatible with the structure of what it is for: {dims!r}.")
    return [d for part, child in zip(parts, children, strict=True) for d in _spread(part, child, what)]


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that gives what func gives for each index of a batch axis, stacked.

    Args:
        in_dims: the batch axis of the arguments, None for what is the same for all; nested like the arguments.
        out_dims: where the batch axis of the results goes.
        randomness: what func draws is "same" for all, or "different"; "error" refuses that it draws.
        chunk_size: run for so many indices at a time, in less memory.

    Raises:
        ValueError: when the result is called: no argument has a batch axis, sizes differ, or a result is no tensor.
        RuntimeError: func draws random numbers, and randomness is "error".

    Example:
        >>> x, y = tensor([[1, 2], [3, 4]]), tensor([[5, 6], [7, 8]])
        >>> mytorch.vmap(mytorch.dot)(x, y).tolist()
        [17, 53]
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")

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
        size, before = sizes.pop(), positions()
        try:
            if chunk_size is None or chunk_size >= size:
                result = _at_once(func, leaves, rebuild, dims, size, out_dims, kwargs)
            else:
                result = _in_chunks(func, leaves, rebuild, dims, size, out_dims, kwargs, chunk_size)
            if randomness == "different" and _drawn(before):
                raise Unbatched("vmap: the function draws random numbers.")
        except Exception as error:
            if getattr(error, "written", False):
                raise
            set_positions(before)
            result = _one_by_one(func, leaves, rebuild, dims, size, out_dims, kwargs, randomness)
        if randomness == "error" and _drawn(before):
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                "randomness flags on vmap or perform the randomness operation out of vmap"
            )
        return result

    return run


def _drawn(before):
    """Whether random numbers were drawn since."""
    after = positions()
    return after[2] != before[2] or not np.array_equal(after[0]._data._array, before[0]._data._array)


def _at_once(func, leaves, rebuild, dims, size, out_dims, kwargs):
    """One call for the whole batch (transforms/batching.py)."""
    batch = Batch(size)
    values = [leaf if d is None else leaf.movedim(d, 0) for leaf, d in zip(leaves, dims, strict=True)]
    stand = [v if d is None else batch.stand_for(v) for v, d in zip(values, dims, strict=True)]
    try:
        with batch.inside():
            out = func(*rebuild(stand), **kwargs)
        flat, rebuild_out = _flatten_tensors(out)
        found = []
        for leaf, d in zip(flat, _spread(out_dims, out, "out_dims"), strict=True):
            value = batch.value(leaf)
            if d is None:
                found.append(leaf if value is None else value[0])
            else:
                found.append(batch.spread(leaf, value).movedim(0, d))
        return rebuild_out(found)
    except Exception as error:
        error.written = batch.written
        raise


def _flatten_tensors(result):
    leaves, rebuild = _flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"vmap: the function must only return Tensors, got type {type(leaf)}.")
    return leaves, rebuild


def _in_chunks(func, leaves, rebuild, dims, size, out_dims, kwargs, chunk):
    """`_at_once` for parts of the batch, whose results are joined."""
    parts = []
    for start in range(0, size, chunk):
        n = min(chunk, size - start)
        own = [leaf if d is None else leaf.narrow(d, start, n) for leaf, d in zip(leaves, dims, strict=True)]
        parts.append(_at_once(func, own, rebuild, dims, n, out_dims, kwargs))
    flat, rebuilds = zip(*map(_flatten, parts), strict=True)
    axes = _spread(out_dims, parts[0], "out_dims")
    return rebuilds[0]([c[0] if d is None else cat(c, d) for c, d in zip(zip(*flat, strict=True), axes, strict=True)])


def _one_by_one(func, leaves, rebuild, dims, size, out_dims, kwargs, randomness):
    """A call for each index, for functions in which an op has no batching rule."""
    state = positions() if randomness == "same" else None
    results = []
    for i in range(size):
        if state is not None:
            set_positions(state)
        chosen = [leaf if d is None else leaf.select(d, i) for leaf, d in zip(leaves, dims, strict=True)]
        results.append(func(*rebuild(chosen), **kwargs))
    return _stacked(results, out_dims)


def _stacked(results, out_dims):
    if not results:
        raise ValueError("vmap: a batch of size 0 leaves the shapes of the results unknown.")
    flat, rebuilds = zip(*map(_flatten_tensors, results), strict=True)
    dims = _spread(out_dims, results[0], "out_dims")
    return rebuilds[-1](
        [c[0] if d is None else stack(list(c), d) for c, d in zip(zip(*flat, strict=True), dims, strict=True)]
    )


# -- modules as functions ---------------------------------------------------------------------------------------


def functional_call(
    module: Module, parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """module(*args, **kwargs) with other tensors in the place of its parameters and buffers.

    Args:
        parameter_and_buffer_dicts: {dotted name: tensor}, or several such dicts; what is not named stays.
        args: a tuple of arguments, or one that is no tuple.
        tie_weights: a tensor given for a shared parameter counts under all its names.
        strict: all names must be given, and no others.

    Raises:
        ValueError: a name in several dicts, or several values for a shared parameter.
        RuntimeError: names that don't match, if strict.
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
    """(parameters, buffers) of several modules of one class, stacked along a new first axis, by name.

    Raises:
        RuntimeError: no models, different classes or modes, or parameters that differ in requires_grad.
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
    """Take the running statistics from all batch norms below `root`, so that they change nothing; returns root."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
