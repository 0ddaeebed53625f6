"""Ops that move elements without changing them: shapes, axes, joining, splitting, repeating."""

import functools
import math
import operator

from .._array import Size
from .._tensor import is_tensor
from ..backend import MetaArray, Namespace, address, is_raw, memory_owner, ndarray
from ..backend.memory_format import axes_in_memory, channel_axes, channels_last, channels_last_3d, follows, inverse
from ..base import dtypes
from ..base.errors import kind
from ..dispatch.bind import public
from ..dispatch.errors import broadcast
from ..dispatch.op import name_node, op
from ..dispatch.unwrap import raw_of, shape_of
from .reduction import normalize_dim, normalize_dims


def as_shape(shape):
    """A shape given as several ints, a tuple, a list or a Size, as a tuple of ints.

    Raises:
        TypeError: something else is among them.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, Size)):
        shape = shape[0]
    for n in shape:
        if type(n) is not int:
            break
    else:
        return tuple(shape)
    try:
        return tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(
            f"argument 'size' must be tuple of ints, not {', '.join(kind(n) for n in shape)} ({shape})."
        ) from None


@op(dtype="same", view=True, name="reshape")
def _reshape(xp, input, *, shape):
    return xp.reshape(input, shape)


_reshape.grad(input=lambda g, shapes, xp: xp.reshape(g, shapes[0]))
_flatten, _squeeze, _unsqueeze = (_reshape.named(name) for name in ("Flatten", "Squeeze", "Unsqueeze"))


def infer_shape(input, shape, name):
    """`shape` with -1 replaced by what is left.

    Raises:
        RuntimeError: the number of elements does not fit, or there are two -1.
    """
    n = raw_of(input).size
    known = math.prod(shape)
    if known == n and (not shape or min(shape) >= 0):
        return shape
    if known < 0 and min(shape) == -1 and shape.count(-1) == 1 and not n % known:
        return tuple([n // -known if size == -1 else size for size in shape])
    if shape.count(-1) > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred, the shape given is {list(shape)}")
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {n}")


@public(inplace=False)
def reshape(input, *shape, **named):
    """The same elements in the same order in another shape; a view where the strides allow it.

    Example:
        >>> mytorch.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    return _reshape.fast_call(input, infer_shape(input, as_shape(named["shape"] if named else shape), "reshape"))


@public(function=False, inplace=False)
def view(input, *shape, **named):
    """The same memory in another shape (or, given a dtype, read as another dtype).

    Raises:
        RuntimeError: the strides don't allow it; `reshape` copies then.

    Example:
        >>> x = mytorch.zeros(4)
        >>> x.view(2, 2)[0, 1] = 1  # the same memory
        >>> x.tolist()
        [0.0, 1.0, 0.0, 0.0]
    """
    if (len(shape) == 1 and isinstance(shape[0], dtypes.dtype)) or "dtype" in named:
        return _view_dtype(input, dtype=named.get("dtype", shape[0] if shape else None))
    wanted = infer_shape(input, as_shape(named.get("size", shape)), "view")
    out = _reshape.fast_call(input, wanted)
    raw = raw_of(input)
    if raw.size and not isinstance(raw, MetaArray) and raw_of(out).base is not (raw if raw.base is None else raw.base):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            f"contiguous subspaces): {tuple(raw.shape)} as {wanted}. Use .reshape(...) instead."
        )
    return out


@op(dtype="same", view=True)
def _view_dtype(xp, input, *, dtype):
    """input's bytes read as another dtype; no gradient."""
    return input.view(dtype.numpy)


@public(function=False, inplace=False)
def view_as(input, other):
    """input viewed in other's shape."""
    return view(input, tuple(other.shape))


@public(function=False, inplace=False)
def reshape_as(input, other):
    """input reshaped to other's shape."""
    return reshape(input, tuple(other.shape))


@op(dtype="same", view=True, name="permute")
def _permute(xp, input, *, dims):
    return xp.transpose(input, dims)


