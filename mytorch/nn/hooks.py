"""Full backward hooks of modules: two identity nodes, before and after forward, that watch the gradients.

The gradient that reaches the tensors behind the first boundary is grad_input, the one that enters at the
second is grad_output; hooks may replace either.
"""

from collections.abc import Callable, Sequence
from typing import Any

from .._tensor import Tensor
from ..autograd.function import Function


class _Identity(Function):
    """Pass tensors through one node; tell `watch` the gradients on the way back."""

    @staticmethod
    def forward(ctx, watch, *tensors):
        ctx.watch = watch
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        changed = ctx.watch(grads)
        return (None, *(grads if changed is None else changed))


def _as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _changed_by(hook, grads, what, *args):
    """What a hook makes of gradients, of which it may replace all."""
    changed = hook(*args)
    if changed is None:
        return grads
    changed = _as_tuple(changed)
    if len(changed) != len(grads):
        kind = "pre hook" if what == "grad_output" else "hook"
        raise RuntimeError(
            f"Backward {kind} returned an invalid number of {what}, got {len(changed)}, but expected {len(grads)}"
        )
    return changed


class BackwardBoundary:
    """The pair of identities around one call of a module."""

    def __init__(
        self, module: Any, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_output = None

    def _through(self, values, watch):
        """The values, with those tensors that are differentiable led through an identity."""
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not places:
            return values
        count = len(values)

        def watch_places(grads):
            full = [None] * count
            for i, g in zip(places, grads, strict=True):
                full[i] = g
            changed = watch(tuple(full))
            return None if changed is None else tuple(changed[i] for i in places)

        led = _Identity.apply(watch_places, *[values[i] for i in places])
        out = list(values)
        for i, t in zip(places, _as_tuple(led), strict=True):
            out[i] = t
        return tuple(out)

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Lead the arguments of forward through."""
        led = self._through(args, self._on_input)
        self.inputs_watched = led is not args
        return led

    def leave(self, result: Any) -> Any:
        """Lead the result of forward through."""
        led = self._through(_as_tuple(result), self._on_output)
        return led if isinstance(result, tuple) else led[0]

    def _on_output(self, grads):
        self.grad_output = grads
        for hook in self.pre_hooks:
            self.grad_output = _changed_by(hook, self.grad_output, "grad_output", self.module, self.grad_output)
        if not self.inputs_watched:
            for hook in self.hooks:
                hook(self.module, (None,), self.grad_output)
        return self.grad_output

    def _on_input(self, grads):
        if self.grad_output is None:  # a gradient that did not come through the output: a second derivative's
            return grads
        for hook in self.hooks:
            grads = _changed_by(hook, grads, "grad_input", self.module, grads, self.grad_output)
        self.grad_output = None
        return grads
