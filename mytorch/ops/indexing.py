"""Reading and writing parts of tensors: x[...], gather, index_select, masks, sorting."""

import itertools
import math
from collections import namedtuple

import numpy as np

from ..arrays import (
    CPU,
    NO_DATA,
    ON_NUMPY,
    MetaArray,
    blocks,
    config,
    dtypes,
    gpu,
    is_raw,
    ndarray,
    numpy_ns,
    to_device,
    xp_of,
)
from ..arrays.array import Array, on_input_device, other_device
from ..arrays.errors import kind, warn
from ..arrays.memory_format import ROWS_FROM_ROWS, element_strides, in_rows, iterated, placed, preserve, with_strides
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from .dispatch.bind import METHODS, public
from .dispatch.errors import broadcast
from .dispatch.inplace import check_shared, check_writable, set_edge
from .dispatch.layouts import other_layout
from .dispatch.op import name_node, op, own
from .dispatch.operands import NUMBERS
from .dispatch.out import write_out
from .dispatch.overlap import overlaps_itself, refuse_overlap
from .dispatch.refused import takes_tensors
from .dispatch.unwrap import index_raw, index_vector, outside, raw_of, shape_of, watched
from .elementwise import where
from .movement import contiguous
from .reduction import normalize_dim, place

# -- x[index] ------------------------------------------------------------------------------------------------


def raw_index(tensor, index):
    """An index expression with raw arrays in place of Tensors; returns (index tuple, its arrays, `watched`).

    A list of numbers is an index array, as in PyTorch; `x[None]`, slices, ints, `...`, bool masks and integer
    arrays may be mixed. A second `...` stands for nothing.

    Raises:
        IndexError: an index array of floats, or too many indices.
    """
    items = index if type(index) is tuple or _is_tuple_in_disguise(index) else (index,)
    out, arrays = [], []
    ellipsis = False
    raw = raw_of(tensor)
    for item in items:
        if item is Ellipsis:
            out += [] if ellipsis else [item]
            ellipsis = True
            continue
        if type(item) is int or item is None:
            out.append(item)
            continue
        if type(item) is slice:
            out.append(_plain_slice(item))
            continue
        if isinstance(item, np.integer):
            out.append(int(item))
            continue
        if isinstance(item, bool):
            out.append(np.asarray(item))
            arrays.append(Array._wrap(out[-1]))
            continue
        if isinstance(item, (list, tuple)) and not _has_tensors(item):
            item = np.asarray(item)
            if item.dtype.kind in "cUO":
                raise TypeError(
                    f"an index: expected a list of integers or bools, got {items}. Use numbers of one kind."
                )
            if item.size == 0 or item.dtype.kind == "f":  # PyTorch truncates floats in a list
                item = item.astype(np.int64)
        elif isinstance(item, (list, tuple)):
            item = np.asarray([int(i) for i in item]) if _all_scalars(item) else np.stack([np.asarray(i) for i in item])
        elif isinstance(item, range):
            item = np.asarray(item)
        if isinstance(item, np.bool_):
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None, bools and tensors are valid indices (got numpy.bool)"
            )
        array = item._mt_data._array if isinstance(item, Tensor) else item._array if isinstance(item, Array) else item
        if not is_raw(array):
            if hasattr(item, "__index__"):
                out.append(item.__index__())
                continue
            error = TypeError if isinstance(item, str) else IndexError
            raise error(
                f"only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices (got {kind(item)})"
            )
        if array.dtype.kind not in "iub" or (array.ndim and array.dtype not in INDEX_DTYPES):
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {array.dtype}.")
        if array.dtype == np.uint8:
            warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
            array = array.astype(bool)
        if array.ndim == 0 and array.dtype.kind != "b" and type(array) is not MetaArray:
            out.append(int(array))  # on a GPU this waits for it, as in PyTorch: the result is a view
            continue
        xp = xp_of(raw)
        as_is = type(array) is MetaArray or (xp in ON_NUMPY and xp_of(array) in ON_NUMPY)
        out.append(array if as_is else xp.asarray(array))
        arrays.append(watched(out[-1], item))
    _check_bounds(raw.shape, out)
    return tuple(out), arrays


_PLAIN = frozenset((int, type(None)))


def _is_plain(items):
    """Returns True if an index contains only ints, None and slices of ints, which NumPy accepts unchanged."""
    for item in items:
        kind = type(item)
        if kind is slice:
            if item.step is not None or type(item.start) not in _PLAIN or type(item.stop) not in _PLAIN:
                return False
        elif kind not in _PLAIN:
            return False
    return True


