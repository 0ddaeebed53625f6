"""`backward` and `grad`, which start the engine from Tensors, and the autograd methods of Tensor."""

import weakref
from collections import OrderedDict

from ..arrays import config, hooks
from ..arrays.errors import kind, warn_as_pytorch
from ..arrays.memory_format import kept
from ..arrays.overridable import overridable
from ..arrays.tensor import RemovableHandle, Tensor, is_tensor
from ..ops.dispatch.bind import public
from . import walk
from .mode import get_mode, reset_mode, set_mode
from .node import Leaf, Node, OutputEdge


def _as_tuple(x):
    """Returns the tensors or GradientEdges in x, which may be one of them or a sequence."""
    if x is None:
        return ()
    if is_tensor(x) or _is_gradient_edge(x):
        return (x,)
    if not hasattr(x, "__iter__"):
        raise TypeError(f"autograd: expected a tensor or a sequence of tensors, got {kind(x)}.")
    return tuple(x)


def _is_gradient_edge(x):
    """Returns True if x is an `autograd.graph.GradientEdge`, a named tuple (node, output_nr)."""
    return getattr(type(x), "_fields", None) == ("node", "output_nr")


def _roots(tensors, gradients, create_graph, function):
    """Returns the (edge, gradient) pairs at which backward starts; with `create_graph`, the gradients are Tensors."""
    gradients = _as_tuple(gradients) or (None,) * len(tensors)
    if len(gradients) != len(tensors):
        raise RuntimeError(f"{function}: got {len(tensors)} tensors and {len(gradients)} gradients.")
    roots = []
    for i, (tensor, g) in enumerate(zip(tensors, gradients, strict=True)):
        edge = _edge(tensor)
        if edge is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if not _is_gradient_edge(tensor):
            start = walk.gradient_of_root(tensor._mt_data._array, _raw(g), function, i)
        elif g is None:  # a GradientEdge has no value to take the shape of ones from
            raise RuntimeError(
                "grad can be implicitly created only for scalar outputs: a GradientEdge needs its gradient."
            )
        else:
            start = _raw(g)
        interpreted = get_mode().interpreter is not None  # it may track g even if g has no edge
        if create_graph or interpreted:
            # A gradient that is itself part of a graph keeps its edge, so that the result can be differentiated by it, too.
            follows = isinstance(g, Tensor) and (interpreted or g._mt_edge is not None)
            start = g if follows else hooks.recorded_arithmetic.start(start)
        roots.append((edge, start))
    return roots


def _raw(g):
    """Returns the raw array of a gradient that is a Tensor, an Array or a raw array."""
    return g._mt_data._array if is_tensor(g) else g


