"""Functions of `torch.utils.checkpoint` for programs with their own checkpoints."""

from .. import cuda
from ..arrays.errors import warn
from ..arrays.tensor import Tensor


def detach_variable(inputs):
    """Detaches the tensors of a tuple from their graph and keeps `requires_grad`. Other values are unchanged.

    Args:
        inputs: a tuple of tensors and other values.

    Raises:
        RuntimeError: `inputs` is not a tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs):
    """Warns if no tensor among the inputs requires grad, because then the checkpoint computes no gradients.

    Args:
        inputs: an iterable of inputs.
    """
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args):
    """Returns (device numbers, generator states) of the GPUs of all tensors among the arguments.

    Args:
        args: tensors and other values.
    """
    places = sorted({x.get_device() for x in args if isinstance(x, Tensor) and x.is_cuda})
    return places, [cuda.get_rng_state(f"cuda:{place}") for place in places]


def set_device_states(devices, states, *, device_type=None):
    """Restores the generator states that `get_device_states` returned.

    Args:
        devices: device numbers.
        states: generator states.
        device_type: ignored; for compatibility (default: None).
    """
    for place, state in zip(devices, states, strict=True):
        cuda.set_rng_state(state, f"cuda:{place}")
