"""Calls of a module with other parameters and buffers."""

import warnings
from contextlib import contextmanager
from itertools import chain
from typing import Any

from ...arrays.tensor import Tensor
from ..module import Module

_MISSING = object()


def _swap(module, path, tensor):
    """Replaces the tensor at a dotted path without the checks of an assignment. Returns the previous tensor."""
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


def _untied(module, tensors):
    """Returns the given tensors, repeated under all names of tensors that the module stores under several names."""
    names = {}
    for name, tensor in chain(*(f(remove_duplicate=False) for f in (module.named_parameters, module.named_buffers))):
        names.setdefault(id(tensor), []).append(name)
    out = dict(tensors)
    for tied in names.values():
        present = [name for name in tied if name in tensors]
        if len(tied) < 2 or not present:
            continue
        if any(tensors[name] is not tensors[present[0]] for name in present):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. "
                "Consider using tie_weights=False"
            )
        out.update(dict.fromkeys(tied, tensors[present[0]]))
    return out


@contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False):
    tensors = _untied(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        expected = {n for n, _ in module.named_parameters(remove_duplicate=False)}
        expected |= {n for n, _ in module.named_buffers(remove_duplicate=False)}
        wrong = {"Unexpected": [n for n in tensors if n not in expected], "Missing": sorted(expected - set(tensors))}
        lines = [f"{what} key(s): {', '.join(map(repr, names))}." for what, names in wrong.items() if names]
        if lines:
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(lines))
    before = {}
    try:
        for name, tensor in tensors.items():
            before[name] = _swap(module, name, tensor)
        yield
    finally:
        after = {name: _swap(module, name, tensor) for name, tensor in reversed(before.items())}
        # If forward assigned a new tensor, such as a buffer, the caller receives it.
        parameters_and_buffers.update({n: after[n] for n in parameters_and_buffers if n in after})


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(
    module: Module, parameters_and_buffers: dict[str, Tensor], args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Calls a module with other parameters and buffers. Deprecated, use `mytorch.func.functional_call`.

    Args:
        parameters_and_buffers: the tensors to use, by dotted name.
        args: arguments of forward, a tuple or one object.
        kwargs: keyword arguments of forward.
        tie_weights: if True, replaces a shared tensor under all its names (default: True).
        strict: if True, raises an error for missing and unknown names (default: False).

    Raises:
        RuntimeError: `strict` is True, and names are missing or unknown.
        ValueError: several values are given for one shared tensor.
    """
    old, new = "`mytorch.nn.utils.stateless.functional_call`", "`mytorch.func.functional_call`"
    text = f"{old} is deprecated. Please use {new} instead which is a drop-in replacement."
    warnings.warn(text, FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
