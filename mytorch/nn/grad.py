"""The gradients of convolutions with respect to input and weight, by themselves."""

from collections.abc import Sequence

from .._tensor import Tensor
from ..dispatch.backward import grad
from ..engine.mode import enable_grad, is_grad_enabled
from ..ops.creation import zeros
from . import functional as F
from .common_types import _size_any_t


def _of(conv, input, weight, grad_output, wanted, options):
    """The gradient of conv by one of its arguments; the other's values do not matter where they are zeros."""
    record = is_grad_enabled() and any(t.requires_grad for t in (input, weight, grad_output))
    given = {"input": input, "weight": weight}
    with enable_grad():
        if not given[wanted].requires_grad:
            given[wanted] = given[wanted].detach().requires_grad_()
        out = conv(given["input"], given["weight"], None, *options)
        if tuple(out.shape) != tuple(grad_output.shape):
            raise RuntimeError(
                f"{conv.__name__}_{wanted}: grad_output is {tuple(grad_output.shape)}; these sizes make it {tuple(out.shape)}."
            )
        return grad(out, given[wanted], grad_output, create_graph=record)[0]


def _pair_of(conv):
    name = conv.__name__

    def by_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _size_any_t = 1, padding: _size_any_t = 0,
        dilation: _size_any_t = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        zero = zeros(*input_size, dtype=weight.dtype, device=weight.device)
        return _of(conv, zero, weight, grad_output, "input", (stride, padding, dilation, groups))

    def by_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _size_any_t = 1, padding: _size_any_t = 0,
        dilation: _size_any_t = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        zero = zeros(*weight_size, dtype=input.dtype, device=input.device)
        return _of(conv, input, zero, grad_output, "weight", (stride, padding, dilation, groups))

    for function, argument in ((by_input, "input"), (by_weight, "weight")):
        function.__name__ = function.__qualname__ = f"{name}_{argument}"
        function.__doc__ = f"""The gradient of `{name}` with respect to its {argument}, of shape {argument}_size.

    Args:
        grad_output: the gradient of the convolution's result. The others are as `{name}`'s.
    """
    return by_input, by_weight


conv1d_input, conv1d_weight = _pair_of(F.conv1d)
conv2d_input, conv2d_weight = _pair_of(F.conv2d)
conv3d_input, conv3d_weight = _pair_of(F.conv3d)
