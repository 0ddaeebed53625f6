"""More movement of elements: joining and splitting by direction, selecting, repeating, diagonals, grids of indices."""

import itertools
import math

import numpy as np

from ..arrays import address, config, dtypes, storage_bytes, xp_of
from ..arrays.array import on_input_device
from ..arrays.errors import warn
from ..arrays.memory_format import axes_in_memory, axes_strides, channels_of_all, placed
from ..arrays.tensor import Tensor, is_tensor, replace_edge
from ..autograd.mode import get_mode
from ..autograd.node import Leaf
from .creation import arange, check_layout, empty
from .dispatch.bind import METHODS, public
from .dispatch.inplace import check_shared
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.unwrap import raw_of, to_cpu
from .elementwise import named
from .indexing import ROWS, _put_index, _slice, read_along
from .movement import as_shape, cat, contiguous, flip, squeeze, stack, t, transpose, unsqueeze
from .reduction import normalize_dim


def _tensors(tensors):
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def _several(tensors, name):
    """Returns the tensors to stack.

    Raises:
        TypeError: the argument is not a list or tuple of tensors.
        RuntimeError: the list is empty.
    """
    if is_tensor(tensors):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    if not len(tensors):
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


def _grown(x, n):
    """x with at least n axes: a number as a vector, a vector as a row, a matrix with a new last axis."""
    x = x.reshape(1) if x.ndim < 1 else x
    x = x.unsqueeze(0) if n >= 2 and x.ndim < 2 else x
    return x.unsqueeze(-1) if n >= 3 and x.ndim < 3 else x


def _at_least(n):
    @public(inplace=False, method=False)
    @named(f"atleast_{n}d", n=n)
    def grow(*tensors):
        """Adds dimensions of size 1 to tensors with fewer than {n} dimensions.

        Args:
            tensors: one or several tensors.

        Example:
            >>> mytorch.{name}(tensor(1.0)).ndim
            {n}
        """
        grown = tuple(_grown(x, n) for x in _tensors(tensors))
        return grown[0] if len(tensors) == 1 and is_tensor(tensors[0]) else grown

    return grow


atleast_1d, atleast_2d, atleast_3d = _at_least(1), _at_least(2), _at_least(3)


@public(method=False)
def hstack(tensors):
    """Joins tensors along the second axis; 1-d tensors along the first axis.

    Args:
        tensors: sequence of tensors.

    Example:
        >>> mytorch.hstack([tensor([1, 2]), tensor([3])]).tolist()
        [1, 2, 3]
    """
    tensors = [atleast_1d(t) for t in _several(tensors, "hstack")]
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


