"""Automatic differentiation. `walk.py` runs the graph, whose parts are in `node.py`; `function.py` and others are public.

The graph (`mode`, `node`, `own_node`, `saved`, `walk`) consists of arrays and edges and does not use Tensors. All names
are imported on first use, because Tensor imports the graph.
"""

import sys
import types

from .. import _extensions


class _Autograd(types.ModuleType):
    """The type of this module. `autograd.gradcheck` is a function, also after an import of the file with this name."""

    @property
    def gradcheck(self):
        return _extensions.load("autograd.gradcheck:gradcheck")

    @gradcheck.setter
    def gradcheck(self, module):
        """Ignores the module that Python's import system assigns."""


__all__ = (
    "Function backward checkpoint detect_anomaly enable_grad forward_ad functional grad gradcheck gradgradcheck graph "
    "inference_mode is_anomaly_enabled is_grad_enabled is_inference_mode_enabled no_grad once_differentiable "
    "set_detect_anomaly set_grad_enabled"
).split()

__getattr__, __dir__ = _extensions.lazy(
    __name__,
    "forward_ad function functional graph",
    {
        "autograd.anomaly": "detect_anomaly is_anomaly_enabled set_detect_anomaly",
        "autograd.backward_call": "backward grad",
        "autograd.function": "Function once_differentiable",
        "autograd.gradcheck": "gradcheck gradgradcheck",
        "autograd.mode": "enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad set_grad_enabled",
        "autograd.recompute": "checkpoint=",
    },
)
sys.modules[__name__].__class__ = _Autograd
