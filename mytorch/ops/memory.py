"""Methods on the memory and the type of a tensor, and PyTorch's alternative names of methods."""

import numpy as np

from ..arrays import address, device_of, in_flight, memory_owner, row_major, to_device, xp_of
from ..arrays.array import Array, on_input_device
from ..arrays.memory_format import channel_axes, layout_of, placed_axes, preserve_format, suggested_format
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import get_mode, inference_counter
from ..autograd.node import Leaf
from .creation import elements, uninitialized
from .dispatch.bind import METHODS, _attribute, public
from .dispatch.inplace import check_shared, check_writable, overwrite
from .dispatch.layouts import other_layout
from .dispatch.op import name_node
from .dispatch.unwrap import raw_of, to_cpu
from .elementwise import named
from .movement import as_shape, contiguous, split


@public(function=False, inplace=False)
@on_input_device
def resize_(self, *sizes, memory_format=None):
    """Changes the shape in place. New elements are not initialized.

    Args:
        sizes: the new shape.
        memory_format: order of the axes in memory (default: None, row-major, or the present order if the shape stays the same).

    Raises:
        RuntimeError: the tensor requires grad, or the format needs another number of axes.
    """
    if isinstance(self, Tensor) and self.requires_grad and not get_mode().inference:
        raise RuntimeError("cannot resize variables that require grad")
    if (other := other_layout("resize_", self)) is not None:
        return other(self, *sizes, memory_format=memory_format)
    _check_memory(self, "resize_")
    self._mt_data._bump()
    shape = as_shape(sizes)
    raw = raw_of(self)
    if shape == raw.shape and memory_format is None:
        return self
    if memory_format == preserve_format:
        raise RuntimeError(f"Unsupported memory format {memory_format}")
    axes = channel_axes(len(shape), memory_format)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: Trying to create tensor with negative dimension: {list(shape)}")
    need = elements(shape, raw.itemsize)
    flat = _from_first(raw)
    if need > flat.size:
        grown = uninitialized(xp_of(raw).empty(need, raw.dtype))
        grown[: flat.size] = flat
        flat = grown
    flat = flat[:need]
    _replace(self, flat.reshape(shape) if axes is None else placed_axes(flat, shape, axes))
    return self


def _check_memory(self, name):
    """Raises an error if a transform that tracks the tensor does not allow other memory for it."""
    if (interpreter := get_mode().interpreter) is not None:
        interpreter.check_write(self, name)


