"""The node of `Tensor(data, grad_fn=…)`, a backward function of the program."""

from .node import Node


class _OwnPlan:
    """The plan of a custom node, which makes the engine call `gradients` of the node."""

    vjp = None
    names = ()
    ports = 0
    passes_float32 = False

    @staticmethod
    def run(node, g, arithmetic):
        return node.gradients(g, arithmetic)


class OwnNode(Node):
    """The node of `Tensor(data, grad_fn=…)`: a function that adds to the `.grad` of its inputs."""

    __slots__ = ("function", "own_label", "tensors")

    def __init__(self, function, name, array):
        super().__init__(None, _OwnPlan, (), (), (), array.shape, array.dtype)
        self.function = function
        self.own_label = (name or getattr(function, "__name__", "grad_fn")).strip("<>")
        self.tensors = ()

    @property
    def label(self):
        return self.own_label

    def name(self):
        """Returns the name that was passed as `grad_fn_name`."""
        return self.own_label

    def add_parents(self, tensors):
        """Adds tensors to the inputs of the operation. Constants are ignored."""
        found = {id(t.edge): t for t in (*self.tensors, *tensors) if t.edge is not None}
        self.tensors = tuple(found.values())
        self.parents = tuple(t.edge for t in self.tensors)

    def gradients(self, g, arithmetic):
        """Runs the function with empty `.grad`s, reads them, and restores their former values."""
        before = [edge.grad for edge in self.parents]
        try:
            for edge in self.parents:
                edge.grad = None
            self.function(arithmetic.wrap(g))
            found = [edge.grad for edge in self.parents]
        finally:
            for edge, grad in zip(self.parents, before, strict=True):
                edge.grad = grad
        pairs = zip(self.parents, found, strict=True)
        return [(edge, None if grad is None else arithmetic.unwrap(grad)) for edge, grad in pairs]
