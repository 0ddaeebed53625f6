"""Full backward hooks of modules, implemented by two identity functions before and after forward.

The gradient of the first identity is grad_input, and the gradient of the second is grad_output. Hooks may replace both.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.errors import warn_as_pytorch
from ..arrays.tensor import Tensor
from ..autograd.function import Function


class _Identity(Function):
    """Returns its inputs. In backward, passes the gradients to `watch`, which may replace them."""

    @staticmethod
    def forward(ctx, watch, *tensors):
        ctx.watch = watch
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        changed = ctx.watch(grads)
        return (None, *(grads if changed is None else changed))


def _as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _changed_by(hook, grads, what, *args):
    """Returns the gradients that a hook returned, or `grads` if it returned `None`."""
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
    """The two identity functions around one call of a module.

    Args:
        hooks: full backward hooks.
        pre_hooks: full backward pre-hooks.
    """

    def __init__(
        self, module: Any, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_output = None

    def _through(self, values, watch):
        """Returns the values. Tensors that require a gradient pass through an identity function."""
        positions = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not positions:
            return values
        count = len(values)

        def watch_positions(grads):
            full = [None] * count
            for i, g in zip(positions, grads, strict=True):
                full[i] = g
            changed = watch(tuple(full))
            return None if changed is None else tuple(changed[i] for i in positions)

        outputs = _Identity.apply(watch_positions, *[values[i] for i in positions])
        out = list(values)
        for i, t in zip(positions, _as_tuple(outputs), strict=True):
            out[i] = t
        return tuple(out)

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments of forward after the first identity function."""
        outputs = self._through(args, self._on_input)
        self.inputs_watched = outputs is not args
        return outputs

    def leave(self, result: Any) -> Any:
        """Returns the result of forward after the second identity function."""
        outputs = self._through(_as_tuple(result), self._on_output)
        if not isinstance(result, tuple):
            return outputs[0]
        return type(result)(*outputs) if hasattr(result, "_fields") else outputs

    def _on_output(self, grads):
        self.grad_output = grads
        for hook in self.pre_hooks:
            self.grad_output = _changed_by(hook, self.grad_output, "grad_output", self.module, self.grad_output)
        if not self.inputs_watched:
            if self.hooks:
                warn_as_pytorch(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
                    "require gradients."
                )
            for hook in self.hooks:
                hook(self.module, (None,), self.grad_output)
        return self.grad_output

    def _on_input(self, grads):
        if self.grad_output is None:  # This gradient does not come from the output: it belongs to a second derivative.
            return grads
        for hook in self.hooks:
            grads = _changed_by(hook, grads, "grad_input", self.module, grads, self.grad_output)
        self.grad_output = None
        return grads
