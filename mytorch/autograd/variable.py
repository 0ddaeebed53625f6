"""Variable: the old name of Tensor."""

from ..tensor import Tensor


class _Meta(type):
    def __instancecheck__(cls, value):
        return isinstance(value, Tensor)


class Variable(metaclass=_Meta):
    """`Variable(data, requires_grad=False)` gives the tensor itself, out of its graph; every Tensor is an instance."""

    def __new__(cls, data=None, requires_grad=False, volatile=False):
        found = data.detach() if isinstance(data, Tensor) else Tensor(() if data is None else data)
        return found.requires_grad_() if requires_grad else found
