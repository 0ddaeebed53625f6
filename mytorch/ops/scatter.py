"""Writing along a dimension and at positions: scatter, index_add, index_copy, take, put, masked_scatter."""

import functools
import operator

import numpy as np

from ..arrays import MetaArray, address, dtypes, numpy_ns, storage_bytes, xp_of
from ..arrays.array import on_input_device
from ..arrays.errors import alert_nondeterministic
from ..arrays.memory_format import kept
from ..arrays.namespaces import duplicate
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from .dispatch.bind import METHODS, public
from .dispatch.errors import broadcast
from .dispatch.half import once_rounded, once_rounded_on_cpu
from .dispatch.inplace import adopt, check_writable
from .dispatch.op import name_node, op, own
from .dispatch.overlap import refuse_overlap, refuse_shared, shares_places
from .dispatch.precision import in_precision
from .dispatch.refused import takes_tensors
from .dispatch.unwrap import index_raw, index_vector, on_device_of, outside, raw_of, to_cpu, watched
from .elementwise import cast, where
from .indexing import ROWS, _gather, _put_index, _scatter_zeros, layout_of, raw_index
from .movement import cat, contiguous
from .reduction import normalize_dim
from .shapes import as_strided, diagonal, select


@op(name="scatter", dtype="same", integers=("index",))
def _scatter(xp, input, src, index, *, dim):
    out = duplicate(input)
    xp.put_along(out, index, dim, src[tuple(slice(n) for n in index.shape)])
    return out


def _without(g, index, dim, xp):
    space = xp_of(index)
    mask = space.ones(g.shape, bool)
    space.put_along(mask, index, dim, space.zeros(index.shape, bool))
    return xp.where(xp.asarray(mask), g, 0.0)


def _cropped(g, index, dim, shapes, xp):
    picked = xp.call(_gather, g, index, dim=dim)
    return picked if tuple(picked.shape) == tuple(shapes[1]) else xp.call(_embed, picked, shape=tuple(shapes[1]))


@op(name="embed", dtype="same")
def _embed(xp, src, *, shape):
    """src in the first corner of zeros of `shape`."""
    out = xp.zeros(shape, src.dtype)
    out[tuple(slice(n) for n in src.shape)] = src
    return out


_embed.grad(src=lambda g, shapes, xp: g[tuple(slice(n) for n in shapes[0])])
_scatter.grad(input=_without, src=_cropped)


@op(name="scatter_add", dtype="same", integers=("index",))
def _scatter_added(xp, input, src, index, *, dim):
    out = duplicate(input)
    xp.add_along(out, index, dim, src)
    return out


_scatter_added.grad(input=lambda g: g, src=lambda g, index, dim, xp: xp.call(_gather, g, index, dim=dim))


def _source(input, src, index, name):
    """The values to scatter: a tensor at least as large as the index, or a number."""
    if isinstance(src, (int, float, complex)):
        raw = raw_of(input)
        return Tensor._wrap(xp_of(raw).full(index.shape, dtypes.fitting(src, input.dtype), raw.dtype))
    if src.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if index.size == 0:
        return src.reshape(-1)[:0].reshape(index.shape)
    if src.ndim != index.ndim or any(a > b for a, b in zip(index.shape, src.shape, strict=True)):
        raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than src {list(src.shape)}")
    return src


def _checked(input, dim, index, name):
    """(the axis, the raw index, the index as an Array that is watched), checked."""
    d = normalize_dim(dim, input.ndim)
    raw = index_raw(index, name)
    if raw.size == 0:  # of any shape: nothing is written
        raw = raw.reshape((0,) * input.ndim)
        return d, raw, watched(raw, index)
    if raw.ndim != input.ndim:
        raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as self tensor")
    if any(n > m for i, (n, m) in enumerate(zip(raw.shape, input.shape, strict=True)) if i != d):
        raise RuntimeError(
            f"{name}(): Expected index {list(raw.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}"
        )
    if outside(raw, input.shape[d]):
        raise RuntimeError(
            f"{name}: index {int(raw.max())} is out of bounds for dimension {d} with size {input.shape[d]}"
        )
    return d, raw, watched(raw, index)