def _dims_of(item):
    """Returns the number of axes that one item of an index reads: for a mask its number of axes, for None and `...` 0."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if is_raw(item) and item.dtype.kind == "b" else 1


def _is_tuple_in_disguise(index):
    """Returns True if a list is read as a tuple: a short list with items other than numbers. As in PyTorch, this warns."""
    if type(index) is not list or len(index) >= 32:
        return False
    found = any(
        i is None or i is Ellipsis or isinstance(i, (slice, list, tuple, range, Tensor, Array, ndarray)) for i in index
    )
    if found:
        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq]."
        )
    return found


def _plain_slice(item):
    if item.step is not None and item.step < 0:
        raise ValueError("step must be greater than zero; use flip() to reverse an axis.")
    try:
        parts = [None if p is None else p.__index__() for p in (item.start, item.stop, item.step)]
    except AttributeError:
        raise TypeError(f"slice indices must be integers or None or have an __index__ method, got {item}") from None
    if parts[2] == 0:
        raise ValueError("slice step cannot be zero")
    return slice(*parts)


def _has_tensors(items):
    return any(isinstance(i, (Tensor, Array)) or (isinstance(i, (list, tuple)) and _has_tensors(i)) for i in items)


def _all_scalars(items):
    return all(isinstance(i, int) or (hasattr(i, "ndim") and i.ndim == 0) for i in items)


def _check_bounds(shape, items):
    """Raises PyTorch's errors for too many indices and for integers out of range."""
    used = sum(map(_dims_of, items))
    if not shape and len(items) == 1 and type(items[0]) is int:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number.")
    if used > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    axis = 0
    for item in items:
        if type(item) is int and not -shape[axis] <= item < shape[axis]:
            raise IndexError(f"index {item} is out of bounds for dimension {axis} with size {shape[axis]}")
        if is_raw(item) and item.dtype.kind == "b" and item.shape != tuple(shape[axis : axis + item.ndim]):
            raise IndexError(
                f"The shape of the mask {list(item.shape)} at index {axis} does not match the shape of the indexed tensor "
                f"{list(shape)} at index {axis}"
            )
        axis += len(shape) - used if item is Ellipsis else _dims_of(item)


def _misfit(shape, index):
    """PyTorch's sentence on an index that does not fit a shape."""
    used, axis, arrays = sum(map(_dims_of, index)), 0, []
    for position, item in enumerate(index):
        if is_raw(item) and item.dtype.kind == "b":
            here = shape[axis : axis + item.ndim]
            if item.shape != here:
                return (
                    f"The shape of the mask {list(item.shape)} at index {position} does not match the shape of the indexed tensor "
                    f"{list(shape)} at index {axis}"
                )
        elif is_raw(item):
            arrays.append(item)
            wrong = item[(item < -shape[axis]) | (item >= shape[axis])]
            if wrong.size:
                return (
                    f"index {int(wrong.reshape(-1)[0])} is out of bounds for dimension {axis} with size {shape[axis]}"
                )
        axis += len(shape) - used if item is Ellipsis else _dims_of(item)
    shapes = ", ".join(str(list(a.shape)) for a in arrays)
    return f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"


def _taken(x, rows, axis):
    """NumPy's `take`. Along the last axis it copies one element at a time, so runs of neighbors are copied as slices, as in padding.

    Other indices of the last axis are read by a compiled loop.
    """
    if axis == x.ndim - 1 and rows.ndim == 1 and rows.size > 16:
        starts = [0, *np.flatnonzero(np.diff(rows) != 1) + 1, rows.size]
        if 8 * len(starts) < rows.size and rows.min() >= 0 and rows.max() < x.shape[-1]:
            out = np.empty((*x.shape[:-1], rows.size), x.dtype)
            for start, stop in itertools.pairwise(starts):
                out[..., start:stop] = x[..., rows[start] : rows[start] + stop - start]
            return out
        return numpy_ns.take_last(x, rows)
    return x.take(rows, axis)


def _picks_along_last(index):
    """Returns True if an index is [:, :, rows], for which NumPy's `take` is faster than general indexing."""
    return (
        len(index) > 1 and type(index[-1]) is ndarray and index[-1].dtype.kind in "iu"
        and all(type(i) is slice and i == slice(None) for i in index[:-1])
    )  # fmt: skip


ARRAY = "array"  # takes the place of an index array in the layout of an index
INDEX_DTYPES = frozenset(map(np.dtype, ("int64", "int32", "uint8", "bool")))  # of index arrays, as in PyTorch
ROWS = (ARRAY,)  # the layout of x[rows]


