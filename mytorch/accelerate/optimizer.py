"""Wrappers of optimizers and schedulers that wait until the gradients of a step are complete."""

from collections.abc import Callable
from typing import Any


class _Wrapper:
    """Forwards attributes to the wrapped object, which is the first name in `_own`; the names in `_own` stay here."""

    def __getattr__(self, name):
        if name == self._own[0]:  # before __init__, as when copied
            raise AttributeError(name)
        return getattr(getattr(self, self._own[0]), name)

    def __setattr__(self, name, value):
        if name in self._own:
            object.__setattr__(self, name, value)
        else:
            setattr(getattr(self, self._own[0]), name, value)


class AcceleratedOptimizer(_Wrapper):
    """An optimizer whose `step` and `zero_grad` do nothing while gradients accumulate.

    With gradient scaling, `step` is also skipped if gradients have overflowed (`step_was_skipped`).
    Other attributes come from the optimizer.
    """

    _own = ("optimizer", "accelerator", "_found_inf")

    def __init__(self, optimizer, accelerator):
        self.optimizer = optimizer
        self.accelerator = accelerator
        self._found_inf = False

    @property
    def step_was_skipped(self) -> bool:
        """True if the last `step` was skipped because gradients had overflowed. Synchronizes with the GPU."""
        return bool(self._found_inf)

    def step(self, closure: Callable | None = None) -> Any:
        """Steps if the gradients are complete.

        Args:
            closure: function that computes the loss again.
        """
        if not self.accelerator.sync_gradients:
            return None
        scaler = self.accelerator.scaler
        if scaler is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        self.accelerator.unscale_gradients(self)
        result = scaler.step(self.optimizer) if closure is None else scaler.step(self.optimizer, closure)
        self._found_inf = scaler.found_inf_on_device(self.optimizer)
        self.accelerator.optimizer_stepped(self)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients if a step is complete.

        Args:
            set_to_none: set the gradients to None instead of zero.
        """
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad(set_to_none)

    def __repr__(self):
        return f"AcceleratedOptimizer({self.optimizer!r})"


class AcceleratedScheduler(_Wrapper):
    """A scheduler that steps only after its optimizer has stepped. Other attributes come from the scheduler."""

    _own = ("scheduler", "accelerator")

    def __init__(self, scheduler, accelerator):
        self.scheduler = scheduler
        self.accelerator = accelerator

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Steps if the gradients are complete and the optimizer's step was not skipped.

        Args:
            *args: arguments of the scheduler's `step`.
            **kwargs: arguments of the scheduler's `step`.
        """
        if self.accelerator.sync_gradients and not self.accelerator.optimizer_step_was_skipped:
            self.scheduler.step(*args, **kwargs)
