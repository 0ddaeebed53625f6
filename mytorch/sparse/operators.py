"""The operations on sparse tensors: the implementations of ops for sparse layouts (ops/dispatch/layouts.py).

An implementation computes with the values of the tensors (links.py), so it has their gradient.
"""

import functools
import math

import numpy as np

from ..arrays import device_of, dtypes, ndarray, to_device, xp_of
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..ops.dispatch.layouts import implements, refusal
from . import products
from .array import is_sparse, raw_of, words
from .links import build, coalesce, locate, pattern_of, read_at, segment_sum, to_dense, values_of
from .pattern import COMPRESSED, LAYOUTS, Groups, Pattern, pointers_of, sparse_coo, sparse_csr

handles = functools.partial(implements, layouts=LAYOUTS)


# -- elementwise functions ---------------------------------------------------------------------------------------------

LINEAR = "neg deg2rad rad2deg _alias clone conj"
KEEP_ZEROS = (
    "abs sign sgn sqrt sin tan sinh tanh asin asinh atan atanh erf erfinv expm1 log1p floor ceil trunc round square relu "
    "isnan isinf nan_to_num"
)


@handles(*LINEAR.split())
def _linear(op, inputs, attrs):
    (x,) = inputs
    return build(op(values_of(x), **attrs), pattern_of(x))


@handles(*KEEP_ZEROS.split())
def _unary(op, inputs, attrs):
    x = coalesce(inputs[0])
    return build(op(values_of(x), **attrs), pattern_of(x))


@handles("to_dtype")
def _cast(op, inputs, attrs):
    (x,) = inputs
    return build(values_of(x).to(attrs["dtype"]), pattern_of(x))


@handles("_to_device")
def _move(op, inputs, attrs):
    (x,) = inputs
    return to_device_of(x, attrs["where"])


def to_device_of(x, where):
    """Returns a sparse tensor on a device. The gradient moves back."""
    values, pattern = values_of(x), pattern_of(x)
    if device_of(raw_of(values)) is where:
        return x
    return build(values.to(where), moved(pattern, where))


def moved(pattern, where):
    """Returns a pattern on a device."""
    if pattern.layout is sparse_coo:
        parts = {"indices": to_device(pattern.indices, where)}
    else:
        parts = {"pointers": to_device(pattern.pointers, where), "inner": to_device(pattern.inner, where)}
    return Pattern(pattern.layout, pattern.sizes, **parts, coalesced=pattern.coalesced)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _is_number(x):
    return not isinstance(x, Tensor) or (not is_sparse(x) and x.ndim == 0)


def _check_sizes(name, a, b):
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"{name}: expected tensors of one size, got {tuple(a.shape)} and {tuple(b.shape)}. Sparse tensors do not broadcast."
        )


@handles("mul")
def _mul(op, inputs, attrs):
    a, b = inputs
    if _is_number(b):
        return build(op(values_of(a), b), pattern_of(a))
    if _is_number(a):
        return build(op(a, values_of(b)), pattern_of(b))
    if is_sparse(a) and is_sparse(b):
        if a.ndim and b.ndim:
            return _intersection(op, a, b)
        if b.ndim == 0:
            return build(op(values_of(a), to_dense(b)), pattern_of(a))
        return build(op(to_dense(a), values_of(b)), pattern_of(b))
    x, dense = (a, b) if is_sparse(a) else (b, a)
    if dense.ndim > x.ndim or any(n not in (1, m) for n, m in zip(dense.shape[::-1], x.shape[::-1], strict=False)):
        raise RuntimeError(
            f"mul: expected a dense tensor that broadcasts to {tuple(x.shape)}, got {tuple(dense.shape)}. Expand the sparse tensor."
        )
    x = coalesce(x)
    return build(op(values_of(x), read_at(dense.expand(*x.shape), pattern_of(x))), pattern_of(x))


