"""Averages of weights during training: stochastic weight averaging (SWA) and exponential moving averages (EMA).

Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from ..arrays.dtypes import int64
from ..autograd.mode import no_grad
from ..nn.module import Module
from ..nn.normalization import _BatchNorm
from ..ops.creation import tensor
from .lr_scheduler import LRScheduler, for_each_group
from .optimizer import Optimizer


def _check_decay(decay):
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """Returns a function that updates an exponential moving average of a parameter.

        average = decay * average + (1 - decay) * current

    Args:
        decay: weight of the previous average, between 0 and 1 (default: 0.999).

    Returns:
        A function (average, current, count) -> new average, for `AveragedModel`.

    Raises:
        ValueError: `decay` is not between 0 and 1.
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable:
    """Returns a function that updates the mean of a parameter.

        average = average + (current - average) / (count + 1)

    Returns:
        A function (average, current, count) -> new average, for `AveragedModel`.
    """

    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _in_place(update):
    """Returns a function that updates lists of parameters in place, from a function of single parameters."""

    @no_grad()
    def update_all(averaged_params, current_params, num_averaged):
        for average, current in zip(averaged_params, current_params, strict=True):
            average.copy_(update(average, current, num_averaged))

    return update_all


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """Returns a function like `get_ema_avg_fn` that updates lists of parameters in place.

    Args:
        decay: weight of the previous average, between 0 and 1 (default: 0.999).

    Raises:
        ValueError: `decay` is not between 0 and 1.
    """
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable:
    """Returns a function like `get_swa_avg_fn` that updates lists of parameters in place."""
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """Stores a copy of a model, and averages the parameters during training.

    The copy is `module`. The first call of `update_parameters` copies the parameters; later calls average them.
    `n_averaged` counts the calls and is part of the state dict.

    Use it to evaluate the average of many steps, which is often better than the last: of weights after each epoch
    (SWA), or with `get_ema_multi_avg_fn` after each step.

    Args:
        model: model to average.
        device: device of the copy (default: None, the device of the model).
        avg_fn: function (average, current, count) -> new average (default: None, the mean).
        multi_avg_fn: function like `avg_fn` that updates lists of parameters in place (default: None).
        use_buffers: if True, buffers are averaged too; otherwise they are copied (default: False).

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> averaged = optim.swa_utils.AveragedModel(layer)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = nn.init.constant_(layer.weight, value)
        ...     averaged.update_parameters(layer)
        >>> averaged.module.weight.item()
        3.0
    """

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Callable | None = None, multi_avg_fn: Callable | None = None,
        use_buffers: bool = False,
    ):  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the averaged model.

        Args:
            args: positional arguments of the model.
            kwargs: keyword arguments of the model.
        """
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Adds the current parameters of the model to the average.

        Args:
            model: the model in training.
        """
        mine, theirs = self._averaged(self.module), self._averaged(model)
        pairs = [(a.detach(), p.detach().to(a.device)) for a, p in zip(mine, theirs, strict=False)]
        if self.n_averaged == 0:
            for average, current in pairs:
                average.copy_(current)
        elif pairs:
            update = self.multi_avg_fn or _in_place(self.avg_fn or get_swa_avg_fn())
            for group in _by_dtype(pairs):
                update([a for a, _ in group], [p for _, p in group], self.n_averaged.to(group[0][0].device))
        if not self.use_buffers:
            for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(theirs.detach().to(mine.device))
        self.n_averaged += 1

    def _averaged(self, model):
        return itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()


def _by_dtype(pairs):
    """Returns lists of the pairs of one dtype and device, as functions of lists may expect."""
    groups = {}
    for average, current in pairs:
        groups.setdefault((average.device, average.dtype), []).append((average, current))
    return groups.values()


@no_grad()
def update_bn(loader: Iterable, model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of a model's batch norms in one pass over the data.

    Args:
        loader: iterable of tensors, or of lists and tuples whose first item is the model's input.
        model: the model. It keeps its mode, training or evaluation.
        device: device of the inputs (default: None, inputs are not moved).

    Example:
        >>> model = nn.BatchNorm1d(1)
        >>> optim.swa_utils.update_bn([tensor([[1.0], [3.0]])], model)
        >>> model.running_mean.tolist()
        [2.0]
    """
    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # the average over all batches
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the learning rate to `swa_lr` over `anneal_epochs` steps and keeps it there.

    Args:
        optimizer: the optimizer. The scheduler sets its learning rates.
        swa_lr: final learning rate, or a list with one for each group.
        anneal_epochs: number of steps of the change (default: 10).
        anneal_strategy: "cos" (default) or "linear".
        last_epoch: number of finished steps; -1 starts a new schedule (default: -1).

    Raises:
        ValueError: an unknown strategy, a negative `anneal_epochs`, or a list of a wrong length.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(mytorch.ones(1))], lr=1.0)
        >>> schedule = optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> for epoch in range(3):
        ...     optimizer.step()
        ...     schedule.step()
        ...     print(schedule.get_last_lr()[0])
        0.75
        0.5
        0.5
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):  # fmt: skip
        count, values = len(optimizer.param_groups), for_each_group(optimizer, swa_lr)
        if len(values) != count:
            raise ValueError(
                f"swa_lr must have the same length as optimizer.param_groups. swa_lr has {len(values)} values, param_groups has {count}."
            )
        for group, value in zip(optimizer.param_groups, values, strict=True):
            group["swa_lr"] = value
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """Returns the weight of `swa_lr` after a fraction of the steps.

        Args:
            t: fraction of the steps, between 0 and 1.
        """
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def _share(self, step):
        return self.anneal_func(max(0, min(1, step / max(1, self.anneal_epochs))))

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        values = []
        for lr, group in zip(self._now(), self.optimizer.param_groups, strict=True):
            target = group["swa_lr"]
            start = target if before == 1 else (lr - before * target) / (1 - before)
            values.append(target * now + start * (1 - now))
        return values


__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip
