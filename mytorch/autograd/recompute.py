"""Activation checkpointing: store the inputs of a part of the model, and run the part again in backward.

The activations of the part need memory only while its backward runs. The cost is a second forward pass. The second pass
draws the same random numbers, so dropout masks are equal.

There are two implementations:

* `use_reentrant=False`, which PyTorch recommends: Forward records the graph, but hooks drop the tensors that ops save.
  When backward needs the first of them, the function runs again, and other hooks collect the saved tensors.
* `use_reentrant=True`: Forward is not recorded. Backward runs the function again, recorded, and then starts a second
  backward pass through it. That pass adds gradients to the parameters, even if the outer pass is `autograd.grad`.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
"""

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from ..arrays import config
from ..arrays.config import holding
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..ops.dispatch.interpreter import Interpreter
from ..ops.random import positions, set_positions
from .backward_call import backward as run_backward
from .function import Function, once_differentiable
from .graph import saved_tensors_hooks
from .mode import enable_grad, get_mode, in_mode
from .walk import is_checkpoint_valid

Contexts = Callable[[], tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]]
_early_stop = ContextVar("mytorch_checkpoint_early_stop", default=None)
_debug = ContextVar("mytorch_checkpoint_debug", default=None)


class CheckpointError(RuntimeError):
    """Raised if the second run of a checkpointed function differs from the first run."""


