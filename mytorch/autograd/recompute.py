"""Activation checkpointing: keep the inputs of a part of the model, and run it again in backward.

Memory for the part's activations is spent only while its backward runs, for the price of one more forward.
Random numbers are drawn again as they were, so dropout masks agree.

There are two ways. The one that PyTorch recommends, use_reentrant=False, records the graph as always, but what ops save
is dropped, and found again, when backward asks for the first of it, by running the function once more under hooks that
collect what it saves. The reentrant one records nothing in forward and runs a backward of its own inside backward, so
it adds to `.grad` of the parameters that the function reaches by itself, whatever way the outer backward was started.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
"""

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from .._tensor import Tensor
from ..base.config import holding
from ..dispatch.backward import backward as run_backward
from ..engine.mode import enable_grad, get_mode, in_mode
from ..ops.random import positions, set_positions
from .function import Function
from .graph import saved_tensors_hooks

Contexts = Callable[[], tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]]
_early_stop = ContextVar("mytorch_checkpoint_early_stop", default=None)
_debug = ContextVar("mytorch_checkpoint_debug", default=None)


class CheckpointError(RuntimeError):
    """Running the function again gave something else than its first run."""


def noop_context_fn():
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def set_checkpoint_early_stop(enable: bool):
    """Within the block, say for all checkpoints whether running again ends as soon as all that was saved is found."""
    return holding(_early_stop, enable)


def set_checkpoint_debug_enabled(enabled: bool | None):
    """Within the block, say for all checkpoints whether they run with `debug=True`; None leaves it to each."""
    return holding(_debug, enabled)


@contextlib.contextmanager
def _random_numbers_of(state):
    """Draw random numbers from a state, and go on afterwards where they were; None leaves them alone."""
    if state is None:
        yield
        return
    now = positions()
    set_positions(state)
    try:
        yield
    finally:
        set_positions(now)


# -- by hooks on what is saved ------------------------------------------------------------------------


class _Place:
    """Stands in the graph for one saved tensor."""

    __slots__ = ("__weakref__", "frame", "index", "metadata")

    def __init__(self, frame, index, tensor):
        self.frame = frame
        self.index = index
        self.metadata = _metadata(tensor)


def _metadata(tensor):
    return tuple(tensor.shape), tensor.dtype, str(tensor.device)


class _Stop(Exception):
    """Everything that was saved has been found again."""


class _OpsRun:
    """What ran, op by op; it takes a profiler's place."""

    def __init__(self):
        self.lines = []

    def run(self, op, inputs, fused, attrs):
        """Note an op and run it; those that it calls are part of it."""
        self.lines.append(f"{op.name}({', '.join(str(tuple(x.shape)) for x in inputs if hasattr(x, 'shape'))})")
        with in_mode(get_mode().replace(profile=None)):
            return op(*inputs, fused=fused, **attrs)


class _Frame:
    """One call of a checkpointed function: how to repeat it, and what the repetition saved."""

    def __init__(self, function, args, kwargs, keep_rng, context, check, early_stop, debug):
        self.function = function
        self.first = _OpsRun() if debug else None
        self.args = [_apart(a) for a in args]
        self.kwargs = {k: _apart(v) for k, v in kwargs.items()}
        self.mode = get_mode()
        self.rng = positions() if keep_rng else None
        self.context = context
        self.check = check
        self.early_stop = early_stop
        self.count = 0
        self.found = WeakKeyDictionary()  # place -> tensor: gone when the graph lets go of the place
        self.places = WeakValueDictionary()  # number -> place, kept by the graph alone

    def pack(self, tensor):
        place = _Place(self, self.count, tensor)
        self.places[self.count] = place
        self.count += 1
        return place

    @staticmethod
    def unpack(place):
        frame = place.frame
        if place not in frame.found:
            frame.run_again()
        return frame.found[place]

    def run_again(self):
        """Run the function once more, and keep what its ops save."""
        seen = []

        def collect(tensor):
            if len(seen) < self.count:
                place = self.places.get(len(seen))
                if place is not None and self.check != "none" and _metadata(tensor) != place.metadata:
                    raise CheckpointError(
                        "checkpoint: Recomputed values for the following tensors have different metadata than during "
                        f"the forward pass: tensor {place.index} was {place.metadata}, and is {_metadata(tensor)} now."
                    )
                if place is not None:
                    self.found[place] = tensor
            seen.append(None)
            if self.early_stop and len(seen) == self.count:
                raise _Stop
            return tensor

        second = self.first and _OpsRun()
        mode = self.mode.replace(grad=True, inference=False, profile=second or self.mode.profile)
        hooks = saved_tensors_hooks(collect, lambda tensor: tensor)
        try:
            with in_mode(mode), _random_numbers_of(self.rng), self.context, hooks:
                self.function(*self.args, **self.kwargs)
        except _Stop:
            return
        except CheckpointError as error:
            raise self.explained(error, second) from None
        if len(seen) != self.count:
            wrong = CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation. "
                f"Number of tensors saved during forward: {self.count}; during recomputation: {len(seen)}."
            )
            raise self.explained(wrong, second)

    def explained(self, error, second):
        """An error with the ops of both runs, if they were noted."""
        if self.first is None:
            return error
        runs = (f"{name}:\n  " + "\n  ".join(run.lines) for name, run in (("forward", self.first), ("again", second)))
        return CheckpointError(
            f"{error}\nYou are seeing this error because you passed `debug=True` to checkpoint. What ran, "
            + "\nand ".join(runs)
        )


