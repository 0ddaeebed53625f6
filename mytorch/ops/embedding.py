"""Embedding: rows of a table, looked up by index."""

import numpy as np

from .._array import on_input_device
from .._tensor import Tensor
from ..backend import Namespace, xp_of
from ..base import dtypes
from ..base.errors import warn, warn_once
from ..dispatch.op import op
from ..dispatch.precision import in_precision
from ..dispatch.unwrap import outside, raw_of, shape_of, to_cpu, watched
from .elementwise import where
from .indexing import add_rows


@op(dtype="same", name="embedding", integers=("index",))
def _embedding(xp, weight, index, *, padding_idx=None, scale_grad_by_freq=False):
    if not isinstance(xp, Namespace) and (padding_idx is not None or scale_grad_by_freq):
        raise NotImplementedError("a gradient that is not that of indexing")
    return weight[index]


@op(dtype="same", name="embedding_backward", integers=("index",))
def _embedding_backward(xp, src, index, *, padding_idx, scale_grad_by_freq, shape):
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
    out = xp.call(_embedding, g, index)
    if padding_idx is not None:
        out = xp.where(xp.asarray(index == padding_idx)[..., None], 0.0, out)
    if scale_grad_by_freq:
        counts = np.bincount(index.reshape(-1), minlength=int(index.max()) + 1)[index]
        out = out / xp.asarray(counts[..., None].astype(np.float32))
    return out


_embedding_backward.grad(src=_embedding_twice)


def _embedding_grad(g, index, padding_idx, scale_grad_by_freq, shape, xp):
    return xp.call(
        _embedding_backward, g, index, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq, shape=shape
    )


_embedding.grad(weight=_embedding_grad)
_embedding.register_kernel(cuda="mytorch.kernels.triton.embedding")


def embedding(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False, *,
    fused=None, auto=False,
):  # fmt: skip
    """The rows of `weight` (V, C) at the integer indices `input` (…): a tensor (…, C).

    Args:
        padding_idx: this row gets no gradient.
        max_norm: rows looked up are first scaled down, in place, to this norm (of order norm_type).
        scale_grad_by_freq: divide each gradient by how often its row occurs in `input`.
        sparse: accepted; the gradient is dense, which is said once.

    Raises:
        IndexError: an index outside [0, V).
        RuntimeError: input is not of an integer dtype.

    Example:
        >>> table = tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
        >>> F.embedding(tensor([2, 0]).long(), table).tolist()
        [[3.0, 4.0], [0.0, 0.0]]
    """
    if sparse:
        warn_of_dense_gradients("embedding")
    index = raw_of(input)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"embedding: expected indices of an integer dtype, got {index.dtype}.")
    rows = shape_of(weight)[0]
    if outside(index, rows):
        raise IndexError(
            f"embedding: index out of range in self: values from {int(index.min())} to {int(index.max())} for a table of {rows} rows."
        )
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: padding_idx {padding_idx} must be within the {rows} rows of weight.")
        padding_idx %= rows
    if max_norm is not None:
        _renorm(weight, index, max_norm, norm_type)
    index = watched(index, input)
    return _embedding.fast_call(weight, index, padding_idx, bool(scale_grad_by_freq), fused=fused, auto=auto)


@on_input_device
def _renorm(weight, index, max_norm, norm_type):
    """Scale the rows at `index` down to max_norm, in place and unrecorded."""
    table = weight._data._array
    xp = xp_of(table)
    used = xp.unique(xp.asarray(index))
    norms = xp.linalg.norm(table[used], ord=norm_type, axis=-1)
    factor = xp.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[used] *= factor[:, None].astype(table.dtype)
    weight._data._bump()


def embedding_renorm_(weight, indices, max_norm, norm_type=2.0):
    """Scale the rows of `weight` at `indices` down to max_norm, in place; returns weight.

    Args:
        weight: (rows, features).
        indices: int64 rows.
        max_norm: largest norm allowed.
        norm_type: order of the norm.
    """
    _renorm(weight, raw_of(indices), max_norm, norm_type)
    return weight


def _check_bags(input, weight, offsets, per_sample_weights, mode, scale_grad_by_freq, sparse):
    if per_sample_weights is not None and tuple(per_sample_weights.shape) != tuple(input.shape):
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            f"embedding_bag: expected weight, {weight.dtype}, to have the same type as per_sample_weights, "
            f"{per_sample_weights.dtype}"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. "
            f"However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.ndim == 1 and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if input.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )


