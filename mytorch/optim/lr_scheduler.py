"""Learning rate schedulers: the schedulers of PyTorch, and a cosine schedule with warm-up."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from ..arrays.arguments import describe
from ..arrays.errors import warn
from .optimizer import Optimizer
from .options import number

_Factor = Callable[[int], float]


EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed form is used "
    "instead of the new chainable form, where available. Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)


class LRScheduler:
    """Base class of schedulers. Sets the learning rate of each group to `get_lr()`, at the start and after each `step()`.

    Raises:
        TypeError: `optimizer` is not an Optimizer.
        KeyError: `last_epoch` is not -1 and a group has no "initial_lr".
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(getattr(optimizer, "optimizer", optimizer), Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", _copied(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer"
                    )
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._get_lr_called_within_step = False
        self._initial_step()

    _is_initial = False

    def _initial_step(self):
        """Sets the learning rates of step `last_epoch + 1`, when the scheduler is created."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group at `last_epoch`.

        Schedulers define this method. To read the current rates, use `get_last_lr`."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr.")

    def get_last_lr(self) -> list[float]:
        """Returns the current learning rate of each group."""
        return self._last_lr

    def _now(self):
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Advances the schedule by one step. Call it after `optimizer.step()`.

        Args:
            epoch: deprecated; goes to this step instead (default: None).

        Example:
            >>> optimizer = optim.SGD([mytorch.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> optimizer.step()
            >>> scheduler.step()
            >>> scheduler.get_last_lr()
            [0.5]
        """
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", True):
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call "
                "them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`. Failure to do this will result in "
                "PyTorch skipping the first value of the learning rate schedule. See more details at "
                "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
            )
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self._get_lr_called_within_step = True  # subclasses ask it in get_lr, to warn users who call that
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values):
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            _set_lr(group, lr)
        self._last_lr = self._now()

    def state_dict(self) -> dict[str, Any]:
        """Returns the attributes of the scheduler, except the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of `state_dict`.

        Args:
            state_dict: the saved attributes.
        """
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler


def for_each_group(optimizer, value):
    """Returns a list of values for the groups of an optimizer.

    Args:
        value: one value for all groups, or a list of values.
    """
    values = value if isinstance(value, (list, tuple)) else [value] * len(optimizer.param_groups)
    return [_copied(v) for v in values]


def _copied(value):
    """Returns a number unchanged, and a copy of a tensor, which an optimizer or a scheduler may change in place."""
    return value.detach().clone() if hasattr(value, "clone") else value


def _set_lr(group, lr):
    """Sets the learning rate of a group, in place if it is a tensor."""
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(number(lr))
    else:
        group["lr"] = lr