def broadcast(x, size):
    """Returns a COO tensor, expanded along dimensions of size 1 and along new first dimensions."""
    size, pattern, values = tuple(size), pattern_of(x), values_of(x)
    new = len(size) - x.ndim
    before = (1,) * new + tuple(x.shape)
    if pattern.layout is not sparse_coo:
        raise refusal("broadcast_to", pattern.layout)
    for n, m in zip(before, size, strict=False):
        if n not in (1, m) or new < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({m}) must match the existing size ({n}): got {tuple(x.shape)} and {size}."
            )
    dims, xp = pattern.dims + new, xp_of(pattern.indices)
    indices = xp.concatenate([xp.zeros((new, pattern.count), np.int64), pattern.indices])
    rising = pattern.coalesced
    for d in range(dims):
        if before[d] != size[d]:  # repeat the elements for each position of the dimension
            rising = rising and (d == 0 or bool((indices[:d] == indices[:d, :1]).all()))
            count = indices.shape[1]
            indices = xp.tile(indices, (1, size[d]))
            indices[d] = xp.repeat(xp.arange(size[d]), count)
            values = values.repeat(size[d], *[1] * (values.ndim - 1))
    dense = size[dims:]
    if tuple(values.shape[1:]) != dense:
        values = values.expand(values.shape[0], *dense)
    return build(values, Pattern(sparse_coo, size[:dims], indices, coalesced=rising))


def _intersection(op, a, b):
    if tuple(a.shape) != tuple(b.shape) and pattern_of(a).layout is pattern_of(b).layout is sparse_coo:
        long, short = (a, b) if a.ndim >= b.ndim else (b, a)
        new = long.ndim - short.ndim
        size = [*long.shape[:new], *[m if n == 1 else n for n, m in zip(long.shape[new:], short.shape, strict=True)]]
        a, b = broadcast(coalesce(a), size), broadcast(coalesce(b), size)
    _check_sizes(op.name, a, b)
    a, b = coalesce(a), coalesce(b)
    p, q = pattern_of(a), pattern_of(b)
    if p.dims != q.dims:
        raise RuntimeError(
            f"{op.name}: expected tensors with equal numbers of sparse dimensions, got {p.dims} and {q.dims}. "
            "Pass sparse_dim to to_sparse."
        )
    if p.equals(q):
        return build(op(values_of(a), values_of(b)), p)
    places, found = locate(p, q)
    xp = xp_of(found)
    mine = xp.flatnonzero(found)
    pattern = subset(p, mine)
    theirs = Tensor._wrap(places[mine])
    return build(op(values_of(a).index_select(0, Tensor._wrap(mine)), values_of(b).index_select(0, theirs)), pattern)


def subset(pattern, elements):
    """Returns the pattern of some elements, in their order."""
    if pattern.layout is sparse_coo:
        return Pattern(sparse_coo, pattern.sizes, pattern.indices[:, elements], coalesced=pattern.coalesced)
    coo = Pattern(sparse_coo, pattern.sizes, pattern.indices[:, elements], coalesced=True)
    return compressed(coo, pattern.layout, pattern.inner.dtype)[0]


@handles("div", "_divide_floor", "_divide_trunc", "floor_divide")
def _div(op, inputs, attrs):
    a, b = inputs
    if not is_sparse(a) or not _is_number(b):
        raise RuntimeError(
            f"{op.name}: expected a sparse tensor divided by a number or by a tensor without dimensions. Multiply by the "
            "reciprocal instead."
        )
    a = a if op.name == "div" else coalesce(a)
    return build(op(values_of(a), b), pattern_of(a))


@handles("pow")
def _pow(op, inputs, attrs):
    a, b = inputs
    if not is_sparse(a) or not _is_number(b) or not float(b) > 0:
        raise RuntimeError(
            f"pow: expected a sparse base and a number greater than 0 as exponent, got {b!r}. Use to_dense()."
        )
    a = coalesce(a)
    return build(op(values_of(a), b), pattern_of(a))


@handles("add", "sub")
def _add(op, inputs, attrs):
    a, b = inputs
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        raise NotImplementedError(
            f"{op.name}: expected two tensors, got a sparse tensor and a number. Call to_dense() first."
        )
    if is_sparse(a) and is_sparse(b):
        return _joined(op, a, b)
    if is_sparse(a) and pattern_of(a).layout is sparse_coo and op.name == "sub":
        raise RuntimeError("sub: expected a dense tensor as first operand. Write a.to_dense() - b.")
    _check_sizes(op.name, a, b)
    if is_sparse(b):
        return op(a, to_dense(b))
    return op(to_dense(a), b)


