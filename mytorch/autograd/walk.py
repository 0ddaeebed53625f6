"""Backward: a depth-first walk of the graph with counts.

A node can pass its gradient on only after all its consumers have contributed. Only consumers between the node and the
root count. They depend on the root, so each call of backward counts them again. A branch that does not lead to the root,
such as a logged metric or an unused head, is ignored.

1. Starting from the roots, count the edges into each edge. With targets, count only edges that lead to a target.
2. Keep a stack of edges whose count is zero. Pop an edge, run its formulas, add the results to the gradients of its
   parents, and decrement their counts. The stack makes the walk depth-first, so gradients are freed early. There is no
   recursion, so only memory limits the depth of the graph.

The first gradient that reaches an edge is borrowed: it can be the same array that another edge received (`x + y`), or a
view of it. The second gradient creates a new sum, which the edge owns. Further gradients are added to it in place.

The walk uses raw arrays. For `create_graph`, the same walk uses Tensors, with the arithmetic of `RecordedArithmetic`
(autograd/tensor_ns.py).
"""

import math
import sys
import threading
from contextvars import copy_context
from functools import partial

from numpy import asarray, empty, generic, ndarray

from ..arrays import config, device_of, gpu, hooks, on, restore_device, set_device_of, xp_of
from ..arrays.array import Array, Size
from ..arrays.errors import kind, warn
from ..kernels import parts
from .mode import get_mode
from .node import Leaf, Node, OutputEdge, hooked, node_hooks_of


class RawArithmetic:
    """The arithmetic of a backward pass that is not recorded: gradients are raw arrays."""

    @staticmethod
    def fit(g, edge):
        """Sums a gradient to the shape of the tensor of an edge, and casts it to its dtype."""
        if g.shape != edge.shape:
            g = sum_to(g, edge.shape)
        if g.dtype != edge.dtype:
            g = cast(g, edge.dtype)
        return g

    @staticmethod
    def replays(node):
        """Returns False: the formulas run."""
        return False

    @staticmethod
    def formulas(node, g):
        """Returns (parent, gradient) for each input of the node that needs one."""
        saved, plan = node.saved, node.plan
        if plan.owned_sum is not None:  # the formula adds to the gradient itself, which saves an array of its size
            saved = list(saved)
            saved[plan.owned_sum] = _owned_sum(node)
        if plan.vjp is not None:
            results = plan.vjp(g, *[saved[k] for k in plan.vjp_arguments])
            if type(results) is not tuple:
                check_tuple(node, results)
            return [(node.parents[i], results[i]) for i in plan.needed]
        if plan.divides and type(g) is ndarray and g.size >= parts.LEAST:
            return [
                (
                    node.parents[i],
                    parts.elementwise(f, f, g, *[saved[k] for k in arguments], ufunc=getattr(f, "ufunc", None)),
                )
                for i, f, arguments in plan.formulas
            ]
        return [(node.parents[i], f(g, *[saved[k] for k in arguments])) for i, f, arguments in plan.formulas]

    @staticmethod
    def conj(g):
        """Returns the complex conjugate of a gradient."""
        return g.conj() if g.dtype.kind == "c" else g

    @staticmethod
    def zeros(shape, dtype, like):
        """Returns a gradient of zeros for an unused output, on the device of the raw array `like`."""
        return xp_of(like).zeros(shape, dtype)

    @staticmethod
    def wrap(g):
        """Returns the gradient as an argument for a hook."""
        return hooks.shown(Array._wrap(g))

    @staticmethod
    def unwrap(g):
        """Converts the result of a hook, a Tensor or an Array, to a gradient."""
        return g._mt_data._array

    @staticmethod
    def raw(g):
        """Returns the raw array of a gradient."""
        return g

    @staticmethod
    def into_leaf(leaf, g, owned):
        leaf.accumulate(g, owned)


raw = RawArithmetic()


