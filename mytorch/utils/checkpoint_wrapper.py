"""Modules whose calls are checkpointed, as in `torch.distributed.algorithms._checkpoint.checkpoint_wrapper`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any

from ..autograd.graph import save_on_cpu
from ..autograd.recompute import checkpoint
from ..nn.module import Module

_NAME = "_checkpoint_wrapped_module"
_PREFIX = _NAME + "."


class CheckpointImpl(Enum):
    """The implementation of checkpointing: the argument `use_reentrant` of `utils.checkpoint.checkpoint`."""

    REENTRANT = 1
    NO_REENTRANT = 2


def _rename(state, before, after):
    for name in [name for name in state if name.startswith(before)]:
        state[after + name[len(before) :]] = state.pop(name)


class ActivationWrapper(Module):
    """The base class of the wrappers. Parameters and the state dict have the names of the wrapped module."""

    def __init__(self, mod: Module):
        super().__init__()
        setattr(self, _NAME, mod)
        self._register_state_dict_hook(lambda module, state, prefix, *_: _rename(state, prefix + _PREFIX, prefix))
        self._register_load_state_dict_pre_hook(lambda state, prefix, *_: _rename(state, prefix, prefix + _PREFIX))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_NAME), name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Yields (name, parameter) with the names of the wrapped module.

        Args:
            args: arguments of `Module.named_parameters`.
            kwargs: arguments of `Module.named_parameters`.
        """
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), p


class OffloadWrapper(ActivationWrapper):
    """A module whose saved tensors are kept in host memory; see `offload_wrapper`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        with save_on_cpu():
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """A module whose activations are computed again in backward; see `checkpoint_wrapper`.

    Args:
        checkpoint_impl: a CheckpointImpl (default: NO_REENTRANT).
        checkpoint_fn: a function like `utils.checkpoint.checkpoint`, which replaces it.
        checkpoint_fn_kwargs: keyword arguments of the function.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable | None = None,
        **checkpoint_fn_kwargs: Any,
    ):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            checkpoint_fn = partial(checkpoint, use_reentrant=reentrant)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        module = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:  # which accepts positional arguments only

            def run(*values: Any) -> Any:
                return module(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

            return self.checkpoint_fn(run, *args, *kwargs.values())
        return self.checkpoint_fn(module, *args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """Returns a module that calls another one with `utils.checkpoint.checkpoint`.

    Args:
        checkpoint_impl: a CheckpointImpl (default: NO_REENTRANT).
        checkpoint_fn: a function like `utils.checkpoint.checkpoint`, which replaces it.
        checkpoint_fn_kwargs: keyword arguments of the function, such as `context_fn`.

    Example:
        >>> from mytorch.utils.checkpoint_wrapper import checkpoint_wrapper
        >>> layer = checkpoint_wrapper(nn.Linear(2, 1))
        >>> layer(mytorch.ones(3, 2)).sum().backward()
        >>> list(layer.state_dict()), tuple(layer.weight.grad.shape)
        (['weight', 'bias'], (1, 2))
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """Returns a module that calls another one and keeps the tensors that it saves for backward in host memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Replaces submodules of a model by wrapped ones, in place.

    Args:
        model: the model, which is not wrapped itself.
        checkpoint_wrapper_fn: function that wraps a module (default: `checkpoint_wrapper`).
        check_fn: function of a module that returns True to wrap it (default: all modules).
        auto_wrap_policy: a policy of `distributed.fsdp.wrap`, which replaces `check_fn`.
    """
    wrapped: dict[Module, Module] = {}

    def wraps(module: Module) -> bool:
        if auto_wrap_policy is None:
            return check_fn(module)
        return auto_wrap_policy(
            module=module, recurse=False, nonwrapped_numel=sum(p.numel() for p in module.parameters())
        )

    def visit(part: Module) -> None:
        for name, child in list(part._modules.items()):
            if child is None or isinstance(child, ActivationWrapper):
                continue
            if child not in wrapped:
                visit(child)
                wrapped[child] = checkpoint_wrapper_fn(child) if wraps(child) else child
            part._modules[name] = wrapped[child]

    visit(model)


__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
    "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip
