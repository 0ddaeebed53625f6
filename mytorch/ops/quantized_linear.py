"""Linear layers with int8 or int4 weights, and a scale for each output or for each group of its inputs."""

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
    if scale.itemsize == 2:
        scale = scale.astype("float32")  # a product with a code has more bits than float16
    floats = codes * scale[:, :, None]
    if offset is not None:
        floats += offset[:, :, None]
    return floats.reshape(len(weight), -1)[:, :inputs]


@op(name="quantized_linear", dtype="same", outputs="list")
def quantized_linear(xp, input, *, weights, scales, offsets, group_size):
    """Computes input @ weightᵀ for each of several weights: (…, in) to a list of (…, out).

    Args:
        weights: int8 (out, in) of each, or uint8 (out, groups * group_size / 2) from `pack`.
        scales: factors of the integers, (out,) or (out, groups) of each. Those of groups can be float16.
        offsets: summands after scaling, (out, groups) of each; None for 0.
        group_size: number of inputs that share a scale; None for int8.
    """
    every = _floats(xp, weights, scales, offsets, group_size, input)
    return [xp.matmul(input, xp.swapaxes(floats, 0, 1)) for floats in every]


def _floats(xp, weights, scales, offsets, group_size, like):
    """Yields each weight as floats."""
    for arrays in zip(weights, scales, offsets, strict=True):
        arrays = [None if a is None else xp.asarray(a) for a in arrays]
        yield dequantize(xp, *arrays, group_size, like.shape[-1]).astype(like.dtype)


def _grad(g, input, weights, scales, offsets, group_size, xp):
    every = _floats(xp, weights, scales, offsets, group_size, input)
    first, *others = [xp.matmul(part, floats) for part, floats in zip(g, every, strict=True)]
    return sum(others, first)


quantized_linear.grad(input=_grad)
quantized_linear.register_kernel(cpu="mytorch.kernels.numba.quantized_linear")
