"""PyTorch's memory formats, the order of a tensor's axes in memory, and the rules for the layout of results.

PyTorch allocates the result of an elementwise function in the order of the axes of its first operand (`iterator`), a copy in the order
of the original (`preserve`), and most other results in row-major order (`in_rows`). Convolutions, pools and norms keep channels last
(`channels`). Each rule is a function of the result, of the raw inputs and of the attributes, and returns the result in its layout. NumPy
returns other layouts: for several operands, for expanded ones, for advanced indices, and whenever a forward function ends with a transpose.
"""

import functools
from collections.abc import Callable

import numpy as np

from .copies import row_major
from .namespaces import duplicate


class memory_format:
    """Name of an order of strides, as in PyTorch. There is one object per format."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name  # a global of this module


class layout(str):
    """Kind of storage, as in PyTorch: `strided`, or a layout of the extensions `sparse` and `nested`."""

    __slots__ = ()

    def __repr__(self):
        return "torch." + str.__str__(self)

    __str__ = __repr__

    def __reduce__(self):
        return "strided"


strided = layout("strided")


def layout_of(raw):
    """Returns the layout of a raw array."""
    return raw.tensor_layout if hasattr(type(raw), "tensor_layout") else strided


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
legacy_contiguous_format = contiguous_format
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
_CHANNELS_LAST = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def axes_in_memory(raw, format):
    """Returns the axes of an array like `raw` in a memory format, outermost in memory first; None for row-major order.

    Args:
        raw: the array. `preserve_format` (also None) keeps its order.
        format: a memory format.

    Raises:
        RuntimeError: a format for tensors of another number of axes.
    """
    if format is None or format == preserve_format:
        if raw.flags.c_contiguous:
            return None
        strides = _kept(raw.shape, element_strides(raw))
        return tuple(sorted(range(raw.ndim), key=lambda axis: (-strides[axis], raw.shape[axis] > 1)))
    return channel_axes(raw.ndim, format)


def channel_axes(ndim, format):
    """Returns the axes like `axes_in_memory`, for a format that does not depend on an array.

    Raises:
        RuntimeError: `preserve_format`, or a format for tensors of another number of axes.
    """
    if format is None or format == contiguous_format:
        return None
    axes = _CHANNELS_LAST.get(format)
    if axes is None:
        raise RuntimeError("memory_format: preserve_format is not supported here; there is no tensor to take it from")
    if len(axes) != ndim:
        raise RuntimeError(f"required rank {len(axes)} tensor to use {format} format")
    return axes


def inverse(axes):
    """Returns the inverse permutation of `axes`."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def in_order(make, axes):
    """Returns a function like `make(xp, shape, dtype)` for arrays with `axes` as their order in memory."""
    if axes is None:
        return make
    return lambda xp, shape, dtype: make(xp, tuple(shape[axis] for axis in axes), dtype).transpose(inverse(axes))


def lies_in(raw, format):
    """Returns True if an array is contiguous in a memory format."""
    axes = (
        channel_axes(raw.ndim, format)
        if format not in _CHANNELS_LAST or raw.ndim == len(_CHANNELS_LAST[format])
        else ()
    )
    if axes == ():
        return False
    return raw.flags.c_contiguous if axes is None else raw.transpose(axes).flags.c_contiguous


def follows(raw, format):
    """Returns True if strides increase in the order of a channels-last format; gaps are allowed. PyTorch uses this rule for results."""
    return raw.ndim == len(_CHANNELS_LAST[format]) and _increase(raw.shape, raw.strides)


def _increase(shape, strides):
    least = 0
    if not strides[1]:
        return False
    # From the innermost axis outwards, each stride must be at least the extent of the axes inside.
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        size, stride = shape[axis], strides[axis]
        if not size or stride < least or (axis == 0 and least == strides[1]):
            return False
        least = stride * size
    return True


# -- the layout of results ---------------------------------------------------------------------------------------


def is_dense(shape, strides):
    """Returns True if elements fill their memory without gaps and overlaps, in any order of the axes."""
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride != step:
            return False
        step *= n
    return True


def _is_contiguous(shape, strides, axes=None):
    """Returns True for contiguous strides of elements, in the order of `axes`. Axes of size 1 do not count."""
    step = 1
    for axis in reversed(axes or range(len(shape))):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True


def _innermost_first(shape, operands):
    """Returns the axes from the innermost to the outermost, as PyTorch's TensorIterator orders them.

    The first operand that can tell two axes apart decides: a stride of 0 can't, and equal strides only by the sizes.
    """
    order = list(range(len(shape)))[::-1]

    def compare(a, b):
        for strides in operands:
            x, y = strides[a], strides[b]
            if x and y:
                if x != y:
                    return -1 if x < y else 1
                if shape[a] > shape[b]:
                    return 1
        return 0

    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            swap = compare(order[j], order[at])
            if swap > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif swap < 0:
                break
    return order


