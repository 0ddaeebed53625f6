"""`autograd.backward` and `autograd.grad`: from Tensors to the engine and back."""

from . import walk
from .mode import get_mode, reset_mode, set_mode
from .node import Leaf, Port


def _as_tuple(x):
    if x is None:
        return ()
    alone = hasattr(x, "_data") or hasattr(x, "output_nr") or not hasattr(x, "__iter__")  # a tensor, or an edge
    return (x,) if alone else tuple(x)


def _roots(tensors, gradients, create_graph, what):
    """(edge, gradient) pairs to start from, in the arithmetic that create_graph asks for."""
    given = _as_tuple(gradients) or (None,) * len(tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"{what}: got {len(tensors)} tensors and {len(given)} gradients.")
    roots = []
    for i, (tensor, g) in enumerate(zip(tensors, given, strict=True)):
        edge = _edge(tensor)
        if edge is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if not hasattr(tensor, "_data"):  # a GradientEdge, which keeps no value
            if g is None:
                raise RuntimeError(
                    "grad can be implicitly created only for scalar outputs: a GradientEdge needs its gradient."
                )
            start = walk.raw.unwrap(g)
        else:
            start = walk.gradient_of_root(tensor._data._array, g, what, i)
        interpreted = get_mode().interpreter is not None  # which may know more of g than its edge
        if create_graph or interpreted:
            itself = hasattr(g, "_edge") and (interpreted or g._edge is not None)
            start = g if itself else walk.recorded.start(start)
        roots.append((edge, start))
    return roots


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
    found = _run(
        roots, create_graph, retain_graph, keep_grads=retain_graph is True and targets is None, targets=targets
    )
    for edge, g in found.items():
        if not isinstance(edge, Leaf) and not edge.keeps_grad:  # given by name, so it is accumulated like a leaf's
            g = (walk.recorded if hasattr(g, "_edge") else walk.raw).wrap(g)
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
    found = _run(roots, create_graph, retain_graph, targets=set(edges), leaves=False)
    results = []
    for i, (t, edge) in enumerate(zip(inputs, edges, strict=True)):
        g = found.get(edge)
        if g is None:
            if materialize_grads:
                g = walk.recorded.constant(walk.raw.zeros(edge.shape, edge.dtype, t._data._array)).requires_grad_()
            elif not allow_unused:
                raise RuntimeError(
                    f"One of the differentiated Tensors (input {i}) appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior."
                )
        elif not hasattr(g, "_edge"):
            g = walk.recorded.constant(g)
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
    return tuple(None if column[0] is None else walk.recorded.stack(column) for column in zip(*rows, strict=True))


def _edge(tensor):
    """The edge of a tensor, or of a GradientEdge."""
    edge = tensor.edge
    if edge is None and hasattr(tensor, "node"):
        node, i = tensor
        several = type(node) is not Leaf and node.plan.ports
        return _port(node, i) if several else node
    return edge


def _port(node, i):
    return node.output_edge(i) if hasattr(node, "output_edge") else Port(node, i, node.shape[i], node.dtype[i])


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
        return walk.run(roots, keep_graph=keep, arithmetic=walk.recorded if over_tensors else walk.raw, **options)
    finally:
        reset_mode(before)
