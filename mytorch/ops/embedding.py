"""Embeddings: rows of a table, selected by index."""

import numpy as np

from ..arrays import Namespace, config, dtypes, hooks, numpy_ns, xp_of
from ..arrays.array import on_input_device
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from .dispatch.bind import public_names
from .dispatch.inplace import check_writable
from .dispatch.op import op
from .dispatch.precision import in_precision
from .dispatch.unwrap import outside, raw_of, shape_of, to_cpu, watched
from .elementwise import where
from .indexing import add_rows


@op(dtype="same", name="embedding", integers=("index",))
def _embedding(xp, weight, index, *, padding_idx=None, scale_grad_by_freq=False):
    if not isinstance(xp, Namespace) and (padding_idx is not None or scale_grad_by_freq):
        raise NotImplementedError("embedding: the gradient of indexing has no padding_idx and no scale_grad_by_freq")
    # NumPy's `take` needs half the time of an index.
    return np.take(weight, index, axis=0) if xp is numpy_ns else weight[index]


@op(dtype="same", name="embedding_backward", integers=("index",))
def _embedding_backward(xp, src, index, *, padding_idx, scale_grad_by_freq, shape):
    """Computes the gradient of the table: adds up the rows of `src` at their indices."""
    values = src.reshape(index.size, shape[-1])
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
    """Selects rows of an embedding table by index.

        result[...] = weight[input[...]]

    Args:
        input: integer indices of any shape.
        weight: table of shape (V, C).
        padding_idx: row that receives no gradient (default: None).
        max_norm: if given, scales selected rows with a larger norm down to this norm, in place (default: None).
        norm_type: order of the norm for `max_norm` (default: 2.0).
        scale_grad_by_freq: if True, divides the gradient of a row by its number of occurrences in `input` (default: False).
        sparse: if True, the gradient of `weight` is a sparse tensor of the selected rows (default: False).

    Shape:
        input: (…).
        result: (…, C).

    Raises:
        IndexError: an index is outside [0, V).
        RuntimeError: `input` does not have an integer dtype.
        ValueError: `padding_idx` is outside the table.

    Example:
        >>> table = tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
        >>> F.embedding(tensor([2, 0]).long(), table).tolist()
        [[3.0, 4.0], [0.0, 0.0]]

    See also: `nn.Embedding`, `nn.functional.one_hot`.
    """
    index = raw_of(input)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"embedding: expected indices of an integer dtype, got {index.dtype}.")
    if config.pytorch_mode:
        if index.dtype.itemsize < 4:
            raise RuntimeError(
                f"embedding: expected indices of dtype int64 or int32, got {index.dtype}. Convert them with long()."
            )
        if len(shape_of(weight)) != 2:
            raise RuntimeError(f"embedding: 'weight' must be 2-D, got {len(shape_of(weight))}-D.")
    rows = shape_of(weight)[0]
    if outside(index, rows):
        bad = index[(index < 0) | (index >= rows)].reshape(-1)[0]
        raise IndexError(
            f"embedding: index out of range in self: index {int(bad)} is out of range for {rows} rows (valid: 0 to {rows - 1})."
        )
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: expected padding_idx between {-rows} and {rows - 1}, got {padding_idx}.")
        padding_idx %= rows
    if max_norm is not None:
        _renorm(weight, index, max_norm, norm_type)
    index = watched(index, input)
    if sparse:
        return hooks.embed_sparsely(weight, index, padding_idx, scale_grad_by_freq)
    return _embedding.fast_call(weight, index, padding_idx, bool(scale_grad_by_freq), fused=fused, auto=auto)


@on_input_device
def _renorm(weight, index, max_norm, norm_type):
    """Scales the rows at `index` down to max_norm, in place and without autograd."""
    table = weight._mt_data._array
    xp = xp_of(table)
    used = xp.unique(xp.asarray(index))
    norms = xp.linalg.norm(table[used], ord=norm_type, axis=-1)
    factor = xp.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[used] *= factor[:, None].astype(table.dtype)
    weight._mt_data._bump()


