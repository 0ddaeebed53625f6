"""Ops that move elements without changing them: shapes, axes, joining, splitting, repeating."""

import functools
import math
import operator

from ..arrays import MetaArray, Namespace, address, device_guard, dtypes, is_raw, memory_owner, ndarray, numpy_ns
from ..arrays.array import Size
from ..arrays.errors import kind
from ..arrays.memory_format import (
    added_strides,
    axes_in_memory,
    channel_axes,
    channels,
    channels_of_all,
    expanded_strides,
    inverse,
    preserve,
    preserve_format,
    view_strides,
    with_strides,
)
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import get_mode
from ..kernels import parts
from .dispatch.bind import public
from .dispatch.errors import broadcast
from .dispatch.layouts import other_layout
from .dispatch.op import name_node, op
from .dispatch.record import RECORDS
from .dispatch.unwrap import raw_of, shape_of
from .reduction import normalize_dim, normalize_dims


def as_shape(shape):
    """Returns a shape, given as several ints, a tuple, a list or a Size, as a tuple of ints.

    Raises:
        TypeError: an item is not an integer.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, Size)):
        shape = shape[0]
    for n in shape:
        if type(n) is not int:
            break
    else:
        return tuple(shape)
    try:
        if type(shape[0]) is bool:  # PyTorch looks at the first size only
            raise TypeError
        return tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(
            f"argument 'size' must be tuple of ints, not {', '.join(kind(n) for n in shape)} ({shape})."
        ) from None


def several_or_named(function, given, named, *words):
    """Returns the values of `*given`, or the one value in `named`, which may have any of the names `words`.

    Raises:
        TypeError: another keyword is in `named`, or both are given.
    """
    for word in named:
        if word not in words or len(named) > 1:
            raise TypeError(f"{function}() got an unexpected keyword argument '{word}'")
    if given:
        raise TypeError(f"{function}() got multiple values for argument '{word}'")
    value = named[word]
    return (value,) if isinstance(value, int) else value


@op(dtype="same", view=True, name="reshape")
def _reshape(xp, input, *, shape, axes=None):
    """input in another shape.

    `axes` has the axis of the input for each axis of the result, and None for a new one; it is () if NumPy's strides are PyTorch's.
    """
    out = xp.reshape(input, shape)
    if 1 not in shape or axes == () or type(out) is not ndarray or out.base is None:
        return out
    if axes:
        return with_strides(out, added_strides(input.shape, input.strides, input.itemsize, axes))
    return with_strides(out, view_strides(input.shape, input.strides, input.itemsize, shape))


_reshape.grad(input=lambda g, shapes, xp: xp.reshape(g, shapes[0]))
_flatten, _unsqueeze = _reshape.named("Flatten"), _reshape.named("Unsqueeze")
_squeeze = [_reshape.named("Squeeze", f"SqueezeBackward{i}") for i in range(3)]


def infer_shape(input, shape, name):
    """Replaces -1 in `shape` by the size that follows from the number of elements.

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
    """Returns the elements in the same order in another shape; a view if the strides allow it.

    Use it when you don't care whether the result shares memory. `view` raises an error instead of copying.

    Args:
        shape: new shape, as separate integers or one tuple. One size may be -1; it follows from the others.

    Example:
        >>> mytorch.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    if named:
        shape = several_or_named("reshape", shape, named, "shape")
    return _reshape.fast_call(input, infer_shape(input, as_shape(shape), "reshape"))


@public(function=False, inplace=False)
def view(input, *shape, **named):
    """Returns the same memory in another shape or, given a dtype, as another dtype.

    Use it when you rely on shared memory, since it never copies. `reshape` copies if it has to.

    Args:
        shape: new shape, as separate integers or one tuple, or a dtype. One size may be -1.

    Raises:
        RuntimeError: the strides do not allow it. Use `reshape`, which then copies.

    Example:
        >>> x = mytorch.zeros(4)
        >>> x.view(2, 2)[0, 1] = 1  # the same memory
        >>> x.tolist()
        [0.0, 1.0, 0.0, 0.0]
    """
    if named:
        shape = several_or_named("view", shape, named, "size", "dtype")
    if isinstance(shape, dtypes.dtype) or (len(shape) == 1 and isinstance(shape[0], dtypes.dtype)):
        dtype = shape if isinstance(shape, dtypes.dtype) else shape[0]
        _check_wider(input, dtype)
        out = _view_dtype(input, dtype=dtype)
        if isinstance(out, Tensor) and out.dtype is not input.dtype:
            # As in PyTorch: other bytes have no derivative, so the graph of the input does not change.
            out._mt_view = None
        return out
    wanted = infer_shape(input, as_shape(shape), "view")
    out = _reshape.fast_call(input, wanted)
    raw = raw_of(input)
    on_meta = isinstance(raw, MetaArray) and raw.batch is None
    if raw.size and not on_meta and memory_owner(raw_of(out)) is not memory_owner(raw):
        if (other := other_layout("view", input)) is not None:
            return other(input, wanted)
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            f"contiguous subspaces): {tuple(raw.shape)} as {wanted}. Use .reshape(...) instead."
        )
    return out


def _check_wider(input, dtype):
    """Checks that the elements of a tensor are whole elements of a wider dtype."""
    ratio, ndim = dtype.itemsize // input.dtype.itemsize, input.ndim
    if ratio < 2 or not ndim:
        return
    what = f"to view {dtypes.word_of(input.dtype)} as {dtypes.word_of(dtype)} (different element sizes)"
    found = {"size(-1)": input.shape[-1], "storage_offset()": input.storage_offset()}
    if input.stride(-1) == 1:
        found |= {f"stride({i})": input.stride(i) for i in range(ndim - 1)}
    for name, number in found.items():
        if number % ratio:
            raise RuntimeError(f"self.{name} must be divisible by {ratio} {what}, but got {number}")


@op(dtype="same", view=True, differentiable=0)
def _view_dtype(xp, input, *, dtype):
    """input's bytes read as another dtype. As in PyTorch, gradients end here."""
    gaps = input.strides[-1] != input.itemsize if input.ndim else True
    if dtype.itemsize != input.itemsize and gaps and input.size:
        rule = (
            f"stride(-1) must be 1, not {input.strides[-1] // input.itemsize}," if input.ndim else "dim() cannot be 0"
        )
        own = dtypes.word_of(dtypes.from_numpy(input.dtype))
        raise RuntimeError(f"view: self.{rule} to view {own} as {dtypes.word_of(dtype)} (different element sizes)")
    return input.view(dtype.numpy)


