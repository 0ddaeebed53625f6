"""Optimizers and schedules that wait until the gradients of a whole step are there."""

from collections.abc import Callable
from typing import Any


class AcceleratedOptimizer:
    """An optimizer whose `step` and `zero_grad` do nothing while gradients are being accumulated.

    With gradient scaling, `step` is also left out when gradients have overflowed (`step_was_skipped`).
    All else is the optimizer's own.
    """

    def __init__(self, optimizer, accelerator):
        self.optimizer = optimizer
        self.accelerator = accelerator
        self._verdict = False

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last `step` was left out because gradients had overflowed. Waits for the GPU."""
        return bool(self._verdict)

    def step(self, closure: Callable | None = None) -> Any:
        """Step, if the accumulation is complete."""
        if not self.accelerator.sync_gradients:
            return None
        scaler = self.accelerator.scaler
        if scaler is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        self.accelerator.unscale_gradients(self)
        result = scaler.step(self.optimizer) if closure is None else scaler.step(self.optimizer, closure)
        self._verdict = scaler.verdict(self.optimizer)
        self.accelerator.optimizer_stepped(self)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, if the accumulation is complete."""
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad(set_to_none)

    def __getattr__(self, name):
        if name == "optimizer":  # before __init__, as when copied
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __setattr__(self, name, value):
        if name in ("optimizer", "accelerator", "_verdict"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.optimizer, name, value)

    def __repr__(self):
        return f"AcceleratedOptimizer({self.optimizer!r})"


class AcceleratedScheduler:
    """A schedule that goes on only when its optimizer has stepped. All else is the schedule's own."""

    def __init__(self, scheduler, accelerator):
        self.scheduler = scheduler
        self.accelerator = accelerator

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Go on, if the accumulation is complete and the optimizer's step was not skipped."""
        if self.accelerator.sync_gradients and not self.accelerator.optimizer_step_was_skipped:
            self.scheduler.step(*args, **kwargs)

    def __getattr__(self, name):
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __setattr__(self, name, value):
        if name in ("scheduler", "accelerator"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.scheduler, name, value)