def layout_of(index):
    """Returns an index with ARRAY instead of each array."""
    return tuple([ARRAY if is_raw(i) else i for i in index])


def joined(layout, arrays):
    """Returns the index with this layout and these arrays."""
    if len(arrays) == len(layout):
        return tuple(arrays)
    rest = iter(arrays)
    return tuple([next(rest) if item is ARRAY else item for item in layout])


def read_along(input, dim, index):
    """Returns the slices of input at the positions in the array `index` along `dim`."""
    return _index_select.fast_call(input, index, layout=(slice(None),) * dim + ROWS)


def _new_axes(found, input, index):
    """Returns found = input[index] with the strides that PyTorch gives to new axes, which it adds before it reads on."""
    strides, axis, place = list(found.strides), 0, 0
    for item in index:
        if item is None:
            strides[place] = input.shape[axis] * input.strides[axis] if axis < input.ndim else input.itemsize
            place += 1
        elif item is Ellipsis:
            free = input.ndim - sum(map(_dims_of, index))
            axis, place = axis + free, place + free
        else:
            axis, place = axis + 1, place + (type(item) is slice)
    return with_strides(found, tuple(strides))


def _read(input, index):
    """input[index], where the index can have arrays."""
    if type(input) is ndarray and input.size > 1024 and _picks_along_last(index):
        return _taken(input, index[-1], len(index) - 1)
    try:
        found = input[index]
        return input[(*index, ...)] if isinstance(found, np.generic) else found  # one element: a view, not a copy
    except IndexError:
        _check_bounds(input.shape, index)
        raise IndexError(_misfit(input.shape, index)) from None


@op(dtype="same", view=True, name="slice", grad_name="Index")
def _slice(xp, input, *, index):
    """input[index], a view: the index has no arrays."""
    found = _read(input, index)
    if None not in index or type(found) is not ndarray:
        return found
    # If NumPy reshapes, its strides of new axes are PyTorch's, unless one comes last or there are other axes of size 1.
    reshapes = found.size == input.size and 1 not in input.shape
    if reshapes and (found.shape[-1] != 1 or input.flags.c_contiguous):
        return input.reshape(found.shape)
    return _new_axes(found, input, index)


def _picked_order(out, raws, attrs):
    """Returns the elements at index arrays in PyTorch's layout: an elementwise function of the rest of the input and of the indices."""
    input, arrays = raws[0], iter(raws[1:])
    if isinstance(input, MetaArray) or all(raw.flags.c_contiguous for raw in raws):
        return in_rows(out)
    basic, picked, own = [], [], []  # the index of a view, and for each of its axes whether an array picks from it
    free = input.ndim - sum(map(_dims_of, joined(attrs["layout"], raws[1:])))
    for item in attrs["layout"]:
        if item is ARRAY:
            own.append(next(arrays))
            dims = _dims_of(own[-1])
            basic += [slice(None)] * dims
            picked += [True] * dims
        elif item is Ellipsis:
            basic += [slice(None)] * free
            picked += [False] * free
            free = 0
        else:
            basic.append(item)
            picked += [False] * (type(item) is not int)
    view = _slice.forward(None, input, index=tuple(basic))
    picked += [False] * (view.ndim - len(picked))
    count = picked.count(True)
    first = picked.index(True) if count else 0
    at = first if all(picked[first : first + count]) else 0
    rest = [s for s, taken in zip(element_strides(view), picked, strict=True) if not taken]
    dims = out.ndim - len(rest)
    operands = [(out.shape, (*rest[:at], *[0] * dims, *rest[at:]))]
    before, after, size = (1,) * at, (1,) * (len(rest) - at), out.shape[at : at + dims]
    for index in own:
        steps = [s if n > 1 else 0 for n, s in zip(index.shape, element_strides(index), strict=True)]
        steps = [0] * dims if index.dtype.kind == "b" else [0] * (dims - len(steps)) + steps
        operands.append(((*before, *size, *after), (*[0] * len(before), *steps, *[0] * len(after))))
    return placed(out, iterated(out.shape, tuple(operands)))


ROWS_FROM_ROWS.add(_picked_order)


@op(dtype="same", name="index", integers=("indices",), layout=_picked_order)
def _index(xp, input, *indices, layout):
    """input[joined(layout, indices)], a copy: the index has arrays."""
    return _read(input, indices if layout is ROWS else joined(layout, indices))


