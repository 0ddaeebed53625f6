"""Backward: a depth-first walk of the graph, gated by counts.

A node may pass its gradient on only when every consumer on the way from this root has contributed.
Which consumers those are depends on the root, so they are counted at each call, never at forward time: a
branch that does not lead to the root (a logged metric, an unused head) is not waited for.

1. From the roots, count the edges into each edge (restricted to those that lead to a target, if there
   are targets).
2. A stack of edges whose count has reached zero: pop one, run its formulas, add the results to its
   parents' gradients, decrement their counts. Last in, first out keeps the walk depth first, so
   gradients die early. Nothing recurses; depth is bounded by memory alone.

The first gradient that reaches an edge is borrowed: it may be the very array that another edge got
too (`x + y`), or a view of it. The second makes a fresh sum, which the edge owns, and later ones are
added into that in place.

The walk is written over raw arrays. For `create_graph` the same walk runs over Tensors, with the
arithmetic of `RecordedArithmetic` (transforms/tensor_ns.py).
"""

import math
import threading
from functools import partial

from numpy import asarray, generic

from .._array import Array, Size
from ..backend import device_of, gpu, on, restore_device, set_device_of, xp_of
from .mode import get_mode
from .node import Leaf, Node, OutputEdge, node_hooks


class RawArithmetic:
    """How gradients are computed when they need no graph of their own: on raw arrays."""

    @staticmethod
    def fit(g, edge):
        """Sum a gradient to the shape of the edge's tensor and cast it to its dtype."""
        if g.shape != edge.shape:
            g = sum_to(g, edge.shape)
        if g.dtype != edge.dtype:
            g = cast(g, edge.dtype)
        return g

    @staticmethod
    def formulas(node, g):
        """Returns (parent, gradient) for each input of the node that needs one."""
        saved, plan = node.saved, node.plan
        if plan.owned_sum is not None:
            saved = list(saved)
            saved[plan.owned_sum] = _owned_sum(node)
        if plan.vjp is not None:
            results = plan.vjp(g, *[saved[k] for k in plan.vjp_arguments])
            return [(node.parents[i], results[i]) for i in plan.needed]
        return [(node.parents[i], f(g, *[saved[k] for k in arguments])) for i, f, arguments in plan.formulas]

    @staticmethod
    def conj(g):
        """The complex conjugate of a gradient; a real one is its own."""
        return g.conj() if g.dtype.kind == "c" else g

    @staticmethod
    def zeros(shape, dtype, like):
        """A zero gradient for an output that nothing used, on the device of the raw array `like`."""
        return xp_of(like).zeros(shape, dtype)

    @staticmethod
    def wrap(g):
        """What a hook is given."""
        return Array._wrap(g)

    @staticmethod
    def unwrap(g):
        """Returns the gradient that a hook returned, a Tensor or an Array, in this arithmetic."""
        return g._data._array

    @staticmethod
    def raw(g):
        """Returns the raw array of a gradient."""
        return g

    @staticmethod
    def into_leaf(leaf, g, owned):
        leaf.accumulate(g, owned)


raw = RawArithmetic()


def repeated_axes(shape, own):
    """The axes of a `shape` along which what has the shape `own` was repeated to fill it."""
    lead = len(shape) - len(own)
    return (*range(lead), *[i + lead for i, n in enumerate(own) if n == 1 and shape[i + lead] != 1])


def sum_to(g, shape):
    """Undo broadcasting: sum a raw gradient over the axes along which its value was repeated."""
    if g.ndim < len(shape):
        return g.reshape(shape)  # a () gradient for a (1,) tensor
    axes = repeated_axes(g.shape, shape)
    if axes:
        g = g.sum(axis=axes, keepdims=True)
    if g.size != math.prod(shape):  # of a tensor that was given another shape behind the graph's back
        raise RuntimeError(f"a gradient of shape {list(g.shape)} does not fit a tensor of shape {list(shape)}")
    return g.reshape(shape) if g.shape != shape else g


def cast(g, numpy_dtype):
    """A raw gradient as another dtype; the real part where a complex one reaches a real tensor."""
    if g.dtype.kind == "c" and numpy_dtype.kind != "c":
        g = g.real
    return g.astype(numpy_dtype)


