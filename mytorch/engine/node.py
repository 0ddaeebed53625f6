"""What the graph is made of: Node (an op that ran), OutputEdge (one of its outputs), Leaf (a parameter).

The graph holds raw arrays and edges, never Tensors. So there is no reference cycle, everything is
freed by counting references, and the arrays a node saved die as soon as the node has run.

A tensor's edge is the Node that made it, the OutputEdge of a Node with several differentiable outputs, or a
Leaf when the user made it with requires_grad. Every edge knows the shape and dtype of its tensor: a
gradient that arrives is summed to that shape and cast to that dtype, once, in the engine.
"""

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

from .._array import Array
from ..backend.copies import laid_out
from ..backend.namespaces import Namespace
from ..base.errors import GraphFreedError, InPlaceError


class Edge:
    """What Node, OutputEdge and Leaf share: the tensor's shape and dtype, its hooks and its kept gradient."""

    __slots__ = ("__weakref__", "dtype", "grad", "hooks", "keeps_grad", "parents", "shape")


node_hooks = WeakKeyDictionary()  # node or leaf -> its "pre" and "post" hooks and its "metadata"; few have any


class _HookedNode:
    """What users see of a node: its name, its parents, metadata, and hooks (defined in autograd/graph.py)."""

    __slots__ = ()

    def node_hooks(self):
        """The node's own dicts of hooks and metadata, made the first time."""
        found = node_hooks.get(self)
        if found is None:
            found = node_hooks[self] = {"pre": OrderedDict(), "post": OrderedDict(), "metadata": {}}
        return found

    @property
    def metadata(self):
        """A dict for whatever a user wants to note on the node."""
        return self.node_hooks()["metadata"]


accumulating = threading.Lock()  # several threads' backward may reach one leaf; never held while a hook runs


class Leaf(_HookedNode, Edge):
    """Where gradients end: the edge of a tensor that was made, not computed, with requires_grad."""

    __slots__ = ("owner", "post_hooks")

    def __init__(self, array):
        self.shape = array.shape
        self.dtype = array.dtype
        self.grad = self.hooks = self.post_hooks = self.owner = None
        self.keeps_grad = False
        self.parents = ()

    label = "AccumulateGrad"
    next_functions = ()

    def name(self):
        """PyTorch's name of what ends the graph."""
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self):
        """The tensor whose gradient it accumulates; None if that is gone."""
        return None if self.owner is None else self.owner()

    def __repr__(self):
        return f"<{self.label}>"

    def accumulate(self, g, owned):
        """Add a complete raw gradient. `owned` says that nobody else holds the array `g`."""
        with accumulating:
            grad = self.grad
            if grad is None:
                self.grad = Array._wrap(laid_out(g, owned, self.variable) if g.ndim > 3 else g if owned else g.copy())
            elif type(grad) is Array and grad._array.dtype == g.dtype and grad._array.shape == g.shape:
                raw = grad._array
                if getattr(raw.flags, "writeable", True):
                    raw += g
                    grad._bump()
                else:
                    self.grad = Array._wrap(raw + g)
            else:
                self.grad = grad + Array._wrap(g)
        if self.post_hooks:
            self.run_post_hooks()

    def run_post_hooks(self):
        for reference, hook in list(self.post_hooks.values()) if self.post_hooks else ():
            tensor = reference()
            if tensor is not None and hook(tensor) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


_SMALL = frozenset((int, float, bool, str, tuple, type(None), Namespace))


class Node(_HookedNode, Edge):
    """One op that ran, with what its gradient formulas need.

    Attributes:
        op: its record.
        plan: which formulas to run, and what `saved` holds; see dispatch/op.py.
        parents: the edges of its inputs, None for a constant.
        saved: the values that the formulas name; None once they were given up.
        versions: (version counter, version at saving) of each array in `saved` that a user can reach.
    """

    __slots__ = ("op", "plan", "saved", "trace", "versions")

    def __init__(self, op, plan, parents, saved, versions, shape, dtype):
        self.op = op
        self.plan = plan
        self.parents = parents
        self.saved = saved
        self.versions = versions
        self.shape = shape
        self.dtype = dtype
        self.grad = self.hooks = self.trace = None
        self.keeps_grad = False

    def output_edge(self, i):
        """Returns the edge of output `i`: the node itself if it has one output."""
        return OutputEdge(self, i, self.shape[i], self.dtype[i]) if self.plan.ports else self

    @property
    def label(self):
        """The name printed as grad_fn, such as MulBackward."""
        name = self.op.grad_name
        return name.format(d=len(self.shape) - 2) if "{" in name else name

    def name(self):
        """PyTorch's name, such as MulBackward0."""
        return self.op.torch_name + "0"

    @property
    def next_functions(self):
        """PyTorch's view of the parents: ((edge, index), …)."""
        return tuple((p.node, p.index) if type(p) is OutputEdge else (p, 0) for p in self.parents)

    def check(self):
        """Raise if what was saved is gone or was changed in place."""
        if self.saved is None:
            raise GraphFreedError(
                f"Trying to backward through the graph a second time: what {self.op.name} saved was freed by the "
                "first backward pass. Give retain_graph=True to that one if the graph is needed again."
            )
        for counter, version in self.versions:
            if counter[0] != version:
                raise InPlaceError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"an array saved for {self.op.name} ({self.label}, result of shape {self.shape}) is at version "
                    f"{counter[0]}; expected version {version} instead. clone() it before changing it in place."
                )

    def release(self):
        """Give up the saved arrays; a node that saved none, but sizes at most, can run again."""
        if self.saved and not (self.plan.light and all(type(value) in _SMALL for value in self.saved)):
            self.saved = None
            self.versions = ()

    def __repr__(self):
        return f"<{self.label}>"


class OutputEdge(Edge):
    """One differentiable output of a Node that has several: hands its gradient in at its index."""

    __slots__ = ("index", "node")

    def __init__(self, node, index, shape, dtype):
        self.node = node
        self.index = index
        self.parents = (node,)
        self.shape = shape
        self.dtype = dtype
        self.grad = self.hooks = None
        self.keeps_grad = False

    @property
    def label(self):
        return self.node.label

    def name(self):
        """The node's name."""
        return self.node.name()

    @property
    def next_functions(self):
        return self.node.next_functions

    def __repr__(self):
        return f"<{self.label}>"
