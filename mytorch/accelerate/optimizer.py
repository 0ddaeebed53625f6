"""Optimizers and schedules that wait until the gradients of a whole step are there."""

from collections.abc import Callable
from typing import Any


class _Wrapper:
    """Gives and takes all attributes but its own, `_own`, to what it wraps, the first of them."""

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
    """An optimizer whose `step` and `zero_grad` do nothing while gradients are being accumulated.

    With gradient scaling, `step` is also left out when gradients have overflowed (`step_was_skipped`).
    All else is the optimizer's own.
    """

    _own = ("optimizer", "accelerator", "_found_inf")

    def __init__(self, optimizer, accelerator):
        self.optimizer = optimizer
        self.accelerator = accelerator
        self._found_inf = False

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last `step` was left out because gradients had overflowed. Waits for the GPU."""
        return bool(self._found_inf)

    def step(self, closure: Callable | None = None) -> Any:
        """Step, if the accumulation is complete."""
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
        """Drop the gradients, if the accumulation is complete."""
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad(set_to_none)

    def __repr__(self):
        return f"AcceleratedOptimizer({self.optimizer!r})"


class AcceleratedScheduler(_Wrapper):
    """A schedule that goes on only when its optimizer has stepped. All else is the schedule's own."""

    _own = ("scheduler", "accelerator")

    def __init__(self, scheduler, accelerator):
        self.scheduler = scheduler
        self.accelerator = accelerator

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Go on, if the accumulation is complete and the optimizer's step was not skipped."""
        if self.accelerator.sync_gradients and not self.accelerator.optimizer_step_was_skipped:
            self.scheduler.step(*args, **kwargs)