def _apart(x):
    """A tensor out of its graph, to run the function on again; everything else as it is."""
    if not isinstance(x, Tensor):
        return x
    copy = x.detach()
    return copy.requires_grad_() if x.requires_grad else copy


def _by_hooks(function, args, kwargs, keep_rng, context_fn, *options):
    first, second = context_fn()
    frame = _Frame(function, args, kwargs, keep_rng, second, *options)
    mode = frame.mode.replace(profile=frame.first or frame.mode.profile)
    with in_mode(mode), saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


# -- by a backward inside backward ----------------------------------------------------------------------


class _Reentrant(Function):
    """Forward unrecorded; backward runs the function again, recorded, and goes back through that."""

    @staticmethod
    def forward(ctx, function, keep_rng, anchor, *args):
        ctx.function = function
        ctx.mode = get_mode().replace(grad=True, inference=False)
        ctx.rng = positions() if keep_rng else None
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        ctx.set_materialize_grads(False)
        return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        args = list(ctx.plain)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = _apart(t)
        with in_mode(ctx.mode), _random_numbers_of(ctx.rng):
            outs = ctx.function(*args)
        outs = outs if isinstance(outs, tuple) else (outs,)
        used = [i for i, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad and grads[i] is not None]
        if not used:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        with enable_grad():
            run_backward([outs[i] for i in used], [grads[i] for i in used])
        return (None, None, None, *(_gradient(a) if isinstance(a, Tensor) else None for a in args))


def _gradient(t):
    g = t.grad
    return None if g is None else g if isinstance(g, Tensor) else Tensor._of(g)


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True,
    context_fn: Contexts | None = noop_context_fn, determinism_check: str = "default", debug: bool = False,
    early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """function(*args, **kwargs), whose activations are not kept but computed again in backward.

    Args:
        use_reentrant: False (and None): by hooks on what is saved, for every way of backward and any structure of
            arguments and results. True: by a backward inside backward, which takes no keyword arguments, and gives
            gradients to the parameters that the function reaches in `backward()` only.
        preserve_rng_state: draw the same random numbers the second time.
        context_fn: gives two context managers, for the first run and for the second. Not with use_reentrant=True.
        determinism_check: "default" compares shapes, dtypes and devices of what the runs save; "none" doesn't.
        debug: if the second run differs, say which ops ran in both; `set_checkpoint_debug_enabled` overrides it.
        early_stop: the second run ends when all that was saved is found; `set_checkpoint_early_stop` overrides it.

    Raises:
        ValueError: options that do not go together.
        CheckpointError: in backward, the second run differs.

    Source: see the module.

    Example:
        >>> x = tensor(0.0, requires_grad=True)
        >>> mytorch.utils.checkpoint.checkpoint(mytorch.exp, x, use_reentrant=False).backward()
        >>> x.grad.item()
        1.0
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'] but got {determinism_check}")
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if debug or context_fn not in (None, noop_context_fn):
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if not get_mode().grad:
        return function(*args, **kwargs)
    if use_reentrant:
        anchor = Tensor._wrap(np.zeros((), np.float32)).requires_grad_()  # recorded even if no argument requires grad
        return _Reentrant.apply(function, preserve_rng_state, anchor, *args)
    stop = early_stop if _early_stop.get() is None else _early_stop.get()
    options = determinism_check, stop, debug if _debug.get() is None else _debug.get()
    return _by_hooks(function, args, kwargs, preserve_rng_state, context_fn or noop_context_fn, *options)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a Sequential, or a list of functions, in `segments` checkpointed parts (the last one is not).

    Args:
        preserve_rng_state: draw the same random numbers the second time.

    Raises:
        ValueError: another keyword argument.
    """
    options = {"use_reentrant": use_reentrant, "preserve_rng_state": kwargs.pop("preserve_rng_state", True)}
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
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
        input = checkpoint(run(start, start + size), input, **options)
        start += size
    return run(start, len(functions))(input)