def _joined(op, a, b):
    _check_sizes(op.name, a, b)
    p, q = pattern_of(a), pattern_of(b)
    if p.dims != q.dims:
        if p.layout is q.layout is sparse_coo and not (p.count and q.count):  # a sum with zeros
            dtype = dtypes.promote_types(a.dtype, b.dtype)
            return a.to(dtype).clone() if p.count else -b.to(dtype) if op.name == "sub" else b.to(dtype).clone()
        raise RuntimeError(
            f"{op.name}: expected tensors with equal numbers of sparse dimensions, got {p.dims} and {q.dims}. "
            "Pass sparse_dim to to_sparse."
        )
    if p.layout in COMPRESSED and q.layout in COMPRESSED and p.layout is not q.layout:
        b = to_compressed(b, p.layout)
        q = pattern_of(b)
    if p.layout is not q.layout:
        raise RuntimeError(
            f"{op.name}: expected tensors of one layout, got {p.layout!r} and {q.layout!r}. Convert one."
        )
    dtype = dtypes.promote_types(a.dtype, b.dtype)
    left, right = values_of(a).to(dtype), values_of(b).to(dtype)
    if p.equals(q):
        return build(op(left, right), p)
    if op.name == "sub":
        right = -right
    xp = xp_of(p.indices)
    values = _cat([left, right])
    together = Pattern(sparse_coo, p.sizes, xp.concatenate([p.indices, q.indices], axis=1))
    if p.coalesced and q.coalesced:
        merged = coalesce(build(values, together))
        return merged if p.layout is sparse_coo else to_compressed(merged, p.layout, p.inner.dtype)
    return build(values, together)


def _cat(tensors):
    from ..ops.movement import cat

    return cat(tensors, 0)


# -- products ----------------------------------------------------------------------------------------------------------


@handles("matmul")
def _matmul(op, inputs, attrs):
    a, b = inputs
    if not is_sparse(a):
        if a.ndim == 1:
            return matrix_product(b.t(), a.unsqueeze(1)).squeeze(1)
        if a.ndim == b.ndim == 2:
            return matrix_product(b.t(), a.t()).t()
        raise refusal("matmul", pattern_of(b).layout)
    if b.ndim == 1:
        return matrix_product(a, b.unsqueeze(1)).squeeze(1)
    if a.ndim == 3:
        return _batched(a, b)
    return matrix_product(a, b)


@handles("linear")
def _linear_layer(op, inputs, attrs):
    x, weight, *bias = inputs
    if is_sparse(weight):
        out = matrix_product(weight, x.reshape(-1, x.shape[-1]).t()).t().reshape(*x.shape[:-1], weight.shape[0])
    else:
        out = matrix_product(x, weight.t())
    return out if not bias or bias[0] is None else out + bias[0]


def matrix_product(a, b):
    """Returns the product of a sparse matrix and a dense or sparse matrix."""
    pattern = pattern_of(a)
    if pattern.dims != 2 or a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(
            f"mm: expected matrices with two sparse dimensions, got {a.ndim} and {b.ndim} dimensions. Reshape the dense tensor."
        )
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(f"mm: expected matrices of one dtype, got {a.dtype} and {b.dtype}. Convert one with to().")
    if is_sparse(b):
        return _sparse_product(a, b)
    return products.Product.apply(values_of(a), b, pattern)


def _sparse_product(a, b):
    p, q = pattern_of(a), pattern_of(b)
    if q.dims != 2 or b.ndim != 2:
        raise RuntimeError("mm: expected sparse matrices without dense dimensions. Pass sparse_dim=2 to to_sparse.")
    with no_grad():
        left, right, rows, columns = products.pairs_of(p, q)
        groups, rows, columns = products.group(rows, columns, q.sizes[1])
    terms = values_of(a).index_select(0, Tensor._wrap(left)) * values_of(b).index_select(0, Tensor._wrap(right))
    xp = xp_of(rows)
    pattern = Pattern(sparse_coo, (p.sizes[0], q.sizes[1]), xp.stack([rows, columns]), coalesced=True)
    out = build(segment_sum(terms, groups), pattern)
    if p.layout in COMPRESSED and q.layout in COMPRESSED:
        return to_compressed(out, sparse_csr, p.inner.dtype)
    return out


