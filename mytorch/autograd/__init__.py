"""Automatic differentiation: what to record, the graph, the engine, and the functions users call.

`Function`, `gradcheck` and `checkpoint` need Tensors, so they are imported when first asked for.
"""

import importlib

from ..graph.backward import backward, grad
from ..graph.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly

_LATER = {
    "Function": "function",
    "once_differentiable": "function",
    "gradcheck": "gradcheck",
    "gradgradcheck": "gradcheck",
    "checkpoint": "checkpoint",
    "functional": None,
    "graph": None,
    "variable": None,
    "forward_ad": None,
    "profiler": None,
    "Variable": "variable",
}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'mytorch.autograd' has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LATER[name] or name}")
    value = getattr(module, name, module) if _LATER[name] else module
    globals()[name] = value
    return value


__all__ = [
    "Function",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]