def run(roots, *, keep_graph=False, keep_grads=False, targets=None, leaves=True, arithmetic=raw):
    """Walk back from the roots.

    Args:
        roots: pairs (edge, gradient), the gradient raw or, with RecordedArithmetic a Tensor.
        keep_graph: do not release what the nodes saved.
        keep_grads: leave on every edge the gradient that it got.
        targets: edges; only what leads to them is run.
        leaves: accumulate into leaves (with targets: into those alone).
        arithmetic: `raw`, or RecordedArithmetic for `create_graph=True`.

    Returns:
        {target: gradient} for the targets that were reached.
    """
    kind = getattr(get_mode().profile, "walk", Walk)  # a profile measures each node
    walk = kind(roots, keep_graph, keep_grads, targets, leaves, arithmetic)
    walks = _walks.__dict__.setdefault("stack", [])
    walks.append(walk)
    try:
        with restore_device():
            found = walk.run(roots)
            for callback in walk.callbacks:  # each may queue further ones
                callback()
            return found
    finally:
        walks.pop()


_walks = threading.local()


def current_walk():
    """The running backward of this thread; None outside of one."""
    stack = _walks.__dict__.get("stack")
    return stack[-1] if stack else None


class Walk:
    """One backward pass; `run` above says what the options are.

    Attributes:
        waiting: for each edge that is reached, how many gradients it still waits for.
        ready: edges that wait for none, the stack.
        grads: the gradients that have arrived; owned: edges whose gradient nobody else holds; found: those of the targets.
        useful: the edges that lead to a target; None: all.
    """

    def __init__(self, roots, keep_graph, keep_grads, targets, leaves, arithmetic):
        self.keep_graph = keep_graph
        self.keep_grads = keep_grads
        self.targets = targets
        self.leaves = leaves
        self.arithmetic = arithmetic
        self.useful = None if targets is None else _leading_to(targets, [edge for edge, _ in roots])
        self.waiting = _count(roots, self.useful)
        self.grads, self.owned, self.found, self.callbacks = {}, set(), {}, []

    def run(self, roots):
        """Visit every edge once all its gradients are there."""
        for edge, g in roots:
            if gpu.several_gpus:
                set_device_of(self.arithmetic.raw(g))
            self.add(edge, self.arithmetic.fit(g, edge), False)
        self.ready = ready = [edge for edge, count in self.waiting.items() if count == 0]
        grads = self.grads
        while ready:
            edge = ready.pop()
            g = grads.pop(edge, None)
            if isinstance(g, generic):  # NumPy's arithmetic on 0-d arrays gives scalars
                g = asarray(g)
            kind = type(edge)
            if g is not None:
                if gpu.several_gpus:
                    set_device_of(self.arithmetic.raw(next(x for x in g if x is not None) if type(g) is list else g))
                if (edge.hooks or edge.keeps_grad or self.keep_grads or self.targets is not None) and type(
                    g
                ) is not list:
                    g = self.run_hooks(edge, g)
            if kind is Leaf:
                if g is not None:
                    self.visit_leaf(edge, g)
            elif kind is OutputEdge:
                self.visit_port(edge, g)
            else:
                self.visit_node(edge, g)
        return self.found

    def run_hooks(self, edge, g):
        """Show a complete gradient to the hooks, and keep it if it is one of those to return; returns the gradient to go on with."""
        for hook in list(edge.hooks.values()) if edge.hooks else ():
            changed = hook(self.arithmetic.wrap(g))
            if changed is not None:
                g = self.arithmetic.fit(self.arithmetic.unwrap(changed), edge)
                self.owned.discard(edge)
        if self.targets is not None and edge in self.targets:
            self.found[edge] = g
        if (self.keep_grads or edge.keeps_grad) and type(edge) is not Leaf:
            self.keep(edge, g)
        return g

    def keep(self, edge, g):
        """Leave a gradient on a non-leaf: retain_grad adds to what is there, as PyTorch does."""
        if edge.keeps_grad and edge.grad is not None:
            edge.grad = edge.grad + self.arithmetic.wrap(g)
        else:
            edge.grad = self.arithmetic.wrap(g.copy() if self.arithmetic is raw else g)

    def visit_leaf(self, leaf, g):
        """Accumulate into `.grad`."""
        if not self.leaves or (self.targets is not None and leaf not in self.targets):
            return
        arithmetic = self.arithmetic
        if node_hooks.data and leaf in node_hooks:
            _run_hooked(leaf, g, arithmetic, lambda g: arithmetic.into_leaf(leaf, g, False) or [])
        else:
            arithmetic.into_leaf(leaf, g, leaf in self.owned)

    def visit_port(self, port, g):
        """Hand the gradient of one of several outputs to the node, which waits for all of them."""
        node = port.node
        if self.useful is not None and node not in self.useful:
            return  # a target itself, with nothing wanted behind it
        if g is not None:  # there may be several OutputEdges for one output: backward's own graph makes new ones
            parts = self.grads.setdefault(node, [None] * node.plan.ports)
            parts[port.index] = g if parts[port.index] is None else parts[port.index] + g
        self.decrement(node)

    def visit_node(self, node, g):
        """Run the node's formulas and hand each parent its gradient."""
        if g is None or (self.useful is not None and self.useful.isdisjoint(node.parents)):
            results = [(parent, None) for parent in node.parents if parent is not None]
        else:
            node.check()
            if node_hooks.data and node in node_hooks:
                results = _run_hooked(node, g, self.arithmetic, lambda g: _run_node(node, g, self.arithmetic))
            else:
                results = _run_node(node, g, self.arithmetic)
            if not self.keep_graph:
                node.release()
        for parent, gp in results:
            if self.useful is None or parent in self.useful:
                if gp is not None:
                    self.accumulate(node, g, parent, gp, results)
                self.waiting[parent] -= 1
                if not self.waiting[parent]:
                    self.ready.append(parent)

    def accumulate(self, node, g, parent, gp, results):
        """Add a formula's result to what a parent has. The first one is borrowed, unless nobody else can hold it."""
        if gpu.several_gpus:
            set_device_of(self.arithmetic.raw(gp))
        grads, is_raw = self.grads, self.arithmetic is raw
        keeps_float32 = False
        if gp.shape != parent.shape or gp.dtype != parent.dtype:
            alone = is_raw and not self.keep_grads and self.targets is None and parent not in grads
            keeps_float32 = alone and _takes_float32(parent, gp)
            if not keeps_float32:
                gp = self.arithmetic.fit(gp, parent)
        if parent in grads:
            self.add(parent, gp, is_raw)
            return
        grads[parent] = gp
        if is_raw and (keeps_float32 or type(parent) is Leaf):
            if _is_fresh(gp, g, node, results) or (gp is g and node in self.owned and len(node.parents) == 1):
                self.owned.add(parent)

    def add(self, edge, g, in_place):
        """Add a gradient to what the edge has; see the ownership rule above."""
        grads = self.grads
        if edge not in grads:
            grads[edge] = g
        elif in_place and edge in self.owned:
            grads[edge] += g
        else:
            grads[edge] = grads[edge] + g
            self.owned.add(edge)

    def decrement(self, edge):
        """One gradient less to wait for."""
        self.waiting[edge] -= 1
        if not self.waiting[edge]:
            self.ready.append(edge)