@public(function=False, inplace=False)
def view_as(input, other):
    """Returns a view with the shape of another tensor.

    Args:
        other: tensor with the shape of the result.

    Example:
        >>> mytorch.arange(6).view_as(mytorch.zeros(2, 3)).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    return view(input, tuple(other.shape))


@public(function=False, inplace=False)
def reshape_as(input, other):
    """Reshapes a tensor to the shape of another tensor.

    Args:
        other: tensor with the shape of the result.
    """
    return reshape(input, tuple(other.shape))


@op(dtype="same", view=True, name="permute")
def _permute(xp, input, *, dims):
    return xp.transpose(input, dims)


_permute.grad(input=lambda g, dims, xp: xp.transpose(g, inverse(dims)) if dims else g)
_transpose, _t = _permute.named("Transpose"), _permute.named("Transpose", "TBackward0")


@public(inplace=False)
def permute(input, *dims, **named):
    """Reorders the dimensions: dimension i of the result is dimension dims[i] of the input.

    Use it to reorder dimensions, such as (N, H, W, C) to (N, C, H, W). `reshape` would mix up the elements.

    Args:
        dims: order of the dimensions, as separate integers or one tuple.

    Raises:
        RuntimeError: `dims` does not contain every dimension once.

    Example:
        >>> mytorch.zeros(2, 3, 4).permute(2, 0, 1).shape
        mytorch.Size([4, 2, 3])
    """
    if named:
        dims = several_or_named("permute", dims, named, "dims")
    order = as_shape(dims)
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
    """Swaps two dimensions.

    Use it to swap two dimensions, and `permute` to reorder more.

    Args:
        dim0: first dimension.
        dim1: second dimension.

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
    """Transposes a matrix; returns vectors and numbers unchanged.

    Args:
        input: tensor with at most two dimensions.

    Raises:
        RuntimeError: there are more than two dimensions.

    Example:
        >>> mytorch.zeros(2, 3).t().shape
        mytorch.Size([3, 2])
    """
    ndim = input.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return _t.fast_call(input, (1, 0)[2 - ndim :])