@op(dtype="same", name="index_zeros", integers=("indices",))
def _put_index(xp, src, *indices, layout, shape):
    """Zeros of `shape` with src added at an index: the gradient of reading there."""
    out, index = xp.zeros(shape, src.dtype), joined(layout, indices)
    integers = [i for i in indices if i.dtype.kind != "b"]
    if not integers:
        out[index] = src
    elif len(index) == 1:
        add_rows(xp, out, index[0], src)
    elif index[-1] is integers[0] and index[-1].ndim == 1 and _picks_along_last(index):
        places = np.where(index[-1] < 0, index[-1] + shape[len(index) - 1], index[-1]).astype(np.int64, copy=False)
        along = places.reshape(-1, *(1,) * (len(shape) - len(index)))
        xp.add_along(out, np.broadcast_to(along, src.shape), len(index) - 1, src)
    else:
        xp.scatter_add(out, index, src)
    return out


def _read_grad(g, indices, layout, xp):
    return xp.call(_index, g, *indices, layout=layout) if indices else xp.call(_slice, g, index=layout)


_put_index.grad(src=_read_grad)
_slice.grad(input=lambda g, index, shape, xp: xp.call(_put_index, g, layout=index, shape=shape))
_index_select = _index.named("Index", "IndexSelectBackward0", layout=in_rows)
_index.grad(input=lambda g, indices, layout, shape, xp: xp.call(_put_index, g, *indices, layout=layout, shape=shape))


def add_rows(xp, out, rows, values):
    """out[rows[i]] += values[i], in place, rows repeating at will: the gradient of an embedding."""
    rows = rows.reshape(-1)
    if xp in ON_NUMPY and rows.dtype.kind == "i":
        rows = xp.where(rows < 0, rows + np.int64(out.shape[0]), rows)
    width = math.prod(out.shape[1:])
    xp.add_rows(out.reshape(out.shape[0], width), rows, values.reshape(rows.shape[0], width))


def _split_index(items, dims):
    """Returns (basic part, remaining index of the resulting view), or None if NumPy reads the index as PyTorch does.

    If a slice or None separates index arrays, both libraries move their axes to the front. NumPy treats an int as an index
    array; PyTorch applies ints first, so `x[0, :, [1, 2]]` keeps its order.
    """
    places = [i for i, item in enumerate(items) if type(item) is int or is_raw(item)]
    if places[-1] - places[0] + 1 == len(places) or not any(type(items[i]) is int for i in places):
        return None
    used = sum(map(_dims_of, items))
    first, then = [], []
    for item in items:
        if type(item) is int:
            first.append(item)
        elif is_raw(item):
            first += [slice(None)] * _dims_of(item)
            then.append(item)
        else:
            first.append(item)
            then += [slice(None)] * (dims - used if item is Ellipsis else 1)
    return tuple(first), tuple(then)


def getitem(self, index):
    """self[index]: a view for ints, slices, None and `...`; a copy for masks and index tensors."""
    if gpu.several_gpus:
        where = other_device((self,))
        if where is not None:
            with where:
                return getitem(self, index)
    if type(index) is int and index == 0 and self.ndim == 0 and not config.pytorch_mode:
        index = ()  # older programs print loss[0]
    items = index if type(index) is tuple else (index,)
    if isinstance(index, Tensor) and type(raw_of(self)) is ndarray:
        raw = index._mt_data._array
        if type(raw) is ndarray and raw.ndim and raw.size and raw.dtype.char in "lqi?":
            return _index.fast_call(self, index, layout=ROWS)
    elif _is_plain(items):
        return _slice.fast_call(self, items)
    found, arrays = raw_index(self, index)
    parts = _split_index(found, self.ndim) if arrays else None
    if parts is not None:
        self, found = _slice.fast_call(self, parts[0]), parts[1]
    return _index.fast_call(self, *arrays, layout=layout_of(found)) if arrays else _slice.fast_call(self, found)


@op(dtype="same", name="index_write", integers=("indices",), layout=None)
def _write_index(xp, input, src, *indices, layout):
    """input with src written at an index; the memory holds that already (see setitem)."""
    return input


def _cleared(g, indices, layout, xp):
    # In vmap, `g` stands for a batch and has no values. The mask is the same for all samples, and needs some.
    raw = indices[0] if indices else raw_of(g)
    mask = (numpy_ns if type(raw) is MetaArray and raw.batch is not None else xp_of(raw)).ones(g.shape, bool)
    mask[joined(layout, indices)] = False
    return xp.where(mask if type(mask) is MetaArray or is_raw(g) else Tensor._wrap(mask), g, 0.0)


_write_index.grad(input=_cleared, src=_read_grad)