def _run_hooked(node, g, arithmetic, run):
    """Run a node between its own hooks, which are given tuples of gradients."""
    hooks, several = node_hooks[node], isinstance(g, list)
    given = tuple(None if x is None else arithmetic.wrap(x) for x in (g if several else [g]))
    for hook in list(hooks["pre"].values()):
        changed = hook(given)
        if changed is not None:
            given = changed if isinstance(changed, tuple) else (changed,)
    if hooks["pre"]:
        g = [None if x is None else arithmetic.unwrap(x) for x in given]
        g = g if several else g[0]
    results = list(run(g))
    if not hooks["post"]:
        return results
    places, found = [], [None] * len(node.parents)
    for parent, gp in results:
        i = next(i for i, p in enumerate(node.parents) if p is parent and i not in places)
        places.append(i)
        found[i] = None if gp is None else arithmetic.wrap(arithmetic.fit(gp, parent))
    found = tuple(found)
    for hook in list(hooks["post"].values()):
        changed = hook(found, given)
        if changed is not None:
            found = changed if isinstance(changed, tuple) else (changed,)
    return [(node.parents[i], None if found[i] is None else arithmetic.unwrap(found[i])) for i in places]


def _run_node(node, g, arithmetic):
    """The gradients of a node's inputs: (parent, gradient) pairs."""
    if node.plan.run is not None:  # a user's autograd.Function
        return node.plan.run(node, g, arithmetic)
    if node.plan.ports and not node.op.undefined_grads and any(x is None for x in g):
        like = arithmetic.raw(next(x for x in g if x is not None))
        g = [
            arithmetic.zeros(shape, dtype, like) if x is None else x
            for x, shape, dtype in zip(g, node.shape, node.dtype, strict=False)
        ]
    run = arithmetic.formulas if node.trace is None else partial(_run_traced, arithmetic)
    dtype = node.dtype
    if (dtype if type(dtype) is not tuple else dtype[0]).kind == "c" and node.op.holomorphic:
        g = [arithmetic.conj(x) for x in g] if node.plan.ports else arithmetic.conj(g)
        return [(parent, gp if gp is None else arithmetic.conj(gp)) for parent, gp in run(node, g)]
    return run(node, g)


