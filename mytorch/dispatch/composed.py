"""`auto=True`: an op composed of other ops, each with its own gradient, in place of the gradient that its record gives.

The record's reference forward runs over Tensors (transforms/tensor_ns.py), so nothing is written twice: what it calls is recorded and
autograd differentiates it. Results and gradients are equal; it is for teaching and testing. An op that can't be composed (an
elementary one, or one that fills memory in place, such as a convolution) runs as it is.
"""

from ..base import hooks
from ..engine.mode import ModeSwitch
from .interpreter import Interpreter
from .record import names_of


class Composing(Interpreter):
    """Runs each op as a composition of other ops."""

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            return hooks.run_composed(record, inputs, fused, attrs)


class composed(ModeSwitch):
    """Run a block's ops as composed of others."""

    def _changes(self):
        return {"interpreter": Composing()}


def composed_by(auto, name):
    """`composed()`, for an op that was called with `auto`.

    Raises:
        TypeError: it is no bool.
    """
    if auto is not True:
        raise TypeError(f"{name}: auto must be True or False, got {type(auto).__name__}.")
    return composed()


def accepts(function, name):
    """Whether a function, or one that it wraps, takes an argument of that name (without `inspect`: layers ask at import)."""
    if hasattr(function, "op"):
        return name in ("auto", "fused")
    while hasattr(function, "__wrapped__"):
        if getattr(function, "name", None) == name:
            return True
        function = function.__wrapped__
    return name in names_of(function)
