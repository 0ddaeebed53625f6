"""Numbers of floating-point operations, for `profile(with_flops=True)` and `torch.utils.flop_counter`."""

import math


def _of_einsum(inputs, out, spec):
    """Counts products of two operands at a time, from left to right."""
    terms, result = spec.partition("->")[::2]
    terms = terms.split(",")
    sizes = {c: n for term, x in zip(terms, inputs, strict=True) for c, n in zip(term, x.shape, strict=True)}
    total, done = 0, terms[0]
    for i, term in enumerate(terms[1:], 1):
        letters = {*done, *term}
        total += 2 * math.prod(sizes[c] for c in letters) if {*done} & {*term} - {*result} or i < len(terms) - 1 else 0
        done = letters & {*result, *"".join(terms[i + 1 :])}
    return total


_COUNTS = {  # function of an op's inputs, result and attributes
    "matmul": lambda inputs, out, **_: 2 * out.numel() * inputs[0].shape[-1],
    "linear": lambda inputs, out, **_: 2 * out.numel() * inputs[0].shape[-1],
    "convolution": lambda inputs, out, **_: 2 * out.numel() * math.prod(inputs[1].shape[1:]),
    "convolution_input": lambda inputs, out, **_: 2 * inputs[0].numel() * math.prod(inputs[1].shape[1:]),
    "convolution_weight": lambda inputs, out, **_: 2 * inputs[0].numel() * math.prod(out.shape[1:]),
    "einsum": _of_einsum,
    "scaled_dot_product_attention": lambda inputs, out, **_: 4 * math.prod(inputs[0].shape) * inputs[1].shape[-2],
}


def count_flops(record, inputs, out, attrs):
    """Returns the floating-point operations of one call of an op; 0 for ops that are not counted."""
    count = _COUNTS.get(record.name.strip("_"))
    return 0 if count is None else count(inputs, out, **attrs)
