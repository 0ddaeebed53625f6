"""In which precision a function of several ops runs under a GPU's autocast; a single op's record says it itself.

    @in_precision("float32")
    def mse_loss(input, target, …):

PyTorch lists these by name (https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior): as an op of the list
begins, its inputs are cast, and what it is made of runs as if there were no autocast.
"""

import functools

from ..engine.mode import get_mode
from .composed import composed
from .out import SignatureExtra


def in_precision(wanted, inside=False, composes=False):
    """Decorate a function that PyTorch's lists name.

    Args:
        wanted: "half" or "float32", to which inputs are cast; "widest", float32 if one of them is; None for no cast.
        inside: leave autocast on for the ops that the function is made of.
        composes: give it an argument `auto`, which composes these (dispatch/composed.py).
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