@public(method=False, names=("row_stack",))
def vstack(tensors):
    """Joins tensors along the first axis. 1-d tensors become rows.

    Args:
        tensors: sequence of tensors.

    Example:
        >>> mytorch.vstack([tensor([1, 2]), tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    return cat([atleast_2d(t) for t in _several(tensors, "vstack")], 0)


@public(method=False)
def dstack(tensors):
    """Joins tensors along the third axis.

    Args:
        tensors: sequence of tensors.

    Example:
        >>> mytorch.dstack([tensor([1, 2]), tensor([3, 4])]).tolist()
        [[[1, 3], [2, 4]]]
    """
    return cat([atleast_3d(t) for t in _several(tensors, "dstack")], 2)


@public(method=False)
def column_stack(tensors):
    """Joins tensors along the second axis. 1-d tensors become columns.

    Args:
        tensors: sequence of tensors.

    Example:
        >>> mytorch.column_stack([tensor([1, 2]), tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
    """
    return cat([t.reshape(-1, 1) if t.ndim <= 1 else t for t in _several(tensors, "column_stack")], 1)


@public(inplace=False, spellings={"sections": "indices_or_sections", "indices": "indices_or_sections"})
def tensor_split(input, indices_or_sections, dim=0):
    """Splits a tensor along a dimension into nearly equal chunks, or at given indices.

    Args:
        indices_or_sections: number of chunks, or the indices at which to split.

    Example:
        >>> [x.tolist() for x in mytorch.tensor_split(mytorch.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
    """
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d]
    if is_tensor(indices_or_sections):
        given = indices_or_sections
        if given.dtype is not dtypes.int64 or given.ndim > 1:
            long = given.dtype is dtypes.int64
            wanted = "be a zero-dimensional or one-dimensional tensor" if long else "have dtype of long"
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to {wanted}, but got {given.dtype.name} with {given.ndim} dims"
            )
        indices_or_sections = given.tolist()
    if isinstance(indices_or_sections, (int, np.integer)):
        if indices_or_sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
        size, extra = divmod(n, indices_or_sections)
        indices_or_sections = [i * size + min(i, extra) for i in range(1, indices_or_sections)]
    cuts = [0, *(slice(None, i).indices(n)[1] for i in indices_or_sections), n]
    return tuple(narrow(input, d, a, b - a if b > a else 0) for a, b in itertools.pairwise(cuts))


def _directed(name, axes, axis_of):
    @public(inplace=False)
    @named(name, axis={"h": "second (for vectors, the first)", "v": "first", "d": "third"}[name[0]])
    def directed(input, indices_or_sections):
        """Splits a tensor along the {axis} dimension, as `tensor_split` does.

        Args:
            indices_or_sections: number of chunks, or the indices at which to split.
        """
        if input.ndim < axes:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {axes} dimension, but got a tensor with {input.ndim} dimensions!"
            )
        sections, n = indices_or_sections, input.shape[axis_of(input)]
        if isinstance(sections, int) and (sections <= 0 or n % sections):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {axis_of(input)}, but the size of the dimension {n} is not "
                f"divisible by the split_size {sections}!"
            )
        return tensor_split(input, indices_or_sections, axis_of(input))

    return directed


hsplit = _directed("hsplit", 1, lambda t: 0 if t.ndim == 1 else 1)
vsplit = _directed("vsplit", 2, lambda t: 0)
dsplit = _directed("dsplit", 3, lambda t: 2)


@public(inplace=False)
def narrow(input, dim, start, length):
    """Returns a view of a range of elements along a dimension.

    Args:
        dim: dimension of the range.
        start: first index; a negative index counts from the end.
        length: number of elements.

    Example:
        >>> mytorch.narrow(mytorch.arange(5), 0, 1, 3).tolist()
        [1, 2, 3]
    """
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d]
    if is_tensor(start) and (start.ndim or start.dtype.category != dtypes.INT):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = int(start)
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start += n if start < 0 else 0
    if not 0 <= start <= n or start + length > n or length < 0:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return _slice(input, index=(slice(None),) * d + (slice(start, start + length),))


@public(inplace=False)
def select(input, dim, index):
    """Returns a view of the slice at an index of a dimension, without that dimension.

    Args:
        index: index of the slice.

    Example:
        >>> mytorch.select(tensor([[1, 2], [3, 4]]), 1, 0).tolist()
        [1, 3]
    """
    d = normalize_dim(dim, input.ndim)
    index = int(index)
    if not -input.shape[d] <= index < input.shape[d]:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    return _slice(input, index=(slice(None),) * d + (index,))


@op(dtype="same", view=True, name="unfold")
def _unfold(xp, input, *, dim, size, step):
    count = (input.shape[dim] - size) // step + 1
    shape = (*input.shape[:dim], count, *input.shape[dim + 1 :], size)
    strides = (*input.strides[:dim], input.strides[dim] * step, *input.strides[dim + 1 :], input.strides[dim])
    return xp.lib.stride_tricks.as_strided(input, shape, strides)


@op(dtype="same", name="unfold_backward")
def _unfold_add(xp, g, *, shape, dim, size, step):
    out = xp.zeros(shape, g.dtype)
    lead = (slice(None),) * dim
    for i in range(size):
        out[(*lead, slice(i, i + (g.shape[dim] - 1) * step + 1, step))] += g[..., i]
    return out


_unfold.grad(
    input=lambda g, shape, dim, size, step, xp: xp.call(_unfold_add, g, shape=shape, dim=dim, size=size, step=step)
)
_unfold_add.grad(g=lambda g, dim, size, step, xp: xp.call(_unfold, g, dim=dim, size=size, step=step))


@public(function=False, inplace=False)
def unfold(self, dimension, size, step):
    """Returns a view of all windows along a dimension, as a new last dimension.

    Args:
        dimension: dimension of the windows.
        size: number of elements in a window.
        step: step between windows.

    Example:
        >>> mytorch.arange(4).unfold(0, 2, 1).tolist()
        [[0, 1], [1, 2], [2, 3]]
    """
    d = normalize_dim(dimension, self.ndim)
    length = self.shape[d] if self.ndim else 1
    if not 0 <= size <= length or step <= 0:
        raise RuntimeError(
            f"unfold: a size of 0 to {length}, the length of dimension {d}, and a step > 0 are wanted, but got size {size} and step {step}"
        )
    if self.ndim == 0:
        return self.reshape(1).narrow(0, 0, size)
    return _unfold(self, dim=d, size=int(size), step=int(step))


@op(dtype="same", view=True, name="as_strided")
def _as_strided(xp, input, *, size, stride, offset, memory):
    storage, (start, strides, places) = _storage(input), _memory(input)
    if strides == memory[1] and places - start >= memory[2] - memory[0]:
        offset += start - memory[0]
    else:  # a gradient of the input, which gets the input's layout
        storage = xp.zeros(memory[2], input.dtype)
        steps = tuple([s * input.itemsize for s in memory[1]])
        xp.lib.stride_tricks.as_strided(storage[memory[0] :], input.shape, steps)[...] = input
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    if offset < 0 or last >= storage.size + (0 in size):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds for storage "
            f"of {storage.size} elements"
        )
    return xp.lib.stride_tricks.as_strided(storage[offset:], size, tuple(s * input.itemsize for s in stride))


def _storage(raw):
    """All elements of the memory that an array is a view of, as a vector; of the array alone where that has no order."""
    whole = storage_bytes(raw)
    odd = whole.size % raw.itemsize or (address(raw) - address(whole)) % raw.itemsize
    return raw.reshape(-1) if odd else whole.view(raw.dtype)


def _memory(raw):
    """Returns the start of an array in the memory that it is a view of, its strides, and the size of that memory, in elements.

    Within vmap, the memory belongs to the whole batch, and the start is the start of the first sample.
    """
    while getattr(raw, "batch", None) is not None:
        raw = raw_of(raw.value[0])
    storage = _storage(raw)
    strides = tuple(s // raw.itemsize for s in raw.strides)
    return (address(raw) - address(storage)) // raw.itemsize if raw.size else 0, strides, storage.size


def _lattice(size, stride, offset):
    """offset + the sum of index times stride, for every index below `size`."""
    places = np.full(size, offset)
    for axis, step in enumerate(stride):
        places = places + (np.arange(size[axis]) * step).reshape([-1 if i == axis else 1 for i in range(len(size))])
    return places.reshape(-1)


def _as_strided_grad(g, shape, size, stride, offset, memory, xp):
    n, (begin, strides, places) = math.prod(shape), memory
    mine = np.full(places, n)  # which element of the input each place holds; n where none
    mine[_lattice(shape, strides, begin)] = np.arange(n)
    index = mine[_lattice(size, stride, offset)]
    flat = xp.call(_put_index, xp.reshape(g, (math.prod(size),)), index, layout=ROWS, shape=(n + 1,))
    return xp.reshape(flat[slice(0, n)], shape)


_as_strided.grad(input=_as_strided_grad)


def _within(shape, memory, size, stride, offset):
    """Returns True if an input without gaps contains all places of its `as_strided`."""
    start, strides, _ = memory
    step = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return start <= offset and last < start + step


@public(inplace=False)
def as_strided(input, size, stride, storage_offset=None):
    """Returns a view of the memory of a tensor with the given size and strides.

    Args:
        size: shape of the view.
        stride: number of elements from one index to the next, for each axis.
        storage_offset: number of elements before the first (default: the offset of `input`).

    Raises:
        RuntimeError: the view exceeds the memory, or a stride is negative.

    Example:
        >>> mytorch.as_strided(mytorch.arange(4), (2, 2), (1, 1)).tolist()
        [[0, 1], [1, 2]]
    """
    if len(size) != len(stride):
        raise RuntimeError(
            f"as_strided: mismatch in length of strides and shape: expected as many strides as sizes, got {len(stride)} for {len(size)}."
        )
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported, got strides: {list(stride)}")
    memory = _memory(raw_of(input))
    offset = memory[0] if storage_offset is None else int(storage_offset)
    if isinstance(input, Tensor) and input._mt_view is not None and type(input._mt_view[2]) is tuple:
        base = input._mt_view[0]
        # The result can have elements of the base outside of this view. It is then recorded as a view of the base, without the hooks
        # of this view. A leaf and a view created under no_grad have no gradient in common with their base.
        related = (input.edge is None) is (base.edge is None) and not isinstance(input.edge, Leaf)
        if related and base.dtype is input.dtype and get_mode().interpreter is None:
            if not _within(input.shape, memory, size, stride, offset):
                input, memory = base, _memory(raw_of(base))
    return _as_strided(input, size=as_shape(size), stride=tuple(stride), offset=offset, memory=memory)


@op(dtype="same", name="roll", layout=channels_of_all)
def _roll(xp, input, *, shifts, dims):
    return xp.roll(input, shifts, dims)


_roll.grad(input=lambda g, shifts, dims, xp: xp.call(_roll, g, shifts=tuple([-s for s in shifts]), dims=dims))


@public(inplace=False)
def roll(input, shifts, dims=None):
    """Shifts the elements along dimensions. Elements that leave at the end enter at the beginning.

    Args:
        shifts: shift along each dimension.
        dims: dimension or dimensions (default: None, the flattened tensor).

    Example:
        >>> mytorch.roll(mytorch.arange(4), 1).tolist()
        [3, 0, 1, 2]
    """
    if dims is None or dims in ((), []):
        shifts = int(shifts) if is_tensor(shifts) and not shifts.ndim else shifts
        if shifts in ((), []):
            raise RuntimeError("roll: `shifts` required, got none. Pass one for each dimension.")
        if not isinstance(shifts, int) and len(shifts) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        return roll(input.reshape(-1), shifts, 0).reshape(input.shape)
    shifts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if not input.ndim:
        raise IndexError("roll: expected dims to be empty for a 0-d tensor.")
    shifts = tuple([int(s) if is_tensor(s) else s for s in shifts])
    return _roll(input, shifts=shifts, dims=tuple([normalize_dim(d, input.ndim) for d in dims]))


@public(inplace=False)
def rot90(input, k=1, dims=(0, 1)):
    """Rotates a tensor by 90 degrees in the plane of two dimensions, from the first toward the second.

    Args:
        k: number of rotations (default: 1).
        dims: the two dimensions (default: (0, 1)).

    Raises:
        RuntimeError: `dims` is not two different dimensions.

    Example:
        >>> mytorch.rot90(tensor([[1, 2], [3, 4]])).tolist()
        [[2, 4], [1, 3]]
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = (normalize_dim(d, input.ndim) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 0:
        return contiguous(input.clone())
    if k == 2:
        return flip(input, (a, b))
    return own(transpose(flip(input, (b if k == 1 else a,)), a, b))


@public(inplace=False)
def fliplr(input):
    """Reverses the order of elements along the second dimension.

    Example:
        >>> mytorch.fliplr(tensor([[1, 2], [3, 4]])).tolist()
        [[2, 1], [4, 3]]
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@public(inplace=False)
def flipud(input):
    """Reverses the order of elements along the first dimension.

    Example:
        >>> mytorch.flipud(tensor([[1, 2], [3, 4]])).tolist()
        [[3, 4], [1, 2]]
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@public(inplace=False)
@on_input_device
def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Repeats each element, or each slice along a dimension.

    Use it to repeat each element in place (a, a, b, b); `repeat` repeats the whole (a, b, a, b).

    Args:
        repeats: number of repetitions, or a tensor with one number for each element.
        dim: dimension of the slices (default: None, the flattened tensor).
        output_size: size of the result along `dim`. On a GPU, it avoids waiting for `repeats`.

    Example:
        >>> mytorch.repeat_interleave(tensor([1, 2]), 2).tolist()
        [1, 1, 2, 2]
    """
    if repeats is None:  # repeat_interleave(repeats): the indices themselves
        return arange(input.numel(), device=input.device).repeat_interleave(input)
    if dim is None:
        input, dim = input.reshape(-1), 0
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d]
    times = to_cpu(repeats)
    if times.ndim > 1:
        raise RuntimeError(f"repeat_interleave: repeats must be 0-dim or 1-dim tensor, got {times.ndim}-dim.")
    if (times < 0).any():
        raise RuntimeError("repeats can not be negative")
    if times.ndim and times.size not in (1, n):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {times.size} and input.size({d}) = {n}"
        )
    order = np.repeat(np.arange(n), times.reshape(-1))
    if output_size is not None and output_size != order.size:
        raise RuntimeError(
            f"repeat_interleave: allocated size does not match required size: {output_size}, not {order.size}"
        )
    return read_along(input, d, order)


@public(inplace=False, method=False)
def meshgrid(*tensors, indexing=None):
    """Creates grids of coordinates from vectors.

    Args:
        tensors: vectors.
        indexing: "ij", the default, or "xy", which swaps the first two dimensions.

    Raises:
        RuntimeError: a tensor has more than one dimension, or `indexing` is unknown.

    Example:
        >>> rows, columns = mytorch.meshgrid(tensor([1, 2]), tensor([3, 4]), indexing="ij")
        >>> rows.tolist(), columns.tolist()
        ([[1, 1], [2, 2]], [[3, 4], [3, 4]])
    """
    tensors = _tensors(tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if any(x.ndim > 1 for x in tensors):
        raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensors, but got {[list(x.shape) for x in tensors]}")
    if any(x.dtype is not tensors[0].dtype for x in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if any(x.device != tensors[0].device for x in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing is None:
        warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
        indexing = "ij"
    tensors = [x.reshape(-1) for x in tensors]
    swap = indexing == "xy" and len(tensors) >= 2
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    places = [1, 0, *range(2, len(tensors))] if swap else list(range(len(tensors)))
    sizes = [tensors[place].shape[0] for place in places]  # exchanging two axes is its own inverse
    return tuple(
        x.reshape([-1 if axis == place else 1 for axis in range(len(sizes))]).expand(*sizes)
        for x, place in zip(tensors, places, strict=True)
    )


@public(inplace=False, method=False)
def cartesian_prod(*tensors):
    """Returns all combinations of elements of several vectors, as rows.

    Args:
        tensors: vectors.

    Raises:
        RuntimeError: a tensor is not a vector.

    Example:
        >>> mytorch.cartesian_prod(tensor([1, 2]), tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"cartesian_prod: Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], -1)


@public(inplace=False)
def combinations(input, r=2, with_replacement=False):
    """Returns all combinations of r elements of a vector, as rows.

    Args:
        input: a vector.
        r: number of elements in a combination (default: 2).
        with_replacement: if True, an element can occur several times (default: False).

    Raises:
        RuntimeError: `input` is not a vector.

    Example:
        >>> mytorch.combinations(tensor([1, 2, 3])).tolist()
        [[1, 2], [1, 3], [2, 3]]
    """
    if input.ndim != 1 or r < 0:
        raise RuntimeError(f"combinations: Expect a 1D vector and r >= 0, got {input.ndim}-d and r={r}")
    if r == 0:
        return input.new_empty(0)
    chooser = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(chooser(range(input.shape[0]), r)), np.int64)
    return read_along(input, 0, rows.reshape(len(rows), r))


# -- diagonals ---------------------------------------------------------------------------------------------------------


@op(dtype="same", view=True, name="diagonal")
def _diagonal(xp, input, *, offset, dim1, dim2):
    rest = [d for d in range(input.ndim) if d not in (dim1, dim2)]
    x = xp.transpose(input, [*rest, dim1, dim2])
    rows, columns = x.shape[-2:]
    skip_rows, skip_columns = max(-offset, 0), max(offset, 0)
    n = max(min(rows - skip_rows, columns - skip_columns), 0)
    x = x[..., min(skip_rows, rows) :, min(skip_columns, columns) :]
    return xp.lib.stride_tricks.as_strided(x, (*x.shape[:-2], n), (*x.strides[:-2], x.strides[-2] + x.strides[-1]))


@op(dtype="same", name="diagonal_backward")
def _diagonal_zeros(xp, g, *, shape, offset, dim1, dim2):
    out = xp.zeros(shape, g.dtype)
    _diagonal.forward(xp, out, offset=offset, dim1=dim1, dim2=dim2)[...] = g
    return out


_diagonal.grad(
    input=lambda g, shape, offset, dim1, dim2, xp: xp.call(
        _diagonal_zeros, g, shape=tuple(shape), offset=offset, dim1=dim1, dim2=dim2
    )
)
_diagonal_zeros.grad(g=lambda g, offset, dim1, dim2, xp: xp.call(_diagonal, g, offset=offset, dim1=dim1, dim2=dim2))


@public(inplace=False)
def diagonal(input, offset=0, dim1=0, dim2=1):
    """Returns a view of a diagonal of two dimensions, as a new last dimension.

    Args:
        offset: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).
        dim1: first of the two dimensions (default: 0).
        dim2: second of the two dimensions (default: 1).

    Example:
        >>> mytorch.diagonal(tensor([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    a, b = normalize_dim(dim1, input.ndim), normalize_dim(dim2, input.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return _diagonal(input, offset=int(offset), dim1=a, dim2=b)


@public(inplace=False)
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Creates matrices with the last dimension as a diagonal and zeros elsewhere.

    Args:
        offset: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).
        dim1: position of the first new dimension (default: -2).
        dim2: position of the second new dimension (default: -1).

    Example:
        >>> mytorch.diag_embed(tensor([1, 2])).tolist()
        [[1, 0], [0, 2]]
    """
    n = input.shape[-1] + abs(offset)
    nd = input.ndim + 1
    a, b = normalize_dim(dim1, nd), normalize_dim(dim2, nd)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, n)
    return _diagonal_zeros(input, shape=tuple(shape), offset=int(offset), dim1=a, dim2=b)


@public(inplace=False)
def diag(input, diagonal=0):
    """Creates a diagonal matrix from a vector, or returns the diagonal of a matrix.

    Args:
        input: vector or matrix.
        diagonal: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).

    Example:
        >>> mytorch.diag(tensor([1, 2])).tolist()
        [[1, 0], [0, 2]]
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return _diagonal(input, offset=int(diagonal), dim1=0, dim2=1).clone()


@public(inplace=False)
def diagflat(input, offset=0):
    """Creates a diagonal matrix from the flattened input.

    Args:
        offset: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).

    Example:
        >>> mytorch.diagflat(tensor([1, 2]), offset=1).tolist()
        [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    return diag_embed(input.reshape(-1), offset)


@public(inplace=False)
@in_precision(None)
def trace(input):
    """Sums the diagonal of a matrix.

    Args:
        input: a matrix.

    Example:
        >>> mytorch.trace(tensor([[1, 2], [3, 4]])).item()
        5
    """
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return diagonal_sum(input)


def diagonal_sum(input):
    """Sums the diagonal of the last two axes."""
    return _diagonal(input, offset=0, dim1=input.ndim - 2, dim2=input.ndim - 1).sum(-1)


def _triangle_indices(name, make):
    triangle = "lower" if "tril" in name else "upper"

    @public(inplace=False, method=False)
    @named(name, triangle=triangle)
    def indices(row, col, offset=0, *, dtype=None, device=None, layout=None):
        """Returns the indices of the {triangle} triangle of a matrix, as a tensor (2, n).

        Args:
            row: number of rows.
            col: number of columns.
            offset: diagonal: 0 is the main one, positive numbers are above it, negative below (default: 0).
            dtype: dtype of the result (default: int64).
        """
        for word, n in (("row", row), ("col", col)):
            if n < 0:
                raise RuntimeError(f"{word} must be non-negative, got {n}")
        rows, columns = make(row, offset, col)
        check_layout(layout)
        if dtype is not None and config.pytorch_mode and dtypes.as_dtype(dtype).category != dtypes.INT:
            raise NotImplementedError(f"{name}: expected an integer dtype, got {dtype}.")
        found = Tensor._wrap(np.stack([rows, columns]).astype(dtypes.as_numpy(dtype or dtypes.int64)))
        return found if device is None else found.to(device)

    return indices


tril_indices = _triangle_indices("tril_indices", np.tril_indices)
triu_indices = _triangle_indices("triu_indices", np.triu_indices)


@public(inplace=False, method=False)
def block_diag(*tensors):
    """Creates a block-diagonal matrix from several matrices.

    Args:
        tensors: matrices, vectors or numbers.

    Example:
        >>> mytorch.block_diag(tensor([[1, 2]]), tensor([[3]])).tolist()
        [[1, 2, 0], [0, 0, 3]]
    """
    if any(x.ndim > 2 for x in tensors):
        raise RuntimeError("torch.block_diag: Input tensors must have 2 or fewer dimensions.")
    if not tensors:
        return empty(1, 0)
    dtype = dtypes.result_type([x.dtype for x in tensors if x.ndim], [x.dtype for x in tensors if not x.ndim], [])
    tensors = [atleast_2d(x).to(dtype) for x in tensors]
    width, start, rows = sum(x.shape[1] for x in tensors), 0, []
    for x in tensors:
        n, m = x.shape
        rows.append(cat([x.new_zeros(n, start), x, x.new_zeros(n, width - start - m)], 1))
        start += m
    return cat(rows, 0)


# -- in place -----------------------------------------------------------------------------------------------------------


def _reshaping(name, view):
    """A method that gives self another shape over the same memory, such as unsqueeze_."""

    def method(self, *args, **kwargs):
        if not isinstance(self, Tensor):
            self._array = view(self, *args, **kwargs)._array
            return self
        if get_mode().grad:
            check_shared(self, name)
        before = self
        if self._mt_view is None:
            before = Tensor._of(self._mt_data, self._mt_edge)
            self.__dict__["_reshaped"] = True  # not a view of another tensor of the program: hooks stay
        out = view(before, *args, **kwargs)
        if out._mt_data._array is not before._mt_data._array:
            for level, tangent in self.__dict__.pop("_tangents", {}).items():
                level.give(before, tangent)
            # `_mt_view` is the view of `before`. `refresh` rejects views whose base is self.
            self._mt_data, self._mt_view = out._mt_data, out._mt_view
            if out._mt_edge is not None:
                replace_edge(self, out._mt_edge)
            elif type(self._mt_edge) is Leaf:
                self._mt_edge.shape = self._mt_data._array.shape
            self._mt_data._bump()
        return self

    named(name, f"In-place variant of `Tensor.{name[:-1]}`: changes the shape of the tensor and returns it.")(method)
    method.__wrapped__ = view  # for its signature
    METHODS[name] = method


for _view in (squeeze, unsqueeze, t, transpose, as_strided):
    _reshaping(_view.__name__ + "_", _view)
METHODS["swapaxes_"] = METHODS["swapdims_"] = METHODS["transpose_"]


@public(inplace=False)
def argwhere(input):
    """Returns the indices of the nonzero elements, one row for each element.

    Example:
        >>> mytorch.argwhere(tensor([[0, 5], [7, 0]])).tolist()
        [[0, 1], [1, 0]]
    """
    return input.nonzero()


@public(inplace=False)
@on_input_device
def unravel_index(indices, shape):
    """Converts flat positions to a tuple of indices, one tensor for each axis.

    Args:
        indices: flat positions.
        shape: shape of the tensor.

    Raises:
        ValueError: a size is negative, or the tensor is empty.

    Example:
        >>> mytorch.unravel_index(tensor([1, 5]), (2, 3))
        (tensor([0 1]), tensor([1 2]))
    """
    shape = as_shape((shape,))
    if any(n < 0 for n in shape):
        raise ValueError(f"unravel_index(): 'shape' cannot have negative values, but got {tuple(shape)}")
    raw = raw_of(indices)
    if config.pytorch_mode and raw.dtype.kind not in "iu":
        raise TypeError(
            f"unravel_index: expected indices of an integer dtype, got {indices.dtype}. Convert them with long()."
        )
    rest, xp = raw.astype(np.int64), xp_of(raw)
    if 0 in shape and rest.size:
        raise ValueError(
            f"unravel_index(): there are no indices of shape {tuple(shape)}, but {rest.size} are asked for"
        )
    found = xp.empty((len(shape), *raw.shape), np.int64)
    for i, n in reversed(
        [*enumerate(shape)]
    ):  # as PyTorch counts: without a look at the end, where the first axis begins again
        found[i] = rest % n
        rest = rest // n
    axes = axes_in_memory(raw, None) or range(raw.ndim)
    found = placed(xp.moveaxis(found, 0, -1), axes_strides((*raw.shape, len(shape)), (*axes, raw.ndim)))
    return tuple(Tensor._wrap(found[..., i]) for i in range(len(shape)))


@public(inplace=False)
def sum_to_size(input, *size):
    """Sums a tensor over the dimensions along which `size` would be broadcast to its shape.

    Args:
        size: shape of the result.
    """
    size = as_shape(size)
    lead = input.ndim - len(size)
    if lead < 0 or any(n not in (1, m) for n, m in zip(size, input.shape[lead:], strict=True)):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(input.shape)}}}.")
    dims = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(size) if n == 1 and input.shape[i + lead] != 1)
    return (input.sum(dims, keepdim=True) if dims or not size else input).reshape(size)
