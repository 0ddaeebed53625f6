"""`mytorch.utils.checkpoint`: the module with PyTorch's names, which can itself be called."""

import sys
from types import ModuleType

from .. import _extensions, cuda
from .._tensor import Tensor
from ..autograd.recompute import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from ..base.errors import warn


def detach_variable(inputs):
    """A tuple's tensors out of their graph, wanting gradients as before; other values as they are."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs):
    """Warn if no tensor among the inputs requires grad: nothing would get a gradient through the checkpoint."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args):
    """(numbers of the GPUs that tensors among the arguments lie on, their generators' states)."""
    places = sorted({x.get_device() for x in args if isinstance(x, Tensor) and x.is_cuda})
    return places, [cuda.get_rng_state(f"cuda:{place}") for place in places]


def set_device_states(devices, states, *, device_type=None):
    """Put back what `get_device_states` gave."""
    for place, state in zip(devices, states, strict=True):
        cuda.set_rng_state(state, f"cuda:{place}")


class _CallableModule(ModuleType):
    """So that both `utils.checkpoint(fn, x)` and `utils.checkpoint.checkpoint(fn, x)` work."""

    def __call__(self, function, *args, **kwargs):
        return checkpoint(function, *args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

__all__ = [
    "CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__)
