"""The gradients of convolutions with respect to input and weight, by themselves."""

from ..graph.backward import grad
from ..graph.mode import enable_grad, is_grad_enabled
from ..ops.creation import zeros
from . import functional as F


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

    def by_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        zero = zeros(*input_size, dtype=weight.dtype, device=weight.device)
        return _of(conv, zero, weight, grad_output, "input", (stride, padding, dilation, groups))

    def by_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        zero = zeros(*weight_size, dtype=input.dtype, device=input.device)
        return _of(conv, input, zero, grad_output, "weight", (stride, padding, dilation, groups))

    by_input.__name__ = by_input.__qualname__ = f"{name}_input"
    by_input.__doc__ = f"""The gradient of `{name}` with respect to its input, of shape input_size.

    Args:
        weight: of the convolution. grad_output: the gradient of its result. The others are as `{name}`'s.
    """
    by_weight.__name__ = by_weight.__qualname__ = f"{name}_weight"
    by_weight.__doc__ = f"""The gradient of `{name}` with respect to its weight, of shape weight_size.

    Args:
        input: of the convolution. grad_output: the gradient of its result. The others are as `{name}`'s.
    """
    return by_input, by_weight


conv1d_input, conv1d_weight = _pair_of(F.conv1d)
conv2d_input, conv2d_weight = _pair_of(F.conv2d)
conv3d_input, conv3d_weight = _pair_of(F.conv3d)