def setitem(self, index, value):
    """self[index] = value, recorded; value may be a number or anything that broadcasts to the region.

    Raises:
        RuntimeError: shapes that don't broadcast, or self is a leaf that requires grad.
    """
    if gpu.several_gpus:
        where = other_device((self,))
        if where is not None:
            with where:
                return setitem(self, index, value)
    if index is False:
        return
    found, arrays = raw_index(self, index)
    basic = not arrays
    if basic and 0 in raw_of(self).strides:  # an element may be written that shares its memory with others
        check_writable(_slice(self.detach(), index=found), "setitem")
        if isinstance(self, Tensor) and get_mode().grad:
            check_shared(self, "setitem")
    else:
        check_writable(self, "index_put_")
    parts = None if basic else _split_index(found, self.ndim)
    if parts is not None:
        setitem(_slice(self, index=parts[0]), joined(layout_of(parts[1]), arrays), value)
        return
    array = self if isinstance(self, Array) else self._mt_data
    if isinstance(value, (Tensor, Array)):
        written = _written(self, array, found, basic, value)
        if type(written) is MetaArray and type(array._array) is not MetaArray:
            raise NotImplementedError(NO_DATA)
    else:
        written = dtypes.fitting(value, array.dtype, fill=True) if isinstance(value, NUMBERS) else Array(value)._array
    try:
        array._array[found] = written
    except (IndexError, TypeError, ValueError) as error:
        if (other := other_layout("setitem", self)) is not None:
            other(self, index, value)
        raise _unwritable(array._array, found, written, error) from None
    array._bump()
    mode = get_mode()
    if mode.interpreter:
        mode.interpreter.set_item(self, found, value if isinstance(value, (Tensor, Array)) else written)
    if isinstance(self, Tensor) and mode.grad:
        _record_assignment(self, array, found, arrays, value)


def _written(self, array, found, basic, source):
    """The raw array of a tensor that is written to self[found]."""
    raw, value = array._array, raw_of(source)
    mask = found[0] if type(found) is tuple and len(found) == 1 else found
    if value.dtype != raw.dtype and not basic and (value.size != 1 or str(getattr(mask, "dtype", "")) != "bool"):
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{dtypes.from_numpy(raw.dtype)} for the destination and {dtypes.from_numpy(value.dtype)} for the source."
        )
    if array._version_counter is not None and basic and isinstance(raw, ndarray):
        refuse_overlap(self, source, "setitem", region=raw[found])
    if value.ndim and value.shape[0] == 1:
        value = value.reshape(value.shape[next((i for i, n in enumerate(value.shape) if n != 1), value.ndim) :])
    if value.dtype.kind == "c" and raw.dtype.kind != "c":
        raise RuntimeError(f"index_put_: a {value.dtype} value can't be written into a {raw.dtype} tensor.")
    from_cpu = type(value) is ndarray and not isinstance(raw, ndarray)
    return xp_of(raw).asarray(value) if from_cpu else value


def _unwritable(raw, found, value, error):
    """Returns the error for an assignment raw[found] = value that NumPy rejects."""
    if isinstance(error, IndexError):
        return IndexError(_misfit(raw.shape, found))
    try:
        region = raw[found].shape
    except IndexError:
        return IndexError(_misfit(raw.shape, found))
    except ValueError:
        region = ()
    if any(isinstance(i, slice) and i.step == 0 for i in (found if isinstance(found, tuple) else (found,))):
        return ValueError("slice step cannot be zero")
    return RuntimeError(
        f"shape mismatch: value tensor of shape {list(np.shape(value))} cannot be broadcast to indexing result of shape "
        f"{list(region)}"
    )


def _record_assignment(self, array, found, arrays, source):
    """The edge of a tensor into which `source` was written, if one of the two has an edge."""
    is_tensor = isinstance(source, Tensor)
    if self.edge is None and (not is_tensor or source.edge is None):
        return
    raw = array._array
    region = tuple(raw[found].shape)
    if is_tensor:
        lead = len(region) - source.ndim
        src = source if lead >= 0 else source.reshape(tuple(source.shape)[-lead:])
        src = src.expand(*region) if tuple(source.shape) != region else source
        src = src.to(self.dtype)
    else:
        src = Tensor._wrap(xp_of(raw).zeros(region, raw.dtype))
    if self._mt_view is not None and not arrays and overlaps_itself(raw):
        # Elements that share memory with the region are written, too.
        set_edge(_slice.fast_call(self, found), src._mt_edge)
        return
    before = Tensor._of(array, self._mt_edge)
    written = _write_index(before, src, *arrays, layout=layout_of(found))
    changed = None
    if self._mt_view is not None and arrays and overlaps_itself(raw):
        changed = xp_of(raw).zeros(raw.shape, bool)
        changed[found] = True
        changed = to_device(changed, CPU)
    set_edge(self, (written if arrays else name_node(written, "IndexWrite", "CopySlices"))._mt_edge, changed)


