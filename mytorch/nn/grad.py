"""The gradients of convolutions with respect to input and weight, as functions."""

from collections.abc import Sequence

from ..arrays.tensor import Tensor
from ..autograd.backward_call import grad
from ..autograd.mode import enable_grad, is_grad_enabled
from ..ops.creation import zeros
from . import functional as F
from .common_types import _size_any_t


def _of(conv, input, weight, grad_output, argument, options):
    """Returns the gradient of `conv` with respect to one of its arguments.

    The values of that argument do not matter, so the public functions pass zeros.
    """
    record = is_grad_enabled() and any(t.requires_grad for t in (input, weight, grad_output))
    tensors = {"input": input, "weight": weight}
    with enable_grad():
        if not tensors[argument].requires_grad:
            tensors[argument] = tensors[argument].detach().requires_grad_()
        out = conv(tensors["input"], tensors["weight"], None, *options)
        if tuple(out.shape) != tuple(grad_output.shape):
            raise RuntimeError(
                f"{conv.__name__}_{argument}: expected grad_output of shape {tuple(out.shape)}, got {tuple(grad_output.shape)}."
            )
        return grad(out, tensors[argument], grad_output, create_graph=record)[0]


def _pair_of(conv):
    name = conv.__name__

    def by_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _size_any_t = 1, padding: _size_any_t = 0,
        dilation: _size_any_t = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        """Returns the gradient of `{name}` with respect to its input.

        Args:
            input_size: shape of the input.
            weight: weight of the convolution.
            grad_output: gradient of the result of the convolution.
            stride: distance between neighboring windows (default: 1).
            padding: number of zeros added at both ends (default: 0).
            dilation: distance between neighboring elements of the kernel (default: 1).
            groups: number of groups of channels (default: 1).
        """
        zero = zeros(*input_size, dtype=weight.dtype, device=weight.device)
        return _of(conv, zero, weight, grad_output, "input", (stride, padding, dilation, groups))

    def by_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _size_any_t = 1, padding: _size_any_t = 0,
        dilation: _size_any_t = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        """Returns the gradient of `{name}` with respect to its weight.

        Args:
            input: input of the convolution.
            weight_size: shape of the weight.
            grad_output: gradient of the result of the convolution.
            stride: distance between neighboring windows (default: 1).
            padding: number of zeros added at both ends (default: 0).
            dilation: distance between neighboring elements of the kernel (default: 1).
            groups: number of groups of channels (default: 1).
        """
        zero = zeros(*weight_size, dtype=input.dtype, device=input.device)
        return _of(conv, input, zero, grad_output, "weight", (stride, padding, dilation, groups))

    for function, argument in ((by_input, "input"), (by_weight, "weight")):
        function.__name__ = function.__qualname__ = f"{name}_{argument}"
        function.__doc__ = function.__doc__ and function.__doc__.format(name=name)
    return by_input, by_weight


conv1d_input, conv1d_weight = _pair_of(F.conv1d)
conv2d_input, conv2d_weight = _pair_of(F.conv2d)
conv3d_input, conv3d_weight = _pair_of(F.conv3d)