def reduced_product(a, b, reduce):
    """Returns the product of a CSR matrix and a dense matrix, with another reduction than the sum: "mean", "amax" or "amin"."""
    pattern = pattern_of(a)
    if pattern.dims != 2 or is_sparse(b) or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"sparse.mm: expected a sparse and a dense matrix that can be multiplied, got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    rows, columns = (Tensor._wrap(i) for i in pattern.indices)
    terms = values_of(a).unsqueeze(1) * b.index_select(0, columns)
    zeros = terms.new_zeros(a.shape[0], b.shape[1])
    return zeros.scatter_reduce(0, rows.unsqueeze(1).expand(*terms.shape), terms, reduce, include_self=False)


def _batched(a, b):
    """Returns the product of stacks of matrices, as one product with blocks on the diagonal."""
    pattern = pattern_of(a)
    if is_sparse(b) or pattern.dims != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"bmm: expected tensors of sizes (b, n, m) and (b, m, p), got {tuple(a.shape)} and {tuple(b.shape)}. "
            "Use three sparse dimensions."
        )
    count, n, m = a.shape
    batch, rows, columns = pattern.indices
    flat = Pattern(
        sparse_coo,
        (count * n, count * m),
        xp_of(rows).stack([batch * n + rows, batch * m + columns]),
        coalesced=pattern.coalesced,
    )
    out = products.Product.apply(values_of(a), b.reshape(count * m, b.shape[2]), flat)
    return out.reshape(count, n, b.shape[2])


# -- layouts -----------------------------------------------------------------------------------------------------------


def compressed(pattern, layout, dtype=np.int64):
    """Returns (compressed pattern, order of the elements or None) of a coalesced COO pattern of matrices.

    Raises:
        RuntimeError: the matrices of a batch have different numbers of elements.
    """
    *batch, n, m = pattern.sizes
    *of_batch, rows, columns = pattern.indices
    xp = xp_of(rows)
    length, outer, inner = (n, rows, columns) if layout is sparse_csr else (m, columns, rows)
    matrices = math.prod(batch)
    if batch:  # one matrix, in which the matrices of the batch follow each other
        outer = Pattern(sparse_coo, batch, xp.stack(of_batch)).linear * length + outer
    order = None
    if layout is not sparse_csr:
        order = xp.argsort(outer, kind="stable")
        outer, inner = outer[order], inner[order]
    pointers = pointers_of(outer, matrices * length)
    if batch:
        starts = pointers[::length] if length else xp.zeros(matrices + 1, np.int64)
        count = len(inner) // max(matrices, 1)
        if not bool((xp.diff(starts) == count).all()):
            raise RuntimeError(
                f"to_{layout.name}: Expect the same number of specified elements per batch. Convert the matrices one by one."
            )
        ends = xp.zeros((matrices, length + 1), np.int64)
        ends[:, 1:] = pointers[1:].reshape(matrices, length) - starts[:-1, None]
        pointers, inner = ends.reshape(*batch, length + 1), inner.reshape(*batch, count)
    made = Pattern(layout, pattern.sizes, pointers=pointers.astype(dtype), inner=inner.astype(dtype))
    return made, order


def to_compressed(x, layout, dtype=None):
    """Returns sparse matrices in CSR or CSC layout. The indices keep their dtype, or have the given dtype."""
    pattern = pattern_of(x)
    if dtype is None:
        dtype = np.int64 if pattern.layout is sparse_coo else pattern.inner.dtype
    if pattern.layout is layout:
        return x
    x = coalesce(to_coo(x))
    made, order = compressed(pattern_of(x), layout, dtype)
    values = values_of(x)
    return build(values if order is None else values.index_select(0, Tensor._wrap(order)), made)


def to_layout(x, layout):
    """Returns a sparse tensor in a layout."""
    return to_coo(x) if layout is sparse_coo else to_compressed(x, layout)