@public(names=("moveaxis",), inplace=False)
def movedim(input, source, destination):
    """Moves dimensions to other positions. The other dimensions keep their order.

    Args:
        source: dimension or dimensions to move.
        destination: positions in the result.

    Raises:
        RuntimeError: a dimension occurs twice, or the numbers of sources and destinations differ.

    Example:
        >>> mytorch.movedim(mytorch.zeros(2, 3, 4), 0, -1).shape
        mytorch.Size([3, 4, 2])
    """
    sources, targets = (dims if isinstance(dims, (tuple, list)) else (dims,) for dims in (source, destination))
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({source}) should contain the same number of dims as destination ({destination})"
        )
    sources, targets = ([normalize_dim(d, input.ndim) for d in dims] for dims in (sources, targets))
    if len({*sources}) < len(sources) or len({*targets}) < len(targets):
        raise RuntimeError(f"movedim: repeated dim in source ({source}) or destination ({destination})")
    if input.ndim == 0:
        return _permute(input, dims=())
    order = [d for d in range(input.ndim) if d not in sources]
    for target, d in sorted(zip(targets, sources, strict=True)):
        order.insert(target, d)
    return _permute(input, dims=tuple(order))


@public(inplace=False)
def adjoint(input):
    """Swaps the last two dimensions and computes the complex conjugate."""
    if input.ndim == 0:
        return input.conj()
    if input.ndim < 2:
        raise RuntimeError(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor."
        )
    return transpose(input, -2, -1).conj()


@public(inplace=False)
def ravel(input):
    """Returns the elements in row-major order as a vector: a view if the tensor is contiguous, otherwise a copy.

    Example:
        >>> mytorch.ravel(tensor([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    return contiguous(input).view(-1)


@public(inplace=False)
def flatten(input, start_dim=0, end_dim=-1):
    """Joins the dimensions from start_dim to end_dim into one.

    Args:
        start_dim: first dimension (default: 0).
        end_dim: last dimension (default: -1).

    Raises:
        RuntimeError: start_dim is after end_dim.

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
    """Splits a dimension into several.

    Args:
        dim: dimension to split.
        sizes: sizes of the new dimensions. One size may be -1.

    Example:
        >>> mytorch.zeros(2, 12).unflatten(1, (3, -1)).shape
        mytorch.Size([2, 3, 4])
    """
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d]
    sizes = tuple(sizes)
    if sizes.count(-1) > 1:
        raise RuntimeError("unflatten: only one dimension can be inferred")
    known = math.prod(s for s in sizes if s != -1)
    if -1 in sizes and known and n % known == 0:
        sizes = tuple(n // known if s == -1 else s for s in sizes)
    if math.prod(sizes) != n:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({n}) in the input tensor"
        )
    return _reshape(input, shape=(*input.shape[:d], *sizes, *input.shape[d + 1 :]))


@public(spellings={"axis": "dim"})
def squeeze(input, dim=None, *dims):
    """Removes dimensions of size 1.

    Args:
        dim: dimension or dimensions to remove if their size is 1 (default: None, all).
        *dims: further dimensions, as in `x.squeeze(0, 1)`.

    Example:
        >>> mytorch.zeros(1, 2, 1).squeeze().shape, mytorch.zeros(1, 2, 1).squeeze(0).shape
        (mytorch.Size([2]), mytorch.Size([2, 1]))
    """
    dim = (dim, *dims) if dims else dim
    dims = () if isinstance(dim, (tuple, list)) and not dim else normalize_dims(dim, input.ndim, "squeeze")
    shape, kind = shape_of(input), 0 if dim is None else 1 + isinstance(dim, (tuple, list))
    rest = tuple([n for i, n in enumerate(shape) if n != 1 or (dims is not None and i not in dims)])
    axes = tuple([i for i, n in enumerate(shape) if n != 1 or i not in dims]) if 1 in rest else ()
    return _squeeze[kind].fast_call(input, rest, axes)


