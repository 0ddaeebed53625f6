"""What may stand between a program and its ops: an interpreter is given every op that is called, and runs it in its own way.

The current one is `Mode.interpreter` (engine/mode.py), so that ops pay nothing where there is none. Interpreters nest: each runs what it
calls under the one that was there before it. They are `composed` (composed.py), the levels of forward mode (transforms/forward_mode.py) and the
batches of vmap (transforms/batching.py).
"""

from contextlib import contextmanager

from ..engine.mode import get_mode, in_mode


class Interpreter:
    """Called with (record, inputs, fused, attributes) in place of `Op.run`."""

    def __init__(self):
        self.outer = get_mode().interpreter

    def __call__(self, record, inputs, fused, attrs):
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs {record.name}.")

    def outside(self):
        """Run a block as if this interpreter were not there."""
        return interpreting(self.outer)

    def inside(self):
        """Run a block under this interpreter."""
        return interpreting(self)

    def adopt(self, tensor, result):
        """`tensor` was given the values of `result` in place; None for constants."""
        if self.outer is not None:
            self.outer.adopt(tensor, result)

    def set_item(self, tensor, index, value):
        """`tensor[index] = value` was written."""
        if self.outer is not None:
            self.outer.set_item(tensor, index, value)

    def check_out(self, tensors):
        """Refuse `out=` where it can't be followed."""
        if self.outer is not None:
            self.outer.check_out(tensors)

    def apply(self, function, args, kwargs):
        """Run a user's autograd.Function."""
        with self.outside():
            return function.apply(*args, **kwargs)

    def kept(self, node):
        """The (inputs, outputs) of a node's op as Tensors that this interpreter, or an outer one, follows; None if it follows none."""
        return self.outer.kept(node) if self.outer is not None else None

    def detach(self, tensor, cut=None):
        """A tensor out of its graph that is still followed; `cut` is called with what follows it."""
        return self.outer.detach(tensor, cut) if self.outer is not None else tensor.detach()

    def follows(self, x):
        """Whether this interpreter, or an outer one, has something to do with a value."""
        return self.outer is not None and self.outer.follows(x)


@contextmanager
def interpreting(interpreter, **changes):
    """Run a block under an interpreter, or none."""
    with in_mode(get_mode().replace(interpreter=interpreter, **changes)):
        yield interpreter
