"""Accelerator: one training loop for one process or many, one precision or two."""

from .. import _extensions
from .accelerator import Accelerator
from .loader import AcceleratedLoader
from .optimizer import AcceleratedOptimizer, AcceleratedScheduler
from .state import ProcessState
from .utils import notebook_launcher

__all__ = [
    "AcceleratedLoader", "AcceleratedOptimizer", "AcceleratedScheduler", "Accelerator", "Interrupt", "ProcessState",
    "Progress", "RunLog", "Throughput", "check_finite", "find_checkpoint", "ignore_interrupts", "mean_loss",
    "newest_checkpoint", "notebook_launcher", "peak_flops", "remove_checkpoints", "warn_if_long",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__)