def _from_first(raw):
    """Returns the memory of an array from its first element to the end, which `resize_` keeps."""
    owner = memory_owner(raw)
    if type(owner) is not np.ndarray or owner.dtype != raw.dtype or not owner.flags.c_contiguous:
        return raw.reshape(-1)
    return owner.reshape(-1)[(address(raw) - address(owner)) // raw.itemsize :]


def _replace(self, raw):
    if isinstance(self, Array):
        self._array = raw
    else:
        counter = self._mt_data._version_counter
        self._mt_data = Array._wrap(raw)
        self._mt_data._version_counter = counter


@public(function=False, inplace=False, spellings={"the_template": "other"})
def resize_as_(self, other, *, memory_format=None):
    """Changes the shape in place to the shape of another tensor.

    Args:
        memory_format: order of the axes in memory (default: None, see `resize_`). `preserve_format` is the format of `other`.
    """
    if (resize := other_layout("resize_as_", self)) is not None:
        return resize(self, other, memory_format=memory_format)
    if memory_format == preserve_format:
        memory_format = suggested_format(raw_of(other))
    return resize_(self, tuple(other.shape), memory_format=memory_format)


@public(function=False, inplace=False)
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Makes this tensor use the memory of another tensor or of a storage.

    Args:
        source: a tensor, a result of `storage()` or `untyped_storage()`, or None for an empty tensor (default: None).
        storage_offset: number of elements before the first (default: 0).
        size: new shape (default: the shape of the tensor, or the whole storage).
        stride: number of elements from one index to the next, for each axis (default: row-major).

    Raises:
        RuntimeError: another dtype or device, or a shape that exceeds the memory.
    """
    if isinstance(self, Tensor) and get_mode().grad:
        check_shared(self, "set_")
    _check_memory(self, "set_")
    raw = raw_of(self)
    if source is None:
        source = Tensor._wrap(xp_of(raw).empty(0, raw.dtype))
    if source.device != self.device:
        raise RuntimeError(f"set_: Attempted to set the storage of a tensor on {self.device} to one on {source.device}")
    if not is_tensor(source):
        there = source.elements(self.dtype)
    elif source.dtype is self.dtype:
        there = raw_of(source)
    else:
        raise RuntimeError(f"set_: Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
    self._mt_data._bump()
    _replace(self, there)
    if isinstance(self, Tensor) and isinstance(self._mt_edge, Leaf):  # gradients of earlier results do not belong to it
        renewed = Leaf(there)
        for name in ("grad", "hooks", "post_hooks", "owner"):
            setattr(renewed, name, getattr(self._mt_edge, name))
        self._mt_edge = renewed
    if size is not None or storage_offset:
        size = as_shape((size,)) if size is not None else (there.size - storage_offset,)
        stride = row_major(size) if stride is None else tuple(stride)
        _replace(self, raw_of(Tensor._wrap(there).as_strided(size, stride, storage_offset)))
        if isinstance(self, Tensor) and isinstance(self._mt_edge, Leaf):
            self._mt_edge.shape = raw_of(self).shape
    return self


def _map(self, name, callable, *others):
    """Replaces each element by callable(element, elements of the others), computed on the CPU one by one."""
    check_writable(self, name)
    raw = raw_of(self)
    if any(isinstance(x, Tensor) and x.requires_grad for x in (self, *others)):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")

    def one(*values):
        found = callable(*values)
        if isinstance(found, (str, bytes)):
            raise TypeError(f"{name}: the callable has to return a number, got {found!r}")
        return found

    if raw.size:
        found = np.vectorize(one, otypes=[raw.dtype])(to_cpu(raw), *map(to_cpu, others))
        raw[...] = to_device(found, device_of(raw))
    self._mt_data._bump()
    return self


@public(function=False, inplace=False)
def apply_(self, callable):
    """Replaces each element by callable(element), on the CPU. This is slow.

    Args:
        callable: function of one number.
    """
    return _map(self, "apply_", callable)


@public(function=False, inplace=False)
def map_(self, tensor, callable):
    """Replaces each element by callable(element, element of another tensor), on the CPU. This is slow.

    Args:
        tensor: the other tensor.
        callable: function of two numbers.
    """
    return _map(self, "map_", callable, tensor)


@public(function=False, inplace=False)
def map2_(self, x, y, callable):
    """Replaces each element by callable(element, element of x, element of y), on the CPU. This is slow.

    Args:
        x: second tensor, which broadcasts to this tensor.
        y: third tensor, which broadcasts to this tensor.
        callable: function of three numbers.
    """
    return _map(self, "map2_", callable, x, y)


@public(function=False, inplace=False)
@on_input_device
def fill_diagonal_(self, fill_value, wrap=False):
    """Fills the main diagonal with a value, in place.

    Args:
        wrap: if True, the diagonal continues in tall matrices (default: False).
    """
    raw = raw_of(self)
    if raw.ndim < 2:
        raise RuntimeError(f"fill_diagonal_: dimensions must be larger than 1, got {raw.ndim}")
    if raw.ndim > 2 and len(set(raw.shape)) > 1:
        raise RuntimeError(
            f"fill_diagonal_: all dimensions of input must be of equal length, got {list(raw.shape)}. Fill a matrix at a time."
        )
    on_it = np.zeros(raw.shape, bool)
    np.fill_diagonal(on_it, True, wrap)
    mask = type(self)._wrap(xp_of(raw).asarray(on_it))
    return overwrite(self, self.masked_fill(mask, fill_value), "fill_diagonal_")


@public(inplace=False)
def is_same_size(input, other):
    """Returns True if two tensors have the same shape.

    Args:
        other: the second tensor.
    """
    return tuple(input.shape) == tuple(other.shape)


@public(inplace=False)
def is_nonzero(input):
    """Returns True if a tensor with one element is not zero.

    Raises:
        RuntimeError: if the tensor does not have exactly one element.
    """
    return bool(input)


@public(inplace=False)
def is_signed(input):
    """Returns True if the dtype can represent negative numbers."""
    return input.dtype.is_signed


def _no(name, why, function=True):
    """Defines a method, and optionally a function, that always returns False."""

    @public(inplace=False, function=function)
    @named(name, f"Returns False, because {why}.")
    def method(input):
        return False


@public(inplace=False)
def is_inference(input):
    """Returns True if a tensor was created in `inference_mode`, or is a view of an inference tensor.

    Example:
        >>> with mytorch.inference_mode():
        ...     x = mytorch.ones(2)
        >>> x.is_inference(), x.clone().is_inference()
        (True, False)
    """
    return input._mt_data._version_counter is inference_counter


_no("is_conj", "conjugates are never lazy")
_no("is_neg", "negations are never lazy")


def _itself(name, why):
    @public(function=False, inplace=False)
    @named(name, f"Returns the tensor itself, because {why}.")
    def method(self, *args):
        return self


_itself("module_load", "loaded values are copied without a conversion")


@public(function=False, inplace=False)
def record_stream(self, stream):
    """Tells the memory pool that a stream uses the tensor, if it is not the stream that created the tensor.

    The pool reuses the memory of a deleted tensor for the next tensor of the same stream. A kernel on another stream may not
    have read it yet. After this call, the memory is reused only when that stream has done the work it has at the deletion.
    Use it when you copy batches on a separate stream:

        with cuda.stream(side):
            batch = host.to("cuda", non_blocking=True)
        cuda.current_stream().wait_stream(side)
        batch.record_stream(cuda.current_stream())

    It has no effect on a CPU. During the capture of a CUDA graph, the graph keeps the memory.

    Args:
        stream: a `cuda.Stream`.

    Raises:
        TypeError: the tensor is on a GPU, and `stream` is not a `cuda.Stream`.
    """
    raw = raw_of(self)
    if device_of(raw).type != "cuda":
        return
    if not hasattr(stream, "record_event"):
        raise TypeError(f"record_stream: expected a cuda.Stream, got {type(stream).__name__}.")
    if raw.size:
        in_flight.use_on(raw, stream)


@public(inplace=False)
def split_with_sizes(input, split_sizes, dim=0):
    """Splits a tensor into chunks of the given sizes.

    Args:
        split_sizes: sizes that sum to the size of the dimension.
    """
    return split(input, list(split_sizes), dim)


METHODS["unsafe_chunk"] = METHODS["chunk"]
METHODS["unsafe_split"] = METHODS["split"]


@public(inplace=False)
def narrow_copy(input, dim, start, length):
    """Returns a slice along a dimension as a new tensor, which does not share memory with `input`.

    Use it when the slice should outlive a large tensor; `narrow` is a view and keeps all of its memory.

    Args:
        start: first index.
        length: number of elements.
    """
    if (other := other_layout("narrow_copy", input)) is not None:
        return other(input, dim, start, length)
    return contiguous(input.narrow(dim, start, length).clone())


@public(function=False, inplace=False)
def conj_physical_(self):
    """Computes the complex conjugate in place."""
    return self.copy_(self.conj())


@public(function=False, inplace=False)
def as_subclass(self, cls):
    """Returns this tensor as an instance of a subclass of Tensor, with the same memory and autograd graph.

    Args:
        cls: the subclass.
    """
    leaf = isinstance(self, Tensor) and self.requires_grad and self.is_leaf
    source = name_node(self.view_as(self), "Alias") if leaf else self
    out = Tensor._of(source._mt_data, source._mt_edge, cls)
    out._mt_view = source._mt_view
    return out


@public(function=False, inplace=False)
def is_set_to(self, tensor):
    """Returns True if two tensors are the same view of the same memory.

    Args:
        tensor: the other tensor.
    """
    a, b = raw_of(self), raw_of(tensor)
    return address(a) == address(b) and a.shape == b.shape and a.strides == b.strides


@public(function=False, inplace=False)
def new_empty_strided(self, size, stride, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Creates an uninitialized tensor of the same dtype with a given size and strides.

    Args:
        size: shape of the result.
        stride: number of elements from one index to the next, for each axis.
        device: device of the result (default: the device of this tensor).
    """
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    length = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    options = {"dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
    out = self.new_empty((length,), **options).as_strided(size, stride, 0)
    return out.requires_grad_(requires_grad)


def _removed(name, instead):
    def method(self, *args, **kwargs):
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed. `{name}`: use {instead} instead."
        )

    method.__doc__ = f"Removed from PyTorch; use {instead}."
    public(name=name, inplace=False)(method)


for _name in ("lstsq", "eig", "solve", "symeig", "matrix_rank"):
    _removed(_name, f"linalg.{'eigh' if _name == 'symeig' else _name}")
_attribute("is_mps", lambda self: False)
_attribute("name", lambda self: None)
_attribute("mH", lambda self: self.mT.conj(), doc="The conjugate transpose of the last two dimensions.")
_attribute(
    "layout", lambda self: layout_of(self._mt_data._array),
    doc="The layout: `strided` (dense), `sparse_coo`, `sparse_csr` or `sparse_csc`.",
)  # fmt: skip
_attribute("is_sparse", lambda self: self.layout == "sparse_coo", doc="True if the tensor has the layout `sparse_coo`.")
_attribute(
    "is_sparse_csr", lambda self: self.layout == "sparse_csr", doc="True if the tensor has the layout `sparse_csr`."
)
_attribute("names", lambda self: (None,) * self.ndim, doc="The names of the dimensions, always None.")
