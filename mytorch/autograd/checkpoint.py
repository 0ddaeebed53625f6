"""Activation checkpointing: keep the inputs of a part of the model, and run it again in backward.

Memory for the part's activations is spent only while its backward runs, for the price of one more forward.
Random numbers are drawn again as they were, so dropout masks agree.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
"""

import numpy as np

from ..ops.random import draw_numbers, get_rng_state, set_draw_numbers, set_rng_state
from ..tensor import Tensor
from .function import Function
from .functions import backward as run_backward
from .mode import enable_grad, get_mode, reset_mode, set_mode


class _Checkpoint(Function):
    """Forward unrecorded; backward runs the function again, recorded, and goes back through that."""

    @staticmethod
    def forward(ctx, function, keep_rng, kwargs, anchor, *args):
        ctx.function, ctx.kwargs = function, kwargs
        ctx.mode = get_mode().replace(grad=True, inference=False)
        ctx.rng = (get_rng_state(), draw_numbers()) if keep_rng else None
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        ctx.set_materialize_grads(False)
        return function(*args, **kwargs)

    @staticmethod
    def backward(ctx, *grads):
        args = list(ctx.plain)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            copy = t.detach()
            args[i] = copy.requires_grad_() if t.requires_grad else copy
        now = (get_rng_state(), draw_numbers()) if ctx.rng is not None else None
        if now is not None:
            set_rng_state(ctx.rng[0])
            set_draw_numbers(ctx.rng[1])
        token = set_mode(ctx.mode)
        try:
            outs = ctx.function(*args, **ctx.kwargs)
        finally:
            reset_mode(token)
            if now is not None:
                set_rng_state(now[0])
                set_draw_numbers(now[1])
        outs = outs if isinstance(outs, tuple) else (outs,)
        pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad and g is not None]
        if pairs:
            with enable_grad():
                run_backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None, None, *(_gradient(a) if isinstance(a, Tensor) else None for a in args))


def _gradient(t):
    g = t.grad
    return None if g is None else g if isinstance(g, Tensor) else Tensor._of(g)


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, context_fn=None, determinism_check="default", debug=False, **kwargs):
    """function(*args, **kwargs), whose activations are not kept but computed again in backward.

    Args:
        use_reentrant: accepted; there is one implementation, which works for parameters that the function
            reaches by itself as well as for its arguments.
        preserve_rng_state: draw the same random numbers the second time.

    Source: see the module.
    """
    if not get_mode().grad:
        return function(*args, **kwargs)
    anchor = Tensor._wrap(np.zeros((), np.float32)).requires_grad_()  # so that it is recorded even if no argument requires grad
    return _Checkpoint.apply(function, preserve_rng_state, kwargs, anchor, *args)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Run a Sequential, or a list of functions, in `segments` checkpointed parts (the last one is not)."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(functions) // segments, 1)

    def run(start, end):
        def part(x):
            for f in functions[start:end]:
                x = f(x)
            return x

        return part

    start = 0
    for _ in range(segments - 1):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
        start += size
    return run(start, len(functions))(input)