def check_tuple(node, results):
    """Checks the result of a function for all gradients of an op.

    Raises:
        TypeError: it is neither a tuple nor a list.
    """
    if not isinstance(results, (tuple, list)):
        raise TypeError(
            f"{node.op.name}: expected its vjp to return a tuple with a gradient or None for each input, got {kind(results)}."
        )


def repeated_axes(shape, own):
    """Returns the axes along which broadcasting repeats an array of shape `own` to `shape`."""
    lead = len(shape) - len(own)
    return (*range(lead), *[i + lead for i, n in enumerate(own) if n == 1 and shape[i + lead] != 1])


def sum_to(g, shape):
    """Reverses broadcasting: sums a raw gradient over the axes along which its value was repeated."""
    if g.ndim < len(shape):
        return g.reshape(shape)  # a () gradient for a (1,) tensor
    axes = repeated_axes(g.shape, shape)
    if axes:
        g = xp_of(g).sum(g, axis=axes, keepdims=True)  # of half precision in float32
    if g.size != math.prod(shape):  # the shape of the tensor was changed outside of the graph
        raise RuntimeError(f"a gradient of shape {list(g.shape)} does not fit a tensor of shape {list(shape)}")
    return g.reshape(shape) if g.shape != shape else g


def cast(g, numpy_dtype):
    """Casts a raw gradient. For a complex gradient of a real tensor, returns the real part."""
    if g.dtype.kind == "c" and numpy_dtype.kind != "c":
        g = g.real
    return g.astype(numpy_dtype)


def run(roots, *, keep_graph=False, keep_grads=False, targets=None, leaves=True, arithmetic=raw):
    """Runs backward from the roots.

    Args:
        roots: pairs (edge, gradient). Gradients are raw arrays, or Tensors with RecordedArithmetic.
        keep_graph: do not free saved arrays.
        keep_grads: store the gradient of each edge on the edge.
        targets: edges; only nodes between the roots and the targets run.
        leaves: accumulate gradients into leaves, or only into the targets that are leaves.
        arithmetic: `raw`, or RecordedArithmetic for `create_graph=True`.

    Returns:
        A dict {target: gradient} of the targets that backward reached.
    """
    # A compiled program can replace only the plain case, in which no one looks at a gradient on its way to the leaves.
    if hooks.run_backward is not None and arithmetic is raw and leaves and targets is None and not keep_grads:
        if hooks.run_backward(roots, keep_graph):
            return {}
    return run_eagerly(roots, keep_graph, keep_grads, targets, leaves, arithmetic)


def run_eagerly(roots, keep_graph=False, keep_grads=False, targets=None, leaves=True, arithmetic=raw):
    """Runs backward as `run`, without a compiled program."""
    kind = getattr(get_mode().profile, "walk", Walk)  # a profile measures each node
    walk = kind(roots, keep_graph, keep_grads, targets, leaves, arithmetic)
    # Hooks and checkpointed functions run backward inside backward. Each level adds frames until Python's limit of recursion, which
    # holds for one thread. So further levels continue on the stack of another thread, with the same modes.
    walks = _walks.__dict__.setdefault("stack", [])
    if len(walks) == NESTED:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            again = partial(run_eagerly, roots, keep_graph, keep_grads, targets, leaves, arithmetic)
            return pool.submit(copy_context().run, again).result()
    walks.append(walk)
    try:
        with restore_device():
            found = walk.run(roots)
            for callback in walk.callbacks:  # a callback can add further callbacks
                callback()
            return found
    finally:
        walks.pop()


_walks = threading.local()
NESTED = 20  # backward passes inside backward on one stack; the next one gets the stack of a new thread


def current_walk():
    """Returns the current backward pass of this thread, or None."""
    stack = _walks.__dict__.get("stack")
    return stack[-1] if stack else None


def outermost_walk():
    """Returns the backward pass of this thread that contains the current one, or None."""
    stack = _walks.__dict__.get("stack")
    return stack[0] if stack else None


def is_checkpoint_valid():
    """Returns True unless a backward pass of this thread computes the gradients of some tensors only."""
    return all(walk.targets is None for walk in _walks.__dict__.get("stack", ()))