def on_numbers_too(function):
    """An index function that takes 0-d tensors, as PyTorch does, by way of vectors of one element."""

    @on_input_device
    @functools.wraps(function)
    def wrapped(input, dim, index, *args, **kwargs):
        if input.ndim and index.ndim and 0 not in [getattr(a, "ndim", 1) for a in (*args, *kwargs.values())]:
            return function(input, dim, index, *args, **kwargs)
        args = [a.reshape(1) if getattr(a, "ndim", None) == 0 else a for a in args]
        kwargs = {k: v.reshape(1) if getattr(v, "ndim", None) == 0 else v for k, v in kwargs.items()}
        index = index.reshape(1) if index.ndim == 0 else index
        if input.ndim:
            return function(input, dim, index, *args, **kwargs)
        return own(function(input.reshape(1), dim, index, *args, **kwargs).reshape(()))

    return wrapped


def _numbers_with_numbers(function):
    """An index function that takes a 0-d source for a 0-d input alone, and no vector for it."""

    @functools.wraps(function)
    def wrapped(input, dim, index, source, **kwargs):
        if (input.ndim == 0) != (source.ndim == 0):
            raise RuntimeError(
                f"{function.__name__}(): source tensor shape must match self tensor shape, excluding the specified dimension. "
                f"Got self.shape = {list(input.shape)} source.shape = {list(source.shape)}"
            )
        return function(input, dim, index, source, **kwargs)

    return wrapped


@public()
@on_numbers_too
@takes_tensors("index")
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """Writes values at an index along a dimension, into a copy.

        result[index[i, j], j] = src[i, j]    (dim=0)

    Use it to write to positions that don't repeat. For sums at repeated positions there is `scatter_add`.

    Args:
        dim: dimension of the index.
        index: int64 indices.
        src: tensor or number to write.
        value: number to write, instead of `src`.
        reduce: None (default), "add" or "multiply".

    Example:
        >>> mytorch.zeros(3).scatter(0, tensor([2, 0]), tensor([5.0, 6.0])).tolist()
        [6.0, 0.0, 5.0]
    """
    src = value if src is None else src
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError(f"scatter: reduce argument must be either add or multiply, got {reduce!r}.")
    if reduce is not None:
        src = _source(input, src, _checked(input, dim, index, "scatter")[1], "scatter")
        return scatter_reduce(input, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])
    d, raw, index = _checked(input, dim, index, "scatter")
    return _scatter(input, _source(input, src, raw, "scatter"), index, dim=d)


@public()
@on_numbers_too
@in_precision("widest")
@takes_tensors("index", "src")
def scatter_add(input, dim, index, src):
    """Adds values at an index along a dimension, into a copy. Indices may repeat.

        result[index[i, j], j] += src[i, j]    (dim=0)

    Use it to sum messages in a graph network or to count. If whole rows go to one place, `index_add` needs a shorter
    index.

    Args:
        dim: dimension of the index.
        index: int64 indices, not larger than `src`.
        src: values to add.

    Example:
        >>> mytorch.zeros(2).scatter_add(0, tensor([1, 1, 0]), tensor([1.0, 2.0, 3.0])).tolist()
        [3.0, 3.0]
    """
    d, raw, index = _checked(input, dim, index, "scatter_add")
    src = _source(input, src, raw, "scatter_add")
    if tuple(src.shape) != raw.shape:
        src = src[tuple(slice(n) for n in raw.shape)]
    return _scatter_added(input, src, index, dim=d)


def reduction_name(reduce):
    """Returns "sum", "prod", "mean", "amax" or "amin" for the name of a reduction, which may also be "max" or "min".

    Raises:
        RuntimeError: another name.
    """
    found = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if found not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    return found


