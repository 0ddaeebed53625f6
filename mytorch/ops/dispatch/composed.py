"""The argument `auto=True`, which differentiates an op by autograd instead of its written gradient.

The reference forward of the op runs over Tensors (autograd/tensor_ns.py). The ops that it calls are recorded, and
autograd differentiates them. Results and gradients are equal. Use it for teaching and testing. Elementary ops, and ops
that fill memory in place such as convolutions, run unchanged.
"""

from ...arrays import hooks
from ...arrays.arguments import names_of
from ...autograd.mode import ModeSwitch
from .interpreter import Interpreter


class Composing(Interpreter):
    """An interpreter that runs each op as a composition of other ops."""

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            return hooks.run_composed(record, inputs, fused, attrs)


class composed(ModeSwitch):
    """Runs the ops of a block as compositions of other ops."""

    def _changes(self):
        return {"interpreter": Composing()}


def composed_by(auto, name):
    """Returns the context manager `composed()` for an op that is called with `auto=True`.

    Raises:
        TypeError: `auto` is not a bool.
    """
    if auto is not True:
        raise TypeError(f"{name}: auto must be True or False, got {type(auto).__name__}.")
    return composed()


def accepts(function, name):
    """Returns True if a function, or a function that it wraps, has an argument `name`.

    It does not use `inspect`, which would slow the import of layers down.
    """
    if hasattr(function, "op"):
        return name in ("auto", "fused")
    while hasattr(function, "__wrapped__"):
        if getattr(function, "name", None) == name:
            return True
        function = function.__wrapped__
    return name in names_of(function)
