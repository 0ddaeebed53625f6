"""`backward` and `grad`: from Tensors to the graph and back. Also the methods of a Tensor that concern its place in the graph."""

import weakref
from collections import OrderedDict

from .._tensor import RemovableHandle, Tensor, is_tensor
from ..base import hooks
from ..engine import walk
from ..engine.mode import get_mode, reset_mode, set_mode
from ..engine.node import Leaf, OutputEdge
from .bind import public


def _as_tuple(x):
    """Returns the tensors or GradientEdges in x, which may be one of them or a sequence."""
    if x is None:
        return ()
    return (x,) if is_tensor(x) or _is_gradient_edge(x) or not hasattr(x, "__iter__") else tuple(x)


def _is_gradient_edge(x):
    """Whether x is an `autograd.graph.GradientEdge`, a named tuple (node, output_nr)."""
    return getattr(type(x), "_fields", None) == ("node", "output_nr")


def _roots(tensors, gradients, create_graph, function):
    """Returns the (edge, gradient) pairs to start from, in the arithmetic that create_graph asks for."""
    gradients = _as_tuple(gradients) or (None,) * len(tensors)
    if len(gradients) != len(tensors):
        raise RuntimeError(f"{function}: got {len(tensors)} tensors and {len(gradients)} gradients.")
    roots = []
    for i, (tensor, g) in enumerate(zip(tensors, gradients, strict=True)):
        edge = _edge(tensor)
        if edge is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if not _is_gradient_edge(tensor):
            start = walk.gradient_of_root(tensor._data._array, _raw(g), function, i)
        elif g is None:  # a GradientEdge has no value to take the shape of ones from
            raise RuntimeError(
                "grad can be implicitly created only for scalar outputs: a GradientEdge needs its gradient."
            )
        else:
            start = _raw(g)
        interpreted = get_mode().interpreter is not None  # which may follow more of g than its edge
        if create_graph or interpreted:
            follows = isinstance(g, Tensor) and (interpreted or g._edge is not None)
            start = g if follows else hooks.recorded_arithmetic.start(start)
        roots.append((edge, start))
    return roots


def _raw(g):
    """Returns the raw array of a gradient that a user gave: of a Tensor, an Array or a raw array."""
    return g._data._array if is_tensor(g) else g


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Accumulate the gradients of `tensors` into the leaves they were computed from.

    Args:
        tensors: one tensor or several.
        grad_tensors: their upstream gradients; None for tensors of one element.
        retain_graph, create_graph, inputs: as `Tensor.backward`.
    """
    tensors = _as_tuple(tensors)
    targets = None
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("'inputs' argument to backward cannot be empty.")
        targets = {_edge_of(t, "backward") for t in inputs}
    roots = _roots(tensors, grad_tensors, create_graph, "backward")
    gradients = _run(
        roots, create_graph, retain_graph, keep_grads=retain_graph is True and targets is None, targets=targets
    )
    for edge, g in gradients.items():
        if not isinstance(edge, Leaf) and not edge.keeps_grad:  # given by name, so it is accumulated like a leaf's
            g = (hooks.recorded_arithmetic if isinstance(g, Tensor) else walk.raw).wrap(g)
            edge.grad = g if edge.grad is None else edge.grad + g


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
    is_grads_batched=False, materialize_grads=False,
):  # fmt: skip
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    Args:
        outputs, inputs: a tensor or several.
        grad_outputs: upstream gradients.
        allow_unused: give None for an input that the outputs do not depend on, instead of raising.
        is_grads_batched: grad_outputs have a first axis of their own; each of its rows gives a row of the results.
            The rows are run one after another, so this saves writing, not time.
        materialize_grads: give zeros there.

    Returns:
        A tuple of Tensors, one for each input.

    Raises:
        RuntimeError: an input does not require grad, or was not used and allow_unused is not set.
    """
    if is_grads_batched:
        keep = True if retain_graph is None else retain_graph
        return _batched(outputs, inputs, grad_outputs, keep, create_graph, allow_unused, materialize_grads)
    if not only_inputs:
        raise ValueError("autograd.grad: only_inputs=False is deprecated; use backward().")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True.")
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    edges = [_edge_of(t, "grad") for t in inputs]
    roots = _roots(outputs, grad_outputs, create_graph, "grad")
    gradients = _run(roots, create_graph, retain_graph, targets=set(edges), leaves=False)
    results = []
    for i, (t, edge) in enumerate(zip(inputs, edges, strict=True)):
        g = gradients.get(edge)
        if g is None:
            if materialize_grads:
                g = hooks.recorded_arithmetic.constant(
                    walk.raw.zeros(edge.shape, edge.dtype, t._data._array)
                ).requires_grad_()
            elif not allow_unused:
                raise RuntimeError(
                    f"One of the differentiated Tensors (input {i}) appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior."
                )
        elif not isinstance(g, Tensor):
            g = hooks.recorded_arithmetic.constant(g)
        results.append(g)
    return tuple(results)


