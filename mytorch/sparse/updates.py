"""Sparse gradients: the embedding lookup that creates them, and the optimizers that read them."""

import numpy as np

from ..arrays import hooks, xp_of
from ..arrays.array import Array
from ..arrays.tensor import Tensor
from ..autograd import Function
from ..autograd.mode import no_grad
from ..ops.dispatch.layouts import implements
from .array import raw_of
from .links import build, coalesce
from .pattern import Pattern, sparse_coo


class _Rows(Function):
    """Selects rows of a table. The gradient of the table is sparse and stores the selected rows."""

    @staticmethod
    def forward(ctx, weight, index, padding_idx):
        table, index = raw_of(weight), raw_of(index)
        ctx.shape, ctx.index, ctx.padding_idx = table.shape, index, padding_idx
        return Tensor._wrap(table[index])

    @staticmethod
    def backward(ctx, g):
        rows = ctx.index.reshape(1, -1).astype(np.int64)
        xp = xp_of(rows)
        values = g.reshape(-1, *ctx.shape[1:]) if g.numel() else g.new_zeros(rows.shape[1], *ctx.shape[1:])
        if ctx.padding_idx is not None:
            kept = xp.flatnonzero(rows[0] != ctx.padding_idx)
            rows, values = rows[:, kept], values.index_select(0, Tensor._wrap(kept))
        return build(values, Pattern(sparse_coo, ctx.shape[:1], rows, coalesced=rows.shape[1] < 2)), None, None


def embedding(weight, index, padding_idx, scale_grad_by_freq):
    """Returns rows of a table, with a sparse gradient of the table.

    Args:
        weight: table of shape (V, C).
        index: integers of any shape.
        padding_idx: row that receives no gradient, or None.
        scale_grad_by_freq: must be False.

    Raises:
        RuntimeError: `scale_grad_by_freq` is True.
    """
    if scale_grad_by_freq:
        raise RuntimeError(
            "embedding: scale_grad_by_freq option not supported with sparse gradients. Use sparse=False."
        )
    index = index._mt_data._array if isinstance(index, (Tensor, Array)) else index
    return _Rows.apply(weight, Tensor._wrap(index), padding_idx)


@implements("optimizer", layouts=(sparse_coo,))
def update(optimizer, p, g, state, group):
    """Updates a parameter from a sparse gradient.

    Args:
        p: raw array of the parameter.
        g: raw array of the gradient.
        state: state of the parameter, a dict.
        group: the parameter group.

    Raises:
        RuntimeError: the optimizer does not support sparse gradients, or `weight_decay` is not 0.
    """
    name = type(optimizer).__name__
    rule = _RULES.get(name)
    if rule is None:
        raise RuntimeError(f"{name} does not support sparse gradients, please consider SparseAdam instead")
    if group.get("weight_decay"):
        raise RuntimeError(f"{name}: weight_decay option is not compatible with sparse gradients. Set weight_decay=0.")
    with no_grad():
        rule(p, g, state, group)


def _merged(raw):
    """Returns (positions, values) of a sparse raw array, without duplicates."""
    merged = raw_of(coalesce(Tensor._wrap(raw)))
    return tuple(merged.pattern.indices), merged


def _sgd(p, g, state, group):
    momentum, lr = group["momentum"], float(group["lr"])
    if momentum:
        buffer = state.get("momentum_buffer")
        if buffer is None:
            total = g.copy()
        else:
            total = buffer._mt_data._array * momentum + g * (1 - group["dampening"])
        total = _merged(total)[1]
        state["momentum_buffer"] = hooks.shown(Array._wrap(total))
        g = g + total * momentum if group["nesterov"] else total
    where, merged = _merged(g)
    p[where] -= merged.values * lr


def _adagrad(p, g, state, group):
    step = state["step"]._mt_data._array
    step += 1
    lr = float(group["lr"]) / (1 + (float(step) - 1) * group["lr_decay"])
    where, merged = _merged(g)
    total = state["sum"]._mt_data._array
    total[where] += merged.values * merged.values
    p[where] -= merged.values / (xp_of(p).sqrt(total[where]) + group["eps"]) * lr


_RULES = {"SGD": _sgd, "Adagrad": _adagrad}