@overridable
def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of the sum of `tensors` with respect to the leaves of their graph to the `.grad` of the leaves.

    `Tensor.backward` is the same for a single tensor.

    Args:
        tensors: a tensor, or a sequence of tensors or of `autograd.graph.GradientEdge`.
        grad_tensors: upstream gradient of each tensor. It can be None for tensors with one element.
        retain_graph: keep the saved tensors for another backward pass (default: the value of `create_graph`). If True, and
            without `inputs`, intermediate tensors also get their `.grad`.
        create_graph: record the backward pass, for higher derivatives (default: False).
        inputs: accumulate gradients into these tensors only (default: into all leaves).

    Raises:
        RuntimeError: a tensor does not require gradients, a gradient is missing or has another shape, or the saved
            tensors were freed or changed in place.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> mytorch.autograd.backward([x.sum(), (x * x).sum()])
        >>> x.grad.tolist()
        [3.0, 5.0]
    """
    if create_graph:
        warn_as_pytorch(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can "
            "cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this."
        )
    tensors = _as_tuple(tensors)
    targets = None
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("'inputs' argument to backward cannot be empty.")
        targets = {_edge_of(t, "backward") for t in inputs}
    roots = _roots(tensors, grad_tensors, create_graph, "backward")
    keep_grads = retain_graph is True and targets is None and not config.pytorch_mode
    gradients = _run(roots, create_graph, retain_graph, keep_grads=keep_grads, targets=targets)
    for edge, g in gradients.items():
        if not isinstance(edge, Leaf) and not edge.keeps_grad:  # one of `inputs`: accumulate as for a leaf
            g = (hooks.recorded_arithmetic if isinstance(g, Tensor) else walk.raw).wrap(g)
            edge.grad = g if edge.grad is None else edge.grad + g


@overridable
def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
    is_grads_batched=False, materialize_grads=False,
):  # fmt: skip
    """Computes the gradients of the sum of `outputs` with respect to `inputs`. It does not change any `.grad`.

    Use it when a gradient is a value to compute with, such as in a gradient penalty or a second derivative
    (`create_graph=True`). In a training loop, `backward` fills the `.grad` of all parameters at once.

    Args:
        outputs: a tensor, or a sequence of tensors.
        inputs: a tensor, or a sequence of tensors.
        grad_outputs: upstream gradient of each output. It can be None for outputs with one element.
        retain_graph: keep the saved tensors for another backward pass (default: the value of `create_graph`).
        create_graph: record the backward pass, for higher derivatives (default: False).
        only_inputs: must be True; for compatibility with PyTorch.
        allow_unused: return None for an input that does not influence the outputs, instead of an error.
        is_grads_batched: `grad_outputs` have a leading batch dimension, and the results get it too. The backward
            passes run one after another.
        materialize_grads: return zeros instead of None for unused inputs.

    Returns:
        A tuple of Tensors, one for each input.

    Raises:
        RuntimeError: an input does not require gradients, or an input is not used and `allow_unused` is not True.
        ValueError: `only_inputs` is False, or `materialize_grads` is combined with `allow_unused=False`.

    Example:
        >>> x = tensor(3.0, requires_grad=True)
        >>> (dx,) = mytorch.autograd.grad(x**3, x, create_graph=True)
        >>> (ddx,) = mytorch.autograd.grad(dx, x)
        >>> dx.item(), ddx.item()
        (27.0, 18.0)
    """
    if is_grads_batched:
        keep = True if retain_graph is None else retain_graph
        return _batched(outputs, inputs, grad_outputs, keep, create_graph, allow_unused, materialize_grads)
    if not only_inputs:
        raise ValueError("autograd.grad: only_inputs=False is deprecated; use backward().")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True.")
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    edges = [_edge_of(t, "grad") for t in inputs]
    roots = _roots(outputs, grad_outputs, create_graph, "grad")
    gradients = _run(roots, create_graph, retain_graph, targets=set(edges), leaves=False)
    results = []
    for i, (t, edge) in enumerate(zip(inputs, edges, strict=True)):
        g = gradients.get(edge)
        if g is None:
            if materialize_grads:
                if _is_gradient_edge(t):
                    raise RuntimeError(
                        "grad: materialize_grads cannot be used when the given input is a GradientEdge. Give the tensor instead."
                    )
                zeros = kept(walk.raw.zeros(edge.shape, edge.dtype, t._mt_data._array), t._mt_data._array)
                g = hooks.recorded_arithmetic.constant(zeros).requires_grad_(create_graph)
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
    """Returns the stacked gradients for the rows of grad_outputs."""
    given = _as_tuple(grad_outputs)
    count = next((len(g) for g in given if g is not None), None)
    if count is None:
        raise RuntimeError("autograd.grad: is_grads_batched=True needs grad_outputs with a first axis for the batch.")
    # One after another, so the graph has to survive all rows but the last.
    rows = []
    for i in range(count):
        upstream = [None if g is None else g[i] for g in given]
        keep = True if i + 1 < count else retain_graph
        rows.append(grad(outputs, inputs, upstream, keep, create_graph, True, allow_unused, False, materialize_grads))
    return tuple(
        None if column[0] is None else hooks.recorded_arithmetic.stack(column) for column in zip(*rows, strict=True)
    )


def _edge(tensor):
    """Returns the edge of a tensor or of a GradientEdge."""
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
    """Runs backward from the roots; with `create_graph`, the operations of backward are recorded."""
    # Raw arrays have neither edges for a second derivative nor the tangents and batches of an interpreter; only Tensors do.
    keep = create_graph if retain_graph is None else retain_graph
    over_tensors = create_graph or get_mode().interpreter
    before = set_mode(get_mode() if create_graph else get_mode().no_grad())
    try:
        return walk.run(
            roots, keep_graph=keep, arithmetic=hooks.recorded_arithmetic if over_tensors else walk.raw, **options
        )
    finally:
        reset_mode(before)


@public(name="backward", function=False, inplace=False)
def backward_of(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Computes the gradient of this tensor with respect to the leaves of its graph, and adds it to their `.grad`.

    Backward frees the saved tensors of the graph. Gradients accumulate over calls, so set them to zero or None before the
    next step, for example with `optimizer.zero_grad()`.

    Args:
        gradient: upstream gradient, of the shape of this tensor (default: 1 for a tensor with one element).
        retain_graph: keep the saved tensors for another backward pass (default: the value of `create_graph`). If it is
            True, intermediate tensors also store their gradients in `.grad`, unlike in PyTorch.
        create_graph: record the backward pass, for higher derivatives (default: False). Gradients are then Tensors.
        inputs: accumulate gradients into these tensors only (default: into all leaves).

    Raises:
        RuntimeError: the tensor does not require gradients, or has several elements and `gradient` is None. Also raised
            if the saved tensors were freed or changed in place.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        >>> y = x * x
        >>> y.backward(mytorch.tensor([1.0, 10.0]))
        >>> x.grad.tolist()
        [4.0, 44.0]
    """
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@public(function=False, inplace=False)
def retain_grad(self):
    """Makes backward store the gradient of this tensor in its `.grad`, even if the tensor is not a leaf.

    It has no effect on leaves, which always store their gradient.

    Raises:
        RuntimeError: the tensor does not require gradients.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3
        >>> y.retain_grad()
        >>> (y * y).sum().backward()
        >>> y.grad.tolist()
        [6.0, 12.0]
    """
    edge = self.edge
    if edge is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if not edge.keeps_grad and not isinstance(edge, Leaf):
        edge.grad = None  # of an earlier backward(retain_graph=True)
    edge.keeps_grad = True


