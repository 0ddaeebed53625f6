"""What an optimizer's constructor takes, declared once: the options' names, defaults, types and checks."""

from collections.abc import Iterable
from inspect import Parameter
from typing import Any

from .._tensor import Tensor, is_tensor
from ..base.arguments import constructor
from ..dispatch.bind import also_named
from ..engine.mode import is_grad_enabled

Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Number = float | Tensor  # an option that may be a 0-d tensor

# Types of the options whose default does not tell them; those of the others are bool or float.
_TYPES = {
    "lr": Number, "betas": tuple[Number, Number], "foreach": bool | None, "fused": bool | None, "beta1": float | None,
    "beta2": float | None, "ns_steps": int, "max_iter": int, "max_eval": int | None, "history_size": int,
    "line_search_fn": str | None, "adjust_lr_fn": str | None,
}  # fmt: skip


def _type_of(name, default):
    if isinstance(default, tuple):
        return _TYPES.get(name) or (tuple[float | None, ...] if None in default else tuple[float, ...])
    return _TYPES.get(name) or (bool if isinstance(default, bool) else float)


class Options:
    """The options of an update rule, in the order of its constructor's arguments after `params`.

    `Options(lr=1e-3).keyword_only(maximize=False)` makes `__init__(self, params, lr=1e-3, *, maximize=False)`.
    """

    def __init__(self, **defaults: Any):
        self.positional, self.keywords, self.first = defaults, {}, []

    def keyword_only(self, **defaults: Any) -> "Options":
        """Declare the options that can be given by name only."""
        self.keywords = defaults
        return self

    def saved_as(self, first: str) -> "Options":
        """Name what comes first in a state dict, where PyTorch's order there is not the constructor's."""
        self.first = first.split()
        return self

    def ordered(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values in a state dict's order."""
        return {name: values[name] for name in dict.fromkeys([*self.first, *values])}

    def constructor(self, cls: type):
        """Returns the `__init__` of an update rule."""
        parameters = [Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=Params)]
        for names, how in ((self.positional, Parameter.POSITIONAL_OR_KEYWORD), (self.keywords, Parameter.KEYWORD_ONLY)):
            parameters += [Parameter(n, how, default=d, annotation=_type_of(n, d)) for n, d in names.items()]
        init = constructor(cls, parameters, lambda optimizer, values: optimizer._begin(values.pop("params"), values))
        return also_named(init, {"parameters": "params"})


def number(x):
    """A Python number from an option that may be a 0-d tensor (`lr=torch.tensor(0.1)`); in a differentiable step, the only one that
    records, a tensor that requires grad stays one."""
    if not hasattr(x, "item"):
        return x
    return x if x.requires_grad and is_grad_enabled() else x.item()


def check_range(option, value, words=None, high=None):
    """Refuse an option outside [0, high), in PyTorch's words."""
    if is_tensor(value) and value.numel() != 1:
        raise ValueError(f"Tensor {option} must be 1-element")
    v = number(value)
    if not v >= 0.0 or (high is not None and not v < high):
        raise ValueError(f"Invalid {words or f'{option} value'}: {value}")


def check_ranges(options):
    """Refuse values outside the ranges that PyTorch's optimizers share."""
    for name, words in (("lr", "learning rate"), ("eps", "epsilon value")):
        if name in options:
            check_range(name, options[name], words)
    for name in ("momentum", "weight_decay", "lr_decay", "initial_accumulator_value", "momentum_decay"):
        check_range(name, options.get(name, 0))
    for i, beta in enumerate(options.get("betas", ())):
        check_range(f"betas[{i}]", beta, f"beta parameter at index {i}", high=1.0)


def check_flags(options):
    """Refuse switches that exclude each other. `foreach` chooses nothing here: every way gives equal results.

    Raises:
        RuntimeError: fused together with foreach or differentiable.
        ValueError: a tensor as lr or beta together with foreach=True, unless capturable.
    """
    foreach, fused = options.get("foreach"), options.get("fused")
    if foreach and not options.get("capturable"):
        betas = {f"betas[{i}]": b for i, b in enumerate(options.get("betas", ()))}
        for name, value in {"lr": options["lr"], **betas}.items():
            if is_tensor(value):
                raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
    if options.get("differentiable") and fused:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def refuse_unless(*conditions):
    """Raise ValueError with the text of the first (condition, text) that does not hold."""
    for holds, text in conditions:
        if not holds:
            raise ValueError(text)