@public()
@on_numbers_too
@once_rounded_on_cpu
@takes_tensors("index", "src")
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """Reduces values into a copy, at an index along a dimension.

    Args:
        dim: dimension of the index.
        index: int64 indices.
        src: values.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: if True, the reduction includes the elements of `input` (default: True).

    Example:
        >>> index = tensor([0, 0, 1])
        >>> mytorch.scatter_reduce(mytorch.zeros(2), 0, index, tensor([1.0, 3.0, 2.0]), "amax").tolist()
        [3.0, 2.0]
    """
    reduce = reduction_name(reduce)
    d, raw, index = _checked(input, dim, index, "scatter_reduce")
    src = _source(input, src, raw, "scatter_reduce")
    if raw.size == 0:
        return input - src.sum() if src.requires_grad else input.clone()  # a sum of zero elements connects the graph
    src = src[tuple(slice(n) for n in raw.shape)] if tuple(src.shape) != raw.shape else src
    return _reduced(input, src, index, d, reduce, include_self)


def _reduced(input, src, index, dim, reduce, include_self):
    """Reduces src at each element along `dim`; src has the shape of the index, an Array."""
    if reduce in ("amax", "amin"):
        return _scatter_extreme(input, src, index, dim=dim, largest=reduce == "amax", include_self=include_self)
    neutral = 1 if reduce == "prod" else 0
    first = input if include_self else where(_reached(index._array, dim, input.shape), neutral, input).to(input.dtype)
    if reduce == "prod":
        return _products(first, src, index, dim)
    shape = tuple(input.shape)
    total = _scatter_added(first, src, index, dim=dim)
    if reduce == "mean":
        # The counts of an index that is expanded from one column are the same in all columns.
        raw = index._array
        same = [axis != dim and not raw.strides[axis] and raw.shape[axis] == n for axis, n in enumerate(shape)]
        at = watched(raw[tuple(slice(1 if one else None) for one in same)], None)
        ones = Tensor._wrap(xp_of(raw).ones(at.shape, raw_of(input).dtype))
        counts = tuple(1 if one else n for one, n in zip(same, shape, strict=True))
        count = _scatter_zeros(ones, at, dim=dim, shape=counts) + int(include_self)
        count = where(count == 0, 1, count).to(input.dtype)
        if input.dtype.is_floating_point:
            return total / count
        return total.div(count, rounding_mode="floor").to(input.dtype)
    return total


def _reached(index, dim, shape):
    """Returns a mask of `shape` of the positions that an index along `dim` contains. Counting would overflow in bytes."""
    xp = xp_of(index)
    mask = xp.zeros(tuple(shape), bool)
    mask[xp.grid(index, dim)] = True
    return Tensor._wrap(mask)


def _products(input, src, at, dim):
    """Multiplies each element by the values for it. With gradients, adjacent values for one element are multiplied until one
    remains."""
    index, count = to_cpu(at), input.numel()
    wide = dtypes.float32 if input.dtype.itemsize == 2 else input.dtype
    mode, raws = get_mode(), (raw_of(input.to(wide)), raw_of(src.to(wide)))
    records = mode.grad and (input.requires_grad or src.requires_grad)
    if mode.interpreter is None and not records and all(isinstance(raw, np.ndarray) for raw in raws):
        out = raws[0].copy()
        numpy_ns.prod_along(out, index, dim, raws[1])
        return Tensor._wrap(out).to(input.dtype)
    grid = np.broadcast_arrays(*numpy_ns.grid(index, dim), index)[:-1]
    target = np.ravel_multi_index(grid, tuple(input.shape)).reshape(-1)
    target = np.concatenate([np.arange(count), target])
    order = np.argsort(target, kind="stable")
    target = target[order]
    first = Tensor._of(watched(raw_of(on_device_of(order, src)), at))  # computed from the index
    values = cat([input.reshape(count), src.reshape(src.numel())], 0)[first].to(wide)
    while len(target) > count:
        place = np.arange(len(target)) - np.searchsorted(target, target)
        left = np.flatnonzero(place % 2 == 0)
        right = np.where(np.append(place, 0)[left + 1] % 2, left + 1, len(target))  # a 1 follows the last one
        padded = cat([values, values.new_ones(1)], 0)
        values = padded[on_device_of(left, src)] * padded[on_device_of(right, src)]
        target = target[left]
    return values.reshape(input.shape).to(input.dtype)


