"""The precision of functions of several ops under autocast on a GPU. Single ops declare it in their definition.

    @in_precision("float32")
    def mse_loss(input, target, …):

PyTorch's documentation lists these functions (https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior).
The inputs of a listed function are cast, and its ops run without autocast.
"""

import functools

from ..engine.mode import get_mode
from .composed import composed
from .out import SignatureExtra


def in_precision(wanted, inside=False, composes=False):
    """Decorates a function with a precision under autocast.

    Args:
        wanted: "half" or "float32" to cast inputs, "widest" for float32 if one input is float32, or None for no cast.
        inside: keep autocast enabled for the ops that the function calls (default: False).
        composes: add an argument `auto` (dispatch/composed.py) (default: False).
    """

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            if composes and kwargs.pop("auto", False):
                with composed():
                    return run(*args, **kwargs)
            policy = get_mode().autocast
            if policy is None:
                return function(*args, **kwargs)
            return policy.run(function, wanted, inside, args, kwargs)

        if composes:
            run.__wrapped__ = SignatureExtra(function, "auto", False)
        return run

    return decorate
