"""A module called as a function of its parameters and buffers."""

import warnings
from contextlib import contextmanager
from typing import Any

from ..._tensor import Tensor
from ..module import Module

_MISSING = object()


def _swap(module, path, tensor):
    """Put a tensor at a dotted path, past the checks of assigning; returns what was there."""
    owner, _, name = path.rpartition(".")
    holder = module.get_submodule(owner)
    if tensor is not None and tensor is not _MISSING and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of mytorch.Tensor")
    if tensor is _MISSING:
        before = getattr(holder, name)
        delattr(holder, name)
        return before
    for store in (holder._parameters, holder._buffers):
        if name in store:
            before = store[name]
            store[name] = tensor
            return before
    before = getattr(holder, name, _MISSING)
    setattr(holder, name, tensor)
    return before


def _untied(module, given):
    """The tensors given, also under the other names of those that the module holds under several."""
    names = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        names.setdefault(id(tensor), []).append(name)
    out = dict(given)
    for tied in names.values():
        mine = [name for name in tied if name in given]
        if len(tied) < 2 or not mine:
            continue
        if any(given[name] is not given[mine[0]] for name in mine):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. "
                "Consider using tie_weights=False"
            )
        out.update(dict.fromkeys(tied, given[mine[0]]))
    return out


@contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False):
    given = _untied(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        own = {n for n, _ in module.named_parameters(remove_duplicate=False)}
        own |= {n for n, _ in module.named_buffers(remove_duplicate=False)}
        wrong = {"Unexpected": [n for n in given if n not in own], "Missing": sorted(own - set(given))}
        lines = [f"{what} key(s): {', '.join(map(repr, names))}." for what, names in wrong.items() if names]
        if lines:
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(lines))
    before = {}
    try:
        for name, tensor in given.items():
            before[name] = _swap(module, name, tensor)
        yield
    finally:
        after = {name: _swap(module, name, tensor) for name, tensor in reversed(before.items())}
        # What forward put in the place of a tensor (a buffer that it assigned) belongs to the caller.
        parameters_and_buffers.update({n: after[n] for n in parameters_and_buffers if n in after})


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(
    module: Module, parameters_and_buffers: dict[str, Tensor], args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """The older name of `mytorch.func.functional_call`.

    Args:
        module: the layer.
        parameters_and_buffers: tensors to use, by dotted name.
        args: positional arguments of forward.
        kwargs: its keyword arguments.
        tie_weights: a tied tensor is replaced under all names.
        strict: refuse missing and unknown names.
    """
    warnings.warn(
        "`mytorch.nn.utils.stateless.functional_call` is deprecated. Please use `mytorch.func.functional_call` instead "
        "which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
