"""State dicts of sharded models and their optimizers, by parameter name, as in `torch.distributed.checkpoint.state_dict`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...arrays.array import Array
from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ...nn.module import Module, _IncompatibleKeys
from ...optim.optimizer import Optimizer
from .. import collectives
from ..process_group import get_rank, is_initialized
from ..tensor.dtensor import DTensor, _distributed


@dataclass
class StateDictOptions:
    """Options of state dicts.

    Attributes:
        full_state_dict: gather whole tensors (default: False, DTensors with the local parts).
        cpu_offload: with `full_state_dict`, only the first process receives the result, in CPU memory (default: False).
        ignore_frozen_params: leave out parameters that do not require gradients (default: False).
        strict: raise an error for missing and unexpected names (default: True).
        broadcast_from_rank0: the first process has the whole state dict, and sends it to the others (default: False).
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def _converted(value, options, keeps):
    """Returns a value of a state dict: whole, on the CPU, or as it is."""
    if isinstance(value, Array):
        value = Tensor._of(value)
    if not isinstance(value, Tensor):
        return value
    if options.full_state_dict and isinstance(value, DTensor):
        value = value.full_tensor().detach()
    if options.cpu_offload and keeps:
        value = value.detach().to("cpu")
    return value if keeps else None


def _keeps(options):
    return not (options.full_state_dict and options.cpu_offload and is_initialized() and get_rank() != 0)


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Returns the parameters and buffers of a model. All processes call it.

    Args:
        model: the model, sharded or not.
        submodules: must be None.
        options: options of the state dict.

    Raises:
        NotImplementedError: `submodules` is given.
    """
    options = options or StateDictOptions()
    if submodules is not None:
        raise NotImplementedError("get_model_state_dict: expected submodules=None; call it with the submodule.")
    frozen = {_name(n) for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    keeps, out = _keeps(options), {}
    with no_grad():
        for name, value in model.state_dict().items():
            if options.ignore_frozen_params and name in frozen:
                continue
            value = _converted(value, options, keeps)
            if keeps:
                out[name] = value
    return out


def _optimizers(optimizers):
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _name(name):
    """Returns the name of a parameter in a state dict, which does not show `checkpoint_wrapper`."""
    return name.replace("_checkpoint_wrapped_module.", "")


def _names(model):
    return {id(p): _name(name) for name, p in model.named_parameters()}


def _prepare(optimizer):
    """Creates the state of an optimizer with a step of zero gradients and learning rate 0. Returns True if it did."""
    if optimizer.state:
        return False
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if any(p.grad is not None for p in params):
        raise RuntimeError(
            "get_optimizer_state_dict: expected no gradients before the first step. Call zero_grad() first."
        )
    rates = [group["lr"] for group in optimizer.param_groups]
    for p in params:
        p.grad = p.detach().clone().zero_()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.zero_grad()
    return True


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """Returns the state of optimizers, with names of parameters instead of numbers. All processes call it.

    The state of a new optimizer is created, so that `distributed.checkpoint.load` can fill it.

    Args:
        optimizers: one optimizer or several.
        submodules: must be None.
        options: options of the state dict.

    Raises:
        NotImplementedError: `submodules` is given.
        ValueError: an optimizer has a parameter that is not in the model.
    """
    options = options or StateDictOptions()
    if submodules is not None:
        raise NotImplementedError("get_optimizer_state_dict: expected submodules=None.")
    names, keeps = _names(model), _keeps(options)
    out: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        created = _prepare(optimizer)
        for group in optimizer.param_groups:
            for p in group["params"]:
                if id(p) not in names:
                    raise ValueError(
                        "get_optimizer_state_dict: expected parameters of the model, got another one. Create the optimizer after "
                        "fully_shard and parallelize_module."
                    )
                entry = {}
                with no_grad():
                    for key, value in optimizer.state.get(p, {}).items():
                        entry[key] = _converted(_as_dtensor(value, p), options, keeps)
                if entry and keeps:
                    out["state"][names[id(p)]] = entry
            rest = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            out["param_groups"].append({**rest, "params": [names[id(p)] for p in group["params"]]})
        if created:
            optimizer.state.clear()
    return out if keeps else {}


def _as_dtensor(value, p):
    """Returns a state of the local shape as a DTensor like its parameter."""
    array = value._mt_data if isinstance(value, (Tensor, Array)) and not isinstance(value, DTensor) else None
    if (
        isinstance(p, DTensor)
        and array is not None
        and array.ndim
        and tuple(array.shape) == tuple(p._local_tensor.shape)
    ):
        return DTensor._make(Tensor._of(array), p.device_mesh, p.placements, p.shape)
    return value


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the state dicts of a model and of its optimizers. All processes call it.

    Args:
        optimizers: one optimizer or several.
        submodules: must be None.
        options: options of the state dicts.

    Example:
        >>> from mytorch.distributed.checkpoint.state_dict import get_state_dict
        >>> layer = nn.Linear(3, 2)
        >>> weights, state = get_state_dict(layer, mytorch.optim.AdamW(layer.parameters()))
        >>> list(weights), sorted(state["state"]["weight"])
        (['weight', 'bias'], ['exp_avg', 'exp_avg_sq', 'step'])
    """
    options = options or StateDictOptions()
    return get_model_state_dict(model, submodules=submodules, options=options), get_optimizer_state_dict(
        model, optimizers, submodules=submodules, options=options
    )