def delitem(self, index):
    """Refused: a tensor's elements cannot be deleted.

    Raises:
        TypeError: always.
    """
    raise TypeError("Tensor does not support deleting items")


METHODS["__getitem__"] = getitem
METHODS["__delitem__"] = delitem
METHODS["__setitem__"] = setitem


# -- along an axis: gather, scatter, take -------------------------------------------------------------------


@op(dtype="same", name="gather", integers=("index",))
def _gather(xp, input, index, *, dim):
    if input.ndim == 0:
        return xp.broadcast_to(input, index.shape).copy()
    return xp.gather(input, index, dim)


@op(dtype="same", name="scatter_zeros", integers=("index",))
def _scatter_zeros(xp, src, index, *, dim, shape):
    """Zeros of `shape` with src added at `index` along `dim`: the gradient of gather."""
    out = xp.zeros(shape, src.dtype)
    if not len(shape):
        return xp.asarray(xp.sum(src), src.dtype)
    xp.add_along(out, index, dim, src)
    return out


_gather.grad(input=lambda g, index, dim, shape, xp: xp.call(_scatter_zeros, g, index, dim=dim, shape=shape))
_scatter_zeros.grad(src=lambda g, index, dim, xp: xp.call(_gather, g, index, dim=dim))


@public(inplace=False)
@takes_tensors("index")
def gather(input, dim, index, *, sparse_grad=False):
    """Gathers elements along a dimension.

        result[i, j] = input[index[i, j], j]    (dim=0)
        result[i, j] = input[i, index[i, j]]    (dim=1)

    Use it to pick another element in each row, such as the log-probability of each label. `index_select` picks whole
    rows.

    Args:
        dim: dimension of the index.
        index: int64 indices, of the shape of the result.
        sparse_grad: ignored; gradients are dense.

    Raises:
        RuntimeError: `index` has another number of axes, or is larger than `input` in another dimension.
        IndexError: an index is out of range.

    Example:
        >>> mytorch.gather(tensor([[1, 2], [3, 4]]), 1, tensor([[0, 0], [1, 0]])).tolist()
        [[1, 1], [4, 3]]
    """
    sizes = shape_of(input)
    d, raw = normalize_dim(dim, len(sizes)), index_raw(index, "gather")
    if len(sizes) != raw.ndim and sizes:
        if raw.size == 0:
            return input.reshape(-1)[:0].reshape(raw.shape)  # empty, with a gradient of zeros
        if raw.ndim == 0 and len(sizes) == 1:
            return own(gather(input, dim, index.reshape(1)).reshape(()))
        raise RuntimeError("gather(): Index tensor must have the same number of dimensions as input tensor")
    for i, (n, m) in enumerate(zip(raw.shape, sizes, strict=False)):
        if n > m and i != d:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(raw.shape)} to be no larger than self {list(sizes)} apart from dimension {d}"
            )
    size = sizes[d] if sizes else 1
    if outside(raw, size):
        wrong = next(i for i in raw.reshape(-1).tolist() if not 0 <= i < size)
        raise RuntimeError(f"gather: index {wrong} is out of bounds for dimension {d} with size {size}")
    return _gather.fast_call(input, watched(raw, index), dim=d)


@public(inplace=False)
@takes_tensors("index")
def index_select(input, dim, index):
    """Selects slices along a dimension by index.

    Use it to pick whole slices, and `gather` to pick a different element in each.

    Args:
        index: int64 indices, (n,).

    Example:
        >>> mytorch.index_select(tensor([[1, 2], [3, 4]]), 1, tensor([1, 1])).tolist()
        [[2, 2], [4, 4]]
    """
    d = normalize_dim(dim, input.ndim)
    raw = index_vector(index, "index_select")
    if input.ndim == 0:
        if raw.size != 1:
            raise RuntimeError(f"index_select: Index to scalar can have only 1 value, got {raw.size} value(s).")
        return own(index_select(input.reshape(1), 0, index).reshape(()))
    if outside(raw, input.shape[d]):
        error = IndexError if input.numel() else RuntimeError  # as in PyTorch
        raise error(f"index_select: index out of range in self: expected values from 0 to {input.shape[d] - 1}.")
    return read_along(input, d, watched(raw, index))


# -- masks -----------------------------------------------------------------------------------------------------