def embedding_renorm_(weight, indices, max_norm, norm_type=2.0):
    """Scales the rows of `weight` at `indices` down to a maximal norm, in place.

    Args:
        weight: table of shape (V, C).
        indices: int64 indices of rows.
        max_norm: largest norm that a row keeps.
        norm_type: order of the norm (default: 2.0).

    Returns:
        weight.
    """
    check_writable(weight, "embedding_renorm_")
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
    """Returns the first row with the maximum of each bag and column, int64 (count, C); 0 for empty bags."""
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
    """Computes sums, means or maxima of bags of rows of an embedding table.

        result[b] = reduce(weight[i] for i in bag b)

    The result has shape (bags, C). Empty bags give zeros.

    Args:
        input: integer indices: (bags, n), or the indices of all bags concatenated in one axis.
        weight: table of shape (V, C).
        offsets: position of the first index of each bag, for a 1-d `input` (default: None).
        max_norm: if given, scales selected rows with a larger norm down to this norm, in place (default: None).
        norm_type: order of the norm for `max_norm` (default: 2).
        scale_grad_by_freq: if True, divides the gradient of a row by its number of occurrences in `input` (default: False).
        mode: "mean" (default), "sum" or "max".
        sparse: if True, the gradient of `weight` is a sparse tensor of the selected rows (default: False).
        per_sample_weights: factor for each selected row, of the shape of `input`; for mode "sum" only (default: None).
        include_last_offset: if True, the last element of `offsets` is the end of the last bag (default: False).
        padding_idx: row that is not counted and receives no gradient (default: None).
        fused: True runs a fused kernel to select rows, False the reference. See `mytorch.fused`.

    Raises:
        ValueError: shapes, offsets or a mode that do not fit.
        NotImplementedError: `per_sample_weights` with a mode other than "sum".

    Example:
        >>> table = tensor([[1.0], [2.0], [4.0]])
        >>> F.embedding_bag(mytorch.tensor([0, 1, 2]), table, mytorch.tensor([0, 2]), mode="sum").tolist()
        [[3.0], [4.0]]

    See also: `nn.EmbeddingBag`.
    """
    if weight.dtype is dtypes.int64 and input.dtype.is_floating_point:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`."
        )
        weight, input = input, weight
    _check_bags(input, weight, offsets, per_sample_weights, mode, scale_grad_by_freq, sparse)
    index = raw_of(input)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"embedding_bag: expected indices of an integer dtype, got {index.dtype}.")
    if index.ndim == 2:
        count, size = index.shape
        bags = np.repeat(np.arange(count), size)
    else:
        begins = to_cpu(offsets)
        if begins.dtype.kind not in "iu":
            raise RuntimeError(f"embedding_bag: expected offsets of an integer dtype, got {offsets.dtype}.")
        begins = begins.astype(np.int64)
        if (np.diff(begins) < 0).any():
            raise RuntimeError("embedding_bag: expected offsets in ascending order. Sort them.")
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
        if max_norm is not None:
            _renorm(weight, flat, max_norm, norm_type)  # also the row of padding_idx, as in PyTorch
        kept = np.flatnonzero(to_cpu(flat) != padding_idx % weight.shape[0])
        bags, kept = bags[kept], xp.asarray(kept)
        flat = flat[kept]
        factors = None if factors is None else factors[Tensor._wrap(kept)]
    try:
        rows = embedding(
            watched(flat, input), weight, None, max_norm, norm_type, scale_grad_by_freq, sparse, fused=fused
        )
    except IndexError as error:  # PyTorch raises another error than for `embedding`
        raise RuntimeError(str(error).replace("embedding", "embedding_bag", 1)) from None
    if index.ndim == 2 and padding_idx is None and mode != "max":  # bags of one size: no need to sort them out
        rows = rows.reshape(count, size, weight.shape[1])
        rows = rows if factors is None else rows * factors.to(rows.dtype).reshape(count, size, 1)
        return rows.mean(1) if mode == "mean" and size else rows.sum(1)
    counts = np.bincount(bags, minlength=count)
    if mode == "max":
        filled = Tensor._wrap(xp.asarray((counts > 0)[:, None]))
        if not len(bags):
            return rows.new_zeros(count, weight.shape[1]) + weight.sum() * 0
        places = Tensor._wrap(_first_maxima(xp, rows._mt_data._array, bags, count))
        return where(filled, rows.gather(0, places), 0.0)
    if factors is not None:
        rows = rows * factors.to(rows.dtype).unsqueeze(1)
    out = rows.new_zeros(count, weight.shape[1]).index_add(0, Tensor._wrap(xp.asarray(bags)), rows)
    if mode == "mean":
        scale = 1.0 / np.maximum(counts, 1)
        out = out * Tensor._wrap(xp.asarray(scale[:, None])).to(out.dtype)
    return out


TORCH_NAMES = {"mytorch": public_names({"embedding_renorm_": embedding_renorm_})}