@op(name="scatter_extreme", dtype="same", integers=("index",))
def _scatter_extreme(xp, input, src, index, *, dim, largest, include_self):
    out = duplicate(input)
    if not include_self:
        low = -np.inf if largest else np.inf
        if out.dtype.kind == "b":
            low = not largest
        elif out.dtype.kind in "iu":
            low = np.iinfo(out.dtype).min if largest else np.iinfo(out.dtype).max
        out[xp.grid(index, dim)] = low
    (xp.max_along if largest else xp.min_along)(out, index, dim, src)
    return out


def _winners(input, src, index, out, dim, include_self, xp):
    """Returns 1 for the elements of input and of src that are extreme, and their number for each element of the result."""
    mine = xp.astype(input == out, out.dtype)
    mine = mine if include_self else _without(mine, index, dim, xp)
    theirs = xp.astype(src == xp.call(_gather, out, index, dim=dim), out.dtype)
    ties = mine + xp.call(_scatter_zeros, theirs, index, dim=dim, shape=tuple(input.shape))
    return mine, theirs, xp.where(ties == 0, xp.ones_like(ties), ties)


def _extreme_input_grad(g, input, src, index, out, dim, include_self, xp):
    mine, _, ties = _winners(input, src, index, out, dim, include_self, xp)
    return g * (mine / ties)


def _extreme_src_grad(g, input, src, index, out, dim, include_self, xp):
    _, theirs, ties = _winners(input, src, index, out, dim, include_self, xp)
    return xp.call(_gather, g / ties, index, dim=dim) * theirs


_scatter_extreme.grad(input=_extreme_input_grad, src=_extreme_src_grad)


# -- along an axis, by a 1-d index ---------------------------------------------------------------------------------


def _at(input, dim, index, name, source=None):
    """(the axis, the raw 1-d index), checked, as the source is.

    Raises:
        IndexError: more than one axis, or an index out of range.
        RuntimeError: the source has another shape.
    """
    d = normalize_dim(dim, input.ndim)
    raw = index_vector(index, name)
    if outside(raw, input.shape[d]):
        raise IndexError(f"{name}(): index out of range in self: expected values from 0 to {input.shape[d] - 1}.")
    wanted = (*input.shape[:d], raw.size, *input.shape[d + 1 :])
    if source is not None and tuple(source.shape) != wanted:
        raise RuntimeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}, and {raw.size} indices"
        )
    return d, raw


def _along(vector, ndim, dim):
    """A raw vector with `ndim` axes, all of length 1 but `dim`."""
    return vector.reshape([-1 if axis == dim else 1 for axis in range(ndim)])


def _full_index(raw, source, dim, index):
    """A 1-d index repeated to the shape of source, as an Array with the version of `index`."""
    xp = xp_of(raw)
    full = xp.broadcast_to(_along(raw, source.ndim, dim), source.shape)
    # The loops of a CPU recognize an index that is repeated by strides of 0.
    return watched(full if xp is numpy_ns else xp.ascontiguousarray(full), index)