def _filled(shape, order):
    """Returns the strides of a dense array with this order of axes, innermost first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis] or 1
    return tuple(strides)


@functools.lru_cache(4096)
def _kept(shape, strides):
    """Returns the strides of `empty_like`: the same if they are dense, otherwise in the same order without gaps."""
    return strides if is_dense(shape, strides) else _filled(shape, _innermost_first(shape, (strides,)))


@functools.lru_cache(4096)
def iterated(shape, operands):
    """Returns the strides of the result of an elementwise function.

    Args:
        shape: shape of the result.
        operands: (shape, strides in elements) of each operand; () for a number.
    """
    same = all(size == shape for size, _ in operands)
    if same:
        for axes in (None, _CHANNELS_LAST[channels_last], _CHANNELS_LAST[channels_last_3d]):
            if axes is None or len(axes) == len(shape):
                if all(_is_contiguous(shape, strides, axes) for _, strides in operands):
                    return row_major(shape) if axes is None else _filled(shape, axes[::-1])
        first = operands[0][1]
        if is_dense(shape, first) and all(strides == first for _, strides in operands):
            return first
    if len(shape) < 2:
        return row_major(shape)
    seen = []
    for size, strides in operands:
        missing = len(shape) - len(size)
        seen.append(
            (0,) * missing + tuple(0 if n == 1 and shape[missing + i] != 1 else strides[i] for i, n in enumerate(size))
        )
    return _filled(shape, _innermost_first(shape, seen))


def element_strides(raw):
    """Returns the distances between neighbors along each axis, in elements."""
    return tuple([abs(s) // raw.itemsize for s in raw.strides])


def placed(out, strides):
    """Returns an array with these strides, in elements, and the values of `out`; `out` itself if it has them.

    The strides are dense. Axes of size 1 get their strides without a copy.
    """
    itemsize = out.itemsize
    wanted = tuple([s * itemsize for s in strides])
    if out.strides == wanted or not out.size:
        return out
    axes = tuple(sorted(range(out.ndim), key=lambda axis: (-strides[axis], out.shape[axis] > 1)))
    laid = out.transpose(axes)
    if not laid.flags.c_contiguous:
        laid = duplicate(laid)
        out = laid.transpose(inverse(axes))
    if out.strides != wanted and type(out) is np.ndarray and out.dtype.kind != "V":
        out = np.ndarray(out.shape, out.dtype, laid, 0, wanted)
    return out


@functools.lru_cache(4096)
def view_strides(shape, strides, itemsize, wanted):
    """Returns the strides of a view of another shape; None if the elements have to be copied or there are none.

    Unlike NumPy, PyTorch derives the strides of axes of size 1, too, and they can decide the layout of later results.
    """
    if 0 in shape:
        return None
    shape, strides = shape or (1,), strides or (itemsize,)
    result, place, step, size = [0] * len(wanted), len(wanted) - 1, strides[-1], 1
    for axis in reversed(range(len(shape))):
        size *= shape[axis]
        if axis and (shape[axis - 1] == 1 or strides[axis - 1] == size * step):
            continue  # the axis before belongs to the same block of memory
        covered = 1
        while place >= 0 and (covered < size or wanted[place] == 1):
            result[place] = covered * step
            covered *= wanted[place]
            place -= 1
        if covered != size:
            return None
        size, step = 1, strides[axis - 1]
    return tuple(result)


def added_strides(shape, strides, itemsize, axes):
    """Returns the strides of a view with the axes `axes` of an array, where None is a new axis of size 1."""
    result, following = [], len(shape)
    for axis in reversed(axes):
        if axis is None:
            result.append(shape[following] * strides[following] if following < len(shape) else itemsize)
        else:
            following = axis
            result.append(strides[axis])
    return tuple(result[::-1])


def expanded_strides(shape, strides, itemsize, wanted):
    """Returns the strides of a view that repeats axes of size 1, with new axes before the others."""
    strides = added_strides(shape, strides, itemsize, (*[None] * (len(wanted) - len(shape)), *range(len(shape))))
    sizes = (*[1] * (len(wanted) - len(shape)), *shape)
    return tuple([0 if n != size else s for n, size, s in zip(sizes, wanted, strides, strict=True)])


def with_strides(view, strides):
    """Returns a view with other strides, which may differ only in axes of size 1."""
    return (
        view
        if strides is None or view.strides == strides
        else np.lib.stride_tricks.as_strided(view, view.shape, strides)
    )


def kept(out, like):
    """Returns a copy `out` of the array `like` with the strides that PyTorch gives to copies."""
    return in_rows(out) if like.flags.c_contiguous else placed(out, _kept(like.shape, element_strides(like)))


def iterator(out, raws, _attrs=None):
    """Returns the result of an elementwise function with PyTorch's strides."""
    operands = [r for r in raws if hasattr(r, "strides")]
    if all(r.flags.c_contiguous for r in operands):
        return out if out.flags.c_contiguous else out.copy("C")
    return placed(out, iterated_strides(out.shape, raws))


