"""Options of optimizers, declared once: names, defaults, types and checks of the constructor's arguments."""

from collections.abc import Iterable
from inspect import Parameter
from typing import Any

from ..arrays.arguments import completed, constructor
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import is_grad_enabled
from ..ops.dispatch.bind import also_named

SHARED = {  # options of several rules, for docstrings
    "params": 'parameters to optimize: tensors, (name, tensor) pairs, or dicts (parameter groups) with a list "params".',
    "weight_decay": "factor of the parameters that is added to the gradients (default: 0).",
    "foreach": "accepted for compatibility; it does not change the result (default: None).",
    "maximize": "if True, maximizes the objective instead of minimizing it (default: False).",
    "capturable": "if True, a GPU kernel counts the steps in device memory, for CUDA graphs (default: False).",
    "differentiable": "if True, autograd records the step (default: False).",
    "fused": "True uses a compiled kernel, or warns if there is none; False uses the reference (default: the faster one).",
    "beta1": "replaces betas[0] (default: None).",
    "beta2": "replaces betas[1] (default: None).",
}
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Number = float | Tensor  # an option that may be a 0-d tensor

# Types of options that do not follow from the default. All other options are bool or float.
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
    """Declares the options of an update rule, in the order of the constructor's arguments after `params`.

    `Options(lr=1e-3).keyword_only(maximize=False)` makes `__init__(self, params, lr=1e-3, *, maximize=False)`.
    """

    def __init__(self, **defaults: Any):
        self.positional, self.keywords, self.first = defaults, {}, []

    def keyword_only(self, **defaults: Any) -> "Options":
        """Declares the options that can be passed by name only."""
        self.keywords = defaults
        return self

    def saved_as(self, first: str) -> "Options":
        """Declares the first names in a state dict, for rules where PyTorch's order differs from the constructor's order."""
        self.first = first.split()
        return self

    def ordered(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns the values in the order of a state dict."""
        return {name: values[name] for name in dict.fromkeys([*self.first, *values])}

    def constructor(self, cls: type):
        """Returns the `__init__` of an update rule, and adds the shared options to the docstring of the class."""
        documented = ("params", *self.positional, *self.keywords)
        cls.__doc__ = cls.__doc__ and completed(cls.__doc__, documented, SHARED)
        parameters = [Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=Params)]
        for names, how in ((self.positional, Parameter.POSITIONAL_OR_KEYWORD), (self.keywords, Parameter.KEYWORD_ONLY)):
            parameters += [Parameter(n, how, default=d, annotation=_type_of(n, d)) for n, d in names.items()]
        init = constructor(cls, parameters, lambda optimizer, values: optimizer._begin(values.pop("params"), values))
        return also_named(init, {"parameters": "params"})


def number(x):
    """Returns a Python number for an option that may be a 0-d tensor (`lr=mytorch.tensor(0.1)`).

    In a differentiable step, the only kind of step that is recorded, a tensor that requires grad stays a tensor.
    """
    if not hasattr(x, "item"):
        return x
    return x if x.requires_grad and is_grad_enabled() else x.item()


def check_range(option, value, words=None, high=None):
    """Raises ValueError with PyTorch's message if an option is outside [0, high).

    Raises:
        ValueError: the value is out of its range, or a tensor with several elements.
        TypeError: the value is neither a number nor a tensor.
    """
    if is_tensor(value) and value.numel() != 1:
        raise ValueError(f"Tensor {option} must be 1-element")
    v = number(value)
    if isinstance(v, (str, bytes, list, tuple, dict, set)) or v is None:
        raise TypeError(f"{option} must be a number or a tensor with one element, got {value!r}")
    if not v >= 0.0 or (high is not None and not v < high):
        raise ValueError(f"Invalid {words or f'{option} value'}: {value}")


def check_ranges(options):
    """Checks the options whose ranges PyTorch's optimizers share."""
    for name, words in (("lr", "learning rate"), ("eps", "epsilon value")):
        if name in options:
            check_range(name, options[name], words)
    for name in ("momentum", "weight_decay", "lr_decay", "initial_accumulator_value", "momentum_decay"):
        check_range(name, options.get(name, 0))
    betas = options.get("betas", ())
    if betas is None or len({hasattr(beta, "numel") for beta in betas}) > 1:
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        check_range(f"betas[{i}]", beta, f"beta parameter at index {i}", high=1.0)


def check_flags(options):
    """Checks options that exclude each other. `foreach` has no effect here: all implementations give equal results.

    Raises:
        RuntimeError: `fused` together with `foreach` or `differentiable`.
    """
    foreach, fused = options.get("foreach"), options.get("fused")
    if options.get("differentiable") and fused:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def refuse_unless(*conditions):
    """Raises ValueError with the text of the first (condition, text) pair with a false condition."""
    for holds, text in conditions:
        if not holds:
            raise ValueError(text)
