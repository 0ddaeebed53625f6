"""The links between sparse tensors and their values in the autograd graph.

Each operation on a sparse tensor is a computation on its values (`values_of`) and a new pattern (`build`). Both links
are differentiable, so the gradients of all operations, also second derivatives, follow from the gradients of dense
operations. The gradient of a sparse tensor is a sparse tensor with the same positions, or a dense tensor that
`build` reads at these positions.
"""

import numpy as np

from ..arrays import numpy_ns, xp_of
from ..arrays.tensor import Tensor
from ..autograd import Function
from ..autograd.mode import get_mode, no_grad
from .array import SparseArray, is_sparse, raw_of
from .pattern import Pattern, sparse_coo


class _Build(Function):
    """values -> sparse tensor."""

    @staticmethod
    def forward(ctx, values, pattern):
        ctx.pattern = pattern
        return Tensor._wrap(SparseArray.of(pattern, raw_of(values)))

    @staticmethod
    def backward(ctx, g):
        return read_at(g, ctx.pattern), None


class _Values(Function):
    """sparse tensor -> values, which share its memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.pattern = raw_of(x).pattern
        return Tensor._wrap(raw_of(x).values)

    @staticmethod
    def backward(ctx, g):
        pattern = ctx.pattern
        if pattern.coalesced or (pattern.merged.count == pattern.count and pattern.groups.order is None):
            return build(g, pattern)
        # All elements at one position have the gradient of this position.
        return build(g.index_select(0, Tensor._wrap(pattern.groups.first)), pattern.merged)


class _SegmentSum(Function):
    """Sums of groups of elements along the first dimension."""

    @staticmethod
    def forward(ctx, values, groups):
        ctx.groups = groups
        return Tensor._wrap(_sum_groups(raw_of(values), groups))

    @staticmethod
    def backward(ctx, g):
        return g.index_select(0, Tensor._wrap(ctx.groups.inverse)), None


def _sum_groups(values, groups):
    xp = xp_of(values)
    shape = (len(groups.starts), *values.shape[1:])
    if not len(groups.starts):
        return xp.zeros(shape, values.dtype)
    if xp is not numpy_ns:
        total = Tensor._wrap(xp.zeros(shape, values.dtype))
        return raw_of(total.index_add(0, Tensor._wrap(groups.inverse), Tensor._wrap(values)))
    ordered = values if groups.order is None else values[groups.order]
    if values.dtype == bool:
        return np.logical_or.reduceat(ordered, groups.starts, axis=0)
    if values.dtype.kind == "V" or values.dtype == np.float16:
        return np.add.reduceat(ordered.astype(np.float32), groups.starts, axis=0).astype(values.dtype)
    return np.add.reduceat(ordered, groups.starts, axis=0, dtype=values.dtype)


def _records(x):
    return isinstance(x, Tensor) and get_mode().grad and x.edge is not None


def segment_sum(values, groups):
    """Returns the sum of each group of elements along the first dimension."""
    if _records(values):
        return _SegmentSum.apply(values, groups)
    return Tensor._wrap(_sum_groups(raw_of(values), groups))


def build(values, pattern):
    """Returns the sparse tensor with these values at the positions of a pattern."""
    if _records(values):
        return _Build.apply(values, pattern)
    return Tensor._wrap(SparseArray.of(pattern, raw_of(values)))


def values_of(x):
    """Returns the values of a sparse tensor, connected to its graph."""
    return _Values.apply(x) if _records(x) else Tensor._wrap(raw_of(x).values)


def pattern_of(x):
    """Returns the pattern of a sparse tensor."""
    return raw_of(x).pattern


def coalesce(x):
    """Returns a tensor without duplicates and with sorted positions. The tensor itself, if it is coalesced."""
    pattern = pattern_of(x)
    if pattern.coalesced:
        return x
    return build(segment_sum(values_of(x), pattern.groups), pattern.merged)


def index_tensors(pattern):
    """Returns the index of each element in each sparse dimension, as tensors."""
    return tuple(Tensor._wrap(i) for i in pattern.indices)


def read_at(g, pattern):
    """Returns the elements of a dense or sparse tensor at the positions of a pattern."""
    if not isinstance(raw_of(g), SparseArray):
        return g[index_tensors(pattern)] if pattern.dims else g.unsqueeze(0).expand(pattern.count, *g.shape)
    if pattern.coalesced and pattern_of(g).equals(pattern):
        return values_of(g)
    g = coalesce(g)
    places, found = locate(pattern, pattern_of(g))
    if not pattern_of(g).count:
        return Tensor._wrap(xp_of(found).zeros((pattern.count, *raw_of(g).values.shape[1:]), raw_of(g).dtype))
    read = values_of(g).index_select(0, Tensor._wrap(places))
    if bool(found.all()):
        return read
    mask = Tensor._wrap(found.reshape(-1, *[1] * (read.ndim - 1)))
    return read.masked_fill(~mask, 0)


def locate(pattern, among):
    """Returns the element of a coalesced pattern at each position of a pattern, and a mask of the positions that it has."""
    keys, wanted = among.linear, pattern.linear
    xp = xp_of(keys)
    order = None
    if among.layout is not sparse_coo and not bool((keys[1:] >= keys[:-1]).all()):  # CSC, or CSR with unsorted columns
        order = xp.argsort(keys)
        keys = keys[order]
    places = xp.searchsorted(keys, wanted)
    clipped = xp.minimum(places, max(len(keys) - 1, 0))
    found = (keys[clipped] == wanted) if len(keys) else xp.zeros(len(wanted), bool)
    return (clipped if order is None else order[clipped]), found


class _Dense(Function):
    """sparse tensor -> dense tensor."""

    @staticmethod
    def forward(ctx, values, pattern):
        ctx.pattern = pattern
        return Tensor._wrap(_scattered(raw_of(values), pattern))

    @staticmethod
    def backward(ctx, g):
        return read_at(g, ctx.pattern), None


def _scattered(values, pattern):
    xp = xp_of(values)
    if not pattern.coalesced:
        values, pattern = _sum_groups(values, pattern.groups), pattern.merged
    dense = xp.zeros(pattern.sizes + tuple(values.shape[1:]), values.dtype)
    if pattern.count:
        if pattern.dims:
            dense[tuple(pattern.indices)] = values
        else:
            dense[...] = values[0]
    return dense


class _DenseOfAll(Function):
    """sparse tensor -> dense tensor, with a gradient at all positions."""

    @staticmethod
    def forward(ctx, x, convert):
        ctx.layout, ctx.dims, ctx.convert = pattern_of(x).layout, pattern_of(x).dims, convert
        return Tensor._wrap(_scattered(raw_of(x).values, pattern_of(x)))

    @staticmethod
    def backward(ctx, g):
        g = g if is_sparse(g) else from_dense(g, ctx.dims)
        return ctx.convert(g, ctx.layout), None


def to_dense(x, masked_grad=True, convert=None):
    """Returns the dense tensor with the elements of a sparse tensor.

    Args:
        x: sparse tensor.
        masked_grad: the gradient has the positions of `x` only, otherwise all positions (default: True).
        convert: function of (sparse tensor, layout) that converts a gradient at all positions.
    """
    pattern = pattern_of(x)
    if _records(x):
        return _Dense.apply(values_of(x), pattern) if masked_grad else _DenseOfAll.apply(x, convert)
    return Tensor._wrap(_scattered(raw_of(x).values, pattern))


def positions_of(mask, xp):
    """Returns the coalesced pattern of the elements of a boolean raw array that are True."""
    if mask.ndim:
        return Pattern(sparse_coo, mask.shape, xp.stack(mask.nonzero()).astype(np.int64), coalesced=True)
    return Pattern(sparse_coo, (), xp.zeros((0, int(mask)), np.int64), coalesced=True)


def from_dense(x, sparse_dims=None):
    """Returns the COO tensor with the elements of a dense tensor that are not zero."""
    raw = raw_of(x)
    dims = raw.ndim if sparse_dims is None else sparse_dims
    with no_grad():
        filled = raw != 0
        if dims < raw.ndim:
            filled = filled.any(axis=tuple(range(dims, raw.ndim)))
        pattern = positions_of(filled, xp_of(raw))
    return build(read_at(x, pattern), pattern)