def _received(state, options):
    """Returns the state dict of the first process on all processes."""
    if not options.broadcast_from_rank0 or not is_initialized():
        return state
    box = [state if get_rank() == 0 else None]
    collectives.broadcast_object_list(box, src=0)
    return box[0]


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Loads parameters and buffers, whole tensors or DTensors, into a model. All processes call it.

    Args:
        model: the model, sharded or not.
        model_state_dict: result of `get_model_state_dict`, or a state dict of one process.
        options: options of the state dict.

    Returns:
        The missing and the unexpected names.
    """
    options = options or StateDictOptions()
    state = _received(model_state_dict, options)
    return model.load_state_dict(state, strict=options.strict) if state is not None else _IncompatibleKeys([], [])


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Loads the state of optimizers. All processes call it.

    Args:
        optimizers: the optimizers, with the same groups as in the saved state.
        optim_state_dict: result of `get_optimizer_state_dict`.
        options: options of the state dict.

    Raises:
        ValueError: the groups differ.
    """
    options = options or StateDictOptions()
    saved = _received(optim_state_dict, options)
    names, groups = _names(model), list(saved["param_groups"])
    for optimizer in _optimizers(optimizers):
        theirs, groups = groups[: len(optimizer.param_groups)], groups[len(optimizer.param_groups) :]
        packed: dict[str, Any] = {"state": {}, "param_groups": []}
        number = 0
        if len(theirs) != len(optimizer.param_groups):
            raise ValueError(
                f"set_optimizer_state_dict: expected {len(optimizer.param_groups)} parameter groups, got {len(theirs)}."
            )
        for group, other in zip(optimizer.param_groups, theirs, strict=True):
            mine = [names[id(p)] for p in group["params"]]
            if mine != list(other["params"]):
                raise ValueError(
                    "set_optimizer_state_dict: expected the parameter groups of the optimizer, got groups with other parameters."
                )
            numbers = list(range(number, number + len(mine)))
            number += len(mine)
            packed["param_groups"].append({**other, "params": numbers})
            for i, name, p in zip(numbers, mine, group["params"], strict=True):
                if name in saved["state"]:
                    packed["state"][i] = {k: _local(v, p) for k, v in saved["state"][name].items()}
        optimizer.load_state_dict(packed)


def _local(value, p):
    """Returns the part of a state that belongs to the local part of a parameter."""
    if isinstance(value, Array):
        value = Tensor._of(value)
    if not isinstance(value, Tensor) or not isinstance(p, DTensor) or not value.ndim:
        return value
    with no_grad():
        if isinstance(value, DTensor):
            return value.redistribute(p.device_mesh, p.placements)._local_tensor
        if tuple(value.shape) == tuple(p.shape):
            return _distributed(value, p.device_mesh, p.placements, None)
    return value


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Loads the state dicts of a model and of its optimizers. All processes call it.

    Args:
        model_state_dict: result of `get_model_state_dict`.
        optim_state_dict: result of `get_optimizer_state_dict`.
        options: options of the state dicts.

    Returns:
        The missing and the unexpected names of the model.
    """
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result


__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip
