"""Methods about a tensor's memory and kind, and PyTorch's other spellings of methods."""

import numpy as np

from .._array import Array, Size, as_raw, on_input_device
from .._tensor import Tensor, is_tensor
from ..backend import address, device_of, memory_owner, row_major, to_device, xp_of
from ..backend.memory_format import strided
from ..dispatch.bind import METHODS, _attribute, public
from ..dispatch.inplace import check_writable, overwrite
from ..dispatch.unwrap import raw_of, to_cpu
from .creation import elements, uninitialized
from .elementwise import named
from .movement import as_shape, split


@public(function=False, inplace=False)
@on_input_device
def resize_(self, *sizes, memory_format=None):
    """Give self another shape in place; elements that are new are not initialised.

    Raises:
        RuntimeError: self requires grad.
    """
    if isinstance(self, Tensor) and self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = as_shape(sizes)
    raw = raw_of(self)
    if shape == raw.shape:
        return self
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: Trying to create tensor with negative dimension: {list(shape)}")
    need = elements(shape, raw.itemsize)
    flat = _from_first(raw)
    if need > flat.size:
        grown = uninitialized(xp_of(raw).empty(need, raw.dtype))
        grown[: flat.size] = flat
        flat = grown
    _replace(self, flat[:need].reshape(shape))
    return self