def to_coo(x):
    """Returns a sparse tensor in COO layout."""
    pattern = pattern_of(x)
    if pattern.layout is sparse_coo:
        return x
    coo = pattern.as_coo()
    x = build(values_of(x), coo)
    return x if coo.coalesced else coalesce(x)


# -- reductions --------------------------------------------------------------------------------------------------------


def _dims(dim, ndim):
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    found = []
    for d in dims:
        if not -ndim <= d < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {d})")
        found.append(d % ndim)
    return sorted(set(found))


@handles("sum")
def _sum(op, inputs, attrs):
    (x,) = inputs
    keepdim = attrs.get("keepdim", False)
    dims = _dims(attrs.get("dim"), x.ndim)
    pattern = pattern_of(x)
    if pattern.layout in COMPRESSED:
        return _sum_compressed(op, x, dims, keepdim)
    out = sum_over(x, dims)
    if keepdim:
        for d in dims:
            out = out.unsqueeze(d)
    return out


def _sum_compressed(op, x, dims, keepdim):
    if len(dims) == x.ndim:
        out = values_of(x).sum()
        return out.reshape(*[1] * x.ndim) if keepdim else out
    if not keepdim or len(dims) != 1:
        raise RuntimeError(
            f"sum: expected keepdim=True for one dimension of layout {pattern_of(x).layout!r}. Convert with to_sparse_coo()."
        )
    out = sum_over(to_coo(x), dims).unsqueeze(dims[0])
    return to_compressed(out, pattern_of(x).layout, pattern_of(x).inner.dtype)


def sum_over(x, dims):
    """Returns the sum of a COO tensor over some dimensions: dense if no sparse dimension is left."""
    pattern, values = pattern_of(x), values_of(x)
    dense = [d - pattern.dims + 1 for d in dims if d >= pattern.dims]
    kept = [d for d in range(pattern.dims) if d not in dims]
    if dense:
        values = values.sum(tuple(dense))
    if not kept:
        return values.sum(0)
    if len(kept) == pattern.dims:
        return build(values, pattern)
    sizes = [pattern.sizes[d] for d in kept]
    return coalesce(build(values, Pattern(sparse_coo, sizes, pattern.indices[kept])))


@handles("any")
def _any(op, inputs, attrs):
    if attrs.get("dim") is not None:
        raise refusal("any over a dimension", pattern_of(inputs[0]).layout)
    return op(values_of(coalesce(inputs[0])))


@handles("norm")
def _norm(op, inputs, attrs):
    x = coalesce(inputs[0])
    for option in ("dim", "keepdim", "dtype"):
        if attrs.get(option) not in (None, False):
            raise RuntimeError(f"norm: expected no {option} for a sparse tensor, got {attrs[option]}. Use to_dense().")
    return op(values_of(x).reshape(-1), **attrs)


@handles("softmax", "log_softmax")
def _softmax(op, inputs, attrs):
    return softmax_of(inputs[0], attrs.get("dim"), attrs.get("dtype"), op.name == "log_softmax")


def softmax_of(x, dim, dtype=None, log=False):
    """Returns the (log-)softmax of the stored elements along a dimension. Missing elements are negative infinity."""
    if dtype is not None:
        x = x.to(dtype)
    layout = pattern_of(x).layout
    index_dtype = np.int64 if layout is sparse_coo else pattern_of(x).inner.dtype
    x = coalesce(to_coo(x))
    pattern, values = pattern_of(x), values_of(x)
    (dim,) = _dims(dim, x.ndim)
    if dim >= pattern.dims:
        place = dim - pattern.dims + 1
        out = values.log_softmax(place) if log else values.softmax(place)
        return build(out, pattern)
    others = [d for d in range(pattern.dims) if d != dim]
    key = Pattern(sparse_coo, [pattern.sizes[d] for d in others], pattern.indices[others]).linear
    groups = Groups(key)
    inverse = Tensor._wrap(groups.inverse)
    highest = Tensor._wrap(_group_maxima(raw_of(values), groups)).index_select(0, inverse)
    shifted = values - highest
    total = segment_sum(shifted.exp(), groups).index_select(0, inverse)
    out = build(shifted - total.log() if log else shifted.exp() / total, pattern)
    return out if layout is sparse_coo else to_compressed(out, layout, index_dtype)