class Walk:
    """One backward pass. The function `run` explains the options.

    Attributes:
        waiting: for each reachable edge, the number of gradients that are still missing.
        ready: stack of edges without missing gradients.
        grads: gradients that have arrived, by edge.
        owned: edges whose gradient has no other reference.
        found: gradients of the targets.
        useful: edges that lead to a target; None for all edges.
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
        anomaly = get_mode().anomaly
        self.run_node = partial(_run_checked, run=_run_node, check_nan=anomaly == "nan") if anomaly else _run_node

    def run(self, roots):
        """Visits each edge when all its gradients have arrived."""
        # CuPy allocates and computes on the current GPU, so with several of them it follows the gradients.
        for edge, g in roots:
            if gpu.several_gpus:
                set_device_of(self.arithmetic.raw(g))
            self.add(edge, self.arithmetic.fit(g, edge), False)
        self.ready = ready = [edge for edge, count in self.waiting.items() if count == 0]
        grads = self.grads
        while ready:
            edge = ready.pop()
            g = grads.pop(edge, None)  # removed at once: a gradient lives only until its node has run
            if isinstance(g, generic):  # NumPy returns scalars for arithmetic on 0-d arrays
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
        """Calls the hooks with a complete gradient, and stores it for targets. Returns the gradient, changed by the hooks."""
        wrapped = None  # all hooks receive the same tensor, so that they can exchange attributes
        for hook in list(edge.hooks.values()) if edge.hooks else ():
            wrapped = self.arithmetic.wrap(g) if wrapped is None else wrapped
            changed = hook(wrapped)
            if changed is not None:
                _check_hook(hook, wrapped, changed)
                g, wrapped = self.arithmetic.fit(self.arithmetic.unwrap(changed), edge), None
                self.owned.discard(edge)  # the hook may have kept a reference
        if self.targets is not None and edge in self.targets:
            self.found[edge] = g
        if (self.keep_grads or edge.keeps_grad) and type(edge) is not Leaf:
            self.keep(edge, g)
        return g

    def keep(self, edge, g):
        """Stores the gradient of a non-leaf. With retain_grad, it is added to the stored gradient, as in PyTorch."""
        if edge.keeps_grad and edge.grad is not None:
            edge.grad = edge.grad + self.arithmetic.wrap(g)
        else:
            # The user gets a copy, because a sum may still be written into this array further on.
            edge.grad = self.arithmetic.wrap(g.copy() if self.arithmetic is raw else g)

    def visit_leaf(self, leaf, g):
        """Adds a gradient to the `.grad` of a leaf."""
        if not self.leaves or (self.targets is not None and leaf not in self.targets):
            return
        arithmetic = self.arithmetic
        if hooked.any and node_hooks_of(leaf) is not None:
            _run_hooked(leaf, g, arithmetic, lambda g: arithmetic.into_leaf(leaf, g, False) or [])
        else:
            arithmetic.into_leaf(leaf, g, leaf in self.owned)

    def visit_port(self, port, g):
        """Passes the gradient of one output to its node, which waits for the gradients of all outputs."""
        node = port.node
        if self.useful is not None and node not in self.useful:
            return  # the port is a target, and no target is behind it
        if g is not None:  # one output can have several OutputEdges, which a recorded backward pass creates
            parts = self.grads.setdefault(node, [None] * node.plan.ports)
            parts[port.index] = g if parts[port.index] is None else parts[port.index] + g
        self.decrement(node)

    def visit_node(self, node, g):
        """Runs the formulas of a node and passes the gradients to its parents."""
        # Without a gradient there is nothing to compute, but the parents still wait for this node, so their counts go down.
        if g is None or (self.useful is not None and self.useful.isdisjoint(node.parents)):
            results = [(parent, None) for parent in node.parents if parent is not None]
            # As in PyTorch, backward(inputs=…) runs the hooks of its inputs, too.
            if g is not None and self.leaves and node_hooks_of(node) is not None and node in self.targets:
                _run_hooked(node, g, self.arithmetic, lambda g: results)
        else:
            run = self.run_node
            if run is _run_node:  # `_run_checked` does it itself, to report the forward op with the error
                node.check()
            if hooked.any and node_hooks_of(node) is not None:
                results = _run_hooked(node, g, self.arithmetic, lambda g: run(node, g, self.arithmetic))
            else:
                results = run(node, g, self.arithmetic)
            if not self.keep_graph:
                node.release()  # now and not at the end: memory shrinks while backward runs
        for parent, gp in results:
            if self.useful is None or parent in self.useful:
                if gp is not None:
                    self.accumulate(node, g, parent, gp, results)
                self.waiting[parent] -= 1
                if not self.waiting[parent]:
                    self.ready.append(parent)

    def accumulate(self, node, g, parent, gp, results):
        """Adds the result of a formula to the gradient of a parent. The first one is borrowed if it has other references."""
        if gpu.several_gpus:
            set_device_of(self.arithmetic.raw(gp))
        grads, is_raw = self.grads, self.arithmetic is raw
        keeps_float32 = False
        try:
            differs = gp.shape != parent.shape or gp.dtype != parent.dtype
        except AttributeError:
            raise TypeError(
                f"{_formula_of(node, parent, gp, results)}: expected an array as gradient, got {kind(gp)}."
            ) from None
        if differs:
            if gp.shape != parent.shape and not _fits(gp.shape, parent.shape):
                raise RuntimeError(
                    f"Function {_formula_of(node, parent, gp, results)} returned an invalid gradient at index "
                    f"{_position(node, parent, gp, results)} - got {list(gp.shape)} but expected shape compatible with "
                    f"{list(parent.shape)}"
                )
            alone = is_raw and not self.keep_grads and self.targets is None and parent not in grads
            keeps_float32 = alone and _takes_float32(parent, gp)
            if not keeps_float32:
                gp = self.arithmetic.fit(gp, parent)
        if parent in grads:
            self.add(parent, gp, is_raw)
            return
        grads[parent] = gp
        # Only leaves and casts ask for ownership: a leaf then keeps the array instead of copying it.
        if is_raw and (keeps_float32 or type(parent) is Leaf):
            if _is_fresh(gp, g, node, results) or (gp is g and node in self.owned and len(node.parents) == 1):
                self.owned.add(parent)

    def add(self, edge, g, in_place):
        """Adds a gradient to the gradient of an edge. The docstring of the module explains ownership."""
        grads = self.grads
        if edge not in grads:
            grads[edge] = g
        elif in_place and edge in self.owned:
            grads[edge] += g
        else:
            grads[edge] = grads[edge] + g
            self.owned.add(edge)

    def decrement(self, edge):
        """Decrements the number of missing gradients of an edge."""
        self.waiting[edge] -= 1
        if not self.waiting[edge]:
            self.ready.append(edge)


def _check_hook(hook, given, changed):
    """Checks the result of a hook on a gradient.

    Raises:
        TypeError: it is not a tensor.
        RuntimeError: it has another shape than the gradient, or another dtype in PyTorch mode.
    """
    name = getattr(hook, "__name__", type(hook).__name__)
    if not hasattr(changed, "_mt_data"):
        raise TypeError(f"hook '{name}': expected a tensor or None, got {kind(changed)}.")
    if tuple(changed.shape) != tuple(given.shape):
        raise RuntimeError(
            f"hook '{name}' has changed the size of value: {tuple(given.shape)} to {tuple(changed.shape)}."
        )
    if config.pytorch_mode and changed.dtype is not given.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {given.dtype} got {changed.dtype})")


def _as_many(changed, values, hook):
    if not isinstance(changed, tuple):
        raise TypeError(f"expected tuple, but hook returned {kind(changed)!r}.")
    if len(changed) != len(values):
        name = getattr(hook, "__name__", "")
        raise RuntimeError(
            f"hook '{name}' has returned an incorrect number of values (got {len(changed)}, but expected {len(values)})"
        )
    return changed


def _run_hooked(node, g, arithmetic, run):
    """Runs a node between its hooks, which receive tuples of gradients."""
    hooks, several = node_hooks_of(node), isinstance(g, list)
    for edge in list(hooks["outputs"]):  # the hooks of an output that got no gradient
        if g[edge.index] is None:
            for hook in list(edge.hooks.values()):
                if hook(None) is not None:
                    raise RuntimeError("can't replace a None gradient with a non-None value")
    given = tuple(None if x is None else arithmetic.wrap(x) for x in (g if several else [g]))
    for hook in list(hooks["pre"].values()):
        changed = hook(given)
        if changed is not None:
            given = _as_many(changed, given, hook)
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
            found = _as_many(changed, found, hook)
    return [(node.parents[i], None if found[i] is None else arithmetic.unwrap(found[i])) for i in places]


def _run_node(node, g, arithmetic):
    """Returns (parent, gradient) pairs for the inputs of a node."""
    if node.plan.run is not None:  # a custom autograd.Function
        return node.plan.run(node, g, arithmetic)
    if node.plan.ports and not node.op.undefined_grads and any(x is None for x in g):
        # One output was not used. Formulas expect arrays, and zeros have the same effect.
        like = arithmetic.raw(next(x for x in g if x is not None))
        g = [
            arithmetic.zeros(shape, dtype, like) if x is None else x
            for x, shape, dtype in zip(g, node.shape, node.dtype, strict=False)
        ]
    run = arithmetic.formulas
    # Formulas are written for real numbers. With gradients dL/dx + i dL/dy, the same formula holds between two conjugations. A replay
    # runs other recorded ops, whose nodes conjugate themselves.
    dtype = node.dtype
    if (
        (dtype if type(dtype) is not tuple else dtype[0]).kind == "c"
        and node.op.holomorphic
        and not arithmetic.replays(node)
    ):
        g = [arithmetic.conj(x) for x in g] if node.plan.ports else arithmetic.conj(g)
        return [(parent, gp if gp is None else arithmetic.conj(gp)) for parent, gp in run(node, g)]
    return run(node, g)


def _run_checked(node, g, arithmetic, run, check_nan):
    """Runs a node for `detect_anomaly`: warns about an error or a NaN gradient with the stack of its forward op."""
    try:
        node.check()
        results = list(run(node, g, arithmetic))
        for i, (_, gp) in enumerate(results if check_nan else ()):
            values = None if gp is None else arithmetic.raw(gp)
            if values is not None and values.dtype.kind in "fcV" and (values != values).any():
                name = getattr(node, "label", "") if node.op is None else node.name()
                raise RuntimeError(f"Function '{name}' returned nan values in its {i}th output.{_where(node)}")
        return results
    except Exception:
        text = f"Error detected in {node.name()}.{_where(node)}"
        try:
            warn(text)
        except Warning:  # a filter makes errors of warnings
            sys.stderr.write(text + "\n")
        raise


def _where(node):
    if node.trace is None:
        return " No forward pass information available. Enable detect anomaly during forward pass for more information."
    return f" The forward op ran here:\n{node.trace}"


def _count(roots, useful):
    """Returns the number of edges into each edge that is reachable from the roots."""
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
    """Returns the edges from which a target can be reached, including the targets."""
    # The graph has links to parents only, so the first loop collects the links back, and the second one follows them.
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


def _fits(shape, own):
    """Returns True if a gradient of a shape belongs to a tensor of shape `own`, broadcast or not."""
    if len(shape) < len(own):  # such as () for (1,)
        own = own[-len(shape) :] if set(own[: len(own) - len(shape)]) == {1} and shape else own
        return tuple(shape) == own or (not shape and math.prod(own) == 1)
    return all(n in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False))


def _position(node, parent, gp, results):
    """Returns the position of the input of a node that a gradient in `results` belongs to."""
    plan = node.plan
    positions = [i for i, *_ in plan.formulas] or plan.needed
    if len(positions) != len(results):  # a recorded backward pass of a kernel or of an op with residuals
        positions = [i for i, *_ in plan.recorded[2]] or plan.needed
    return next(i for i, (p, g) in zip(positions, results, strict=False) if g is gp and p is parent)


def _formula_of(node, parent, gp, results):
    """Returns the name of a node, followed by the name of the input that a gradient in `results` belongs to."""
    if node.op is None:
        return node.label
    return f"{node.label} ({node.op.name}, input '{node.op.input_name(_position(node, parent, gp, results))}')"


def _references_to_base(view):
    base = view.base
    return sys.getrefcount(base)


_ONE = _references_to_base(
    asarray([0.0, 0.0]).reshape(2, 1)
)  # the view is the only reference, apart from those of the function


def _is_fresh(gp, g, edge, results):
    """Returns True if a formula allocated this array for one input. It is not the upstream gradient or a view of it."""
    # A view has a base, and shares its memory with a saved array or the upstream gradient, unless it is all of an array that nothing else
    # refers to. An array without a base was just allocated, unless the formula returned `g` itself. With several outputs, it can also
    # return one of theirs, or one array twice.
    alone = gp.base is None or (
        type(gp.base) is ndarray
        and gp.base.base is None
        and gp.base.nbytes == gp.nbytes
        and _references_to_base(gp) == _ONE
    )
    if not alone or type(g) is not list:
        return gp is not g and alone
    return edge.plan.run is None and not any(gp is x for x in g) and sum(gp is x for _, x in results) == 1


def _owned_sum(node):
    """Returns the current gradient of the first input of a node if there is no other reference to it, or None."""
    walk, edge = current_walk(), node.parents[0]
    if walk is None or edge not in walk.owned or (hooked.any and node_hooks_of(node) is not None):
        return None
    return walk.grads.get(edge)


def _takes_float32(edge, g):
    """Returns True if a gradient can reach a node in float32 although the result of the node has half precision.

    This applies to casts to half precision, which declare `passes_float32`. Their formula converts the gradient to
    float32 in any case, so a kernel that sums in float32 need not round.
    """
    if (
        not isinstance(edge, Node)
        or not edge.plan.passes_float32
        or edge.dtype.itemsize != 2
        or edge.hooks
        or edge.keeps_grad
        or node_hooks_of(edge) is not None
    ):
        return False
    return edge.parents[0] is not None and g.dtype == edge.parents[0].dtype and g.shape == edge.shape


def gradient_of_root(raw_output, g, what, i):
    """Returns the raw gradient of a root: the gradient from the user, or ones for an output with one element.

    Args:
        raw_output: the output, a raw array.
        g: the gradient, or None.
        what: name of the function for error messages.
        i: position of the output for error messages.

    Raises:
        RuntimeError: the output has several elements and `g` is None, or shapes differ.
    """
    if g is None:
        if raw_output.dtype.kind == "c":
            raise RuntimeError(
                f"grad can be implicitly created only for real scalar outputs but got {raw_output.dtype}"
            )
        if raw_output.size != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs: {what} was called on a tensor of shape "
                f"{tuple(raw_output.shape)}; reduce it to one number or give its gradient."
            )
        if raw_output.dtype.kind not in "fcV":
            raise RuntimeError(f"{what}: grad can be computed only for floating point tensors.")
        if type(raw_output) is ndarray:
            g = empty(raw_output.shape, raw_output.dtype)
            g.fill(1)  # takes a third of the time of `ones`
            return g
        xp, there = on(device_of(raw_output))
        with there:
            return xp.ones(raw_output.shape, raw_output.dtype)
    if tuple(g.shape) != tuple(raw_output.shape):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {Size(g.shape)} and output[{i}] has a shape of "
            f"{Size(raw_output.shape)}."
        )
    if (g.dtype.kind == "c") != (raw_output.dtype.kind == "c"):
        raise RuntimeError(
            f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {raw_output.dtype}."
        )
    return g
