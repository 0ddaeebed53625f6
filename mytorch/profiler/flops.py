"""Numbers of floating-point operations, for `profile(with_flops=True)` and `torch.utils.flop_counter`."""

import math

_COUNTS = {  # function of an op's inputs and result
    "matmul": lambda inputs, out: 2 * out.numel() * inputs[0].shape[-1],
    "linear": lambda inputs, out: 2 * out.numel() * inputs[0].shape[-1],
    "convolution": lambda inputs, out: 2 * out.numel() * math.prod(inputs[1].shape[1:]),
    "convolution_input": lambda inputs, out: 2 * inputs[0].numel() * math.prod(inputs[1].shape[1:]),
    "scaled_dot_product_attention": lambda inputs, out: 4 * math.prod(inputs[0].shape) * inputs[1].shape[-2],
}


def count_flops(record, inputs, out):
    """Returns the floating-point operations of one call of an op; 0 for ops that are not counted."""
    count = _COUNTS.get(record.name.strip("_"))
    return 0 if count is None else count(inputs, out)