def _group_maxima(values, groups):
    xp = xp_of(values)
    if not len(groups.starts):
        return xp.zeros((0, *values.shape[1:]), values.dtype)
    ordered = values if groups.order is None else values[groups.order]
    if isinstance(ordered, ndarray):
        return np.maximum.reduceat(ordered, groups.starts, axis=0)
    lowest = Tensor._wrap(xp.full((len(groups.starts), *values.shape[1:]), -np.inf, values.dtype))
    return raw_of(lowest.index_reduce(0, Tensor._wrap(groups.inverse), Tensor._wrap(values), "amax"))


# -- shapes and selection ----------------------------------------------------------------------------------------------


@handles("permute")
def _permute(op, inputs, attrs):
    (x,) = inputs
    dims = [d % x.ndim for d in attrs["dims"]]
    pattern = pattern_of(x)
    if dims == list(range(x.ndim)):
        return build(values_of(x), pattern)
    if pattern.layout in COMPRESSED:
        return _permuted_matrices(x, dims)
    sparse, dense = dims[: pattern.dims], dims[pattern.dims :]
    if any(d >= pattern.dims for d in sparse):
        raise RuntimeError(
            "transpose: expected two sparse or two dense dimensions of a sparse tensor. Convert it with to_sparse(sparse_dim)."
        )
    values = values_of(x)
    if dense != sorted(dense):
        values = values.permute(0, *[d - pattern.dims + 1 for d in dense])
    if sparse == [1, 0]:
        return build(values, pattern.transposed)
    if sparse != sorted(sparse):
        pattern = Pattern(sparse_coo, [pattern.sizes[d] for d in sparse], pattern.indices[sparse])
    return build(values, pattern)


def _permuted_matrices(x, dims):
    """Permutes the batch dimensions, the two dimensions of the matrices, and the dense dimensions."""
    pattern, values = pattern_of(x), values_of(x)
    count = len(pattern.batch)
    batch, sparse, dense = dims[:count], dims[count : count + 2], dims[count + 2 :]
    if any(d >= count for d in batch) or any(not count <= d < count + 2 for d in sparse):
        raise RuntimeError(
            "transpose: can only transpose dimensions of the same type (Batch, Sparse, Dense). Convert the tensor with to_dense()."
        )
    inner, pointers = pattern.inner, pattern.pointers
    if batch != sorted(batch):
        values = values.reshape(*inner.shape, *values.shape[1:])
        values = values.permute(*batch, *range(count, values.ndim)).flatten(0, count)
        inner, pointers = inner.transpose(*batch, count), pointers.transpose(*batch, count)
        pattern = Pattern(
            pattern.layout, [x.shape[d] for d in (*batch, count, count + 1)], pointers=pointers, inner=inner
        )
    if dense != sorted(dense):
        values = values.permute(0, *[d - count - 1 for d in dense])
    return build(values, pattern if sparse == sorted(sparse) else pattern.transposed)


@handles("reshape")
def _reshape(op, inputs, attrs):
    """Adds and removes dimensions of size 1, for squeeze and unsqueeze; other shapes for tensors without dense dimensions."""
    (x,) = inputs
    shape = tuple(attrs["shape"])
    pattern = pattern_of(x)
    if pattern.layout in COMPRESSED or pattern.dims != x.ndim:
        raise refusal("reshape", pattern.layout)
    linear, xp = pattern.linear, xp_of(pattern.indices)
    rows = []
    for size in shape[::-1]:
        rows.append(linear % size if size else linear)
        linear = linear // size if size else linear
    indices = xp.stack(rows[::-1]) if rows else xp.zeros((0, pattern.count), np.int64)
    return build(values_of(x), Pattern(sparse_coo, shape, indices, coalesced=pattern.coalesced))


@handles("expand")
def _expand(op, inputs, attrs):
    (x,) = inputs
    if tuple(attrs["shape"]) != tuple(x.shape):
        raise RuntimeError(f"expand is unsupported for {words(raw_of(x))} tensors. Use Tensor.to_dense() first.")
    return build(values_of(x), pattern_of(x))