def iterated_strides(shape, raws):
    """Returns the strides, in elements, that `iterator` gives to a result of this shape."""
    numbers = [((), ())] * any(type(r) in (int, float, bool, complex) for r in raws)
    return iterated(shape, (*[(r.shape, element_strides(r)) for r in raws if hasattr(r, "strides")], *numbers))


def preserve(out, raws, _attrs=None):
    """Returns the copy of an array with PyTorch's strides."""
    return kept(out, raws[0])


def in_rows(out, _raws=None, _attrs=None):
    """Returns a result in row-major order."""
    return out if out.flags.c_contiguous else out.copy("C")


def axes_strides(shape, axes):
    """Returns the strides of a dense array with these axes, outermost first."""
    return _filled(shape, axes[::-1])


def in_columns(out, _raws=None, _attrs=None):
    """Returns matrices in column-major order, as LAPACK writes them. Vectors and numbers are contiguous."""
    if out.ndim < 2:
        return in_rows(out)
    rows, columns = out.shape[-2:]
    return placed(out, (*row_major((*out.shape[:-2], rows * columns))[:-1], 1, max(rows, 1)))


def factors(out, raws, _attrs=None):
    """Returns a part of a decomposition: matrices in column-major order, vectors in row-major order."""
    return in_columns(out) if out.ndim == raws[0].ndim else in_rows(out)


def placed_axes(flat, shape, axes):
    """Returns a view of a vector with `axes` as its order in memory, outermost first."""
    return flat.reshape([shape[axis] for axis in axes]).transpose(inverse(axes))


def suggested_format(raw):
    """Returns the memory format that PyTorch takes an array for."""
    last = {4: channels_last, 5: channels_last_3d}.get(raw.ndim)
    return last if last is not None and suggests_channels_last(raw) else contiguous_format


def channels(out, raws, _attrs=None):
    """Returns a result with its channels last if the channels of the input are, and otherwise in row-major order."""
    return with_channels(out, raws[0].ndim > 3 and suggests_channels_last(raws[0]))


def channels_of_pool(out, raws, _attrs=None):
    """Returns a result like `channels`, also for one spatial axis."""
    return with_channels(out, suggests_channels_last(raws[0]))


def channels_of_any(out, raws, _attrs=None):
    """Returns the result of a convolution: with its channels last if those of the input or of the weight are."""
    return with_channels(out, any(suggests_channels_last(raw) for raw in raws[raws[0].ndim < 4 : 2]))


def channels_of_all(out, raws, _attrs=None):
    """Returns the result of a concatenation: with its channels last if those of all inputs are."""
    return with_channels(out, raws[0].ndim > 3 and all(suggests_channels_last(raw) for raw in raws))


def with_channels(out, last):
    """Returns a result (N, C, …) with its channels last in memory if `last` is True, and otherwise in row-major order."""
    if not last or out.ndim < 3:
        return in_rows(out)
    return placed(out, _filled(out.shape, (1, *range(out.ndim - 1, 1, -1), 0)))


def suggests_channels_last(raw):
    """Returns True if PyTorch takes an array for one with its channels last. (N, C, L) counts as (N, C, 1, L)."""
    if raw.ndim not in (3, 4, 5) or raw.flags.c_contiguous:
        return False
    shape, strides = raw.shape, raw.strides
    if raw.ndim == 3:
        shape, strides = (*shape[:2], 1, shape[2]), (*strides[:2], strides[2] * shape[2], strides[2])
    return _increase(shape, strides)


# Rules whose results are in row-major order if all inputs are, so that they need not be called then.
ROWS_FROM_ROWS: set[Callable] = {
    in_rows,
    iterator,
    preserve,
    channels,
    channels_of_pool,
    channels_of_any,
    channels_of_all,
}


def laid_out(g, owned, tensor):
    """Returns the gradient of a leaf in the layout of the leaf, or in row-major order if the leaf has gaps, as PyTorch does.

    Args:
        g: the raw gradient.
        owned: True if there is no other reference to `g`; otherwise the result is a copy.
        tensor: the leaf, or None.
    """
    raw = g if tensor is None else tensor._mt_data._array
    if not raw.flags.c_contiguous or not g.flags.c_contiguous:
        if layout_of(g) is not strided:  # a sparse gradient has no strides
            return g if owned else g.copy()
        strides = row_major(raw.shape) if layout_of(raw) is not strided else element_strides(raw)
        strides = strides if is_dense(raw.shape, strides) else row_major(raw.shape)
        if not agree(g, strides):
            laid = placed(g, strides)
            return laid if laid is not g else duplicate(g, "K")
        if not owned:
            return duplicate(g, "K")
    return g if owned else duplicate(g)


def agree(raw, strides):
    """Returns True if an array has these strides, in elements, along all axes of more than one element."""
    return all(n < 2 or s == t * raw.itemsize for n, s, t in zip(raw.shape, raw.strides, strides, strict=True))
