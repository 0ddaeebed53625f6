"""Embedding: rows of a table, looked up by index."""

import numpy as np

from ..backend import ndarray
from .core import op
from .indexing import add_rows
from .loss import raw_of


@op(dtype="same", name="embedding")
def _embedding(xp, weight, *, index, padding_idx=None, scale_grad_by_freq=False):
    return weight[index]


@op(dtype="same", name="embedding_backward")
def _embedding_backward(xp, src, *, index, padding_idx, scale_grad_by_freq, shape):
    """The gradient of the table: src's rows added up where they were looked up."""
    values = src.reshape(-1, shape[-1])
    rows = index.reshape(-1)
    if padding_idx is not None:
        values = xp.where((rows == padding_idx)[:, None], src.dtype.type(0), values)
    if scale_grad_by_freq:
        values = values / xp.bincount(rows, minlength=shape[0])[rows][:, None].astype(src.dtype)
    out = xp.zeros(shape, src.dtype)
    add_rows(xp, out, rows, values)
    return out


def _embedding_twice(g, index, padding_idx, scale_grad_by_freq, xp):
    out = xp.call(_embedding, g, index=index)
    if padding_idx is not None:
        out = xp.where(xp.asarray(index == padding_idx)[..., None], 0.0, out)
    if scale_grad_by_freq:
        counts = np.bincount(index.reshape(-1), minlength=int(index.max()) + 1)[index]
        out = out / xp.asarray(counts[..., None].astype(np.float32))
    return out


_embedding_backward.grad(src=_embedding_twice)


def _embedding_grad(g, index, padding_idx, scale_grad_by_freq, shape, xp):
    return xp.call(
        _embedding_backward, g, index=index, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq, shape=shape
    )


_embedding.grad(weight=_embedding_grad)


def embedding(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False, *, fused=None
):
    """The rows of `weight` (V, C) at the integer indices `input` (…): a tensor (…, C).

    Args:
        padding_idx: this row gets no gradient.
        max_norm: rows looked up are first scaled down, in place, to this norm (of order norm_type).
        scale_grad_by_freq: divide each gradient by how often its row occurs in `input`.
        sparse: accepted; the gradient is dense.

    Raises:
        IndexError: an index outside [0, V).
        RuntimeError: input is not of an integer dtype.
    """
    index = raw_of(input)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"embedding: expected indices of an integer dtype, got {index.dtype}.")
    rows = weight.shape[0]
    if isinstance(index, ndarray) and index.size and (index.min() < 0 or index.max() >= rows):
        raise IndexError(f"embedding: index out of range in self: values from {index.min()} to {index.max()} for a table of {rows} rows.")
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: padding_idx {padding_idx} must be within the {rows} rows of weight.")
        padding_idx %= rows
    if max_norm is not None:
        _renorm(weight, index, max_norm, norm_type)
    return _embedding(
        weight, index=index, padding_idx=padding_idx, scale_grad_by_freq=bool(scale_grad_by_freq), fused=fused
    )


def _renorm(weight, index, max_norm, norm_type):
    """Scale the rows at `index` down to max_norm, in place and unrecorded."""
    table = weight._data._array
    used = np.unique(index)
    norms = np.linalg.norm(table[used], ord=norm_type, axis=-1)
    factor = np.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[used] *= factor[:, None].astype(table.dtype)
    weight._data._bump()
