"""Learning rate schedules. PyTorch's, and the cosine with warm-up of this library's training scripts."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from ..base.errors import warn
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
    """The base: sets each group's lr from `get_lr()` once at the start and after every `step()`.

    Args:
        optimizer: whose groups are changed.
        last_epoch: the number of steps done before; -1 to begin.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(getattr(optimizer, "optimizer", optimizer), Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", number(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer"
                    )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = True
        self._get_lr_called_within_step = False
        self.step()
        self._is_initial = False

    def get_lr(self) -> list[float]:
        """The learning rate of each group at `last_epoch`, from the one before."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr.")

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group, as last set."""
        return self._last_lr

    def _now(self):
        return [number(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step, or to `epoch`."""
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
        """Everything but the optimizer, and a function that shapes the schedule."""
        return {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "scale_fn")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict."""
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler


def for_each_group(optimizer, value):
    """The values for an optimizer's groups, of which there may be one for all."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * len(optimizer.param_groups)


def _set_lr(group, lr):
    """Set a group's lr: in place, if it is a tensor."""
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(number(lr))
    else:
        group["lr"] = lr


class LambdaLR(LRScheduler):
    """initial lr times lr_lambda(step); one function, or one for each group.

    Args:
        optimizer: whose lr is set. lr_lambda: step -> factor. last_epoch: the step to continue after; -1 begins.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
        >>> [round(schedule.get_last_lr()[0], 3) for _ in range(4) if optimizer.step() is schedule.step()]
        [0.5, 0.333, 0.25, 0.2]
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
        """Everything but the optimizer; of the functions, only the attributes of those that are objects."""
        own = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        functions = [None if isinstance(f, FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**own, "lr_lambdas": functions}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", []), strict=False):
            if attributes is not None:
                f.__dict__.update(attributes)


class MultiplicativeLR(LambdaLR):
    """The lr times lr_lambda(step), at each step."""

    def get_lr(self):
        if self.last_epoch == 0:
            return self._now()
        return [lr * f(self.last_epoch) for lr, f in zip(self._now(), self.lr_lambdas, strict=True)]


class _FactorLR(LRScheduler):
    """A schedule by factors: `_change(t)` on the rate of step t - 1, `_share(t)` on the initial rate, for both ways to t."""

    def get_lr(self):
        change = self._change(self.last_epoch)
        return [lr * change for lr in self._now()]

    def _get_closed_form_lr(self):
        share = self._share(self.last_epoch)
        return [base * share for base in self.base_lrs]


class StepLR(_FactorLR):
    """The lr times gamma every step_size steps.

    Args:
        optimizer: whose lr is set. step_size: how many steps a rate holds. gamma: the factor. last_epoch: the step to
            continue after; -1 begins.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> [round(schedule.get_last_lr()[0], 3) for _ in range(4) if optimizer.step() is schedule.step()]
        [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return 1 if t == 0 or t % self.step_size else self.gamma

    def _share(self, t):
        return self.gamma ** (t // self.step_size)


class MultiStepLR(_FactorLR):
    """The lr times gamma at each milestone.

    Args:
        optimizer: whose lr is set. milestones: steps. gamma: the factor. last_epoch: the step to continue after; -1
            begins.
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return self.gamma ** self.milestones.get(t, 0)

    def _share(self, t):
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), t)


class ConstantLR(_FactorLR):
    """The lr times factor for the first total_iters steps.

    Args:
        optimizer: whose lr is set. factor: the factor. total_iters: how many steps it holds. last_epoch: the step to
            continue after; -1 begins.
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
    """The factor on the lr goes from start_factor to end_factor in total_iters steps.

    Args:
        optimizer: whose lr is set. start_factor, end_factor: the first and the last factor. total_iters: steps between
            them.
        last_epoch: the step to continue after; -1 begins.
    """

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
    """The lr times gamma at every step.

    Args:
        optimizer: whose lr is set. gamma: the factor. last_epoch: the step to continue after; -1 begins.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _change(self, t):
        return self.gamma if t else 1

    def _share(self, t):
        return self.gamma**t


class PolynomialLR(_FactorLR):
    """The lr falls to 0 in total_iters steps, as a power of what is left.

    Args:
        optimizer: whose lr is set. total_iters: steps until 0. power: 1 is a line. last_epoch: the step to continue
            after; -1 begins.
    """

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
    """The lr follows half a cosine from its initial value to eta_min in T_max steps, and back.

    Args:
        optimizer: whose lr is set. T_max: steps of half a period. eta_min: the least lr. last_epoch: the step to
            continue after; -1 begins.

    Source: Loshchilov and Hutter, 2017.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
        >>> [round(schedule.get_last_lr()[0], 3) for _ in range(4) if optimizer.step() is schedule.step()]
        [0.75, 0.25, 0.0, 0.25]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
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
    """Half cosines that start again: the first takes T_0 steps, each next T_mult times as many.

    Args:
        optimizer: whose lr is set. T_0: steps to the first restart. T_mult: factor on that from one to the next.
        eta_min: the least lr. last_epoch: the step to continue after; -1 begins.
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
        """Go on by one step, or to a (fractional) epoch."""
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
    """The learning rate of each group; `f"{rates:.2e}"` writes the first, as a program with one rate does."""

    def __format__(self, spec):
        return format(self[0], spec) if spec else str(self)


class CosineLRScheduler:
    """Linear warm-up from 0 to max_lr in warmup_steps, then half a cosine down to min_lr at total_steps.

    Args:
        optimizer: every group's lr is set.
        step_count: settable; `step()` raises it by one and sets the lr for it.
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
        """The learning rate of the given step."""
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
        """Go on by one step."""
        self.step_count += 1
        self._apply()

    def get_lr(self):
        """The current learning rate."""
        return self._last_lr[0]

    def get_last_lr(self) -> list[float]:
        """The current learning rate of each group."""
        return _Rates(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """The numbers that it works from."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict, and set the learning rate for it."""
        self.__dict__.update(state_dict)
        self._apply()


class OneCycleLR(LRScheduler):
    """From a low rate up to max_lr and down to a much lower one, over total_steps. Source: Smith and Topin, 2018.

    Args:
        optimizer: whose rates change.
        max_lr: the highest rate, or one for each group.
        total_steps: steps of the cycle, unless epochs and steps_per_epoch say so.
        epochs: epochs of the cycle.
        steps_per_epoch: steps of each.
        pct_start: share of the steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the momentum the other way.
        base_momentum: lowest momentum.
        max_momentum: highest momentum.
        div_factor: max_lr / first rate.
        final_div_factor: first rate / last rate.
        three_phase: fall as symmetrically as it rose, then to the last rate.
        last_epoch: steps made before; -1 at the beginning.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.4, cycle_momentum=False)
        >>> [round(schedule.get_last_lr()[0], 3) for _ in range(4) if optimizer.step() is schedule.step()]
        [1.0, 0.75, 0.25, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
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
            self._phases = [up, down, (total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        else:
            self._phases = [up, (total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, for_each_group(optimizer, max_lr), strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
                    self._set_momentum(group, max_momentum)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _set_momentum(group, value):
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        elif "momentum" in group:
            group["momentum"] = value
        else:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")

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
            for i, (end, low, high, m_low, m_high) in enumerate(self._phases):
                if step <= end or i == len(self._phases) - 1:
                    share = (step - begin) / (end - begin)
                    rates.append(self._anneal(group[low], group[high], share))
                    if self.cycle_momentum:
                        self._set_momentum(group, self._anneal(group[m_low], group[m_high], share))
                    break
                begin = end
        return rates


class CyclicLR(LRScheduler):
    """Between base_lr and max_lr and back, again and again. Source: Smith, 2017.

    Args:
        optimizer: whose rates change.
        base_lr: lowest rate, or one for each group.
        max_lr: highest rate.
        step_size_up: steps up.
        step_size_down: steps down; as many by default.
        mode: "triangular", "triangular2" (halved each cycle) or "exp_range" (by gamma each step).
        gamma: of "exp_range".
        scale_fn: a height of one's own, instead of mode.
        scale_mode: scale_fn's argument: "cycle" or "iterations".
        cycle_momentum: move the momentum the other way.
        base_momentum: lowest momentum.
        max_momentum: highest momentum.
        last_epoch: steps made before; -1 at the beginning.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float], step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0, scale_fn: Callable | None = None,
        scale_mode: str = "cycle", cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9,
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
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        if cycle_momentum:
            for group in optimizer.param_groups:
                OneCycleLR._set_momentum(group, max_momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def _factor(self, x):
        if self.scale_fn is not None:
            return self.scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / (2.0 ** (x - 1)), "exp_range": self.gamma**x}[self.mode]

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        factor = self._factor(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                OneCycleLR._set_momentum(
                    group, self.max_momentum - (self.max_momentum - self.base_momentum) * height * factor
                )
        return [base + (top - base) * height * factor for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the lr by factor when a metric has not improved for more than `patience` steps.

    Args:
        mode: "min" or "max": which way the metric improves.
        threshold, threshold_mode: by how much it must, relative ("rel") or absolute ("abs").
        cooldown: steps after a reduction in which none are counted. min_lr: one, or one for each group.
        eps: smaller changes of the lr are left out.

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
        self.last_epoch = 0
        self._last_lr = self._now()
        self._reset()

    def _reset(self):
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0

    def is_better(self, a, best):
        """Whether a improves on the best so far by more than the threshold."""
        if self.threshold_mode == "rel":
            return a < best * (1 - self.threshold) if self.mode == "min" else a > best * (1 + self.threshold)
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    @property
    def in_cooldown(self):
        """Whether it waits after a reduction."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell it the metric of this step."""
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
            for lr, low in zip(self._now(), self.min_lrs, strict=True):
                new = max(lr * self.factor, low)
                rates.append(new if lr - new > self.eps else lr)
            self._set(rates)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._now()


class ChainedScheduler(LRScheduler):
    """Several schedules, each step of all."""

    def __init__(self, schedulers: Iterable[LRScheduler], optimizer: Optimizer | None = None):
        schedulers = list(schedulers)
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        if any(s.optimizer is not schedulers[0].optimizer for s in schedulers):
            raise ValueError("ChainedScheduler expects all schedulers to belong to the same optimizer")
        self._schedulers = schedulers
        self.optimizer = schedulers[0].optimizer
        self._last_lr = self._now()

    def step(self, epoch: int | None = None) -> None:
        """One step of every schedule."""
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
    """One schedule after another, changing at the milestones.

    Args:
        optimizer: whose lr is set. schedulers: in their order. milestones: the steps at which the next one begins.
            last_epoch: the step to continue after; -1 begins.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler to be chained, but got no scheduler.")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            _set_lr(group, group["initial_lr"])
        for s in self._schedulers:
            s.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._now()

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step."""
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
