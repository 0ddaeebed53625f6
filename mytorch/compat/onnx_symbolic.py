"""Names of `torch.onnx` that packages use to register conversions of their operators.

The exporter translates operations itself and calls no symbolic functions.
"""

import enum

_ACCEPTED = ("torchvision::nms", "torchvision::roi_align", "torchvision::roi_pool")


class TensorProtoDataType(enum.IntEnum):
    """Numbers of dtypes in ONNX files."""

    UNDEFINED, FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32, UINT64 = range(
        14
    )


def parse_args(*arg_descriptors):
    """Returns a decorator that leaves a symbolic function unchanged."""
    return lambda function: function


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Accepts the symbolic functions of torchvision. The exporter translates nms and roi_align itself, and refuses roi_pool.

    Args:
        symbolic_name: name of the operator, "namespace::name".
        symbolic_fn: function that makes the nodes. It is not called.
        opset_version: version of ONNX's operators.

    Raises:
        NotImplementedError: an operator of another package.
    """
    if symbolic_name not in _ACCEPTED:
        raise NotImplementedError(
            f"onnx.register_custom_op_symbolic: expected one of {', '.join(_ACCEPTED)}, got {symbolic_name!r}. Write the operator with functions of "
            "torch, which the exporter translates."
        )


def prepare_onnx_paddings(dim, pad):
    """Returns paddings in the order of ONNX: those before each axis, then those after each axis.

    Args:
        dim: number of axes.
        pad: paddings in the order of `nn.functional.pad`: (before, after) of the last axis, then of the axis before it.
    """
    full = [*pad, *[0] * (2 * dim - len(pad))]
    return full[-2::-2] + full[::-2]