class LambdaLR(LRScheduler):
    """Multiplies the initial learning rate by a function of the step.

        lr = initial_lr * lr_lambda(step)

    Use it when no other schedule has the curve that you want: the function may compute any factor from the step.

    Args:
        lr_lambda: function from the step to a factor, or a list of functions, one for each group.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
        >>> for epoch in range(4):
        ...     print(f"{schedule.get_last_lr()[0]:.3f}")
        ...     optimizer.step()
        ...     schedule.step()
        1.000
        0.500
        0.333
        0.250
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: _Factor | list[_Factor], last_epoch: int = -1):
        self.lr_lambdas = for_each_group(optimizer, lr_lambda)
        count = len(optimizer.param_groups)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Returns the attributes except the optimizer. Of callable objects it returns the attributes; functions are omitted."""
        own = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        functions = [None if isinstance(f, FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**own, "lr_lambdas": functions}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of `state_dict`.

        Args:
            state_dict: the saved attributes.
        """
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", []), strict=False):
            if attributes is not None:
                f.__dict__.update(attributes)


class MultiplicativeLR(LambdaLR):
    """Multiplies the current learning rate by a function of the step, at each step.

        lr = lr * lr_lambda(step)

    Use it when you know the factor from one step to the next. If you know the rate of a step, `LambdaLR` is simpler.

    Args:
        optimizer: the optimizer. The scheduler sets its learning rates.
        lr_lambda: function from the step to a factor, or a list of functions, one for each group.
        last_epoch: number of finished steps; -1 starts a new schedule (default: -1).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.5)
        >>> for epoch in range(3):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        1.0
        0.5
        0.25
    """

    def get_lr(self):
        if self._is_initial:
            return self._now()
        return [lr * f(self.last_epoch) for lr, f in zip(self._now(), self.lr_lambdas, strict=True)]


class _FactorLR(LRScheduler):
    """A schedule of factors: `_change(t)` is the factor of the rate of step t - 1, and `_share(t)` of the initial rate."""

    # True: a scheduler that is created with `last_epoch` leaves the learning rate unchanged. As in PyTorch, the others
    # apply the change of the step `last_epoch + 1`.
    _continues = False

    def get_lr(self):
        change = 1 if self._continues and self._is_initial and self.last_epoch else self._change(self.last_epoch)
        return [lr * change for lr in self._now()]

    def _get_closed_form_lr(self):
        share = self._share(self.last_epoch)
        return [base * share for base in self.base_lrs]


class StepLR(_FactorLR):
    """Multiplies the learning rate by `gamma` every `step_size` steps.

        lr = initial_lr * gamma^floor(step / step_size)

    Use it when a recipe divides the rate at equal distances, such as every 30 epochs; `MultiStepLR` is for unequal
    ones.

    Args:
        step_size: number of steps between two changes.
        gamma: factor of the learning rate (default: 0.1).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> for epoch in range(4):
        ...     print(f"{schedule.get_last_lr()[0]:.3f}")
        ...     optimizer.step()
        ...     schedule.step()
        1.000
        1.000
        0.500
        0.500
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return 1 if t == 0 or t % self.step_size else self.gamma

    def _share(self, t):
        return self.gamma ** (t // self.step_size)


class MultiStepLR(_FactorLR):
    """Multiplies the learning rate by `gamma` at each milestone.

        lr = initial_lr * gamma^(number of milestones reached)

    Use it when a recipe names the epochs at which the rate falls; with equal distances, `StepLR` is shorter.

    Args:
        milestones: steps at which the learning rate changes.
        gamma: factor of the learning rate (default: 0.1).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.5)
        >>> for epoch in range(4):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        1.0
        1.0
        0.5
        0.25
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return self.gamma ** self.milestones.get(t, 0)

    def _share(self, t):
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), t)


class ConstantLR(_FactorLR):
    """Multiplies the learning rate by `factor` for the first `total_iters` steps.

        lr = initial_lr * factor    if step < total_iters
        lr = initial_lr             otherwise

    Use it for a few first steps at a lower rate. `LinearLR` rises gradually instead, which is the usual warm-up.

    Args:
        factor: factor of the learning rate, between 0 and 1 (default: 1/3).
        total_iters: number of steps with the factor (default: 5).

    Raises:
        ValueError: `factor` is not between 0 and 1.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> for epoch in range(3):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        0.5
        0.5
        1.0
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return self.factor if t == 0 else 1.0 / self.factor if t == self.total_iters else 1

    def _share(self, t):
        return self.factor if t < self.total_iters else 1


class LinearLR(_FactorLR):
    """Changes the factor of the learning rate linearly over `total_iters` steps.

        lr = initial_lr * (start_factor + (end_factor - start_factor) * min(step / total_iters, 1))

    Use it as the warm-up of another schedule in a `SequentialLR`, since large first steps can ruin a model with random
    weights.

    Args:
        start_factor: first factor, greater than 0 and at most 1 (default: 1/3).
        end_factor: last factor, between 0 and 1 (default: 1.0).
        total_iters: number of steps between both factors (default: 5).

    Raises:
        ValueError: a factor is out of its range.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> for epoch in range(3):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        0.5
        0.75
        1.0
    """

    _continues = True

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 < start_factor <= 1.0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        if t == 0 or t > self.total_iters:
            return 1 if t else self.start_factor
        slope = self.end_factor - self.start_factor
        return 1.0 + slope / (self.total_iters * self.start_factor + (t - 1) * slope)

    def _share(self, t):
        return self.start_factor + (self.end_factor - self.start_factor) * (min(self.total_iters, t) / self.total_iters)


class ExponentialLR(_FactorLR):
    """Multiplies the learning rate by `gamma` at every step.

        lr = initial_lr * gamma^step

    Use it when you don't know in advance how long you train: it has no last step, unlike `CosineAnnealingLR`.

    Args:
        gamma: factor of the learning rate.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> for epoch in range(3):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        1.0
        0.5
        0.25
    """

    _continues = True

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return self.gamma if t else 1

    def _share(self, t):
        return self.gamma**t


class PolynomialLR(_FactorLR):
    """Decreases the learning rate to 0 over `total_iters` steps, by a power of the remaining fraction.

        lr = initial_lr * (1 - min(step / total_iters, 1))^power

    Use it when the length of the training is fixed and the rate should reach 0 at its end; `power=1` is a straight
    line.

    Args:
        total_iters: number of steps until 0 (default: 5).
        power: exponent; 1 is a linear decrease (default: 1.0).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> for epoch in range(5):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        1.0
        0.75
        0.5
        0.25
        0.0
    """

    _continues = True

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        if t == 0 or t > self.total_iters:
            return 1
        return ((1.0 - t / self.total_iters) / (1.0 - (t - 1) / self.total_iters)) ** self.power

    def _share(self, t):
        return (1.0 - min(self.total_iters, t) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Decreases the learning rate to `eta_min` along half a cosine over `T_max` steps, then increases it again.

        lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2

    Use it when the length of the training is fixed, with this length as `T_max`. It is the usual choice for images and
    language, because it stays at high rates for long and ends gently.

    Args:
        T_max: number of steps of half a period.
        eta_min: smallest learning rate (default: 0.0).

    Source: Loshchilov and Hutter, 2017.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
        >>> for epoch in range(4):
        ...     print(f"{schedule.get_last_lr()[0]:.3f}")
        ...     optimizer.step()
        ...     schedule.step()
        1.000
        0.750
        0.250
        0.000

    See also: `optim.lr_scheduler.CosineLRScheduler`, which adds a warm-up.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial:
            return self._now()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - self.eta_min) * rise for base, lr in zip(self.base_lrs, self._now(), strict=True)]
        here = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [here / before * (lr - self.eta_min) + self.eta_min for lr in self._now()]

    def _get_closed_form_lr(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Decreases the learning rate along half a cosine and restarts.

        lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * T_cur / T_i)) / 2

    T_cur is the number of steps since the last restart, and T_i the number of steps between two restarts.

    Use it when you want a usable model at several points of a long training: the end of each period is one.

    Args:
        T_0: number of steps until the first restart.
        T_mult: growth factor of T_i after each restart (default: 1).
        eta_min: smallest learning rate (default: 0.0).

    Raises:
        ValueError: `T_0` or `T_mult` is not a positive integer.

    Source: Loshchilov and Hutter, 2017.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> for epoch in range(4):
        ...     print(f"{schedule.get_last_lr()[0]:.3f}")
        ...     optimizer.step()
        ...     schedule.step()
        1.000
        0.500
        1.000
        0.500
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        """Advances the schedule by one step, or goes to a step.

        Args:
            epoch: step to go to; may be a fraction, such as epoch + batch / batches (default: None, the next step).

        Raises:
            ValueError: `epoch` is negative.
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch >= self.T_0:
            if self.T_mult == 1:
                self.T_cur = epoch % self.T_0
            else:
                n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
                self.T_i = self.T_0 * self.T_mult**n
        else:
            self.T_i = self.T_0
            self.T_cur = epoch
        self.last_epoch = math.floor(epoch)
        self._step_count += 1
        self._set(self.get_lr())


class _Rates(list):
    """The learning rate of each group. `f"{rates:.2e}"` formats the first, for programs with one learning rate."""

    def __format__(self, spec):
        return format(self[0], spec) if spec else str(self)


class CosineLRScheduler:
    """Increases the learning rate linearly to `max_lr`, then decreases it to `min_lr` along half a cosine.

        lr = max_lr * (step + 1) / (warmup_steps + 1)                         if step < warmup_steps
        lr = min_lr + (max_lr - min_lr) * (1 + cos(pi * fraction)) / 2        otherwise
        fraction = (step - warmup_steps) / (total_steps - warmup_steps)

    Use it for transformers, which need a warm-up and then a cosine: it is both in one object. Otherwise you join
    `LinearLR` and `CosineAnnealingLR` in a `SequentialLR`.

    Args:
        max_lr: largest learning rate.
        min_lr: learning rate from step `total_steps` on (default: 0.0).
        total_steps: number of steps of the schedule (default: 1000).
        warmup_steps: number of steps of the linear increase (default: 0).

    Attributes:
        step_count: number of finished steps.

    Raises:
        ValueError: `warmup_steps` is greater than `total_steps`.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.CosineLRScheduler(optimizer, max_lr=1.0, total_steps=4, warmup_steps=1)
        >>> [round(schedule.lr_at(step), 3) for step in range(5)]
        [0.5, 1.0, 0.75, 0.25, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float, min_lr: float = 0.0, total_steps: int = 1000, warmup_steps: int = 0
    ):
        if warmup_steps > total_steps:
            raise ValueError(f"CosineLRScheduler: warmup_steps ({warmup_steps}) exceeds total_steps ({total_steps}).")
        self.optimizer, self.max_lr, self.min_lr = optimizer, max_lr, min_lr
        self.total_steps, self.warmup_steps, self.step_count = total_steps, warmup_steps, 0
        self._apply()

    def lr_at(self, step):
        """Returns the learning rate of a step.

        Args:
            step: number of finished steps.
        """
        if step < self.warmup_steps:
            return self.max_lr * (step + 1) / (self.warmup_steps + 1)
        if step >= self.total_steps:
            return self.min_lr
        share = (step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1)
        return self.min_lr + (self.max_lr - self.min_lr) * 0.5 * (1.0 + math.cos(math.pi * share))

    def _apply(self):
        lr = self.lr_at(self.step_count)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self._last_lr = [lr] * len(self.optimizer.param_groups)

    def step(self):
        """Advances the schedule by one step."""
        self.step_count += 1
        self._apply()

    def get_lr(self):
        """Returns the current learning rate."""
        return self._last_lr[0]

    def get_last_lr(self) -> list[float]:
        """Returns the current learning rate of each group."""
        return _Rates(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Returns the attributes of the scheduler, except the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of `state_dict` and sets the learning rate.

        Args:
            state_dict: the saved attributes.
        """
        self.__dict__.update(state_dict)
        self._apply()


def _uses_beta1(optimizer):
    """Returns True if the first beta of an optimizer is its momentum, False if it has an option `momentum`."""
    if "betas" not in optimizer.defaults and "momentum" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group, value):
    """Sets the first beta, or the momentum, of a parameter group."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class OneCycleLR(LRScheduler):
    """Increases the learning rate to `max_lr`, then decreases it far below its first value, over `total_steps` steps.

        first lr = max_lr / div_factor
        last lr = first lr / final_div_factor

    Use it when you train for few epochs: it reaches a high rate in the middle. Call `step` after each batch, not each
    epoch.

    Args:
        max_lr: largest learning rate, or a list with one for each group.
        total_steps: number of steps of the cycle (default: epochs * steps_per_epoch).
        epochs: number of epochs, if `total_steps` is not given.
        steps_per_epoch: number of steps per epoch, if `total_steps` is not given.
        pct_start: fraction of the steps with an increasing learning rate (default: 0.3).
        anneal_strategy: "cos" (default) or "linear".
        cycle_momentum: if True, momentum (or beta1) decreases while the learning rate increases, and vice versa (default: True).
        base_momentum: smallest momentum, or a list with one for each group (default: 0.85).
        max_momentum: largest momentum, or a list with one for each group (default: 0.95).
        div_factor: largest divided by first learning rate (default: 25.0).
        final_div_factor: first divided by last learning rate (default: 1e4).
        three_phase: if True, decreases to the first learning rate as fast as it increased, then to the last (default: False).

    Raises:
        ValueError: neither `total_steps` nor both `epochs` and `steps_per_epoch` are given, or an option is out of its range.

    Source: Smith and Topin, 2018.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.4, cycle_momentum=False)
        >>> for epoch in range(4):
        ...     print(f"{schedule.get_last_lr()[0]:.3f}")
        ...     optimizer.step()
        ...     schedule.step()
        0.040
        1.000
        0.750
        0.250
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = total_steps
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        turn = float(pct_start * total_steps) - 1
        up = (turn, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            down = (2 * turn, "max_lr", "initial_lr", "base_momentum", "max_momentum")
            phases = [up, down, (total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        else:
            phases = [up, (total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        names = "end_step", "start_lr", "end_lr", "start_momentum", "end_momentum"
        # As in PyTorch's state dicts.
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        if last_epoch == -1:
            tops, highs, lows = (for_each_group(optimizer, value) for value in (max_lr, max_momentum, base_momentum))
            for group, top in zip(optimizer.param_groups, tops, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            if last_epoch == -1:
                for group, high, low in zip(optimizer.param_groups, highs, lows, strict=True):
                    _set_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start, end, share):
        kind = self.__dict__.get("_anneal_func_type")
        if kind is None:  # a state dict of PyTorch before 2.1 has the function itself
            return self.anneal_func(start, end, share)
        return (self._annealing_linear if kind == "linear" else self._annealing_cos)(start, end, share)

    @staticmethod
    def _annealing_cos(start, end, pct):
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * pct))

    @staticmethod
    def _annealing_linear(start, end, pct):
        return (end - start) * pct + start

    def get_lr(self):
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        rates = []
        for group in self.optimizer.param_groups:
            begin = 0.0
            for i, phase in enumerate(self._schedule_phases):
                end, low, high, m_low, m_high = phase.values()
                if step <= end or i == len(self._schedule_phases) - 1:
                    share = (step - begin) / (end - begin)
                    rates.append(self._anneal(group[low], group[high], share))
                    if self.cycle_momentum:
                        _set_momentum(group, self._anneal(group[m_low], group[m_high], share))
                    break
                begin = end
        return rates


class CyclicLR(LRScheduler):
    """Moves the learning rate between `base_lr` and `max_lr` in triangles.

        lr = base_lr + (max_lr - base_lr) * height * scale

    The height increases from 0 to 1 in `step_size_up` steps and decreases to 0 in `step_size_down` steps.

    Use it to look for a good learning rate, or when the training has no fixed length. Call `step` after each batch.

    Args:
        base_lr: smallest learning rate, or a list with one for each group.
        max_lr: largest learning rate, or a list with one for each group.
        step_size_up: number of steps of the increase (default: 2000).
        step_size_down: number of steps of the decrease (default: `step_size_up`).
        mode: scale of the triangles: "triangular" (default) is 1, "triangular2" halves it after each cycle, "exp_range" is
            gamma^step.
        gamma: base of mode "exp_range" (default: 1.0).
        scale_fn: custom scale function, which replaces `mode` (default: None).
        scale_mode: argument of `scale_fn`: "cycle" (default), the number of the cycle, or "iterations", the step.
        cycle_momentum: if True, momentum (or beta1) decreases while the learning rate increases, and vice versa (default: True).
        base_momentum: smallest momentum, or a list with one for each group (default: 0.8).
        max_momentum: largest momentum, or a list with one for each group (default: 0.9).

    Raises:
        ValueError: `mode` is unknown, or the optimizer has no momentum and `cycle_momentum` is True.

    Source: Smith, 2017.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2, cycle_momentum=False)
        >>> for epoch in range(4):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        0.0
        0.5
        1.0
        0.5
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float], step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0, scale_fn: Callable | None = None,
        scale_mode: str = "cycle", cycle_momentum: bool = True, base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ):  # fmt: skip
        bases, self.max_lrs = for_each_group(optimizer, base_lr), for_each_group(optimizer, max_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, bases, strict=True):
                _set_lr(group, lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            self.base_momentums = for_each_group(optimizer, base_momentum)
            self.max_momentums = for_each_group(optimizer, max_momentum)
            for group, low, high in zip(optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True):
                if last_epoch == -1:
                    _set_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def _factor(self, x):
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 1 / (2.0 ** (x - 1)), "exp_range": self.gamma**x}[self.mode]

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        factor = self._factor(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height * factor)
        return [base + (top - base) * height * factor for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Returns the attributes of the scheduler, except the optimizer and a `scale_fn` that is a function.

        Of a `scale_fn` that is another callable object, it has the attributes.
        """
        custom = self._scale_fn_custom
        plain = custom is None or isinstance(custom, FunctionType)
        return {**super().state_dict(), "_scale_fn_custom": None if plain else dict(custom.__dict__)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        custom = state_dict.pop("_scale_fn_custom", None)
        super().load_state_dict(state_dict)
        if custom is not None:
            self._scale_fn_custom.__dict__.update(custom)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the learning rate by `factor` when a metric stops improving.

    Use it when you don't know when the rate should fall: it watches a metric, such as the validation loss, which you
    pass to `step`.

    Args:
        mode: "min" (default) if smaller metrics are better, "max" if larger metrics are better.
        factor: factor of the learning rate, less than 1 (default: 0.1).
        patience: number of steps without improvement before the learning rate changes (default: 10).
        threshold: smallest change of the metric that counts as an improvement (default: 1e-4).
        threshold_mode: "rel" (default) for a threshold relative to the best metric, "abs" for an absolute one.
        cooldown: number of steps after a change that do not count as steps without improvement (default: 0).
        min_lr: smallest learning rate, or a list with one for each group (default: 0).
        eps: smallest change of the learning rate; smaller changes are skipped (default: 1e-8).

    Raises:
        ValueError: `factor` is 1 or more, or a mode is unknown.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> for loss in (3.0, 3.0, 3.0):
        ...     schedule.step(loss)
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | list[float] = 0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = for_each_group(optimizer, min_lr)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.last_epoch = 0
        self._last_lr = self._now()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self):
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    def is_better(self, a, best):
        """Returns True if a metric improves on the best metric by more than the threshold.

        Args:
            a: the metric.
            best: the best metric so far.
        """
        if self.threshold_mode == "rel":
            return a < best * (1 - self.threshold) if self.mode == "min" else a > best * (1 + self.threshold)
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    @property
    def in_cooldown(self):
        """True during the cooldown after a change."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Records the metric of a step and changes the learning rate if necessary.

        Args:
            metrics: the metric, a number or a tensor with one element.
            epoch: number of the step (default: None, the next step).
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            rates = []
            for lr, low in zip(self._now(), self._all_min_lrs(), strict=True):
                new = max(lr * self.factor, low)
                rates.append(new if lr - new > self.eps else lr)
            self._set(rates)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._now()

    def _all_min_lrs(self):
        """Returns the smallest learning rate of each group, also of the groups that were added since.

        Raises:
            RuntimeError: `min_lr` was a list, and a group was added.
        """
        count = len(self.optimizer.param_groups)
        if len(self.min_lrs) != count:
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({count}) differs from when `ReduceLROnPlateau` was "
                    f"initialized ({len(self.min_lrs)}), usually due to a new param group being added to the optimizer. "
                    "Please modify the `min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * count
        return self.min_lrs


class ChainedScheduler(LRScheduler):
    """Runs several schedulers at each step. Their factors multiply.

    Use it when two schedules apply at the same time. `SequentialLR` runs one after the other.

    Args:
        schedulers: schedulers of one optimizer.
        optimizer: ignored; for compatibility (default: None).

    Raises:
        ValueError: there is no scheduler, or they belong to different optimizers.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> first = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> second = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> schedule = optim.lr_scheduler.ChainedScheduler([first, second])
        >>> for epoch in range(3):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        1.0
        0.5
        0.125
    """

    def __init__(self, schedulers: Iterable[LRScheduler], optimizer: Optimizer | None = None):
        schedulers = list(schedulers)
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        if any(s.optimizer is not schedulers[0].optimizer for s in schedulers):
            raise ValueError("ChainedScheduler expects all schedulers to belong to the same optimizer")
        self._schedulers = schedulers
        self.optimizer = schedulers[0].optimizer
        self._last_lr = self._now()

    def step(self) -> None:  # type: ignore[override]
        """Advances every scheduler by one step."""
        for s in self._schedulers:
            s.step()
        self._last_lr = self._now()

    def state_dict(self) -> dict[str, Any]:
        return {"_schedulers": [s.state_dict() for s in self._schedulers], "_last_lr": self._last_lr}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._last_lr = state_dict["_last_lr"]
        for s, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            s.load_state_dict(state)


class SequentialLR(LRScheduler):
    """Runs schedulers one after another, and changes to the next at each milestone.

    Use it when a schedule has phases, such as a warm-up before a decay. `ChainedScheduler` runs several at the same
    time.

    Args:
        schedulers: schedulers, in their order.
        milestones: steps at which the next scheduler starts; one fewer than schedulers.

    Raises:
        ValueError: there is no scheduler, or the number of milestones does not fit.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> warmup = optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
        >>> for epoch in range(4):
        ...     print(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        0.5
        0.5
        1.0
        0.5
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler to be chained, but got no scheduler.")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, "
                f"but got {len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            _set_lr(group, group["initial_lr"])
        self._undo(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self, scheduler):
        """Takes back the first step of the schedulers in a scheduler."""
        for s in scheduler._schedulers:
            if hasattr(s, "_schedulers"):
                self._undo(s)
            elif hasattr(s, "last_epoch"):
                s.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Advances the active scheduler by one step."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            self._schedulers[i]._update_lr(0)
        else:
            self._schedulers[i].step()
        self._last_lr = self._now()

    def state_dict(self) -> dict[str, Any]:
        own = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**own, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for s, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            s.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


describe(
    globals(),
    optimizer="the optimizer. The scheduler sets its learning rates.",
    last_epoch="number of finished steps; -1 starts a new schedule (default: -1).",
)