@public()
@takes_tensors("mask")
def masked_fill(input, mask, value):
    """Fills the elements where a mask is True with a value, in a copy.

    Use it to overwrite with one number, such as -inf in attention; `where` chooses between two tensors.

    Args:
        mask: bool mask that broadcasts to `input`.
        value: a number or a 0-d tensor.

    Raises:
        RuntimeError: `mask` is not bool, or `value` is not 0-d.

    Example:
        >>> x = tensor([1.0, -2.0])
        >>> x.masked_fill(x < 0, 0.0).tolist()
        [1.0, 0.0]
    """
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if getattr(value, "ndim", 0):
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    if isinstance(value, (Tensor, Array)):
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(f"masked_fill_: a complex value can't be written into a tensor of {input.dtype}")
        value = value.to(input.dtype)
    elif type(value) in NUMBERS:
        value = dtypes.fitting(value, input.dtype)
    return name_node(
        contiguous(where(mask, value, input)), "MaskedFill", f"MaskedFillBackward{int(isinstance(value, Tensor))}"
    )


@public(inplace=False)
@takes_tensors("mask")
def masked_select(input, mask):
    """Returns the elements where a mask is True, as a 1-d tensor.

    Use it when you need the elements themselves. Their number depends on the mask; `where` keeps the shape.

    Args:
        mask: bool mask that broadcasts with `input`.

    Example:
        >>> mytorch.masked_select(tensor([1, 2, 3]), tensor([True, False, True])).tolist()
        [1, 3]
    """
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    shape = broadcast(input.shape, mask.shape)
    return input.expand(*shape)[mask.expand(*shape)]


@public(inplace=False)
@on_input_device
def nonzero(input, *, out=None, as_tuple=False):
    """Returns the indices of the nonzero elements.

    Args:
        as_tuple: if True, returns one tensor for each axis; otherwise an int64 tensor (n, ndim) (default: False).

    Example:
        >>> mytorch.nonzero(tensor([[0, 5], [6, 0]])).tolist()
        [[0, 1], [1, 0]]
    """
    if out is not None:
        return write_out(nonzero(input, as_tuple=as_tuple), out, "nonzero", exact=True)
    raw = raw_of(input)
    xp = xp_of(raw)
    found = xp.stack(xp.nonzero(raw.reshape(1) if raw.ndim == 0 else raw), axis=0).astype(np.int64, copy=False)
    if as_tuple:
        return tuple(Tensor._wrap(f) for f in found)
    if raw.ndim == 0:
        return Tensor._wrap(xp.zeros((len(found[0]), 0), np.int64))
    return Tensor._wrap(found.T)


@public(inplace=False)
@on_input_device
def nonzero_static(input, *, size, fill_value=-1, out=None):
    """Returns the indices of the first nonzero elements, as many as `size` says.

    Use it where the shape of a result must not depend on values.

    Args:
        size: number of rows of the result.
        fill_value: value of the rows beyond the nonzero elements (default: -1).

    Returns:
        An int64 tensor (size, ndim).

    Raises:
        RuntimeError: `size` is negative.

    Example:
        >>> mytorch.nonzero_static(tensor([0, 5, 6]), size=3).tolist()
        [[1], [2], [-1]]
    """
    if out is not None:
        return write_out(nonzero_static(input, size=size, fill_value=fill_value), out, "nonzero_static", exact=True)
    if size < 0:
        raise RuntimeError(f"nonzero_static: expected a size of at least 0, got {size}. Pass the number of rows.")
    found = raw_of(nonzero(input))[:size]
    rows = xp_of(found).full((size, found.shape[1]), fill_value, np.int64)
    rows[: len(found)] = found
    return Tensor._wrap(rows)


@op(dtype="same")
def _triangle(xp, input, *, diagonal, lower):
    return (xp.tril if lower else xp.triu)(input, diagonal)


_triangle.grad(input=lambda g, diagonal, lower, xp: xp.call(_triangle, g, diagonal=diagonal, lower=lower))


def _on(input, device):
    return input if device is None else input.to(device)


@public(spellings={"k": "diagonal"})
def tril(input, diagonal=0, *, requires_grad=False, device=None):
    """Returns the lower triangle of matrices, with zeros elsewhere.

    Args:
        input: (…, M, N).
        diagonal: last diagonal to keep: 0 is the main one, positive numbers are above it (default: 0).

    Example:
        >>> mytorch.tril(mytorch.ones(2, 3)).tolist()
        [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    out = _triangle(_matrix(_on(input, device), "tril"), diagonal=int(diagonal), lower=True)
    return out.requires_grad_() if requires_grad else out


@public(spellings={"k": "diagonal"})
def triu(input, diagonal=0, *, requires_grad=False, device=None):
    """Returns the upper triangle of matrices, with zeros elsewhere.

    Args:
        input: (…, M, N).
        diagonal: first diagonal to keep: 0 is the main one, positive numbers are above it (default: 0).

    Example:
        >>> mytorch.triu(mytorch.ones(2, 3), diagonal=1).tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    out = _triangle(_matrix(_on(input, device), "triu"), diagonal=int(diagonal), lower=False)
    return out.requires_grad_() if requires_grad else out


