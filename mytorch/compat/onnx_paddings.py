"""Helpers of `torch.onnx` that need no exporter."""


def prepare_onnx_paddings(dim, pad):
    """Returns paddings in the order of ONNX: those before each axis, then those after each axis.

    Args:
        dim: number of axes.
        pad: paddings in the order of `nn.functional.pad`: (before, after) of the last axis, then of the axis before it.
    """
    full = [*pad, *[0] * (2 * dim - len(pad))]
    return full[-2::-2] + full[::-2]
