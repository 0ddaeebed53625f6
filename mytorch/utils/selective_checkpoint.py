"""Selective activation checkpointing: the results of some ops are stored, and the other ops run again in backward."""

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

from ..ops.dispatch import interpreter
from ..ops.dispatch.op import Op


class CheckpointPolicy(Enum):
    """The treatment of one op in `create_selective_checkpoint_contexts`."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """The first argument of a policy.

    Attributes:
        is_recompute: True in the second run of the function.
    """

    def __init__(self, *, is_recompute: bool):
        self.is_recompute = is_recompute


Policy = Callable[..., CheckpointPolicy]
_FAILED = object()  # the implementation did not support the values


def _name_of(item):
    """Returns the name of an op that is given as a public function, an op or a name."""
    if isinstance(item, str):
        return item
    name = getattr(getattr(item, "op", item), "name", None) or getattr(item, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"create_selective_checkpoint_contexts: expected functions or names of ops, got {item!r}.")
    return name


class _Run(interpreter.Interpreter):
    """One run of the function. It sees every op."""

    def __init__(self, policy, stored, again):
        super().__init__()
        self.policy, self.stored, self.again = policy, stored, again
        self.count = 0
        self.context = SelectiveCheckpointContext(is_recompute=again)

    def __call__(self, record, inputs, fused, attrs):
        """Runs an op, and stores its result or reads the stored result, if the policy selects the op."""
        with self.outside():
            kind = self.policy(self.context, record, *inputs, **attrs)
            if kind in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE):
                record = self._stored_op(record)
            return record.dispatch(*inputs, fused=fused, **attrs)

    def _stored_op(self, op):
        """Returns a copy of an op with a forward function that stores its result, or reads it."""
        copied = copy.copy(op)

        def execute(implementation, operands, attrs, mode, inputs, *rest):
            replaced = copy.copy(implementation)
            replaced.forward = lambda *args, **kwargs: self._result(implementation.forward, args, kwargs)
            return Op.execute(op, replaced, operands, attrs, mode, inputs, *rest)

        copied.execute, copied.fast_call = execute, copied.dispatch
        return copied

    def _result(self, forward, args, kwargs):
        i, self.count = self.count, self.count + 1
        if self.again and i < len(self.stored) and self.stored[i] is not _FAILED:
            return self.stored[i]
        result = forward(*args, **kwargs)
        if not self.again:
            self.stored.append(_FAILED if result is None else result)
        return result


class _Context(AbstractContextManager):
    """A context manager that lets a `_Run` see the ops of its block."""

    def __init__(self, policy, stored, again):
        self.make = lambda: _Run(policy, stored, again)

    def __enter__(self):
        self.block = interpreter.interpreting(self.make())
        self.block.__enter__()

    def __exit__(self, *error):
        self.block.__exit__(*error)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Iterable[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Returns the contexts of `checkpoint(…, context_fn=…)` that store the results of some ops.

    Matrix products are expensive to compute again, and activation functions are cheap. A policy that stores the results of
    the matrix products saves most of the memory of checkpointing with little additional computation.

    Args:
        policy_fn_or_list: functions or names of the ops to store, such as `[F.linear, "matmul"]`. Alternatively, a policy:
            a function of (context, op, *args, **kwargs) that returns a CheckpointPolicy. `op.name` is the name.
        allow_cache_entry_mutation: accepted for compatibility. Do not change stored results in place.

    Returns:
        The contexts of the first and of the second run.

    Raises:
        TypeError: an item of the list is neither a function nor a name.

    Example:
        >>> from functools import partial
        >>> from mytorch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
        >>> layer = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        >>> contexts = partial(create_selective_checkpoint_contexts, [F.linear])
        >>> x = mytorch.ones(2, 4, requires_grad=True)
        >>> checkpoint(layer, x, use_reentrant=False, context_fn=contexts).sum().backward()
        >>> tuple(x.grad.shape)
        (2, 4)
    """
    policy: Any = policy_fn_or_list
    if not callable(policy_fn_or_list):
        names = {_name_of(item) for item in policy_fn_or_list}
        both = CheckpointPolicy.PREFER_RECOMPUTE, CheckpointPolicy.MUST_SAVE

        def policy(context, op, *args, **kwargs):
            return both[op.name in names]

    stored: list[Any] = []
    return _Context(policy, stored, False), _Context(policy, stored, True)


__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]