_permute.grad(input=lambda g, dims, xp: xp.transpose(g, inverse(dims)) if dims else g)
_transpose = _permute.named("Transpose")


@public(inplace=False)
def permute(input, *dims, **named):
    """The axes in another order: axis i of the result is axis dims[i] of input.

    Raises:
        RuntimeError: dims does not name every axis once.

    Example:
        >>> mytorch.zeros(2, 3, 4).permute(2, 0, 1).shape
        mytorch.Size([4, 2, 3])
    """
    order = as_shape(named.get("dims", dims))
    ndim = input.ndim
    if len(order) != ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(order)}"
        )
    found = tuple([normalize_dim(d, ndim) for d in order])
    if len(set(found)) != ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {order}.")
    return _permute.fast_call(input, found)


@public(names=("swapaxes", "swapdims"), inplace=False, spellings={"axis0": "dim0", "axis1": "dim1"})
def transpose(input, dim0, dim1):
    """Two axes exchanged.

    Args:
        dim0: an axis.
        dim1: another.

    Example:
        >>> mytorch.transpose(tensor([[1, 2], [3, 4]]), 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    ndim = input.ndim
    a, b = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    order = list(range(ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return _transpose.fast_call(input, tuple(order))


@public(inplace=False)
def t(input):
    """The transpose of a matrix; vectors and numbers are returned as they are.

    Raises:
        RuntimeError: more than two axes.

    Example:
        >>> mytorch.zeros(2, 3).t().shape
        mytorch.Size([3, 2])
    """
    ndim = input.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return _transpose.fast_call(input, (1, 0)[2 - ndim :])


@public(names=("moveaxis",), inplace=False)
def movedim(input, source, destination):
    """Axes moved from the places `source` to the places `destination`.

    Args:
        source: an axis or several.
        destination: their places in the result.

    Raises:
        RuntimeError: axes named twice, or not as many sources as destinations.

    Example:
        >>> mytorch.movedim(mytorch.zeros(2, 3, 4), 0, -1).shape
        mytorch.Size([3, 4, 2])
    """
    sources, targets = (
        [normalize_dim(d, input.ndim) for d in (dims if isinstance(dims, (tuple, list)) else (dims,))]
        for dims in (source, destination)
    )
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({source}) should contain the same number of dims as destination ({destination})"
        )
    if len({*sources}) < len(sources) or len({*targets}) < len(targets):
        raise RuntimeError(f"movedim: repeated dim in source ({source}) or destination ({destination})")
    order = [d for d in range(input.ndim) if d not in sources]
    for target, d in sorted(zip(targets, sources, strict=True)):
        order.insert(target, d)
    return _permute(input, dims=tuple(order))


@public(inplace=False)
def adjoint(input):
    """The last two axes exchanged (and the complex conjugate taken)."""
    if input.ndim < 2:
        raise RuntimeError(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor."
        )
    return transpose(input, -2, -1).conj()


@public(names=("ravel",), inplace=False)
def flatten(input, start_dim=0, end_dim=-1):
    """The axes from start_dim to end_dim as one.

    Args:
        start_dim: first axis.
        end_dim: last axis.

    Raises:
        RuntimeError: start_dim comes after end_dim.

    Example:
        >>> mytorch.zeros(2, 3, 4).flatten(start_dim=1).shape
        mytorch.Size([2, 12])
    """
    own = shape_of(input)
    shape, ndim = own or (1,), len(own)
    first, last = normalize_dim(start_dim, ndim), normalize_dim(end_dim, ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last and ndim:
        return input
    return _flatten.fast_call(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@public(inplace=False)
def unflatten(input, dim, sizes):
    """The axis `dim` split into several of the given sizes, one of which may be -1.

    Args:
        sizes: the new axes; their product is the axis's size.

    Example:
        >>> mytorch.zeros(2, 12).unflatten(1, (3, -1)).shape
        mytorch.Size([2, 3, 4])
    """
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d]
    sizes = tuple(sizes)
    known = math.prod(s for s in sizes if s != -1)
    if -1 in sizes and known and n % known == 0:
        sizes = tuple(n // known if s == -1 else s for s in sizes)
    if math.prod(sizes) != n:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({n}) in the input tensor"
        )
    return _reshape(input, shape=(*input.shape[:d], *sizes, *input.shape[d + 1 :]))


@public(spellings={"axis": "dim"})
def squeeze(input, dim=None):
    """Without the axes of length 1: all of them, or those of `dim` that have it.

    Example:
        >>> mytorch.zeros(1, 2, 1).squeeze().shape, mytorch.zeros(1, 2, 1).squeeze(0).shape
        (mytorch.Size([2]), mytorch.Size([2, 1]))
    """
    dims = () if isinstance(dim, (tuple, list)) and not dim else normalize_dims(dim, input.ndim, "squeeze")
    own = enumerate(shape_of(input))
    return _squeeze.fast_call(input, tuple([n for i, n in own if n != 1 or (dims is not None and i not in dims)]))


@public()
def unsqueeze(input, dim):
    """With a new axis of length 1 at `dim`.

    Example:
        >>> mytorch.zeros(2, 3).unsqueeze(1).shape
        mytorch.Size([2, 1, 3])
    """
    shape = shape_of(input)
    d = normalize_dim(dim, len(shape) + 1)
    return _unsqueeze.fast_call(input, (*shape[:d], 1, *shape[d:]))


@op(dtype="same", view=True, name="expand")
def _expand(xp, input, *, shape):
    out = xp.broadcast_to(input, shape)
    if type(out) is ndarray and input.flags.writeable:
        out.flags.writeable = True  # `check_writable` refuses where elements share a place
    return out


_expand.grad(input=lambda g: g)  # the engine sums to the input's shape


@public(function=False, inplace=False)
def expand(input, *sizes, **named):
    """Axes of length 1 repeated to the given sizes without copying; -1 leaves an axis as it is.

    Raises:
        RuntimeError: an axis of another length would have to change.

    Example:
        >>> tensor([[1], [2]]).expand(-1, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
    """
    sizes, own = as_shape(named.get("size", sizes)), shape_of(input)
    if -1 not in sizes:
        try:
            return _expand.fast_call(input, sizes)
        except (RuntimeError, ValueError):
            pass  # what follows says what does not fit
    lead = len(sizes) - len(own)
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(sizes)}) must be greater or equal to the number of dimensions in "
            f"the tensor ({len(own)})"
        )
    shape = []
    for i, n in enumerate(sizes):
        have = own[i - lead] if i >= lead else 1
        if n == -1 and i < lead:
            raise RuntimeError("expand: the size -1 isn't allowed in a leading, non-existing dimension.")
        if n != -1 and have not in (1, n):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension "
                f"{i}.  Target sizes: {list(sizes)}.  Tensor sizes: {list(own)}"
            )
        shape.append(have if n == -1 else n)
    return _expand.fast_call(input, tuple(shape))


@public(function=False, inplace=False)
def expand_as(input, other):
    """input expanded to other's shape."""
    return expand(input, *other.shape)


@public(inplace=False)
def broadcast_to(input, size):
    """input expanded to `size`.

    Example:
        >>> mytorch.broadcast_to(tensor([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expand(input, *size)


@public(inplace=False, method=False)
def broadcast_tensors(*tensors):
    """All tensors expanded to their common shape."""
    try:
        shape = broadcast(*(t.shape for t in tensors))
    except ValueError:
        raise RuntimeError(f"broadcast_tensors: shapes {[tuple(t.shape) for t in tensors]} don't broadcast.") from None
    return tuple(expand(t, *shape) for t in tensors)


@public(inplace=False)
def contiguous(input, memory_format=None):
    """input with its elements in row-major order: itself if they are, else a copy.

    Example:
        >>> x = mytorch.zeros(2, 3).t()
        >>> x.is_contiguous(), x.contiguous().is_contiguous()
        (False, True)
    """
    raw = raw_of(input)
    axes = None if memory_format is None else channel_axes(raw.ndim, memory_format)
    if (raw if axes is None else raw.transpose(axes)).flags.c_contiguous:
        return input
    return _clone_ordered(input, axes=axes)


@op(dtype="same", name="clone")
def _clone(xp, input):
    return input.copy("K")


_clone.grad(input=lambda g: g)


@op(dtype="same", grad_name="Clone")
def _clone_ordered(xp, input, *, axes):
    if axes is None:
        return input.copy("C") if input.flags.c_contiguous else xp.ascontiguousarray(input)
    return input.transpose(axes).copy("C").transpose(inverse(axes))


_clone_ordered.grad(input=lambda g: g)


@public(inplace=False)
def clone(input, *, memory_format=None):
    """A copy, through which gradients flow.

    Example:
        >>> x = tensor([1.0], requires_grad=True)
        >>> (2 * x.clone()).backward()
        >>> x.grad.tolist()
        [2.0]
    """
    if memory_format is None:
        return _clone.fast_call(input)
    return _clone_ordered(input, axes=axes_in_memory(raw_of(input), memory_format))


def laid_out_as(input, out):
    """out, with its channels last in memory if the input has its own there, which PyTorch carries through; else in order."""
    raw = raw_of(input)
    if raw.flags.c_contiguous or raw.ndim not in (4, 5):
        return out if raw_of(out).flags.c_contiguous else contiguous(out)
    last = channels_last if raw.ndim == 4 else channels_last_3d
    return contiguous(out, memory_format=last) if follows(raw, last) else out


# -- joining ---------------------------------------------------------------------------------------------------


@op(name="cat", grad_name="Concat")
def _cat(xp, *tensors, dim=0):
    return xp.concatenate(tensors, axis=dim)


def _cat_vjp(g, shapes, dim, needs, xp):
    grads, start = [], 0
    for i, shape in enumerate(shapes):
        n = shape[dim]
        wanted = i < len(needs) and needs[i]  # `needs` ends at the last input that has an edge
        grads.append(g[(slice(None),) * dim + (slice(start, start + n),)] if wanted else None)
        start += n
    return grads


_cat.vjp(_cat_vjp)


@public(method=False, names=("concat", "concatenate"))
def cat(tensors, dim=0, *, axis=None):
    """Tensors joined along an existing axis; their other sizes must agree. Empty 1-d tensors are passed over.

    Args:
        tensors: a sequence. dim: the axis along which they are joined.

    Raises:
        RuntimeError: no tensors, or sizes that don't agree.
        TypeError: not a sequence of tensors.

    Example:
        >>> mytorch.cat([tensor([[1], [2]]), tensor([[3], [4]])], dim=1).tolist()
        [[1, 3], [2, 4]]
    """
    if is_tensor(tensors) or not hasattr(tensors, "__iter__"):
        raise TypeError("cat(): argument 'tensors' (position 1) must be tuple of Tensors, not a single one.")
    dim, tensors = dim if axis is None else axis, list(tensors)
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    try:
        return _cat.fast_call(*tensors, dim=normalize_dim(dim, len(shape_of(tensors[0]))))
    except (IndexError, RuntimeError, ValueError):
        pass  # empty vectors to pass over, or sizes that don't agree: looked for only now
    tensors = _joinable(tensors)
    return _cat.fast_call(*tensors, dim=_agreeing([shape_of(t) for t in tensors], dim))


def _joinable(tensors):
    """Tensors without the empty vectors among them, whose dtype counts all the same."""
    kept = [t for t in tensors if shape_of(t) != (0,)] or tensors[:1]
    if any(t.dtype is not kept[0].dtype for t in tensors):
        common = functools.reduce(dtypes.promote_types, (t.dtype for t in tensors))
        kept = [t.to(common) for t in kept]
    return kept


def _agreeing(shapes, dim):
    """The axis along which tensors of these shapes can be joined; an error says why there is none."""
    first = shapes[0]
    if not first:
        raise RuntimeError("cat: zero-dimensional tensor (at position 0) cannot be concatenated")
    d = normalize_dim(dim, len(first))
    for i, shape in enumerate(shapes):
        if shape != first and (len(shape) != len(first) or shape[:d] + shape[d + 1 :] != first[:d] + first[d + 1 :]):
            raise RuntimeError(
                f"cat: Sizes of tensors must match except in dimension {d}. Expected {first} but got {shape} for tensor "
                f"number {i} in the list."
            )
    return d


@op(name="stack")
def _stack(xp, *tensors, dim=0):
    return xp.stack(tensors, axis=dim)


def _stack_vjp(g, shapes, dim, needs, xp):
    lead = (slice(None),) * dim
    return [g[(*lead, i)] if i < len(needs) and needs[i] else None for i in range(len(shapes))]


_stack.vjp(_stack_vjp)


@public(method=False)
def stack(tensors, dim=0, *, axis=None):
    """Tensors of one shape joined along a new axis.

    Args:
        tensors: a sequence. dim: the place of the new axis in the result.

    Raises:
        RuntimeError: no tensors, or shapes that differ.

    Example:
        >>> mytorch.stack([tensor([1, 2]), tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = shape_of(tensors[0])
    d = normalize_dim(dim if axis is None else axis, len(first) + 1)
    try:
        return _stack.fast_call(*tensors, dim=d)
    except (RuntimeError, ValueError):
        for i, other in enumerate(tensors):
            if shape_of(other) != first:
                raise RuntimeError(
                    f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and {list(other.shape)} at entry {i}"
                ) from None
        raise


# -- splitting -----------------------------------------------------------------------------------------------


@op(dtype="same", view=True, outputs="list", name="split")
def _split(xp, input, *, sizes, dim):
    lead = (slice(None),) * dim
    parts, start = [], 0
    for n in sizes:
        parts.append(input[(*lead, slice(start, start + n))])
        start += n
    return parts


def _rejoined(xp, parts, dim):
    """The parts one after the other along an axis; no copy where a formula wrote them into one array already."""
    first = parts[0]
    if is_raw(first) and len(parts) > 1 and first.size:
        owner, strides, at, length = memory_owner(first), first.strides, address(first), 0
        for part in parts:
            if (
                memory_owner(part) is not owner
                or part.strides != strides
                or part.dtype != first.dtype
                or address(part) != at + length * strides[dim]
            ):
                break
            length += part.shape[dim]
        else:
            shape = (*first.shape[:dim], length, *first.shape[dim + 1 :])
            return xp.lib.stride_tricks.as_strided(first, shape, strides)
    return xp.concatenate(parts, axis=dim)


_split.grad(input=lambda g, dim, xp: _rejoined(xp, g, dim))


@public(inplace=False)
def split(tensor, split_size_or_sections=None, dim=0, **named):
    """Chunks along an axis, as views: of one size (the last may be smaller), or of the sizes in a list.

    Args:
        tensor: the tensor.
        split_size_or_sections: a length, or a list of them.

    Raises:
        RuntimeError: the sizes don't add up to the axis.

    Example:
        >>> [x.tolist() for x in mytorch.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
    """
    sections = named.get("split_size", split_size_or_sections)
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = normalize_dim(dim, tensor.ndim)
    n = shape_of(tensor)[d]
    if isinstance(sections, (list, tuple)):
        sizes = tuple(int(s) for s in sections)
        if sum(sizes) != n or any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {d}), but got "
                f"split_sizes={list(sizes)}"
            )
    else:
        size = int(sections)
        if size < 0 or (size == 0 and n):
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
        sizes = tuple(min(size, n - start) for start in range(0, n, size)) if n else (0,)
    return _split(tensor, sizes=sizes, dim=d)


@public(inplace=False)
def chunk(input, chunks, dim=0):
    """At most `chunks` chunks of equal size along an axis (the last may be smaller), as views.

    Args:
        chunks: how many at most.

    Raises:
        RuntimeError: chunks is not positive.

    Example:
        >>> [x.tolist() for x in mytorch.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
    """
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[normalize_dim(dim, input.ndim)]
    if n == 0:
        return split(input, [0] * chunks, dim)
    parts = split(input, -(-n // chunks), dim)
    name_node(parts[0], "Chunk")
    return parts


@op(dtype="same", view=True, outputs="list", name="unbind")
def _unbind(xp, input, *, dim):
    lead = (slice(None),) * dim
    return [input[(*lead, i, ...)] for i in range(input.shape[dim])]  # with ..., of a vector too: a view, no number


_unbind.grad(input=lambda g, dim, xp: xp.stack(g, axis=dim))


@public(inplace=False)
def unbind(input, dim=0):
    """The slices along an axis, without it, as views.

    Example:
        >>> [x.tolist() for x in tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
    """
    if input.ndim == 0:
        raise RuntimeError("unbind: Dimension specified as 0 but tensor has no dimensions")
    return _unbind(input, dim=normalize_dim(dim, input.ndim))


# -- repeating, flipping -----------------------------------------------------------------------------------------


@op(dtype="same", name="repeat")
def _repeat(xp, input, *, repeats):
    shape = (1,) * (len(repeats) - input.ndim) + tuple(input.shape)
    if not isinstance(xp, Namespace):
        return xp.tile(input, repeats)
    out = xp.empty([n for pair in zip(repeats, shape, strict=True) for n in pair], input.dtype)
    out[...] = input.reshape([n for size in shape for n in (1, size)])
    return out.reshape([times * n for times, n in zip(repeats, shape, strict=True)])


def _repeat_grad(g, shape, repeats, xp):
    full = (1,) * (len(repeats) - len(shape)) + tuple(shape)
    folded = xp.reshape(g, tuple(n for pair in zip(repeats, full, strict=True) for n in pair))
    return xp.reshape(xp.sum(folded, axis=tuple(range(0, 2 * len(full), 2))), shape)


_repeat.grad(input=_repeat_grad)


@public(function=False, inplace=False)
def repeat(input, *repeats, **named):
    """input copied repeats[i] times along each axis i.

    Raises:
        RuntimeError: fewer numbers than axes.

    Example:
        >>> tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = as_shape(named.get("repeats", repeats))
    if len(times) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"{times} for shape {tuple(input.shape)}."
        )
    if min(times, default=0) < 0:
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension: {times}")
    return _repeat(input, repeats=times)


@public(inplace=False)
def tile(input, *dims, **named):
    """As repeat, with missing leading numbers taken as 1.

    Example:
        >>> mytorch.tile(tensor([[1, 2]]), (2,)).tolist()
        [[1, 2, 1, 2]]
    """
    times = as_shape(named.get("dims", dims))
    return _repeat(input, repeats=(1,) * (input.ndim - len(times)) + times)


@op(dtype="same", name="flip")
def _flip(xp, input, *, dims):
    return xp.flip(input, dims).copy()


_flip.grad(input=lambda g, dims, xp: xp.call(_flip, g, dims=dims))


@public(inplace=False)
def flip(input, *dims, **named):
    """The order of the elements reversed along the given axes (a copy).

    Example:
        >>> mytorch.flip(tensor([[1, 2], [3, 4]]), (1,)).tolist()
        [[2, 1], [4, 3]]
    """
    axes = tuple(normalize_dim(d, input.ndim) for d in as_shape(named.get("dims", dims)))
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"dim {max(axes, key=axes.count)} appears multiple times in the list of dims")
    return _flip(input, dims=axes if input.ndim else ())