@public()
@_numbers_with_numbers
@on_numbers_too
@takes_tensors("index", "source")
def index_add(input, dim, index, source, *, alpha=1):
    """Adds alpha * source to the slices at an index along a dimension, in a copy. Indices may repeat.

    Use it to add whole rows, and `scatter_add` for single elements.

    Args:
        dim: dimension of the index.
        index: int64 indices, (K,).
        source: tensor of the shape of `input`, with size K along `dim`.
        alpha: factor of `source` (default: 1).

    Example:
        >>> mytorch.index_add(mytorch.zeros(3), 0, tensor([0, 2, 2]), tensor([1.0, 2.0, 3.0])).tolist()
        [1.0, 0.0, 5.0]
    """
    d, raw = _at(input, dim, index, "index_add", source)
    source = source if alpha == 1 else source * dtypes.fitting(alpha, source.dtype)
    index, layout = watched(raw, index), (slice(None),) * d + ROWS
    return _added(input, cast(source, input.dtype), index, layout)


@once_rounded
def _added(input, source, index, layout):
    return contiguous(input + _put_index(source, index, layout=layout, shape=tuple(input.shape)))


@public()
@in_precision()
@on_numbers_too
@takes_tensors("index", "source", index="long")
def index_copy(input, dim, index, source):
    """Replaces the slices at an index along a dimension by the slices of `source`, in a copy.

    Args:
        index: int64 indices.
        source: slices, one for each index.

    Example:
        >>> mytorch.index_copy(mytorch.zeros(3), 0, tensor([2, 0]), tensor([1.0, 2.0])).tolist()
        [2.0, 0.0, 1.0]
    """
    d, raw = _at(input, dim, index, "index_copy", source)
    return _scatter(input, source, _full_index(raw, source, d, index), dim=d)


@public()
@on_numbers_too
@takes_tensors("index", index="long")
def index_fill(input, dim, index, value):
    """Fills the slices at an index along a dimension with one value, in a copy.

    Args:
        index: int64 indices.
        value: a number or a 0-d tensor.

    Example:
        >>> mytorch.index_fill(mytorch.zeros(3), 0, tensor([0, 2]), 5).tolist()
        [5.0, 0.0, 5.0]
    """
    d = normalize_dim(dim, input.ndim)
    raw, size = index_raw(index, "index_fill"), input.shape[d]
    if outside(raw % size if size and not outside(raw + size, 2 * size) else raw, size):
        raise IndexError(f"index_fill(): index out of range in self: expected values from {-size} to {size - 1}.")
    mask = xp_of(raw).zeros(size, bool)
    mask[raw] = True
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise RuntimeError(f"index_fill: only a 0-d value tensor is taken, got one of shape {list(value.shape)}.")
        value = value.to(input.dtype)
    elif isinstance(value, complex) and not input.dtype.is_complex:
        raise RuntimeError("index_fill(): Converting complex Scalar to non-complex type is not supported")
    else:
        value = dtypes.fitting(value, input.dtype)
    return name_node(where(Tensor._wrap(_along(mask, input.ndim, d)), value, input), "Where", "IndexFillBackward0")


@on_input_device
def index_put_(self, indices, values, accumulate=False):
    """Writes values at index tensors, in place.

    Args:
        indices: tuple of index or mask tensors.
        values: values that broadcast to the indexed elements.
        accumulate: if True, adds the values, also for repeated indices (default: False).
    """
    where_ = tuple(i if i is not None else slice(None) for i in indices)
    for other in (*where_, values):
        if isinstance(other, Tensor):
            refuse_overlap(self, other, "index_put_", elementwise=False)
    if not accumulate:
        self[where_] = values
        return self
    if values.dtype is not self.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {self.dtype} for the destination and {values.dtype} for "
            "the source."
        )
    check_writable(self, "index_put_")
    raws, arrays = raw_index(self, where_)
    try:
        region = raw_of(self)[raws].shape
    except IndexError as error:
        raise IndexError(f"index_put_: {error} (tensor of shape {tuple(self.shape)}).") from None
    values = values.expand(region) if tuple(values.shape) != region else values
    total = self + _put_index(values, *arrays, layout=layout_of(raws), shape=tuple(self.shape))
    return adopt(self, total, "index_put_")


