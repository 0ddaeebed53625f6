"""The precision of ops and functions under autocast.

On a GPU, single ops declare their precision in their definition, and functions of several ops in a decorator:

    @in_precision("float32")
    def mse_loss(input, target, …):

PyTorch's documentation lists these functions (https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior).
The inputs of a listed function are cast, and its ops run without autocast.

On a CPU, PyTorch has other lists (ATen/autocast_mode.cpp). `ON_CPU` has them for both: it maps the names of ops and of
decorated functions to their precision.
"""

import functools

from ...autograd.mode import get_mode
from .composed import composed
from .out import SignatureExtra
from .record import ON_CPU


def in_precision(wanted="inside", inside=False, composes=False, name=None):
    """Decorates a function with a precision under autocast.

    Args:
        wanted: precision on a GPU: "half" or "float32" to cast inputs, "widest" for float32 if one input is float32, None
            for no cast, or "inside" to run the ops of the function with autocast (default: "inside").
        inside: cast the inputs, and run the ops of the function with autocast (default: False).
        composes: add an argument `auto` (ops/dispatch/composed.py) (default: False).
        name: name in `ON_CPU`, which has the precision on a CPU (default: the name of the function).
    """

    def decorate(function):
        on_cpu = ON_CPU.get(name or function.__name__, "inside" if inside else None)
        if wanted == "inside" and on_cpu is None:
            return function

        @functools.wraps(function)
        def run(*args, **kwargs):
            if composes and kwargs.pop("auto", False):
                with composed():
                    return run(*args, **kwargs)
            policy = get_mode().autocast
            if policy is None:
                return function(*args, **kwargs)
            return policy.run(function, on_cpu if policy.device_type == "cpu" else wanted, inside, args, kwargs)

        if composes:
            run.__wrapped__ = SignatureExtra(function, "auto", False)
        return run

    return decorate
