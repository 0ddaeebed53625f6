"""`mytorch.utils.checkpoint`: a module with PyTorch's names that is also callable."""

import sys
from types import ModuleType

from .. import _extensions
from ..autograd.recompute import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


class _CallableModule(ModuleType):
    """Makes both `utils.checkpoint(fn, x)` and `utils.checkpoint.checkpoint(fn, x)` work."""

    def __call__(self, function, *args, **kwargs):
        return checkpoint(function, *args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

__all__ = [
    "CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__)