@public()
def unsqueeze(input, dim):
    """Inserts a dimension of size 1.

    Args:
        dim: position of the new dimension.

    Example:
        >>> mytorch.zeros(2, 3).unsqueeze(1).shape
        mytorch.Size([2, 1, 3])
    """
    raw = raw_of(input)
    shape = raw.shape
    d = normalize_dim(dim, len(shape) + 1)
    if type(raw) is not ndarray and (other := other_layout("unsqueeze", input)) is not None:
        return other(input, d)
    axes = (*range(d), None, *range(d, len(shape))) if 1 in shape or d == len(shape) else ()
    return _unsqueeze.fast_call(input, (*shape[:d], 1, *shape[d:]), axes)


@op(dtype="same", view=True, name="expand")
def _expand(xp, input, *, shape):
    out = xp.broadcast_to(input, shape)
    if type(out) is ndarray:
        if input.flags.writeable:
            out.flags.writeable = True  # `check_writable` refuses where elements share a place
        if 1 in shape:
            out = with_strides(out, expanded_strides(input.shape, input.strides, input.itemsize, shape))
    return out


_expand.grad(input=lambda g: g)  # the engine sums to the input's shape


@public(function=False, inplace=False)
def expand(input, *sizes, **named):
    """Repeats dimensions of size 1 to the given sizes, as a view.

    Use it when the copies are only read: it takes no memory, unlike `repeat`.

    Args:
        sizes: sizes, as separate integers or one tuple. -1 keeps a size.

    Raises:
        RuntimeError: a dimension with another size would change.

    Example:
        >>> tensor([[1], [2]]).expand(-1, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
    """
    if named:
        sizes = several_or_named("expand", sizes, named, "size")
    sizes, own = as_shape(sizes), shape_of(input)
    if -1 not in sizes:
        try:
            return _expand.fast_call(input, sizes)
        except (RuntimeError, ValueError):
            pass  # the checks below find the reason
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
    """Expands a tensor to the shape of another tensor.

    Args:
        other: tensor with the shape of the result.

    Example:
        >>> tensor([[1], [2]]).expand_as(mytorch.zeros(2, 3)).tolist()
        [[1, 1, 1], [2, 2, 2]]
    """
    return expand(input, *other.shape)


@public(inplace=False)
def broadcast_to(input, *size, **named):
    """Expands a tensor to a shape.

    Args:
        size: the shape, as separate integers or one tuple.

    Example:
        >>> mytorch.broadcast_to(tensor([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expand(input, *size, **named)


@public(inplace=False, method=False)
def broadcast_tensors(*tensors):
    """Expands several tensors to their common shape.

    Example:
        >>> x, y = mytorch.broadcast_tensors(mytorch.zeros(2, 1), mytorch.zeros(3))
        >>> x.shape, y.shape
        (mytorch.Size([2, 3]), mytorch.Size([2, 3]))
    """
    try:
        shape = broadcast(*(t.shape for t in tensors))
    except ValueError:
        raise RuntimeError(f"broadcast_tensors: shapes {[tuple(t.shape) for t in tensors]} don't broadcast.") from None
    return tuple(t if tuple(t.shape) == shape else expand(t, *shape) for t in tensors)


@public(inplace=False)
def contiguous(input, memory_format=None):
    """Returns the tensor with its elements in row-major order; the tensor itself if they already are.

    Use it before `view` or before passing memory to other libraries; functions of mytorch accept any strides.

    Args:
        memory_format: another order (default: None, row-major).

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


@op(dtype="same", name="clone", layout=preserve)
def _clone(xp, input):
    return parts.copied(input) if type(input) is ndarray and input.size >= parts.LEAST else input.copy("K")