def _run_traced(arithmetic, node, g):
    """Under detect_anomaly: name the forward op when a formula fails or gives NaN."""
    try:
        results = arithmetic.formulas(node, g)
    except Exception as error:
        raise RuntimeError(
            f"{node.label} failed in backward: {error}. The forward op ran here:\n{node.trace}"
        ) from error
    for _, gp in results:
        values = None if gp is None else arithmetic.raw(gp)
        if values is not None and values.dtype.kind in "fcV" and (values != values).any():
            raise RuntimeError(
                f"Function '{node.label}' returned nan values in its output. The forward op ran here:\n{node.trace}"
            )
    return results


def _count(roots, useful):
    """How many edges lead into each edge, among those reachable from the roots."""
    waiting = {edge: 0 for edge, _ in roots if useful is None or edge in useful}
    todo = list(waiting)
    while todo:
        for parent in todo.pop().parents:
            if parent is None or (useful is not None and parent not in useful):
                continue
            if parent not in waiting:
                waiting[parent] = 0
                todo.append(parent)
            waiting[parent] += 1
    return waiting


def _leading_to(targets, roots):
    """The edges from which a target can be reached, the targets among them."""
    children, todo, seen = {}, list(roots), set(roots)
    while todo:
        edge = todo.pop()
        for parent in edge.parents:
            if parent is None:
                continue
            children.setdefault(parent, []).append(edge)
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    todo = [edge for edge in targets if edge in seen]
    useful = set(todo)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in useful:
                useful.add(child)
                todo.append(child)
    return useful


def _is_fresh(gp, g, edge, results):
    """Whether a formula made this array for one input, rather than passing its upstream gradient (or a view) on."""
    if gp.base is not None or type(g) is not list:
        return gp is not g and gp.base is None
    return edge.plan.run is None and not any(gp is x for x in g) and sum(gp is x for _, x in results) == 1


def _owned_sum(node):
    """Returns the gradient that the first input of a node has so far, if no other object holds it, and None otherwise."""
    walk, edge = current_walk(), node.parents[0]
    if walk is None or edge not in walk.owned or (node_hooks.data and node in node_hooks):
        return None
    return walk.grads.get(edge)


def _takes_float32(edge, g):
    """Whether a gradient may reach a node in float32 although the node's result has half precision.

    That holds for a cast to half precision (`passes_float32` of its record): its formula widens the gradient to float32 anyway, so a
    kernel that sums in float32 does not have to round.
    """
    if (
        type(edge) is not Node
        or not edge.plan.passes_float32
        or edge.dtype.itemsize != 2
        or edge.hooks
        or edge.keeps_grad
        or edge in node_hooks
    ):
        return False
    return edge.parents[0] is not None and g.dtype == edge.parents[0].dtype and g.shape == edge.shape


def gradient_of_root(raw_output, g, what, i):
    """The raw gradient to start from: ones for a scalar, else what the user gave.

    Raises:
        RuntimeError: the output is not a scalar and no gradient was given, or their shapes differ.
    """
    if g is None:
        if raw_output.size != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs: {what} was called on a tensor of shape "
                f"{tuple(raw_output.shape)}; reduce it to one number or give its gradient."
            )
        if raw_output.dtype.kind not in "fcV":
            raise RuntimeError(f"{what}: grad can be computed only for floating point tensors.")
        xp, there = on(device_of(raw_output))
        with there:
            return xp.ones(raw_output.shape, raw_output.dtype)
    if tuple(g.shape) != tuple(raw_output.shape):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {Size(g.shape)} and output[{i}] has a shape of "
            f"{Size(raw_output.shape)}."
        )
    return g
