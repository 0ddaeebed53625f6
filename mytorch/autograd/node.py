"""The elements of the graph: Node (an op that ran), OutputEdge (one of its outputs), Leaf (a parameter).

The graph refers to raw arrays and edges, never to Tensors. This avoids reference cycles, so reference counting frees all
memory. The arrays that a node saved are freed as soon as its backward has run.

The edge of a tensor is one of these:

* a Node, if the node computed the tensor;
* an OutputEdge, if the node has several differentiable outputs;
* a Leaf, if the user created the tensor with `requires_grad=True`.

Each edge stores the shape and dtype of its tensor. The engine sums each gradient to that shape and casts it to that dtype.
"""

import threading
import weakref
from collections import OrderedDict

from ..arrays import config, copied, hooks, is_raw
from ..arrays.array import Array
from ..arrays.errors import GraphFreedError, InPlaceError
from ..arrays.memory_format import laid_out
from ..arrays.namespaces import Namespace, duplicate


def shown(node):
    """Returns a node, after its class got PyTorch's name: `type(x.grad_fn).__name__`."""
    if type(node) is Node and hooks.name_node is not None:
        hooks.name_node(node)
    return node


class Edge:
    """Base class of Node, OutputEdge and Leaf: the shape and dtype of the tensor, its hooks and its stored gradient."""

    __slots__ = ("__weakref__", "_node_hooks", "dtype", "grad", "hooks", "keeps_grad", "parents", "shape")


class _Hooked:
    """`any` is True as soon as a node has hooks; backward only then asks each node."""

    any = False


hooked = _Hooked()


def node_hooks_of(edge):
    """Returns the hooks of a node or leaf, or None. Most edges have none, and do not even have a value in this slot."""
    return getattr(edge, "_node_hooks", None) if hooked.any else None


class _HookedNode:
    """The public interface of nodes: metadata, and hooks, which autograd/graph.py defines."""

    __slots__ = ()

    def node_hooks(self):
        """Returns the dicts of hooks and metadata of this node, and creates them at the first call.

        "outputs" has the edges of its outputs whose hooks also run without a gradient.
        """
        found = node_hooks_of(self)
        if found is None:
            found = {"pre": OrderedDict(), "post": OrderedDict(), "metadata": {}, "outputs": weakref.WeakSet()}
            self._node_hooks, hooked.any = found, True
        return found

    @property
    def metadata(self):
        """A dict for data of the user."""
        return self.node_hooks()["metadata"]


def refuse_shape(own, shape):
    """Checks that a gradient can be added to the stored one.

    Raises:
        RuntimeError: the shapes differ, because the shape of the leaf was changed in between.
    """
    if tuple(own) != tuple(shape):
        raise RuntimeError(
            f"backward: expected a gradient of shape {list(own)} like the stored one, got {list(shape)}. Set the gradient to None "
            "after a change of the tensor's shape."
        )


accumulating = threading.Lock()  # for leaves that several threads reach in backward; not held while a hook runs


class Leaf(_HookedNode, Edge):
    """The edge of a tensor that the user created with `requires_grad=True`. Backward ends there."""

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
        """Returns the name of this node in PyTorch."""
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self):
        """The tensor of this leaf, or None if the tensor was deleted."""
        # A weak reference, since the tensor refers to this leaf: a strong one would be a cycle.
        return None if self.owner is None else self.owner()

    def __repr__(self):
        return f"<{self.label}>"

    def accumulate(self, g, owned):
        """Adds a complete raw gradient. If `owned` is True, there is no other reference to the array `g`."""
        with accumulating:
            grad = self.grad
            if grad is None:
                # Optimizers read the gradient next to the parameter, so it gets the parameter's order of axes. A borrowed array is
                # copied, because its other owner, such as the second input of x + y, may change it.
                if g.ndim > 1:
                    g = laid_out(g, owned, self.variable)
                elif not owned:
                    g = duplicate(g)
                self.grad = Array._wrap(g)
            else:
                array = grad if type(grad) is Array else grad._mt_data
                raw = array._array
                if raw.dtype == g.dtype and raw.shape == g.shape and getattr(raw.flags, "writeable", True):
                    # The usual case after the first step: no new array. A variable that refers to `x.grad` sees the sum, and a
                    # gradient that has a graph keeps it, as in PyTorch.
                    raw += g
                    array._bump()
                else:
                    refuse_shape(grad.shape, g.shape)
                    self.grad = grad + Array._wrap(g)
        # Outside of the lock: a hook may run an optimizer, or another backward that reaches this leaf.
        if self.post_hooks:
            self.run_post_hooks()

    def run_post_hooks(self):
        for reference, hook in list(self.post_hooks.values()) if self.post_hooks else ():
            tensor = reference()
            found = None if tensor is None else hook(tensor)
            # A hook may end with a change in place, such as `p.add_(p.grad)`.
            if found is not None and found is not tensor:
                if not hasattr(found, "_mt_data"):
                    raise TypeError(f"expected Variable, but hook returned '{type(found).__name__}'")
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


