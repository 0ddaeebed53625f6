"""Shapes and dtypes of all results of a graph."""

from typing import Any, NamedTuple

from ...arrays.array import Size
from ...arrays.memory_format import contiguous_format
from ...arrays.tensor import Tensor
from ..interpreter import Interpreter
from ..node import map_aggregate


class TensorMetadata(NamedTuple):
    """Metadata of a tensor.

    Attributes:
        shape: the shape.
        dtype: the dtype.
        requires_grad: True if it requires gradients.
        stride: the strides, in elements.
        memory_format: `contiguous_format`, or None.
        is_quantized: False.
        qparams: empty.
    """

    shape: Size
    dtype: Any
    requires_grad: bool
    stride: tuple
    memory_format: Any
    is_quantized: bool
    qparams: dict


def _metadata(x):
    layout = contiguous_format if x.is_contiguous() else None
    return TensorMetadata(x.shape, x.dtype, x.requires_grad, x.stride(), layout, False, {})


class ShapeProp(Interpreter):
    """Runs a graph and stores the shape and dtype of each result in `node.meta["tensor_meta"]`.

    Args:
        gm: the GraphModule.

    Example:
        >>> traced = mytorch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
        >>> _ = mytorch.fx.passes.shape_prop.ShapeProp(traced).propagate(mytorch.zeros(4, 2))
        >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
        [(4, 2), (4, 3), (4, 3), (4, 3)]
    """

    def run_node(self, n):
        """Runs one node and stores the metadata of its result.

        Args:
            n: the node.
        """
        result = super().run_node(n)
        tensors = []

        def described(value):
            if not isinstance(value, Tensor):
                return value
            tensors.append(value)
            return _metadata(value)

        meta = map_aggregate(result, described)
        if tensors:
            n.meta["tensor_meta"] = meta
            n.meta["device"] = tensors[0].device
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Runs the graph.

        Args:
            args: the inputs.

        Returns:
            The result.
        """
        return super().run(*args)