def noop_context_fn():
    """Returns two context managers without effect."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def set_checkpoint_early_stop(enable: bool):
    """Sets the option `early_stop` of all checkpoints in a `with` block.

    Args:
        enable: True to end the second run as soon as all saved tensors are computed.
    """
    return holding(_early_stop, enable)


def set_checkpoint_debug_enabled(enabled: bool | None):
    """Sets the option `debug` of all checkpoints in a `with` block.

    Args:
        enabled: True or False; None uses the argument of each checkpoint.
    """
    return holding(_debug, enabled)


@contextlib.contextmanager
def _random_numbers_of(state):
    """Draws random numbers from a state in a block, and restores the current state afterward. None has no effect."""
    if state is None:
        yield
        return
    now = positions()
    set_positions(state)
    try:
        yield
    finally:
        set_positions(now)


# -- with hooks on saved tensors -------------------------------------------------------------------------


class _Place:
    """A placeholder in the graph for one saved tensor."""

    __slots__ = ("__weakref__", "frame", "index", "metadata")

    def __init__(self, frame, index, tensor):
        self.frame = frame
        self.index = index
        self.metadata = _metadata(tensor)


def _metadata(tensor):
    return tuple(tensor.shape), tensor.dtype, str(tensor.device)


class _Stop(Exception):
    """Ends the second run when all saved tensors are computed."""


class _OpsRun(Interpreter):
    """A log of the ops that run in a mode. Ops that they call are not logged."""

    def __init__(self, mode):
        self.outer, self.lines = mode.interpreter, []

    def __call__(self, record, inputs, fused, attrs):
        self.lines.append(f"{record.name}({', '.join(str(tuple(x.shape)) for x in inputs if hasattr(x, 'shape'))})")
        with self.outside():
            return record.dispatch(*inputs, fused=fused, **attrs)


class _Frame:
    """One call of a checkpointed function: its arguments and state, and the tensors that the second run saves."""

    def __init__(self, function, args, kwargs, keep_rng, context, check, early_stop, debug):
        self.function = function
        self.args = [_apart(a) for a in args]
        self.kwargs = {k: _apart(v) for k, v in kwargs.items()}
        self.mode = get_mode()
        self.first = _OpsRun(self.mode) if debug else None
        self.rng = positions() if keep_rng else None
        self.context = context
        self.check = check
        self.early_stop = early_stop
        self.count = 0
        self.complete = False  # the function has returned
        self.found = WeakKeyDictionary()  # placeholder -> tensor, until the graph releases the placeholder
        self.places = WeakValueDictionary()  # number -> placeholder; only the graph has strong references

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
        """Runs the function again and collects the tensors that its ops save."""
        seen = []

        def collect(tensor):
            tensor = Tensor._of(tensor._mt_data)  # the graph of the second run is not needed
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

        second = self.first and _OpsRun(self.mode)
        mode = self.mode.replace(grad=True, inference=False, interpreter=second or self.mode.interpreter)
        hooks = saved_tensors_hooks(collect, lambda tensor: tensor)
        try:
            with in_mode(mode), _random_numbers_of(self.rng), self.context, hooks:
                self.function(*self.args, **self.kwargs)
        except _Stop:
            return
        except CheckpointError as error:
            raise self.explained(error, second) from None
        # A backward within the function runs it again before all tensors are counted.
        if self.complete and len(seen) != self.count:
            wrong = CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation. "
                f"Number of tensors saved during forward: {self.count}; during recomputation: {len(seen)}."
            )
            raise self.explained(wrong, second)

    def explained(self, error, second):
        """Returns an error with the ops of both runs, if they were logged."""
        if self.first is None:
            return error
        runs = (f"{name}:\n  " + "\n  ".join(run.lines) for name, run in (("forward", self.first), ("again", second)))
        return CheckpointError(
            f"{error}\nYou are seeing this error because you passed `debug=True` to checkpoint. Ops of both runs, "
            + "\nand ".join(runs)
        )


def _apart(x):
    """Returns a detached tensor with the same tangents for the second run. Other values are returned unchanged."""
    if not isinstance(x, Tensor):
        return x
    interpreter = get_mode().interpreter
    copy = x.detach() if interpreter is None else interpreter.detach(x)
    return copy.requires_grad_() if x.requires_grad else copy


def _by_hooks(function, args, kwargs, keep_rng, context_fn, *options):
    first, second = context_fn()
    frame = _Frame(function, args, kwargs, keep_rng, second, *options)
    mode = frame.mode.replace(interpreter=frame.first or frame.mode.interpreter)
    with in_mode(mode), saved_tensors_hooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


# -- with a backward pass inside backward ----------------------------------------------------------------


class _Reentrant(Function):
    """A Function with an unrecorded forward. Backward runs the function again, recorded, and differentiates that run."""

    @staticmethod
    def forward(ctx, function, keep_rng, anchor, *args):
        ctx.function = function
        ctx.mode = get_mode().replace(grad=True, inference=False)
        ctx.rng = positions() if keep_rng else None
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return function(*args)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        if not is_checkpoint_valid():  # the inner backward would add to the gradients of all leaves
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter "
                "to .backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without "
                "passing the `inputs` argument."
            )
        args = list(ctx.plain)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = _apart(t)
        with in_mode(ctx.mode), _random_numbers_of(ctx.rng):
            outs = ctx.function(*args)
        outs = outs if isinstance(outs, tuple) else (outs,)
        used = [i for i, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad]
        if not used:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        with enable_grad():
            run_backward([outs[i] for i in used], [grads[i] for i in used])
        return (None, None, None, *(_gradient(a) if isinstance(a, Tensor) else None for a in args))


def _gradient(t):
    g = t.grad
    return None if g is None else g if isinstance(g, Tensor) else Tensor._of(g)


def _warn_without_choice(name, use_reentrant):
    if config.pytorch_mode and use_reentrant is None:
        warn(
            f"torch.utils.checkpoint.{name}: the use_reentrant parameter should be passed explicitly. The default here is False."
        )


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True,
    context_fn: Contexts | None = noop_context_fn, determinism_check: str = "default", debug: bool = False,
    early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """Runs a function without storing its activations. Backward computes the activations again.

    This saves memory at the cost of a second forward pass of the function.

    Use it when activations don't fit in memory: for about a third more time, only the inputs of the function are kept.

    Args:
        function: the function or module to run.
        args: arguments of the function.
        use_reentrant: False or None records the graph and recomputes saved tensors. It works with `autograd.grad` and
            with any structure of arguments. True runs a second backward pass inside backward. It accepts no keyword
            arguments, and requires `backward()` without `inputs`.
        preserve_rng_state: draw the same random numbers in the second run (default: True).
        context_fn: function that returns two context managers, for the first and the second run. Requires
            `use_reentrant=False`.
        determinism_check: "default" compares the shapes, dtypes and devices of the saved tensors of both runs; "none"
            disables the check.
        debug: list the ops of both runs in the error message if the runs differ. `set_checkpoint_debug_enabled`
            overrides it.
        early_stop: end the second run when all saved tensors are computed (default: True).
            `set_checkpoint_early_stop` overrides it.
        kwargs: keyword arguments of the function.

    Returns:
        The result of the function.

    Raises:
        ValueError: options cannot be combined.
        CheckpointError: in backward, the second run differs from the first.
        RuntimeError: in `autograd.grad`, or backward with `inputs`, if `use_reentrant` is True.

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.

    Example:
        >>> x = tensor(0.0, requires_grad=True)
        >>> mytorch.utils.checkpoint.checkpoint(mytorch.exp, x, use_reentrant=False).backward()
        >>> x.grad.item()
        1.0
    """
    _warn_without_choice("checkpoint", use_reentrant)
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
    """Runs a Sequential, or a list of functions, as checkpointed segments. The last segment is not checkpointed.

    Args:
        functions: an `nn.Sequential`, or a list of functions that run in order.
        segments: number of segments.
        input: input of the first function.
        use_reentrant: as in `checkpoint`.
        kwargs: `preserve_rng_state`, as in `checkpoint`.

    Returns:
        The result of the last function.

    Raises:
        ValueError: an unknown keyword argument.
    """
    _warn_without_choice("checkpoint_sequential", use_reentrant)
    options = {"use_reentrant": bool(use_reentrant), "preserve_rng_state": kwargs.pop("preserve_rng_state", True)}
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