_clone.grad(input=lambda g: g)


@op(dtype="same", grad_name="Clone", layout=None)
def _clone_ordered(xp, input, *, axes):
    if axes is None:
        return input.copy("C") if input.flags.c_contiguous else xp.ascontiguousarray(input)
    return input.transpose(axes).copy("C").transpose(inverse(axes))


_clone_ordered.grad(input=lambda g: g)


@public(inplace=False)
def clone(input, *, memory_format=None):
    """Returns a copy. Gradients flow through it.

    Use it to keep a value that you change in place later. `x.detach().clone()` is a copy without gradients.

    Args:
        memory_format: order of the axes in memory (default: the order of `input`).

    Example:
        >>> x = tensor([1.0], requires_grad=True)
        >>> (2 * x.clone()).backward()
        >>> x.grad.tolist()
        [2.0]
    """
    if memory_format is None or memory_format == preserve_format:
        return _clone.fast_call(input)
    return _clone_ordered(input, axes=axes_in_memory(raw_of(input), memory_format))


@op(dtype="same", grad_name="Clone", layout=None)
def _relaid(xp, input, *, laid):
    """Returns `laid`, the elements of the input in another order in memory."""
    return laid


_relaid.grad(input=lambda g: g)


def laid_by(rule, out, *inputs):
    """Returns the result of a function of several ops in the layout that a rule of arrays/memory_format.py gives to it."""
    raw = raw_of(out)
    if get_mode().interpreter is not None:  # for example, a batch of vmap has an axis more in memory
        return out
    with device_guard(raw):
        laid = rule(raw, [raw_of(x) for x in inputs])
    return out if laid is raw else _relaid(out, laid=laid)


def laid_out_as(input, out):
    """Returns `out` with its channels last in memory if the channels of the input are last, as in PyTorch; otherwise in order.

    The result has its own memory.
    """
    return laid_by(channels, unshared(input, out), input)


def unshared(input, out):
    """Returns `out`, or a copy if it shares memory with the input, as where a factor or power of 1 leaves nothing to compute."""
    raw = raw_of(out)
    shares = not isinstance(raw, MetaArray) and memory_owner(raw) is memory_owner(raw_of(input))
    return out.clone() if shares else out


# -- joining ---------------------------------------------------------------------------------------------------


@op(name="cat", grad_name="Concat", layout=channels_of_all)
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
    """Joins tensors along an existing dimension. Their other sizes must agree. Empty 1-d tensors are skipped.

    Use it to append along a dimension that exists, such as batches; `stack` makes a new one.

    Args:
        tensors: sequence of tensors.
        dim: dimension along which to join (default: 0).

    Raises:
        RuntimeError: there are no tensors, or their sizes do not agree.
        TypeError: `tensors` is not a sequence of tensors.

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
    if shape_of(tensors[0]) == (0,):
        dim = 0  # all tensors are empty vectors
    return _cat.fast_call(*tensors, dim=_agreeing([shape_of(t) for t in tensors], dim))


def _joinable(tensors):
    """Returns the tensors without empty vectors, cast to the common dtype of all."""
    kept = [t for t in tensors if shape_of(t) != (0,)] or tensors[:1]
    if any(t.dtype is not kept[0].dtype for t in tensors):
        common = functools.reduce(dtypes.promote_types, (t.dtype for t in tensors))
        kept = [t.to(common) for t in kept]
    return kept


def _agreeing(shapes, dim):
    """Returns the axis along which tensors of these shapes can be joined; raises an error with the reason if there is none."""
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
    """Joins tensors of one shape along a new dimension.

    Use it to make a batch of samples; `cat` joins along a dimension that exists.

    Args:
        tensors: sequence of tensors.
        dim: position of the new dimension in the result (default: 0).

    Raises:
        RuntimeError: there are no tensors, or their shapes differ.

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


