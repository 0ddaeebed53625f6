"""Variable: the old name of Tensor."""

from ..arrays.tensor import Tensor
from ..autograd import walk
from ..autograd.backward_call import backward


class _Engine:
    """The object that PyTorch programs use to call the backward engine."""

    @staticmethod
    def queue_callback(callback):
        """Registers a function without arguments that is called at the end of the current backward pass.

        Raises:
            RuntimeError: no backward pass is running.
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
    """A deprecated name of Tensor. `Variable(data)` returns a detached tensor, and every Tensor is an instance."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=False):
        found = data.detach() if isinstance(data, Tensor) else Tensor._make(() if data is None else data)
        return found.requires_grad_() if requires_grad else found
