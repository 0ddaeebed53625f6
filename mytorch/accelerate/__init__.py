"""Accelerator: one training loop for any number of processes, and for float32 or mixed precision."""

from .. import _extensions
from .accelerator import Accelerator
from .loader import AcceleratedLoader
from .optimizer import AcceleratedOptimizer, AcceleratedScheduler
from .state import ProcessState
from .utils import notebook_launcher

__all__ = [
    "AcceleratedLoader", "AcceleratedOptimizer", "AcceleratedScheduler", "Accelerator", "Interrupt", "ProcessState",
    "Progress", "RunLog", "Throughput", "check_finite", "exclusive", "find_checkpoint", "ignore_interrupts",
    "keep_random_states", "mean_loss", "newest_checkpoint", "notebook_launcher", "peak_flops", "remove_checkpoints", "steps_of",
    "warn_if_long",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__)