@public(function=False, inplace=False)
def register_hook(self, hook):
    """Registers a function that backward calls with the gradient of this tensor.

    Args:
        hook: `hook(grad) -> Tensor or None`. A result that is not None replaces the gradient. The hook must not change
            `grad` in place.

    Returns:
        A handle; `handle.remove()` removes the hook.

    Raises:
        RuntimeError: the tensor does not require gradients.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> handle = x.register_hook(lambda grad: grad * 10)
        >>> x.sum().backward()
        >>> x.grad.tolist()
        [10.0, 10.0]
        >>> handle.remove()
    """
    edge = self.edge
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if edge.hooks is None:
        edge.hooks = OrderedDict()
    if type(edge) is OutputEdge:
        edge.node.node_hooks()["outputs"].add(edge)
    return RemovableHandle(edge.hooks, hook)


@public(function=False, inplace=False)
def register_post_accumulate_grad_hook(self, hook):
    """Registers a function that backward calls after it added a gradient to the `.grad` of this leaf.

    Use it to run an optimizer step for each parameter during backward, for example.

    Args:
        hook: `hook(tensor)`, called with this tensor. Its result is ignored.

    Returns:
        A handle; `handle.remove()` removes the hook.

    Raises:
        RuntimeError: the tensor is not a leaf that requires gradients.

    Example:
        >>> x = tensor([1.0], requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad.tolist()))
        >>> (2 * x).backward()
        [2.0]
        >>> handle.remove()
    """
    edge = self.edge
    if not isinstance(edge, Leaf):
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if edge.post_hooks is None:
        edge.post_hooks = OrderedDict()
    return RemovableHandle(edge.post_hooks, (weakref.ref(self), hook))


# Methods of Array. `arrays/tensor.py` defines the corresponding methods of Tensor.


@public(function=False, inplace=False)
def detach(self):
    """Returns a Tensor that shares the memory of this Array."""
    return Tensor._of(self._mt_data)


@public(function=False, inplace=False)
def requires_grad_(self, requires_grad=True):
    """Returns a Tensor that shares the memory of this Array and requires gradients, or the Array if `requires_grad` is False.

    Use the result instead of the Array, which cannot record operations.
    """
    return detach(self).requires_grad_() if requires_grad else self


@public(function=False, inplace=False)
def build_graph_enabled(*_):
    """Returns True if operations are recorded; an alias of `mytorch.is_grad_enabled()`."""
    return get_mode().grad


def _register_hook(self, fn):
    """Registers `fn(grad_inputs, grad_outputs)`, which runs after the backward of this node.

    A tuple that it returns replaces `grad_inputs`.

    Args:
        fn: function of the gradients of the inputs and of the outputs, two tuples of tensors.

    Returns:
        A handle with the method `remove`.
    """
    return RemovableHandle(self.node_hooks()["post"], fn)


def _register_prehook(self, fn):
    """Registers `fn(grad_outputs)`, which runs before the backward of this node.

    A tuple that it returns replaces `grad_outputs`.

    Args:
        fn: function of the gradients of the outputs, a tuple of tensors.

    Returns:
        A handle with the method `remove`.
    """
    return RemovableHandle(self.node_hooks()["pre"], fn)


for _kind in (Leaf, Node):
    for _name, _method in (("register_hook", _register_hook), ("register_prehook", _register_prehook)):
        setattr(_kind, _name, _method)