METHODS["index_put_"] = index_put_


@public(inplace=False)
@in_precision("widest")
def index_put(input, indices, values, accumulate=False):
    """Writes values at index tensors, in a copy.

    Args:
        indices: tuple of index or mask tensors.
        values: values that broadcast to the indexed elements.
        accumulate: if True, adds the values, also for repeated indices (default: False).

    Example:
        >>> mytorch.index_put(mytorch.zeros(2, 2), (tensor([0, 1]), tensor([1, 0])), tensor(7.0)).tolist()
        [[0.0, 7.0], [7.0, 0.0]]
    """
    return index_put_(input.clone(), indices, values, accumulate)


# -- by flat position ------------------------------------------------------------------------------------------------


@public(inplace=False)
@takes_tensors("index")
def take(input, index):
    """Returns the elements at positions in the flattened input.

    Args:
        index: int64 positions.

    Example:
        >>> mytorch.take(tensor([[4, 5], [6, 7]]), tensor([0, 3])).tolist()
        [4, 7]
    """
    if raw_of(index).dtype != np.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype}")
    if input.numel() == 0 and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    return own(input.reshape(-1)[index.reshape(-1)].reshape(index.shape))  # a 0-d index alone would select a view


@public(inplace=False)
@takes_tensors("index", "source")
def put(input, index, source, accumulate=False):
    """Writes values at positions in the flattened input, in a copy.

    Args:
        index: int64 positions.
        source: values, of the shape of `index`.
        accumulate: if True, adds the values (default: False).
    """
    return put_(input.clone(), index, source, accumulate)


def put_(self, index, source, accumulate=False):
    """Writes values at positions in the flattened tensor, in place.

    Args:
        index: int64 positions.
        source: values, of the shape of `index`.
        accumulate: if True, adds the values (default: False).

    Raises:
        RuntimeError: the index is not int64, or has another size than the source.
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {index.dtype}")
    if index.numel() != source.numel():
        raise RuntimeError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    refuse_shared(self, "put_")
    if not accumulate:
        alert_nondeterministic("put_")
    for other in (index, source):
        refuse_overlap(self, other, "put_", elementwise=False)
    flat = self.reshape(-1)
    index_put_(flat, (index.reshape(-1),), source.reshape(-1), accumulate)
    if flat._mt_data._version_counter is None or flat._mt_data._version_counter is not self._mt_data._version_counter:
        self.copy_(flat.reshape(self.shape))  # self was not contiguous, so flat is a copy
    return self


METHODS["put_"] = put_


@public(inplace=False)
def take_along_dim(input, indices, dim=None):
    """Returns the elements at indices along a dimension. Shapes broadcast.

    Args:
        indices: int64 indices that broadcast with `input`, except along `dim`.
        dim: dimension of the indices (default: None, the flattened input).

    Example:
        >>> x = tensor([[30, 10], [20, 40]])
        >>> mytorch.take_along_dim(x, x.argsort(1), 1).tolist()
        [[10, 30], [20, 40]]
    """
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if indices.dtype is not dtypes.int64 or indices.ndim != input.ndim:
        raise RuntimeError(
            f"take_along_dim(): dtype of indices should be Long and they should have {input.ndim} dimensions, but got "
            f"{indices.dtype} and {indices.ndim} dimensions"
        )
    d = normalize_dim(dim, input.ndim)
    indices = where(indices < 0, indices + input.shape[d], indices)
    shape = list(broadcast(*([*t.shape[:d], 1, *t.shape[d + 1 :]] for t in (input, indices))))
    shape[d] = -1  # each has its own length there
    return input.expand(shape).gather(d, indices.expand(shape))


@public()
@on_input_device
@takes_tensors("mask", "source")
def masked_scatter(input, mask, source):
    """Writes the elements of `source`, in order, where a mask is True, in a copy.

    Args:
        mask: bool mask that broadcasts to `input`.
        source: tensor with at least as many elements as the mask has True elements.

    Example:
        >>> mask = tensor([True, False, True])
        >>> mytorch.masked_scatter(mytorch.zeros(3), mask, tensor([1.0, 2.0])).tolist()
        [1.0, 0.0, 2.0]
    """
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    shape = broadcast(input.shape, mask.shape)
    input, mask = input.expand(*shape), mask.expand(*shape)
    raw = raw_of(mask)
    order = xp_of(raw).cumsum(raw.reshape(-1)).reshape(raw.shape)  # how many come up to each place, itself included
    count = int(order.reshape(-1)[-1]) if raw.size else 0
    if source.numel() < count:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have at least {count} elements, source has {source.numel()}."
        )
    positions = xp_of(raw).where(raw, order - 1, 0)
    # A sum of zero elements connects an empty source with the graph.
    picked = source.reshape(-1)[Tensor._wrap(positions)] if source.numel() else source.sum().to(source.dtype)
    return contiguous(where(mask, picked, input))


@public()
@on_numbers_too
@takes_tensors("index", "source")
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """Reduces the slices of `source` into a copy, at an index along a dimension.

    Args:
        index: int64 indices.
        source: slices, one for each index.
        reduce: "prod", "mean", "amax" or "amin".
        include_self: if True, the reduction includes the elements of `input` (default: True).
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    d, raw = _at(input, dim, index, "index_reduce", source)
    index = _full_index(raw, source, d, index)
    return scatter_reduce(input, d, index, source, reduce, include_self=include_self)