def _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads):
    """The gradients for each row of grad_outputs, stacked."""
    given = _as_tuple(grad_outputs)
    count = next((len(g) for g in given if g is not None), None)
    if count is None:
        raise RuntimeError("autograd.grad: is_grads_batched=True needs grad_outputs with a first axis for the batch.")
    rows = []
    for i in range(count):
        upstream = [None if g is None else g[i] for g in given]
        keep = True if i + 1 < count else retain_graph
        rows.append(grad(outputs, inputs, upstream, keep, create_graph, True, allow_unused, False, materialize_grads))
    return tuple(
        None if column[0] is None else hooks.recorded_arithmetic.stack(column) for column in zip(*rows, strict=True)
    )


def _edge(tensor):
    """The edge of a tensor, or of a GradientEdge."""
    edge = tensor.edge
    if edge is None and _is_gradient_edge(tensor):
        node, i = tensor
        several = type(node) is not Leaf and node.plan.ports
        return _port(node, i) if several else node
    return edge


def _port(node, i):
    return node.output_edge(i) if hasattr(node, "output_edge") else OutputEdge(node, i, node.shape[i], node.dtype[i])


def _edge_of(tensor, what):
    edge = _edge(tensor)
    if edge is None:
        raise RuntimeError(f"{what}: One of the differentiated Tensors does not require grad")
    return edge


def _run(roots, create_graph, retain_graph, **options):
    """Walk the graph, recording if asked."""
    keep = create_graph if retain_graph is None else retain_graph
    over_tensors = create_graph or get_mode().interpreter
    before = set_mode(get_mode() if create_graph else get_mode().replace(grad=False))
    try:
        return walk.run(
            roots, keep_graph=keep, arithmetic=hooks.recorded_arithmetic if over_tensors else walk.raw, **options
        )
    finally:
        reset_mode(before)


@public(name="backward", function=False, inplace=False)
def backward_of(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradient of this tensor with respect to each leaf to the leaf's `.grad`.

    Args:
        gradient: upstream gradient of this tensor's shape; may be left out for a single number.
        retain_graph: keep what the graph saved for another backward. Given as True, the gradients of all intermediate tensors
            are kept in their `.grad`, too (PyTorch keeps none).
        create_graph: record the backward pass itself, for higher derivatives. Then `.grad` is a Tensor.
        inputs: accumulate into these tensors only.

    Raises:
        RuntimeError: nothing requires grad; the tensor has several elements and no gradient was given; the graph was freed; a
            saved tensor was changed in place.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
    """
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@public(function=False, inplace=False)
def retain_grad(self):
    """Keeps the gradient of a tensor that is not a leaf in its `.grad`.

    Raises:
        RuntimeError: the tensor does not require grad.
    """
    edge = self.edge
    if edge is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    edge.keeps_grad = True


@public(function=False, inplace=False)
def register_hook(self, hook):
    """Calls `hook(grad)` when this tensor's gradient is complete; a result that is not None replaces the gradient.

    Returns:
        A handle; `handle.remove()` removes the hook.

    Raises:
        RuntimeError: the tensor does not require grad.
    """
    edge = self.edge
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if edge.hooks is None:
        edge.hooks = OrderedDict()
    return RemovableHandle(edge.hooks, hook)


@public(function=False, inplace=False)
def register_post_accumulate_grad_hook(self, hook):
    """Calls `hook(tensor)` after a gradient was accumulated into this leaf.

    Returns:
        A handle; `handle.remove()` removes the hook.

    Raises:
        RuntimeError: the tensor is not a leaf that requires grad.
    """
    edge = self.edge
    if not isinstance(edge, Leaf):
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if edge.post_hooks is None:
        edge.post_hooks = OrderedDict()
    return RemovableHandle(edge.post_hooks, (weakref.ref(self), hook))


# Methods of an Array; a Tensor has its own, in `_tensor.py`.


@public(function=False, inplace=False)
def detach(self):
    """Returns a Tensor over this memory."""
    return Tensor._of(self._data)


@public(function=False, inplace=False)
def requires_grad_(self, requires_grad=True):
    """Returns a Tensor over this memory that requires grad, or the array itself if `requires_grad` is False.

    An Array records no operations, so the result has to be used from here on.
    """
    return detach(self).requires_grad_() if requires_grad else self


@public(function=False, inplace=False)
def build_graph_enabled(*_):
    """Whether operations are being recorded; the same as `mytorch.is_grad_enabled()`."""
    return get_mode().grad