def _from_first(raw):
    """The memory of an array from its first element on, as far as it goes: what `resize_` keeps."""
    owner = memory_owner(raw)
    if type(owner) is not np.ndarray or owner.dtype != raw.dtype or not owner.flags.c_contiguous:
        return raw.reshape(-1)
    return owner.reshape(-1)[(address(raw) - address(owner)) // raw.itemsize :]


def _replace(self, raw):
    if isinstance(self, Array):
        self._array = raw
    else:
        self._data = Array._wrap(raw)


@public(function=False, inplace=False, spellings={"the_template": "other"})
def resize_as_(self, other):
    """`resize_` to other's shape."""
    return resize_(self, tuple(other.shape))


@public(function=False, inplace=False)
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Let self use the memory of a tensor (its shape too) or of a storage.

    Args:
        source: a Tensor, or what `storage()` or `untyped_storage()` returned; nothing leaves self empty.
        storage_offset: elements before the first.
        size: the shape; that of a tensor, or all of a storage, by default.
        stride: elements from one index to the next, for each axis; row-major by default.

    Raises:
        RuntimeError: another dtype or device, or places outside the memory.
    """
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
    _replace(self, there)
    if size is not None or storage_offset:
        size = as_shape((size,)) if size is not None else (there.size - storage_offset,)
        stride = row_major(size) if stride is None else tuple(stride)
        _replace(self, raw_of(Tensor._wrap(there).as_strided(size, stride, storage_offset)))
    return self


def _map(self, name, callable, *others):
    """Replace self's elements by callable(own, those of the others), computed on the CPU one by one."""
    check_writable(self, name)
    raw = raw_of(self)

    def one(*values):
        found = callable(*values)
        if isinstance(found, (str, bytes)):
            raise TypeError(f"{name}: the callable has to return a number, got {found!r}")
        return found

    if raw.size:
        found = np.vectorize(one, otypes=[raw.dtype])(to_cpu(raw), *map(to_cpu, others))
        raw[...] = to_device(found, device_of(raw))
    self._data._bump()
    return self


@public(function=False, inplace=False)
def apply_(self, callable):
    """Replace every element by callable(element), on the CPU; slow."""
    return _map(self, "apply_", callable)


@public(function=False, inplace=False)
def map_(self, tensor, callable):
    """Replace every element by callable(own element, tensor's element); slow."""
    return _map(self, "map_", callable, tensor)


@public(function=False, inplace=False)
def map2_(self, x, y, callable):
    """Replace every element by callable(own element, x's element, y's element); slow.

    Args:
        x: what broadcasts to self.
        y: what broadcasts to self.
        callable: of three numbers.
    """
    return _map(self, "map2_", callable, x, y)


@public(function=False, inplace=False)
@on_input_device
def fill_diagonal_(self, fill_value, wrap=False):
    """Write a value along the diagonal."""
    raw = raw_of(self)
    on_it = np.zeros(raw.shape, bool)
    np.fill_diagonal(on_it, True, wrap)
    mask = type(self)._wrap(xp_of(raw).asarray(on_it))
    return overwrite(self, self.masked_fill(mask, fill_value), "fill_diagonal_")


@public(function=False, inplace=False)
def new(self, *args):
    """A tensor of self's dtype: of the given sizes, or with the given data."""
    if args and not isinstance(args[0], (int, Size)):
        return Tensor._wrap(as_raw(args[0], None, self.dtype))
    return self.new_empty(*args)


@public(inplace=False)
def is_same_size(input, other):
    """Whether two tensors have the same shape."""
    return tuple(input.shape) == tuple(other.shape)


@public(inplace=False)
def is_nonzero(input):
    """Whether the only element is not zero."""
    return bool(input)


@public(inplace=False)
def is_signed(input):
    """Whether the dtype holds negative numbers."""
    return input.dtype.is_signed


def _no(name, why, function=True):
    """A method, and perhaps a function, that always answers False."""

    @public(inplace=False, function=function)
    @named(name, f"False: {why} here.")
    def method(input):
        return False


_no("is_conj", "conjugates are never lazy")
_no("is_neg", "negations are never lazy")
_no("is_inference", "inference mode makes ordinary tensors")
_no("is_shared", "processes share no tensors", function=False)
_no("is_coalesced", "there are no sparse tensors", function=False)


def _itself(name, why):
    @public(function=False, inplace=False)
    @named(name, f"self: {why} here.")
    def method(self, *args):
        return self


_itself("share_memory_", "processes share no tensors")
_itself("to_dense", "every tensor is dense")
_itself("module_load", "a loaded value is copied as it is")


@public(function=False, inplace=False)
def record_stream(self, stream):
    """Accepted, as PyTorch's; nothing is done."""


@public(function=False, inplace=False)
def dense_dim(self):
    """The number of axes: every tensor is dense here."""
    return self.ndim


@public(inplace=False)
def split_with_sizes(input, split_sizes, dim=0):
    """`split` into chunks of the given sizes.

    Args:
        split_sizes: lengths that add up to the axis.
    """
    return split(input, list(split_sizes), dim)


METHODS["unsafe_chunk"] = METHODS["chunk"]
METHODS["unsafe_split"] = METHODS["split"]


@public(inplace=False)
def narrow_copy(input, dim, start, length):
    """A copy of `narrow`.

    Args:
        start: the first index.
        length: how many.
    """
    return input.narrow(dim, start, length).clone()


@public(function=False, inplace=False)
def conj_physical_(self):
    """Take the complex conjugate in place."""
    return self.copy_(self.conj())


@public(function=False, inplace=False)
def as_subclass(self, cls):
    """self as an instance of a subclass of Tensor, over the same memory and edge."""
    out = cls.__new__(cls)
    out._data, out._edge, out._view = self._data, self._edge, self._view
    return out


@public(function=False, inplace=False)
def is_set_to(self, tensor):
    """Whether two tensors look at the same memory in the same way."""
    a, b = raw_of(self), raw_of(tensor)
    return address(a) == address(b) and a.shape == b.shape and a.strides == b.strides


@public(function=False, inplace=False)
def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, **named):
    """An uninitialised tensor of self's dtype, of the given size and strides (in elements).

    Args:
        size: shape of the result.
        stride: elements from one index to the next, for each axis.
        dtype, device, requires_grad: as for `mytorch.tensor`.
    """
    length = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    out = self.new_empty((length,), dtype=dtype, device=device).as_strided(size, stride, 0)
    return out.requires_grad_(requires_grad)


def _removed(name, instead):
    def method(self, *args, **kwargs):
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed. `{name}`: use {instead} instead."
        )

    public(name=name, inplace=False)(method)
    method.__doc__ = f"Removed from PyTorch; use {instead}."


for _name in ("lstsq", "eig", "solve", "symeig", "matrix_rank"):
    _removed(_name, f"linalg.{'eigh' if _name == 'symeig' else _name}")
_attribute("is_mps", lambda self: False)
_attribute("name", lambda self: None)
_attribute("mH", lambda self: self.mT.conj())
_attribute("layout", lambda self: strided)
_attribute("names", lambda self: (None,) * self.ndim)