@op(dtype="same", grad_name="Clone", layout=None)
def _clone_memory(xp, input):
    """Returns a copy with the strides of the input, in a copy of all its memory."""
    memory = storage_bytes(input)
    if input.nbytes == memory.size or shares_places(input):
        return kept(input.copy("K"), input)
    elements = memory.copy()[address(input) - address(memory) :]
    elements = elements[: elements.size // input.itemsize * input.itemsize].view(input.dtype)
    return xp.lib.stride_tricks.as_strided(elements, input.shape, input.strides)


_clone_memory.grad(input=lambda g: g)


def _written(input, src, view, *where_):
    """Returns a copy of input. In the copy, src replaces the view `view(copy, *where_)`."""
    whole = not isinstance(raw_of(input), MetaArray) and get_mode().interpreter is None
    out = _clone_memory(input) if whole else input.clone()
    region = view(out, *where_)
    if region.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(region.shape)}"
        )
    region.copy_(src)
    return out


@public(inplace=False)
def select_scatter(input, src, dim, index):
    """Replaces the slice at an index of a dimension, in a copy.

    Args:
        src: the new slice.
        index: index of the slice.
    """
    return _written(input, src, select, dim, index)


@public(inplace=False)
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """Replaces the slice start:end:step along a dimension, in a copy.

    Args:
        src: the new slice.
        start: first index (default: 0).
        end: upper bound, which is excluded (default: the size).
        step: step between indices (default: 1).
    """
    place = (slice(None),) * normalize_dim(dim, input.ndim) + (slice(start, end, step),)
    return _written(input, src, operator.getitem, place)


@public(inplace=False)
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """Replaces a diagonal, in a copy.

    Args:
        src: the new diagonal.
        offset: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).
        dim1: first of the two dimensions (default: 0).
        dim2: second of the two dimensions (default: 1).
    """
    return _written(input, src, diagonal, offset, dim1, dim2)


@public(inplace=False)
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """Writes values to the elements that `as_strided` would select, in a copy.

    Args:
        src: tensor of the shape `size`.
        size: shape of the view.
        stride: number of elements from one index to the next, for each axis.
        storage_offset: number of elements before the first (default: the offset of `input`).
    """
    return _written(input, src, as_strided, size, stride, storage_offset)
