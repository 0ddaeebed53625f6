"""Transformations of models for inference."""

import copy

from ..._extensions import lazy
from ...nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d
from ...nn.utils.fusion import fuse_conv_bn_eval
from ..graph_module import GraphModule
from ..tracer import symbolic_trace

__getattr__, __dir__ = lazy(__name__)
_PAIRS = {Conv1d: BatchNorm1d, Conv2d: BatchNorm2d, Conv3d: BatchNorm3d}


def fuse(model, inplace=False, no_trace=False):
    """Combines each convolution and the batch norm after it, for inference.

    The batch norm must be the only user of the convolution, and both must be called once.

    Args:
        model: a module in evaluation mode.
        inplace: change the layers of the model, instead of a copy (default: False).
        no_trace: the model is a GraphModule already (default: False).

    Returns:
        A GraphModule without these batch norms.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
        >>> fused = mytorch.fx.experimental.optimization.fuse(model)
        >>> x = mytorch.randn(1, 3, 5, 5)
        >>> mytorch.allclose(fused(x), model(x), atol=1e-5), [type(m).__name__ for m in fused.children()]
        (True, ['Conv2d', 'ReLU'])
    """
    model = model if inplace else copy.deepcopy(model)
    if no_trace and not isinstance(model, GraphModule):
        raise TypeError(
            f"fuse: expected a GraphModule with no_trace=True, got {type(model).__name__}. Use fx.symbolic_trace first."
        )
    traced = model if no_trace else symbolic_trace(model)
    modules = dict(traced.named_modules())
    calls = {}
    for node in traced.graph.nodes:
        if node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or not node.args or getattr(node.args[0], "op", None) != "call_module":
            continue
        before, norm = node.args[0], modules[node.target]
        conv = modules[before.target]
        if _PAIRS.get(type(conv)) is not type(norm) or len(before.users) > 1:
            continue
        if calls[node.target] > 1 or calls[before.target] > 1 or not norm.track_running_stats:
            continue
        fused = fuse_conv_bn_eval(conv, norm)
        owner, _, name = before.target.rpartition(".")
        setattr(modules[owner], name, fused)
        modules[before.target] = fused
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.graph.lint()
    traced.recompile()
    return traced