Leaf.__name__ = Leaf.label
_SMALL = (int, float, str, tuple, type(None), Namespace)


class Node(_HookedNode, Edge):
    """One op that ran, with the values that its gradient formulas need.

    Args:
        op: the definition of the op.
        plan: the formulas to run, and the positions of their arguments in `saved`.
        parents: the edges of the inputs, None for a constant.
        saved: the values that the formulas use.
        versions: (version counter, version at saving) of each saved array that the user can change.
        shape: shape of the output, or a tuple of the shapes of all outputs.
        dtype: dtype of the output, or a tuple of the dtypes of all outputs.

    Attributes:
        op: the definition of the op.
        plan: the formulas to run, and the positions of their arguments in `saved`; see ops/dispatch/record.py.
        parents: the edges of the inputs, None for a constant.
        saved: the values that the formulas use; None after they were freed.
        versions: (version counter, version at saving) of each saved array that the user can change.
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
        """Returns the edge of output `i`: the node itself if it has one output.

        Args:
            i: position of the output.
        """
        return OutputEdge(self, i, self.shape[i], self.dtype[i]) if self.plan.ports else self

    @property
    def label(self):
        """The name that `repr` shows as grad_fn, such as MulBackward."""
        name = self.op.grad_name
        return name.format(d=len(self.shape) - 2) if "{" in name else name

    def name(self):
        """Returns the name of this node in PyTorch, such as MulBackward0."""
        return self.op.torch_name + "0" if type(shown(self)) is Node else type(self).__name__

    @property
    def next_functions(self):
        """The parents, in PyTorch's form: ((edge, index), …)."""
        return tuple((shown(p.node), p.index) if type(p) is OutputEdge else (shown(p), 0) for p in self.parents)

    def check(self):
        """Raises an error if the saved arrays were freed or changed in place."""
        if self.saved is None:
            raise GraphFreedError(
                f"Trying to backward through the graph a second time: the first backward pass freed the arrays that "
                f"{self.op.name} saved. Specify retain_graph=True in the first pass to keep them."
            )
        for counter, version in self.versions:
            if counter[0] != version:
                raise InPlaceError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"an array saved for {self.op.name} ({self.label}, result of shape {self.shape}) is at version "
                    f"{counter[0]}; expected version {version} instead. clone() it before changing it in place."
                )

    def release(self):
        """Frees the saved arrays. A node that saved only sizes and other small values keeps them and can run again."""
        # PyTorch frees tensors only, so a second backward through `x + y` or `x.sum()` works there, too.
        if self.saved and not (
            self.plan.light and (self.op.reruns or all(isinstance(value, _SMALL) for value in self.saved))
        ):
            self.saved = None
            self.versions = ()

    def __repr__(self):
        return f"<{self.name()} object at {id(self):#x}>" if config.pytorch_mode else f"<{self.label}>"


def keep_saved(node):
    """Makes changes in place of the first input of a node copy it first, if it was saved, instead of making backward raise an error."""
    if node.plan.inputs[:1] != (0,):
        return
    # A counter is a list [version, weak references to such nodes]. The copy is made when the change comes, since most saved arrays
    # are never changed. Entries of nodes that are gone are dropped here, so that the list stays short in a loop.
    counter = node.versions[0][0]
    if type(counter) is list:
        copy_before_change(counter, node)


def copy_before_change(counter, keeper):
    """Stores a weak reference to a node, or to an Array that a hook on saved tensors keeps, for `copy_saved`."""
    if len(counter) & (len(counter) - 1) == 0:
        counter[1:] = [other for other in counter[1:] if other() is not None]
    counter.append(weakref.ref(keeper))


def copy_saved(counter):
    """Copies the saved arrays of the nodes and Arrays that `copy_before_change` stored in a version counter, before a change in place."""
    for node in [reference() for reference in counter[1:]]:
        if type(node) is Array:
            node._array = copied(node._array)
        elif node is not None and type(node.saved) is tuple and (counter, counter[0]) in node.versions:
            node.saved = tuple([copied(value) if is_raw(value) else value for value in node.saved])
            node.versions = [pair for pair in node.versions if pair[0] is not counter]
    del counter[1:]


class OutputEdge(Edge):
    """One differentiable output of a Node with several outputs. It passes its gradient to the node at its index."""

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
        """Returns the name of the node."""
        return self.node.name()

    @property
    def next_functions(self):
        return self.node.next_functions

    def __repr__(self):
        return f"<{self.label}>"