@handles("unbind")
def _unbind(op, inputs, attrs):
    (x,) = inputs
    before = (slice(None),) * attrs["dim"]
    return tuple(sliced(x, (*before, i)) for i in range(x.shape[attrs["dim"]]))


@handles("slice")
def _slice(op, inputs, attrs):
    (x,) = inputs
    index = attrs["index"]
    return sliced(x, index if isinstance(index, tuple) else (index,))


def _full(index, ndim):
    """Returns an index with one item for each dimension."""
    if any(i is None for i in index):
        raise NotImplementedError(
            "indexing: expected integers and slices for a sparse tensor, got None. Use unsqueeze()."
        )
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *[slice(None)] * (ndim - len(index) + 1), *index[at + 1 :])
    return (*index, *[slice(None)] * (ndim - len(index)))


def sliced(x, index):
    """Returns x[index], for integers and slices."""
    layout = pattern_of(x).layout
    index = _full(index, x.ndim)
    if layout in COMPRESSED:
        whole, batch = [isinstance(i, slice) for i in index], len(pattern_of(x).batch)
        if any(whole[:batch]) and not all(whole[batch : batch + 2]):
            raise RuntimeError(
                "select(): selecting sparse dimensions is not supported for batched sparse compressed tensors. Select a matrix first."
            )
        found = sliced(to_coo(x), index)
        if is_sparse(found):
            return to_compressed(found, layout, pattern_of(x).inner.dtype) if pattern_of(found).dims >= 2 else found
        return found
    pattern = pattern_of(x)
    xp = xp_of(pattern.indices)
    keep, rows, sizes, values = None, [], [], values_of(x)
    for d in range(pattern.dims):
        item, row, size = index[d], pattern.indices[d], pattern.sizes[d]
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            if (start, stop, step) == (0, size, 1):
                chosen = None
            else:
                chosen = (row >= start) & (row < stop) & ((row - start) % step == 0)
                row = (row - start) // step
            rows.append(row)
            sizes.append(len(range(start, stop, step)))
        else:
            chosen = row == _position(item, size, d)
        if chosen is not None:
            keep = chosen if keep is None else keep & chosen
    dense = tuple(index[pattern.dims :])
    if any(i != slice(None) for i in dense):
        values = values[(slice(None), *dense)]
    if not rows:
        if keep is not None:
            values = values.index_select(0, Tensor._wrap(xp.flatnonzero(keep)))
        return values.any(0) if values.dtype is dtypes.bool_ else values.sum(0, dtype=values.dtype)
    indices = xp.stack(rows)
    if keep is not None:
        elements = xp.flatnonzero(keep)
        indices, values = indices[:, elements], values.index_select(0, Tensor._wrap(elements))
    return build(values, Pattern(sparse_coo, sizes, indices, coalesced=pattern.coalesced))


def _position(item, size, dim):
    i = int(item)
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {size} at dimension {dim}")
    return i % size


@handles("index")
def _index(op, inputs, attrs):
    x, *arrays = inputs
    layout = attrs["layout"]
    places = [d for d, item in enumerate(layout) if not isinstance(item, slice)]
    if (
        len(arrays) != 1
        or len(places) != 1
        or raw_of(arrays[0]).ndim != 1
        or any(item != slice(None) for item in layout if isinstance(item, slice))
    ):
        raise NotImplementedError(
            "indexing: expected integers, slices or one list of indices for a sparse tensor. Call to_dense() first."
        )
    return selected(x, places[0], raw_of(arrays[0]))


