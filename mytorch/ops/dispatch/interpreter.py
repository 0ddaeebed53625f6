"""Interpreters, which receive all ops that a program calls and run them.

The current interpreter is `Mode.interpreter` (autograd/mode.py). Without one, ops are not slower. Interpreters can be
nested: each calls ops under the next outer one. Three kinds replace ops: `composed` (composed.py), the levels of forward
mode (autograd/forward_mode.py), and the batches of vmap (autograd/batching.py). Other kinds observe them: checkpoints,
`export`, dispatch modes and the FLOP counter.
"""

from contextlib import contextmanager

from ...autograd.mode import get_mode, in_mode


class Interpreter:
    """Base class of interpreters, which are called with (op, inputs, fused, attributes) instead of `Op.run`."""

    # The methods below pass each question on to the next outer interpreter, since an outer `vmap` or `jvp` may care although this one
    # does not.

    def __init__(self):
        self.outer = get_mode().interpreter

    def __call__(self, record, inputs, fused, attrs):
        raise NotImplementedError(f"{type(self).__name__} must define how to run {record.name}.")

    def outside(self):
        """Runs a block under the next outer interpreter."""
        return interpreting(self.outer)

    def inside(self):
        """Runs a block under this interpreter."""
        return interpreting(self)

    def check_write(self, tensor, name):
        """Raises an error if the function `name` must not change a tensor in place."""
        if self.outer is not None:
            self.outer.check_write(tensor, name)

    def original(self, tensor):
        """Returns a tensor with the values, edge and tangents of `tensor` that stays the same if `tensor` is changed in place."""
        return tensor if self.outer is None else self.outer.original(tensor)

    def writable(self, tensor, source):
        """Returns a tensor equal to `tensor`, into which values such as `source` can be written."""
        return tensor if self.outer is None else self.outer.writable(tensor, source)

    def adopt(self, tensor, result):
        """Handles an in-place change of `tensor` to the values of `result`, which is None for constants."""
        if self.outer is not None:
            self.outer.adopt(tensor, result)

    def set_item(self, tensor, index, value):
        """Handles an assignment `tensor[index] = value`."""
        if self.outer is not None:
            self.outer.set_item(tensor, index, value)

    def check_out(self, tensors):
        """Raises an error if the interpreter does not support the argument `out`."""
        if self.outer is not None:
            self.outer.check_out(tensors)

    def draw(self, generator):
        """Is called before a function draws random numbers from a generator."""
        if self.outer is not None:
            self.outer.draw(generator)

    def apply(self, function, args, kwargs):
        """Runs a custom autograd.Function."""
        with self.outside():
            return function.apply(*args, **kwargs)

    def restore(self, tensor, node, is_output, i):
        """Gives a saved input or output of a node, at position `i`, the tangents that it had when the op ran."""
        if self.outer is not None:
            self.outer.restore(tensor, node, is_output, i)

    def detach(self, tensor, cut=None):
        """Returns a detached tensor that is still tracked. `cut` is called with its tangents."""
        return self.outer.detach(tensor, cut) if self.outer is not None else tensor.detach()

    def elements(self, tensor):
        """Returns the tensor that an outer level has for a tensor of a batch, or None."""
        return None if self.outer is None else self.outer.elements(tensor)

    def follows(self, x):
        """Returns True if this interpreter, or an outer one, tracks a value."""
        return self.outer is not None and self.outer.follows(x)


@contextmanager
def interpreting(interpreter, **changes):
    """Runs a block under an interpreter, or under no interpreter."""
    with in_mode(get_mode().replace(interpreter=interpreter, **changes)):
        yield interpreter
