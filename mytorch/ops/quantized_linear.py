"""A linear layer with int8 or int4 weights, and a scale for each output or for each group of its inputs."""

from .dispatch.op import op


def pack(codes, group_size):
    """Packs integers from -8 to 7, (out, groups * group_size), two per byte: a group's first half in the low bits."""
    halves = codes.astype("uint8").reshape(len(codes), -1, 2, group_size // 2)
    return (halves[:, :, 0] & 15 | halves[:, :, 1] << 4).reshape(len(codes), -1)


def unpack(xp, weight, group_size):
    """Returns the integers that `pack` packed."""
    signed = weight.astype("int8").reshape(len(weight), -1, group_size // 2)
    return xp.stack([(signed << 4) >> 4, signed >> 4], 2).reshape(len(weight), -1)


def dequantize(xp, weight, scale, offset, group_size, inputs):
    """Returns the weight (out, inputs) as floats."""
    if group_size is None:
        return weight * scale[:, None]
    codes = unpack(xp, weight, group_size).reshape(*scale.shape, group_size)
    floats = codes * scale[:, :, None]
    if offset is not None:
        floats += offset[:, :, None]
    return floats.reshape(len(weight), -1)[:, :inputs]


@op(name="quantized_linear", dtype="same")
def quantized_linear(xp, input, *, weight, scale, offset, group_size):
    """Computes input @ weightᵀ: (…, in) to (…, out).

    Args:
        weight: int8 (out, in), or uint8 (out, groups * group_size / 2) from `pack`.
        scale: factor of the integers, (out,) or (out, groups).
        offset: summand after scaling, (out, groups); None for 0.
        group_size: number of inputs that share a scale; None for int8.
    """
    weight, scale, offset = (None if a is None else xp.asarray(a) for a in (weight, scale, offset))
    floats = dequantize(xp, weight, scale, offset, group_size, input.shape[-1]).astype(input.dtype)
    return xp.matmul(input, xp.swapaxes(floats, 0, 1))


def _grad(g, input, weight, scale, offset, group_size, xp):
    weight, scale, offset = (None if a is None else xp.asarray(a) for a in (weight, scale, offset))
    return xp.matmul(g, dequantize(xp, weight, scale, offset, group_size, input.shape[-1]).astype(g.dtype))


quantized_linear.grad(input=_grad)
quantized_linear.register_kernel(cpu="mytorch.kernels.numba.quantized_linear")
