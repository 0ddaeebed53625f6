"""einops backend for mytorch's tensors, found by einops after this module is imported."""

from einops._backends import AbstractBackend

from .. import ops
from ..arrays.tensor import Tensor
from ..ops.creation import arange


class MytorchBackend(AbstractBackend):
    """Implementation of einops' operations."""

    framework_name = "mytorch"

    def is_appropriate_type(self, tensor):
        return isinstance(tensor, Tensor)

    def from_numpy(self, x):
        return Tensor._wrap(x)

    def to_numpy(self, x):
        return x.detach().numpy()

    def arange(self, start, stop):
        return arange(start, stop)

    def shape(self, x):
        return tuple(x.shape)

    def reshape(self, x, shape):
        return x.reshape(shape)

    def transpose(self, x, axes):
        return x.permute(*axes)

    def reduce(self, x, operation, reduced_axes):
        axes = tuple(reduced_axes)
        if operation in ("min", "max"):
            return getattr(x, "a" + operation)(axes)
        if operation in ("any", "all", "sum", "mean"):
            return getattr(x, operation)(axes)
        for axis in sorted(axes, reverse=True):
            x = x.prod(axis)
        return x

    def stack_on_zeroth_dimension(self, tensors):
        return ops.movement.stack(tensors)

    def add_axis(self, x, new_position):
        return x.unsqueeze(new_position)

    def add_axes(self, x, n_axes, pos2len):
        shape = [-1] * n_axes
        for axis, length in pos2len.items():
            x = x.unsqueeze(axis)
            shape[axis] = length
        return x.expand(*shape)

    def tile(self, x, repeats):
        return x.repeat(*repeats)

    def concat(self, tensors, axis):
        return ops.movement.cat(tensors, axis)

    def is_float_type(self, x):
        return x.dtype.is_floating_point

    def layers(self):
        raise NotImplementedError(
            "einops.layers does not support mytorch. Use the functions of einops inside a Module."
        )

    def einsum(self, pattern, *x):
        return ops.linalg.einsum(pattern, *x)