def _matrix(input, name):
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    return input


# -- sorting -----------------------------------------------------------------------------------------------------

return_types = {name: namedtuple(name, ("values", "indices")) for name in ("sort", "topk")}


def _order(xp, x, dim, descending):
    """The positions that sort x; ties keep their order."""
    x = x.astype(np.float32) if x.dtype.kind == "V" else x  # NumPy does not sort the NaNs of bfloat16 to the end
    keys = blocks.sort_keys(np.moveaxis(x, dim, -1), descending) if xp is numpy_ns and x.size >= blocks.KEYED else None
    if keys is not None:
        keys.sort(-1)
        keys &= 0xFFFFFFFF
        return np.moveaxis(keys, -1, dim)
    if not descending:
        return xp.argsort(x, axis=dim, kind="stable")
    return xp.flip(x.shape[dim] - 1 - xp.argsort(xp.flip(x, dim), axis=dim, kind="stable"), dim)


@op(dtype="same", outputs=("values", "indices"), name="sort", layout=preserve)
def _sort(xp, input, *, dim, descending):
    if input.ndim == 0:
        return input.copy(), xp.zeros((), np.int64)
    order = _order(xp, input, dim, descending)
    return xp.gather(input, order, dim), order


_sort.grad(input=lambda g, indices, shape, dim, xp: place(xp, g, indices, shape, dim, True))


@public(inplace=False, spellings={"axis": "dim"})
def sort(input, dim=-1, descending=False, stable=False):
    """Sorts the elements along a dimension. The order is always stable.

    Use it when you need the whole order; `topk` is faster for a few elements, and `kthvalue` for one.

    Args:
        dim: dimension along which to sort (default: -1).
        descending: if True, sorts in descending order (default: False).
        stable: accepted for compatibility; equal elements always keep their order.

    Returns:
        A named tuple (values, indices).

    Example:
        >>> values, indices = mytorch.sort(tensor([3, 1, 2]))
        >>> values.tolist(), indices.tolist()
        ([1, 2, 3], [1, 2, 0])
    """
    return return_types["sort"](*_sort(input, dim=normalize_dim(dim, input.ndim), descending=bool(descending)))


@public(inplace=False)
def argsort(input, dim=-1, descending=False, stable=False):
    """Returns the indices that sort the elements along a dimension.

    Args:
        descending: if True, sorts in descending order (default: False).
        stable: accepted for compatibility; equal elements always keep their order.

    Example:
        >>> mytorch.argsort(tensor([3, 1, 2]), descending=True).tolist()
        [0, 2, 1]
    """
    return sort(input, dim, descending, stable).indices


@op(dtype="same", outputs=("values", "indices"), name="topk")
def _topk(xp, input, *, k, dim, largest):
    if input.ndim == 0:
        return input.copy(), xp.zeros((), np.int64)
    large = xp is numpy_ns and input.size >= blocks.KEYED
    indices = xp.top(np.moveaxis(input, dim, -1), k, largest) if large else None
    if indices is None:
        indices = _order(xp, input, dim, largest)[(*(slice(None),) * dim, slice(0, k))]
    else:
        indices = np.moveaxis(indices, -1, dim)
    return xp.take_along_axis(input, indices, axis=dim), indices


_topk.grad(input=lambda g, indices, shape, dim, xp: place(xp, g, indices, shape, dim, True))


@public(inplace=False)
def topk(input, k, dim=-1, largest=True, sorted=True):
    """Returns the k largest or smallest elements along a dimension, in order.

    Use it for a few of the largest elements, which is faster than `sort`.

    Args:
        k: number of elements.
        dim: dimension to reduce (default: -1).
        largest: if False, returns the smallest elements (default: True).
        sorted: ignored; the result is always sorted.

    Returns:
        A named tuple (values, indices).

    Raises:
        RuntimeError: the dimension has fewer than k elements.

    Example:
        >>> mytorch.topk(tensor([3, 1, 2]), 2).values.tolist()
        [3, 2]
    """
    d = normalize_dim(dim, input.ndim)
    n = input.shape[d] if input.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError(f"selected index k out of range: k={k} for an axis of {n}")
    return return_types["topk"](*_topk(input, k=int(k), dim=d, largest=bool(largest)))
