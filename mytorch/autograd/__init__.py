"""Automatic differentiation: the public functions. `mytorch.engine` records and runs the graph."""

from .. import _extensions
from ..dispatch.backward import backward, grad
from ..engine.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ..transforms import tensor_ns as _tensor_ns  # registers the arithmetic for create_graph=True
from . import forward_ad, functional, graph
from . import recompute as checkpoint
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .function import Function, once_differentiable
from .gradcheck import gradcheck, gradgradcheck

__all__ = (
    "Function backward checkpoint detect_anomaly enable_grad functional grad gradcheck gradgradcheck inference_mode "
    "is_anomaly_enabled is_grad_enabled is_inference_mode_enabled no_grad once_differentiable set_detect_anomaly "
    "set_grad_enabled"
).split()

__getattr__, __dir__ = _extensions.lazy(__name__)
