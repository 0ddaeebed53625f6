"""PyTorch's memory formats: the order of a tensor's axes in memory."""


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
        strides = raw.strides
        if raw.flags.c_contiguous or 0 in strides:
            return None
        return tuple(sorted(range(raw.ndim), key=lambda axis: -abs(strides[axis])))
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
    least, axes = 0, _CHANNELS_LAST[format]
    # From the innermost axis outwards, each stride must be at least the extent of the axes inside.
    for axis in reversed(axes):
        size, stride = raw.shape[axis], raw.strides[axis]
        if not size or stride < least or not stride or (axis == 0 and least == raw.strides[1]):
            return False
        least = stride * size
    return True
