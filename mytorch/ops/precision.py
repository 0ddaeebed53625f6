"""In which precision a function of several ops runs under a GPU's autocast; a single op's record says it itself.

    @in_precision("float32")
    def mse_loss(input, target, …):

PyTorch lists these by name (https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior): as an op of the list
begins, its inputs are cast, and what it is made of runs as if there were no autocast.
"""

import functools

from ..graph.mode import get_mode


def in_precision(wanted, inside=False):
    """Decorate a function that PyTorch's lists name.

    Args:
        wanted: "half" or "float32", to which inputs are cast; "widest", float32 if one of them is; None for no cast.
        inside: leave autocast on for the ops that the function is made of.
    """

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            policy = get_mode().autocast
            if policy is None:
                return function(*args, **kwargs)
            return policy.run(function, wanted, inside, args, kwargs)

        return run

    return decorate