def _first_maxima(xp, rows, bags, count):
    """For each bag and column, which row holds the maximum first: int64 (count, C), 0 for empty bags."""
    order = np.zeros((count, rows.shape[1]), np.int64)
    starts = np.flatnonzero(np.r_[True, bags[1:] != bags[:-1]]) if len(bags) else np.zeros(0, np.int64)
    ends = np.r_[starts[1:], len(bags)]
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        order[bags[a]] = a + to_cpu(rows[a:b].argmax(0))
    return xp.asarray(order)


@in_precision(None)
@on_input_device
def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None, *, fused=None,
):  # fmt: skip
    """The sums, means or maxima of bags of rows of `weight` (V, C): a tensor (bags, C); zeros for empty bags.

    Args:
        input: (bags, n) integer indices, or all bags' indices one after the other, 1-d.
        offsets: for a 1-d input, where each bag begins; with include_last_offset, also where the last one ends.
        max_norm, norm_type, scale_grad_by_freq: as `embedding`'s.
        mode: "sum", "mean" or "max".
        sparse: accepted; the gradient is dense, which is said once.
        per_sample_weights: what each row is multiplied by, of input's shape; for sums only.
        padding_idx: this row is not counted and gets no gradient.
        fused: use a fused kernel to look the rows up; see `mytorch.fused`.

    Raises:
        ValueError: shapes, offsets or a mode that make no sense.
        NotImplementedError: per_sample_weights in another mode.
    """
    if weight.dtype is dtypes.int64 and input.dtype.is_floating_point:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`."
        )
        weight, input = input, weight
    _check_bags(input, weight, offsets, per_sample_weights, mode, scale_grad_by_freq, sparse)
    if sparse:
        warn_of_dense_gradients("embedding_bag")
    index = raw_of(input)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"embedding_bag: expected indices of an integer dtype, got {index.dtype}.")
    if index.ndim == 2:
        count, size = index.shape
        bags = np.repeat(np.arange(count), size)
    else:
        begins = to_cpu(offsets).astype(np.int64)
        if len(begins) and begins[0] != 0:
            raise RuntimeError(
                f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {begins[0]}"
            )
        if len(begins) and begins[-1] > len(index):
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length({len(index)}) but got offsets[-1] of {begins[-1]}"
            )
        if include_last_offset and not len(begins):
            raise RuntimeError("include_last_offset: numBags should be at least 1")
        begins = begins[:-1] if include_last_offset else begins
        count = len(begins)
        bags = np.repeat(np.arange(count), np.diff(np.append(begins, len(index)))) if count else np.zeros(0, np.int64)
    xp = xp_of(index)
    flat = index.reshape(-1)[: len(bags)]
    factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)[: len(bags)]
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise RuntimeError("padding_idx must be within the number of embeddings")
        kept = np.flatnonzero(to_cpu(flat) != padding_idx % weight.shape[0])
        bags, kept = bags[kept], xp.asarray(kept)
        flat = flat[kept]
        factors = None if factors is None else factors[Tensor._wrap(kept)]
    rows = embedding(watched(flat, input), weight, None, max_norm, norm_type, scale_grad_by_freq, fused=fused)
    if index.ndim == 2 and padding_idx is None and mode != "max":  # bags of one size: no need to sort them out
        rows = rows.reshape(count, size, weight.shape[1])
        rows = rows if factors is None else rows * factors.to(rows.dtype).reshape(count, size, 1)
        return rows.mean(1) if mode == "mean" and size else rows.sum(1)
    counts = np.bincount(bags, minlength=count)
    if mode == "max":
        filled = Tensor._wrap(xp.asarray((counts > 0)[:, None]))
        if not len(bags):
            return rows.new_zeros(count, weight.shape[1]) + weight.sum() * 0
        places = Tensor._wrap(_first_maxima(xp, rows._data._array, bags, count))
        return where(filled, rows.gather(0, places), 0.0)
    if factors is not None:
        rows = rows * factors.to(rows.dtype).unsqueeze(1)
    out = rows.new_zeros(count, weight.shape[1]).index_add(0, Tensor._wrap(xp.asarray(bags)), rows)
    if mode == "mean":
        scale = 1.0 / np.maximum(counts, 1)
        out = out * Tensor._wrap(xp.asarray(scale[:, None])).to(out.dtype)
    return out


def warn_of_dense_gradients(name):
    """Say once for each function that sparse=True gives dense gradients."""
    warn_once(f"{name}: sparse=True is accepted, but gradients are dense in this library.")
