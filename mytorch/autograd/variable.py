"""Variable: the old name of Tensor."""

from .._tensor import Tensor
from ..dispatch.backward import backward
from ..engine import walk


class _Engine:
    """PyTorch's name for what runs backward."""

    @staticmethod
    def queue_callback(callback):
        """Call `callback()` at the end of the backward that is running.

        Raises:
            RuntimeError: none is.
        """
        running = walk.current_walk()
        if running is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        running.callbacks.append(callback)

    run_backward = staticmethod(backward)


class _Meta(type):
    def __instancecheck__(cls, value):
        return isinstance(value, Tensor)


class Variable(metaclass=_Meta):
    """`Variable(data, requires_grad=False)` gives the tensor itself, out of its graph; every Tensor is an instance."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=False):
        found = data.detach() if isinstance(data, Tensor) else Tensor(() if data is None else data)
        return found.requires_grad_() if requires_grad else found