_split.part = lambda i, sizes, dim: (
    RECORDS["slice"], {"index": (slice(None),) * dim + (slice(sum(sizes[:i]), sum(sizes[: i + 1])),)}
)  # fmt: skip
_split.grad(input=lambda g, dim, xp: _rejoined(xp, g, dim))
_split_sizes = _split.named("Split", "SplitWithSizesBackward0")


@public(inplace=False, spellings={"split_size": "split_size_or_sections"})
def split(tensor, split_size_or_sections, dim=0):
    """Splits a tensor along a dimension into chunks of a given size, as views. The last chunk may be smaller.

    Use it when you know the size of the parts, and `chunk` when you know their number.

    Args:
        split_size_or_sections: size of the chunks, or a list of sizes.

    Raises:
        RuntimeError: the sizes do not sum to the size of the dimension.

    Example:
        >>> [x.tolist() for x in mytorch.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
    """
    sections = split_size_or_sections
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
    return (_split_sizes if isinstance(sections, (list, tuple)) else _split)(tensor, sizes=sizes, dim=d)


@public(inplace=False)
def chunk(input, chunks, dim=0):
    """Splits a tensor along a dimension into a number of chunks, as views. The last chunk may be smaller.

    Use it when you know the number of parts, and `split` when you know their sizes.

    Args:
        chunks: largest number of chunks.

    Raises:
        RuntimeError: `chunks` is not positive.

    Example:
        >>> [x.tolist() for x in mytorch.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
    """
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
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


_unbind.part = lambda i, dim: (RECORDS["slice"], {"index": (slice(None),) * dim + (i,)})
_unbind.grad(input=lambda g, dim, xp: xp.stack(g, axis=dim))


@public(inplace=False)
def unbind(input, dim=0):
    """Returns the slices along a dimension, without that dimension, as views.

    Args:
        dim: the dimension (default: 0).

    Example:
        >>> [x.tolist() for x in tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
    """
    if input.ndim == 0:
        raise IndexError("unbind: Dimension specified as 0 but tensor has no dimensions")
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
    """Copies a tensor repeats[i] times along each dimension i.

    Use it when you change the copies in place. Otherwise broadcasting or `expand` does the same without memory.

    Args:
        repeats: number of copies, as separate integers or one tuple.

    Raises:
        RuntimeError: there are fewer numbers than dimensions.

    Example:
        >>> tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    if named:
        repeats = several_or_named("repeat", repeats, named, "repeats")
    times = as_shape(repeats)
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
    """Copies a tensor along each dimension, as `repeat` does. Missing leading numbers are 1.

    Args:
        dims: number of copies, as separate integers or one tuple.

    Example:
        >>> mytorch.tile(tensor([[1, 2]]), (2,)).tolist()
        [[1, 2, 1, 2]]
    """
    if named:
        dims = several_or_named("tile", dims, named, "dims", "reps")
    times = as_shape(dims)
    return _repeat(input, repeats=(1,) * (input.ndim - len(times)) + times)


@op(dtype="same", name="flip", layout=preserve)
def _flip(xp, input, *, dims):
    return xp.flipped(input, dims) if xp is numpy_ns else xp.flip(input, dims).copy()


_flip.grad(input=lambda g, dims, xp: xp.call(_flip, g, dims=dims))


@public(inplace=False)
def flip(input, *dims, **named):
    """Reverses the order of elements along dimensions, in a copy.

    Args:
        dims: dimensions, as separate integers or one tuple.

    Example:
        >>> mytorch.flip(tensor([[1, 2], [3, 4]]), (1,)).tolist()
        [[2, 1], [4, 3]]
    """
    if named:
        dims = several_or_named("flip", dims, named, "dims", "axis")
    elif not dims:
        raise TypeError("flip() missing 1 required positional argument: 'dims'")
    axes = tuple(normalize_dim(d, input.ndim) for d in as_shape(dims))
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"dim {max(axes, key=axes.count)} appears multiple times in the list of dims")
    return _flip(input, dims=axes if input.ndim else ())


@public(name="__reversed__", function=False, inplace=False)
def reverse(input):
    """Returns a copy of the tensor with the first dimension in reverse order, for `reversed(x)`."""
    return flip(input, 0) if input.ndim else input