def selected(x, dim, index):
    """Returns the slices of a tensor at some positions of a dimension."""
    layout = pattern_of(x).layout
    if layout in COMPRESSED:
        return to_compressed(selected(to_coo(x), dim, index), layout, pattern_of(x).inner.dtype)
    if index.dtype == bool:
        index = index.nonzero()[0]
    pattern, values = pattern_of(x), values_of(x)
    xp = xp_of(pattern.indices)
    if dim >= pattern.dims:
        return build(values.index_select(dim - pattern.dims + 1, Tensor._wrap(index)), pattern)
    size = pattern.sizes[dim]
    index = xp.asarray(index).astype(np.int64).reshape(-1)
    if len(index) and not bool(((index >= -size) & (index < size)).all()):
        raise IndexError(f"index_select(): expected indices in [0, {size}), got others.")
    index = xp.where(index < 0, index + size, index)
    # Sort the elements by their position in this dimension; each index reads one range of them.
    order = xp.argsort(pattern.indices[dim], kind="stable")
    rows = pattern.indices[dim][order]
    begins, ends = xp.searchsorted(rows, index), xp.searchsorted(rows, index, side="right")
    counts = ends - begins
    total = int(counts.sum()) if len(counts) else 0
    stops = xp.cumsum(counts)
    target = xp.searchsorted(stops, xp.arange(total), side="right")
    elements = order[begins[target] + xp.arange(total) - (stops - counts)[target]] if total else xp.zeros(0, np.int64)
    indices = pattern.indices[:, elements].copy()
    indices[dim] = target
    sizes = [*pattern.sizes[:dim], len(index), *pattern.sizes[dim + 1 :]]
    made = Pattern(sparse_coo, sizes, indices)
    out = build(values.index_select(0, Tensor._wrap(elements)), made)
    return coalesce(out) if pattern.coalesced else out


@handles("cat")
def _join(op, inputs, attrs):
    if not all(is_sparse(x) and pattern_of(x).layout is sparse_coo for x in inputs):
        raise RuntimeError("cat: expected COO tensors only. Convert the others with to_sparse_coo().")
    first = inputs[0]
    (dim,) = _dims(attrs.get("dim", 0), first.ndim)
    dims = pattern_of(first).dims
    if any(pattern_of(x).dims != dims or x.ndim != first.ndim for x in inputs):
        raise RuntimeError("cat: expected tensors with equal numbers of sparse and of dense dimensions.")
    for x in inputs:
        if any(n != m for d, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if d != dim):
            raise RuntimeError(
                f"cat: expected equal sizes except in dimension {dim}, got {tuple(x.shape)} and {tuple(first.shape)}."
            )
    xp = xp_of(pattern_of(first).indices)
    if dim >= dims:
        place = dim - dims + 1
        starts, total = 0, sum(x.shape[dim] for x in inputs)
        parts = []
        for x in inputs:
            values, n = values_of(x), x.shape[dim]
            before = values.new_zeros(*values.shape[:place], starts, *values.shape[place + 1 :])
            after = values.new_zeros(*values.shape[:place], total - starts - n, *values.shape[place + 1 :])
            from ..ops.movement import cat

            parts.append(cat([before, values, after], place))
            starts += n
        sizes = pattern_of(first).sizes
        indices = xp.concatenate([pattern_of(x).indices for x in inputs], axis=1)
        return build(_cat(parts), Pattern(sparse_coo, sizes, indices))
    indices, offset = [], 0
    for x in inputs:
        own = pattern_of(x).indices.copy()
        own[dim] += offset
        offset += x.shape[dim]
        indices.append(own)
    sizes = [*first.shape[:dim], offset, *first.shape[dim + 1 : dims]]
    made = Pattern(
        sparse_coo,
        sizes,
        xp.concatenate(indices, axis=1),
        coalesced=dim == 0 and all(pattern_of(x).coalesced for x in inputs),
    )
    return build(_cat([values_of(x) for x in inputs]), made)


@handles("stack")
def _stack(op, inputs, attrs):
    dim = attrs.get("dim", 0)
    dim = dim % (inputs[0].ndim + 1)
    from ..ops.movement import cat

    return cat([unsqueezed(x, dim) for x in inputs], dim)


def unsqueezed(x, dim):
    """Returns a COO tensor with a new dimension of size 1."""
    pattern = pattern_of(x)
    if dim > pattern.dims:
        return build(values_of(x).unsqueeze(dim - pattern.dims + 1), pattern)
    xp = xp_of(pattern.indices)
    indices = xp.insert(pattern.indices, dim, 0, axis=0)
    sizes = [*pattern.sizes[:dim], 1, *pattern.sizes[dim:]]
    return build(values_of(x), Pattern(sparse_coo, sizes, indices, coalesced=pattern.coalesced))


@handles("dropout")
def _dropout(op, inputs, attrs):
    raise NotImplementedError(
        "dropout: expected a dense tensor. Apply dropout to values() and create a new sparse tensor."
    )
